"""Changes as data: they survive the journal, say what they do, and know what they will replace."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddCgroup,
    AddDelay,
    AddForwardingEntry,
    AddNamespace,
    AddNeighbour,
    AddRunDirectory,
    AddTable,
    AddTap,
    AddVeth,
    Change,
    Enslave,
    Look,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.linux.journal import from_json, to_json
from tests.unit.fakes import FakeHost

MAC, PEER = "02:00:00:00:00:01", "02:00:00:00:00:02"
CPU = "/sys/fs/cgroup/cpu/nb-x"
EACH = {
    AddNamespace("nb-x"): "ip netns add nb-x",
    AddVeth("nb-a", "nb-one", MAC, "nb-b", "nb-two", PEER): (
        f"ip link add nb-one netns nb-a address {MAC} type veth peer nb-two netns nb-b address {PEER}"
    ),
    AddVeth(None, "nb-one", MAC, None, "nb-two", PEER): (
        f"ip link add nb-one address {MAC} type veth peer nb-two address {PEER}"
    ),
    AddBridge("nb-a", "br"): "ip -n nb-a link add br type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
    MovePort("eth1", "nb-b", was_up=True, addresses=("192.0.2.7/24", "2001:db8::7/64")): "ip link set eth1 netns nb-b",
    SetUp("nb-a", "eth1", was_up=False): "ip -n nb-a link set eth1 up",
    SetUp(None, "eth1"): "ip link set eth1 up",
    Enslave("nb-a", "eth1", "nb-br"): "ip -n nb-a link set eth1 master nb-br",
    AddAddress("nb-a", "eth1", "198.18.1.1", 24): "ip -n nb-a address add 198.18.1.1/24 dev eth1",
    AddNeighbour(None, "eth1", "198.19.1.2", MAC): f"ip neigh replace 198.19.1.2 lladdr {MAC} dev eth1 nud permanent",
    AddForwardingEntry("nb-a", "eth1", MAC): f"bridge -n nb-a fdb replace {MAC} dev eth1 master static",
    AddForwardingEntry(None, "eth1", MAC): f"bridge fdb replace {MAC} dev eth1 master static",
    SetSysctl("nb-a", "net.ipv4.ip_forward", "1", old="0"): "ip netns exec nb-a sysctl -w net.ipv4.ip_forward=1",
    SetSysctl(None, "net.ipv4.ip_forward", "1", True): "sysctl -w net.ipv4.ip_forward=1",
    OffloadsOff("nb-a", "eth1", old=("gro",)): "ip netns exec nb-a ethtool -K eth1 gro off gso off tso off lro off",
    OffloadsOff(None, "eth1"): "ethtool -K eth1 gro off gso off tso off lro off",
    AddTable("nb-a", "ip", "x", "add table ip x\n"): "ip netns exec nb-a nft -f - <<'END'\nadd table ip x\nEND",
    AddDelay("nb-a", "nb-t", 500): "tc -n nb-a qdisc add dev nb-t root netem delay 500us limit 100000",
    AddTap("nb-a", "nb-t"): "ip -n nb-a tuntap add dev nb-t mode tap vnet_hdr",
    AddTap(None, "nb-t", 2): "ip tuntap add dev nb-t mode tap vnet_hdr multi_queue",
    AddRunDirectory("/run/netbench/vm/x"): "mkdir -p -m 700 /run/netbench/vm/x",
    AddCgroup(None, "nb-x"): "mkdir /sys/fs/cgroup/nb-x",
    AddCgroup(None, "nb-x", limit=0.2, directory="/sys/fs/cgroup/cpu", version=1): (
        f"mkdir {CPU} && echo 100000 >{CPU}/cpu.cfs_period_us && echo 20000 >{CPU}/cpu.cfs_quota_us"
    ),
}

OFFLOADS = """Features for eth1:
rx-checksumming: on
tcp-segmentation-offload: {tso}
\ttx-tcp-segmentation: on
generic-segmentation-offload: {gso}
generic-receive-offload: {gro}
large-receive-offload: {lro}
"""


def ethtool(tso="off", gso="off", gro="off", lro="off [fixed]") -> FakeHost:
    return FakeHost({"ethtool": Completed((), 0, OFFLOADS.format(tso=tso, gso=gso, gro=gro, lro=lro), "")})


def kinds(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("netbench."):
            yield child
            yield from kinds(child)


@pytest.mark.parametrize(("change", "command"), EACH.items(), ids=lambda value: type(value).__name__)
def test_a_change_says_where_it_lives_and_what_it_does_and_survives_the_journal(change, command):
    assert change.command == command
    assert change.inside == ("nb-a" if "nb-a" in command else None)
    assert from_json(json.loads(json.dumps(to_json(change)))) == change


def test_every_kind_of_change_can_be_read_back():
    of_no_kind = {"InNamespace", "Request", "RequestInNamespace"}
    assert {type(change).__name__ for change in EACH} == {kind.__name__ for kind in kinds(Change)} - of_no_kind


def test_an_unknown_change_is_refused():
    with pytest.raises(KeyError):
        from_json({"change": "Format", "disk": "sda"})
    with pytest.raises(TypeError):
        from_json({"change": "AddNamespace", "nam": "x"})


@pytest.mark.parametrize(("found", "written"), [("0", [("1"), ("0")]), ("1", [])])
def test_a_sysctl_is_put_back_to_what_was_found_and_not_written_where_it_is_right(monkeypatch, found, written):
    path = "/proc/sys/net/ipv4/ip_forward"
    host, told = FakeHost(files={path: f"{found}\n"}), []
    monkeypatch.setattr(host, "write", lambda there, text: told.append((there, text)))
    change = SetSysctl(None, "net.ipv4.ip_forward", "1").found(Look(host))
    assert (change.old, told) == (found, [])
    change.make(host)
    change.undo(host)
    assert told == [(path, text) for text in written]


def test_a_sysctl_that_does_not_exist():
    change = SetSysctl(None, "net.bridge.bridge-nf-call-iptables", "0", optional=True).found(Look(FakeHost()))
    change.make(FakeHost())
    change.undo(FakeHost())
    with pytest.raises(TestbedError, match="/proc/sys/net/bridge/bridge-nf-call-iptables cannot be read"):
        replace(change, optional=False).found(Look(FakeHost()))


@pytest.mark.parametrize(
    ("states", "found", "told", "fails"),
    [
        ({}, (), [], ""),
        # The fake answers `on` whatever was set.
        (
            {"tso": "on", "gro": "on"},
            ("gro", "tso"),
            ["gro", "off", "tso", "off"],
            "eth1: gro, tso cannot be switched off",
        ),
        ({"gso": "on [fixed]"}, (), [], "gso cannot be switched off; frames would be merged or split"),
        ({"lro": "on [fixed]"}, (), [], "lro cannot be switched off"),
    ],
)
def test_offloads_found_on_are_switched_off_and_on_again(states, found, told, fails):
    """One that a driver has on for good merges frames just as well when nothing else is on."""
    host = ethtool(**states)
    change = OffloadsOff(None, "eth1").found(Look(host))
    assert change.old == found
    with pytest.raises(TestbedError, match=fails) if fails else nullcontext():
        change.make(host)
    change.undo(host)
    set_ = [list(command[3:]) for command in host.commands if "-K" in command]
    assert set_ == ([told, ["on" if word == "off" else word for word in told]] if told else [])


@pytest.mark.parametrize(
    "change",
    [
        AddRunDirectory("/run/netbench/vm/gone"),
        MovePort("gone", "nb-was-never-made", was_up=True, addresses=("192.0.2.7/24",)),
        SetSysctl(None, "net.ipv6.conf.gone.disable_ipv6", "1", old="0"),
        OffloadsOff(None, "gone", old=("gro",)),
    ],
    ids=lambda change: type(change).__name__,
)
def test_undoing_what_is_not_there_is_harmless(change):
    no_device = Completed((), 1, "", 'Cannot find device "gone"')
    answers = {
        "ethtool": Completed((), 75, "", "netlink error: no device matches name"),
        "rm": Completed((), 0, "", ""),
    }
    change.undo(FakeHost({"ip": no_device, "sh": no_device, **answers}))


def test_an_undo_that_the_kernel_refuses_is_not_hidden():
    port, refused = MovePort("eth1", "nb-x", was_up=True), Completed((), 1, "", "Operation not permitted")
    for answers in ({"sh": refused}, {"sh": Completed((), 0, "", ""), "ip": refused}):
        with pytest.raises(TestbedError, match="Operation not permitted"):
            port.undo(FakeHost(answers))


def test_a_port_with_static_routes_is_not_lent():
    """They would be gone when it comes back; those that go with an address come with it again."""

    class Port(FakeHost):
        def run(self, argv, *, stdin="", timeout_s=30.0):
            listed: list[dict[str, object]] = [{"ifname": "eth1", "flags": [], "addr_info": []}]
            if "route" in argv:
                listed = [{"dst": "192.0.2.0/24", "protocol": "kernel"}, {"dst": "198.51.100.0/24"}]
            elif "neigh" in argv:
                listed = []
            return Completed(tuple(argv), 0, json.dumps(listed), "")

    with pytest.raises(UsageError, match="port eth1 has 2 static routes or neighbours"):
        MovePort("eth1", "nb-x").found(Look(Port()))
