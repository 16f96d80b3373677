"""A campaign fitted into a time."""

import pytest

from netbench.cli.arguments import time_budget_s
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.shipped import PROFILES, TOPOLOGIES, find
from netbench.errors import UsageError
from netbench.plan.duration import fitted
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from tests.unit.inputs import profile, topology


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300.0), ("90s", 90.0), ("2min", 120.0), ("1h", 3600.0)])
def test_a_time_budget_is_a_time_and_m_is_for_minutes(text, seconds):
    assert time_budget_s(text) == seconds
    assert time_budget_s(None) is None


@pytest.mark.parametrize("text", ["", "fast", "-5m", "0s"])
def test_another_time_budget_is_refused(text):
    with pytest.raises(UsageError, match="--time-budget"):
        time_budget_s(text)


def demo():
    there = load_topology(find(TOPOLOGIES, "netns-demo"), option_models(UUTS))
    return choose(there, load_profile(find(PROFILES, "demo"), profile_kinds()))


@pytest.mark.parametrize("budget_s", [60, 120, 300, 900])
def test_it_fits_and_calibration_takes_a_third_at_most(budget_s):
    wanted = fitted(demo(), budget_s)
    schedule = make_schedule(wanted)
    expected_s, planned_s = schedule.expected_s(()), wanted.costs.expected_s(schedule.planned)
    assert expected_s is not None
    assert 0.5 * budget_s <= expected_s <= budget_s
    assert expected_s - planned_s <= budget_s / 3
    assert wanted.profile.order == "interleaved"
    firsts = [spec.repetition for spec in schedule.planned]
    assert firsts == sorted(firsts), "one repetition of everything, then the next one"


def test_more_time_is_more_repetitions_and_less_time_shorter_trials():
    profiles = [fitted(demo(), seconds).profile for seconds in (60, 300, 1200)]
    assert [chosen.repetitions for chosen in profiles] == sorted(chosen.repetitions for chosen in profiles)
    assert profiles[0].duration <= profiles[1].duration == demo().profile.duration
    assert fitted(choose(topology(), profile(repetitions=9)), 10).profile.repetitions < 9


def test_too_little_time_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="one repetition of everything takes .* allow more time"):
        fitted(demo(), 5)


def test_a_search_has_no_repetitions_to_fit():
    with pytest.raises(UsageError, match="goes with schedule plan only"):
        fitted(choose(topology(), profile(schedule="search")), 60)
