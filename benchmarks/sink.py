"""What netbench's sinks hold, and what a frame costs with them: tcpdump, bpf, and none, on one link.

The source `xdp` sends over a veth pair whose other end receives as a NIC does (NAPI, on the last CPU, before processes,
like the interrupts of one), in a network namespace made for it. Rates rise by a quarter for as long as a sink counts
every frame that came in, and the ring of 256 frames before it has room for 99.5 % of what was sent: what else this host
does stops the thread that empties it for a moment now and then, whatever the sink. One that is too slow loses more, its
own frames or the ring's. What a sink counts is told apart from what the ring holds too: the most frames in a second
that came in when it counted every one of them, however many more were sent. Other work spoils a measurement and never
improves one: a rate is tried a few times. CPU time per frame is that of the receiving thread, of this process, and of
those that the sink starts, at a rate that all can hold. Trials must be longer than the second that tcpdump's buffer
holds.

    sudo python benchmarks/sink.py [--rounds N] [--seconds S] [--frame-size BYTES]
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
from pathlib import Path

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.composed import Namespaced
from netbench.hosts.local import LocalHost
from netbench.linux.changes.napi import BindThread, ReceiveByNapi, threads_of
from netbench.linux.netns import namespace_path, within
from netbench.model.paths import Nic, StreamPath
from netbench.model.traffic import Stamps, Traffic
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
ATTEMPTS = 4
RING_HOLDS = 0.995  # of the frames sent
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
            compare(Bench(host, thread, source, options.frame_size, options.seconds), options.rounds)
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
    options = parser.parse_args()
    if options.rounds < 1 or not 0.1 <= options.seconds <= 60 or not 64 <= options.frame_size <= 1518:
        parser.error("at least 1 round, 0.1–60 seconds, frames of 64–1518 bytes")
    return options


@contextmanager
def link() -> Iterator[tuple[Namespaced, int]]:
    """A namespace of our own with the pair tx – rx in it, gone afterwards; and the thread that receives at rx."""
    name = f"nb-bench-{os.getpid()}"
    here, inside = LocalHost("here", name), Namespaced(LocalHost("bench", name), name)
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

    def __init__(self, host: Namespaced, thread: int, source: XdpSource, frame_size: int, seconds: float) -> None:
        self._host, self._thread, self._source = host, thread, source
        self._frame_size, self.seconds = frame_size, seconds
        self._scratch = tempfile.gettempdir()

    def trial(self, sink: Sink | None, fps: float) -> tuple[int, int, int, float]:
        """Frames sent, frames that came in, frames counted, and CPU time per frame that came in, in ns."""
        traffic = Traffic(
            "benchmark",
            PATH.source.mac,
            PATH.sink.mac,
            PATH.src_ip,
            PATH.dst_ip,
            self._frame_size,
            fps,
            self.seconds,
            1,
            1,
        )
        self._source.prepare(traffic)
        arrived = self._arrived()
        if sink is not None:
            sink.arm(
                Incoming(PATH, traffic, Stamps(first_sequence=0), time.time_ns(), Path(self._scratch, "benchmark"))
            )
            if not sink.armed(10):
                raise TestbedError("the sink does not receive")
        used_ns = self._used_ns()
        self._source.start(time.monotonic_ns() + 20_000_000)
        sent = self._source.wait(10 * self.seconds + 10)
        if sent.error:
            raise TestbedError(f"xdp: {sent.error}")
        wait_until(lambda: self._arrived() - arrived >= sent.frames, 0.1)
        counted = came = self._arrived() - arrived
        if sink is not None:
            sink.stop(5)
            counted = sink.received(sent).frames or 0
        return sent.frames, came, counted, (self._used_ns() - used_ns) / max(1, came)

    def sink(self, kind: str) -> Sink | None:
        """One, ready."""
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
        thread = int(Path(f"/proc/{self._thread}/schedstat").read_text().split()[0])
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return thread + time.process_time_ns() + round(1e9 * (children.ru_utime + children.ru_stime))


def compare(bench: Bench, rounds: int) -> None:
    print(
        f"{'sink':<10}{'held, frames/s':>16}{'of tcpdump':>12}{'ring full':>12}"
        f"{'counted, frames/s':>20}{'of tcpdump':>12}{'ns/frame':>12}{'of tcpdump':>12}"
    )
    found = {kind: highest(bench, kind) for kind in SINKS}
    held = {kind: fps for kind, (fps, _) in found.items()}
    if not held["tcpdump"]:
        raise TestbedError(f"not even {LEAST_FPS:,} frames/s arrive without loss: this host is too busy")
    counted = {kind: most_counted(bench, kind) for kind in SINKS}
    costs: dict[str, list[float]] = {kind: [] for kind in SINKS}
    for _ in range(rounds):
        for kind in SINKS:
            with at_work(bench, kind) as sink:
                costs[kind].append(bench.trial(sink, MODEST_FPS)[-1])
    cost = {kind: statistics.median(values) for kind, values in costs.items()}
    for kind in SINKS:
        print(
            f"{kind:<10}{held[kind]:>16,.0f}{held[kind] / held['tcpdump']:>12.2f}{found[kind][1]:>12.4%}"
            f"{counted[kind]:>20,.0f}{counted[kind] / counted['tcpdump']:>12.2f}"
            f"{cost[kind]:>12,.0f}{cost[kind] / cost['tcpdump']:>12.2f}"
        )


def highest(bench: Bench, kind: str) -> tuple[float, float]:
    """The highest rate that a sink holds, in frames/s, and what part of it the ring had no room for; 0 for none."""
    fps, held = float(LEAST_FPS), (0.0, 0.0)
    with at_work(bench, kind) as sink:
        while kept := next((one for one in (bench.trial(sink, fps) for _ in range(ATTEMPTS)) if is_held(*one)), None):
            sent, came, *_ = kept
            held, fps = (fps, 1 - came / sent), fps * STEP
    return held


def is_held(sent: int, came: int, counted: int, _: float) -> bool:
    """Whether a sink lost nothing, and left the ring before it room."""
    return counted == came >= RING_HOLDS * sent


def most_counted(bench: Bench, kind: str) -> float:
    """The most frames/s that came in while a sink counted each of them, whatever the ring had no room for."""
    fps, most = float(LEAST_FPS), 0.0
    with at_work(bench, kind) as sink:
        while fps <= MOST_FPS:
            trials = (bench.trial(sink, fps) for _ in range(ATTEMPTS))
            came = next((came for _, came, counted, _ in trials if counted == came), None)
            if came is None:
                break
            most, fps = max(most, came / bench.seconds), fps * STEP
    return most


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
