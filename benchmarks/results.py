"""The cost of `export`, `report` and `compare` for a large campaign: time, CPU time and memory.

Generates a campaign of many trials, like those of a guest beside a neighbour, and runs the commands on it. The memory
is at least this script's own, because a new process inherits the peak.

    python -m benchmarks.results [--trials N] [--keep DIR] [--check]
"""

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from netbench.model.counts import StreamCounts
from netbench.model.distributions import LossRuns
from netbench.model.trial import TrialResult
from netbench.results.directory import ResultDirectory
from netbench.results.store import Store
from tests.unit.inputs import profile, topology
from tests.unit.points import count, loss
from tests.unit.results_factory import MANIFEST, neighbour, spread, stream_counts, trial

# Limits of each command for 20,000 trials.
LIMIT_CPU_S, LIMIT_MB = 5.0, 200
# `compare` reads two such campaigns.
COMPARE, COMPARE_CPU_S, COMPARE_MB = "compare with another", 6.0, 400
UUTS = ("raw", "virtio", "e1000", "vmxnet3")
SCENARIOS = ("dedicated", "shared-spread")
FRAME_SIZES = (64, 256, 512, 1500)
LOADS = tuple(f"{thousands}000fps" for thousands in range(1, 26))
POINTS = ("source NIC", "ingress NIC", "ingress tap", "guest ingress NIC", "guest egress NIC", "egress tap", "sink NIC")
COMMANDS = {
    "export, CSV": ("export", "--format", "csv", "-o", "trials.csv"),
    "export, JSON": ("export", "--format", "json", "-o", "trials.json"),
    "export, Parquet": ("export", "--format", "parquet", "-o", "trials.parquet"),
    "export, aggregate": ("export", "--format", "csv", "--aggregate", "-o", "groups.csv"),
    "report": ("report", "-o", "report.html"),
}


def trials() -> Iterator[TrialResult]:
    """Yield endless trials: one repetition of all measurements after the other."""
    index = 0
    repetition = 0
    while True:
        repetition += 1
        for uut, scenario, size, load in product(UUTS, SCENARIOS, FRAME_SIZES, LOADS):
            offered = int(load.removesuffix("fps"))
            lost = max(0, offered - 14_000) * (100 + (repetition * 7 + index) % 5) // 100
            beside = neighbour(
                _stream("n1", 5_000, 7 * repetition), name="second", cpu_s={"guest": 0.5, "host": 1.0, "load": 0.5}
            )
            yield trial(
                _stream("s1", offered, lost),
                uut=uut,
                scenario=scenario,
                frame_size=size,
                load=load,
                repetition=repetition,
                index=index,
                neighbours=(beside,) if scenario == "shared-spread" else (),
                counters=tuple(count("guest softnet", f"counter_{number}", "repeated", 0) for number in range(8)),
                cpu_s={"guest": 0.5 + repetition / 1000, "host": 1.5},
                machine_cpu_s=1.9,
                steps_s={"arm": 0.1, "send": 1.0, "drain": 0.1, "observe": 1.2},
                boot=repetition,
            )
            index += 1


def _stream(stream: str, sent: int, lost: int) -> StreamCounts:
    counters = [
        count(name, counter, role, grew)
        for name in POINTS
        for counter, role, grew in (
            ("rx", "passed", sent),
            ("tx", "passed", sent - lost),
            ("rx_dropped", "dropped", 0),
            ("tx_dropped", "dropped", lost),
            ("rx_errors", "errors", 0),
        )
    ]
    return stream_counts(
        stream,
        sent=sent,
        received=sent - lost,
        intended_fps=float(sent),
        intended_frames=sent,
        lost_at=(loss("ingress tap (tx_dropped)", lost),) if lost else (),
        counters=tuple(counters),
        delay=spread(80_000, 200_000 + lost, 9_000_000),
        ipdv=spread(0, 1_000 + lost, 2_000_000),
        loss_run_lengths=(LossRuns(1, lost),) if lost else (),
    )


def make_campaign(path: Path, count: int) -> None:
    """Make a finished campaign of this many generated trials."""
    directory = ResultDirectory(path)
    manifest = {**MANIFEST, "planned_trials": count, "uuts": list(UUTS), "scenarios": list(SCENARIOS)}
    with (
        directory.created(topology(), profile(), manifest),
        contextlib.closing(Store.open(directory.store)) as store,
    ):
        store._connection.execute("PRAGMA synchronous = OFF")  # generated trials can be made again
        for trial in islice(trials(), count):
            store.add(trial)


def make_apart(path: Path, count: int) -> None:
    """Make the campaign in a separate process, so that the commands do not inherit its peak memory."""
    child = os.fork()
    if not child:
        make_campaign(path, count)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("benchmarks/results.py: the campaign could not be made")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--keep", type=Path, help="make the campaign there, or use the one that is there")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a command takes more than its limit")
    options = parser.parse_args()
    over = []
    with tempfile.TemporaryDirectory(prefix="netbench-results-") as scratch:
        path = options.keep or Path(scratch) / "campaign"
        if not path.exists():
            make_apart(path, options.trials)
        print(f"{'':20}{'seconds':>9}{'CPU s':>8}{'MB at most':>12}")
        other = shutil.copytree(path, Path(scratch) / "other")
        compared = {COMPARE: ("compare", str(other), "--html", "compare.html")}
        for name, (command, *arguments) in {**COMMANDS, **compared}.items():
            seconds, used = measured([sys.executable, "-m", "netbench", command, str(path), *arguments], Path(scratch))
            cpu_s, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
            print(f"{name:20}{seconds:9.1f}{cpu_s:8.1f}{peak_mb:12.0f}", flush=True)
            most_s, most_mb = (COMPARE_CPU_S, COMPARE_MB) if name == COMPARE else (LIMIT_CPU_S, LIMIT_MB)
            if cpu_s > most_s or peak_mb > most_mb:
                over.append(f"{name} ({most_s:g} s, {most_mb} MB)")
    if over:
        print(f"more CPU time or memory than allowed: {'; '.join(over)}")
    sys.exit(1 if options.check and over else 0)


def measured(argv: list[str], directory: Path) -> tuple[float, resource.struct_rusage]:
    """The seconds that a command took, and its resource usage."""
    started = time.monotonic()
    process = subprocess.Popen(argv, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    return time.monotonic() - started, used


if __name__ == "__main__":
    main()
