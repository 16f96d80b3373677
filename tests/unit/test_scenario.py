"""Scenarios in profiles: the meaning of names and shorthands, wrong ones, and lossless storage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.config.document import yaml_text, yaml_value
from netbench.model.frame_size import FrameSize
from netbench.model.profile import Profile
from netbench.model.scenario import Idle, Network, Off, Stress
from netbench.model.units import Load
from tests.unit.inputs import profile


def scenarios(*items):
    return {scenario.name: scenario for scenario in profile(scenarios=list(items)).scenarios}


def test_the_names_of_the_paper():
    found = scenarios("dedicated", "shared-idle", "cpu-light", "cpu-heavy")
    assert [scenario.of("any") for scenario in found.values()] == [Off(), Idle(), Stress(cpu=1), Stress(cpu=8, vm=4)]


def test_network_stands_for_a_scenario_a_rate():
    found = scenarios({"network": ["50%", "95%", "20000fps", "10Mbit/s", "max"], "frame_size": 128, "streams": [1]})
    assert list(found) == ["network-50", "network-95", "network-20000fps", "network-10Mbps", "network-max"]
    assert found["network-50"].of("any") == Network(None, 50.0, FrameSize.of(128))
    assert found["network-20000fps"].of("any") == Network(Load.parse("20000fps"), None, FrameSize.of(128))
    assert {scenario.streams for scenario in found.values()} == {(1,)}
    assert list(scenarios({"name": "steps", "network": "12.5%"})) == ["steps-12.5"]


def test_neighbours_may_differ():
    [mixed] = scenarios(
        {"name": "mixed", "activity": "idle", "neighbours": {"n1": "cpu-heavy", "n2": {"network": "50%"}, "n3": "off"}}
    ).values()
    assert [mixed.of(name) for name in ("n1", "n2", "n3", "n4")] == [
        Stress(cpu=8, vm=4),
        Network(None, 50.0),
        Off(),
        Idle(),
    ]


def test_yaml_reads_a_bare_off_as_false():
    assert scenarios({"name": "alone", "activity": False})["alone"].of("any") == Off()


def test_the_idle_neighbour_can_always_be_asked_for():
    assert profile().scenario("shared-idle").of("any") == Idle()
    with pytest.raises(KeyError):
        profile().scenario("cpu-heavy")


rates = st.one_of(
    st.integers(1, 1000).map(lambda n: f"{n}%"),
    st.integers(1, 10**6).map(lambda n: f"{n}fps"),
    st.just("max"),
)
activities = st.one_of(
    st.sampled_from(["off", "idle", "cpu-light", "cpu-heavy"]),
    st.tuples(st.integers(0, 64), st.integers(1, 64)).map(lambda n: {"stress": {"cpu": n[0], "vm": n[1]}}),
    st.tuples(rates, st.integers(64, 1518)).map(lambda n: {"network": n[0], "frame_size": n[1]}),
)


@given(st.lists(activities, min_size=1, max_size=5))
def test_what_is_written_down_reads_the_same(given_activities):
    items = [
        {"name": f"s{n}", "activity": activity, "neighbours": {"a": activity}}
        for n, activity in enumerate(given_activities)
    ]
    wanted = profile(scenarios=items)
    kept = yaml_text(wanted.model_dump(mode="json", exclude_none=True))
    assert Profile.model_validate(yaml_value(kept)) == wanted


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("cpu-medium", "'cpu-medium' is no scenario; there are dedicated, shared-idle, cpu-light, cpu-heavy"),
        ({"network": []}, "network: name at least one rate, for example [50%, 95%]"),
        ({"network": ["0%"]}, "network: a share of the maximum is more than 0% and at most 1000%"),
        ({"network": [50]}, "network: a rate needs a unit; write for example 50%, 20000fps, 10Mbit/s or max"),
        ({"network": "50%", "activity": "idle"}, "a scenario has either activity or network"),
        ({"name": "x", "activity": {"stress": {"cpu": 0}}}, "stress: no workers at all; write idle for that"),
        ({"name": "x", "activity": {"stress": {"cpu": True}}}, "stress: cpu: a number of workers, 0 to 1024"),
        ({"name": "x", "activity": {"stress": {"disk": 1}}}, "stress: numbers of workers"),
        ({"name": "x", "activity": "busy"}, "a neighbour does one of off, idle, cpu-light, cpu-heavy"),
        ({"name": "a/b"}, "String should match pattern"),
        (
            {"name": "shared-idle", "neighbours": {"n": "off"}},
            "shared-idle means that every neighbour is or does: idle",
        ),
        (
            {"name": "cpu-heavy", "activity": "idle"},
            "cpu-heavy means that every neighbour is or does: stress-ng --cpu 8",
        ),
        (None, "name at least one scenario"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(item, words):
    with pytest.raises(ValidationError) as refused:
        scenarios(item)
    assert words in str(refused.value)


def test_two_scenarios_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="network-50 is defined twice"):
        scenarios({"network": ["50%"]}, {"name": "network-50", "activity": "idle"})
