"""When a campaign is expected to end: from the plan at first, and then from how long its trials took."""

import random

import pytest

from netbench.model.virtualisation import DurationEstimate
from netbench.plan.duration import TimeLeft
from netbench.plan.schedule import Costs
from netbench.plan.selection import choose
from netbench.plan.trial_order import StaticPlan
from tests.unit.inputs import profile, topology

UUTS = ({"name": "fast", "kind": "raw"}, {"name": "slow", "kind": "raw"})
PACES = {"fast": DurationEstimate(bring_up_s=0.1), "slow": DurationEstimate(bring_up_s=4.0)}


def is_told(left: float, really: float) -> bool:
    """Whether an estimate is right within a fifth, or 4 s, since one of the last few trials may be made twice."""
    return left == pytest.approx(really, rel=0.2, abs=4.0)


def plan(**wanted) -> StaticPlan:
    asked = profile(**{"loads": ["1kfps", "2kfps", "max"], "frame_sizes": [64, 512], "repetitions": 4, **wanted})
    return StaticPlan(choose(topology(uuts=UUTS), asked, costs=Costs(start_s=1.5, guests=PACES)))


def output(schedule: StaticPlan, real_s) -> list[tuple[float, float]]:
    """Return the estimated and the real time left after each trial, in s, where trials take `real_s`."""
    now = 0.0
    time_left = TimeLeft(schedule, (), lambda: now)
    ends, reported, booted = [], [], None
    for trial in schedule.trials:
        now += real_s(trial) + (PACES[trial.uut].bring_up_s * 1.5 if (trial.uut, trial.boot) != booted else 0.0)
        booted = (trial.uut, trial.boot)
        reported.append(time_left.after(trial) or 0.0)
        ends.append(now)
    return [(left, now - end) for left, end in zip(reported, ends, strict=True)]


def as_planned(trial) -> float:
    return 1.2


def three_times_where_it_is_slow(trial) -> float:
    """Return the time of a trial in s; trials of one UUT, and those at `max`, are made again and again."""
    return 1.2 * (3 if trial.uut == "slow" else 1) * (3 if str(trial.load) == "max" else 1)


def with_chance(trial) -> float:
    return random.Random(trial.key).choice((1.1, 1.1, 1.1, 1.1, 2.4))  # one in five is made twice


@pytest.mark.parametrize("real_s", [as_planned, three_times_where_it_is_slow, with_chance])
def test_once_each_trial_was_measured_once_the_end_is_reported_within_a_fifth(real_s):
    schedule = plan(order="interleaved")
    after_the_first = output(schedule, real_s)[len(schedule.trials) // 4 - 1 :]
    assert after_the_first
    for left, really in after_the_first:
        assert is_told(left, really)


def test_what_takes_twice_as_long_as_planned_is_known_after_a_tenth():
    schedule = plan(order="random", repetitions=10)
    reported = output(schedule, lambda trial: 2.4)
    for left, really in reported[len(reported) // 10 :]:
        assert is_told(left, really)


def test_at_first_it_is_as_planned_and_at_the_end_nothing():
    schedule = plan()
    assert TimeLeft(schedule, ()).seconds == pytest.approx(schedule.expected_s(()))
    keys = [trial.key for trial in schedule.trials]
    assert TimeLeft(schedule, keys[:-3]).seconds == pytest.approx(schedule.expected_s(keys[:-3]))
    assert output(schedule, as_planned)[-1] == (0.0, 0.0)
