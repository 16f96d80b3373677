"""netbench's sources `afpacket` and `xdp`, compared with trafgen and with their intended rates.

All send the same frame into a veth pair, in turn, for several rounds. A ratio is the median of the rounds' ratios,
because the other load of this host changes between rounds. Rates are those reported by the generators; every frame
count is checked against the kernel's counters of the interface.

First, afpacket and trafgen send on the same CPU, then on all CPUs; then afpacket is paced to shares of its maximum. All
of these use a plain pair, which receives within the sending call. xdp sends into a pair that receives like a NIC, on
the last CPU, where a BPF program drops frames at once; trafgen uses the plain pair, because it ends when a ring is
full. Then xdp is paced on its pair. The gaps between its frames are measured on a third pair, which receives by NAPI on
the sending CPU as soon as a frame is sent: tcpdump records the gaps without the delay of waking up a thread.

Last, xdp sends packets with four varying fields, in 1,000 and in 1,000,000 flows, in turn with plain frames. trafgen
sends plain frames, which are its fastest. `--packets-only` runs this part alone, also without trafgen.

    sudo python benchmarks/generator.py [--rounds N] [--seconds S] [--frame-size BYTES] [--packets-only]
"""

import argparse
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from operator import truediv
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from netbench.bpf.libbpf import attach_xdp, load
from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.generators.worker_source import WorkerSource
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes.receive import BindThread, ReceiveByNapi, threads_of
from netbench.linux.netns import namespace_path, within
from netbench.model.frame_size import FrameSize
from netbench.model.packet import FieldRef, Layer, Packet, RandomValues, SteppedValues, VaryingField
from netbench.model.traffic import Sent, Traffic
from netbench.packets.build import build_template, smallest_frame

INTERFACE, PEER = "tx", "rx"
TRAFGEN = "trafgen"
LAST_CPU = (os.cpu_count() or 1) - 1
HEADING = f"{'maximum':<20}{'frames/s':>14}{'trafgen':>14}{'ratio':>10}"
SHARES_PERCENT = (1, 10, 25, 50)
TOLERANCE_PERCENT = 0.1
XDP_RATES = (10_000.0, 100_000.0, 1_000_000.0)
XDP_TOLERANCE_PERCENT, XDP_TOLERANCE_NS = 0.01, 1000
VARYING_RATIO, TRAFGEN_RATIO = 0.8, 10
PCAP_HEADER, RECORD_HEADER, SNAP_BYTES = 24, 16, 60
TRAFGEN_CPU = re.compile(r"(\d+) sec, (\d+) usec on CPU\d+ \((\d+) packets\)")


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that all is cleaned up
    try:
        require_tools(packets_only=options.packets_only)
        with veth_pair("plain") as plain, veth_pair("napi") as napi, veth_pair("gaps") as gaps:
            if not options.packets_only:
                compare(plain, options.rounds, options.seconds, options.frame_size)
            receive_by_napi(napi)
            with dropping(napi):
                if not options.packets_only:
                    print(f"\n{HEADING}")
                    maximum(napi, "xdp, 1 CPU", range(1), plain, options.rounds, options.seconds, options.frame_size)
                    run_checked(gaps, ["ethtool", "-K", PEER, "gro", "on"])
                    pace(napi, gaps, options.rounds, options.seconds, options.frame_size)
                vary(napi, plain, options.rounds, options.seconds, options.frame_size)
    except NetbenchError as error:
        print(f"benchmarks/generator.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="afpacket and xdp beside trafgen, and beside their own intention")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default: 1)")
    parser.add_argument("--frame-size", type=int, default=64, help="bytes with FCS, 64–1518 (default: 64)")
    parser.add_argument("--packets-only", action="store_true", help="only xdp's packets with varying fields")
    options = parser.parse_args()
    if options.rounds < 1 or not 0.1 <= options.seconds <= 60 or not 64 <= options.frame_size <= 1518:
        parser.error("at least 1 round, 0.1–60 seconds, frames of 64–1518 bytes")
    return options


def require_tools(*, packets_only: bool) -> None:
    if os.geteuid() != 0:
        raise MissingError("network namespaces and packet sockets need root; run it with sudo")
    tools = (
        [("ip", "iproute2")] if packets_only else [("ip", "iproute2"), (TRAFGEN, "netsniff-ng"), ("tcpdump", "tcpdump")]
    )
    for tool, package in tools:
        if shutil.which(tool) is None:
            raise MissingError(f"`{tool}` is not on this host; on Debian: apt-get install {package}")


@contextmanager
def veth_pair(kind: str) -> Iterator[NamespaceHost]:
    """A separate namespace with a veth pair, removed afterwards."""
    name = f"nb-bench-{os.getpid()}-{kind}"
    here = LocalHost("here", name)
    inside = NamespaceHost(LocalHost("bench", name), name)
    run_checked(here, ["ip", "netns", "add", name])
    try:
        for scope in ("all", "default"):
            inside.write(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "1")
        run_checked(inside, ["ip", "link", "add", "name", INTERFACE, "type", "veth", "peer", "name", PEER])
        for interface in (INTERFACE, PEER):
            run_checked(inside, ["ip", "link", "set", "dev", interface, "up"])
        yield inside
    finally:
        run_checked(here, ["ip", "netns", "delete", name])


def receive_by_napi(host: NamespaceHost) -> None:
    """Make the other end take frames from a ring, like a link with `receive: napi`, on the last CPU."""
    here = LocalHost("here", "bench")
    before = threads_of(here, PEER)
    ReceiveByNapi(host.netns, PEER).make(here)
    ((thread, name),) = (threads_of(here, PEER).items()) - before.items()
    BindThread(host.netns, name, (LAST_CPU,), thread).make(here)


@contextmanager
def dropping(host: NamespaceHost) -> Iterator[None]:
    """Make the driver of the other end of the pair receive and drop all frames."""
    with load("source") as loaded:
        # Without a configured trial, the program drops all frames.
        program = loaded.program("paced")
        path = namespace_path(host.netns)
        link = within(path, lambda: attach_xdp(program, socket.if_nametoindex(PEER), "native"))
        yield
        link.close()


def maximum(
    host: NamespaceHost,
    name: str,
    cpus: Sequence[int],
    trafgens: NamespaceHost,
    rounds: int,
    seconds: float,
    frame_size: int,
) -> float:
    """The median maximum rate of a source, printed beside that of trafgen on as many CPUs."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        sent = send(host, cpus, traffic(frame_size, None, seconds), name.partition(",")[0])
        ours.append(sent.frames / sent.duration_s)
        theirs.append(trafgen_fps(trafgens, len(cpus), frame_size, round(1e6 * seconds)))
    our_median, their_median = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(our_fps / their_fps for our_fps, their_fps in zip(ours, theirs, strict=True))
    print(f"{name:<20}{our_median:>14,.0f}{their_median:>14,.0f}{ratio:>10.3f}")
    return our_median


def compare(host: NamespaceHost, rounds: int, seconds: float, frame_size: int) -> None:
    cpus = range(os.cpu_count() or 1)
    print(f"frames of {frame_size} bytes, {rounds} rounds of {seconds:g} s, medians in frames per second\n")
    print(HEADING)
    ours_max = maximum(host, "afpacket, 1 CPU", cpus[:1], host, rounds, seconds, frame_size)
    maximum(host, f"afpacket, {len(cpus)} CPUs", cpus, host, rounds, seconds, frame_size)

    print(f"\n{'afpacket, 1 CPU':<20}{'intended':>14}{'sent':>14}{'ratio':>10}{'deviation':>12}{'worst':>12}")
    worst = 0.0
    for share in SHARES_PERCENT:
        intended = ours_max * share / 100
        rates = []
        for _ in range(rounds):
            sent = send(host, cpus[:1], traffic(frame_size, intended, seconds), "afpacket")
            rates.append(sent.frames / sent.duration_s)
        median = statistics.median(rates)
        deviations = [100 * (rate / intended - 1) for rate in (median, *rates)]
        largest = max(deviations, key=abs)
        worst = max(worst, abs(largest))
        print(
            f"{f'{share} % of maximum':<20}{intended:>14,.0f}{median:>14,.0f}{median / intended:>10.5f}"
            f"{deviations[0]:>+10.4f} %{largest:>+10.4f} %"
        )
    print(f"\nworst deviation of all rounds: {worst:.4f} % (tolerance: {TOLERANCE_PERCENT} %)")


def pace(host: NamespaceHost, gaps: NamespaceHost, rounds: int, seconds: float, frame_size: int) -> None:
    """Print xdp's count and gaps at each rate, those of the best round, because other load of the host adds to them."""
    print(f"\n{'xdp, 1 CPU':<20}{'intended':>14}{'sent':>14}{'count':>12}{'median gap':>14}{'off by':>10}")
    for fps in XDP_RATES:
        what = traffic(frame_size, fps, seconds)
        found, offs = [], []
        for _ in range(rounds):
            sent = send(host, [0], what, "xdp")
            found.append((abs(sent.frames / sent.duration_s - fps), sent.frames / sent.duration_s, sent.frames))
            with TemporaryDirectory() as scratch:
                times = captured(gaps, Path(scratch, "rx.pcap"), partial(send, gaps, [0], what, "xdp"))
            offs.append(abs(statistics.median(np.diff(times).tolist()) - 1e9 / fps))
        _, rate, frames = min(found)
        count = 100 * (frames / (what.frames or 1) - 1)
        off = min(offs)
        print(f"{f'{fps:,.0f}/s':<20}{fps:>14,.0f}{rate:>14,.1f}{count:>+10.4f} %{1e9 / fps:>11,.0f} ns{off:>7,.0f} ns")
    print(f"\ntolerance: {XDP_TOLERANCE_PERCENT} % of the count, {XDP_TOLERANCE_NS} ns of the median gap")


def vary(host: NamespaceHost, trafgens: NamespaceHost, rounds: int, seconds: float, frame_size: int) -> None:
    """Print xdp's rate with each packet, and its ratios to plain frames and to trafgen in the same round."""
    packets = [None, *(varying_packet(version, flows) for version in ("IP", "IPv6") for flows in (1_000, 1_000_000))]
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for packet in packets:
            size = max(frame_size, smallest_frame(packet)) if packet else frame_size
            sent = send(host, [0], traffic(size, None, seconds, packet), "xdp")
            rates.setdefault(packet.name if packet else "plain", []).append(sent.frames / sent.duration_s)
        if shutil.which(TRAFGEN):
            rates.setdefault(TRAFGEN, []).append(trafgen_fps(trafgens, 1, frame_size, round(1e6 * seconds)))
    bases = [base for base in ("plain", TRAFGEN) if base in rates]
    print(f"\n{'xdp, 1 CPU':<28}{'frames/s':>14}" + "".join(f"{f'÷ {base}':>14}" for base in bases))
    for name, of_packet in rates.items():
        ratios = [statistics.median(map(truediv, of_packet, rates[base])) for base in bases]
        print(f"{name:<28}{statistics.median(of_packet):>14,.0f}" + "".join(f"{ratio:>14.3f}" for ratio in ratios))
    print(f"\nrequired: {VARYING_RATIO} of plain, {TRAFGEN_RATIO} × trafgen")


def varying_packet(version: str, flows: int) -> Packet:
    """Return a packet over IP or IPv6 with four varying fields: both addresses and both ports."""
    counts = [values for values in (1000, 50_000) if flows % values == 0]
    values: dict[str, SteppedValues | RandomValues] = {
        "src": SteppedValues(0xC6120001, 1, flows),
        "dst": SteppedValues(0xC6130001, 3, counts[0]),
        "sport": RandomValues(1024, 65_535, counts[-1]),
        "dport": SteppedValues(1024, 1, counts[0]),
    }
    layer_of = {"src": version, "dst": version, "sport": "UDP", "dport": "UDP"}
    fields = tuple(VaryingField(FieldRef(layer_of[field], field), of_field) for field, of_field in values.items())
    return Packet(f"{version}, 4 fields, {flows:,} flows", (Layer("Ether"), Layer(version), Layer("UDP")), fields)


def captured(host: NamespaceHost, path: Path, run: Callable[[], Sent]) -> np.ndarray:
    """The arrival time of each frame at the other end, in ns, by tcpdump."""
    options = f"-Z root -n -U -B 262144 -s {SNAP_BYTES} --time-stamp-precision=nano -i {PEER} -w {path} udp"
    tcpdump = host.spawn(["taskset", "-c", str(LAST_CPU), "tcpdump", *options.split()])
    assert tcpdump.stderr
    tcpdump.stderr.readline()
    sent = run()
    record = RECORD_HEADER + SNAP_BYTES
    wait_until(lambda: path.stat().st_size >= PCAP_HEADER + sent.frames * record, 10)
    tcpdump.send_signal(signal.SIGINT)
    try:
        tcpdump.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        tcpdump.kill()
    whole = path.read_bytes()[PCAP_HEADER:]
    words = np.frombuffer(whole[: len(whole) // record * record], dtype=np.uint32).reshape(-1, record // 4)
    return words[:, 0].astype(np.int64) * 1_000_000_000 + words[:, 1]


def traffic(frame_size: int, fps: float | None, seconds: float, packet: Packet | None = None) -> Traffic:
    return Traffic(
        stream="benchmark",
        src_mac="02:00:00:00:00:01",
        # Not the peer's address: the peer drops the frames at once, so that only the sender is measured.
        dst_mac="02:00:00:00:00:02",
        src_ip="198.18.0.1",
        dst_ip="198.18.0.2",
        frame_size=FrameSize.of(frame_size),
        fps=fps,
        duration_s=seconds,
        flows=1,
        seed=0,
        packet=packet,
    )


def send(host: NamespaceHost, cpus: Sequence[int], what: Traffic, kind: str) -> Sent:
    """One measurement of a source; of afpacket, one thread per CPU."""
    made: WorkerSource = XdpSource()
    if kind == "afpacket":
        made = AfPacketSource(AfPacketSource.Options(threads=len(cpus)))
    with closing(made) as source:
        source.open(host, INTERFACE, cpus)
        source.prepare(what)
        before = taken(host, kind)
        source.start(time.monotonic_ns() + 50_000_000)
        sent = source.wait(10 * what.duration_s + 10)
    if sent.error:
        raise TestbedError(f"{kind}: {sent.error}")
    check(kind, sent.frames, taken(host, kind) - before)
    return sent


def trafgen_fps(host: NamespaceHost, processes: int, frame_size: int, frames: int) -> float:
    """One measurement of trafgen at its maximum: no pacing, one process per CPU from CPU 0 on, pinned by trafgen."""
    frames -= frames % processes
    frame = build_template(traffic(frame_size, None, 1)).frames[frame_size]
    packet = "{" + ",".join(map(str, frame)) + "}"
    before = taken(host, "trafgen")
    # -Q: do not move this host's interrupts.
    argv = [TRAFGEN, "-o", INTERFACE, "-P", str(processes), "-n", str(frames), "-Q", packet]
    done = host.run(argv, timeout_s=120)
    reports = [tuple(map(int, match)) for match in TRAFGEN_CPU.findall(done.stdout + done.stderr)]
    if done.exit_code != 0 or len(reports) != processes:
        raise TestbedError(f"trafgen failed (exit code {done.exit_code}): {done.stderr[-300:].strip()}")
    check("trafgen", frames, taken(host, "trafgen") - before)
    return sum(packets / (seconds + microseconds / 1e6) for seconds, microseconds, packets in reports)


def taken(host: NamespaceHost, kind: str) -> int:
    """The kernel's count of a source's frames; that of xdp includes frames rejected by a full ring at the other end.

    Other sources send such a frame again.
    """
    counters = ("packets", "dropped") if kind == "xdp" else ("packets",)
    return sum(int(host.read(f"/sys/class/net/{INTERFACE}/statistics/tx_{counter}")) for counter in counters)


def check(who: str, reported: int, counted: int) -> None:
    if reported != counted:
        raise TestbedError(f"{who} reports {reported} sent frames, the kernel counted {counted}")


if __name__ == "__main__":
    main()
