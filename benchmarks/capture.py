"""How much CPU and memory netbench's analysis of a capture needs, beside other tools on the same file.

Every tool is a process of its own, measured whole: interpreter, imports and all. netbench finds losses,
duplicates, reordering, rates and delays; the others count or only read. All take turns for several rounds,
of which the one with the least CPU counts. The file is in the page cache; `cat` shows what reading costs.

    python benchmarks/capture.py [--frames N] [--captured BYTES] [--rounds N] [--tshark]
"""

import argparse
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NETBENCH = """
import sys
from pathlib import Path
from netbench.analysis.present import analyze_command
print(analyze_command(Path(sys.argv[1]), as_json=False))
"""
DPKT = """
import sys, dpkt
with open(sys.argv[1], "rb") as file:
    print(sum(1 for _ in dpkt.pcap.UniversalReader(file)))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a process took: CPU (user + system) in s, and peak memory in KiB.

    The memory is at least this script's own, some 10 MiB: the kernel hands the peak on to a new process.
    """

    cpu_s: float
    peak_kib: int


def main() -> None:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "frames.pcap"
        write_capture(path, options.frames, options.captured)
        print(f"{options.frames:,} frames, {options.captured} bytes of each: {path.stat().st_size:,} bytes")
        commands = tools(path, options.tshark)
        present = {name: argv for name, argv in commands.items() if installed(argv)}
        rounds = [{name: measure(argv) for name, argv in present.items()} for _ in range(options.rounds)]
    best = {name: min((costs[name] for costs in rounds), key=lambda cost: cost.cpu_s) for name in present}
    report(list(commands), best, options.frames)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="netbench's analysis of a capture beside other tools")
    parser.add_argument("--frames", type=int, default=2_000_000, help="frames in the file (default: 2,000,000)")
    parser.add_argument("--captured", type=int, default=60, help="bytes captured of each, 58–1514 (default: 60)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool runs (default: 3)")
    parser.add_argument("--tshark", action="store_true", help="tshark too, which takes long")
    parser.add_argument("--directory", type=Path, help="where the file goes for the time being")
    options = parser.parse_args()
    if options.frames < 1 or options.rounds < 1 or not 58 <= options.captured <= 1514:
        parser.error("at least 1 frame and 1 round, 58–1514 bytes captured")
    return options


def write_capture(path: Path, count: int, captured: int) -> None:
    """One stream of 1,000,000 frames/s, captured whole 5 µs after sending."""
    ip_bytes = captured - 14
    frame = bytes.fromhex("020000000001 020000000002 0800 4500")
    frame += struct.pack(">HHHBBH", ip_bytes, 0, 0, 64, 17, 0) + bytes((198, 18, 0, 1, 198, 18, 0, 2))
    frame += struct.pack(">HHHHI", 9, 9, ip_bytes - 20, 0, 0xBE9BE955)
    record = bytearray(struct.pack("<IIII", 0, 0, captured, captured) + frame.ljust(captured, b"\0"))
    captured_at, header = struct.Struct("<II"), struct.Struct(">III")
    with path.open("wb", buffering=1 << 20) as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1))
        for number in range(count):
            seconds, microseconds = divmod(1_700_000_000_000_000 + number, 1_000_000)
            captured_at.pack_into(record, 0, *divmod(1_700_000_000_000_005 + number, 1_000_000))
            header.pack_into(record, 62, number, seconds, microseconds)
            file.write(record)


def tools(path: Path, with_tshark: bool) -> dict[str, list[str]]:
    file = str(path)
    commands = {
        "netbench analyze": [sys.executable, "-c", NETBENCH, file],
        "capinfos": ["capinfos", file],
        "capinfos -c": ["capinfos", "-c", file],
        "tcpdump --count": ["tcpdump", "-r", file, "--count"],
        "dpkt (count)": [sys.executable, "-c", DPKT, file],
        "cat": ["cat", file],
    }
    if with_tshark:
        commands["tshark"] = ["tshark", "-r", file]
    return commands


def installed(argv: Sequence[str]) -> bool:
    if DPKT in argv:
        return importlib.util.find_spec("dpkt") is not None
    return shutil.which(argv[0]) is not None


def measure(argv: Sequence[str]) -> Cost:
    """One run of a process whose output is thrown away; it must succeed."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"benchmarks/capture.py: exit code {process.returncode} from: {' '.join(argv)}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def report(names: Sequence[str], costs: dict[str, Cost], frames: int) -> None:
    ours = costs["netbench analyze"].cpu_s
    print(f"{'':18} {'CPU s':>8} {'frames/CPU s':>14} {'peak MiB':>9} {'CPU / netbench':>15}")
    for name in names:
        if name not in costs:
            print(f"{name:18} missing: not installed here")
            continue
        cost = costs[name]
        rate = frames / max(cost.cpu_s, 1e-3)
        print(f"{name:18} {cost.cpu_s:8.3f} {rate:14,.0f} {cost.peak_kib / 1024:9.1f} {cost.cpu_s / ours:15.2f}")


if __name__ == "__main__":
    main()
