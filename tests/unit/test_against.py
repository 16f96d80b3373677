"""Two versions of UUTs in one campaign: which topologies go together, and the order of the UUTs."""

import pytest

from netbench.campaign.request import read_request
from netbench.cli.main import run_command_line
from netbench.config.loading import with_base_versions
from netbench.config.shipped import PROFILES, TOPOLOGIES, find
from netbench.errors import ExitCode, UsageError
from netbench.model.topology import measured_pairs
from netbench.results.comparability import split_versions
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import topology, topology_in_vm

ROUTE = {"name": "route", "kind": "raw", "forward": "route"}
BRIDGE = {"name": "bridge", "kind": "raw"}


def request(*against, uuts=(), topology="netns", settings=()):
    return read_request(
        find(TOPOLOGIES, topology), find(PROFILES, "quick"), uuts=uuts, settings=settings, against=against
    )


def test_each_uut_is_followed_by_the_version_it_is_measured_against():
    merged = with_base_versions(topology(uuts=[BRIDGE, ROUTE]), topology(uuts=[ROUTE, {**BRIDGE, "forward": "tc"}]))
    assert [uut.name for uut in merged.uuts] == ["bridge", "bridge.base", "route", "route.base"]
    assert merged.uut("bridge.base").options == {"forward": "tc"}
    assert measured_pairs([uut.name for uut in merged.uuts]) == {"bridge": "bridge.base", "route": "route.base"}


def test_a_vm_that_differs_is_there_twice_and_one_that_does_not_once():
    merged = with_base_versions(topology_in_vm(), topology_in_vm(vm={"image": "other"}))
    assert {name: vm.image for name, vm in merged.vms.items()} == {"lab": "micro", "lab-base": "other"}
    assert {uut.name: uut.on for uut in merged.uuts} == {"bridge": "lab", "bridge.base": "lab-base"}
    assert {merged.on("lab-base").machine(name) for name in ("source", "uut", "sink")} == {"lab-base"}
    assert list(with_base_versions(topology_in_vm(), topology_in_vm()).vms) == ["lab"]


@pytest.mark.parametrize(
    ("new", "base", "fault"),
    [
        (topology(), topology(2), "differ in `links`"),
        (topology(uuts=[BRIDGE]), topology(uuts=[ROUTE]), "have no UUT of the same name"),
        (topology(uuts=[BRIDGE, {**BRIDGE, "name": "bridge.base"}]), topology(), "has a UUT named bridge.base"),
        (topology(), topology_in_vm(), "differ in `hosts`"),
    ],
)
def test_topologies_that_differ_in_more_than_uuts_are_refused(new, base, fault):
    with pytest.raises(UsageError, match=fault):
        with_base_versions(new, base)


def test_the_two_versions_follow_each_other_and_neither_is_always_first():
    found = request("uuts.bridge.napi_policy=rr", uuts=["bridge", "route"], settings=["repetitions=8"])
    visits = list(dict.fromkeys((trial.boot, trial.uut) for trial in found.schedule.planned))
    pairs = [tuple(uut for _, uut in visits[at : at + 2]) for at in range(0, len(visits), 2)]
    assert {frozenset(pair) for pair in pairs} == {frozenset({name, f"{name}.base"}) for name in ("bridge", "route")}
    assert {pair[0] for pair in pairs} == {"bridge", "bridge.base", "route", "route.base"}
    assert found.topology.uut("bridge.base").napi_policy == "rr"
    assert found.topology.uut("bridge").napi_policy == "other"


@pytest.mark.parametrize(
    ("setting", "fault"),
    [("order=sequential", "use --set order=interleaved"), ("schedule=search", "choose a profile with loads")],
)
def test_versions_are_never_measured_one_after_the_other(setting, fault):
    with pytest.raises(UsageError, match=fault):
        request("uuts.bridge.napi_policy=rr", settings=[setting])


@pytest.mark.parametrize(
    ("against", "fault"),
    [
        (["uuts.brige.napi_policy=rr"], "did you mean bridge"),
        (["netns", "netns-3"], "--against: one topology at most, not netns and netns-3"),
        (["no-such-topology"], "no-such-topology"),
    ],
)
def test_what_cannot_be_measured_against_is_named(against, fault):
    with pytest.raises(UsageError, match=fault):
        request(*against)


def test_one_campaign_is_compared_as_two(monkeypatch, tmp_path, capsys):
    """The new version forwards half as much: the gate finds it, from boots measured in turn."""
    merged = with_base_versions(topology(), topology())
    made = FakeCampaign.on(merged, tmp_path / "o", monkeypatch)
    made.testbed.behaviours = {"bridge": [Behaviour(capacity_fps=30_000)] * 8}
    results = made.run(loads=["60kfps"], repetitions=4, order="interleaved")
    assert {trial.spec.boot for trial in results.trials} == set(range(1, 9))
    versions = split_versions(results)
    assert versions is not None
    assert [(side.uuts, side.planned_trials, len(side.trials)) for side in versions] == [(("bridge",), 4, 4)] * 2
    assert run_command_line(["compare", str(tmp_path / "o"), "--fail-on-regression", "2"]) == ExitCode.INVALID_RESULTS
    shown = capsys.readouterr().out
    assert "o (new): bridge, dedicated" in shown
