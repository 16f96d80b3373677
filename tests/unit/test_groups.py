from dataclasses import replace
from typing import Any

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.scenario import Stress
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.statistics.groups import best_groups, group_trials
from netbench.statistics.intervals import Interval, counting_error, mean_interval
from netbench.statistics.lost_frames import lost_frames_by_place
from tests.unit.results_factory import MANIFEST, campaign, neighbour, stream_counts, trial
from tests.unit.results_factory import beside as with_neighbours

SUSPICIOUS = (Reason(ReasonKind.FOREIGN_FRAMES, "s1", "3 frames"),)
INVALID = (Reason(ReasonKind.LINK_DOWN, "", "down"),)


def test_streams_of_a_trial_are_added_up() -> None:
    one = trial(
        stream_counts("s1", sent=1000, received=900, duration_s=1.0),
        stream_counts("s2", sent=1000, received=1000, duration_s=2.0),
    )
    (group,) = group_trials(campaign([one]))
    assert group.sources == 2
    (totals,) = group.valid
    assert (totals.sent_frames, totals.received_frames, totals.lost_frames) == (2000, 1900, 100)
    assert (totals.intended_fps, totals.offered_fps, totals.throughput_fps) == (2000, 1500, 1400)
    assert totals.loss_ratio == 0.05


def test_only_valid_trials_are_averaged_and_the_others_are_kept() -> None:
    trials = [
        trial(stream_counts(sent=1000, received=1000), repetition=1),
        trial(stream_counts(sent=1000, received=990), repetition=2),
        trial(stream_counts(sent=1000, received=1), repetition=3, reasons=SUSPICIOUS),
        trial(stream_counts(sent=1, received=0), repetition=4, reasons=INVALID),
    ]
    (group,) = group_trials(campaign(trials))
    assert (len(group.valid), len(group.suspicious), len(group.invalid)) == (2, 1, 1)
    assert group.throughput_fps is not None
    assert (group.throughput_fps.mean, group.throughput_fps.n) == (995, 2)
    assert [totals.trial.spec.repetition for totals in (*group.suspicious, *group.invalid)] == [3, 4]
    assert [reason.kind for reason in group.reasons] == [ReasonKind.FOREIGN_FRAMES, ReasonKind.LINK_DOWN]


def test_a_stream_without_counts_makes_the_sum_unknown() -> None:
    (group,) = group_trials(campaign([trial(stream_counts("s1"), streams=("s1", "s2"), reasons=INVALID)]))
    (totals,) = group.invalid
    assert totals.sent_frames is None
    assert totals.offered_mbps is None
    assert totals.loss_ratio is None


def test_unsent_is_unknown_for_max_and_a_share_of_intended_otherwise() -> None:
    paced = trial(stream_counts(sent=900, received=900), load="1000fps")
    unpaced = trial(stream_counts(sent=900, received=900, intended_fps=None, intended_frames=None), load="max")
    first, last = group_trials(campaign([unpaced, paced]))
    assert first.unsent_ratio is not None
    assert first.unsent_ratio.mean == 0.1
    assert last.unsent_ratio is None
    assert last.intended_mbps is None


def test_order_is_uut_of_the_topology_then_sources_size_and_load() -> None:
    trials = [
        trial(*(stream_counts(name) for name in names), uut=uut, frame_size=size, load=load)
        for uut in ("unlisted", "b", "a")
        for names in (("s1", "s2"), ("s1",))
        for size in (1500, 64)
        for load in ("max", "900Mbit/s", "10Mbit/s")
    ]
    groups = group_trials(campaign(trials, uuts=("b", "a")))
    assert list(dict.fromkeys(group.uut for group in groups)) == ["b", "a", "unlisted"]
    assert [(g.sources, g.frame_size.only_size, str(g.load)) for g in groups if g.uut == "b"] == [
        (sources, size, load) for sources in (1, 2) for size in (64, 1500) for load in ("10Mbit/s", "900Mbit/s", "max")
    ]


def test_cpu_time_is_a_share_of_the_time_it_was_counted_over() -> None:
    def measured(guest: float, steps: dict[str, float], repetition: int = 1) -> TrialResult:
        return replace(trial(stream_counts(), cpu_s={"guest": guest}, repetition=repetition), steps_s=steps)

    trials = [
        measured(0.6, {"arm": 9.0, "send": 1.0, "drain": 0.5, "analyse": 3.0}, 1),
        measured(1.2, {"send": 1.25, "drain": 0.25}, 2),
        measured(5.0, {}, 3),
        trial(stream_counts(), repetition=4),
    ]
    (group,) = group_trials(campaign(trials))
    share, seconds = group.cpu_share("guest"), group.cpu_s("guest")
    assert share is not None
    assert seconds is not None
    assert (round(share.mean, 9), share.n) == (0.6, 2)
    assert (round(seconds.mean, 9), seconds.n) == (2.266666667, 3)
    assert group.cpu_share("host") is None


def test_a_uut_that_never_came_up_has_its_loads_in_order_with_the_others() -> None:
    gone = (Reason(ReasonKind.UUT_FAILED, "", "did not come up"),)
    trials = [
        trial(stream_counts(intended_fps=fps), load=load, uut="raw")
        for load, fps in (("10%", 148_809.0), ("1000fps", 1000.0), ("500Mbit/s", 744_047.0))
    ]
    trials += [trial(streams=("s1",), load=str(result.spec.load), uut="kvm", reasons=gone) for result in trials]
    groups = [group for group in group_trials(campaign(trials, uuts=("raw", "kvm"))) if group.uut == "kvm"]
    assert [str(group.load) for group in groups] == ["1000fps", "10%", "500Mbit/s"]
    assert {group.intended_fps for group in groups} == {None}


def beside(received: int = 900, repetition: int = 1, **changes: Any) -> TrialResult:
    """A loss-free victim of 1500-byte frames, a neighbour that forwards small ones, and one that computes."""
    forwards = neighbour(
        stream_counts("s2", sent=1000, received=received),
        stream_counts("s3", sent=3000, received=3000, duration_s=2.0),
        frame_size=64,
        cpu_s={"guest": 0.5, "host": 1.0},
    )
    computes = neighbour(name="third", activity=Stress(1), cpu_s={"guest": 1.5, "load": 1.25})
    return trial(
        stream_counts("s1"),
        frame_size=1500,
        repetition=repetition,
        neighbours=(forwards, computes),
        cpu_s={"guest": 0.25},
        machine_cpu_s=3.5,
        steps_s={"send": 1.0, "drain": 0.5, "observe": 2.0},
        **changes,
    )


def test_a_neighbour_has_streams_rates_and_cpu_shares_of_its_own() -> None:
    (group,) = group_trials(campaign([beside(800, 1), beside(900, 2)]))
    assert group.sources == 1
    assert (group.valid[0].sent_frames, group.valid[0].received_frames, group.loss_ratio) == (
        1000,
        1000,
        Interval(0, counting_error(0) / 2000, 2),
    )
    assert lost_frames_by_place([beside()]).total() == 0
    forwards, computes = group.neighbours
    assert (forwards.name, str(forwards.activity), forwards.frame_size) == (
        "second",
        "forwards 64-byte frames at 1000fps",
        FrameSize.of(64),
    )
    assert (computes.name, str(computes.activity), computes.frame_size) == ("third", "stress-ng --cpu 1", None)
    assert forwards.offered_fps is not None
    assert (forwards.offered_fps, forwards.throughput_fps) == (
        Interval(2500, counting_error(0) / 4000 * 5000 / 2, 2),
        mean_interval([2300, 2400]),
    )
    assert forwards.offered_mbps == forwards.offered_fps.scaled(84 * 8 / 1e6)
    assert forwards.offered_l2_mbps == forwards.offered_fps.scaled(64 * 8 / 1e6)
    assert forwards.loss_ratio == mean_interval([200 / 4000, 100 / 4000])
    assert forwards.cpu_share("host") == Interval(0.5, 0, 2)
    assert forwards.cpu_s("host") == Interval(1.0, 0, 2)
    assert forwards.cpu_share("load") is None
    assert computes.cpu_share("load") == Interval(0.625, 0, 2)
    assert (computes.offered_mbps, computes.throughput_fps, computes.loss_ratio) == (None, None, None)
    assert group.neighbour("third") == computes
    assert group.neighbour("fourth") is None
    assert group.valid[0].neighbour("second") == group.valid[0].neighbours[0]
    assert group.valid[0].neighbour("fourth") is None


def test_the_victims_group_has_the_machines_cpu_and_all_loads() -> None:
    (group,) = group_trials(campaign([beside()]))
    assert group.cpu_share("machine") == Interval(1.75, None, 1)
    assert group.cpu_share("guest") == Interval(0.125, None, 1)
    assert group.cpu_share("load") == Interval(0.625, None, 1)
    both = with_neighbours(beside(), *(neighbour(name=name, cpu_s={"load": 1.0}) for name in "ab"))
    (group,) = group_trials(campaign([both]))
    assert group.cpu_share("load") == Interval(1.0, None, 1)


def test_all_neighbours_together_are_added_up_each_with_its_own_frame_size() -> None:
    small = neighbour(stream_counts("s2", sent=1000, received=500), name="a", frame_size=64)
    large = neighbour(stream_counts("s3", sent=3000, received=3000), name="b", frame_size=1000)
    one = trial(stream_counts("s1"), neighbours=(small, large, neighbour(name="c")))
    (group,) = group_trials(campaign([one]))
    assert group.neighbours_offered_mbps == Interval((1000 * 84 + 3000 * 1020) * 8 / 1e6, None, 1)
    assert group.neighbours_throughput_mbps == Interval((500 * 84 + 3000 * 1020) * 8 / 1e6, None, 1)
    assert group.neighbours_loss_ratio == Interval(0.125, None, 1)
    assert group.neighbours_frame_size is None
    (group,) = group_trials(campaign([with_neighbours(one, small, neighbour(name="c"))]))
    assert group.neighbours_frame_size == FrameSize.of(64)
    for others in ((), (neighbour(),)):  # no neighbour, or none that forwards
        (group,) = group_trials(campaign([with_neighbours(one, *others)]))
        assert (group.neighbours_offered_mbps, group.neighbours_throughput_mbps) == (None, None)
        assert (group.neighbours_loss_ratio, group.neighbours_frame_size) == (None, None)
        assert len(group.neighbours) == len(others)


def test_neighbours_are_unknown_where_one_that_forwards_was_not_counted() -> None:
    small = neighbour(stream_counts("s2"), name="a")
    uncounted = neighbour(stream_counts("s3", received=None), name="b")
    silent = uncounted[0], replace(uncounted[1], streams=())
    for unknown in (uncounted, silent):
        (group,) = group_trials(campaign([trial(stream_counts("s1"), neighbours=(small, unknown))]))
        assert group.neighbours_throughput_mbps is None
        assert group.neighbours_loss_ratio is None
        assert group.throughput_fps == Interval(1000, None, 1)


def test_only_valid_repetitions_say_what_a_neighbour_did_but_the_others_name_it() -> None:
    trials = [beside(900, 1), beside(1, 2, reasons=INVALID)]
    (group,) = group_trials(campaign(trials))
    assert group.neighbours_loss_ratio == Interval(100 / 4000, None, 1)
    (group,) = group_trials(campaign(trials[1:]))
    assert [(summary.name, summary.valid, summary.offered_fps) for summary in group.neighbours] == [
        ("second", (), None),
        ("third", (), None),
    ]


def test_the_most_throughput_of_each_scenario_is_that_of_its_best_load() -> None:
    trials = [
        trial(stream_counts(received=received), scenario=scenario, load=load, reasons=reasons)
        for scenario, load, received, reasons in (
            ("dedicated", "500fps", 500, ()),
            ("dedicated", "1000fps", 1000, ()),
            ("cpu-heavy", "500fps", 490, ()),
            ("cpu-heavy", "1000fps", 300, ()),
            ("cpu-heavy", "2000fps", 900, INVALID),
        )
    ]
    best = best_groups(group_trials(campaign(trials)))
    assert [(group.scenario, str(group.load), group.throughput_fps) for group in best] == [
        ("dedicated", "1000fps", Interval(1000, None, 1)),
        ("cpu-heavy", "500fps", Interval(490, None, 1)),
    ]


@pytest.mark.parametrize(
    ("attempts", "valid", "counts"),
    [
        ([1, 1, 1], "vvv", True),
        ([1, 1, 2], "vvv", True),
        ([1, 2, 3], "vvv", False),
        ([1, 1, 1], "vvs", True),
        ([1, 1, 1], "vss", False),
        ([1, 1, 1, 3, 3, 3, 3, 3, 3], "viiiiiiii", False),
        ([1] * 9, "vvvvvviii", True),
        ([1] * 9, "vvvvviiii", False),
        ([1], "v", True),
    ],
)
def test_a_maximum_is_valid_two_times_of_three_at_the_first_attempt(attempts, valid, counts) -> None:
    """Repetitions of a load, by attempts and verdicts, with more throughput than those of another load."""
    reasons = {"v": (), "s": SUSPICIOUS, "i": INVALID}
    doubtful = [
        replace(
            trial(stream_counts(), repetition=number, reasons=reasons[verdict]),
            attempt=attempt,
            thrown_away=(INVALID,) * (attempt - 1),
        )
        for number, (attempt, verdict) in enumerate(zip(attempts, valid, strict=True))
    ]
    steady = [trial(stream_counts(received=900), load="900fps", repetition=number) for number in range(9)]
    groups = group_trials(campaign(doubtful + steady))
    [found] = [group for group in groups if str(group.load) == "1000fps"]
    assert found.counts_as_maximum is counts
    assert found.thrown_away == sum(attempts) - len(attempts)
    assert [str(group.load) for group in best_groups(groups)] == ["1000fps" if counts else "900fps"]


def test_a_saturated_load_may_be_the_maximum_at_what_was_offered_on_average() -> None:
    held = (Reason(ReasonKind.SATURATED, "s1", ""),)
    offered = (1400, 1450, 1500)
    above = [
        trial(stream_counts(sent=many, received=many), load="9000fps", repetition=number, reasons=held)
        for number, many in enumerate(offered, start=1)
    ]
    groups = group_trials(campaign([trial(stream_counts()), *above]))
    (best,) = best_groups(groups)
    assert (str(best.load), best.saturated, len(best.valid)) == ("9000fps", 3, 3)
    assert best.offered_fps is not None
    assert best.offered_fps.mean == 1450
    assert best.offered_fps.half_width == pytest.approx(4.303 * 50 / 3**0.5, rel=1e-3)


def test_where_no_load_counts_there_is_no_maximum() -> None:
    trials = [trial(stream_counts()), trial(stream_counts(), repetition=2, reasons=SUSPICIOUS)]
    assert best_groups(group_trials(campaign(trials))) == ()


@pytest.mark.parametrize("uut_first", [True, False])
def test_scenarios_come_in_the_order_of_the_profile_whatever_was_measured_first(uut_first: bool) -> None:
    manifest = {**MANIFEST, "scenarios": ["dedicated", "shared-idle", "cpu-heavy"]}
    measured = ["unlisted", "cpu-heavy", "dedicated", "shared-idle"]
    trials = [
        trial(stream_counts(), scenario=scenario, uut=uut, frame_size=size)
        for scenario in (measured if uut_first else reversed(measured))
        for uut in ("b", "a")
        for size in (500, 64)
    ]
    results = campaign(trials, uuts=("a", "b"), manifest=manifest)
    in_order = ("dedicated", "shared-idle", "cpu-heavy", "unlisted")
    assert [(group.uut, group.scenario, group.frame_size.only_size) for group in group_trials(results)] == [
        (uut, scenario, size) for uut in ("a", "b") for scenario in in_order for size in (64, 500)
    ]
    unlisted = group_trials(campaign(trials, uuts=("a", "b")))
    assert list(dict.fromkeys(group.scenario for group in unlisted)) == (measured if uut_first else measured[::-1])
