"""The needs and changes of a testbed, derived from its topology alone."""

from itertools import takewhile
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.config.document import yaml_text, yaml_value
from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import TOPOLOGIES, shipped
from netbench.linux.changes import AddNamespace, AddVeth, KeepPort, MovePort, OffloadsOff, SetSysctl, SetUp
from netbench.model.profile import SinkSpec
from netbench.model.scenario import VICTIM
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.sinks.tcpdump import Tcpdump
from netbench.testbed.bring_up import base_changes
from netbench.testbed.cpus import CpuCompetition, alone, bound_ends, client_pins, cpu_plan, cpu_plans, receiving_cpus
from netbench.testbed.guest_specs import make_uut
from netbench.testbed.needs import needs_of
from netbench.testbed.requirements import known_needs
from netbench.testbed.resolved import make_backends, resolve
from netbench.testbed.rings import Rings
from netbench.testbed.testbed import Testbed
from netbench.uut.base import ActiveGuest, Ready, UutPlan
from netbench.uut.raw import Raw
from netbench.uut.reference import Reference
from netbench.vmm.qemu.command import qemu_program
from tests.unit.fakes import fake_ports as ports
from tests.unit.inputs import profile, topology, topology_in_vm


def kinds(lab, kind):
    return [change for change in base_changes(lab) if isinstance(change, kind)]


def test_namespaces_come_first_each_without_ipv6():
    changes = base_changes(topology())
    first = list(takewhile(lambda change: isinstance(change, AddNamespace | SetSysctl), changes))
    namespaces = ("nb-lab-source", "nb-lab-uut", "nb-lab-sink")
    assert [change.command for change in first] == [
        *(f"ip netns add {netns}" for netns in namespaces),
        *(
            f"ip netns exec {netns} sysctl -w net.ipv6.conf.{part}.disable_ipv6=1"
            for netns in namespaces
            for part in ("all", "default")
        ),
    ]
    assert not [change for change in changes[len(first) :] if isinstance(change, AddNamespace)]


def test_each_link_is_a_veth_pair_between_its_two_namespaces():
    assert kinds(topology(), AddVeth) == [
        AddVeth("nb-lab-source", "nb-tx1", "02:6e:62:00:01:01", "nb-lab-uut", "nb-in1", "02:6e:62:00:01:02"),
        AddVeth("nb-lab-uut", "nb-out1", "02:6e:62:00:02:01", "nb-lab-sink", "nb-rx1", "02:6e:62:00:02:02"),
    ]


@pytest.mark.parametrize(("lab", "known"), [(topology(), False), (ports("netns"), True), (ports("local"), True)])
def test_counters_of_ports_are_read_once_their_drivers_have_looked(monkeypatch, lab, known):
    done: list[object] = []
    monkeypatch.setattr("netbench.testbed.testbed.refresh_driver_counters", done.append)
    machine = Mock(read_nics=Mock(return_value={}))
    bed = Testbed(lab, "run", {None: machine}, {}, stream_paths(lab), profile())
    path = stream_paths(lab)[0]
    bed.setup({}).read_nics([path.sink.place])
    assert done == [{path.sink.netns: [nic.interface for nic in path.nics.values()]} if known else {}]
    machine.read_nics.assert_called_once()


@pytest.mark.parametrize(
    ("in_process", "load", "serves", "protected"),
    [(False, {}, False, {"s1"}), (True, {}, False, set()), (False, {"n": 1}, False, ()), (False, {}, True, ())],
)
def test_a_thread_precedes_the_sink_where_it_delays_nothing_else(monkeypatch, in_process, load, serves, protected):
    protect = Mock()
    monkeypatch.setattr(Rings, "protect", protect)
    lab = topology()
    bed = Testbed(lab, "run", {None: Mock()}, {}, stream_paths(lab), profile())
    monkeypatch.setattr(bed, "_delayed_by_sink", {"s1"})
    victim = ActiveGuest(Mock(), UutPlan(in_process=in_process), Ready({"s1": "02:00:00:00:00:01"}, 0.0))
    bed.setup({VICTIM: victim}, load, serves=serves)
    protect.assert_called_once_with(protected)


@pytest.mark.parametrize("lab", [topology(), topology(3), ports("netns"), ports("local")], ids=lambda lab: lab.name)
def test_every_nic_loses_its_offloads_before_it_comes_up(lab):
    nics = [nic.place for path in stream_paths(lab) for nic in path.nics.values()]
    changes = base_changes(lab)
    is_veth = bool(kinds(lab, AddVeth))  # tags go into the frames of those
    for _, netns, interface in nics:
        off = OffloadsOff(netns, interface, tagging=is_veth)
        assert changes.index(off) < changes.index(SetUp(netns, interface))
    assert len(kinds(lab, OffloadsOff)) == len(kinds(lab, SetUp)) == len(nics)


def test_a_port_is_moved_to_its_namespace_before_it_is_changed():
    changes = base_changes(ports("netns"))
    assert kinds(ports("netns"), MovePort) == [MovePort("eth1", "nb-ports-t"), MovePort("eth2", "nb-ports-t")]
    assert kinds(ports("netns"), AddVeth) == []
    for port in ("eth1", "eth2"):
        order = [change for change in changes if getattr(change, "interface", "") == port]
        assert [type(change) for change in order] == [KeepPort, MovePort, OffloadsOff, SetUp]
    assert [type(change) for change in changes[:2]] == [KeepPort, KeepPort], "before anything is touched"


def test_a_port_of_the_machine_itself_stays_and_loses_ipv6():
    """All of the machine's other interfaces keep theirs."""
    assert [change.command for change in base_changes(ports("local"))] == [
        "ip address show dev eth1",
        "ip address show dev eth2",
        *(
            line
            for port in ("eth1", "eth2")
            for line in (
                f"sysctl -w net.ipv6.conf.{port}.disable_ipv6=1",
                f"ethtool -K {port} gro off gso off tso off lro off",
            )
        ),
        "ip link set dev eth1 up",
        "ip link set dev eth2 up",
    ]


def test_doctor_knows_every_need_of_a_shipped_topology():
    for path in shipped(TOPOLOGIES).values():
        needs = needs_of(load_topology(path, option_models(UUTS)))
        assert {"root", "setpriv"} <= needs
        assert {need for need in needs if not need.startswith(("port:", "image:"))} <= known_needs()


EVERYWHERE = {"root", "packet", "tcpdump", "ip", "ethtool", "taskset", "setpriv"}


def test_what_a_sink_needs_is_needed_where_a_profile_chooses_it(monkeypatch):
    assert "tcpdump" in needs_of(topology())
    monkeypatch.setattr(Tcpdump, "needs", frozenset({"snoop"}))
    assert {"snoop", "tcpdump"} & needs_of(topology(), sink=SinkSpec(kind="tcpdump")) == {"snoop"}


VETHS = {"netns", "veth"}
BRIDGES = VETHS | {"bridge", "bridge-nf"}
NFT = {"nft", "nftables"}
DROPS = {"kind": "reference", "drop": {"k": 1, "n": 2}}
QEMU = BRIDGES | {"tun", qemu_program()}
DISK = {"kind": "qemu", "image": "/my/disk.qcow2"}
KEY = {"kind": "ssh", "key": "/k", "host_key": "ssh-ed25519 AAAA"}


@pytest.mark.parametrize(
    ("uut", "needed"),
    [
        ({"kind": "raw"}, BRIDGES),
        ({"kind": "raw", "forward": "route"}, VETHS | {"forwarding"}),
        ({"kind": "external"}, VETHS),
        (DROPS, BRIDGES | NFT | {"numgen"}),
        ({**DROPS, "forward": "route"}, VETHS | NFT | {"forwarding", "numgen"}),
        ({"kind": "qemu"}, QEMU | {"image:micro"}),
        ({"kind": "qemu", "image": "new", "forward": "route"}, QEMU | {"image:new"}),
        ({"kind": "qemu", "accelerator": "kvm"}, QEMU | {"image:micro", "kvm"}),
        ({"kind": "qemu", "accelerator": "tcg"}, QEMU | {"image:micro"}),
        ({"kind": "qemu", "vhost": "on"}, QEMU | {"image:micro", "vhost"}),
        ({"kind": "qemu", "vhost": "off"}, QEMU | {"image:micro"}),
        ({**DISK, "channel": "guest-agent"}, QEMU),
        ({**DISK, "channel": KEY}, QEMU | {"ssh"}),
    ],
)
def test_what_a_uut_needs(uut, needed):
    assert needs_of(topology(uuts=[{"name": "x", **uut}])) == EVERYWHERE | needed


def test_what_ports_need():
    assert needs_of(ports("netns")) == EVERYWHERE | {"netns", "port:eth1", "port:eth2"}
    assert needs_of(ports("local")) == EVERYWHERE | {"port:eth1", "port:eth2"}


def test_only_the_chosen_uuts_need_something():
    lab = topology(uuts=[{"name": "g", "kind": "qemu"}, {"name": "r", "kind": "raw", "forward": "route"}])
    assert needs_of(lab, ["r"]) == EVERYWHERE | VETHS | {"forwarding"}
    assert needs_of(lab, ["g"]) == EVERYWHERE | QEMU | {"image:micro"}
    assert needs_of(lab, ["g", "r"]) == needs_of(lab)


def test_what_is_in_a_vm_needs_nothing_of_this_machine_but_the_vm():
    vm = {"root", "setpriv", qemu_program()}
    assert needs_of(topology_in_vm()) == vm | {"image:micro"}
    assert needs_of(topology_in_vm(vm={"image": "new", "accelerator": "kvm"})) == vm | {"image:new", "kvm"}


def test_a_vm_beside_a_testbed_of_this_machine():
    lab = topology().model_dump(mode="json", exclude_none=True)
    lab["hosts"]["other"] = {"kind": "vm", "image": "new"}
    both = Topology.model_validate(lab)
    assert needs_of(both) == needs_of(topology()) | {qemu_program(), "image:new"}
    assert base_changes(both) == base_changes(topology())
    assert base_changes(both, "other") == []


def test_what_is_changed_in_a_vm_is_what_would_be_changed_here():
    """Nothing is changed here."""
    assert base_changes(topology_in_vm(3), "lab") == base_changes(topology(3))
    assert base_changes(topology_in_vm(3)) == []
    assert base_changes(topology_in_vm(3), "elsewhere") == []


def test_a_nic_of_the_vm_itself_is_not_in_any_namespace_of_it():
    lab = topology_in_vm().model_dump(mode="json", exclude_none=True)
    text = yaml_text(lab).replace("source/", "lab/")
    changes = base_changes(Topology.model_validate(yaml_value(text)), "lab")
    (first, _) = [change for change in changes if isinstance(change, AddVeth)]
    assert (first.netns, first.interface, first.peer_netns) == (None, "nb-tx1", "nb-lab-uut")
    assert SetSysctl(None, "net.ipv6.conf.nb-tx1.disable_ipv6", "1", True) in changes
    assert SetUp(None, "nb-tx1") in changes


def test_cpus_of_a_vm_are_for_what_is_in_it():
    cpus: dict[str | None, list[int]] = {"lab": [10, 11, 12, 13]}
    found = cpu_plans(stream_paths(topology_in_vm(2)), cpus.__getitem__, cpu_plan)
    assert [(path.name, *pins) for path, pins in found] == [("s1", (10,), (12,)), ("s2", (11,), (13,))]
    found = cpu_plans(stream_paths(topology(2)), lambda machine: [0, 1], cpu_plan)
    assert [pins for _, pins in found] == [((), ())] * 2


@pytest.mark.parametrize(
    ("cpus", "siblings", "servers", "pins"),
    [
        ([0, 1], False, set(), ((0,), (1,))),
        ([0, 1], False, {1}, ((0,), (0,))),
        ([0, 1], False, {0, 1}, ((), ())),  # those of several UUTs
        ([0, 1, 2, 3], False, {3}, ((1,), (0, 1, 2))),
        ([0, 1, 2, 3], True, {3}, ((1,), (0, 1))),
        ([0, 1], True, {1}, ((0,), (0,))),  # on the only core
        ([0, 1, 2, 3], False, set(), ((1,), (3,))),
    ],
)
def test_a_neighbours_source_and_sink_have_cpus_like_the_uuts_and_avoid_the_cores_of_pinned_servers(
    cpus, siblings, servers, pins
):
    paths = stream_paths(topology(2))

    def is_beside(path):
        return path.name == "s2"

    use = CpuCompetition(is_beside, lambda path, usable: servers if is_beside(path) else ())
    own, beside = bound_ends(paths, lambda _: cpus, use, cores_of_two if siblings else alone)
    assert own[1] == (cpu_plan(2, cpus) if len(cpus) > 2 else cpu_plan(1, cpus))[0]
    assert beside[1] == pins


def test_without_a_cpu_for_each_of_a_set_all_links_receive_alike():
    """One stream of the UUT, two of neighbours, two CPUs: a maximum through a ring would be offered without one."""
    use = CpuCompetition(lambda path: path.name != "s1")
    found = cpu_plans(stream_paths(topology(3)), lambda _: [0, 1], receiving_cpus, use)
    assert [pins for _, pins in found] == [(), (), ()]


@pytest.mark.parametrize(
    ("usable", "ends", "server", "neighbours", "client_and_tap"),
    [
        ([0, 1], ((), ()), (), [()], ((), ())),
        ([0, 1], ((0,), (0,)), (1,), [(1,)], ((0,), (0,))),
        ([0, 1], ((0,), (0,)), (1,), [(0,)], ((1,), (1,))),
        ([0, 1], ((0,), (1,)), (1,), [], ((0,), (0,))),
        ([0, 1, 2, 3], ((0,), (1,)), (3,), [(2,)], ((0,), (1,))),
        ([0, 1, 2, 3], ((0,), (1,)), (3,), [(0, 1, 2)], ((0, 1, 2),) * 2),
        ([0, 1, 2, 3], ((0,), (1,)), (3,), [(0, 1), (2,)], ((3,), (3,))),
        ([0, 1, 2, 3], ((), ()), (3,), [(2,)], ((0, 1),) * 2),
    ],
)
def test_a_client_avoids_the_cpus_of_guests_and_shares_its_servers_rather_than_a_busy_one(
    usable, ends, server, neighbours, client_and_tap
):
    assert client_pins(ends, server, neighbours, usable, alone) == client_and_tap


def test_a_client_avoids_the_cores_of_guests_if_others_remain():
    assert client_pins(((1,), (2,)), (3,), [], [0, 1, 2, 3], cores_of_two) == ((1,), (0, 1))
    assert client_pins(((1,), (2,)), (3,), [(1,)], [0, 1, 2, 3], cores_of_two) == ((0, 2), (2,))


def cores_of_two(cpu):
    """The CPUs of a core: 0 and 1, 2 and 3."""
    return frozenset({cpu, cpu ^ 1})


@given(st.integers(1, 12), st.sets(st.integers(0, 255), min_size=1, max_size=40).map(sorted))
def test_no_source_shares_its_cpu_once_there_are_enough(streams, cpus):
    plan = cpu_plan(streams, cpus)
    assert len(plan) == streams
    if len(cpus) <= streams:
        assert plan == [((), ())] * streams
        return
    sources = [source for source, _ in plan]
    assert sources == [(cpu,) for cpu in cpus[:streams]]
    sinks = {cpu for _, sink in plan for cpu in sink}
    assert sinks <= set(cpus[streams:])
    if len(cpus) >= 2 * streams:
        assert len(sinks) == streams, "every sink has a CPU of its own as well"
    else:
        assert {sink for _, sink in plan} == {tuple(cpus[streams:])}


def test_uuts_and_sources_are_made_as_described():
    lab = topology(uuts=[{"name": "a", "kind": "raw"}, {"name": "b", "kind": "reference", "drop": {"k": 1, "n": 2}}])
    raw, reference = map(make_uut, lab.uuts)
    assert (type(raw), type(reference)) == (Raw, Reference)
    generator, _ = make_backends(profile(generator={"kind": "afpacket", "threads": 3}))
    threads = generator.source().commands("nb-tx1", (4, 5))
    assert threads[0].endswith("netbench.generators.afpacket.afpacket_worker nb-tx1 3 4 5")


def test_a_campaign_lacks_what_any_place_lacks_and_keeps_all_places_for_itself():
    """It is not reported hours later, with the first UUT on a VM, and no other campaign takes a place meanwhile."""
    hosts = {
        "lab": {"kind": "vm", "image": "special"},
        **{name: {"kind": "netns"} for name in ("source", "uut", "sink")},
    }
    uuts = ({"name": "here", "kind": "raw"}, {"name": "there", "kind": "raw", "on": "lab"})
    campaign = resolve(topology(1, uuts, hosts=hosts), profile())
    here, there = campaign.on(None), campaign.on("lab")
    assert "image:special" in here.needs
    assert here.needs == there.needs == campaign.needs
    assert (
        here.resources
        == there.resources
        == {f"netns:nb-lab-{name}" for name in hosts if name != "lab"} | {"vm:lab-lab"}
    )
    alone = resolve(topology(1, uuts, hosts=hosts), profile(), ["here"]).on(None)
    assert "image:special" not in alone.needs
    assert "vm:lab-lab" not in alone.resources


def test_a_guest_in_a_vm_is_expected_to_take_longer():
    hosts = {"lab": {"kind": "vm"}, **{name: {"kind": "netns"} for name in ("source", "uut", "sink")}}
    uuts = ({"name": "here", "kind": "qemu"}, {"name": "there", "kind": "qemu", "on": "lab"})
    guests = resolve(topology(1, uuts, hosts=hosts), profile()).guests
    here, there = (guests[name][VICTIM].pace for name in ("here", "there"))
    assert there.bring_up_s > here.bring_up_s
    assert there.trial_s > here.trial_s
