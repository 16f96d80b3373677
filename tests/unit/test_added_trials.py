"""Added trials: higher loads while throughput rises, repetitions where maxima contradict each other."""

from dataclasses import replace
from math import inf

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.scenario import DEDICATED
from netbench.model.trial import LoadReference
from netbench.model.units import Load, LoadKind
from netbench.plan.added_trials import AddedTrials
from netbench.plan.selection import choose
from netbench.plan.trial_order import StaticPlan
from netbench.statistics.groups import group_trials
from netbench.statistics.limits import contradictory_maxima, with_limits
from tests.unit.flows_factory import flow, flow_trial
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import campaign, stream_counts, trial


def measured(spec, capacity, maximum=1000.0, held=inf):
    """Return a trial at that share of a maximum, of a UUT that forwards `capacity` frames/s of this size.

    The source offers 9,000 frames/s without a rate, and keeps rates up to `held`.
    """
    chosen_plan = 9000.0 if spec.load.kind is LoadKind.MAX else maximum * spec.load.value / 100
    fps = round(min(chosen_plan, 9000.0 if spec.load.kind is LoadKind.MAX else held))
    most = capacity(spec.frame_size.only_size, fps) if callable(capacity) else capacity
    counts = stream_counts(sent=fps, received=min(fps, most), intended_fps=float(fps), intended_frames=fps)
    found = trial(counts, repetition=spec.repetition)
    load = spec.load if spec.load.kind is LoadKind.MAX else replace(spec.load, found=Load.of_fps(float(fps)))
    victim = replace(spec.victim, traffic=replace(spec.frames, load=load), is_less_than_share=fps < chosen_plan)
    return replace(found, spec=replace(spec, guests=(victim,)), boot=spec.boot)


def added_to(capacity, calibrated=None, held=inf, **wanted):
    """Return the planned and the added specs, once nothing is missing."""
    chosen_plan = choose(topology(), profile(**wanted))
    plan = StaticPlan(chosen_plan)
    results = {spec.key: measured(spec, capacity, held=held) for spec in plan.trials}
    added = AddedTrials(chosen_plan, plan.trials)
    while (spec := added.next(results, calibrated or {})) is not None:
        assert spec.key not in results
        results[spec.key] = measured(spec, capacity, held=held)
    assert list(AddedTrials(chosen_plan, plan.trials).trials) == []
    again = AddedTrials(chosen_plan, plan.trials)
    assert again.next(results, calibrated or {}) is None
    assert again.trials == added.trials, "it depends on the results alone"
    return plan.trials, added.trials


@pytest.mark.parametrize(
    ("loads", "capacity", "higher"),
    [
        ([50, 100, 120], 2000, [180, 270]),
        ([50, 100, 120], 1300, [180]),
        ([50, 100, 120], 1000, []),  # the curve bends
        ([50, 100, 120], 9000, [180, 270, 410]),  # no end: three rounds at most
        ([30, 70], 2000, []),  # none of its loads is near the maximum
        ([50, 800], 9000, []),
    ],
)
def test_loads_are_extended_while_throughput_still_rises(loads, capacity, higher):
    _, added = added_to(capacity, loads=[f"{load}% of maximum" for load in loads], repetitions=2)
    assert [spec.load for spec in added] == [Load(LoadKind.OF_MAXIMUM, float(load)) for load in higher for _ in (1, 2)]


@pytest.mark.parametrize(
    ("peak_at", "beside"),
    [
        (900, [105]),  # loads between 60 and 90 % offer less than 90 % delivered
        (1200, [145]),
        (1500, [145, 215, 260]),  # 260 % was added as it still rose at 170 %
        (650, [75]),
    ],
)
def test_loads_beside_a_peak_are_added_until_they_are_close(peak_at, beside):
    def falling(size, fps):
        return fps if fps <= peak_at else round(peak_at - 0.5 * (fps - peak_at))

    loads = [f"{load}% of maximum" for load in (60, 90, 120, 170)]
    _, added = added_to(falling, loads=loads, repetitions=2)
    assert sorted(trial.load.value for trial in added) == [float(load) for load in beside for _ in (1, 2)]


@pytest.mark.parametrize(
    ("capacity", "higher"),
    [
        (1300, ["180% of maximum"]),  # 1,500 are offered, and the curve bends
        (4000, ["180% of maximum", "max"]),
        (9000, ["180% of maximum", "max"]),  # and nothing is above that
    ],
)
def test_after_the_highest_rate_that_the_source_keeps_comes_what_it_offers_without_one(capacity, higher):
    loads = [f"{load}% of maximum" for load in (50, 100, 120)]
    _, added = added_to(capacity, held=1500, loads=loads, repetitions=2)
    assert [str(spec.load) for spec in added] == [load for load in higher for _ in (1, 2)]


def test_each_repetition_of_an_added_load_has_a_boot_of_its_own():
    planned, added = added_to(1050, loads=["50% of maximum", "100% of maximum"], repetitions=3)
    assert [spec.repetition for spec in added] == [1, 2, 3]
    assert len({spec.boot for spec in planned}) + 3 == len({spec.boot for spec in (*planned, *added)})
    assert [spec.index for spec in (*planned, *added)] == list(range(9))


def test_small_frames_that_are_slower_than_large_ones_are_measured_again():
    wanted = {
        "frame_sizes": [64, 512],
        "loads": ["50% of maximum", "100% of maximum", "150% of maximum"],
        "repetitions": 2,
    }
    _, added = added_to(lambda size, _: 500 if size == 64 else 900, **wanted)
    assert {(spec.frame_size.only_size, spec.repetition) for spec in added} == {(64, 3), (64, 4), (512, 3), (512, 4)}
    assert added_to(lambda size, _: 900 if size == 64 else 500, **wanted)[1] == ()


def test_a_plateau_far_below_its_calibration_is_measured_again():
    wanted = {"loads": ["50% of maximum", "100% of maximum", "150% of maximum"], "repetitions": 2}
    uut = topology().uuts[0].name
    _, added = added_to(600, {(uut, FrameSize.of(64), 1): (DEDICATED, 1000.0)}, **wanted)
    assert [(spec.load.value, spec.repetition) for spec in added] == [(100.0, 3), (150.0, 3), (100.0, 4), (150.0, 4)]
    assert added_to(900, {(uut, FrameSize.of(64), 1): (DEDICATED, 1000.0)}, **wanted)[1] == ()


def test_a_contradiction_names_both_numbers():
    trials = [
        measured(replace(spec, uut="raw"), lambda size, _: 500 if size == 64 else 900)
        for spec in StaticPlan(
            choose(
                topology(),
                profile(frame_sizes=[64, 512], loads=["50% of maximum", "100% of maximum", "150% of maximum"]),
            )
        ).trials
    ]
    (found,) = contradictory_maxima(with_limits(group_trials(campaign(trials))), {})
    assert "64-byte frames are forwarded at 0.5 kfps, slower than frames of 512 bytes (0.9 kfps)" in found.text


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        (LoadReference(1000.0), (1500.0, False)),
        (LoadReference(1000.0, LimitCause(LimitKind.SOURCE)), (1000.0, True)),
        (
            LoadReference(1000.0, LimitCause(LimitKind.TRIAL_REASON, detail="tester-disturbed"), 8000.0),
            (1500.0, False),
        ),  # sources keep more: it may show the maximum
        (LoadReference(1000.0, held_fps=1200.0), (1200.0, True)),
    ],
)
def test_a_share_above_a_lower_bound_is_offered_where_the_sources_hold_it(reference, part):
    assert reference.part(150) == part


def test_loads_of_flows_add_no_trials():
    """Neighbours' loads may be shares of a maximum of frames while the victim serves."""
    chosen_plan = choose(topology(), profile(tool="http", frame_sizes=(), loads=["100/s", "max"]))
    plan = StaticPlan(chosen_plan)
    results = {spec.key: replace(flow_trial(flow()), spec=spec) for spec in plan.trials}
    assert AddedTrials(chosen_plan, plan.trials).next(results, {}) is None
