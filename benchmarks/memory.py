"""The memory of a controller during a campaign: it should be the same after 10,000 trials as after 1,000.

Runs a campaign of very short trials on the topology `netns`, as a user would, and reads the controller's memory from
the kernel at regular intervals. The peak at the end, including the table on the console and the report, is printed
separately.

    sudo python benchmarks/memory.py [--trials N] [--every N] [--uut NAME] [--duration SECONDS] [--check]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

# Memory that a trial may keep, from the WARM_UPth on: by then all addresses of sources have been used.
LIMIT_BYTES = 200
WARM_UP = 1000
MOST_REPETITIONS = 1000  # of a profile
PROFILE = """
frame_sizes: [64]
loads: [{loads}]
repetitions: {repetitions}
duration: {duration:g}s
settle: {{before: 0s, after: 1ms}}
retries: 0
"""


@dataclass(frozen=True, slots=True)
class Look:
    """The memory of a process after this many trials, in KiB: resident, anonymous, and the peak so far."""

    trials: int
    resident: int
    anonymous: int
    peak: int


def main() -> None:
    options = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("benchmarks/memory.py: network namespaces need root; run it with sudo")
    looks = []
    print(f"{'trials':>8}{'resident MB':>13}{'anonymous MB':>14}{'peak MB':>9}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for look in walk(options, Path(directory)):
            looks.append(look)
            sizes = [size / 1024 for size in (look.resident, look.anonymous, look.peak)]
            print(f"{look.trials:8,}{sizes[0]:13.2f}{sizes[1]:14.2f}{sizes[2]:9.2f}", flush=True)
    grown = growth(looks)
    if grown is None:
        print(f"too few trials to tell growth: it is from trial {WARM_UP:,} on")
        return
    print(f"\n{grown:,.0f} bytes a trial from trial {WARM_UP:,} on (limit: {LIMIT_BYTES})")
    sys.exit(1 if options.check and grown > LIMIT_BYTES else 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what a controller holds in memory as its campaign goes on")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500, help="trials between two looks (default: 500)")
    parser.add_argument("--uut", default="bridge", help="of the topology netns (default: bridge)")
    parser.add_argument("--duration", type=float, default=0.005, help="of a trial, in seconds (default: 0.005)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a trial leaves more than its limit")
    options = parser.parse_args()
    if options.trials < 1 or options.every < 1 or not 0.001 <= options.duration <= 60:
        parser.error("at least 1 trial, a look every trial or less often, 0.001–60 seconds")
    return options


def walk(options: argparse.Namespace, directory: Path) -> Iterator[Look]:
    """Run the campaign, and yield the memory of its controller; finally print the peak after everything was done."""
    repetitions = min(options.trials, MOST_REPETITIONS)
    loads = ", ".join(f"{number}kfps" for number in range(1, -(-options.trials // repetitions) + 1))
    profile = directory / "memory.yaml"
    profile.write_text(PROFILE.format(loads=loads, repetitions=repetitions, duration=options.duration))
    command = [sys.executable, "-m", "netbench", "run", "netns", str(profile), "--uut", options.uut]
    with subprocess.Popen([*command, "-o", str(directory / "results")], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        done, peak = 0, 0
        for line in running.stdout:
            number, slash, _ = line.partition("/")
            if slash and number.isdigit():
                done = int(number)
                if done % options.every == 0:
                    yield (look := look_at(running.pid, done))
                    peak = look.peak
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        sys.exit(f"benchmarks/memory.py: exit code {running.returncode} from: {' '.join(command)}")
    print(f"at the end, report included: {max(peak, used.ru_maxrss) / 1024:.2f} MB at most")


def look_at(pid: int, trials: int) -> Look:
    lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    found = {name: int(value.split()[0]) for name, _, value in lines if name in ("VmRSS", "RssAnon", "VmHWM")}
    return Look(trials, found["VmRSS"], found["RssAnon"], found["VmHWM"])


def growth(looks: Sequence[Look]) -> float | None:
    """The growth of anonymous memory, in bytes per trial; None for fewer than two samples after the warm-up.

    It is the median of the growth between two samples: malloc may keep a freed window of a capture (4 MB, once per
    thread) at any time, while the leaks of every trial appear between all samples.
    """
    late = [look for look in looks if look.trials >= WARM_UP]
    between = [1024 * (b.anonymous - a.anonymous) / (b.trials - a.trials) for a, b in pairwise(late)]
    return median(between) if between else None


if __name__ == "__main__":
    main()
