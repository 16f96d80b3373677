"""Changes as data: they survive the journal, say what they do, and know what they will replace."""

import json

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddCgroup,
    AddForwardingEntry,
    AddNamespace,
    AddNeighbour,
    AddRunDirectory,
    AddTable,
    AddTap,
    AddVeth,
    Change,
    Enslave,
    Machine,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
    from_json,
    read_offloads,
    to_json,
)
from tests.unit.fakes import FakeHost

EACH = [
    (AddNamespace("nb-x"), None, "ip netns add nb-x"),
    (
        AddVeth("nb-a", "nb-one", "02:00:00:00:00:01", "nb-b", "nb-two", "02:00:00:00:00:02"),
        "nb-a",
        "ip link add nb-one netns nb-a address 02:00:00:00:00:01 type veth "
        "peer nb-two netns nb-b address 02:00:00:00:00:02",
    ),
    (
        AddVeth(None, "nb-one", "02:00:00:00:00:01", None, "nb-two", "02:00:00:00:00:02"),
        None,
        "ip link add nb-one address 02:00:00:00:00:01 type veth peer nb-two address 02:00:00:00:00:02",
    ),
    (
        AddBridge("nb-a", "nb-br"),
        "nb-a",
        "ip -n nb-a link add nb-br type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
    ),
    (
        MovePort("eth1", "nb-a", was_up=True, addresses=("192.0.2.7/24", "2001:db8::7/64")),
        None,
        "ip link set eth1 netns nb-a",
    ),
    (SetUp("nb-a", "eth1", was_up=False), "nb-a", "ip -n nb-a link set eth1 up"),
    (SetUp(None, "eth1"), None, "ip link set eth1 up"),
    (Enslave("nb-a", "eth1", "nb-br"), "nb-a", "ip -n nb-a link set eth1 master nb-br"),
    (
        AddAddress("nb-a", "eth1", "198.18.1.1", 24),
        "nb-a",
        "ip -n nb-a address add 198.18.1.1/24 dev eth1",
    ),
    (
        AddNeighbour(None, "eth1", "198.19.1.2", "02:00:00:00:00:01"),
        None,
        "ip neigh replace 198.19.1.2 lladdr 02:00:00:00:00:01 dev eth1 nud permanent",
    ),
    (
        AddForwardingEntry("nb-a", "eth1", "02:00:00:00:00:01"),
        "nb-a",
        "bridge -n nb-a fdb replace 02:00:00:00:00:01 dev eth1 master static",
    ),
    (
        AddForwardingEntry(None, "eth1", "02:00:00:00:00:01"),
        None,
        "bridge fdb replace 02:00:00:00:00:01 dev eth1 master static",
    ),
    (
        SetSysctl("nb-a", "net.ipv4.ip_forward", "1", old="0"),
        "nb-a",
        "ip netns exec nb-a sysctl -w net.ipv4.ip_forward=1",
    ),
    (SetSysctl(None, "net.ipv4.ip_forward", "1", True), None, "sysctl -w net.ipv4.ip_forward=1"),
    (
        OffloadsOff("nb-a", "eth1", old=("gro", "tso")),
        "nb-a",
        "ip netns exec nb-a ethtool -K eth1 gro off gso off tso off lro off",
    ),
    (OffloadsOff(None, "eth1"), None, "ethtool -K eth1 gro off gso off tso off lro off"),
    (
        AddTable("nb-a", "bridge", "netbench", "add table bridge netbench\n"),
        "nb-a",
        "ip netns exec nb-a nft -f - <<'END'\nadd table bridge netbench\nEND",
    ),
]

EACH += [
    (AddTap("nb-a", "nb-t"), "nb-a", "ip netns exec nb-a ip tuntap add dev nb-t mode tap vnet_hdr"),
    (AddTap(None, "nb-t", 2), None, "ip tuntap add dev nb-t mode tap vnet_hdr multi_queue"),
    (AddRunDirectory("/run/netbench/vm/x"), None, "mkdir -p -m 700 /run/netbench/vm/x"),
    (AddCgroup(None, "nb-x"), None, "mkdir /sys/fs/cgroup/nb-x"),
    (
        AddCgroup(None, "nb-x", limit=0.2, directory="/sys/fs/cgroup/cpu", version=1),
        None,
        "mkdir /sys/fs/cgroup/cpu/nb-x && echo 100000 >/sys/fs/cgroup/cpu/nb-x/cpu.cfs_period_us"
        " && echo 20000 >/sys/fs/cgroup/cpu/nb-x/cpu.cfs_quota_us",
    ),
]

OFFLOADS = """Features for eth1:
rx-checksumming: on
tcp-segmentation-offload: on
\ttx-tcp-segmentation: on
generic-segmentation-offload: {gso}
generic-receive-offload: on
large-receive-offload: {lro}
"""


def machine(host=None, netlink=None) -> Machine:
    """Only what the change under test needs."""
    return Machine(netlink, {None: host or FakeHost()})


def ethtool(gso="off", lro="off [fixed]", exit_code=0) -> FakeHost:
    return FakeHost({"ethtool": Completed((), exit_code, OFFLOADS.format(gso=gso, lro=lro), "bad device")})


def descendants(kind):
    for child in kind.__subclasses__():
        if child.__module__ == Change.__module__:
            yield child
            yield from descendants(child)


@pytest.mark.parametrize("change", [change for change, _, _ in EACH], ids=lambda change: type(change).__name__)
def test_a_change_survives_the_journal(change):
    assert from_json(json.loads(json.dumps(to_json(change)))) == change


def test_every_kind_of_change_can_be_read_back():
    kinds = {kind.__name__ for kind in descendants(Change)} - {"InNamespace", "ByCommand"}
    assert {type(change).__name__ for change, _, _ in EACH} >= kinds


@pytest.mark.parametrize(("change", "inside", "command"), EACH, ids=lambda value: type(value).__name__)
def test_a_change_says_where_it_lives_and_what_it_does(change, inside, command):
    assert (change.inside, change.command) == (inside, command)


def test_an_unknown_change_is_refused():
    with pytest.raises(KeyError):
        from_json({"change": "Format", "disk": "sda"})
    with pytest.raises(TypeError):
        from_json({"change": "AddNamespace", "nam": "x"})


def test_a_sysctl_is_put_back_to_what_was_found():
    host = FakeHost(files={"/proc/sys/net/ipv4/ip_forward": "0\n"})
    change = SetSysctl(None, "net.ipv4.ip_forward", "1").as_found(machine(host))
    assert change.old == "0"
    assert host.files == {"/proc/sys/net/ipv4/ip_forward": "0\n"}
    change.make(machine(host))
    assert host.files == {"/proc/sys/net/ipv4/ip_forward": "1"}
    change.undo(machine(host))
    assert host.files == {"/proc/sys/net/ipv4/ip_forward": "0"}


def test_a_sysctl_that_is_right_already_is_not_written(monkeypatch):
    host = FakeHost(files={"/proc/sys/net/ipv4/ip_forward": "1\n"})
    monkeypatch.setattr(host, "write", lambda path, text: pytest.fail(f"{text} written to {path}"))
    change = SetSysctl(None, "net.ipv4.ip_forward", "1").as_found(machine(host))
    change.make(machine(host))
    change.undo(machine(host))


def test_a_sysctl_that_does_not_exist():
    change = SetSysctl(None, "net.bridge.bridge-nf-call-iptables", "0", optional=True).as_found(machine())
    change.make(machine())
    change.undo(machine())
    with pytest.raises(TestbedError, match="/proc/sys/net/bridge/bridge-nf-call-iptables cannot be read"):
        SetSysctl(None, "net.bridge.bridge-nf-call-iptables", "0").as_found(machine())


def test_only_the_offloads_found_on_are_switched_off_and_on_again():
    host = ethtool()
    change = OffloadsOff(None, "eth1").as_found(machine(host))
    assert change.old == ("gro", "tso")
    change.undo(machine(host, FakeLinks()))
    assert host.commands[-1] == ("ethtool", "-K", "eth1", "gro", "on", "tso", "on")


def test_offloads_that_are_off_are_left_alone():
    host = FakeHost({"ethtool": Completed((), 0, OFFLOADS.format(gso="off", lro="off").replace(": on", ": off"), "")})
    change = OffloadsOff(None, "eth1").as_found(machine(host))
    change.make(machine(host))
    change.undo(machine(host))
    assert change.old == ()
    assert [command for command in host.commands if "-K" in command] == []


def test_an_offload_that_stays_on_is_an_error():
    """The fake answers `on` whatever was set."""
    host = ethtool(gso="on [fixed]")
    with pytest.raises(TestbedError, match="eth1: gro, gso, tso cannot be switched off"):
        OffloadsOff(None, "eth1", old=("gro", "tso")).make(machine(host))
    assert host.commands[0] == ("ethtool", "-K", "eth1", "gro", "off", "tso", "off")


def test_an_offload_that_cannot_be_switched_off_at_all_is_an_error_too():
    """LRO that a driver has on for good merges frames just as well when nothing else is on."""
    text = "\n".join(
        f"{name}: {state}"
        for name, state in (
            ("tcp-segmentation-offload", "off"),
            ("generic-segmentation-offload", "off"),
            ("generic-receive-offload", "off"),
            ("large-receive-offload", "on [fixed]"),
        )
    )
    host = FakeHost({"ethtool": Completed((), 0, text, "")})
    with pytest.raises(TestbedError, match="lro cannot be switched off"):
        OffloadsOff(None, "eth1").as_found(machine(host)).make(machine(host))


def test_offloads_as_ethtool_tells_them():
    assert read_offloads(ethtool(), "eth1") == {"gro": "on", "gso": "off", "tso": "on", "lro": "off [fixed]"}
    with pytest.raises(TestbedError, match="`ethtool -k eth1` failed with exit code 75"):
        read_offloads(ethtool(exit_code=75), "eth1")


class Address(dict):
    """An address as pyroute2 tells it."""

    def __init__(self, text):
        self._plain, _, length = text.partition("/")
        super().__init__(prefixlen=int(length), scope=253 if text.startswith("fe80") else 0)

    def get_attr(self, name):
        return {"IFA_ADDRESS": self._plain}[name]


class FakeLinks:
    """Netlink as far as links go: the interfaces that are there, and what was asked of them."""

    def __init__(self, up=(), error=0, routes=0):
        self.asked: list[tuple[str, dict]] = []
        self._up = up
        self._error = error
        self._routes = routes

    def socket(self, netns):
        return self

    def index(self, netns, interface):
        if interface == "gone":
            raise TestbedError(f"there is no interface {interface}")
        return 7

    def has(self, netns, interface):
        return interface not in ("gone", "new")

    def get_routes(self, oif):
        return [{"proto": 2}, *({"proto": 3} for _ in range(self._routes))]

    def get_neighbours(self, ifindex, family=0):
        return [{"state": 2}]

    def get_links(self, index):
        return [{"flags": 0x1043 if index in self._up else 0x1042}]

    def get_addr(self, index):
        return [Address(text) for text in ("192.0.2.7/24", "fe80::7/64")]

    def link(self, verb, **settings):
        self.asked.append((verb, settings))
        if self._error:
            raise NetlinkError(self._error, "no")

    addr = neigh = link

    def forget(self, netns):
        self.asked.append(("forget", {"netns": netns}))


@pytest.mark.parametrize(("up", "undone"), [((7,), []), ((), [("set", {"index": 7, "state": "down"})])])
def test_an_interface_is_left_up_that_was_up(up, undone):
    links = FakeLinks(up)
    change = SetUp(None, "eth1").as_found(machine(netlink=links))
    assert change.was_up is bool(up)
    change.undo(machine(netlink=links))
    assert links.asked == undone


TOLERANT = [
    AddVeth(None, "gone", "", None, "peer", ""),
    AddBridge(None, "gone"),
    AddTap(None, "gone"),
    AddRunDirectory("/run/netbench/vm/gone"),
    Enslave(None, "gone", "nb-br"),
    SetUp(None, "gone", was_up=False),
    AddAddress(None, "gone", "198.18.1.1", 24),
    AddNeighbour(None, "gone", "198.19.1.2", ""),
    AddForwardingEntry(None, "gone", ""),
    MovePort("gone", "nb-was-never-made", was_up=True, addresses=("192.0.2.7/24",)),
    SetSysctl(None, "net.ipv6.conf.gone.disable_ipv6", "1", old="0"),
    OffloadsOff(None, "gone", old=("gro",)),
]


@pytest.mark.parametrize("change", TOLERANT, ids=lambda change: type(change).__name__)
def test_undoing_what_is_not_there_is_harmless(change):
    no_device = FakeHost({"ethtool": Completed((), 75, "", "netlink error: no device matches name")})
    change.undo(machine(no_device, FakeLinks()))


@pytest.mark.parametrize("code", [19, 2, 3, 99])
def test_an_address_that_has_gone_meanwhile_is_undone(code):
    AddAddress(None, "eth1", "198.18.1.1", 24).undo(machine(netlink=FakeLinks(error=code)))


def test_an_undo_that_the_kernel_refuses_is_not_hidden():
    with pytest.raises(NetlinkError):
        AddAddress(None, "eth1", "198.18.1.1", 24).undo(machine(netlink=FakeLinks(error=1)))


def test_a_namespace_that_was_never_made_is_undone_already():
    links = FakeLinks()
    AddNamespace("nb-was-never-made").undo(machine(netlink=links))
    assert links.asked == [("forget", {"netns": "nb-was-never-made"})]


def test_a_lent_port_comes_back_as_it_was_found():
    """Up and with its addresses, but for the link-local one, which the kernel makes anew."""
    links = FakeLinks(up=(7,))
    change = MovePort("eth1", "nb-was-never-made").as_found(machine(netlink=links))
    assert (change.was_up, change.addresses) == (True, ("192.0.2.7/24",))
    change.undo(machine(netlink=links))
    assert links.asked == [
        ("set", {"index": 7, "state": "up"}),
        ("replace", {"index": 7, "address": "192.0.2.7", "prefixlen": 24}),
    ]


def test_a_port_with_static_routes_is_not_lent():
    """They would be gone when it comes back; those that go with an address come with it again."""
    with pytest.raises(UsageError, match="port eth1 has 2 static routes or neighbours"):
        MovePort("eth1", "nb-was-never-made").as_found(machine(netlink=FakeLinks(routes=2)))


@pytest.mark.parametrize(
    "change",
    [
        AddVeth(None, "eth1", "", None, "new", ""),
        AddVeth(None, "new", "", None, "eth1", ""),
        AddTap(None, "eth1"),
        AddAddress(None, "eth1", "192.0.2.7", 24),
        AddTable(None, "bridge", "netbench", ""),
    ],
    ids=["veth", "peer", "tap", "address", "table"],
)
def test_what_is_there_already_is_not_taken_for_netbenchs_own(change):
    """It would be removed in the end."""
    host = FakeHost({"nft": Completed((), 0, "table bridge netbench {}", "")})
    with pytest.raises(TestbedError, match="is there already and not netbench's"):
        change.as_found(machine(host, FakeLinks()))


def test_a_lent_port_that_was_down_stays_down():
    links = FakeLinks()
    MovePort("eth1", "nb-was-never-made").undo(machine(netlink=links))
    assert links.asked == []
