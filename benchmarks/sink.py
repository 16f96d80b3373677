"""The maximum rates of netbench's sinks, and their CPU time per frame: tcpdump, bpf, and no sink, on one link.

The source `xdp` sends over a veth pair whose other end receives like a NIC (NAPI, on the last CPU, before processes,
like interrupts), in a separate network namespace. The rate rises by a quarter while a sink counts every frame received.
Two rates are reported: the most frames received per second while the sink counted all of them, regardless of the frames
that the ring of 256 frames before it rejected; and the highest rate at which that ring also accepted 99.5 %. Other load
on this host sometimes stops the thread that empties the ring, or the source, which then sends a burst. At millions of
frames per second the ring is too small for that, with any sink. Other load makes a measurement worse, never better, so
each rate is tried several times. CPU time per frame is that of the receiving thread, of this process, and of processes
started by the sink, at a rate that all sinks sustain. Trials must be longer than the second that tcpdump can buffer.

The second table has the sink bpf with described packets: four varying fields, in 1,000 and in 1,000,000 flows. It also
has a mix of frame sizes (imix). The source sends without a rate limit. A frame's CPU time is then that of the receiving
thread alone, and its inverse is the rate at which the sink occupies one CPU, on a busy host, too. Plain and described
frames take turns. Finally, a million flows are sent at 2 million frames/s.

    sudo python benchmarks/sink.py [--rounds N] [--seconds S] [--frame-size BYTES] [--packets]
"""

import argparse
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes.receive import BindThread, ReceiveByNapi, threads_of
from netbench.linux.netns import namespace_path, within
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import FieldRef, Layer, Packet, RandomValues, SteppedValues, Values, VaryingField
from netbench.model.packet_counts import PacketCounts
from netbench.model.paths import Nic, StreamPath
from netbench.model.traffic import Stamps, Traffic
from netbench.packets.build import expected_headers
from netbench.sinks.base import Incoming, Sink
from netbench.sinks.bpf import BpfOptions, BpfSink
from netbench.sinks.tcpdump import TcpdumpSink

SINKS = {
    "none": None,
    "tcpdump": TcpdumpSink,
    "bpf, tcx": lambda: BpfSink(BpfOptions(hook="tcx")),
    "bpf, xdp": lambda: BpfSink(BpfOptions(hook="xdp")),
}
LEAST_FPS, STEP, MODEST_FPS, MOST_FPS = 200_000, 1.25, 400_000, 6_000_000
PACED_FPS = 2_000_000
ATTEMPTS = 4
RING_HOLDS = 0.995  # share of the frames sent
CPU = (os.cpu_count() or 1) - 1
PATH = StreamPath(
    "benchmark",
    1,
    Nic("host", None, None, "tx", "02:00:00:00:00:01", is_port=False),
    None,
    None,
    Nic("host", None, None, "rx", "02:00:00:00:00:02", is_port=False),
    1e9,
)


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that all is cleaned up
    try:
        if os.geteuid() != 0:
            raise MissingError("network namespaces and BPF programs need root; run it with sudo")
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # and of all that is started here
        with link() as (host, thread), closing(XdpSource()) as source:
            source.open(host, "tx", [0])
            bench = Bench(host, thread, source, options.frame_size, options.seconds)
            if not options.packets:
                compare(bench, options.rounds)
            compare_packets(bench, options.rounds)
            pace_flows(bench)
    except NetbenchError as error:
        print(f"benchmarks/sink.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what sinks hold, and what a frame costs with them")
    parser.add_argument("--rounds", type=int, default=3, help="how often the cost is measured (default: 3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement (default: 2)")
    parser.add_argument("--frame-size", type=int, default=64, help="bytes with FCS, 64–1518 (default: 64)")
    parser.add_argument("--packets", action="store_true", help="measure only described packets")
    options = parser.parse_args()
    if options.rounds < 1 or not 0.1 <= options.seconds <= 60 or not 64 <= options.frame_size <= 1518:
        parser.error("at least 1 round, 0.1–60 seconds, frames of 64–1518 bytes")
    return options


@contextmanager
def link() -> Iterator[tuple[NamespaceHost, int]]:
    """A separate namespace with the pair tx – rx, removed afterwards, and the thread that receives at rx."""
    name = f"nb-bench-{os.getpid()}"
    here, inside = LocalHost("here", name), NamespaceHost(LocalHost("bench", name), name)
    run_checked(here, ["ip", "netns", "add", name])
    try:
        for scope in ("all", "default"):
            inside.write(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "1")
        run_checked(inside, ["ip", "link", "add", "name", "tx", "type", "veth", "peer", "name", "rx"])
        for interface in ("tx", "rx"):
            run_checked(inside, ["ip", "link", "set", "dev", interface, "up"])
        before = threads_of(here, "rx")
        ReceiveByNapi(name, "rx").make(here)
        ((thread, known_as),) = threads_of(here, "rx").items() - before.items()
        BindThread(name, known_as, (CPU,), thread).make(here)
        yield inside, thread
    finally:
        run_checked(here, ["ip", "netns", "delete", name])


class Bench:
    """Trials on one link."""

    def __init__(self, host: NamespaceHost, thread: int, source: XdpSource, frame_size: int, seconds: float) -> None:
        self._host, self._thread, self._source = host, thread, source
        self._frame_size, self.seconds = frame_size, seconds
        self._scratch = tempfile.gettempdir()

    def trial(self, sink: Sink | None, fps: float) -> tuple[int, int, int, float]:
        """Frames sent, frames received, frames counted, and CPU time per frame received, in ns."""
        used_ns = self._used_ns()
        result = self.measured(sink, self._traffic(fps), None)
        return result.sent, result.came, result.counted, (self._used_ns() - used_ns) / max(1, result.came)

    def described(
        self, sink: Sink | None, packet: Packet | None, fps: float | None = None, mix: FrameSize | None = None
    ) -> "Measured":
        """A trial of this packet or of plain frames, of one size or a mix; without a rate limit by default."""
        traffic = replace(self._traffic(fps), packet=packet)
        if mix is not None:
            traffic = replace(traffic, frame_size=mix)
        return self.measured(sink, traffic, expected_headers(traffic) if packet else None)

    def measured(self, sink: Sink | None, traffic: Traffic, headers: ExpectedHeaders | None) -> "Measured":
        """One trial."""
        self._source.prepare(traffic)
        arrived = self._arrived()
        if sink is not None:
            record = Path(self._scratch, "benchmark")
            sink.arm(Incoming(PATH, traffic, Stamps(first_sequence=0), time.time_ns(), record, headers=headers))
            if not sink.armed(10):
                raise TestbedError("the sink does not receive")
        used_ns = self._receiver_ns()
        self._source.start(time.monotonic_ns() + 20_000_000)
        sent = self._source.wait(10 * self.seconds + 10)
        if sent.error:
            raise TestbedError(f"xdp: {sent.error}")
        wait_until(lambda: self._arrived() - arrived >= sent.frames, 0.1)
        came, used_ns = self._arrived() - arrived, self._receiver_ns() - used_ns
        if sink is None:
            return Measured(sent.frames, came, came, used_ns, None)
        sink.stop(5)
        received = sink.received(sent)
        return Measured(sent.frames, came, received.frames or 0, used_ns, received.packet)

    def _traffic(self, fps: float | None) -> Traffic:
        size = FrameSize.of(self._frame_size)
        macs, addresses = (PATH.source.mac, PATH.sink.mac), (PATH.src_ip, PATH.dst_ip)
        return Traffic("benchmark", *macs, *addresses, size, fps, self.seconds, 1, 1)

    def sink(self, kind: str) -> Sink | None:
        """A sink of this kind, opened; None for no sink."""
        make = SINKS[kind]
        if make is None:
            return None
        sink: Sink = make()
        sink.open(self._host, "rx", [CPU])
        return sink

    def _arrived(self) -> int:
        lines = within(namespace_path(self._host.netns), Path("/proc/thread-self/net/dev").read_text).splitlines()
        return next(int(words[2]) for words in map(str.split, lines) if words[0] == "rx:")

    def _used_ns(self) -> int:
        """CPU time so far: of the receiving thread, of this process, and of processes that have ended."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return self._receiver_ns() + time.process_time_ns() + round(1e9 * (children.ru_utime + children.ru_stime))

    def _receiver_ns(self) -> int:
        """CPU time so far of the receiving thread."""
        return int(Path(f"/proc/{self._thread}/schedstat").read_text().split()[0])


@dataclass(frozen=True, slots=True)
class Measured:
    """Frames of one trial: sent, received, and counted; CPU time of the receiving thread; counts of a packet."""

    sent: int
    came: int
    counted: int
    receiver_ns: int
    packet: PacketCounts | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The maximum rates of a sink, in frames/s.

    `counted_fps` is the highest rate received while the sink counted every frame. `held_fps` is the highest rate of
    which the ring before it also accepted nearly all frames: all but the ratio `ring_full`.
    """

    counted_fps: float
    held_fps: float
    ring_full: float


def compare(bench: Bench, rounds: int) -> None:
    print(
        f"{'sink':<10}{'loses none, frames/s':>22}{'of tcpdump':>12}{'nor the ring':>14}{'of tcpdump':>12}"
        f"{'ring full':>11}{'ns/frame':>11}{'of tcpdump':>12}"
    )
    found = {kind: ceiling(bench, kind) for kind in SINKS}
    reference = found["tcpdump"]
    if not reference.held_fps:
        raise TestbedError(f"not even {LEAST_FPS:,} frames/s arrive without loss: this host is too busy")
    costs: dict[str, list[float]] = {kind: [] for kind in SINKS}
    for _ in range(rounds):
        for kind in SINKS:
            with at_work(bench, kind) as sink:
                costs[kind].append(bench.trial(sink, MODEST_FPS)[-1])
    cost = {kind: statistics.median(values) for kind, values in costs.items()}
    for kind, measured in found.items():
        print(
            f"{kind:<10}{measured.counted_fps:>22,.0f}{measured.counted_fps / reference.counted_fps:>12.2f}"
            f"{measured.held_fps:>14,.0f}{measured.held_fps / reference.held_fps:>12.2f}{measured.ring_full:>11.4%}"
            f"{cost[kind]:>11,.0f}{cost[kind] / cost['tcpdump']:>12.2f}"
        )


def four_fields(flows: int) -> Packet:
    """A packet whose addresses and ports vary, in this many flows."""
    first, few = int(IPv4Address("198.18.1.0")), 1_000
    values: dict[FieldRef, Values] = {
        FieldRef("IP", "src"): SteppedValues(first, 1, flows),
        FieldRef("IP", "dst"): SteppedValues(first + (1 << 16), 1, few),
        FieldRef("UDP", "sport"): RandomValues(1024, 65_535, few),
        FieldRef("UDP", "dport"): SteppedValues(1024, 1, few),
    }
    layers = Layer("Ether"), Layer("IP"), Layer("UDP")
    return Packet(f"{flows:,} flows", layers, tuple(VaryingField(ref, of) for ref, of in values.items()))


def compare_packets(bench: Bench, rounds: int) -> None:
    """Print the rate of the sink bpf with plain frames and with described packets, by hook."""
    print(f"{'hook':<6}{'frames':<18}{'ns/frame':>9}{'a CPU counts, frames/s':>24}{'of plain':>10}{'lossy flows':>13}")
    cases = [(packet, None) for packet in (None, four_fields(1_000), four_fields(1_000_000))]
    mixes: list[tuple[Packet | None, FrameSize | None]] = [(None, IMIX), (four_fields(1_000), IMIX)]
    for hook in ("tcx", "xdp"):
        trials: dict[str, list[Measured]] = {}
        with at_work(bench, f"bpf, {hook}") as sink:
            for packet, mix in [*cases, *mixes] * rounds:
                measured = bench.described(sink, packet, mix=mix)
                check(measured)
                name = packet.name if packet else "plain"
                trials.setdefault(f"{name} {mix}" if mix else name, []).append(measured)
        costs = {name: min(run.receiver_ns / run.came for run in measured) for name, measured in trials.items()}
        for name, cost in costs.items():
            counts = trials[name][-1].packet
            lossy = "" if counts is None else f"{counts.lossy_flows:,}"
            print(f"{hook:<6}{name:<18}{cost:>9,.0f}{1e9 / cost:>24,.0f}{costs['plain'] / cost:>10.2f}{lossy:>13}")


def pace_flows(bench: Bench) -> None:
    """Print how many of a million flows lost frames at PACED_FPS, in the best of several trials.

    Only the ring before the sink loses frames: `check` compares its losses with those of the flows.
    """
    packet, trials = four_fields(1_000_000), []
    with at_work(bench, "bpf, xdp") as sink:
        for _ in range(ATTEMPTS):
            trials.append(bench.described(sink, packet, PACED_FPS))
            check(trials[-1])
            if trials[-1].came == trials[-1].sent:
                break
    best = max(trials, key=lambda measured: measured.came)
    assert best.packet is not None
    print(
        f"{packet.name} at {PACED_FPS:,} frames/s: {best.sent:,} sent, {best.sent - best.came:,} lost in the ring, "
        f"{best.packet.lossy_flows:,} flows with losses"
    )


def check(measured: Measured) -> None:
    """TestbedError if the sink counted other frames than those that came, or found them changed."""
    packet = measured.packet
    if measured.counted != measured.came:
        raise TestbedError(f"of {measured.came:,} frames, the sink counted {measured.counted:,}")
    if packet is None:
        return
    if packet.changed or packet.reordered_in_flows:
        raise TestbedError(f"frames arrived unchanged and in order, but the sink counted {packet}")
    lost = [sum(group.sent - group.received for group in groups.lossy) for groups in packet.groups]
    if lost != [measured.sent - measured.came] * len(packet.groups):
        raise TestbedError(f"{measured.sent - measured.came:,} frames were lost, but the groups of flows lost {lost}")


def ceiling(bench: Bench, kind: str) -> Ceiling:
    """The ceiling of a sink, with rates that rise until the sink loses frames; all 0 if it always does."""
    fps, found = float(LEAST_FPS), Ceiling(0.0, 0.0, 0.0)
    with at_work(bench, kind) as sink:
        while fps <= MOST_FPS and (lossless := tried(bench, sink, fps)):
            most, (sent, came) = max(came for _, came in lossless), lossless[-1]
            found = replace(found, counted_fps=max(found.counted_fps, most / bench.seconds))
            if came >= RING_HOLDS * sent:
                found = replace(found, held_fps=fps, ring_full=1 - came / sent)
            fps *= STEP
    return found


def tried(bench: Bench, sink: Sink | None, fps: float) -> list[tuple[int, int]]:
    """Frames sent and frames received, of the trials at a rate in which the sink counted all frames received.

    The last one is the first trial for which the ring was large enough, if any.
    """
    lossless = []
    for _ in range(ATTEMPTS):
        sent, came, counted, _ns = bench.trial(sink, fps)
        if counted == came:
            lossless.append((sent, came))
            if came >= RING_HOLDS * sent:
                break
    return lossless


@contextmanager
def at_work(bench: Bench, kind: str) -> Iterator[Sink | None]:
    """A sink that is ready, closed afterwards."""
    sink = bench.sink(kind)
    try:
        yield sink
    finally:
        if sink is not None:
            sink.close()


if __name__ == "__main__":
    main()
