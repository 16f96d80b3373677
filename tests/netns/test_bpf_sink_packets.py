"""Described packets at the sink bpf: real frames at every hook, counted to the frame, and recounted from its sample.

Every frame is built by scapy. Each impairment states the fields that it changes.
"""

import os
import random
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netbench.capture.counting import analyze_capture
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes import OffloadsOff
from netbench.linux.changes.receive import ReceiveByNapi
from netbench.linux.netns import namespace_path, within
from netbench.model.frame_size import IMIX, IMIX_V6, FrameSize
from netbench.model.packet import Layer, ListedValues, Packet, RandomValues, SteppedValues
from netbench.model.packet_counts import MAX_GROUPS, PacketCounts
from netbench.model.received import Received
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Stamps
from netbench.packets.scapy_layers import scapy_classes
from netbench.sinks.base import Incoming
from netbench.sinks.bpf import BpfOptions, BpfSink
from netbench.sinks.measuring_window import settled
from tests.unit.described_packets import PACKETS, Described, vary
from tests.unit.inputs import impaired, topology

pytestmark = pytest.mark.root

PATH = stream_paths(topology(1))[0]
FRAMES = 800
# The hook used at a NIC by its number of receive queues; native XDP needs as many as its peer's two send queues.
TCX, NATIVE, GENERIC = "tcx ingress", "xdp, native", "xdp, generic"
HOOKS: dict[str, tuple[Any, int]] = {TCX: ("tcx", 2), NATIVE: ("xdp", 2), GENERIC: ("xdp", 1)}


# More flows than frames, four varying fields.
FLOWS = Packet(
    "flows",
    (Layer("Ether"), Layer("IPv6"), Layer("UDP")),
    (
        vary("Ether.src", SteppedValues(0x020000001000, 1, 64)),
        vary("IPv6.src", SteppedValues(int(ip_address("2001:2::10")), 3, 4096)),
        vary("UDP.sport", RandomValues(1024, 65535, 5000)),
        vary("UDP.dport", ListedValues((53, 80, 443))),
    ),
)


class Wire(NamedTuple):
    """A namespace with the pair tx–rx, and the hook that the sink bpf uses at rx."""

    host: NamespaceHost
    hook: str

    def sender(self) -> socket.socket:
        """A socket that sends out of tx."""
        path = namespace_path(self.host.netns)
        sender = within(path, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        sender.bind(("tx", 0))
        return sender


@pytest.fixture
def wire(request) -> Iterator[Wire]:
    name = f"nbt-packets-{os.getpid()}"
    queues = HOOKS[request.param][1]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        host = NamespaceHost(LocalHost("packets", name), name)
        host.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        for command in (
            "ip link add name tx mtu 9216 numtxqueues 2 numrxqueues 2 type veth "
            f"peer name rx mtu 9216 numrxqueues {queues} numtxqueues {queues}",
            "ip link set dev tx up",
            "ip link set dev rx up",
        ):
            assert host.run(command.split()).exit_code == 0, command
        OffloadsOff(name, "tx", tagging=True).make(LocalHost("here", name))
        yield Wire(host, request.param)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


class Trial:
    """One trial of the sink bpf, whose frames are sent one by one; its sample has all frames that it counted."""

    def __init__(self, wire: Wire, described: Described, sample: Path, frames: int = FRAMES) -> None:
        self.described, self.frames, self._wire, self._sample = described, frames, wire, sample
        traffic = replace(described.traffic, fps=float(frames), duration_s=1.0)
        self.started_ns = time.time_ns()
        self._incoming = Incoming(
            PATH, traffic, Stamps(first_sequence=0), self.started_ns, sample, keep=True, headers=described.headers
        )
        self._sink = BpfSink(BpfOptions(sample=1, hook=HOOKS[wire.hook][0]))

    def __enter__(self):
        self._sink.open(self._wire.host, "rx", [])
        self._sink.arm(self._incoming)
        assert self._sink.armed(10)
        assert f"hook={self._wire.hook} (" in self._sink.identity().details
        self._socket = self._wire.sender()
        self.first_ns = time.time_ns()
        return self

    def __exit__(self, *_):
        self._socket.close()
        self._sink.close()

    def frame(self, number: int, **changed: Any) -> bytes:
        """A frame of the stream, stamped now; arguments as those of Described.frame."""
        return self.described.frame(number, time.time_ns() // 1000, **changed)

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def received(self) -> tuple[Received, PacketCounts]:
        """The counts of the sink, and the counts of its sample as a capture."""
        sent = Sent(self.frames, 0, 1.0, self.first_ns, time.time_ns(), 1, 0.0)
        self._sink.stop(2.0)
        received = self._sink.received(sent)
        assert received.error == ""
        expected = settled(self._incoming.expected, sent)
        counts = analyze_capture(self._sample.with_name(f"{self._sample.name}.sample.pcap"), [expected])
        assert (counts.foreign_frames, counts.late_frames) == (received.foreign, received.late)
        (stream,) = counts.streams
        assert stream.packet is not None
        return received, stream.packet


@dataclass(frozen=True)
class Impairment:
    """What happens to a frame, and the fields that it changes: of one field for example `{"Dot1Q.vlan"}`.

    `fields` are new values of fields by layer and name; `change` changes scapy's packet, `at` a bit of one byte. Its
    size changes by `longer`, but not below `least`.
    """

    fields: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    change: Callable[[Any], Any] = lambda packet: packet
    at: int | None = None
    longer: int = 0
    least: int = 0
    changes: frozenset[str] = frozenset()

    def frame(self, trial: Trial, number: int) -> bytes:
        described = trial.described
        size = max(described.sent_size(number) + described.headers.longer + self.longer, self.least)
        frame = bytearray(trial.frame(number, fields=self.fields, change=self.change, size=size))
        if self.at is not None:
            frame[self.at] ^= 1
        return bytes(frame)


def further_tag(name: str) -> Callable[[Any], Any]:
    """A change that inserts a tag behind the addresses."""

    def tagged(packet: Any) -> Any:
        tag = scapy_classes()[name](vlan=9)
        return packet.__class__(dst=packet.dst, src=packet.src) / tag / packet.payload.copy()

    return tagged


def without_tag(packet: Any) -> Any:
    return packet.__class__(dst=packet.dst, src=packet.src) / packet.payload.payload.copy()


NOTHING = Impairment()
OTHER_HEADERS = frozenset({"headers"})
VLAN_TAG, SERVICE_TAG = (
    Impairment(change=further_tag(name), longer=4, changes=OTHER_HEADERS) for name in ("Dot1Q", "Dot1AD")
)
NO_TAG = Impairment(change=without_tag, longer=-4, changes=OTHER_HEADERS)
NO_TAG_PADDED = replace(NO_TAG, least=64)  # by a NIC
WRONG_MAC = Impairment({("Ether", "src"): "02:00:00:00:00:77"}, changes=frozenset({"Ether.src"}))


def changing(fields: Mapping[tuple[str, str], Any], *more: str) -> Impairment:
    """New values of fields, which also change `more` fields, such as checksums that scapy computes from them."""
    return Impairment(fields, changes=frozenset({*(".".join(name) for name in fields), *more}))


IMPAIRMENTS = {
    "plain": (
        WRONG_MAC,
        VLAN_TAG,
        SERVICE_TAG,
        changing({("IP", "ttl"): 63}, "IP.chksum"),
        Impairment(at=24, changes=frozenset({"IP.chksum"})),
    ),
    "ipv6": (
        VLAN_TAG,
        changing({("IPv6", "hlim"): 63}),
        changing({("IPv6", "tc"): 0xFF, ("IPv6", "fl"): 5}),
        changing({("IPv6", "dst"): "2001:2::77"}, "UDP.chksum"),
        Impairment(at=61, changes=frozenset({"UDP.chksum"})),
    ),
    "vlans": (
        NO_TAG,
        NO_TAG_PADDED,
        VLAN_TAG,
        SERVICE_TAG,
        changing({("Dot1Q", "vlan"): 31}),
        changing({("Dot1Q", "prio"): 3}),
        changing({("Dot1Q", "prio"): 7, ("Dot1Q", "dei"): 1}),
        changing({("IP", "ttl"): 63}, "IP.chksum"),
        Impairment(at=23 + 4, changes=frozenset({"IP.proto"})),
        Impairment(at=34 + 5, changes=frozenset({"UDP.sport"})),
    ),
    "qinq": (NO_TAG, VLAN_TAG, changing({("Dot1AD", "vlan"): 201}), changing({("Dot1Q", "vlan"): 1})),
    "vxlan": (
        VLAN_TAG,
        changing({("VXLAN", "vni"): 43}),
        changing({("UDP", "sport"): 1}),
        Impairment(at=50 + 8, changes=frozenset({"Ether:2.src"})),
        Impairment(at=50 + 14 + 8, changes=frozenset({"IP:2.ttl"})),
    ),
    "tcp": (changing({("TCP", "window"): 1}, "TCP.chksum"), Impairment(at=51, changes=frozenset({"TCP.chksum"}))),
    "flows": (WRONG_MAC, VLAN_TAG, changing({("IPv6", "hlim"): 63})),
    "pop": (VLAN_TAG, SERVICE_TAG, changing({("IP", "ttl"): 63}, "IP.chksum")),
    "macs": (WRONG_MAC, Impairment(at=29, changes=frozenset({"IP.src"}))),
}
SIZES = {"plain": 64, "ipv6": 96, "vlans": 67, "qinq": 128, "vxlan": 256, "tcp": 1518}
SIZES |= {"macs": 3500, "pop": 80, "flows": 96}
# The headers of the sizes of a mix have different lengths and checksums.
MIXES = (
    ("plain", IMIX),
    ("ipv6", IMIX_V6),
    ("vlans", IMIX_V6),
    ("vlans", FrameSize("own", (67, 1518, 67, 594, 130))),
    ("vxlan", FrameSize("own", (113, 9000, 128))),
    ("tcp", FrameSize("own", (1518, 594, 80, 80, 80, 80, 81))),
    ("flows", FrameSize("many", tuple(range(84, 84 + 1024)))),
    ("pop", FrameSize("own", (69, 67, 68))),
)


@dataclass
class Recount:
    """The counts of frames, one after the other."""

    flows: int
    received: set[int] = field(default_factory=set)
    highest: dict[int, int] = field(default_factory=dict)
    top: int = -1
    duplicates: int = 0
    reordered: int = 0
    reordered_in_flows: int = 0
    changed_frames: int = 0
    changed: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, impairment: Impairment) -> None:
        if number in self.received:
            self.duplicates += 1
            return
        flow = number % self.flows
        self.received.add(number)
        self.reordered += number < self.top
        self.reordered_in_flows += number < self.highest.get(flow, -1)
        self.top, self.highest[flow] = max(self.top, number), max(number, self.highest.get(flow, -1))
        self.changed_frames += bool(impairment.changes)
        self.changed.update(impairment.changes)

    def lossy_flows(self, frames: int) -> int:
        return len({number % self.flows for number in range(frames) if number not in self.received})


def send_foreign(trial: Trial) -> tuple[int, int]:
    """Send frames that are not the stream's, or not of this trial; return how many are foreign, and how many late."""
    described, earlier_us = trial.described, (trial.started_ns - 10**9) // 1000
    longer = described.headers.longer
    size = described.sent_size(0) + longer
    of_others = {other + longer for other in described.traffic.frame_size.sizes} - {size, 64 if size < 64 else 0}
    wrong = [trial.frame(0, size=other) for other in sorted(of_others)[:5]]
    for frame in (
        *wrong,
        trial.frame(trial.frames),
        trial.frame(2**32 - 1),
        trial.frame(0, size=size + 1),
        trial.frame(0, size=size + 4),
        trial.frame(0)[:-1],
        described.frame(0, 0),  # no stamp
    ):
        trial.send(frame)
    for number in range(3):
        trial.send(described.frame(number, earlier_us))
    at = described.headers.template.payload_at
    without_magic = bytearray(trial.frame(1))
    without_magic[at] ^= 1
    trial.send(bytes(without_magic))
    trial.send(trial.frame(1)[: at + 15])
    trial.send(trial.frame(1)[:20])
    return 6 + len(wrong), 3


@pytest.mark.parametrize(
    ("wire", "name", "frame_size"),
    [
        *((TCX, name, FrameSize.of(SIZES[name])) for name in IMPAIRMENTS),
        *((NATIVE, name, FrameSize.of(SIZES[name])) for name in IMPAIRMENTS),
        *((GENERIC, name, FrameSize.of(SIZES[name])) for name in ("ipv6", "vlans", "qinq")),
        *((hook, name, mix) for hook in (TCX, NATIVE) for name, mix in MIXES),
        *((GENERIC, name, mix) for name, mix in MIXES[1:4]),
    ],
    indirect=["wire"],
    ids=str,
)
def test_each_change_loss_and_late_frame_is_counted(wire, name, frame_size, tmp_path):
    described = Described.of((PACKETS | {"flows": FLOWS})[name], frame_size)
    recount, draw = Recount(described.headers.flows), random.Random(name)
    with Trial(wire, described, tmp_path / "trial") as trial:
        for place, number in enumerate(impaired(range(FRAMES), 7)):
            impairment = draw.choice(IMPAIRMENTS[name]) if draw.random() < 0.3 else NOTHING
            trial.send(impairment.frame(trial, number))
            recount.add(number, impairment)
            if place == FRAMES // 2:
                foreign, late = send_foreign(trial)
        received, in_sample = trial.received()
    packet = received.packet
    assert packet is not None
    assert (received.frames, received.duplicates) == (len(recount.received), recount.duplicates)
    assert (received.foreign, received.late, received.control) == (foreign, late, 0)
    assert (received.reordered, packet.reordered_in_flows) == (recount.reordered, recount.reordered_in_flows)
    assert (packet.changed_frames, packet.changed_by_field) == (recount.changed_frames, dict(recount.changed))
    assert (packet.flows, packet.lossy_flows) == (recount.flows, recount.lossy_flows(FRAMES))
    assert packet == in_sample
    of_sizes = Counter(described.sent_size(number) for number in recount.received)
    by_size = {size: of_sizes[size] for size in frame_size.sizes} if frame_size.is_mix else {}
    assert {size: counts.frames for size, counts in received.by_size.items()} == by_size
    assert set(packet.changed_by_field) == {name for change in IMPAIRMENTS[name] for name in change.changes}


@pytest.mark.parametrize("wire", HOOKS, indirect=True)
@pytest.mark.parametrize("frame_size", [FrameSize.of(96), FrameSize("own", (96, 1518, 97))], ids=str)
def test_all_cpus_count_exactly(wire, frame_size, tmp_path):
    """Two senders, whose frames go to all CPUs: their order is undefined, the sums are not."""
    wire.host.write("/sys/class/net/rx/queues/rx-0/rps_cpus", f"{(1 << (os.cpu_count() or 1)) - 1:x}")
    described, frames = Described.of(PACKETS["vlans"], frame_size), 6000
    impairments = IMPAIRMENTS["vlans"][3:]
    with Trial(wire, described, tmp_path / "trial", frames) as trial:
        sent = [impairments[number % 10 - 3] if 2 < number % 10 < 9 else NOTHING for number in range(frames)]

        def send(numbers: range) -> None:
            with wire.sender() as sender:
                for number in numbers:
                    frame = sent[number].frame(trial, number)
                    for _ in range(1 + (number % 7 == 0)):
                        sender.send(frame)

        threads = [threading.Thread(target=send, args=(range(half, frames, 2),)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        received, _ = trial.received()
    packet = received.packet
    assert packet is not None
    changed = Counter(name for impairment in sent for name in impairment.changes)
    assert (received.frames, received.duplicates, received.foreign) == (frames, -(-frames // 7), 0)
    assert (packet.changed_frames, packet.changed_by_field) == (
        sum(bool(impairment.changes) for impairment in sent),
        dict(changed),
    )
    assert packet.lossy_flows == 0
    by_size = frame_size.frames_by_size(range(frames)) if frame_size.is_mix else {}
    assert {size: counts.frames for size, counts in received.by_size.items()} == by_size


@pytest.mark.parametrize("wire", HOOKS, indirect=True)
def test_one_sink_counts_plain_and_described_trials_in_turn(wire, tmp_path):
    """The programs replace each other at the hook, and none has counts of the trial before."""
    sink = BpfSink(BpfOptions(sample=1, hook=HOOKS[wire.hook][0]))
    sink.open(wire.host, "rx", [])
    with closing(sink), wire.sender() as sender:
        small, mix = FrameSize.of(96), FrameSize("own", (96, 594, 97, 96, 600))
        for frames, name, frame_size in (
            *((50, "", small), (70, "flows", small), (60, "", small), (90, "ipv6", small), (80, "flows", small)),
            *((40, "flows", IMIX_V6), (55, "", IMIX), (65, "", mix), (75, "ipv6", mix), (85, "ipv6", small)),
            *((45, "flows", IMIX_V6), (35, "", small)),
        ):
            described = Described.of((PACKETS | {"flows": FLOWS})[name or "plain"], frame_size)
            headers = described.headers if name else None
            traffic = replace(described.traffic, fps=float(frames))
            first_ns = time.time_ns()
            sink.arm(Incoming(PATH, traffic, Stamps(first_sequence=0), first_ns, tmp_path / "trial", headers=headers))
            assert sink.armed(10)
            for number in range(frames):
                sender.send(described.frame(number, time.time_ns() // 1000))
            sink.stop(2.0)
            received = sink.received(Sent(frames, 0, 1.0, first_ns, time.time_ns(), 1, 0.0))
            assert (received.frames, received.foreign, received.error) == (frames, 0, "")
            assert (received.packet is None) == (not name)
            by_size = frame_size.frames_by_size(range(frames)) if frame_size.is_mix else {}
            assert {size: counts.frames for size, counts in received.by_size.items()} == by_size
            assert not received.packet or (received.packet.changed, received.packet.lossy_flows) == ((), 0)


@pytest.mark.parametrize("wire", [TCX, NATIVE], indirect=True)
@pytest.mark.parametrize("frame_size", [FrameSize.of(64), FrameSize("own", (64, 128, 64, 66))], ids=str)
def test_a_million_flows_arrive_unchanged(wire, frame_size, tmp_path):
    """From the source xdp. Frames that the ring before the receiver rejects are lost in the groups of their flows."""
    flows = 1 << 20
    fields = (
        vary("IP.src", SteppedValues(int(ip_address("198.18.1.0")), 1, flows)),
        vary("IP.dst", SteppedValues(int(ip_address("198.19.1.0")), 1, 65_536)),
        vary("UDP.sport", RandomValues(1024, 65_535, 32_768)),
        vary("UDP.dport", SteppedValues(1024, 1, 16_384)),
    )
    described = Described.of(Packet("flows", (Layer("Ether"), Layer("IP"), Layer("UDP")), fields), frame_size)
    assert described.headers.flows == flows
    traffic = replace(described.traffic, fps=flows / 2.0, duration_s=2.5)
    source, sink = XdpSource(), BpfSink(BpfOptions(hook=HOOKS[wire.hook][0]))
    ReceiveByNapi(wire.host.netns, "rx").make(LocalHost("here", "packets"))
    with closing(source), closing(sink):
        source.open(wire.host, "tx", [])
        source.prepare(traffic)
        sink.open(wire.host, "rx", [])
        stamps = source.stamps(traffic)
        sink.arm(Incoming(PATH, traffic, stamps, time.time_ns(), tmp_path / "trial", headers=described.headers))
        assert sink.armed(10)
        source.start(time.monotonic_ns() + 20_000_000)
        sent = source.wait(30)
        assert sent.error == ""
        time.sleep(0.1)
        sink.stop(5.0)
        received = sink.received(sent)
    packet = received.packet
    assert packet is not None
    assert received.frames is not None
    assert received.window is not None
    if frame_size.is_mix:
        # Times are kept of every second frame of each size: the sizes of a window differ by few frames from its sum.
        of_window = [counts.window_frames or 0 for counts in received.by_size.values()]
        assert sum(of_window) == pytest.approx(received.window.frames, abs=16)
        assert sum(counts.frames for counts in received.by_size.values()) == received.frames
    assert (received.foreign, received.late, received.error) == (0, 0, "")
    assert received.frames > flows // 8  # other load on the machine stops the receiver
    assert (packet.flows, packet.changed, packet.reordered_in_flows) == (flows, (), 0)
    lost = sent.frames - received.frames
    assert (packet.lossy_flows == 0) == (lost == 0)
    assert (packet.lossy_flows or 0) <= lost
    for groups, name in zip(packet.groups, ("IP.src", "IP.dst", "UDP.sport", "UDP.dport"), strict=True):
        assert (groups.field, groups.groups) == (name, MAX_GROUPS)
        assert sum(group.sent - group.received for group in groups.lossy) == lost
