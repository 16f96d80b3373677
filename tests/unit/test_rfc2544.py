"""The tests of RFC 2544 that follow the search for the throughput, on UUTs whose answers are known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from netbench.cli.summary import rfc2544_table
from netbench.model.campaign import CampaignResults
from netbench.model.distributions import Spread
from netbench.model.frame_size import FrameSize
from netbench.model.received import MeasuringWindow
from netbench.model.search import (
    BackToBack,
    Latency,
    LossAtLoad,
    Recovery,
    Reset,
    Rfc2544Tests,
    SearchResult,
    SearchState,
)
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.model.virtualisation import DurationEstimate
from netbench.plan.schedule import Costs, Schedule
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from netbench.report.tables.searches import bursts_text
from netbench.results.manifest import SEARCHES
from netbench.search.rfc2544_tests import deviations
from netbench.search.search_options import SearchOptions
from netbench.statistics.groups import group_trials
from tests.unit.inputs import profile, topology
from tests.unit.report_page import names_as_files_and_on_page, page_of
from tests.unit.results_factory import campaign, changed, search_result, stream_counts, trial

CAPACITY, BUFFER, HIGHEST = 15_000.0, 1000, 40_000.0
_TENTHS = range(10, 0, -1)
ALL = ["latency", "frame-loss-rate", "back-to-back", "system-recovery", "reset"]
SHORT: dict[str, Any] = {
    "method": "rfc2544",
    "highest": "40kfps",
    "tests": ALL,
    "latency": {"duration": "3s", "times": 4},
    "back_to_back": {"longest": "100ms", "times": 3},
    "recovery": {"duration": "2s", "reduced": "1s", "times": 3},
    "reset": {"duration": "10s", "before": "1s", "times": 2},
}


def schedule(tests: Mapping[str, Any] = {}, costs: Costs | None = None, **more: Any) -> Schedule:
    wanted = profile(
        **{"loads": [], "duration": "10s", "schedule": {"kind": "search", **SHORT, **tests}, "frame_sizes": 64, **more}
    )
    return make_schedule(replace(choose(topology(), wanted), costs=costs or Costs()))


def measured(spec: TrialSpec, *reasons: Reason, recovers_s: float = 0.25, descheduled_s: float = 1.5) -> TrialResult:
    """A trial on a UUT that forwards CAPACITY and buffers BUFFER frames, and loses one frame a while after an overload.

    When it is restarted it is away for `descheduled_s`, and loses the last frame that is sent.
    """
    victim, seconds = spec.victim, spec.duration_s
    sent = round(spec.load.value * seconds)
    lost = max(0, sent - BUFFER - int(CAPACITY * seconds))
    last, longest = sent - 1 if lost else None, lost
    if victim.first_fps is not None:
        overload = round(victim.first_fps * victim.first_s)
        later_fps = (sent - overload) / (seconds - victim.first_s)
        last = overload + round(recovers_s * later_fps) if overload > CAPACITY * victim.first_s else None
        lost = longest = 0 if last is None else 1
    silent_s = 0.0
    if spec.restart_at_s is not None:
        after_s = seconds - spec.restart_at_s
        lost = longest = round(min(descheduled_s, after_s) * spec.load.value)
        last, silent_s = sent - 1, after_s if descheduled_s > after_s else 1 / spec.load.value
    counts = stream_counts(
        sent=sent,
        received=sent - lost,
        intended_fps=spec.load.value,
        intended_frames=sent,
        duration_s=seconds,
        longest_loss_run_frames=longest,
        last_missing_frame=last,
        last_sent_ns=round(seconds * 1e9),
        last_received_ns=round((seconds - silent_s) * 1e9),
        delay=Spread(1_000, 2_000.0 + spec.repetition, 2_000, 3_000, 4_000, 5_000, 9_000),
    )
    return replace(trial(counts, reasons=reasons), spec=spec)


def at(spec: TrialSpec, fps: float) -> TrialSpec:
    """The same trial at another rate."""
    victim, *others = spec.guests
    return replace(spec, guests=(replace(victim, traffic=replace(spec.frames, load=Load.of_fps(fps))), *others))


def followed(search: Schedule, uut: Any = measured) -> tuple[Any, Any, dict[str, TrialResult]]:
    """The last search, its tests, and all trials: a SearchResult, and an Rfc2544Tests."""
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None:
        assert isinstance(spec, TrialSpec)
        assert spec.key not in results
        results[spec.key] = uut(spec)
    found = search.searches[-1]
    return found, found.tests, results


def test_all_tests_follow_the_throughput() -> None:
    found, tests, results = followed(schedule())
    assert found.state is SearchState.FOUND
    # A bucket of BUFFER frames that is full at the start is part of the throughput of a trial of 10 s.
    assert found.lower == pytest.approx(CAPACITY + BUFFER / 10, rel=0.006)
    assert tests.line_rate_fps == pytest.approx(1_488_095.2, rel=1e-6)
    assert (tests.latency.load_fps, tests.latency.trial_s, len(tests.latency.means_ns)) == (found.lower, 3.0, 4)
    assert [round(loss.share, 3) for loss in tests.losses] == [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    assert [loss.loss_ratio for loss in tests.losses[:2]] == [
        pytest.approx(1 - (CAPACITY + 100) / fps) for fps in (40_000, 36_000)
    ]
    assert [loss.loss_ratio for loss in tests.losses[-2:]] == [0, 0]
    bursts = tests.back_to_back
    # n frames at R pass where n − C·n/R ≤ B: RFC 9004's model, of which the correction gives B again.
    longest = BUFFER / (1 - CAPACITY / HIGHEST)
    assert bursts.is_bounded
    assert bursts.longest_frames == 4000
    assert all(0.994 * longest <= frames <= longest + 1 for frames in bursts.frames)
    assert replace(bursts, throughput_fps=CAPACITY).corrected_buffer_frames == pytest.approx(BUFFER, rel=0.006)
    assert bursts.implied_buffer_s == pytest.approx(longest / HIGHEST, rel=0.006)
    assert tests.recovery.overload_fps == pytest.approx(1.1 * found.lower)
    assert tests.recovery.reduced_fps == pytest.approx(0.55 * found.lower)
    assert list(tests.recovery.seconds) == [pytest.approx(0.25, rel=0.001)] * 3
    assert list(tests.reset.seconds) == [pytest.approx(1.5, rel=0.001)] * 2
    of_search = [result for result in results.values() if not result.spec.benchmark]
    assert found.trials == len(of_search) - 4 - len(tests.losses), "those of the tests are none of the search"
    every = list(results.values())
    aside = [result for result in every if result.spec.benchmark]
    assert {result.spec.benchmark for result in aside} == {"back-to-back", "system-recovery", "reset"}
    shown = sum(len(group.everything) for group in group_trials(campaign(every)))
    assert shown == len(every) - len(aside) > 0, "trials without a steady load are no measurement of one"


def test_what_follows_depends_on_the_results_alone() -> None:
    """Another process that goes on after any trial requests the same trials and finds the same."""
    found, _, results = followed(schedule())
    known: dict[str, TrialResult] = {}
    for key, result in results.items():
        assert schedule().next(known) == result.spec
        known[key] = result
    again = schedule()
    assert again.next(known) is None
    assert again.searches == (found,)
    assert SEARCHES.of(SEARCHES.put({}, (found,))) == (found,)


def test_the_reset_is_measured_with_the_smallest_frames() -> None:
    search = schedule({"tests": ["reset"]}, frame_sizes=[1518, 64])
    followed(search)
    assert {
        searched.frame_size.only_size: searched.tests is not None and searched.tests.reset is not None
        for searched in search.searches
    } == {
        1518: False,
        64: True,
    }


def expected_s(tests: Mapping[str, Any] = {}, costs: Costs | None = None, **more: Any) -> Any:
    return schedule(tests, costs, **more).expected_s(())


def test_bursts_are_of_one_frame_size() -> None:
    bursts = {"tests": ["back-to-back"]}
    search = schedule(bursts, frame_sizes=[64, "imix"])
    both_s = search.expected_s(())
    followed(search)
    alone, mixed = (searched.tests.back_to_back for searched in search.searches if searched.tests)
    assert alone
    assert mixed
    assert (len(alone.frames), alone.refused) == (3, "")
    assert (mixed.frames, mixed.refused) == ((), "not with frames of several sizes (RFC 9004, section 3)")
    without_s = expected_s({"tests": ["latency"], "latency": {"duration": "1ms", "times": 1}})
    one_s = expected_s(bursts, frame_sizes=[64])
    assert both_s == pytest.approx(one_s + without_s, abs=2.0), "the mix takes what a search without bursts takes"


def test_each_reset_is_followed_by_a_start_and_its_warm_up_trials_in_the_expected_time() -> None:
    costs = Costs(trial_s=0.0)
    warm = replace(costs, warm_up_trials=5)
    slow = replace(costs, guests={"bridge": DurationEstimate(bring_up_s=7.0)})
    for tests, starts in ([], 1), (["reset"], 3):
        cold_s, warm_s, slow_s = (expected_s({"tests": tests}, cost) for cost in (costs, warm, slow))
        assert slow_s - cold_s == pytest.approx(7.0 * starts)
        assert warm_s - cold_s == pytest.approx(starts * 5 * 10, rel=0.2), "trials of 10 s, about"


def test_a_uut_that_stays_away_and_one_that_does_not_recover() -> None:
    _, tests, _ = followed(
        schedule({"tests": ["system-recovery", "reset"]}),
        lambda spec: measured(spec, recovers_s=0.9999, descheduled_s=100.0),
    )
    assert (tests.recovery.seconds, tests.recovery.unrecovered) == ((), 3)
    assert (tests.reset.seconds, tests.reset.dead) == ((), 2)


def test_the_highest_rate_is_one_that_sources_hold() -> None:
    """Like real sources, they are faster where nothing paces them, and slower in longer trials."""

    def uut(spec: TrialSpec) -> TrialResult:
        if spec.load.kind is LoadKind.MAX:
            return replace(measured(at(spec, 50_000.0)), spec=spec)
        reached = 40_000.0 if spec.duration_s < 0.5 else 30_000.0
        if spec.load.value <= reached:
            return measured(spec)
        slow = measured(at(spec, reached), Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "too slow"))
        return replace(slow, spec=spec)

    found, tests, _ = followed(schedule({"highest": "max", "tests": ["frame-loss-rate", "back-to-back"]}), uut)
    assert found.state is SearchState.FOUND
    assert tests.back_to_back.rate_fps == pytest.approx(0.8 * 30_000)
    assert len(tests.back_to_back.frames) == 3
    assert not any(loss.refused for loss in tests.losses)
    without, *_ = followed(schedule({"highest": "max", "tests": ["latency"]}), uut)
    assert without.state is SearchState.FOUND


def test_sources_that_hold_no_rate_are_given_up() -> None:
    def uut(spec: TrialSpec) -> TrialResult:
        if spec.load.kind is LoadKind.MAX:
            return replace(measured(at(spec, 50_000.0)), spec=spec)
        slow = Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "too slow")
        return replace(measured(at(spec, 0.9 * spec.load.value), slow), spec=spec)

    found, _, results = followed(schedule({"highest": "max", "tests": ["back-to-back"]}), uut)
    assert (found.lower, found.upper, found.tests) == (None, None, None)
    assert found.why == "the sources sustain no rate for 0.1 s: offered-out-of-tolerance: too slow"
    assert len(results) == 4 + 2 * 8, "as fast as they can, and paced, each rate twice"


def test_a_burst_too_short_to_be_sent_at_its_rate_is_not_guessed() -> None:
    """Slow bursts that lose frames are too long all the same; slow bursts that lose none prove nothing."""
    slow = Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "too slow")

    def uut(spec: TrialSpec) -> TrialResult:
        frames = round(spec.load.value * spec.duration_s)
        return measured(spec, *((slow,) if spec.benchmark and frames <= 2000 else ()))

    _, tests, _ = followed(schedule({"tests": ["back-to-back"]}), uut)
    bursts = tests.back_to_back
    assert (bursts.frames, bursts.too_long_frames) == ((), 2000), "1,600 is right; 1,000 come out whole, but slowly"
    assert bursts.refused == "offered-out-of-tolerance: too slow"
    assert bursts_text(tests) == "< 2,000"


def test_nothing_is_reported_where_the_highest_rate_loses_nothing() -> None:
    _, tests, _ = followed(
        schedule({"highest": "10kfps", "tests": ["frame-loss-rate", "back-to-back", "system-recovery"]})
    )
    assert [loss.loss_ratio for loss in tests.losses] == [0, 0]
    assert (tests.back_to_back.frames, tests.back_to_back.mean_frames) == ((), None)
    assert tests.back_to_back.refused == "nothing is lost at the highest rate, however long it lasts"
    assert tests.recovery.refused == f"there is no overload to recover from: {tests.back_to_back.refused}"


def test_a_uut_that_loses_frames_at_any_load_has_a_loss_rate_and_no_more() -> None:
    """Each test that needs a throughput has the reason instead of a result."""

    def uut(spec: TrialSpec) -> TrialResult:
        sent = round(spec.load.value * spec.duration_s)
        return replace(trial(stream_counts(sent=sent, received=sent - 1, intended_frames=sent)), spec=spec)

    found, tests, _ = followed(schedule(), uut)
    assert found.state is SearchState.AT_MOST
    assert [loss.loss_ratio for loss in tests.losses] == [
        pytest.approx(1 / (40_000 * tenth / 10 * 10)) for tenth in _TENTHS
    ]
    others = (tests.latency, tests.back_to_back, tests.recovery, tests.reset)
    assert ["there is no throughput" in outcome.refused for outcome in others if outcome is not None] == [True] * 4
    page = page_of(shown(replace(found, uut="raw")))
    assert "frames are lost even at the lowest load" in page.text
    assert "0.0 kfps" not in page.text


def test_frames_that_came_late_are_not_lost_at_falling_loads() -> None:
    """The last two loads are those reported as lossless."""

    def uut(spec: TrialSpec) -> TrialResult:
        result = measured(spec)
        late = tuple(
            changed(stream, window=MeasuringWindow(0, 1.0, stream.sent.frames // 10))
            for stream in result.streams
            if stream
        )
        return replace(result, guests=(replace(result.guests[0], streams=late),))

    _, tests, _ = followed(schedule({"lowest": "1fps", "width": "25%"}), uut)
    assert [loss.loss_ratio == 0 for loss in tests.losses][-3:] == [False, True, True]


@pytest.mark.parametrize("test", ["latency", "back-to-back", "system-recovery", "reset"])
def test_what_the_tester_cannot_do_is_reported(test: str) -> None:
    """Three trials in which the tester failed are enough, ten of bursts; the other tests go on."""
    why = Reason(ReasonKind.GENERATOR_FAILED, "s1", "broken")

    def uut(spec: TrialSpec) -> TrialResult:
        broken = spec.benchmark == test or (test == "latency" and spec.duration_s == 3.0 and not spec.benchmark)
        return measured(spec, *((why,) if broken else ()))

    _, tests, results = followed(schedule(), uut)
    found = {
        "latency": tests.latency,
        "back-to-back": tests.back_to_back,
        "system-recovery": tests.recovery,
        "reset": tests.reset,
    }
    assert found[test] is not None
    assert {name: outcome.refused for name, outcome in found.items() if outcome is not None and outcome.refused} == {
        test: "generator-failed: broken"
    }
    assert sum(result.reasons == (why,) for result in results.values()) == (10 if test == "back-to-back" else 3)


def test_the_tests_need_a_throughput_without_loss() -> None:
    for options in ({"method": "sweep"}, {"method": "mlrsearch", "loss": ["1%", "0%"]}):
        with pytest.raises(ValidationError, match="begin with the throughput without loss"):
            SearchOptions.model_validate({**options, "tests": ["latency"]})
    with pytest.raises(ValidationError, match="nothing is sent after the reset"):
        SearchOptions.model_validate({"reset": {"duration": "1s", "before": "1s"}})
    in_order = SearchOptions.model_validate({"tests": ["reset", "latency", "reset"]})
    assert in_order.tests == ("latency", "reset")


def test_deviations_are_those_of_the_profile() -> None:
    asked = SearchOptions.model_validate({"method": "rfc2544", "tests": ALL})
    as_told = profile(
        loads=[],
        schedule={"kind": "search"},
        frame_sizes=[64, 128, 256, 512, 1024, 1280, 1518, "imix"],
        duration="60s",
        settle={"before": "2s", "after": "5s"},
        flows=256,
    )
    unavoidable = list(deviations(asked, as_told))
    assert not [deviation for deviation in unavoidable if " instead of " in deviation and "tagged" not in deviation]
    short = list(deviations(SearchOptions.model_validate(SHORT), profile(loads=[], schedule={"kind": "search"})))
    assert "latency's trials: 3 s instead of 120 s (section 26.2)" in short
    assert "searches for the longest burst: 3 instead of 50 (section 26.4)" in short
    assert "overload before recovery: 2 s instead of 60 s (section 26.5)" in short
    alone = list(deviations(SearchOptions.model_validate({"method": "rfc2544"}), as_told))
    assert "not measured: latency, frame-loss-rate, back-to-back, system-recovery, reset" in alone
    remarks = schedule().remarks
    assert {remark.kind for remark in remarks} == {WarningKind.NOT_AS_RFC_2544}
    assert not schedule({"method": "mlrsearch", "tests": []}).remarks


FOUND = search_result(
    method="rfc2544",
    goal="throughput (RFC 2544)",
    lower=15_000.0,
    upper=15_050.0,
    throughput=15_000.0,
    tests=Rfc2544Tests(
        1_488_095.0,
        Latency(15_000.0, 120.0, (4_000.0, 6_000.0)),
        (LossAtLoad(1.0, 40_000.0, 0.625), LossAtLoad(0.9, 36_000.0, None, "capture-dropped: 7")),
        BackToBack(40_000.0, 15_000.0, 80_000, (1590, 1600, 1610)),
        Recovery(16_500.0, 60.0, 8_250.0, 30.0, (0.25, 0.35)),
        Reset(15_000.0, (1.5,)),
    ),
)


def shown(*found: SearchResult) -> CampaignResults:
    otherwise = CampaignWarning(WarningKind.NOT_AS_RFC_2544, "trials: 1 s instead of 60 s (section 24)")
    return replace(campaign([trial(stream_counts())]), searches=found, warnings=(otherwise,))


def test_graphs_of_the_tests_are_files_too() -> None:
    files, on_page = names_as_files_and_on_page(shown(FOUND))
    assert files == on_page
    assert {"rfc2544-throughput-0", "rfc2544-loss-0"} <= set(files)


def test_the_report_has_each_test_and_every_deviation() -> None:
    page = page_of(shown(FOUND))
    for output in (
        "Protocol: UDP in IPv4. Data stream: frames at even gaps, except for bursts. Medium: Ethernet",
        "Latency (section 26.2)",
        "5.0",  # µs, the mean of both trials
        "1,600",
        "40,000.0",  # µs that 1,600 frames take at 40,000/s
        "25,000.0",  # µs, corrected: × (1 − 15/40)
        "1,000.0",  # frames
        "Resolution, frames",
        "80,000",  # frames, the longest burst that was tried
        "300.0 ms",
        "1.50 s",
        "trials: 1 s instead of 60 s (section 24)",
    ):
        assert output in page.text, output


def test_the_terminal_has_a_row_for_each_search_and_what_is_missing() -> None:
    tests = FOUND.tests
    assert tests is not None
    missing = replace(tests, latency=Latency(15_000.0, 120.0, (), "no common clock"), reset=Reset(15_000.0, (), 1))
    console = Console(width=80, record=True)
    table = rfc2544_table(shown(FOUND, replace(FOUND, kind_of_traffic=FrameSize.of(1518), tests=missing)))
    assert table is not None
    console.print(table)
    printed = console.export_text()
    assert ["raw", "64", "5.0", "1,600", "25,000.0", "300.0", "ms", "1.50", "s"] in map(str.split, printed.splitlines())
    assert "not back" in printed
    assert "latency: no common clock" in printed
    assert "frame loss at 90%: capture-dropped: 7" in printed
    assert not {"Scenario", "Sources", "Search"} & set(printed.split())
    assert rfc2544_table(campaign([trial(stream_counts())])) is None


def test_rows_that_differ_in_sources_scenario_or_search_are_reported_apart() -> None:
    others = (
        replace(FOUND, streams=("s1", "s2")),
        replace(FOUND, scenario="shared-idle"),
        replace(FOUND, repetition=2),
    )
    console = Console(width=100, record=True)
    table = rfc2544_table(shown(FOUND, *others))
    assert table is not None
    console.print(table)
    rows = [line.split()[:5] for line in console.export_text().splitlines() if "raw" in line]
    assert rows == [
        ["raw", "dedicated", "1", "#1", "64"],
        ["raw", "dedicated", "2", "#1", "64"],
        ["raw", "shared-idle", "1", "#1", "64"],
        ["raw", "dedicated", "1", "#2", "64"],
    ]
    words = page_of(shown(FOUND, replace(FOUND, repetition=2))).text.split("Latency (section 26.2)")[1].split()
    assert words[:4] == ["UUT", "Frame", "size", "Search"]
