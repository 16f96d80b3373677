"""Counters of a machine beyond its NICs, read from its namespaces; tests/netns does the same with frames."""

from dataclasses import replace

import pytest

from netbench.linux.counters.counting_points import (
    NamespaceCounters,
    PauseFrames,
    Queue,
    parse_ip_counters,
    parse_softnet_drops,
    readings_at_points,
)
from netbench.linux.nft_rules import Dropper, NftHook
from netbench.model.paths import InterfaceRef
from netbench.model.points import ALL_RULES, CounterReading, CountingPoint, PathSection, PointKind


def at_nic(stream: str, name: str, section: PathSection, interface: str, direction: str) -> tuple[str, CountingPoint]:
    """A stream, and the point on its path at a NIC of the UUT."""
    place = InterfaceRef(None, "uut", interface)
    return stream, CountingPoint(name, section, PointKind.INTERFACE, place, direction)


IN = at_nic("s1", "ingress NIC", PathSection.INGRESS, "in1", "rx")
OUT = at_nic("s1", "egress NIC", PathSection.EGRESS, "out1", "tx")
SINK = at_nic("s1", "sink NIC", PathSection.SINK, "rx1", "rx")
SOURCE = at_nic("s1", "source NIC", PathSection.SOURCE, "tx1", "tx")
OTHER = at_nic("s2", "egress NIC", PathSection.EGRESS, "out2", "tx")
BACKLOG = CountingPoint("softnet backlog", kind=PointKind.BACKLOG, place=InterfaceRef(None, None, ""))

# Linux 6.18, with a different number for each counter.
PROC = """Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams OutTransmits
Ip: 1 64 1000 21 22 990 991
Udp: InDatagrams NoPorts InErrors
Udp: 1 31 2
TcpExt: SyncookiesSent IPReversePathFilter
TcpExt: 3 41
IpExt: InNoRoutes InTruncatedPkts InOctets
IpExt: 51 52 53
"""


def readings(
    there: NamespaceCounters, *points: tuple[str, CountingPoint], stack: str = "", softnet: int | None = None
) -> list[CounterReading]:
    along = {"s1": [BACKLOG], "s2": [BACKLOG]}
    for stream, point in points:
        along[stream].append(point)
    if stack:
        along["s1"].append(CountingPoint(stack, kind=PointKind(stack), place=InterfaceRef(None, "uut", "")))
    return [replace(reading, handle=(), owner="") for reading in readings_at_points(along, {"uut": there}, softnet)]


def rules(*hooks: NftHook) -> NamespaceCounters:
    return NamespaceCounters(rules=(Dropper("nft rule", frozenset(hooks), 7),))


def test_the_ip_layer_counts_drops_of_many_kinds():
    assert list(parse_ip_counters(PROC)) == [
        ("ForwDatagrams", "passed", 990),
        ("InHdrErrors", "dropped", 21),
        ("InAddrErrors", "dropped", 22),
        ("InNoRoutes", "dropped", 51),
        ("InTruncatedPkts", "dropped", 52),
        ("IPReversePathFilter", "dropped", 41),
        ("UDP NoPorts", "dropped", 31),
    ]


@pytest.mark.parametrize(
    ("stack", "bridged_ip", "named"),
    [
        ("IP layer", False, ("IP layer", "ForwDatagrams")),
        ("IP layer", True, ("IP layer", "ForwDatagrams")),
        ("bridge", True, ("bridge", "br_netfilter: ForwDatagrams")),
        ("bridge", False, None),
        ("", True, None),
    ],
)
def test_the_ip_layer_is_on_the_way_where_it_forwards_or_br_netfilter_asks_it(stack, bridged_ip, named):
    found = readings(NamespaceCounters(ip=parse_ip_counters(PROC), bridged_ip=bridged_ip), stack=stack)
    assert (found[0].point, found[0].counter, found[0].frames) == (*named, 990) if named else found == []


@pytest.mark.parametrize(
    ("hook", "stack", "bridged_ip", "named"),
    [
        (NftHook("bridge", "forward", ""), "bridge", False, "nft rule"),
        (NftHook("bridge", "forward", ""), "IP layer", False, None),
        (NftHook("bridge", "input", ""), "bridge", False, None),
        (NftHook("ip", "postrouting", ""), "IP layer", False, "nft rule"),
        (NftHook("inet", "prerouting", ""), "IP layer", False, "nft rule"),
        (NftHook("inet", "prerouting", ""), "bridge", True, "br_netfilter: nft rule"),
        (NftHook("inet", "prerouting", ""), "bridge", False, None),
        (NftHook("ip", "forward", ""), "", False, None),
        (NftHook("ip", "output", ""), "IP layer", False, None),
        (NftHook("ip6", "forward", ""), "IP layer", False, None),
    ],
)
def test_rules_of_a_stack_count_where_frames_meet_them(hook, stack, bridged_ip, named):
    assert readings(replace(rules(hook), bridged_ip=bridged_ip), IN, stack=stack) == (
        [CounterReading("s1", stack, named, "dropped", 7, attached=True, resettable=True)] if named else []
    )


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [
        ([NftHook("netdev", "ingress", "in1")], [("s1", "ingress NIC", "dropped")]),
        ([NftHook("inet", "ingress", "in1")], [("s1", "ingress NIC", "dropped")]),
        ([NftHook("netdev", "egress", "in1")], []),
        ([NftHook("netdev", "ingress", "out1")], []),
        ([NftHook("netdev", "egress", "eth7")], []),
        ([NftHook("netdev", "egress", "out1"), NftHook("netdev", "egress", "eth7")], [("s1", "egress NIC", "dropped")]),
        ([NftHook("netdev", "egress", "out1"), NftHook("netdev", "egress", "out2")], [("", "egress NIC", "dropped")]),
        ([NftHook("netdev", "egress", "tx1")], [("s1", "source NIC", "repeated")]),
        ([NftHook("netdev", "ingress", "rx1")], [("s1", "sink NIC", "repeated")]),
    ],
)
def test_rules_on_an_interface_are_at_its_hop(hooks, expected):
    assert readings(rules(*hooks), SOURCE, IN, OUT, OTHER, SINK, stack="bridge") == [
        CounterReading(stream, point, "nft rule", role, 7, attached=True, resettable=True)
        for stream, point, role in expected
    ]


def test_a_rule_that_frames_come_to_at_two_hops_is_one_counter_at_both():
    there = rules(NftHook("netdev", "ingress", "in1"), NftHook("netdev", "egress", "out1"))
    along = {"s1": [IN[1], OUT[1]]}
    one, other = readings_at_points(along, {"uut": there}, None)
    assert (one.point, other.point) == ("ingress NIC", "egress NIC")
    assert one.handle == other.handle != ()


def test_a_rule_that_only_one_of_many_streams_can_come_to_is_that_streams():
    stacks = [CountingPoint("bridge", kind=PointKind.BRIDGE, place=InterfaceRef(None, "uut", "")) for _ in "12"]
    along = {"s1": [IN[1], stacks[0]], "s2": [OTHER[1], stacks[1]]}

    def streams(*only: str) -> list[str]:
        rule = Dropper("nft rule", frozenset({NftHook("bridge", "forward", "")}), 7, only=(frozenset(only),))
        return [
            reading.stream for reading in readings_at_points(along, {"uut": NamespaceCounters(rules=(rule,))}, None)
        ]

    assert streams("rx in1") == ["s1"]
    assert streams("tx out2") == ["s2"]
    assert streams("tx in1") == [], "no frame leaves where frames come in"
    assert streams("rx in1", "tx out2") == [""]
    assert streams("rx in1", "rx eth7") == [""], "eth7 may be anybody's"


def test_a_discipline_put_in_the_place_of_another_is_another_counter():
    old, new = (
        readings_at_points({"s1": [OUT[1]]}, {"uut": NamespaceCounters((Queue("out1", "tbf", 7, handle),))}, None)[0]
        for handle in ("8001:", "8002:")
    )
    assert old.handle != new.handle


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        ("bridge", [("", "bridge", "dropped")]),
        ("", [("s1", "source NIC", "repeated"), ("s1", "ingress NIC", "dropped")]),
    ],
)
def test_a_change_of_any_rule_is_seen_where_frames_meet_rules(stack, found):
    assert readings(NamespaceCounters(generation=7), SOURCE, IN, stack=stack) == [
        CounterReading(stream, point, ALL_RULES, role, 0) for stream, point, role in found
    ]


def test_rules_that_cannot_be_read_may_drop_everywhere():
    assert readings(NamespaceCounters(rules=None), IN, stack="bridge") == [
        CounterReading("s1", "ingress NIC", "nft rules", "dropped", None, attached=True),
        CounterReading("", "bridge", "nft rules", "dropped", None, attached=True),
    ]


@pytest.mark.parametrize(
    ("kind", "interface", "expected"),
    [
        ("tbf", "out1", ("s1", "egress NIC", "qdisc tbf", "dropped")),
        ("tbf", "tx1", ("s1", "source NIC", "qdisc tbf", "repeated")),
        ("tbf", "in1", None),
        ("noqueue", "out1", None),
        ("ingress", "in1", ("s1", "ingress NIC", "tc ingress", "dropped")),
        ("clsact", "in1", ("s1", "ingress NIC", "tc ingress", "dropped")),
        ("clsact", "out1", ("s1", "egress NIC", "tc egress", "dropped")),
        ("ingress", "out1", None),
    ],
)
def test_queues_and_classifiers_are_at_the_hop_of_their_interface(kind, interface, expected):
    found = readings(NamespaceCounters(queues=(Queue(interface, kind, 7),)), SOURCE, IN, OUT)
    assert found == (
        [CounterReading(expected[0], expected[1], expected[2], expected[3], 7, attached=True)] if expected else []
    )


def test_a_queue_without_statistics_has_dropped_no_one_knows_how_many():
    found = readings(NamespaceCounters(queues=(Queue("out1", "fq", None),)), SOURCE, IN, OUT)
    assert found == [CounterReading("s1", "egress NIC", "qdisc fq", "dropped", None)]


def test_a_program_of_xdp_counts_nothing():
    programs = {("in1", "rx"): ["XDP program drop (id 7)"], ("in1", "tx"): ["tcx egress program x (id 8)"]}
    there = NamespaceCounters(programs=programs)
    assert readings(there, IN, OUT) == [
        CounterReading(
            "s1",
            "ingress NIC",
            "XDP program drop (id 7) on in1",
            "dropped",
            None,
            attached=True,
            is_foreign_program=True,
        )
    ]


def test_pause_frames_hold_the_sender_of_a_link_back():
    there = NamespaceCounters(pause={name: PauseFrames(rx=5, tx=6) for name in ("tx1", "in1")})
    assert readings(there, SOURCE, IN, OUT) == [
        CounterReading("s1", "source NIC", "rx_pause", "passed", 5),
        CounterReading("s1", "ingress NIC", "tx_pause", "passed", 6),
    ]


def test_the_backlog_is_one_for_the_machine():
    softnet = "000003e8 00000010 00000009\n00000001 000000ff 00000000\n"
    assert readings(NamespaceCounters(), softnet=parse_softnet_drops(softnet)) == [
        CounterReading("", "softnet backlog", "dropped", "repeated", 0x10F)
    ]
