"""Frames lost by flow and by groups of flows, against a count of every number in plain Python."""

import random
from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address

import numpy as np
import pytest

from netbench.capture.flow_groups import FlowLosses, flow_frames, flow_losses
from netbench.capture.sequences import SequenceTracker, arrivals, losses_of, tracker_of
from netbench.model.frame_template import ExpectedHeaders, FrameTemplate, VaryingPlace
from netbench.model.packet import ListedValues, RandomValues, SteppedValues, Values
from netbench.model.packet_counts import MAX_GROUPS
from netbench.packets.flow_values import values_of

VLANS = VaryingPlace("Dot1Q.vlan", None, ListedValues((30, 10, 20, 10)), 1)
SOURCES = VaryingPlace("IP.src", None, SteppedValues(int(ip_address("198.18.1.0")), 1, 5000), 1, kind="IPv4")
SLOW_SOURCES = VaryingPlace("IPv6.src", None, SteppedValues(int(ip_address("2001:2::fffe")), 1, 3), 4, kind="IPv6")
PORTS = VaryingPlace("UDP.sport", None, RandomValues(1024, 65535, 2000), 1, seed=7)
MACS = VaryingPlace("Ether.src", None, SteppedValues(0x02_00_00_00_00_10, -16, 2), 1, kind="MAC")


def headers(flows: int, *varying: VaryingPlace) -> ExpectedHeaders:
    return ExpectedHeaders(FrameTemplate({64: bytes(60)}, 42, flows), (), varying=varying)


def tracker(numbers: Iterable[int]) -> SequenceTracker:
    found = SequenceTracker()
    found.add(arrivals(np.array(list(numbers), np.int64), 0))
    return found


def recount(arrived: set[int], sent: range, flows: int, varying: VaryingPlace) -> tuple[Counter[int], Counter[int]]:
    """Return the frames sent and lost by value of the field, number by number."""
    values = values_of(varying.values, varying.seed).tolist()
    every, lost = Counter[int](), Counter[int]()
    for number in sent:
        value = values[number % flows // varying.frames_per_value % len(values)]
        every[value] += 1
        lost[value] += number not in arrived
    return every, lost


@pytest.mark.parametrize("sent", [range(20_000), range(17, 140_017), range(2**32 - 3000, 2**32 + 9000), range(5, 25)])
@pytest.mark.parametrize(
    ("flows", "varying"),
    [(1, ()), (4, (VLANS,)), (12, (VLANS, SLOW_SOURCES)), (5000, (SOURCES,)), (2000, (PORTS, MACS)), (7, (PORTS,))],
)
@pytest.mark.parametrize("lost_part", [0.0, 0.001, 0.5, 1.0])
def test_losses_are_those_of_every_number(
    sent: range, flows: int, varying: tuple[VaryingPlace, ...], lost_part: float
) -> None:
    draw = random.Random(1)
    numbers = [number for number in sent if draw.random() >= lost_part and number % 4 != 2]
    found = tracker(numbers)
    lost = Counter(number % flows for number in set(sent) - set(numbers))
    frames = flow_frames(found, sent, flows)
    assert frames.lost.tolist() == [lost[flow] for flow in range(flows)]
    assert frames.sent.tolist() == [
        len(range(sent.start + (flow - sent.start) % flows, sent.stop, flows)) for flow in range(flows)
    ]
    result = flow_losses(found, sent, headers(flows, *varying))
    assert result.lossy_flows == len(lost)
    for field, groups in zip(varying, result.groups, strict=True):
        every, lost_values = recount(set(numbers), sent, flows, field)
        assert groups.field == field.name
        assert groups.groups <= MAX_GROUPS
        assert sum(group.sent - group.received for group in groups.lossy) == len(sent) - len(numbers)
        used = sorted(
            {
                values_of(field.values, field.seed).tolist()[f // field.frames_per_value % field.values.count]
                for f in range(flows)
            }
        )
        per_group = -(-len(used) // MAX_GROUPS)
        expected = [
            (sum(every[value] for value in part), sum(every[value] - lost_values[value] for value in part))
            for part in (used[at : at + per_group] for at in range(0, len(used), per_group))
            if any(lost_values[value] for value in part)
        ]
        assert [(group.sent, group.received) for group in groups.lossy] == expected


@pytest.mark.parametrize(
    ("varying", "flows", "labels", "groups"),
    [
        (VLANS, 4, ["10", "20", "30"], 3),
        (SLOW_SOURCES, 12, ["2001:2::fffe", "2001:2::ffff", "2001:2::1:0"], 3),
        (MACS, 2, ["02:00:00:00:00:00", "02:00:00:00:00:10"], 2),
        (SOURCES, 2, ["198.18.1.0", "198.18.1.1"], 2),
    ],
)
def test_each_value_has_its_name(varying: VaryingPlace, flows: int, labels: list[str], groups: int) -> None:
    (found,) = flow_losses(SequenceTracker(), range(100), headers(flows, varying)).groups
    assert ([group.values for group in found.lossy], found.groups) == (labels, groups)


@pytest.mark.parametrize(
    ("kind", "values", "lost", "group", "groups"),
    [
        ("IPv4", SteppedValues(int(ip_address("198.18.1.0")), 1, 65_536), 70, "198.18.1.64–198.18.1.127", 1024),
        ("IPv4", SteppedValues(int(ip_address("198.18.1.0")), 1, 1025), 1024, "198.18.5.0", 513),
        ("IPv6", SteppedValues(int(ip_address("2001:2::")), 1, 2048), 5, "2001:2::4–2001:2::5", 1024),
        ("MAC", SteppedValues(0x020000000000, 2, 2000), 1999, "02:00:00:00:0f:9c–02:00:00:00:0f:9e", 1000),
        ("number", SteppedValues(5000, -1, 4000), 0, "4997–5000", 1000),
    ],
)
def test_many_values_are_grouped_in_ranges(kind: str, values: Values, lost: int, group: str, groups: int) -> None:
    field = VaryingPlace("a.b", None, values, 1, kind=kind)
    found = flow_losses(tracker(set(range(values.count)) - {lost}), range(values.count), headers(values.count, field))
    assert found.lossy_flows == 1
    assert [lossy.values for lossy in found.groups[0].lossy] == [group]
    assert found.groups[0].groups == groups


def test_without_loss_there_is_no_group() -> None:
    found = flow_losses(tracker(range(99)), range(99), headers(4, VLANS))
    assert found == FlowLosses(0, (found.groups[0],))
    assert found.groups[0].lossy == ()


def test_a_bitmap_has_the_same_losses() -> None:
    sent = range((1 << 32) - 70_000, (1 << 32) + 50_000)
    lost = {sent.start, (1 << 32) - 1, 1 << 32, sent.stop - 1}
    bits = np.zeros(1 << 17, np.uint8)
    for number in sent:
        bits[number % len(bits)] = number not in lost
    packed = np.packbits(bits, bitorder="little")
    expected = flow_losses(tracker(sorted(set(sent) - lost)), sent, headers(5000, SOURCES))
    assert flow_losses(tracker_of(packed, sent), sent, headers(5000, SOURCES)) == expected
    assert losses_of(packed, sent).missing == sum(group.sent - group.received for group in expected.groups[0].lossy)


def test_scattered_loss_of_many_numbers_fits_in_memory() -> None:
    found, sent = SequenceTracker(), range(20_000_000)
    for start in range(0, len(sent), 1 << 20):
        numbers = np.arange(start, min(start + (1 << 20), len(sent)))
        found.add(arrivals(numbers[numbers % 3 != 0], found.expected))
    result = flow_losses(found, sent, headers(1 << 20, SOURCES))
    assert result.lossy_flows == 1 << 20
    assert sum(group.sent - group.received for group in result.groups[0].lossy) == -(-len(sent) // 3)
