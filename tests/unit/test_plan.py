import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.errors import UsageError
from netbench.model.trial import TrialSpec
from netbench.model.virtualisation import DurationEstimate
from netbench.plan.schedule import Costs, VmCosts
from netbench.plan.selection import choose, loads_above_line_rate
from netbench.plan.trial_order import StaticPlan
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import trial


def make_plan(*wanted, **more) -> StaticPlan:
    return StaticPlan(choose(*wanted, **more))


def boots_of(plan):
    """The trials of each planned boot."""
    return [list(same) for _, same in itertools.groupby(plan.trials, key=lambda trial: trial.boot)]


def expected_s(plan):
    return plan.expected_s(())


UUTS = ({"name": "a", "kind": "raw"}, {"name": "b", "kind": "raw"})
ORDERS = st.sampled_from(["interleaved", "sequential", "random"])


SEEDS = st.integers(0, 2**32 - 1)


def all_different(plan):
    """Return the number of trials, which are all different."""
    assert len({trial.key for trial in plan.trials}) == len(plan.trials)
    assert [trial.index for trial in plan.trials] == list(range(len(plan.trials)))
    return len(plan.trials)


@given(SEEDS, st.integers(1, 4), st.integers(1, 3), ORDERS)
def test_every_combination_exactly_once_whatever_the_order_and_always_the_same(seed, repetitions, streams, order):
    wanted = profile(
        seed=seed,
        repetitions=repetitions,
        order=order,
        frame_sizes=[64, 512],
        loads=["1fps", "max"],
        streams=list(range(1, streams + 1)),
    )
    plan = make_plan(topology(streams, UUTS), wanted)
    assert all_different(plan) == 2 * 2 * 2 * streams * repetitions
    assert make_plan(topology(streams, UUTS), wanted).trials == plan.trials


@given(SEEDS, st.integers(1, 3), ORDERS)
def test_where_sweeps_may_end_early_no_load_comes_before_a_lower_one_had_its_first_trial(seed, repetitions, order):
    wanted = {
        "seed": seed,
        "repetitions": repetitions,
        "order": order,
        "frame_sizes": [64, 512],
        "loads": ["max", "500Mbit/s", "900000fps", "1%", "60000fps"],
    }
    plan = make_plan(topology(2, UUTS), profile(stop_when_saturated=1, streams=[1, 2], **wanted))
    usual = make_plan(topology(2, UUTS), profile(streams=[1, 2], **wanted))
    assert {trial.key for trial in plan.trials} == {trial.key for trial in usual.trials}
    own = [spec for spec in plan.trials if (spec.uut, spec.frame_size.only_size, len(spec.streams)) == ("a", 64, 2)]
    begun = list(dict.fromkeys(str(spec.load) for spec in own))
    assert begun == ["1%", "60000fps", "500Mbit/s", "900000fps", "max"]
    assert [str(spec.load) for spec in own if spec.repetition == 1] == begun


def test_only_a_plan_of_loads_can_end_sweeps_early():
    with pytest.raises(ValueError, match="stop_when_saturated: goes with schedule plan only; halving chooses"):
        profile(stop_when_saturated=2, schedule="halving")


def test_another_seed_gives_another_order():
    wanted = [profile(seed=seed, frame_sizes=list(range(64, 74))) for seed in range(5)]
    orders = [tuple(trial.key for trial in make_plan(topology(1, UUTS), seeded).trials) for seeded in wanted]
    assert len(set(orders)) == 5


def test_interleaved_visits_every_uut_in_each_repetition():
    plan = make_plan(topology(1, UUTS), profile(repetitions=3, frame_sizes=[64, 65, 66]))
    for repetition in (1, 2, 3):
        visited = [trial.uut for trial in plan.trials if trial.repetition == repetition]
        assert Counter(visited) == {"a": 3, "b": 3}
        assert sum(1 for before, after in itertools.pairwise(visited) if before != after) == 1


def test_sequential_is_as_written():
    plan = make_plan(topology(1, UUTS), profile(order="sequential", frame_sizes=[1500, 64], repetitions=2))
    assert [(t.uut, t.frame_size.only_size, t.repetition) for t in plan.trials] == [
        (uut, size, repetition) for uut in "ab" for size in (1500, 64) for repetition in (1, 2)
    ]


def test_streams_are_the_first_ones():
    assert make_plan(topology(3), profile(streams=[2])).trials[0].streams == ("s1", "s2")
    assert make_plan(topology(3), profile()).trials[0].streams == ("s1", "s2", "s3")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"streams": [4]}, "4 sources are asked for, the UUTs of topology lab have 1"),
        (
            {"repetitions": 1000, "frame_sizes": list(range(64, 1519)), "loads": [f"{n}fps" for n in range(1, 5001)]},
            "14,550,000,000 trials",  # which are never built
        ),
    ],
)
def test_an_impossible_plan_is_refused(more, message):
    with pytest.raises(UsageError, match=message):
        make_plan(topology(1, UUTS), profile(**more))


def test_the_expected_time_counts_traffic_and_settling():
    short = expected_s(make_plan(topology(), profile(repetitions=10, duration="1s")))
    long = expected_s(make_plan(topology(), profile(repetitions=10, duration="3s", settle={"before": "1s"})))
    assert long - short == pytest.approx(10 * (2 + 1 - 0.02))


@given(ORDERS, SEEDS, st.integers(1, 4))
def test_the_expected_time_counts_every_visit_of_a_uut(order, seed, repetitions):
    """A UUT that starts slowly costs that time at each of its visits; a UUT of unknown cost adds none."""
    wanted = profile(order=order, seed=seed, repetitions=repetitions, frame_sizes=[64, 65])
    costs = Costs(
        start_s=5.0, trial_s=Costs().trial_s, guests={"a": DurationEstimate(8.0), "elsewhere": DurationEstimate(1000.0)}
    )
    plan = make_plan(topology(1, UUTS), wanted, costs=costs)
    visits = [name for name, _ in itertools.groupby(trial.uut for trial in plan.trials)]
    plain = expected_s(make_plan(topology(1, UUTS), wanted))
    assert expected_s(plan) - plain == pytest.approx(5.0 + 8.0 * visits.count("a"))
    assert plan.expected_s({trial.key for trial in plan.trials}) == 5.0


@given(ORDERS, SEEDS)
def test_the_expected_time_counts_every_start_of_a_vm_and_what_is_slow_on_it(order, seed):
    usual, wanted = Costs(start_s=1.0), {"order": order, "seed": seed}
    costs = replace(usual, vms=dict.fromkeys(("b", "d"), VmCosts("lab", start_s=20.0, trial_s=3.0)))
    plan = plan_on_vms(costs=costs, **wanted)
    visits = [place for place, _ in itertools.groupby(ON[trial.uut] for trial in plan.trials)]
    plain, on_vm = expected_s(plan_on_vms(costs=Costs(), **wanted)), sum(bool(ON[spec.uut]) for spec in plan.trials)
    assert expected_s(plan) - plain == pytest.approx(20.0 * visits.count("lab") + 3.0 * on_vm + 1.0 * len(visits))


@given(ORDERS, SEEDS, st.data())
def test_what_is_handed_out_is_the_rest_in_the_same_order(order, seed, data):
    plan = make_plan(topology(1, UUTS), profile(order=order, seed=seed, repetitions=3, frame_sizes=[64, 65]))
    done = data.draw(st.sets(st.sampled_from([trial.key for trial in plan.trials])))
    results = {key: trial() for key in done}
    handed_out = []
    while isinstance(spec := plan.next(results), TrialSpec):
        handed_out.append(spec)
        results[spec.key] = trial()
    assert handed_out == [planned for planned in plan.trials if planned.key not in done]


def test_loads_above_line_rate_are_found():
    wanted = profile(loads=["1Gbit/s", "100%", "max", "1488000fps", "1489000fps"], frame_sizes=[64])
    assert [text.split(" at ")[0] for text in loads_above_line_rate(topology(), wanted)] == ["1489000fps"]


SHARED = ["dedicated", "shared-idle", "cpu-heavy", {"network": ["50%", "95%"]}]
NEIGHBOURS = ({"name": "second", "streams": ["s2"]},)


def shared_plan(uuts=UUTS, scenarios=(), costs=None, **more):
    data = {"scenarios": SHARED, "frame_sizes": [64, 1500], "loads": ["1fps", "2fps"], "maxima": "loads"}
    wanted = profile(**{**data, **more})
    there = topology(2, uuts, neighbours=NEIGHBOURS)
    return make_plan(there, wanted, scenarios=scenarios, costs=costs or Costs())


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 3), ORDERS, st.sampled_from(["visit", "scenario", "trial"]))
def test_every_scenario_once_and_maxima_before_what_refers_to_them(seed, repetitions, order, reboot):
    plan = shared_plan(seed=seed, repetitions=repetitions, order=order, reboot=reboot)
    assert all_different(plan) == 2 * 5 * 2 * 2 * repetitions
    assert all(len({trial.uut for trial in boot}) == 1 for boot in boots_of(plan))
    for uut in "ab":
        own = [trial for trial in plan.trials if trial.uut == uut]
        finding = [n for n, t in enumerate(own) if (t.scenario, t.frame_size.only_size) == ("shared-idle", 64)]
        needing = [n for n, t in enumerate(own) if t.scenario.startswith("network")]
        assert max(finding) < min(needing)


def in_phase(plan, phase):
    return {(trial.scenario, trial.frame_size.only_size) for trial in plan.trials if trial.phase == phase}


@pytest.mark.parametrize(
    ("more", "first", "second"),
    [
        (
            {},
            {("shared-idle", 64)},  # and nothing else
            {
                ("shared-idle", 1500),
                *itertools.product(("dedicated", "cpu-heavy", "network-50", "network-95"), (64, 1500)),
            },
        ),
        ({"scenarios": ["dedicated", "cpu-heavy"], "frame_sizes": [64]}, {("dedicated", 64), ("cpu-heavy", 64)}, set()),
        # A maximum that was not requested is measured nevertheless.
        (
            {"scenarios": ["network-*"], "frame_sizes": [1500]},
            {("shared-idle", 64)},
            {("network-50", 1500), ("network-95", 1500)},
        ),
    ],
)
def test_maxima_are_found_in_a_phase_of_their_own_where_something_refers_to_them(more, first, second):
    plan = shared_plan(**more)
    assert (in_phase(plan, 1), in_phase(plan, 2)) == (first, second)
    assert {str(trial.load) for trial in plan.trials if trial.phase == 1} == {"1fps", "2fps"}


def test_scenarios_with_the_same_neighbours_are_shuffled_together_within_a_visit():
    plan = shared_plan(repetitions=4, seed=3)
    second = [boot for boot in boots_of(plan) if boot[0].phase == 2]
    assert len(second) == 2 * 4, "every UUT is visited once a repetition"
    for visit in second:
        alone = [trial.scenario == "dedicated" for trial in visit]
        assert sum(old != new for old, new in itertools.pairwise(alone)) == 1, "the neighbour comes or goes once"
        shared = [trial.scenario for trial in visit if trial.scenario != "dedicated"]
        assert sum(old != new for old, new in itertools.pairwise(shared)) > len(set(shared)) - 1
    assert len({visit[0].scenario == "dedicated" for visit in second}) == 2, "sometimes alone first, sometimes not"


@pytest.mark.parametrize(("reboot", "trials_a_visit"), [("trial", {1}), ("scenario", {4, 2})])
def test_guests_are_restarted_as_often_as_the_profile_reports(reboot, trials_a_visit):
    plan = shared_plan(reboot=reboot)
    assert {len(visit) for visit in boots_of(plan)} == trials_a_visit
    assert all(len({trial.scenario for trial in visit}) == 1 for visit in boots_of(plan))


def test_only_the_victims_streams_are_planned():
    plan = make_plan(topology(3, UUTS, neighbours=[{"name": "n", "streams": ["s2"]}]), profile(streams="each"))
    assert {trial.streams for trial in plan.trials} == {("s1",), ("s1", "s3")}


def test_a_scenario_may_have_its_own_number_of_sources():
    plan = make_plan(
        topology(3, UUTS, neighbours=[{"name": "n", "streams": ["s3"]}]),
        profile(streams="each", scenarios=["dedicated", {"name": "busy", "activity": "cpu-light", "streams": [1]}]),
    )
    found = {(trial.scenario, len(trial.streams)) for trial in plan.trials}
    assert found == {("dedicated", 1), ("dedicated", 2), ("busy", 1)}


@pytest.mark.parametrize(
    ("topo", "scenario", "words"),
    [
        ({}, "cpu-heavy", "scenario cpu-heavy needs a second guest, and topology lab has no `neighbours`"),
        ({"neighbours": [{"name": "n"}]}, {"network": "50%"}, "neighbour n has no streams to forward"),
        (
            {"neighbours": [{"name": "n"}]},
            {"name": "x", "neighbours": {"m": "idle"}},
            "topology lab has no neighbour 'm'; there are n",
        ),
        (
            {},
            {"name": "x", "activity": "off", "streams": [3]},
            "3 sources are asked for, the UUTs of topology lab have 2",
        ),
    ],
)
def test_scenarios_that_a_topology_cannot_play_are_refused(topo, scenario, words):
    with pytest.raises(UsageError, match=words):
        make_plan(topology(2, UUTS, **topo), profile(scenarios=[scenario]))


def test_neighbours_and_their_loads_have_a_cost():
    second = DurationEstimate(bring_up_s=1000, trial_s=2, idle_s=4, load_s=5, worker_s=1)
    costs = Costs(start_s=0, trial_s=0, stream_s=3, guests={"a": DurationEstimate(100, trial_s=7), "a.second": second})
    at_once = {"before": 0, "after": 0}
    one = {"uuts": UUTS[:1], "frame_sizes": [64], "loads": ["1fps"], "duration": "1s", "settle": at_once}
    alone = shared_plan(scenarios=["dedicated"], costs=costs, **one)
    idle = shared_plan(scenarios=["shared-idle"], costs=costs, **one)
    heavy = shared_plan(scenarios=["cpu-heavy"], costs=costs, **one)
    network = shared_plan(scenarios=["network-50"], costs=costs, **one)
    assert expected_s(alone) == 100 + 1 + 7
    assert expected_s(idle) == 1100 + 1 + 7 + 4
    assert expected_s(heavy) == 1100 + 1 + 7 + 4 + 5 + 12
    both_visits = 2 * 1100 + (1 + 7 + 4) + (1 + 7 + 2 + 3)
    assert expected_s(network) == pytest.approx(both_visits + 0.05 + 0.1), "it sends a little longer than the victim"


def test_who_gets_less_of_a_cpu_takes_longer():
    assert DurationEstimate(1, 2, 3, 4, 5).with_share(0.2) == DurationEstimate(5, 10, 15, 20, 25)
    assert (
        DurationEstimate(1, 2, 3, 4, 5).with_share(None)
        == DurationEstimate(1, 2, 3, 4, 5).with_share(2.0)
        == DurationEstimate(1, 2, 3, 4, 5)
    )


def test_where_all_are_to_forward_a_neighbour_without_streams_is_idle():
    there = topology(2, UUTS, neighbours=[*NEIGHBOURS, {"name": "third"}])
    [network] = profile(scenarios=[{"network": "50%"}]).scenarios
    assert [str(there.activity(network, name)) for name in ("second", "third")] == [
        "forwards 64-byte frames at 50% of the maximum",
        "idle",
    ]
    plan = make_plan(there, profile(scenarios=[{"network": "50%"}]))
    assert {tuple(neighbour.name for neighbour in trial.neighbours) for trial in plan.trials} == {("second", "third")}
    output = {"name": "x", "activity": {"network": "50%"}, "neighbours": {"third": {"network": "50%"}}}
    with pytest.raises(UsageError, match="neighbour third has no streams to forward"):
        make_plan(there, profile(scenarios=[output]))


ON = {"a": None, "b": "lab", "c": None, "d": "lab"}


def plan_on_vms(costs=None, **wanted):
    hosts = {"lab": {"kind": "vm"}, **{name: {"kind": "netns"} for name in ("source", "uut", "sink")}}
    uuts = tuple({"name": name, "kind": "raw", **({"on": vm} if vm else {})} for name, vm in ON.items())
    return make_plan(topology(1, uuts, hosts=hosts), profile(repetitions=3, **wanted), costs=costs)


@given(SEEDS)
def test_uuts_on_one_vm_follow_each_other_in_each_repetition(seed):
    plan, on = plan_on_vms(seed=seed, order="interleaved"), ON
    for repetition in (1, 2, 3):
        visited = [trial.uut for trial in plan.trials if trial.repetition == repetition]
        assert sorted(visited) == list(on)
        assert [name for name, _ in itertools.groupby(on[uut] for uut in visited)] in (["lab", None], [None, "lab"])


@given(SEEDS, st.sampled_from(["sequential", "random"]))
def test_in_the_other_orders_a_vm_is_come_to_once(seed, order):
    plan = plan_on_vms(seed=seed, order=order, frame_sizes=[64, 512])
    assert len(plan.trials) == len({trial.key for trial in plan.trials}) == 4 * 2 * 3
    assert sorted(place or "" for place, _ in itertools.groupby(ON[trial.uut] for trial in plan.trials)) == ["", "lab"]
