import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.errors import UsageError
from netbench.plan import Costs, expected_seconds, loads_above_line_rate, make_plan
from tests.unit.inputs import profile, topology

UUTS = ({"name": "a", "kind": "raw"}, {"name": "b", "kind": "raw"})
ORDERS = st.sampled_from(["interleaved", "sequential", "random"])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), ORDERS)
def test_every_combination_exactly_once_whatever_the_order(seed, repetitions, streams, order):
    plan = make_plan(
        topology(streams, UUTS),
        profile(
            seed=seed, repetitions=repetitions, order=order, frame_sizes=[64, 512], loads=["1fps", "max"],
            streams=list(range(1, streams + 1)),
        ),
    )  # fmt: skip
    assert len(plan.trials) == 2 * 2 * 2 * streams * repetitions
    assert set(Counter(trial.key for trial in plan.trials).values()) == {1}
    assert [trial.index for trial in plan.trials] == list(range(len(plan.trials)))


@given(st.integers(0, 2**32 - 1), ORDERS)
def test_the_same_seed_gives_the_same_plan(seed, order):
    wanted = profile(seed=seed, order=order, frame_sizes=[64, 65, 66], repetitions=3)
    assert make_plan(topology(1, UUTS), wanted) == make_plan(topology(1, UUTS), wanted)


def test_another_seed_gives_another_order():
    orders = {
        tuple(trial.key for trial in make_plan(topology(1, UUTS), profile(seed=seed, frame_sizes=range_)).trials)
        for seed in range(5)
        for range_ in [list(range(64, 74))]
    }
    assert len(orders) == 5


def test_interleaved_visits_every_uut_in_each_repetition():
    plan = make_plan(topology(1, UUTS), profile(repetitions=3, frame_sizes=[64, 65, 66]))
    for repetition in (1, 2, 3):
        visited = [trial.uut for trial in plan.trials if trial.repetition == repetition]
        assert Counter(visited) == {"a": 3, "b": 3}
        assert sum(1 for one, other in itertools.pairwise(visited) if one != other) == 1


def test_sequential_is_as_written():
    plan = make_plan(topology(1, UUTS), profile(order="sequential", frame_sizes=[1500, 64], repetitions=2))
    assert [(t.uut, t.frame_size, t.repetition) for t in plan.trials] == [
        (uut, size, repetition) for uut in "ab" for size in (1500, 64) for repetition in (1, 2)
    ]


def test_streams_are_the_first_ones():
    plan = make_plan(topology(3), profile(streams=[2], order="sequential"))
    assert plan.trials[0].streams == ("s1", "s2")
    assert make_plan(topology(3), profile()).trials[0].streams == ("s1", "s2", "s3")


def test_only_the_chosen_uuts():
    plan = make_plan(topology(1, UUTS), profile(repetitions=2), uuts=["b"])
    assert {trial.uut for trial in plan.trials} == {"b"}


@pytest.mark.parametrize(
    ("kwargs", "more", "says"),
    [
        ({"uuts": ["c"]}, {}, "no UUT 'c' here; there are a, b"),
        ({"scenarios": ["shared"]}, {}, "no scenario 'shared'"),
        ({}, {"streams": [4]}, "4 sources are asked for, topology lab has 1"),
        ({}, {"repetitions": 1000, "frame_sizes": list(range(64, 1264))}, "2,400,000 trials"),
    ],
)
def test_an_impossible_plan_is_refused(kwargs, more, says):
    with pytest.raises(UsageError, match=says):
        make_plan(topology(1, UUTS), profile(**more), **kwargs)


def test_too_many_trials_are_refused_before_they_are_built():
    loads = [f"{n}fps" for n in range(1, 5001)]
    with pytest.raises(UsageError, match="14,550,000,000 trials"):
        make_plan(topology(1, UUTS), profile(repetitions=1000, frame_sizes=list(range(64, 1519)), loads=loads))


def test_the_expected_time_counts_traffic_and_settling():
    short = make_plan(topology(), profile(repetitions=10, duration="1s")).expected_s
    long = make_plan(topology(), profile(repetitions=10, duration="3s", settle={"before": "1s"})).expected_s
    assert long - short == pytest.approx(10 * (2 + 1 - 0.02))


@given(ORDERS, st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_expected_time_counts_every_visit_of_a_uut(order, seed, repetitions):
    """One that takes long to come up does so at each of its visits, and a UUT that is not known at none."""
    wanted = profile(order=order, seed=seed, repetitions=repetitions, frame_sizes=[64, 65])
    costs = Costs(start_s=5.0, trial_s=Costs().trial_s, uut_s={"a": 8.0, "elsewhere": 1000.0})
    plan = make_plan(topology(1, UUTS), wanted, costs=costs)
    visits = [name for name, _ in itertools.groupby(trial.uut for trial in plan.trials)]
    plain = make_plan(topology(1, UUTS), wanted).expected_s
    assert plan.expected_s - plain == pytest.approx(5.0 + 8.0 * visits.count("a"))
    assert expected_seconds(plan.trials, wanted, costs) == pytest.approx(plan.expected_s)
    assert expected_seconds((), wanted, costs) == 5.0


def test_loads_above_line_rate_are_found():
    wanted = profile(loads=["1Gbit/s", "100%", "max", "1488000fps", "1489000fps"], frame_sizes=[64])
    assert [text.split(" at ")[0] for text in loads_above_line_rate(topology(), wanted)] == ["1489000fps"]
