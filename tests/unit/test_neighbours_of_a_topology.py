"""Neighbours in topologies: their kind beside each UUT, their CPUs, and the messages for wrong ones."""

import pytest

from netbench.config.document import yaml_text, yaml_value
from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import TOPOLOGIES, shipped
from netbench.errors import MissingError, UsageError
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.topology_specs import CpuShares
from netbench.testbed.guest_specs import activities_of, guest_specs
from netbench.testbed.needs import needs_of
from netbench.testbed.resolved import resolve, resolve_guests
from tests.unit.inputs import profile, shared_topology, topology

QEMU = {"name": "v", "kind": "qemu", "nic": "virtio-net-pci", "forward": "route", "pin": {"vcpus": [[1]]}}
RAW = {"name": "r", "kind": "raw", "forward": "route"}


def beside(uut, neighbour, **more):
    lab = shared_topology([{"name": "second", "streams": ["s2"], **neighbour}], uuts=[{**uut, **more}])
    return guest_specs(lab, lab.uuts[0])["second"]


def loaded(tmp_path, *changes, name="netns-vmm"):
    return load_topology(shipped(TOPOLOGIES)[name], option_models(UUTS), changes)


def test_a_neighbour_is_what_the_uut_is_unless_reported_otherwise():
    assert beside(QEMU, {}).options == {"nic": "virtio-net-pci", "forward": "route"}, "its threads are not the UUT's"
    assert beside(QEMU, {"nic": "e1000", "cpus": 2}).options == {"nic": "e1000", "forward": "route", "cpus": 2}
    assert beside(RAW, {}).name == "r.second"
    assert beside(RAW, {"memory": "512M"}).options == {"forward": "route"}, "meant for others"
    drops = {"forward": "bridge", "drop": {"k": 1, "n": 10}}
    own = beside(QEMU, {"kind": "reference", **drops})
    assert (own.kind, own.options) == ("reference", drops), "a kind of its own inherits nothing"
    other = beside(RAW, {"cpu_limit": "50%"}, neighbours={"second": {"kind": "qemu", "cpu_weight": 10}})
    assert (other.kind, other.cpu_weight, other.cpu_limit) == ("qemu", 10, 0.5)


def test_streams_that_a_neighbour_names_are_its_own():
    lab = topology(3, neighbours=[{"name": "second", "streams": ["s2"]}, {"name": "third"}])
    paths = stream_paths(lab)
    guests = resolve_guests(lab, lab.uuts[0], paths)
    through = {name: [path.name for path in guest.assignment.paths] for name, guest in guests.items()}
    assert through == {"victim": ["s1", "s3"], "second": ["s2"], "third": []}


def test_sources_and_sinks_are_needed_only_where_frames_run():
    lab = shared_topology()
    for scenario, used in (("shared-idle", ["s1"]), ({"network": "50%"}, ["s1", "s2"])):
        assert [path.name for path in resolve(lab, profile(scenarios=[scenario])).in_use] == used


def test_what_a_campaign_needs_is_what_its_scenarios_need():
    lab = shared_topology([{"name": "second", "kind": "qemu", "cpu_weight": 10}], uuts=[RAW])
    heavy = profile(scenarios=["dedicated", "cpu-heavy"]).scenarios
    alone = needs_of(lab, (), activities_of(lab, heavy[:1]))
    shared = needs_of(lab, (), activities_of(lab, heavy))
    assert "cgroup-cpu" in shared - alone
    assert "image:micro" in shared - alone
    assert "stress-ng" not in shared, "a guest has its own"
    same_kind = shared_topology(uuts=[RAW])
    assert "stress-ng" in needs_of(same_kind, (), activities_of(same_kind, heavy))
    assert "stress-ng" not in needs_of(same_kind, (), activities_of(same_kind, heavy[:1]))


@pytest.mark.parametrize(
    ("placement", "uut", "victim", "neighbour"),
    [
        (None, {}, (), ()),
        ("same-cpu", {}, (1,), (1,)),
        ("same-cpu", {"host_cpus": [1]}, (1,), (1,)),
        ("other-core", {}, (1,), (0,)),
        ([1], {}, (), (1,)),
    ],
)
def test_where_the_two_run(monkeypatch, placement, uut, victim, neighbour):
    monkeypatch.setattr("netbench.testbed.cpus.siblings_here", lambda cpu: frozenset({cpu}))
    lab = shared_topology(
        [{"name": "second", "streams": ["s2"], "cpu_weight": 50, **({"placement": placement} if placement else {})}],
        uuts=[{**RAW, **uut}],
    )
    found = {name: guest.assignment.cpu_shares for name, guest in resolve_guests(lab, lab.uuts[0], cpus=[0, 1]).items()}
    assert found == {"victim": CpuShares(victim), "second": CpuShares(neighbour, 50)}
    if uut or placement == "other-core":
        with pytest.raises(
            (UsageError, MissingError), match="UUT r: (host_cpus: there is no CPU 1|placement: other-core)"
        ):
            resolve_guests(lab, lab.uuts[0], cpus=[0])


def test_what_is_written_down_reads_the_same():
    lab = shared_topology(
        [{"name": "second", "streams": ["s2"], "placement": [0, 1], "cpu_limit": "12.5%", "nic": "e1000"}],
        uuts=[{**QEMU, "host_cpus": [1], "cpu_weight": 7, "neighbours": {"second": {"placement": "same-cpu"}}}],
    )
    kept = yaml_text(lab.model_dump(mode="json", exclude_none=True))
    again = Topology.model_validate(yaml_value(kept))
    assert again == lab
    assert guest_specs(again, again.uuts[0])["second"].cpu_limit == 0.125


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("neighbours.0.memry=64M", "neighbours[0].memry: unknown key; did you mean 'memory'?"),
        ("neighbours.0.streams=s1,n1", "every stream runs through one of them; leave at least one to the UUT"),
        ("neighbours.0.cpu_limit=0.5%", "a limit is at least 1% of one CPU"),
        ("neighbours.0.placement=near", "a neighbour's place is one of same-cpu, sibling, other-core, or CPUs"),
        ("neighbours.0.cpu_weight=0", "neighbours[0].cpu_weight: 0 is not allowed"),
        (
            "neighbours.0.kind=lxd",
            "'lxd' is no kind of UUT; there are container, esxi, external, forwarder, libvirt, openvz, ovs, qemu, "
            "raw, reference, virtualbox, xen",
        ),
        ("neighbours.0.nic=e100", "neighbours[0].nic: 'e100' is not allowed"),
        (
            "uuts.0.neighbours={second: {memory: 1G}}",
            "uuts[0].neighbours.second.memory: raw has no such option; kinds with it: container",
        ),
        ("uuts.0.neighbours={second: {on: lab}}", "uuts[0].neighbours.second.on: unknown key; allowed here: "),
        ("uuts.0.neighbours={second: {host_cpus: [0]}}", "uuts[0].neighbours.second.host_cpus: unknown key"),
        ("neighbours.0={name: second, kind: raw, on: lab}", "neighbours[0].on: unknown key; allowed here: "),
        ("neighbours.0.on=lab", "neighbours[0].on: unknown key; allowed here: "),
        ("uuts.2.neighbours={second: {cpu_limit: 0%}}", "uuts[2].neighbours.second.cpu_limit"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path, changes, message):
    with pytest.raises(UsageError) as refused:
        loaded(tmp_path, f"topology.{changes}")
    assert message in str(refused.value)


def test_two_of_one_name_and_a_stream_through_two(tmp_path):
    with pytest.raises(ValueError, match="neighbour 'a' is defined twice"):
        shared_topology([{"name": "a"}, {"name": "a"}])
    with pytest.raises(ValueError, match="stream s2 runs through more than one neighbour"):
        shared_topology([{"name": "a", "streams": ["s2"]}, {"name": "b", "streams": ["s2"]}])
