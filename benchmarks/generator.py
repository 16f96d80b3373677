"""netbench's `afpacket` source beside trafgen, and beside its own intention.

Both send the same frame into the same veth pair, in a network namespace made for it, in turn, several
rounds: first on one and the same CPU, then on all CPUs. The ratio is the median of the rounds' ratios, for
what else this host does changes from round to round. Then the source is paced to shares of its own maximum.
Rates are the generators' own; the kernel's counter of the interface checks every frame count.

    sudo python benchmarks/generator.py [--rounds N] [--seconds S] [--frame-size BYTES]
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.generators.frames import build_frame
from netbench.hosts.base import run_checked
from netbench.hosts.composed import Namespaced
from netbench.hosts.local import LocalHost
from netbench.model.traffic import Sent, Traffic

INTERFACE = "tx"
SHARES_PERCENT = (1, 10, 25, 50)
TOLERANCE_PERCENT = 0.1
TRAFGEN_CPU = re.compile(r"(\d+) sec, (\d+) usec on CPU\d+ \((\d+) packets\)")


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that all is cleaned up
    try:
        require_tools()
        with veth_pair() as host:
            compare(host, options.rounds, options.seconds, options.frame_size)
    except NetbenchError as error:
        print(f"benchmarks/generator.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="afpacket beside trafgen, and beside its own intention")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default: 1)")
    parser.add_argument("--frame-size", type=int, default=64, help="bytes with FCS, 64–1518 (default: 64)")
    options = parser.parse_args()
    if options.rounds < 1 or not 0.1 <= options.seconds <= 60 or not 64 <= options.frame_size <= 1518:
        parser.error("at least 1 round, 0.1–60 seconds, frames of 64–1518 bytes")
    return options


def require_tools() -> None:
    if os.geteuid() != 0:
        raise MissingError("network namespaces and packet sockets need root; run it with sudo")
    for tool, package in (("ip", "iproute2"), ("trafgen", "netsniff-ng")):
        if shutil.which(tool) is None:
            raise MissingError(f"`{tool}` is not on this host; on Debian: apt-get install {package}")


@contextmanager
def veth_pair() -> Iterator[Namespaced]:
    """A namespace of our own with a veth pair in it, gone afterwards."""
    name = f"nb-bench-{os.getpid()}"
    here = LocalHost("here", name)
    inside = Namespaced(LocalHost("bench", name), name)
    run_checked(here, ["ip", "netns", "add", name])
    try:
        for scope in ("all", "default"):
            inside.write(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "1")
        peer = "rx"
        run_checked(inside, ["ip", "link", "add", "name", INTERFACE, "type", "veth", "peer", "name", peer])
        for interface in (INTERFACE, peer):
            run_checked(inside, ["ip", "link", "set", "dev", interface, "up"])
        yield inside
    finally:
        run_checked(here, ["ip", "netns", "delete", name])


def compare(host: Namespaced, rounds: int, seconds: float, frame_size: int) -> None:
    cpus = range(os.cpu_count() or 1)
    print(f"frames of {frame_size} bytes, {rounds} rounds of {seconds:g} s, medians in frames per second\n")
    print(f"{'maximum':<16}{'afpacket':>14}{'trafgen':>14}{'ratio':>10}")
    ours_max = 0.0
    for label, used in {"1 CPU": cpus[:1], f"{len(cpus)} CPUs": cpus}.items():
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            sent = send(host, used, traffic(frame_size, None, seconds))
            ours.append(sent.frames / sent.duration_s)
            theirs.append(trafgen_fps(host, len(used), frame_size, round(ours[-1] * seconds)))
        our_median, their_median = statistics.median(ours), statistics.median(theirs)
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        print(f"{label:<16}{our_median:>14,.0f}{their_median:>14,.0f}{ratio:>10.3f}")
        ours_max = ours_max or our_median

    print(f"\n{'paced, 1 CPU':<16}{'intended':>14}{'sent':>14}{'ratio':>10}{'deviation':>12}{'worst':>12}")
    worst = 0.0
    for share in SHARES_PERCENT:
        intended = ours_max * share / 100
        rates = []
        for _ in range(rounds):
            sent = send(host, cpus[:1], traffic(frame_size, intended, seconds))
            rates.append(sent.frames / sent.duration_s)
        median = statistics.median(rates)
        deviations = [100 * (rate / intended - 1) for rate in (median, *rates)]
        largest = max(deviations, key=abs)
        worst = max(worst, abs(largest))
        print(
            f"{f'{share} % of maximum':<16}{intended:>14,.0f}{median:>14,.0f}{median / intended:>10.5f}"
            f"{deviations[0]:>+10.4f} %{largest:>+10.4f} %"
        )
    print(f"\nworst deviation of all rounds: {worst:.4f} % (tolerance: {TOLERANCE_PERCENT} %)")


def traffic(frame_size: int, fps: float | None, seconds: float) -> Traffic:
    return Traffic(
        stream="benchmark",
        src_mac="02:00:00:00:00:01",
        # Not the peer's: it drops the frames at once, and what is measured is the sender.
        dst_mac="02:00:00:00:00:02",
        src_ip="198.18.0.1",
        dst_ip="198.18.0.2",
        frame_size=frame_size,
        fps=fps,
        duration_s=seconds,
        flows=1,
        seed=0,
    )


def send(host: Namespaced, cpus: Sequence[int], what: Traffic) -> Sent:
    """One measurement of the afpacket source, one thread per CPU."""
    with closing(AfPacketSource(AfPacketSource.Options(threads=len(cpus)))) as source:
        source.open(host, INTERFACE, cpus)
        source.prepare(what)
        before = tx_packets(host)
        source.start(time.monotonic_ns() + 50_000_000)
        sent = source.wait(10 * what.duration_s + 10)
    if sent.error:
        raise TestbedError(f"afpacket: {sent.error}")
    check("afpacket", sent.frames, tx_packets(host) - before)
    return sent


def trafgen_fps(host: Namespaced, processes: int, frame_size: int, frames: int) -> float:
    """One measurement of trafgen at its best: no pacing, one process per CPU from CPU 0 on, which it pins."""
    frames -= frames % processes
    packet = "{" + ",".join(map(str, build_frame(traffic(frame_size, None, 1)))) + "}"
    before = tx_packets(host)
    # -Q: it is not to move this host's interrupts about.
    argv = ["trafgen", "-o", INTERFACE, "-P", str(processes), "-n", str(frames), "-Q", packet]
    done = host.run(argv, timeout_s=120)
    reports = [tuple(map(int, match)) for match in TRAFGEN_CPU.findall(done.stdout + done.stderr)]
    if done.exit_code != 0 or len(reports) != processes:
        raise TestbedError(f"trafgen failed (exit code {done.exit_code}): {done.stderr[-300:].strip()}")
    check("trafgen", frames, tx_packets(host) - before)
    return sum(packets / (seconds + microseconds / 1e6) for seconds, microseconds, packets in reports)


def tx_packets(host: Namespaced) -> int:
    return int(host.read(f"/sys/class/net/{INTERFACE}/statistics/tx_packets"))


def check(who: str, said: int, counted: int) -> None:
    if said != counted:
        raise TestbedError(f"{who} says it sent {said} frames, the kernel counted {counted}")


if __name__ == "__main__":
    main()
