"""Counters of a guest, from the texts its kernel and its tools print."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.errors import TestbedError
from netbench.uut.guest_counters import GuestCounters, GuestNics, parse_counters, read_command, readings

# Linux 6.1 and iproute2 6.1.0 in a guest with two vmxnet3 NICs; numbers as a test can tell them apart.
DRIVERS = """--nic--eth0
NIC statistics:
     Rx Queue#: 0
       ucast pkts rx: 1000
       pkts rx OOB: 11
       pkts rx err: 0
       drv dropped rx total: 3
     Rx Queue#: 1
       pkts rx OOB: 6
--nic--eth1
NIC statistics:
     Rx Queue#: 0
       pkts rx OOB: 0
"""
DEV = """Inter-|   Receive                                      |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  9579      87    0    0    0     0          0         0  9579      87    0    0    0     0       0          0
  eth0: 60000    1000    1    2    3     4          5         6    70       8    9   10   11    12      13         14
  eth1:   101     102  103  104  105   106        107       108   109     990  111  112  113   114     115        116
"""
SNMP = "\n".join(
    (
        "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards "
        "InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs "
        "FragFails FragCreates",
        "Ip: 1 64 1000 21 22 990 23 24 25 26 27 28 29 30 31 32 33 34 35",
        "Icmp: InMsgs InErrors",
        "Icmp: 0 0",
        "IpExt: InNoRoutes InTruncatedPkts InOctets",
        "IpExt: 41 42 43",
        "",
    )
)
SOFTNET = """000003e8 00000010 00000009 00000000 00000000 00000000 00000000 00000000 00000000 00000000
00000001 000000ff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001
"""
QDISCS = json.dumps(
    [
        {"kind": "noqueue", "handle": "0:", "dev": "lo", "root": True, "options": {}, "drops": 0},
        {"kind": "mq", "handle": "0:", "dev": "eth1", "root": True, "options": {}, "drops": 77},
        {"kind": "pfifo_fast", "handle": "0:", "dev": "eth1", "parent": ":1", "options": {}, "drops": 70},
        {"kind": "pfifo_fast", "handle": "0:", "dev": "eth1", "parent": ":2", "options": {}, "drops": 7},
    ]
)
STAT = """cpu  100 20 300 4000 50 6 70 800 9 10
cpu0 100 20 300 4000 50 6 70 800 9 10
intr 12345
"""


def text(drivers=DRIVERS, dev=DEV, snmp=SNMP, softnet=SOFTNET, qdiscs=QDISCS + "\n", stat=STAT) -> str:
    return "--netbench--\n".join((drivers, dev, snmp, softnet, qdiscs, stat))


def parsed(**changes) -> GuestCounters:
    return parse_counters(text(**changes), "guest g")


ONE = {"s1": GuestNics("eth0", "eth1")}


def counted(counters, nics=ONE):
    return [(one.stream, one.point, one.counter, one.role, one.frames) for one in readings(counters, nics)]


def test_every_hop_along_the_path_then_those_that_streams_share():
    assert counted(parsed()) == [
        ("s1", "VMM ingress", "rx_out_of_buffers", "dropped", 17),
        ("s1", "guest ingress NIC", "rx", "passed", 1000),
        ("s1", "guest ingress NIC", "rx_dropped", "dropped", 2),
        ("s1", "guest ingress NIC", "rx_errors", "errors", 1),
        ("s1", "guest egress queue", "dropped", "dropped", 77),
        ("s1", "guest egress NIC", "tx", "passed", 990),
        ("s1", "guest egress NIC", "tx_dropped", "dropped", 112),
        ("s1", "guest egress NIC", "tx_errors", "errors", 111),
        ("", "guest softnet", "dropped", "repeated", 0x10 + 0xFF),
        ("", "guest IP layer", "ForwDatagrams", "passed", 990),
        ("", "guest IP layer", "InHdrErrors", "dropped", 21),
        ("", "guest IP layer", "InAddrErrors", "dropped", 22),
        ("", "guest IP layer", "InUnknownProtos", "dropped", 23),
        ("", "guest IP layer", "InDiscards", "dropped", 24),
        ("", "guest IP layer", "OutDiscards", "dropped", 27),
        ("", "guest IP layer", "OutNoRoutes", "dropped", 28),
        ("", "guest IP layer", "ReasmFails", "dropped", 32),
        ("", "guest IP layer", "FragFails", "dropped", 34),
        ("", "guest IP layer", "InNoRoutes", "dropped", 41),
        ("", "guest IP layer", "InTruncatedPkts", "dropped", 42),
    ]


def test_cpu_time_is_what_was_not_idle_nor_waited_for_nor_given_to_others():
    assert parsed().cpu_s == pytest.approx((100 + 20 + 300 + 6 + 70) / 100)


def test_every_stream_has_nics_of_its_own():
    both = {"s1": GuestNics("eth0", "eth1"), "s2": GuestNics("eth1", "eth0")}
    found = counted(parsed(), both)
    assert [one[0] for one in found] == ["s1"] * 8 + ["s2"] * 7 + [""] * 12
    assert ("s2", "guest ingress NIC", "rx", "passed", 102) in found
    assert ("s2", "guest egress NIC", "tx", "passed", 8) in found


def test_a_nic_that_is_gone_is_an_error():
    without = "".join(line for line in DEV.splitlines(keepends=True) if "eth1" not in line)
    with pytest.raises(TestbedError, match="NIC eth1 of the guest is gone"):
        counted(parsed(dev=without))


@pytest.mark.parametrize("qdiscs", ["", "[]\n", "[]"])
def test_a_guest_without_tc_cannot_tell_of_queues(qdiscs):
    """What it cannot tell is not 0: there is no such counter."""
    assert "guest egress queue" not in {one[1] for one in counted(parsed(qdiscs=qdiscs))}


@pytest.mark.parametrize("drivers", ["", "--nic--eth0\n--nic--eth1\n"])
def test_a_guest_without_ethtool_or_whose_drivers_count_nothing(drivers):
    assert "rx_out_of_buffers" not in {one[2] for one in counted(parsed(drivers=drivers))}


def test_a_nic_whose_name_touches_its_numbers():
    """As long counters make it."""
    dev = DEV.replace("  eth0: 60000", "eth0:60000000000")
    assert dev != DEV
    assert parsed(dev=dev).nics["eth0"]["rx"] == 1000


WRONG = [
    "",
    "no such thing\n",
    text() + "--netbench--\n",
    text(dev=DEV.replace("1000", "many")),
    text(dev=DEV.replace("   10   11    12      13         14", "")),
    text(snmp="Tcp: x\n"),
    text(snmp=SNMP.splitlines()[0] + "\n"),
    text(snmp=SNMP.replace(" 35\n", "\n")),
    text(snmp=SNMP.replace("ForwDatagrams", "Forwards")),
    text(softnet="000003e8\n"),
    text(softnet="000003e8 xyz\n"),
    text(qdiscs="[{}"),
    text(qdiscs="[5]"),
    text(qdiscs="5"),
    text(qdiscs='{"dev": "eth0"}'),
    text(qdiscs='[{"root": true}]'),
    text(stat=""),
    text(stat="cpu0 100 20 300 4000 50 6 70 800 9 10\n"),
    text(stat="cpu 1 2\n"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_what_makes_no_sense_says_whose_it_is(wrong):
    with pytest.raises(TestbedError, match="^guest g: its counters make no sense: "):
        list(readings(parse_counters(wrong, "guest g"), ONE))


@settings(deadline=None)
@given(st.integers(0, len(text())), st.integers(0, 200), st.text(max_size=20))
def test_a_damaged_text_is_told_or_read_and_nothing_else(start, length, instead):
    whole = text()
    damaged = whole[:start] + instead + whole[start + length :]
    try:
        found = list(readings(parse_counters(damaged, "guest g"), ONE))
    except TestbedError:
        return
    assert {(one.stream, one.point, one.role) for one in found} <= {
        (one[0], one[1], one[3]) for one in counted(parsed())
    }


COUNTS = st.integers(0, 2**64 - 1)


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9.]{0,10}", fullmatch=True), st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
)
def test_counters_of_any_size_and_any_number_of_nics(nics):
    lines = [
        f"{name:>6}: 1 {rx} 2 {dropped} 3 4 5 6 7 {tx} 8 {lost} 9 10 11 12\n"
        for name, (rx, dropped, tx, lost) in nics.items()
    ]
    found = parsed(dev="\n\n" + "".join(lines)).nics
    assert {
        name: (counts["rx"], counts["rx_dropped"], counts["tx"], counts["tx_dropped"]) for name, counts in found.items()
    } == nics


def test_the_command_as_this_machine_answers_it():
    """Whatever its kernel and its tools are, and though there is no such NIC as the last one."""
    names = [path.name for path in Path("/sys/class/net").iterdir() if (path / "mtu").exists()]
    done = subprocess.run(read_command([*names, "no-such-nic"]), capture_output=True, text=True, check=True)
    counters = parse_counters(done.stdout, "guest g")
    assert set(counters.nics) == set(names)
    assert counters.cpu_s > 0
    assert {"InAddrErrors", "InNoRoutes"} <= {one[2] for one in counted(counters, {"s1": GuestNics("lo", "lo")})}


def test_a_name_is_no_part_of_the_command():
    hostile = "eth0; touch /tmp/netbench-was-here; $(id)"
    assert hostile in read_command([hostile])
    assert all(hostile not in word for word in read_command([hostile])[:3])
