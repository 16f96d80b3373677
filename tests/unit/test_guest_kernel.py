"""The kernel of a VM, changed and counted by commands: which ones, where, in which order, and what comes back."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddForwardingEntry,
    AddNamespace,
    AddNeighbour,
    AddTable,
    AddVeth,
    Enslave,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.linux.kernel_by_command import GuestKernel
from netbench.model.paths import Place, stream_paths
from netbench.testbed.layout import base_changes
from netbench.uut.forwarding import bridge_changes, route_changes
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


class Guest:
    """A guest with hosts for its namespaces, whose commands all succeed until told otherwise, in one log."""

    def __init__(self, **answers: Completed) -> None:
        self.log: list[tuple[str | None, str]] = []
        self.failing = ""  # a piece of the commands that fail
        self.files = {
            "/proc/sys/net/ipv4/ip_forward": "0\n",
            "/proc/sys/net/ipv4/conf/all/rp_filter": "1\n",
            "/proc/sys/net/ipv4/conf/all/send_redirects": "1\n",
            "/proc/sys/net/ipv6/conf/all/disable_ipv6": "0\n",
        }
        self.answers = {"ethtool": Completed((), 0, OFF, ""), **answers}
        self.kernel = GuestKernel(lambda netns: GuestHost(self, netns))


class GuestHost(FakeHost):
    """One namespace of it."""

    def __init__(self, guest: Guest, netns: str | None) -> None:
        super().__init__(files=guest.files)
        self._guest = guest
        self._netns = netns

    @property
    def netns(self) -> str | None:
        return self._netns

    def run(self, argv, *, stdin="", timeout_s=30.0):
        command = " ".join(argv)
        self._guest.log.append((self._netns, command))
        if self._guest.failing and self._guest.failing in command:
            return Completed(tuple(argv), 2, "", "RTNETLINK answers: Operation not supported")
        return self._guest.answers.get(argv[0], Completed(tuple(argv), 0, "", ""))

    def write(self, path, text):
        super().write(path, text)
        self._guest.log.append((self._netns, f"{text} > {path}"))


IN = "nb-lab-uut"
EACH = [
    AddNamespace(IN),
    AddVeth("nb-a", "nb-one", "02:00:00:00:00:01", None, "nb-two", "02:00:00:00:00:02"),
    AddBridge(IN, "nb-br"),
    Enslave(IN, "nb-in1", "nb-br"),
    AddForwardingEntry(IN, "nb-in1", "02:00:00:00:00:01"),
    SetUp(None, "nb-br"),
    AddAddress(IN, "nb-in1", "198.18.1.1", 24),
    AddNeighbour(IN, "nb-in1", "198.19.1.2", "02:00:00:00:00:01"),
]


def test_changes_are_commands_of_the_vm_itself_and_are_taken_back_last_first():
    """They name the namespace themselves: `ip -n`."""
    guest = Guest()
    guest.kernel.make(EACH)
    assert guest.log == [(None, change.command) for change in EACH]
    assert guest.kernel.point == len(EACH)
    guest.log.clear()
    assert guest.kernel.undo() == []
    assert guest.log == [
        (None, "ip -n nb-lab-uut neigh del 198.19.1.2 dev nb-in1"),
        (None, "ip -n nb-lab-uut address del 198.18.1.1/24 dev nb-in1"),
        (None, "ip link set nb-br down"),
        (None, "ip -n nb-lab-uut link set nb-in1 nomaster"),
        (None, "ip -n nb-lab-uut link del nb-br"),
        (None, "ip -n nb-a link del nb-one"),
        (None, "ip netns del nb-lab-uut"),
    ]
    assert guest.kernel.point == 0
    guest.log.clear()
    assert guest.kernel.undo() == []
    assert guest.log == []


def test_only_what_came_after_a_point_is_taken_back():
    guest = Guest()
    guest.kernel.make(EACH[:2])
    point = guest.kernel.point
    guest.kernel.make(EACH[2:4])
    guest.log.clear()
    assert guest.kernel.undo(to=point) == []
    assert guest.log == [
        (None, "ip -n nb-lab-uut link set nb-in1 nomaster"),
        (None, "ip -n nb-lab-uut link del nb-br"),
    ]
    assert guest.kernel.point == point


def test_settings_are_made_in_their_namespace_and_put_back():
    guest = Guest()
    guest.kernel.make([SetSysctl(IN, "net.ipv4.ip_forward", "1"), SetSysctl(IN, "net.bridge.x", "0", optional=True)])
    assert guest.log == [(IN, "1 > /proc/sys/net/ipv4/ip_forward")]
    assert guest.kernel.undo() == []
    assert guest.log[1:] == [(IN, "0 > /proc/sys/net/ipv4/ip_forward")]


def test_a_setting_that_is_not_there_is_an_error_and_leaves_nothing_to_take_back():
    guest = Guest()
    with pytest.raises(TestbedError, match="/proc/sys/net/none cannot be read"):
        guest.kernel.make([SetSysctl(IN, "net.none", "1")])
    assert guest.kernel.point == 0


def test_offloads_are_switched_in_their_namespace_and_back():
    guest = Guest()
    on = OFF.replace("generic-receive-offload: off", "generic-receive-offload: on")
    guest.answers["ethtool"] = Completed((), 0, on, "")
    with pytest.raises(TestbedError, match="nb-in1: gro cannot be switched off"):
        guest.kernel.make([OffloadsOff(IN, "nb-in1")])
    assert (IN, "ethtool -K nb-in1 gro off") in guest.log
    assert guest.kernel.undo() == []
    assert guest.log[-1] == (IN, "ethtool -K nb-in1 gro on")


def test_tables_are_made_in_their_namespace_and_removed():
    guest = Guest(nft=Completed((), 0, "", ""))
    guest.failing = "nft list"
    guest.kernel.make([AddTable(IN, "bridge", "netbench", "add table bridge netbench\n")])
    assert guest.kernel.undo() == []
    assert [entry for entry in guest.log if entry[1] == "nft -f -"] == [(IN, "nft -f -")] * 2


def test_a_change_that_fails_is_named_with_the_words_of_the_guest():
    guest = Guest()
    guest.failing = "type bridge"
    with pytest.raises(TestbedError) as caught:
        guest.kernel.make(EACH)
    assert "`ip -n nb-lab-uut link add nb-br type bridge" in str(caught.value)
    assert "RTNETLINK answers: Operation not supported" in str(caught.value)
    assert guest.log[-1][1].startswith("ip -n nb-lab-uut link add nb-br"), "nothing after it was tried"


def test_a_change_that_failed_is_not_taken_back():
    """There is nothing to remove, and failing to would be taken for a testbed that is broken."""
    guest = Guest()
    guest.failing = "nb-br"
    with pytest.raises(TestbedError):
        guest.kernel.make(EACH)
    assert guest.kernel.undo() == []
    assert (None, "ip netns del nb-lab-uut") in guest.log


def test_what_cannot_be_taken_back_is_told_and_the_rest_is_taken_back():
    guest = Guest()
    guest.kernel.make(EACH)
    guest.failing = "link del"
    failures = guest.kernel.undo()
    assert [failure.split("`")[1] for failure in failures] == [
        "ip -n nb-lab-uut link del nb-br",
        "ip -n nb-a link del nb-one",
    ]
    assert guest.log[-1] == (None, "ip netns del nb-lab-uut")
    assert guest.kernel.point == 0


@pytest.mark.parametrize("forwarding", [bridge_changes, route_changes])
def test_a_uut_in_a_vm_comes_and_goes(forwarding):
    """All that a kernel is told to forward is told a guest by commands, and taken back."""
    lab = topology_in_vm(2)
    guest = Guest()
    guest.kernel.make(base_changes(lab, "lab"))
    made = len(guest.log)
    before, point = dict(guest.files), guest.kernel.point
    guest.kernel.make(forwarding(stream_paths(lab)))
    told = [command for _, command in guest.log[made:]]
    assert told
    assert guest.kernel.undo(to=point) == []
    assert {path: text.strip() for path, text in guest.files.items()} == {p: t.strip() for p, t in before.items()}
    gone = [command for _, command in guest.log[made + len(told) :]]
    for command in told:
        if " link add " in command:
            assert command.partition(" type ")[0].replace(" add ", " del ") in gone
        if " address add " in command:
            assert command.replace(" add ", " del ") in gone


# Of iproute2 6.1.0 on a veth pair and a bridge, with counters as a test can tell them apart.
LISTING = Path(__file__).with_name("ip_links.json").read_text()
NICS = {"nb-in1", "nb-out1", "nb-br-s1", "lo"}


def listing_guest(text=LISTING) -> Guest:
    return Guest(ip=Completed((), 0, text, ""))


def test_counters_as_ip_tells_them():
    guest = listing_guest()
    ingress, egress = Place("lab", IN, "nb-in1"), Place("lab", IN, "nb-out1")
    found = guest.kernel.read_nics([ingress, egress, Place("lab", IN, "gone")])
    assert guest.log == [(None, "ip -n nb-lab-uut -j -d -s -s link show")]
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
        "forwards": True,
    }
    assert not found[egress].up, "it has no carrier"
    assert not found[egress].forwards
    assert found[egress].master == 0


@pytest.mark.parametrize("state", ["learning", "blocking", "disabled", "listening"])
def test_a_port_that_its_bridge_holds_back_is_up_and_does_not_forward(state):
    text = LISTING.replace('"state":"forwarding"', f'"state":"{state}"')
    assert text != LISTING
    place = Place("lab", None, "nb-in1")
    held = listing_guest(text).kernel.read_nics([place])[place]
    assert (held.up, held.forwards) == (True, False)


def test_each_namespace_is_asked_once():
    guest = listing_guest()
    places = [Place("lab", netns, name) for netns in ("nb-a", None) for name in ("nb-in1", "nb-out1")]
    found = guest.kernel.read_nics([*places, places[0]])
    assert set(found) == set(places)
    assert guest.log == [(None, "ip -n nb-a -j -d -s -s link show"), (None, "ip -j -d -s -s link show")]
    assert guest.kernel.read_nics([]) == {}


def test_a_namespace_that_is_gone_is_an_error():
    guest = listing_guest()
    guest.failing = "link show"
    with pytest.raises(TestbedError, match="`ip -n nb-a -j -d -s -s link show` failed"):
        guest.kernel.read_nics([Place("lab", "nb-a", "nb-in1")])


@given(st.sets(st.sampled_from(sorted(NICS))), st.integers(0, 2**63))
def test_counters_of_any_size_reach_their_own_nic(names, count):
    links = json.loads(LISTING)
    for number, link in enumerate(links):
        link["stats64"]["rx"]["packets"] = count + number
    found = listing_guest(json.dumps(links)).kernel.read_nics(Place("lab", None, name) for name in names)
    assert {place.interface: counters.rx for place, counters in found.items()} == {
        link["ifname"]: count + number for number, link in enumerate(links) if link["ifname"] in names
    }
