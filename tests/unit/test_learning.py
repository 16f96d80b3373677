"""Learning frames of described packets: which ones, and when sinks send them again."""

from dataclasses import replace

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.packet import ANY, ListedValues, Packet, RandomValues, SteppedValues
from netbench.model.stream_paths import stream_paths
from netbench.packets.build import expected_headers
from netbench.packets.flow_values import values_of
from netbench.packets.learning import combinations, learning_headers
from netbench.trial.learning import LearningSchedule
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.packet_headers import retagged
from tests.unit.described_packets import Described, layers, traffic_of_packet, vary
from tests.unit.fakes import FakeSetup, fake_ports
from tests.unit.inputs import planned_trial, profile

SIZE = FrameSize.of(200)
SOURCE, SINK = "020000000001", "020000000002"  # of `traffic_of_packet`
SOURCE_TEXT, SINK_TEXT = "02:00:00:00:00:01", "02:00:00:00:00:02"
MACS = SteppedValues(0x020000000100, 1, 3)
M0, M1, M2 = "020000000100", "020000000101", "020000000102"
CHOSEN = ("Ether", {"dst": "02:00:00:00:01:00"})
TAG = "Dot1Q"


def described(*names, **fields) -> Packet:
    combined = fields.pop("combined", False)
    expect = fields.pop("expect", None)
    varying = tuple(vary(name.replace("_", "."), values) for name, values in fields.items())
    return Packet("p", layers(*names), varying, combined, expect)


# Each header: to, from, tags.
CASES = {
    "own MAC": (described("Ether", "IP", "UDP"), [SOURCE + SINK]),
    "chosen MAC": (described(CHOSEN, "IP", "UDP"), [SOURCE + M0]),
    "chosen MACs": (
        described(("Ether", {"dst": "02:00:00:00:01:00", "src": "02:00:00:00:01:02"}), "IPv6", "UDP"),
        [M2 + M0],
    ),
    "varied MACs": (described("Ether", "IP", "UDP", Ether_dst=MACS), [SOURCE + mac for mac in (M0, M1, M2)]),
    "listed MACs": (
        described("Ether", "IP", "UDP", Ether_dst=ListedValues((MACS.first + 1, MACS.first))),
        [SOURCE + M1, SOURCE + M0],
    ),
    "several flows of each MAC": (
        described("Ether", "IP", "UDP", Ether_dst=MACS, UDP_sport=SteppedValues(5, 1, 7)),
        [SOURCE + mac for mac in (M0, M1, M2)],
    ),
    "sources and ports": (
        described("Ether", "IP", "UDP", Ether_src=MACS, UDP_sport=SteppedValues(5, 1, 7)),
        [M0 + SINK],
    ),
    "sources and destinations": (
        described("Ether", "IP", "UDP", Ether_dst=MACS, Ether_src=SteppedValues(0x020000000200, 1, 2)),
        [f"02000000020{number}" + mac for number, mac in ((0, M0), (1, M1), (0, M2))],
    ),
    "a VLAN": (described("Ether", (TAG, {"vlan": 100, "prio": 3}), "IP", "UDP"), [SOURCE + SINK + "81006064"]),
    "VLANs": (
        described("Ether", TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((10, 20))),
        [SOURCE + SINK + tag for tag in ("8100000a", "81000014")],
    ),
    "priorities": (
        described("Ether", (TAG, {"vlan": 7}), "IP", "UDP", Dot1Q_prio=SteppedValues(0, 1, 8)),
        [SOURCE + SINK + "81000007"],
    ),
    "QinQ": (
        described("Ether", ("Dot1AD", {"vlan": 200}), (TAG, {"vlan": 100}), "IP", "UDP"),
        [SOURCE + SINK + "88a800c881000064"],
    ),
    "customers of QinQ": (
        described("Ether", ("Dot1AD", {"vlan": 2}), TAG, "IP", "UDP", Dot1Q_vlan=SteppedValues(1, 1, 2)),
        [SOURCE + SINK + tag for tag in ("88a8000281000001", "88a8000281000002")],
    ),
    "VLANs and MACs, independent": (
        described("Ether", TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((10, 20, 30)), Ether_dst=MACS),
        [SOURCE + M0 + "8100000a", SOURCE + M1 + "81000014", SOURCE + M2 + "8100001e"],
    ),
    "VLANs and MACs, combined": (
        described("Ether", TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((10, 20)), Ether_dst=MACS, combined=True),
        [SOURCE + mac + tag for mac in (M0, M1, M2) for tag in ("8100000a", "81000014")],
    ),
    "inside a tunnel": (
        described("Ether", "IP", "UDP", "VXLAN", CHOSEN, TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((10, 20))),
        [SOURCE + SINK],
    ),
    "a tag that the UUT removes": (
        described("Ether", TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((3, 4)), expect=layers("Ether", "IP", "UDP")),
        [SOURCE + SINK],
    ),
    "unknown addresses": (
        described(CHOSEN, "IP", "UDP", expect=layers(("Ether", {"src": ANY, "dst": ANY}), "IP", "UDP")),
        [SOURCE + SINK],
    ),
    "an unknown priority": (
        described("Ether", (TAG, {"vlan": 7}), "IP", "UDP", expect=layers("Ether", (TAG, {"prio": ANY}), "IP", "UDP")),
        [SOURCE + SINK + "81000007"],
    ),
    "an unknown VLAN": (
        described("Ether", (TAG, {"vlan": 7}), "IP", "UDP", expect=layers("Ether", (TAG, {"vlan": ANY}), "IP", "UDP")),
        [SOURCE + SINK],
    ),
    "an unknown VLAN inside": (
        described(
            *("Ether", ("Dot1AD", {"vlan": 2}), (TAG, {"vlan": 7}), "IP", "UDP"),
            expect=layers("Ether", ("Dot1AD", {"vlan": 2}), (TAG, {"vlan": ANY}), "IP", "UDP"),
        ),
        [SOURCE + SINK + "88a80002"],
    ),
    "a group": (described(("Ether", {"dst": "01:00:5e:00:00:01"}), "IP", "UDP"), []),
    "groups among others": (
        described("Ether", "IP", "UDP", Ether_dst=ListedValues((0xFFFFFFFFFFFF, MACS.first))),
        [SOURCE + M0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_there_is_a_learning_frame_for_each_address_and_vlan(name):
    packet, expected = CASES[name]
    headers = expected_headers(traffic_of_packet(packet, SIZE))
    assert [found.hex() for found in learning_headers(headers, SOURCE_TEXT, SINK_TEXT)] == expected


@pytest.mark.parametrize("name", [name for name in CASES if "unknown" not in name and "group" not in name])
def test_every_frame_that_arrives_has_been_announced(name):
    """The frames are built by scapy alone."""
    packet, _ = CASES[name]
    case = Described.of(packet, SIZE)
    headers = learning_headers(case.headers, SOURCE_TEXT, SINK_TEXT)
    announced = {header[6:12] + bytes(byte for at, byte in enumerate(header[12:])) for header in headers}
    tags = len(headers[0]) - 12
    for number in range(packet.flows):
        frame = case.frame(number, 0)
        without_priority = bytearray(frame[:6] + frame[12 : 12 + tags])
        if name == "priorities":
            without_priority[8] &= 0x1F
        assert bytes(without_priority) in announced, number


def test_random_addresses_are_those_of_the_seed():
    values = RandomValues(0x020000000100, 0x0200000001FF, 20)
    packet = described("Ether", "IP", "UDP", Ether_dst=values)
    traffic = replace(traffic_of_packet(packet, SIZE), seed=7)
    found = [
        int.from_bytes(header[6:]) for header in learning_headers(expected_headers(traffic), SOURCE_TEXT, SINK_TEXT)
    ]
    assert found == values_of(values, 7).tolist()


def test_vlans_are_those_behind_the_uut():
    packet = described("Ether", TAG, "IP", "UDP", Dot1Q_vlan=ListedValues((10, 20, 30)))
    headers = expected_headers(traffic_of_packet(packet, SIZE), lambda sent: retagged(sent, {10: 5, 30: 5}))
    found = [header[12:].hex() for header in learning_headers(headers, SOURCE_TEXT, SINK_TEXT)]
    assert found == ["81000005", "81000014"]


def test_the_mirrored_packet_announces_its_own_destinations():
    packet = described("Ether", "IP", "UDP", Ether_src=MACS).mirrored
    headers = expected_headers(traffic_of_packet(packet, SIZE))
    found = [header.hex() for header in learning_headers(headers, SOURCE_TEXT, SINK_TEXT)]
    assert found == [SOURCE + mac for mac in (M0, M1, M2)]


@pytest.mark.parametrize("flows", [1 << 20, 999_983])
def test_combinations_of_a_million_flows_are_counted(flows):
    packet = described(
        *("Ether", TAG, "IP", "UDP"),
        Ether_dst=SteppedValues(1 << 41, 1, flows // 16),
        UDP_sport=SteppedValues(1, 1, 4),
        Dot1Q_vlan=SteppedValues(1, 1, 5),
        combined=True,
    )
    template = expected_headers(traffic_of_packet(packet, SIZE)).template
    macs = flows // 16
    assert combinations(template) == len({(n % macs, n // (4 * macs) % 5) for n in range(template.flows)})


(PATH,) = [
    replace(path, source=replace(path.source, mac=SOURCE_TEXT), sink=replace(path.sink, mac=SINK_TEXT))
    for path in stream_paths(fake_ports())
]


def headers_of(macs: int, first: int = MACS.first):
    packet = described("Ether", "IP", "UDP", Ether_dst=SteppedValues(first, 1, macs))
    return expected_headers(traffic_of_packet(packet, SIZE))


def test_many_learning_frames_are_sent_before_bridges_forget_them():
    schedule, seconds = LearningSchedule(), 10**9
    few, many, others = headers_of(100), headers_of(101), headers_of(101, 1 << 41)

    def sent(headers, at_s: float, *, at_once: bool = False) -> int:
        return len(schedule.due_frames(PATH, headers, int(at_s * seconds), at_once=at_once))

    assert [sent(None, at_s) for at_s in (0, 1)] == [1, 1]
    assert [sent(few, at_s) for at_s in (0, 1)] == [100, 100]
    assert [sent(many, at_s) for at_s in (0, 1, 59.9)] == [101, 0, 0]
    assert [sent(others, at_s) for at_s in (50, 51, 59.9)] == [101, 0, 0], "each packet has its own time"
    assert [sent(many, at_s) for at_s in (60, 61)] == [101, 0]
    assert [sent(many, 62, at_once=True), sent(many, 121), sent(many, 122)] == [101, 0, 101]
    schedule.forget()
    assert [sent(many, 123), sent(many, 124)] == [101, 0]


def test_learning_frames_have_60_bytes_and_no_header_of_pktgen():
    frames = LearningSchedule().due_frames(PATH, headers_of(1), 0)
    assert [frame.hex() for frame in frames] == [f"{SOURCE}{M0}88b5".ljust(120, "0")]
    frames = LearningSchedule().due_frames(PATH, None, 0)
    assert [frame.hex() for frame in frames] == [f"{SOURCE}{SINK}88b5".ljust(120, "0")]


@pytest.mark.parametrize(("attempt", "again"), [(1, 0), (2, 1)])
def test_a_trial_sends_those_of_its_packet_and_repeats_them_if_it_is_repeated(tmp_path, attempt, again):
    packet = {
        "headers": "Ether()/Dot1Q(vlan=5)/IP()/UDP()",
        "vary": {"Ether.dst": {"from": "02:00:00:00:01:00", "count": 200}},
    }
    wanted = profile(frame_sizes=[128], packet={"name": "macs", **packet})
    fake = FakeSetup.on([PATH])
    setup = replace(fake.setup, packets=wanted.packets)
    trial = planned_trial(fake_ports(), wanted, ("s1",))
    for number in (1, attempt):
        run_trial(setup, trial, Recording(tmp_path), number)
    entries = [entry for entry in fake.log if entry.startswith("sink s1 learn ")]
    assert len(entries) == 1 + again
    expected = [f"{SOURCE}{MACS.first + number:012x}8100000588b5" for number in range(200)]
    assert entries[0].removeprefix("sink s1 learn ").split() == expected
