"""A machine that is changed and counted by commands: the commands, their places and order, and the record."""

import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddForwardingEntry,
    AddNamespace,
    AddNeighbour,
    AddTable,
    AddTap,
    AddVeth,
    Change,
    Enslave,
    KeepPort,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.linux.changes.base import ChangeRecord
from netbench.linux.counters.netlink_counters import nics_of
from netbench.linux.machine import Machine
from netbench.linux.netlink import Link, attribute
from netbench.linux.recovery_journal import Journal
from netbench.model.paths import InterfaceRef
from netbench.model.points import CountingPoint, PointKind
from netbench.model.stream_paths import stream_paths
from netbench.testbed.bring_up import base_changes
from netbench.uut.forwarding import forwarding_changes
from tests.unit.fakes import FakeHost
from tests.unit.inputs import topology_in_vm

OFF = "".join(
    f"{name}: off\n"
    for name in (
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
        "large-receive-offload",
    )
)


class Guest(FakeHost):
    """A Linux whose commands succeed unless a test fails them; `log` has those that change it, one per line."""

    def __init__(self, **answers: Completed) -> None:
        super().__init__(
            files={
                "/proc/uptime": "1000.00 10.00\n",
                "/proc/sys/net/ipv4/ip_forward": "0\n",
                "/proc/sys/net/ipv4/conf/all/rp_filter": "1\n",
                "/proc/sys/net/ipv4/conf/all/send_redirects": "1\n",
                "/proc/sys/net/ipv6/conf/all/disable_ipv6": "0\n",
            }
        )
        self.log: list[str] = []
        self.failing: dict[str, str] = {}  # parts of lines that fail, with their messages
        self.there: list[dict[str, object]] = []  # interfaces, as `ip -j address` lists them
        self.answers = {"ethtool": Completed((), 0, OFF, ""), **answers}
        self.machine = Machine("lab", self)

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        inside = tuple(argv[4:]) if argv[:3] == ["ip", "netns", "exec"] else tuple(argv)
        if "-batch" in argv:
            return self._batch(argv, stdin)
        if "-j" in argv and "address" in argv:
            return Completed((), 0, json.dumps(self.there), "")
        if inside[0] == "cat":
            text = self.files.get(inside[1])
            return Completed((), int(text is None), text or "", "No such file or directory")
        if inside[0] == "dd":
            self.files[inside[1].removeprefix("of=")] = stdin
            self.log.append(f"{argv[3]}: {stdin} > {inside[1].removeprefix('of=')}")
        elif not {"-k", "list", "ls", "-j", "show", "grep"} & set(argv):
            self.log.append(" ".join(argv))
        for piece, words in self.failing.items():
            if piece in " ".join(argv):
                return Completed((), 2, "", words)
        return self.answers.get(inside[0], Completed((), 0, "", ""))

    def _batch(self, argv, stdin):
        tool = " ".join(word for word in argv if word not in ("-batch", "-", "-force"))
        errors = ""
        for number, line in enumerate(stdin.splitlines(), start=1):
            self.log.append(f"{tool} {line}")
            for piece, words in self.failing.items():
                if piece in line:
                    errors += f"RTNETLINK answers: {words}\nCommand failed -:{number}\n"
            if errors and "-force" not in argv:
                break
        return Completed((), int(bool(errors)), "", errors)


IN = "nb-lab-uut"
BRIDGE = "ip -n nb-lab-uut link add nb-br type bridge stp_state 0 mcast_snooping 0 forward_delay 0"
EACH = [
    AddNamespace(IN),
    AddVeth("nb-a", "nb-one", "02:00:00:00:00:01", None, "nb-two", "02:00:00:00:00:02"),
    AddBridge(IN, "nb-br"),
    Enslave(IN, "nb-in1", "nb-br"),
    AddForwardingEntry(IN, "nb-in1", "02:00:00:00:00:01"),
    SetUp(None, "nb-br", was_up=False),
    AddAddress(IN, "nb-in1", "198.18.1.1", 24),
    AddNeighbour(IN, "nb-in1", "198.19.1.2", "02:00:00:00:00:01"),
]


@pytest.fixture
def guest():
    guest = Guest()
    guest.there = [{"ifname": "nb-br-outside", "flags": []}]
    return guest


def test_changes_are_made_in_order_and_taken_back_last_first(guest):
    guest.machine.make(EACH)
    assert guest.log == [change.command for change in EACH]
    assert guest.machine.point == len(EACH)
    guest.log.clear()
    assert guest.machine.undo(to=1) == []
    assert guest.log == [
        "ip -n nb-lab-uut neigh del 198.19.1.2 dev nb-in1",
        "ip -n nb-lab-uut address del 198.18.1.1/24 dev nb-in1",
        "ip -n nb-lab-uut link set dev nb-in1 nomaster",
        "ip -n nb-lab-uut link del nb-br",
        "ip -n nb-a link del nb-one",
    ]
    guest.log.clear()
    assert guest.machine.undo() == []
    assert guest.log == ["ip netns del nb-lab-uut"]
    assert guest.machine.undo() == []
    assert guest.machine.point == 0


def test_those_of_one_tool_in_one_namespace_are_one_command(guest):
    guest.machine.make([AddBridge(IN, "nb-br"), SetUp(IN, "nb-br"), Enslave(IN, "nb-in1", "nb-br"), SetUp(None, "x")])
    asked = [command for command in guest.commands if "-batch" in command]
    assert asked == [("ip", "-n", IN, "-batch", "-"), ("ip", "-batch", "-")]


def test_what_is_no_request_is_made_in_its_namespace_and_taken_back(guest):
    guest.failing = {"nft list": "No such file or directory"}
    settings = [SetSysctl(IN, "net.ipv4.ip_forward", "1"), SetSysctl(IN, "net.bridge.x", "0", optional=True)]
    guest.machine.make([*settings, AddTable(IN, "bridge", "netbench", "add table bridge netbench\n")])
    table = "ip netns exec nb-lab-uut nft -f -"
    assert guest.log == ["nb-lab-uut: 1 > /proc/sys/net/ipv4/ip_forward", table]
    guest.log.clear()
    assert guest.machine.undo() == []
    assert guest.log == [table, "nb-lab-uut: 0 > /proc/sys/net/ipv4/ip_forward"]


@pytest.mark.parametrize(("words", "left"), [("Operation not supported", 3), ("File exists", 2)])
def test_a_change_that_fails_is_named_with_the_words_of_the_machine_and_nothing_after_it_is_tried(guest, words, left):
    """It may be half made, unless another program made it just then; the next change of its command is not made."""
    guest.failing = {"type bridge": words}
    with pytest.raises(TestbedError) as caught:
        guest.machine.make(EACH)
    assert str(caught.value) == f"`{BRIDGE}` failed: {words}"
    assert guest.log[-1] == BRIDGE
    assert guest.machine.point == left


@pytest.mark.parametrize(
    "change",
    [
        AddNamespace("nb-x"),
        AddVeth(None, "eth1", "", None, "new", ""),
        AddVeth(None, "new", "", None, "eth1", ""),
        AddTap(None, "eth1"),
        AddBridge(None, "eth1"),
        AddAddress(None, "eth1", "192.0.2.7", 24),
        AddNeighbour(None, "eth1", "192.0.2.8", ""),
        AddTable(None, "bridge", "netbench", ""),
    ],
    ids=["namespace", "veth", "peer", "tap", "bridge", "address", "neighbour", "table"],
)
def test_what_is_there_already_is_not_taken_for_netbenchs_own(guest, change):
    """It would be removed in the end."""
    guest.there = [{"ifname": "eth1", "flags": ["UP"], "addr_info": [{"local": "192.0.2.7"}]}]
    guest.answers["ls"] = Completed((), 0, "nb-x\n", "")
    guest.answers["ip"] = Completed((), 0, json.dumps([{"dst": "192.0.2.8", "dev": "eth1"}]), "")
    with pytest.raises(TestbedError, match="exists already and is not netbench's"):
        guest.machine.make([change])
    assert (guest.log, guest.machine.point) == ([], 0)


@pytest.mark.parametrize(("flags", "undone"), [(["UP"], []), ([], ["ip link set dev eth1 down"])])
def test_an_interface_is_left_up_that_was_up(guest, flags, undone):
    guest.there = [{"ifname": "eth1", "flags": flags}]
    guest.machine.make([SetUp(None, "eth1")])
    guest.log.clear()
    assert guest.machine.undo() == []
    assert guest.log == undone


def test_what_cannot_be_taken_back_is_reported_and_the_rest_is_taken_back(guest):
    guest.machine.make(EACH[1:])
    guest.failing = {"link del": "Device or resource busy"}
    failures = guest.machine.undo()
    assert failures == [
        f"`{BRIDGE}` could not be undone: Device or resource busy",
        f"`{EACH[1].command}` could not be undone: Device or resource busy",
    ]
    assert guest.machine.point == 2, "to be tried again"


@pytest.mark.parametrize(
    "words",
    [
        'Cannot find device "nb-in1"',
        "No such process",
        "No such file or directory",
        "Cannot assign requested address",
        "No such device",
        'Cannot open network namespace "nb-lab-uut": No such file or directory',
    ],
)
def test_what_has_gone_meanwhile_is_undone(guest, words):
    guest.machine.make(EACH[2:])
    if words.startswith("Cannot open"):  # nothing is even begun
        guest._batch = lambda argv, stdin: Completed((), 1, "", f"{words}\n")
    guest.failing = {"": words}
    assert guest.machine.undo() == []
    assert guest.machine.point == 0


def test_what_lives_in_a_namespace_goes_with_it(guest):
    """Undoing it one by one would take as long as making it did."""
    guest.machine.make([AddNamespace("nb-x"), SetSysctl("nb-x", "net.ipv4.ip_forward", "1"), SetUp("nb-x", "eth1")])
    guest.log.clear()
    assert guest.machine.undo() == []
    assert guest.log == ["ip netns del nb-x"]


@pytest.mark.parametrize("code", [-2, -9, 130, 137])
def test_a_killed_command_may_have_made_each_of_its_changes(guest, code):
    """They stay on record, so that each is undone; one that is missing is undone already."""
    run = guest._batch
    guest._batch = lambda argv, stdin: Completed((), code, "", "")
    with pytest.raises(TestbedError, match="`ip -batch -` was killed and may have made only some"):
        guest.machine.make([SetUp(None, "eth1", was_up=False), AddNamespace("nb-x")])
    assert guest.machine.point == 2
    assert len(guest.machine.undo()) == 2
    assert guest.machine.point == 2
    guest._batch = run
    assert guest.machine.undo() == []
    assert guest.log == ["ip netns del nb-x"]


def test_what_was_killed_while_it_undid_changes_is_tried_again(guest):
    guest.machine.make([AddNamespace("nb-x")])
    run, killed = guest._batch, iter([Completed((), -15, "", "")])
    guest._batch = lambda argv, stdin: next(killed, None) or run(argv, stdin)
    assert guest.machine.undo() == []
    assert guest.machine.point == 0


@pytest.mark.parametrize(
    "words", ["File exists", "Operation not permitted", ""], ids=["name taken", "refused", "killed"]
)
def test_a_namespace_is_not_removed_as_long_as_a_lent_port_is_in_it(guest, words):
    """The port would vanish with it, and its settings at home would never be restored."""
    port = {"ifname": "eth1", "ifindex": 7, "flags": ["UP"], "addr_info": []}
    guest.there = [port]
    changes = [AddNamespace("nb-x"), KeepPort("eth1", lent=True), MovePort("eth1", "nb-x"), SetUp("nb-x", "eth1")]
    guest.machine.make(changes)
    guest.log.clear()
    sent_home = guest.answers.get("sh")
    guest.answers["sh"] = Completed((), 2 if words else -2, "", words)
    moved, found, namespace = guest.machine.undo()
    assert moved == f"`ip link set dev eth1 netns nb-x` could not be undone: {words or '`ip` ended with exit code -2'}"
    for failure in (found, namespace):
        assert failure.endswith("it waits for the port eth1, which is still in the network namespace nb-x")
    assert "ip netns del nb-x" not in guest.log
    guest.answers["sh"] = sent_home or Completed((), 0, "", "")
    assert guest.machine.undo() == []
    assert guest.log[-1] == "ip netns del nb-x"
    assert guest.machine.point == 0


class Broken(KeepPort):
    """A change with a defect."""

    __slots__ = ()

    def undo(self, host):
        raise IndexError("list index out of range")


def test_a_defect_in_one_change_does_not_keep_the_others_from_being_undone(guest):
    guest.there = [{"ifname": "eth1", "ifindex": 7, "flags": ["UP"], "addr_info": []}]
    guest.machine.make([AddNamespace("nb-x"), Broken("eth1", lent=False)])
    guest.log.clear()
    (failure,) = guest.machine.undo()
    assert "IndexError('list index out of range')" in failure
    assert guest.log == ["ip netns del nb-x"]


PORT = [
    {
        "ifname": "eth1",
        "ifindex": 7,
        "flags": ["UP"],
        "addr_info": [
            {
                "family": "inet",
                "local": "192.0.2.7",
                "prefixlen": 24,
                "scope": "global",
                "valid_life_time": 2**32 - 1,
                "preferred_life_time": 2**32 - 1,
            },
        ],
    }
]


def test_a_lent_port_comes_back_as_it_was_found(guest):
    """It comes back before its namespace goes: up, with its offloads and its addresses."""
    guest.there = PORT
    guest.machine.make([KeepPort("eth1", lent=True), AddNamespace("nb-x"), MovePort("eth1", "nb-x")])
    guest.machine._record.record(OffloadsOff("nb-x", "eth1", old=("gro on",)))
    guest.there = [{**PORT[0], "flags": [], "addr_info": []}]
    guest.answers["ethtool"] = Completed((), 0, OFF, "")
    guest.log.clear()
    assert guest.machine.undo() == []
    offloads, home, *rest = guest.log
    assert offloads == "ip netns exec nb-x ethtool -K eth1 gro on"
    assert home.startswith("sh -c ip -n")
    assert home.endswith("nb-x eth1 7")
    assert rest == [
        "ip netns del nb-x",
        "ip link set dev eth1 up",
        "ip address replace 192.0.2.7/24 scope global dev eth1 valid_lft forever preferred_lft forever",
    ]


def test_a_machine_that_died_took_its_changes_with_it(guest):
    guest.machine.make([*EACH, SetSysctl(IN, "net.ipv4.ip_forward", "1")])

    def died(argv, *, stdin="", timeout_s=30.0):
        raise MachineGoneError("guest lab: QEMU was killed by signal 9")

    guest.run = died
    assert guest.machine.undo() == []
    assert guest.machine.point == 0


@dataclass(frozen=True, slots=True)
class Noted(Change):
    """A change that notes each call, and whether it is on record by then, and fails on request."""

    name: str
    log: list[str]
    record: ChangeRecord
    fails: bool = False

    @property
    def command(self):
        return f"do {self.name}"

    def with_former_state(self, state):
        self._note("look")
        return self

    def make(self, host):
        self._note("make")
        if self.fails:
            raise TestbedError("busy")

    def undo(self, host):
        self._note("undo")

    def _note(self, what):
        recorded = any(change is self for _, change in self.record.pending)
        self.log.append(f"{what} {self.name}{' on record' if recorded else ''}")


def test_each_change_is_looked_at_recorded_and_made_before_the_next():
    log: list[str] = []
    record = ChangeRecord()
    machine = Machine(None, FakeHost(), record=record)
    with pytest.raises(TestbedError, match="^`do b` failed: busy$"):
        machine.make([Noted("a", log, record), Noted("b", log, record, fails=True), Noted("c", log, record)])
    assert log == ["look a", "make a on record", "look b", "make b on record"]
    log.clear()
    assert machine.undo() == []
    assert log == ["undo b on record", "undo a on record"], "b may have been made in part"


def test_what_cannot_be_recorded_is_not_made(guest, tmp_path):
    journal = Journal.create("lab", tmp_path)
    journal.close()
    machine = Machine(None, guest, record=journal)
    with pytest.raises((TestbedError, ValueError)):
        machine.make([AddNamespace("nb-x")])
    assert guest.log == []


@pytest.mark.parametrize("how", ["bridge", "route"])
def test_a_uut_in_a_vm_comes_and_goes(how, guest):
    """All forwarding settings of a kernel are undone."""
    lab = topology_in_vm(2)
    guest.machine.make(base_changes(lab, "lab"))
    made = len(guest.log)
    before, point = dict(guest.files), guest.machine.point
    guest.machine.make(forwarding_changes(stream_paths(lab), how))
    output = guest.log[made:]
    assert output
    assert guest.machine.undo(to=point) == []
    assert {path: text.strip() for path, text in guest.files.items()} == {p: t.strip() for p, t in before.items()}
    gone = guest.log[made + len(output) :]
    for command in output:
        if " link add " in command:
            assert command.partition(" type ")[0].replace(" add ", " del ") in gone
        if " address add " in command:
            assert command.replace(" add ", " del ") in gone


# From iproute2 6.1.0 on a veth pair and a bridge, with a different number for each counter.
LISTING = Path(__file__).with_name("ip_links.json").read_text()


def listing_guest(text=LISTING) -> Guest:
    return Guest(ip=Completed((), 0, text, ""))


def test_counters_as_ip_reports_them():
    guest = listing_guest()
    ingress, egress = InterfaceRef("lab", IN, "nb-in1"), InterfaceRef("lab", IN, "nb-out1")
    found = guest.machine.read_nics([ingress, egress, InterfaceRef("lab", IN, "gone")])
    assert guest.commands == [("ip", "-n", "nb-lab-uut", "-j", "-d", "-s", "-s", "link", "show")]
    assert list(found) == [ingress, egress]
    assert asdict(found[ingress]) == {
        "rx": 1000,
        "tx": 12,
        "rx_dropped": 3 + 5,
        "tx_dropped": 7,
        "rx_errors": 6,
        "tx_errors": 2,
        "up": True,
        "carrier_changes": 4,
        "mac": "02:6e:62:00:01:02",
        "index": 3,
        "master": 4,
        "rx_otherhost_dropped": None,
        "forwards": True,
    }
    assert not found[egress].up, "it has no carrier"
    assert not found[egress].forwards
    assert found[egress].master == 0


def test_frames_for_another_mac_address_as_ip_and_netlink_count_them():
    place = InterfaceRef("lab", None, "nb-in1")
    text = LISTING.replace('"missed_errors":5}', '"missed_errors":5,"otherhost":427}')
    assert listing_guest(text).machine.read_nics([place])[place].rx_otherhost_dropped == 427
    for words, counted in ((25, 427), (24, None)):  # before Linux 5.19 there are 24
        stats = struct.pack(f"={words}Q", *range(words - 1), 427)
        output = attribute(3, b"nb-in1\0") + attribute(16, b"\6") + attribute(23, stats)
        ((name, nic),) = nics_of([Link.parse(bytes(4) + struct.pack("=iI4x", 3, 0x10001) + output)])
        assert (name, nic.rx, nic.rx_otherhost_dropped) == ("nb-in1", 0, counted)


@pytest.mark.parametrize("state", ["learning", "blocking", "disabled", "listening"])
def test_a_port_that_its_bridge_holds_back_is_up_and_does_not_forward(state):
    text = LISTING.replace('"state":"forwarding"', f'"state":"{state}"')
    assert text != LISTING
    place = InterfaceRef("lab", None, "nb-in1")
    held = listing_guest(text).machine.read_nics([place])[place]
    assert (held.up, held.forwards) == (True, False)


def test_each_namespace_is_asked_once():
    guest = listing_guest()
    places = [InterfaceRef("lab", netns, name) for netns in ("nb-a", None) for name in ("nb-in1", "nb-out1")]
    found = guest.machine.read_nics([*places, places[0]])
    assert set(found) == set(places)
    asked = [" ".join(command) for command in guest.commands]
    assert asked == ["ip -n nb-a -j -d -s -s link show", "ip -j -d -s -s link show"]
    assert guest.machine.read_nics([]) == {}
    guest.failing = {"link show": "no"}
    with pytest.raises(TestbedError, match="`ip -n nb-a -j -d -s -s link show` failed"):
        guest.machine.read_nics(places)


def test_a_machine_that_talks_nonsense_is_named():
    guest = Machine("lab", FakeHost({"sh": Completed((), 0, "what?", "")}, {"/proc/stat": "cpu0 1\n"}))
    point = CountingPoint(
        "ingress NIC", kind=PointKind.INTERFACE, place=InterfaceRef(None, "uut", "in1"), direction="rx"
    )
    with pytest.raises(TestbedError, match="host fake: its counters are malformed"):
        guest.read_counters({"s1": [point]})
    with pytest.raises(TestbedError, match="host fake: its CPU time makes no sense"):
        guest.cpu_s()
