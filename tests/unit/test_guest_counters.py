"""Counters of a guest, and of any machine that one command reads, from the output of its kernel and tools."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.linux.counters import iproute_counters, netlink_counters
from netbench.linux.counters.counting_points import Queue
from netbench.linux.counters.iproute_counters import parse_links
from netbench.linux.machine import Machine
from netbench.linux.netlink import attribute
from netbench.uut.guest_links import GuestNics, points_inside
from tests.unit.fakes import FakeHost

# Linux 6.1 and iproute2 6.1.0 in a guest with two vmxnet3 NICs, with numbers that differ from each other.
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
PLAIN_LINK = json.loads(Path(__file__).with_name("ip_links.json").read_text())[1]


def link(name: str, rx=(0, 0, 0, 0), tx=(0, 0, 0)) -> dict:
    """An interface as `ip -j` has it: packets, errors, dropped and (of rx) missed."""
    stats = {
        "rx": dict(zip(("packets", "errors", "dropped", "missed_errors"), rx, strict=True)),
        "tx": dict(zip(("packets", "errors", "dropped", "carrier_changes"), (*tx, 0), strict=True)),
    }
    return {**PLAIN_LINK, "ifname": name, "stats64": stats}


LINKS = json.dumps([link("eth0", (1000, 1, 2, 3), (8, 10, 11)), link("eth1", (102, 103, 104, 0), (990, 111, 112))])
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


def text(drivers=DRIVERS, links=LINKS + "\n", snmp=SNMP, qdiscs=QDISCS + "\n", softnet=SOFTNET, stat=STAT) -> str:
    look = "".join(f"{part}--netbench--\n" for part in (drivers, links, snmp, qdiscs))
    return "--next--\n".join((look, softnet, stat))


ONE = {"s1": GuestNics("eth0", "eth1")}


def test_what_a_kernel_does_not_count_is_unknown_and_not_0():
    silent = link("eth0")
    del silent["stats64"]["tx"]["carrier_changes"]
    assert parse_links(json.dumps([silent]))["eth0"].carrier_changes is None
    assert list(iproute_counters._parse_queues('[{"kind": "fq", "dev": "eth0", "root": true}]')) == [
        Queue("eth0", "fq", None)
    ]
    shown = struct.pack("=BxxxiIIi", 0, 7, 0x80010000, 0xFFFFFFFF, 0) + attribute(1, b"fq\0")
    assert list(netlink_counters.queues_of([shown], {7: "eth0"})) == [Queue("eth0", "fq", None, "8001:")]


def count(printed: str, nics=ONE):
    guest = FakeHost({"sh": Completed((), 0, printed, "")})
    return Machine("guest g", guest).count(points_inside(nics, own_kernel=True))


def counted(printed: str, nics=ONE):
    return [
        (reading.stream, reading.point, reading.counter, reading.role, reading.frames)
        for reading in count(printed, nics).counters
    ]


def test_every_counter_along_the_path_and_those_that_streams_share():
    assert sorted(counted(text())) == sorted(
        [
            ("s1", "VMM ingress", "rx_out_of_buffers", "dropped", 17),
            ("s1", "guest ingress NIC", "rx", "passed", 1000),
            ("s1", "guest ingress NIC", "rx_dropped", "dropped", 2 + 3),
            ("s1", "guest ingress NIC", "rx_errors", "errors", 1),
            ("s1", "guest ingress NIC", "rx_otherhost_dropped", "dropped", 0),
            ("s1", "guest egress queue", "dropped", "dropped", 77),
            ("s1", "guest egress NIC", "tx", "passed", 990),
            ("s1", "guest egress NIC", "tx_dropped", "dropped", 112),
            ("s1", "guest egress NIC", "tx_errors", "errors", 111),
            ("", "guest softnet", "dropped", "repeated", 0x10 + 0xFF),
            ("", "guest IP layer", "ForwDatagrams", "passed", 990),
            ("", "guest IP layer", "InHdrErrors", "dropped", 21),
            ("", "guest IP layer", "InAddrErrors", "dropped", 22),
            ("", "guest IP layer", "InDiscards", "dropped", 24),
            ("", "guest IP layer", "ReasmFails", "dropped", 32),
            ("", "guest IP layer", "FragFails", "dropped", 34),
            ("", "guest IP layer", "InNoRoutes", "dropped", 41),
            ("", "guest IP layer", "InTruncatedPkts", "dropped", 42),
        ]
    )


def test_cpu_time_is_what_was_not_idle_nor_waited_for_nor_given_to_others():
    assert count(text()).cpu_s == pytest.approx((100 + 20 + 300 + 6 + 70) / 100)


def test_every_stream_has_nics_of_its_own():
    found = counted(text(), {"s1": GuestNics("eth0", "eth1"), "s2": GuestNics("eth1", "eth0")})
    assert sorted(row[0] for row in found) == [""] * 9 + ["s1"] * 9 + ["s2"] * 8
    assert ("s2", "guest ingress NIC", "rx", "passed", 102) in found
    assert ("s2", "guest egress NIC", "tx", "passed", 8) in found


def test_a_backlog_that_is_its_machines_is_not_its_own():
    guest = Machine("guest g", FakeHost({"sh": Completed((), 0, text(), "")}))
    found = guest.count(points_inside(ONE, own_kernel=False)).counters
    assert "guest softnet" not in {reading.point for reading in found}


def test_a_nic_that_is_gone_is_an_error():
    with pytest.raises(TestbedError, match="^host fake: its NIC eth1 is gone$"):
        count(text(links=json.dumps([link("eth0")])))


@pytest.mark.parametrize("qdiscs", ["", "[]\n", "[]"])
def test_a_guest_without_tc_cannot_tell_of_queues(qdiscs):
    """Unknown is not 0: there is no such counter."""
    assert "guest egress queue" not in {row[1] for row in counted(text(qdiscs=qdiscs))}


@pytest.mark.parametrize("drivers", ["", "--nic--eth0\n--nic--eth1\n"])
def test_a_guest_without_ethtool_or_whose_drivers_count_nothing(drivers):
    assert "rx_out_of_buffers" not in {row[2] for row in counted(text(drivers=drivers))}


WRONG = [
    "",
    "no such thing\n",
    text() + "--next--\n",
    text(snmp=SNMP + "--netbench--\n"),
    text(links="[{}]"),
    text(links=""),
    text(links=LINKS.replace('"missed_errors"', '"missing"')),
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
def test_what_makes_no_sense_reports_whose_it_is(wrong):
    with pytest.raises(TestbedError, match="^host fake: its counters are malformed: "):
        count(wrong)


@settings(deadline=None)
@given(st.integers(0, len(text())), st.integers(0, 200), st.text(max_size=20))
def test_a_damaged_text_is_reported_or_read_and_nothing_else(start, length, instead):
    whole = text()
    try:
        found = counted(whole[:start] + instead + whole[start + length :])
    except TestbedError:
        return
    assert {(row[0], row[1], row[3]) for row in found} <= {(row[0], row[1], row[3]) for row in counted(whole)}


def test_the_command_as_this_machine_answers_it():
    """It works with any kernel and any tools."""
    here = Machine("here", LocalHost("here", "x"))
    found = here.count(points_inside({"s1": GuestNics("lo", "lo")}, own_kernel=True))
    assert found.cpu_s > 0
    assert {"rx", "tx", "InAddrErrors", "InNoRoutes"} <= {reading.counter for reading in found.counters}
    with pytest.raises(TestbedError, match="its NIC no-such-nic is gone"):
        here.count(points_inside({"s1": GuestNics("lo", "no-such-nic")}, own_kernel=True))
