"""The cost of netbench's analysis of a capture, compared with other tools on the same file.

The file is like that of a lossy path: 0.5 % of the frames lost in runs of 1 to 9, 0.1 % late by up to 50 others,
0.01 % twice, delays that jitter. netbench finds losses and their runs, duplicates, reordering and its extent, rates,
percentiles of the delay and of its variation; the others count or only read. The results of netbench are compared with
the content of the file.

Every tool is a separate process, measured as a whole, including interpreter and imports. All take turns for several
rounds, of which the one with the least CPU time counts; slow tools have one round. The file is in the page cache; `cat`
shows the cost of reading it.

    python benchmarks/capture.py [--frames N] [--captured BYTES] [--rounds N] [--no-tshark] [--check]
"""

import argparse
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NETBENCH = ["-m", "netbench", "analyze", "--json"]
DPKT = """
import sys, dpkt
with open(sys.argv[1], "rb") as file:
    print(sum(1 for _ in dpkt.pcap.UniversalReader(file)))
"""
SLOW = ("dpkt", "tshark")
START_US = 1_700_000_000_000_000
# Frames are made in parts of this size. None near the first or the last of a part is lost, late or twice.
PART_FRAMES = 1_000_000


@dataclass(frozen=True, slots=True)
class Truth:
    """The content of the file, by construction."""

    received: int
    missing: int
    loss_runs: int
    duplicates: int
    reordered: int
    delay_min_ns: int
    delay_max_ns: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run of a process: CPU (user + system) and wall time in s, and peak memory in KiB.

    The memory is at least this script's own, because a new process inherits the peak.
    """

    cpu_s: float
    wall_s: float
    peak_kib: int
    output: str


def main() -> None:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "frames.pcap"
        truth = write_apart(path, options.frames, options.captured)
        records = truth.received + truth.duplicates
        print(f"{records:,} frames, {options.captured} bytes of each: {path.stat().st_size:,} bytes")
        commands = tools(path, options.tshark)
        present = {name: argv for name, argv in commands.items() if installed(argv)}
        best: dict[str, Cost] = {}
        for number in range(options.rounds):
            for name, argv in present.items():
                if number and name in SLOW:
                    continue
                cost = measure(argv)
                best[name] = min(best.get(name, cost), cost, key=lambda run: run.cpu_s)
    report(list(commands), best, records)
    verify(json.loads(best["netbench"].output), truth)
    if options.check and "capinfos" in best and best["netbench"].cpu_s > best["capinfos"].cpu_s:
        sys.exit("netbench needs more CPU time than capinfos")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="netbench's analysis of a capture beside other tools")
    parser.add_argument("--frames", type=int, default=2_000_000, help="frames sent (default: 2,000,000)")
    parser.add_argument("--captured", type=int, default=60, help="bytes captured of each, 58 to 1514 (default: 60)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool runs (default: 3)")
    parser.add_argument("--no-tshark", dest="tshark", action="store_false", help="tshark takes 10 µs a frame")
    parser.add_argument("--check", action="store_true", help="fail if netbench needs more CPU time than capinfos")
    parser.add_argument("--directory", type=Path, help="where the file goes for the time being")
    options = parser.parse_args()
    if options.frames < 10_000 or options.rounds < 1 or not 58 <= options.captured <= 1514:
        parser.error("at least 10,000 frames and 1 round, 58 to 1514 bytes captured")
    return options


def write_apart(path: Path, frames: int, captured: int) -> Truth:
    """Write the file in a separate process, so that the tools do not inherit its peak memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        truth = write_capture(path, frames, captured)
        os.write(writer, json.dumps([int(getattr(truth, name)) for name in Truth.__slots__]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        counts = pipe.read()
    if os.waitpid(child, 0)[1]:
        sys.exit("benchmarks/capture.py: the file could not be written")
    return Truth(*json.loads(counts))


def write_capture(path: Path, frames: int, captured: int) -> Truth:
    """Write one stream of 1,000,000 frames/s, the same for the same arguments; returns its content."""
    random = np.random.default_rng(1)
    counts = np.zeros(len(Truth.__slots__) - 2, np.int64)
    extremes: list[int] = []
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))
        for first in range(0, frames, PART_FRAMES):
            numbers = np.arange(first, min(first + PART_FRAMES, frames))
            arrived, truth = disturb(numbers, random)
            delays_ns = delays(len(arrived), random)
            file.write(records(arrived, delays_ns, captured).tobytes())
            counts += truth
            extremes += (int(delays_ns.min()), int(delays_ns.max()))
    return Truth(*[*counts.tolist(), min(extremes), max(extremes)])


def disturb(numbers: NDArray[np.int64], random: np.random.Generator) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Consecutive numbers in order of arrival, and counts: received, missing, loss runs, duplicates, reordered.

    Each block of 1,000 numbers has one run of losses and one late frame; one block of ten has a frame twice. The
    disturbances of a block do not overlap.
    """
    blocks = len(numbers) // 1000
    bases = numbers[0] + np.arange(blocks) * 1000
    lengths = random.integers(1, 10, blocks)
    lost = np.repeat(bases + 300, lengths) + np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    late, twice = bases + 500, bases[::10] + 700
    # The place of each frame: a late one moves back by its lateness, a copy comes right after its original.
    arrived = np.concatenate((np.setdiff1d(numbers, lost, assume_unique=True), twice))
    place = arrived.astype(np.float64)
    place[len(place) - len(twice) :] += 0.25
    place[np.searchsorted(arrived[: len(place) - len(twice)], late)] += random.integers(1, 51, blocks) + 0.5
    received = len(numbers) - len(lost)
    return arrived[np.argsort(place, kind="stable")], (received, len(lost), blocks, len(twice), blocks)


def delays(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Delays in ns: 20 µs, and a jitter that is mostly small and sometimes large."""
    return 20_000 + random.gamma(2, 15_000, count).astype(np.int64)


def records(numbers: NDArray[np.int64], delays_ns: NDArray[np.int64], captured: int) -> NDArray[np.uint8]:
    """Records of a nanosecond pcap file, uint8 of shape (n, 16 + captured)."""
    ip_bytes = captured - 14
    frame = bytes.fromhex("020000000001 020000000002 0800 4500")
    frame += struct.pack(">HHHBBH", ip_bytes, 0, 0, 64, 17, 0) + bytes((198, 18, 0, 1, 198, 18, 0, 2))
    frame += struct.pack(">HHHHI", 9, 9, ip_bytes - 20, 0, 0xBE9BE955)
    record = struct.pack("<IIII", 0, 0, captured, captured) + frame.ljust(captured, b"\0")
    rows = np.tile(np.frombuffer(record, np.uint8), (len(numbers), 1))
    sent_us = START_US + numbers
    seconds, nanoseconds = np.divmod(sent_us * 1000 + delays_ns, 10**9)
    of_stamp = np.divmod(sent_us, 10**6)
    for at, kind, values in (
        (0, "<u4", seconds),
        (4, "<u4", nanoseconds),
        (62, ">u4", numbers),
        (66, ">u4", of_stamp[0]),
        (70, ">u4", of_stamp[1]),
    ):
        rows[:, at : at + 4] = values.astype(kind).view(np.uint8).reshape(-1, 4)
    return rows


def tools(path: Path, with_tshark: bool) -> dict[str, list[str]]:
    file = str(path)
    commands = {
        "netbench": [sys.executable, *NETBENCH, file],
        "capinfos": ["capinfos", file],
        "capinfos -c": ["capinfos", "-c", file],
        "tcpdump --count": ["tcpdump", "-r", file, "--count"],
        "cat": ["cat", file],
        "dpkt": [sys.executable, "-c", DPKT, file],
    }
    if with_tshark:
        commands["tshark"] = ["tshark", "-r", file]
    return commands


def installed(argv: Sequence[str]) -> bool:
    if DPKT in argv:
        return importlib.util.find_spec("dpkt") is not None
    return shutil.which(argv[0]) is not None


def measure(argv: Sequence[str]) -> Cost:
    """The cost of one run of a process, which must succeed; only the output of netbench is kept."""
    kept = argv[1:-1] == NETBENCH
    begin = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE if kept else subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    output = process.stdout.read().decode() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"benchmarks/capture.py: exit code {process.returncode} from: {' '.join(argv)}")
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss, output)


def report(names: Sequence[str], costs: dict[str, Cost], frames: int) -> None:
    ours = costs["netbench"].cpu_s
    print(f"{'':16} {'frames/s':>12} {'wall s':>8} {'CPU s':>8} {'CPU / netbench':>15} {'peak MiB':>9}")
    for name in names:
        if name not in costs:
            print(f"{name:16} missing: not installed here")
            continue
        cost = costs[name]
        rate = frames / max(cost.wall_s, 1e-3)
        share, peak = cost.cpu_s / ours, cost.peak_kib / 1024
        print(f"{name:16} {rate:12,.0f} {cost.wall_s:8.3f} {cost.cpu_s:8.3f} {share:15.2f} {peak:9.1f}")


def verify(document: dict[str, list[dict[str, object]]], truth: Truth) -> None:
    """Exit with code 1 if netbench's results differ from the content of the file."""
    (stream,) = document["streams"]
    names = {"received": "received_frames", "missing": "missing_frames", "duplicates": "duplicate_frames"}
    names |= {"reordered": "reordered_frames"}
    wrong = [
        f"{name}: {stream[names.get(name, name)]} instead of {getattr(truth, name)}"
        for name in Truth.__slots__
        if stream[names.get(name, name)] != getattr(truth, name)
    ]
    if wrong:
        sys.exit("netbench is wrong about the file: " + "; ".join(wrong))
    print("netbench's counts are those the file was made with")


if __name__ == "__main__":
    main()
