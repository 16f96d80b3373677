"""Searches, against UUTs whose limit is known."""

import random
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.search import SimulatedUut
from netbench.cli.dry_run import describe
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.received import MeasuringWindow
from netbench.model.search import SearchState
from netbench.model.source_ceiling import CeilingSample, ceiling_of
from netbench.model.tester import Disturbance, ThreadDelay
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from netbench.report.tables.searches import remark
from netbench.results.manifest import SEARCHES
from netbench.search.contradictions import contradiction
from netbench.search.measurement import measurement_of
from netbench.search.methods import Bounds, Goal, Measured
from netbench.search.search_options import SearchOptions
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import profile, shared_topology, topology
from tests.unit.report_page import page_of
from tests.unit.results_factory import campaign, changed, stream_counts, trial

SOURCE_FPS = 1_000_000.0
NDR: dict[str, Any] = {"method": "mlrsearch", "loss": ["0%", "0.5%"], "initial": "200ms", "duration_sum": "5s"}
METHODS: dict[str, dict[str, Any]] = {
    "mlrsearch": NDR,
    "rfc2544": {"method": "rfc2544"},
    "tst009": {"method": "tst009"},
}
NOISY: dict[str, Any] = {"noise": 0.002, "stalls": 0.1, "stall_s": 0.005}


def schedule(options, lab=None, **more):
    """The schedule of a profile with these options of a search."""
    lab = lab or topology()
    wanted = profile(loads=[], schedule={"kind": "search", **options}, **more)
    return make_schedule(choose(lab, wanted))


def measured(spec, uut, *reasons, unmeasured=False):
    """The result of a trial on a simulated UUT, from a source that can send 1 M frames/s."""
    fps = spec.load.fps(spec.frame_size, 1e9)
    one = uut.measure(spec.duration_s, SOURCE_FPS if fps is None else fps)
    streams = [
        stream_counts(
            stream,
            sent=one.offered,
            received=one.forwarded,
            intended_fps=fps,
            intended_frames=None if fps is None else one.intended,
            duration_s=one.duration_s,
            window=MeasuringWindow(one.forwarded - one.buffered, one.duration_s, one.buffered),
        )
        for stream in spec.streams
    ]
    counted = [] if unmeasured else streams
    return replace(trial(*counted, reasons=reasons, streams=spec.streams), spec=spec)


def follow(search, result_of):
    """Return the results of a schedule by goal, and those of its trials; no trial comes twice.

    `result_of` makes the result of a trial, from its specification and the number of trials before it.
    """
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None:
        assert spec.key not in results
        assert spec.index == len(results)
        results[spec.key] = replace(result_of(spec, len(results)), spec=spec)
    return {searched.goal: searched for searched in search.searches}, results


def followed(search, uut, judge=lambda spec: ()):
    """Follow a schedule on a simulated UUT."""
    return follow(search, lambda spec, number: measured(spec, uut, *judge(spec)))


@pytest.mark.parametrize("noise", [{}, NOISY])
def test_searches_end_within_their_width(noise):
    """Of a few hundred results of MLRsearch, at least 95 % contain the true limit; both goals count."""
    right = 0
    for seed in range(200):
        draw = random.Random(seed)
        truth = 10 ** draw.uniform(4, 6.5)
        uut = SimulatedUut(truth, seed=seed, **noise)
        method = SearchOptions.model_validate(NDR).method_of(1.0)
        method.search(truth / draw.uniform(50, 1000), truth * draw.uniform(1.2, 12), uut.measure)
        for goal in method.goals:
            bounds, limit = method.bounds(goal), truth / (1 - (goal.loss_ratio or 0.0))
            assert bounds.lower is not None
            assert bounds.upper is not None
            assert bounds.upper - bounds.lower <= 1.001 * 0.005 * bounds.upper
            right += bounds.lower <= 1.005 * limit and bounds.upper >= 0.995 * limit
    assert right >= 0.95 * 2 * 200


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("capacity", [1_234.0, 98_765.0, 654_321.0])
def test_each_method_finds_the_limit(method, capacity):
    found, results = followed(schedule(METHODS[method]), SimulatedUut(capacity, buffer_frames=1000))
    for result in found.values():
        limit = capacity / (1 - result.loss_ratio)
        assert result.state is SearchState.FOUND
        assert result.lower <= 1.0051 * limit
        assert result.upper >= 0.9949 * limit
        assert result.upper - result.lower <= 1.001 * 0.005 * result.upper + 1, "whole frames are offered"
        assert (result.unstable, result.limited_by, result.why) == ("", LIMITED_BY_UUT, "")
        assert result.throughput == pytest.approx(result.lower * (1 - result.loss_ratio), rel=0.006)
    assert result.trials == len(results) - 4  # except the first ones, which measure what the source can do
    assert next(iter(results.values())).spec.load.kind is LoadKind.MAX


@pytest.mark.parametrize(
    ("capacity", "lowest", "loads", "lower", "upper"),
    [
        (65_000.0, None, [100, 90, 80, 70, 60, 50], 60_000, 70_000),
        (1e9, None, [100, 90], 100_000, None),
        (1.0, None, [100, 90, 80, 70, 60, 50, 40, 30, 20, 10], None, 10_000),
        (1.0, "50kfps", [100, 90, 80, 70, 60, 50], None, 50_000),  # all loads below the lowest one are the lowest one
    ],
)
def test_the_frame_loss_rate_goes_down_until_two_loads_lose_nothing(capacity, lowest, loads, lower, upper):
    options = {"method": "loss-rate", "highest": "100kfps", "lowest": lowest}
    found, results = followed(schedule(options), SimulatedUut(capacity, buffer_frames=0))
    (one,) = found.values()
    assert [round(result.spec.load.value / 1000) for result in results.values()] == loads
    assert (one.lower, one.upper) == (lower, upper)


@pytest.mark.parametrize(
    ("options", "buffer", "lower", "upper", "trials"),
    [
        ({"shares": ["10%", "20%", "50%", "100%"], "times": 3}, 0, 50_000, 100_000, 12),
        # Queued frames were not forwarded; the maximum was found although the highest load has it.
        ({"shares": ["10%", "100%"], "lowest": "20kfps"}, 10_000, 100_000, 100_000, 2),
    ],
)
def test_the_maximum_of_a_sweep(options, buffer, lower, upper, trials):
    """As in the paper, it is the load with the highest throughput, whatever is lost."""
    search = schedule({"method": "sweep", "highest": "100kfps", **options})
    found, results = followed(search, SimulatedUut(30_000.0, buffer_frames=buffer))
    (one,) = found.values()
    assert (one.state, one.lower, one.upper, len(results)) == (SearchState.FOUND, lower, upper, trials)
    assert one.throughput == pytest.approx(30_000, rel=0.001)


@pytest.mark.parametrize("method", METHODS)
def test_what_follows_depends_on_the_results_alone(method):
    """Another process that goes on after any trial requests the same trials and finds the same."""
    options = METHODS[method] | {"width": "2%"}
    found, results = followed(schedule(options), SimulatedUut(50_000.0, **NOISY))
    known: dict[str, TrialResult] = {}
    for key, result in results.items():
        following = schedule(options).next(known)
        assert following == result.spec
        known[key] = result
    again = schedule(options)
    assert again.next(known) is None
    assert {searched.goal: searched for searched in again.searches} == found


@pytest.mark.parametrize("method", METHODS)
def test_a_uut_that_never_loses(method):
    found, _ = followed(schedule(METHODS[method]), SimulatedUut(1e9))
    for result in found.values():
        assert (result.state, result.upper, result.lower) == (SearchState.AT_LEAST, None, 980_000)
        assert result.limited_by == LimitCause(LimitKind.SOURCE, paced_fps=980_000)
    asked, _ = followed(schedule(METHODS[method] | {"highest": "200fps"}), SimulatedUut(1e9))
    assert {result.limited_by for result in asked.values()} == {LimitCause(LimitKind.REQUESTED_LOAD)}


@pytest.mark.parametrize("method", METHODS)
def test_a_uut_that_drops_everything(method):
    found, results = followed(schedule(METHODS[method]), SimulatedUut(0.0, buffer_frames=0))
    for result in found.values():
        assert (result.state, result.lower, result.throughput) == (SearchState.AT_MOST, None, None)
        assert result.upper <= 1.05 * 980
    assert len(results) < 60


@pytest.mark.parametrize("method", METHODS)
def test_a_uut_that_does_not_come_up(method):
    """Three successive trials without counts end a search; the next search begins nevertheless."""
    search = schedule(METHODS[method], frame_sizes=[64, 1518])
    why = Reason(ReasonKind.UUT_FAILED, "", "no guest")
    _, results = follow(search, lambda spec, number: measured(spec, SimulatedUut(1e4), why, unmeasured=True))
    assert len(results) == 2 * 3
    assert {(result.state, result.why) for result in search.searches} == {(SearchState.FAILED, "uut-failed: no guest")}


def test_one_failure_of_a_uut_is_measured_again():
    uut = SimulatedUut(50_000.0)
    found, _ = follow(schedule(NDR), lambda spec, number: measured(spec, uut, unmeasured=number in (4, 5, 9)))
    assert {result.state for result in found.values()} == {SearchState.FOUND}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [ReasonKind.CAPTURE_DROPPED, ReasonKind.OFFERED_OUT_OF_TOLERANCE])
def test_a_limit_of_the_tester_is_none_of_the_uut(method, kind):
    """Above 400,000 frames/s trials are invalid, while the UUT would forward much more."""
    output = Reason(kind, "s1", "too fast")
    found, _ = followed(
        schedule(METHODS[method]), SimulatedUut(1e9), lambda spec: (output,) if spec.load.value > 400_000 else ()
    )
    for result in found.values():
        assert (result.state, str(result.limited_by)) == (SearchState.AT_LEAST, f"{kind.value}: too fast")
        assert 395_000 < result.lower <= 400_000 < result.upper < 405_000


def test_a_uut_that_pushes_back_is_at_its_limit():
    """Frames that its link did not take never pass for success."""

    def result_of(spec, number):
        fps = spec.load.fps(64, 1e9) or SOURCE_FPS
        sent = round(min(fps, 70_000) * spec.duration_s)
        counts = stream_counts(
            sent=sent,
            received=sent,
            intended_frames=None if spec.load.kind is LoadKind.MAX else round(fps * spec.duration_s),
            duration_s=spec.duration_s,
        )
        return trial(counts, reasons=(Reason(ReasonKind.SATURATED, "s1", ""),) if fps > 70_000 else ())

    found, _ = follow(schedule(NDR), result_of)
    # At `max` it is offered 70,000, which looks like the highest rate that the source can be paced at.
    assert {(result.state, result.lower) for result in found.values()} == {(SearchState.AT_LEAST, 68_600)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("marked", [True, False], ids=["saturated", "within tolerance"])
def test_a_link_that_pushes_back_until_all_is_sent_is_no_success(method, marked):
    """Sources go on after the duration: at 80,000 of 70,000 frames/s all are sent, in 1.14 times the time."""

    def result_of(spec, number):
        fps = spec.load.value
        took = spec.duration_s * max(1.0, fps / 70_000)
        sent = round(fps * spec.duration_s)
        counts = stream_counts(
            sent=sent,
            received=sent,
            intended_fps=fps,
            intended_frames=sent,
            duration_s=took,
            link_s=max(0.0, took - spec.duration_s / 2),
        )
        return trial(counts, reasons=(Reason(ReasonKind.SATURATED, "s1", ""),) if marked and fps > 70_700 else ())

    search = schedule(METHODS[method] | {"highest": "100kfps", "delay_at": "90%"})
    follow(search, result_of)
    for result in search.searches:
        limit = 70_000 / (1 - (result.loss_ratio or 0.0))
        assert result.state is SearchState.FOUND
        assert 0.99 * 70_000 <= result.lower <= 70_001, "no more is offered"
        assert result.lower < result.upper <= 1.01 * limit
    assert all(at.load_fps == pytest.approx(63_000, rel=0.01) for at in search.searches[0].delays)


@pytest.mark.parametrize("method", METHODS)
def test_a_uut_that_ends_above_some_load_was_above_its_limit(method):
    """It is started again after each of its ends, and the trials after that are measured."""
    died = Reason(ReasonKind.UUT_FAILED, "", "the process is gone")
    search, uut = schedule(METHODS[method] | {"highest": "400kfps"}, frame_sizes=[64, 512]), SimulatedUut(1e9)

    def result_of(spec, number):
        ends = spec.load.value > 100_000
        return replace(measured(spec, uut, *((died,) if ends else ()), unmeasured=ends), boot=spec.boot)

    _, results = follow(search, result_of)
    assert {searched.state for searched in search.searches} == {SearchState.FOUND}
    for searched in search.searches:
        assert 99_000 < searched.lower <= 100_000
        assert searched.why == "at the upper bound: uut-failed: the process is gone"
    ends = [result.spec.load.value > 100_000 for result in results.values()]
    boots = [result.boot for result in results.values()]
    assert boots == [1 + sum(ends[:place]) for place in range(len(boots))], "after each end it is another start"


def test_a_uut_that_is_gone_once_the_limit_is_found_has_that_limit():
    search, uut = schedule({"method": "rfc2544", "delay_at": ["50%", "90%"]}), SimulatedUut(50_000.0)
    gone = Reason(ReasonKind.UUT_FAILED, "", "gone")
    found = False

    def result_of(spec, number):
        nonlocal found
        found = found or (spec.load.value < 26_000 and number > 10)  # where delays begin
        return measured(spec, uut, *((gone,) if found else ()), unmeasured=found)

    follow(search, result_of)
    (one,) = search.searches
    assert (one.state, one.why) == (SearchState.FOUND, "")
    assert [(at.delay, at.refused) for at in one.delays] == [(None, "uut-failed: gone")]


@pytest.mark.parametrize("options", [{"exceed": "0%"}, {"exceed": "10%"}, {"method": "tst009", "loss": "0%"}])
def test_bounds_that_only_invalid_trials_make_are_the_testers(options):
    """Above 50,000 frames/s some trials are invalid, and the others lose nothing."""
    output = Reason(ReasonKind.CAPTURE_DROPPED, "s1", "")
    chance = random.Random(3)
    found, _ = followed(
        schedule(NDR | {"loss": "0%"} | options | {"highest": "100kfps"}),
        SimulatedUut(1e9),
        lambda spec: (output,) if spec.load.value > 50_000 and chance.random() < 0.8 else (),
    )
    (one,) = found.values()
    assert one.state is SearchState.AT_LEAST
    assert str(one.limited_by) in ("capture-dropped", "the highest load requested")


def test_a_uut_that_breaks_while_it_is_searched():
    """The two halves contradict each other, and the result reports that."""
    uut = SimulatedUut(300_000.0, breaks_after_s=5, broken=0.3)
    found, _ = followed(schedule(NDR), uut)
    assert found["NDR"].state is SearchState.FOUND
    assert "met the goal, though the upper bound is 90," in found["NDR"].unstable


@pytest.mark.parametrize("method", METHODS)
def test_a_guest_that_forwards_less_than_a_thousandth_of_what_the_source_can_is_found(method):
    """Guests of VirtualBox with an emulated CPU are as slow."""
    found, _ = followed(schedule(METHODS[method]), SimulatedUut(700.0, buffer_frames=0))
    for searched in found.values():
        limit = 700.0 / (1 - searched.loss_ratio)
        assert searched.state is SearchState.FOUND
        assert searched.lower <= 1.006 * limit
        assert searched.upper >= 0.994 * limit
    _, results = followed(schedule(METHODS[method], duration="4s"), SimulatedUut(1.0, buffer_frames=0))
    tried = [result.spec.load.value for result in results.values() if result.spec.load.kind is not LoadKind.MAX]
    assert min(tried) == pytest.approx(1 / (0.005 * 4)), "its width is one frame"


def test_repeated_searches_that_disagree():
    class Drifting(SimulatedUut):
        def measure(self, duration_s, load_fps):
            self.capacity_fps *= 1.001
            return super().measure(duration_s, load_fps)

    search = schedule({"method": "rfc2544"}, repetitions=3)
    followed(search, Drifting(100_000.0))
    assert [result.repetition for result in search.searches] == [1, 2, 3]
    assert all(result.unstable.startswith("3 searches ended between ") for result in search.searches)
    steady = schedule({"method": "rfc2544"}, repetitions=3)
    followed(steady, SimulatedUut(100_000.0))
    assert [result.unstable for result in steady.searches] == ["", "", ""]


def test_every_uut_scenario_and_size_is_searched_and_all_streams_count():
    """That two streams forward more than the limit of one is no contradiction."""
    lab = topology(2, uuts=({"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"}))
    search = schedule({"method": "rfc2544"}, lab, frame_sizes=[64, 512], streams=[1, 2])
    followed(search, SimulatedUut(80_000.0))
    assert [(result.uut, result.streams, result.frame_size.only_size) for result in search.searches] == [
        (uut, streams, size) for uut in ("bridge", "route") for streams in (("s1",), ("s1", "s2")) for size in (64, 512)
    ]
    assert {(result.state, result.unstable, result.lower) for result in search.searches} == {
        (SearchState.FOUND, "", search.searches[0].lower)
    }


def test_of_several_streams_each_is_reported_at_the_limit_of_all():
    """A goal of 1 % of both is met where one direction loses 2 % and the other nothing; the result shows that."""

    def result_of(spec, number):
        fps = spec.load.fps(64, 1e9) or SOURCE_FPS
        sent = round(fps * spec.duration_s)
        back = min(sent, round(50_000 * spec.duration_s))
        streams = [
            stream_counts(name, sent=sent, received=received, intended_fps=fps, duration_s=spec.duration_s, **more)
            for name, received, more in (("s1", sent, {}), ("s2", back, {"reverse_of": "s1"}))
        ]
        return trial(*streams, streams=spec.streams)

    (found,) = follow(schedule({"loss": "1%"}, topology(2)), result_of)[0].values()
    forth, back = found.each
    assert (forth.stream, forth.reverse_of, forth.lost_frames) == ("s1", "", 0)
    assert (back.stream, back.reverse_of) == ("s2", "s1")
    assert back.loss_ratio == pytest.approx(0.02, abs=0.006)
    assert back.forwarded_fps == pytest.approx(50_000, rel=1e-4)
    assert forth.forwarded_fps == pytest.approx(found.lower, rel=1e-3)
    assert SEARCHES.of(SEARCHES.put({}, (found,))) == (found,)
    text = page_of(replace(campaign([trial(stream_counts(), uut="bridge")]), searches=(found,))).text
    assert "s2, reverse of s1 51." in " ".join(text.split("Each stream at its highest load")[1].split())
    (alone,) = followed(schedule({"loss": "1%"}), SimulatedUut(50_000.0))[0].values()
    assert alone.each == ()


def test_delays_are_measured_at_parts_of_what_was_found():
    """These trials follow the search and are no part of it; only the first goal has them."""
    plain, few = followed(schedule(NDR), SimulatedUut(50_000.0))
    found, results = followed(schedule(NDR | {"delay_at": ["10%", "50%"]}), SimulatedUut(50_000.0))
    ndr, pdr = found.values()
    assert [(at.share, at.load_fps) for at in ndr.delays] == [
        (share, pytest.approx(share * ndr.lower, rel=1e-3)) for share in (0.1, 0.5)
    ]
    assert (pdr.delays, len(results), ndr.trials) == ((), len(few) + 2, plain["NDR"].trials)


@pytest.mark.parametrize("method", METHODS)
def test_how_long_it_takes_is_about_known(method):
    """The estimate is right within a factor of 2.5, as results decide; none of it is left at the end."""
    search = schedule(METHODS[method], frame_sizes=[64, 512], repetitions=2)
    expected_s = search.expected_s(())
    uut = SimulatedUut(50_000.0, overhead_s=0.2, **NOISY)
    followed(search, uut)
    assert 0.4 < expected_s / uut.spent_s < 2.5
    assert search.expected_s(()) == 0


def test_trials_last_as_long_as_they_should():
    _, results = followed(schedule(NDR, duration="1s", warm_up="250ms"), SimulatedUut(50_000.0))
    times = {result.spec.duration_s: result.spec.victim.warm_up_s for result in results.values()}
    assert times == pytest.approx({0.2: 0.05, 1.0: 0.25, **{k: k / 4 for k in times}})
    assert {0.2, 1.0} <= set(times)


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({"method": "halving"}, "mlrsearch"),
        ({"loss": ["0%", "0%"]}, "loss: a ratio is defined twice"),
        ({"method": "rfc2544", "loss": "0.5%"}, "RFC 2544 .section 26. knows no loss but 0"),
        ({"method": "tst009", "loss": ["0%", "1%"]}, "one ratio"),
        ({"lowest": "max"}, "lowest: a load such as 1000fps, not max"),
        ({"width": "0%"}, "greater than or equal"),
    ],
)
def test_options_that_make_no_sense(options, printed):
    with pytest.raises(ValidationError, match=printed):
        SearchOptions.model_validate(options)


def test_shares_of_a_maximum_among_loads_are_refused():
    """A search has no list of loads, in which there could be one."""
    scenarios = [{"network": ["50%"], "frame_size": 64}]
    with pytest.raises(UsageError, match=r"maxima: loads: schedule search measures no list .* \(--set maxima=search\)"):
        schedule(NDR, shared_topology(), scenarios=scenarios, maxima="loads")
    schedule(NDR, shared_topology(), scenarios=scenarios)


def test_loads_with_nothing_between_are_refused():
    with pytest.raises(
        UsageError, match="schedule.lowest: 8000fps must be half of schedule.highest, 10000fps, at most"
    ):
        schedule(NDR | {"lowest": "8kfps", "highest": "10kfps"})
    schedule(NDR | {"lowest": "5kfps", "highest": "10kfps"})


def test_a_campaign_that_searches(monkeypatch, tmp_path):
    """It is stored, reported and resumed like any other."""
    wanted: dict[str, Any] = {
        "schedule": {"kind": "search", "method": "rfc2544", "highest": "1600fps", "width": "10%"},
        "loads": [],
    }
    lost = Behaviour(lost_in_uut=1)
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    assert "# trials: each depends on earlier results (search)" in list(describe(campaign.request(**wanted)))
    campaign.testbed.behaviours["bridge"] = [lost, Behaviour(), Behaviour(), lost, Behaviour(), Behaviour()]
    campaign.stopped_at(4, **wanted)
    results = campaign.resume()
    (found,) = results.searches
    assert (found.goal, found.state) == ("throughput (RFC 2544)", SearchState.FOUND)
    assert found.lower is not None
    assert found.upper is not None
    assert found.upper - found.lower <= 0.1 * found.upper
    assert found.trials == len(results.trials)
    assert SEARCHES.of(results.manifest) == results.searches


LATE = Reason(ReasonKind.UNEVEN_PACING, "s1", "the source fell 60 ms behind")
HELD_UP = Reason(ReasonKind.TESTER_DISTURBED, "s1", "stalled for 60 ms")


def disturbed(search, uut, spoilt):
    """Like `followed`, where `spoilt` returns other counts of a trial, `lost` included, and the reasons."""

    def result_of(spec, number):
        result = measured(spec, uut)
        changes, reasons = spoilt(spec, number)
        (counts,) = result.streams
        lost = round((counts.lost_frames or 0) + changes.pop("lost", 0))
        sent = changes.get("sent_frames", counts.sent.frames)
        counts = changed(counts, **changes, received_frames=sent - lost, lost_at=())
        return replace(result, guests=(replace(result.victim, streams=(counts,)),), reasons=reasons)

    return follow(search, result_of)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reason", [LATE, HELD_UP])
def test_trials_that_the_tester_disturbed_set_no_bound(method, reason):
    """Every third one loses a tenth of its frames. It is repeated, and the limit is as it is without them."""
    options = METHODS[method] | {"highest": "200kfps"}

    def spoilt(spec, number):
        is_spoilt = number % 3 == 1
        return ({"lost": 0.1 * spec.load.value * spec.duration_s}, (reason,)) if is_spoilt else ({}, ())

    found, results = disturbed(schedule(options), SimulatedUut(100_000.0), spoilt)
    plain, few = followed(schedule(options), SimulatedUut(100_000.0))
    assert {goal: (limit.state, limit.lower, limit.upper, limit.unstable) for goal, limit in found.items()} == {
        goal: (limit.state, limit.lower, limit.upper, limit.unstable) for goal, limit in plain.items()
    }
    assert len(results) > len(few)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "uneven-pacing: the source fell 60 ms behind"),
        ({"lost": 500, "max_burst_frames": 600, "max_lateness_s": 0.006}, "late-source: 500 frames were lost"),
        ({"lost": 500, "max_burst_frames": 90, "max_lateness_s": 0.02}, "late-source: 500 frames were lost"),
        ({"short": 0.02, "max_lateness_s": 0.02}, "unsent: 2.00% of the frames of stream s1"),
    ],
)
def test_a_tester_that_is_disturbed_all_the_time_limits_the_search(method, changes, cause):
    """Above 50,000 frames/s, where the UUT would forward all, each trial is made three times and no more."""

    def spoilt(spec, number):
        if spec.load.value <= 50_000:
            return {}, ()
        own = dict(changes)
        if short := own.pop("short", 0):
            own["sent_frames"] = round(spec.load.value * spec.duration_s * (1 - short))
        return own, () if own else (LATE,)

    options = METHODS[method] | {"highest": "200kfps", "loss": "0%"}
    found, results = disturbed(schedule(options), SimulatedUut(1e9), spoilt)
    for searched in found.values():
        assert (searched.state, searched.unstable) == (SearchState.AT_LEAST, "")
        assert 49_500 < searched.lower <= 50_000
        assert str(searched.limited_by).startswith(cause)
    loads = [(result.spec.load.value, result.spec.duration_s) for result in results.values()]
    assert {loads.count(load) % 3 for load in loads if load[0] > 50_000} == {0}


@pytest.mark.parametrize("method", METHODS)
def test_a_disturbance_that_is_over_at_the_end_costs_no_more_than_a_second_search(method):
    """All attempts at one load are disturbed: it is the upper bound of the first search, but not of the second."""

    def spoilt(spec, number):
        return {}, (HELD_UP,) if 5 <= number < 8 else ()

    options = METHODS[method] | {"highest": "200kfps", "loss": "0%"}
    found, results = disturbed(schedule(options), SimulatedUut(100_000.0, buffer_frames=0), spoilt)
    plain, few = followed(schedule(options), SimulatedUut(100_000.0, buffer_frames=0))
    (one,), (other,) = found.values(), plain.values()
    assert (one.state, one.lower, one.upper) == (SearchState.FOUND, other.lower, other.upper)
    assert len(few) < len(results) < 3 * len(few)


@pytest.mark.parametrize(
    ("method", "upper"),
    [("tst009", 105_500), ("rfc2544", 210_000)],  # it measures each load once: one more is to confirm the first
)
def test_a_tester_that_is_disturbed_at_the_limit_alone_keeps_the_bounds_apart(method, upper):
    """From 98,000 to 102,000 frames/s each trial loses a frame to a burst; the UUT's limit, 100,000, lies between."""

    def spoilt(spec, number):
        near = 98_000 < spec.load.value < 102_000
        return ({"lost": 1, "max_burst_frames": 600, "max_lateness_s": 0.006} if near else {}), ()

    options = METHODS[method] | {"highest": "210kfps", "lowest": "1kfps", "loss": "0%"}
    found, _ = disturbed(schedule(options), SimulatedUut(100_000.0, buffer_frames=0), spoilt)
    (one,) = found.values()
    assert 97_000 < one.lower <= 98_000
    assert (one.state, one.upper, one.limited_by, one.is_regular) == (
        SearchState.FOUND,
        upper,
        LIMITED_BY_UUT,
        False,
    )
    assert remark(one).startswith("the tester keeps the bounds apart: late-source: ")


NDR_GOAL = Goal("NDR", 0.0, 0.0025)
BURST: dict[str, Any] = {"max_burst_frames": 600, "max_lateness_s": 0.006}
LATE_SOURCE, LATE_INGRESS = "late-source: ", "late-ingress: "


@pytest.mark.parametrize(
    ("lost", "buffered", "waited_s", "changes", "inconclusive"),
    [
        # A burst after a delay explains as many lost frames as it has.
        (500, None, 0.0, BURST | {"max_burst_frames": 3, "max_lateness_s": 0.02}, ""),  # no burst
        (700, None, 0.0, BURST, ""),  # more than the burst
        (600, None, 0.0, BURST, LATE_SOURCE),
        (600, None, 0.0, BURST | {"link_s": 0.0, "away_s": 0.0}, LATE_SOURCE),
        (1200, None, 0.0, BURST | {"link_s": 0.0, "away_s": 0.012}, LATE_SOURCE),
        (0, None, 0.0, BURST, ""),
        # A wait of the ingress thread explains as many as came in meanwhile.
        (
            *(500, None, 0.006, {}),
            "late-ingress: 500 frames were lost, and a delay of 6.0 ms of the tester explains up to 600 lost",
        ),
        (700, None, 0.006, {}, ""),  # more than came in at once
        (500, None, 0.0, {}, ""),
        (0, None, 0.006, {}, ""),
        # Frames that the tester delayed are in no queue of the UUT.
        (0, 700, 0.0, {"max_lateness_s": 0.0}, ""),
        (0, 700, 0.0, {"max_lateness_s": 0.0009}, ""),  # a usual lateness
        (0, 700, 0.0, {"max_lateness_s": 0.0072}, LATE_SOURCE),
        (0, 1000, 0.0, {"max_lateness_s": 0.0072}, ""),  # 280 more than were late, and 250 count as none
        (0, 700, 0.006, {"max_lateness_s": 0.0}, LATE_INGRESS),
        (0, 0, 0.006, {"max_lateness_s": 0.0072}, ""),
    ],
)
def test_lost_and_late_frames_that_a_delay_of_the_tester_explains_decide_nothing(
    lost, buffered, waited_s, changes, inconclusive
):
    if buffered is not None:
        changes = changes | {"window": MeasuringWindow(100_000 - buffered, 1.0, buffered)}
    counts = stream_counts(
        sent=100_000, received=100_000 - lost, intended_fps=100_000.0, intended_frames=100_000, **changes
    )
    waited = Disturbance(1.0, (ThreadDelay("ingress", "napi", waited_s, 0.0, counts.stream, waited_s),))
    result = replace(trial(counts), disturbance=waited)
    output = measurement_of(result, 0.005, [NDR_GOAL])
    assert output.inconclusive.startswith(inconclusive)
    assert (output.inconclusive == "", output.limited_by == "") == (inconclusive == "", inconclusive == "")
    if inconclusive and buffered is not None:
        assert f": {buffered} frames arrived after the end of sending, and a " in output.inconclusive
    loose = measurement_of(result, 0.005, [Goal("PDR", 0.5, 0.0025)])
    assert buffered is not None or loose.inconclusive == "", "a goal that is met anyway is met"


@pytest.mark.parametrize("lossy_trials", [2, 99])
def test_an_upper_bound_that_other_loads_contradict_is_measured_again(lossy_trials):
    """A UUT of 399,000 frames/s loses some frames in trials of about 302,000, at first, or each time; none above."""
    left = lossy_trials

    def spoilt(spec, number):
        nonlocal left
        if 297_000 < spec.load.value < 305_000 and left:
            left -= 1
            return {"lost": 5}, ()
        return {}, ()

    options = NDR | {"loss": "0%", "highest": "600kfps", "duration_sum": "1s"}
    search = schedule(options, duration="500ms")
    found, _ = disturbed(search, SimulatedUut(399_000.0, buffer_frames=0), spoilt)
    (one,) = found.values()
    if one.upper < 306_000:
        assert "met the goal, though the upper bound is " in one.unstable
    else:
        assert 390_000 < one.lower <= 399_000
        assert one.unstable == ""


def held(seconds, load, *, lost=0, buffered=0):
    frames = round(seconds * load)
    return Measured(seconds, load, load, frames, frames, frames - lost, buffered)


@pytest.mark.parametrize(
    ("above", "is_contradiction"),
    [
        ([held(0.5, 343_000)], True),
        ([held(0.5, 343_000), held(0.5, 372_000), held(0.5, 395_000)], True),
        ([held(0.5, 303_000)], False),  # within two widths
        ([held(0.1, 305_200)], False),  # a queue takes that many frames
        ([held(0.2, 320_000)], True),
        ([held(0.2, 320_000, buffered=3600)], False),  # a queue, which shows
        ([held(0.5, 343_000, lost=1)], False),
        ([replace(held(0.5, 343_000), limited_by="uneven-pacing")], False),
    ],
)
def test_any_trial_above_the_upper_bound_that_met_the_goal_contradicts_it(above, is_contradiction):
    """Two lossy trials of 0.5 s at 302,000 frames/s set such a bound, though all loads above lost nothing."""
    at_bound = [held(0.5, 302_000, lost=9), held(0.5, 302_000, lost=4), held(0.5, 301_000)]
    printed = contradiction([*at_bound, *above], Goal("NDR", 0.0, 1.0), 0.005, Bounds(301_000, 302_000))
    assert bool(printed) is is_contradiction
    if printed:
        assert "343,000" in printed or "320,000" in printed
        assert "302,000" in printed


def test_a_search_that_the_sources_cannot_follow_begins_again_below_what_they_offered():
    """Calibrated without a UUT they offer more than beside one."""
    search = schedule(NDR | {"loss": "0%"})
    search.use_ceilings([ceiling_of("xdp", 1, FrameSize.of(64), [CeilingSample(9e5, 0.2)] * 3)])
    output = Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "the source itself is too slow")

    def spoilt(spec, number):
        if spec.load.value <= 600_000:
            return {}, ()
        return {"sent_frames": round(600_000 * spec.duration_s)}, (output,)

    found, results = disturbed(search, SimulatedUut(1e9), spoilt)
    (one,) = found.values()
    assert next(iter(results.values())).spec.load.value == 882_000
    assert (one.state, one.lower) == (SearchState.AT_LEAST, 588_000)
    assert str(one.limited_by) == (
        "the source, which can be paced at 588,000 frames/s (not reliable: without a rate to keep it offers 900,000 "
        "frames/s)"
    )


def test_a_regular_result_has_both_bounds_within_the_width():
    found, _ = followed(schedule(NDR), SimulatedUut(50_000.0))
    one = found["NDR"]
    assert one.is_regular
    for changes in ({"upper": 1.02 * one.upper}, {"upper": None}, {"state": SearchState.AT_LEAST}):
        assert not replace(one, **changes).is_regular
    assert remark(replace(one, upper=1.02 * one.upper)).startswith("bounds further apart than 0.5")


def test_finished_searches_show_how_long_the_others_take():
    """A UUT whose limit is constant needs as many trials each time."""
    search, uut = schedule(NDR, frame_sizes=[64, 512], repetitions=2), SimulatedUut(50_000.0, overhead_s=0.2)
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None and len(search.searches) < 3:
        results[spec.key] = measured(spec, uut)
    spent_s, left_s = uut.spent_s, search.expected_s(())
    while (spec := search.next(results)) is not None:
        results[spec.key] = measured(spec, uut)
    assert left_s == pytest.approx(uut.spent_s - spent_s, rel=0.05)


def test_one_short_trial_that_forwards_more_than_a_long_one_could_is_enough_to_doubt():
    """A machine stood still in all long trials: no UUT with that limit forwards so much, whatever its queue."""
    spared, stopped = (SimulatedUut(300_000.0, buffer_frames=250, stalls=part, stall_s=0.005) for part in (0.0, 1.0))

    class InSeconds(SimulatedUut):
        """Stalls are of seconds: a short trial has none."""

        def measure(self, duration_s, load_fps):
            return (stopped if duration_s >= 1 else spared).measure(duration_s, load_fps)

    found, _ = followed(schedule(NDR), InSeconds(300_000.0))
    assert found["NDR"].upper < 51_000, "250 frames within 5 ms are the limit of long trials"
    assert " frames/s met the goal, though the upper bound is 50," in found["NDR"].unstable
    held_back = SimulatedUut(300_000.0, buffer_frames=20_000)
    found, _ = followed(schedule(NDR | {"width": "20%"}), held_back)
    assert found["NDR"].unstable == "", "queued frames are no contradiction"
