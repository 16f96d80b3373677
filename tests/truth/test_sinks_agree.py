"""Two sinks, each at the end of its pair, report the same for the same frames: tcpdump, the reference, and bpf."""

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from dataclasses import replace
from tempfile import gettempdir
from typing import Any

import pytest

from netbench.bpf.libbpf import libbpf
from netbench.capture.counting import analyze_capture
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.hosts.trusted_code import module_command
from netbench.linux.changes import OffloadsOff
from netbench.linux.netns import namespace_path, within
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.packets.build import build_template
from netbench.sinks.base import Incoming
from netbench.sinks.bpf import BpfOptions, BpfSink
from netbench.sinks.measuring_window import received_of, settled
from netbench.sinks.tcpdump import TcpdumpSink
from tests.unit.inputs import impaired, topology

pytestmark = pytest.mark.root

FRAMES = 2000
IP, UDP, HEADER = 14, 34, 42
PATH = stream_paths(topology(1))[0]
USUAL = Stamps(first_sequence=0)
# Values that depend on the kind of a sink, and on when it read a frame.
OF_EACH = dict.fromkeys(
    ("first_ns", "last_ns", "window", "delay", "ipdv", "clock_offset", "matched", "by_ring", "by_tap")
)


PERCENTILES = ("median_ns", "p90_ns", "p99_ns", "p999_ns")

# The hook used at a NIC by its number of receive queues; native XDP needs as many as its peer's two send queues.
TCX, NATIVE, GENERIC = "tcx ingress", "xdp, native", "xdp, generic"
HOOKS = {TCX: ("tcx", 2), NATIVE: ("xdp", 2), GENERIC: ("xdp", 1)}


MINE = FrameSize("mine", (1518, 64, 64, 9018, 64, 594, 64))
MANY = FrameSize("many", tuple(range(64, 64 + 1024)))


class Wired(NamespaceHost):
    """A namespace with the pairs; the hook that its sink bpf is to request, and the hook that it then uses."""

    wanted: Any = ""
    taken = ""


class Far(Wired):
    """The same namespace, as if it were on another machine that netbench was copied to."""

    shares_files = False
    scratch = gettempdir()

    def module_command(self, module, *arguments):
        return module_command(module, *arguments)

    def bring(self, package):
        raise AssertionError(f"nothing here needs {package}")


@pytest.fixture
def host(request):
    """A namespace with the veth pairs tx0–rx0, for tcpdump, and tx1–rx1, which send nothing by themselves."""
    name, (wanted, queues) = f"nbt-sinks-{os.getpid()}", HOOKS[request.param]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        host = Wired(LocalHost("sinks", name), name)
        host.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        for n in range(2):
            peer = f"peer name rx{n} mtu 9216 numrxqueues {queues} numtxqueues {queues}"
            for command in (
                f"ip link add name tx{n} mtu 9216 numtxqueues 2 numrxqueues 2 type veth {peer}",
                f"ip link set dev tx{n} up",
                f"ip link set dev rx{n} up",
            ):
                assert host.run(command.split()).exit_code == 0, command
        OffloadsOff(name, "tx1", tagging=True).make(LocalHost("here", name))
        host.wanted, host.taken = wanted, request.param
        yield host
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


class Trial:
    """One trial with both sinks; its frames are sent one by one."""

    def __init__(self, host, tmp_path, *, frame_size=64, stamps=USUAL, frames=FRAMES, keep=False, far=False):
        """`far`: the sink bpf counts by a process, as on another host."""
        self.host, self.stamps = host, stamps
        self.size = frame_size if isinstance(frame_size, FrameSize) else FrameSize.of(frame_size)
        self.hosts = host, Far(host._host, host.netns) if far else host
        self.traffic = Traffic(
            "s1", "02:00:00:00:00:01", "02:00:00:00:00:02", PATH.src_ip, PATH.dst_ip, self.size, frames, 1, 1, 1
        )
        self.frames = build_template(self.traffic).frames
        self.sinks = TcpdumpSink(), BpfSink(BpfOptions(sample=1, hook=host.wanted))
        self.started_ns = time.time_ns()
        self.incoming = [
            Incoming(PATH, self.traffic, stamps, self.started_ns, tmp_path / name, keep) for name in ("tcpdump", "bpf")
        ]

    def __enter__(self):
        for number, (sink, host, incoming) in enumerate(zip(self.sinks, self.hosts, self.incoming, strict=True)):
            sink.open(host, f"rx{number}", [])
            sink.arm(incoming)
            assert sink.armed(10)
        assert f"hook={self.host.taken} (" in self.sinks[1].identity().details
        self.sockets = [self.opened(f"tx{number}") for number in range(2)]
        self.first_ns = time.time_ns()
        return self

    def opened(self, interface):
        """A socket that sends by an interface."""
        path = namespace_path(self.host.netns)
        opened = within(path, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        opened.bind((interface, 0))
        return opened

    def __exit__(self, *_):
        for sender in self.sockets:
            sender.close()
        for sink in self.sinks:
            sink.close()

    def test_frame(self, number, stamp_ns=None):
        """A frame of the stream, which can be altered."""
        frame = bytearray(self.frames[self.size.genome[number % len(self.size.genome)]])
        seconds, ns = divmod(time.time_ns() if stamp_ns is None else stamp_ns, 10**9)
        struct.pack_into("!III", frame, HEADER + 4, number % 2**32, seconds, ns // 1000)
        return frame

    def send(self, frame):
        for sender in self.sockets:
            sender.send(frame)

    def received(self, sent=FRAMES, **more):
        """The counts of both sinks."""
        first = self.stamps.first_sequence or 0
        report = Sent(sent, 0, 1.0, self.first_ns, time.time_ns(), 1, 0.0, first_sequence=first, **more)
        for sink in self.sinks:
            sink.stop(2.0)
        self.sent = report
        return [sink.received(report) for sink in self.sinks]


def without_percentiles(received):
    """The counts of a sink without its percentiles, which are not exact."""
    no_percentiles = dict.fromkeys(PERCENTILES)
    delay, ipdv = (spread and replace(spread, **no_percentiles) for spread in (received.delay, received.ipdv))
    return replace(received, delay=delay, ipdv=ipdv)


def compared(received):
    """What both sinks count in the same way, also where they read a frame at other times."""
    by_size = {size: counts.frames for size, counts in received.by_size.items()}
    return replace(received, **OF_EACH, by_size=by_size, counted_by="")


def percentiles(received):
    """The known percentiles, by kind of time and name."""
    spreads = {"delay": received.delay, "ipdv": received.ipdv}
    times = {(of, name): getattr(spread, name, None) for of, spread in spreads.items() for name in PERCENTILES}
    return {key: time for key, time in times.items() if time is not None}


ODD_BUT_OWN = (1, 2, 7)  # numbers of odd frames that are the stream's: fragment, other ports, options


def odd_frames(trial):
    """Frames that are not, or not quite, those of the stream."""
    now = time.time_ns()

    def altered(at, data, number=7, stamp_ns=now):
        frame = trial.test_frame(number, stamp_ns)
        frame[at : at + len(data)] = data
        return frame

    def with_options(words):
        frame = altered(IP, bytes([0x45 + words]))
        return frame[:UDP] + bytes([1] * 4 * words) + frame[UDP : len(frame) - 4 * words]

    other = bytes(map(int, PATH.src_ip_of(5).split(".")))
    yield altered(HEADER, b"\0")  # no magic
    yield altered(IP + 9, b"\x06")  # TCP
    yield altered(IP + 16, b"\x0a")  # to somebody else
    yield altered(IP + 12, b"\x0a")  # from somewhere else
    yield altered(IP + 6, b"\x00\x01")  # a later fragment
    yield altered(IP + 6, b"\x20\x00", 1)  # a first fragment
    yield altered(UDP, b"\x12\x34\x56\x78", 2)  # other ports
    yield altered(IP, b"\x65")  # another version
    yield altered(IP, b"\x44")  # a header that is too short
    yield with_options(1)
    yield with_options(2)  # whose header ends beyond 64 captured bytes
    yield altered(0, b"", FRAMES)  # a number that is not sent
    yield altered(0, b"", 2**32 - 1)
    yield altered(0, b"", 3, trial.started_ns - 10**9)  # stamped before the trial
    yield altered(IP + 12, other, 4)  # another trial's, but stamped in this one
    for number in range(3):
        yield altered(IP + 12, other, number, trial.started_ns - 10**9)  # late
    yield trial.test_frame(5) + b"\0" * 4  # too long
    yield trial.test_frame(5)[:-1]
    for size in trial.size.sizes:
        if size > len(trial.test_frame(5)) + 4:
            yield trial.test_frame(5).ljust(size - 4, b"\0")  # of another frame of the mix
    yield trial.test_frame(5)[:50]
    yield trial.test_frame(5)[:33]
    yield b"\x02" * 12 + b"\x08\x00"
    for tag in (b"\x81\x00\x00\x05", b"\x88\xa8\x00\x05"):
        frame = trial.test_frame(6)
        yield frame[:12] + tag + frame[12:]
        yield frame[:12] + tag + frame[12:-4]  # with the tag as long as a frame of the stream
        yield frame[:12] + tag * 2 + frame[12:-8]
    for address in ("0180c2000000", "0180c2000002", "0180c200000e"):
        yield bytes.fromhex(address).ljust(60, b"\x01")
    yield bytes.fromhex("0180c2000010").ljust(60, b"\x01")
    yield b"\x01" * 12 + b"\x88\xcc" + bytes(46)
    yield b"\xff" * 6 + b"\x02" * 6 + b"\x08\x06" + bytes(46)


@pytest.mark.parametrize(
    ("host", "frame_size", "far"),
    [
        *((TCX, size, size == 128) for size in (64, 65, 128, 1518, 9018)),
        *((NATIVE, size, False) for size in (64, 512, 3524, 9018)),
        *((GENERIC, size, False) for size in (65, 1518, 3524, 9018)),
        *((hook, mix, hook == NATIVE) for hook in HOOKS for mix in (IMIX, MINE, MANY)),
    ],
    indirect=["host"],
)
def test_both_count_the_same(host, tmp_path, frame_size, far):
    with Trial(host, tmp_path, frame_size=frame_size, far=far) as trial:
        order = impaired(range(FRAMES), trial.size.largest_bytes)
        for place, number in enumerate(order):
            trial.send(trial.test_frame(number))
            if place == 1000:
                for frame in odd_frames(trial):
                    trial.send(frame)
        theirs, ours = trial.received()
    assert theirs.error == ours.error == ""
    assert compared(theirs) == compared(ours)
    assert (ours.late, ours.control) == (3, 4)
    assert 0 not in (ours.duplicates, ours.reordered, ours.foreign, ours.loss_runs)
    assert ours.matched == ours.frames + ours.duplicates + ours.foreign + ours.late + ours.control
    genome, arrived = trial.size.genome, {*order, *ODD_BUT_OWN}
    of_sizes = Counter(genome[number % len(genome)] for number in arrived if number < FRAMES)
    if trial.size.is_mix:
        assert {size: counts.frames for size, counts in ours.by_size.items()} == {
            size: of_sizes[size] for size in trial.size.sizes
        }


STAMPS = {
    "usual": USUAL,
    "beyond 32 bits": Stamps(first_sequence=2**32 - 1500),
    "early stamps": Stamps(stamped_early=True, first_sequence=1),
    "no stamps": Stamps(stamped=False, first_sequence=1),
    "unknown numbers": Stamps(first_sequence=None),
}


@pytest.mark.parametrize(
    ("host", "kind", "frame_size"),
    [
        *((TCX, kind, 64) for kind in STAMPS),
        *((NATIVE, kind, 64) for kind in ("usual", "beyond 32 bits")),
        *((GENERIC, kind, 64) for kind in ("usual", "no stamps")),
        *((TCX, kind, MINE) for kind in STAMPS),
        *((NATIVE, kind, IMIX) for kind in ("usual", "beyond 32 bits")),
        (GENERIC, "beyond 32 bits", MANY),
    ],
    indirect=["host"],
    ids=str,
)
def test_times_and_order_are_those_of_a_capture_of_the_same_frames_at_the_same_moments(
    host, tmp_path, kind, frame_size
):
    """With the program's own capture of all frames, which has the times that it counted with."""
    stamps = STAMPS[kind]
    with Trial(host, tmp_path, frame_size=frame_size, stamps=stamps, keep=True) as trial:
        first = stamps.first_sequence or 0
        for number in impaired(range(first, first + FRAMES), 5):
            trial.send(trial.test_frame(number, None if stamps.stamped else 0))
        theirs, ours = trial.received(stamped=stamps.stamped, stamped_early=stamps.stamped_early)
        assert compared(theirs) == compared(ours)
        expected = settled(trial.incoming[1].expected, trial.sent)
        captured = received_of(analyze_capture(tmp_path / "bpf.sample.pcap", [expected]), trial.sent, trial.traffic)
    not_compared: dict[str, Any] = {
        "clock_offset": None,
        "counted_by": "",
        "matched": 0,
        "dropped": 0,
        "by_ring": False,
    }
    assert without_percentiles(replace(captured, **not_compared)) == without_percentiles(replace(ours, **not_compared))
    # Each is right within 0.05 %: both count in steps, but may start from different delays.
    assert percentiles(captured) == pytest.approx(percentiles(ours), rel=0.001, abs=1)
    assert (ours.delay is None) == (not stamps.stamped)
    assert ours.window is not None


@pytest.mark.parametrize(
    ("host", "protocol"),
    [(TCX, 0x8100), (TCX, 0x88A8), (NATIVE, 0x8100), (GENERIC, 0x88A8)],
    indirect=["host"],
)
def test_a_tag_that_the_kernel_keeps_beside_the_frame_is_seen(host, tmp_path, protocol):
    """Bridges and VLAN interfaces add it; here a program of five instructions at the egress does."""
    move, call, leave, push, goes_on, egress = 0xB7, 0x85, 0x95, 18, -1, 47  # linux/bpf.h
    code = ((move, 2, socket.htons(protocol)), (move, 3, 5), (call, 0, push), (move, 0, goes_on), (leave, 0, 0))
    packed = b"".join(struct.pack("=BBhi", *instruction[:2], 0, instruction[2]) for instruction in code)
    program = libbpf()("bpf_prog_load", 3, b"nbt_tag", b"GPL", packed, ctypes.c_size_t(len(code)), None)
    with Trial(host, tmp_path) as trial:
        trial.send(trial.test_frame(0))

        def tagging(interface):
            return libbpf()("bpf_link_create", program, socket.if_nametoindex(interface), egress, None)

        links = within(namespace_path(host.netns), lambda: [tagging(f"tx{number}") for number in range(2)])
        trial.send(trial.test_frame(1))
        for fd in (*links, program):
            os.close(fd)
        trial.send(trial.test_frame(2))
        report = trial.received()
    assert [(received.frames, received.foreign) for received in report] == [(2, 1)] * 2


@pytest.mark.parametrize("host", HOOKS, indirect=True)
def test_several_cpus_count_no_frame_twice_and_forget_none(host, tmp_path):
    """Two senders with frames of many flows, spread over all CPUs; their order is undefined."""
    for number in range(2):
        host.write(f"/sys/class/net/rx{number}/queues/rx-0/rps_cpus", f"{(1 << (os.cpu_count() or 1)) - 1:x}")
    with Trial(host, tmp_path, frames=8_000) as trial:

        def send(numbers):
            for number in numbers:
                frame = trial.test_frame(number)
                struct.pack_into("!H", frame, UDP, number % 60_000)
                trial.send(frame)

        order = impaired(range(8_000), 9)
        threads = [threading.Thread(target=send, args=(order[half::2],)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        theirs, ours = trial.received(8_000)
    of_order = {"reordered": None, "reordering_extent": None}
    assert replace(theirs, **OF_EACH, **of_order, counted_by="") == replace(ours, **OF_EACH, **of_order, counted_by="")
    assert ours.frames == len(set(order))
    assert ours.reordered
