"""The maximum rate of netbench's `pktgen` source, compared with the same pktgen run by hand.

By hand means with the settings of the kernel's own samples/pktgen/pktgen_sample01_simple.sh (Linux 6.1), by plain
writes to /proc/net/pktgen. Both send the same size to the same addresses over the same veth pair of the shipped
topology lab-vm, on the same kernel thread of one small VM, in turn, for several rounds with alternating order. Nothing
is forwarded: only the sender is measured. The ratio is the median of the rounds' ratios, because the other load of this
host changes between rounds. Times and frame counts are the kernel's; its counter of the interface checks each count.

    sudo python benchmarks/pktgen.py [--rounds N] [--seconds S] [--frame-size BYTES]
"""

import argparse
import re
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import TOPOLOGIES, find
from netbench.errors import NetbenchError, TestbedError
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.hosts.base import Host, run_checked
from netbench.hosts.local import LocalHost
from netbench.model.frame_size import FrameSize
from netbench.model.traffic import Traffic
from netbench.testbed.bring_up import base_changes
from netbench.testbed.needs import needs_of
from netbench.testbed.preconditions import require_root
from netbench.testbed.requirements import require
from netbench.testbed.virtual_machines import running_vm

INTERFACE = "nb-tx1"
PKTGEN = "/proc/net/pktgen"
LEAST_RATIO = 0.98
RATE = re.compile(r"^Result: OK: \d+\(c\d+\+d\d+\) usec, (\d+) .*\n +(\d+)pps ", re.MULTILINE)


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that all is cleaned up
    try:
        with lab_vm() as host:
            ratio = compare(host, options.rounds, options.seconds, options.frame_size)
    except NetbenchError as error:
        print(f"benchmarks/pktgen.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    verdict = "PASS" if ratio >= LEAST_RATIO else "FAIL"
    print(f"\nnetbench ÷ by hand: {ratio:.3f}, at least {LEAST_RATIO} wanted: {verdict}")
    sys.exit(verdict == "FAIL")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="netbench's pktgen source beside pktgen run by hand, in a small VM")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured (default: 9)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement, about (default: 2)")
    parser.add_argument("--frame-size", type=int, default=64, help="bytes with FCS, 64–1518 (default: 64)")
    options = parser.parse_args()
    if options.rounds < 1 or not 0.1 <= options.seconds <= 60 or not 64 <= options.frame_size <= 1518:
        parser.error("at least 1 round, 0.1–60 seconds, frames of 64–1518 bytes")
    return options


@contextmanager
def lab_vm() -> Iterator[Host]:
    """The source's host of lab-vm, in a separate VM with the topology's links and without a UUT."""
    require_root()
    topology = load_topology(find(TOPOLOGIES, "lab-vm"), option_models(UUTS))
    require(needs_of(topology))
    ((name, spec),) = topology.vms.items()
    with (
        tempfile.TemporaryDirectory(prefix="nb-bench-") as directory,
        running_vm(name, spec, LocalHost("here", "nb-bench"), Path(directory)) as vm,
    ):
        vm.make(base_changes(topology, name))
        yield vm.host(topology.netns("source"), "source")


def compare(host: Host, rounds: int, seconds: float, frame_size: int) -> float:
    """Print a table; returns the median of the rounds' ratios."""
    what = traffic(frame_size, seconds)
    frames = round(by_hand_fps(host, what, 10_000) * seconds)  # loads the module, and warms both up
    netbench_fps(host, what)
    print(f"frames of {frame_size} bytes, {rounds} rounds of about {seconds:g} s, in frames per second\n")
    print(f"{'round':<16}{'netbench':>14}{'by hand':>14}{'ratio':>10}")
    pairs: list[tuple[float, float]] = []
    for number in range(1, rounds + 1):
        if number % 2:
            ours, theirs = netbench_fps(host, what), by_hand_fps(host, what, frames)
        else:
            theirs, ours = by_hand_fps(host, what, frames), netbench_fps(host, what)
        pairs.append((ours, theirs))
        print(f"{number:<16}{ours:>14,.0f}{theirs:>14,.0f}{ours / theirs:>10.3f}")
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    our_median, their_median = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    print(f"{'median':<16}{our_median:>14,.0f}{their_median:>14,.0f}{ratio:>10.3f}")
    return ratio


def traffic(frame_size: int, seconds: float) -> Traffic:
    return Traffic(
        stream="benchmark",
        src_mac="02:00:00:00:00:01",
        # Not the peer's address: the peer drops the frames at once, so that only the sender is measured.
        dst_mac="02:00:00:00:00:02",
        src_ip="198.18.0.1",
        dst_ip="198.18.0.42",
        frame_size=FrameSize.of(frame_size),
        fps=None,
        duration_s=seconds,
        flows=1,
        seed=0,
    )


def netbench_fps(host: Host, what: Traffic) -> float:
    """One measurement of netbench's source, on the kernel thread of CPU 0."""
    with closing(PktGen(PktGenOptions()).source()) as source:
        source.open(host, INTERFACE, (0,))
        source.prepare(what)
        before = tx_packets(host)
        source.start(0)
        sent = source.wait(10 * what.duration_s + 10)
    if sent.error:
        raise TestbedError(f"netbench: {sent.error}")
    check("netbench", sent.frames, tx_packets(host) - before)
    return sent.frames / sent.duration_s


def by_hand_fps(host: Host, what: Traffic, frames: int) -> float:
    """One measurement of pktgen with the settings of the kernel's sample and the addresses of the source."""
    device = f"{PKTGEN}/{INTERFACE}"
    settings = (
        f"count {frames}",
        "clone_skb 0",
        f"pkt_size {what.frame_size.only_size - 4}",
        "delay 0",
        "flag NO_TIMESTAMP",
        f"dst_mac {what.dst_mac}",
        f"dst_min {what.dst_ip}",
        f"dst_max {what.dst_ip}",
        "flag UDPSRC_RND",
        "udp_src_min 9",
        "udp_src_max 109",
        f"src_mac {what.src_mac}",
        f"src_min {what.src_ip}",
        f"src_max {what.src_ip}",
    )
    run_checked(host, ["modprobe", "pktgen"])
    write(host, f"{PKTGEN}/pgctrl", "reset")
    write(host, f"{PKTGEN}/kpktgend_0", "rem_device_all")
    write(host, f"{PKTGEN}/kpktgend_0", f"add_device {INTERFACE}")
    for setting in settings:
        write(host, device, setting)
    before = tx_packets(host)
    write(host, f"{PKTGEN}/pgctrl", "start")
    state = run_checked(host, ["cat", device])
    write(host, f"{PKTGEN}/pgctrl", "reset")
    result = RATE.search(state)
    if not result:
        raise TestbedError(f"pktgen without netbench failed: {state[-300:]}")
    check("by hand", int(result[1]), tx_packets(host) - before)
    return float(result[2])


def write(host: Host, path: str, command: str) -> None:
    run_checked(host, ["tee", path], stdin=command + "\n", timeout_s=120)


def tx_packets(host: Host) -> int:
    return int(run_checked(host, ["cat", f"/sys/class/net/{INTERFACE}/statistics/tx_packets"]))


def check(who: str, reported: int, counted: int) -> None:
    if reported != counted:
        raise TestbedError(f"{who}: {reported:,} frames sent, but the kernel counted {counted:,}")


if __name__ == "__main__":
    main()
