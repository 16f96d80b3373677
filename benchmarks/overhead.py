"""The overhead of a campaign relative to the intended time, and its parts.

Runs one-second trials on the topology `netns`, as a user would. Divides the time of the whole command, report included,
by the sum of the trials' durations and settling times; likewise the time from the first trial's start to the last one's
end, with everything between them. The parts of the overhead are read from the campaign's events and from the steps of
its trials.

    sudo python benchmarks/overhead.py [--repetitions N] [--duration SECONDS] [--check]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.model.profile import Profile
from netbench.model.trial import TrialResult
from netbench.results.directory import ResultDirectory

# Limits, as multiples of the intended time: of the command with 54 trials, and of the trials alone. On a virtual
# machine with two CPUs and other load, they were 1.13 and 1.07.
LIMIT, TRIALS_LIMIT = 1.25, 1.15
NOISE_LIMIT_S = 3.0  # for the noise floor, and the calibration of sources, of which this campaign needs none
PROFILE = """
frame_sizes: [64, 1500]
loads: [1kfps, 10kfps, 50kfps]
repetitions: {repetitions}
duration: {duration:g}s
"""
NOISE = "noise-floor-measured"
# The parts of the time before each event; the time before the end of a trial is split further by the trial's steps.
UNTIL = {
    "campaign-started": "start: load netbench, make the testbed",
    "uut-ready": "bring up UUTs",
    NOISE: "measure the noise floor",
    "trial-started": "between trials",
    "trial-stored": "store trials",
    "campaign-finished": "take down the last UUT",
}
TRIALS = "trial-finished"
# A step that spans others.
SPANNING = "observe"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a campaign: its total time, and the intended share of that, in seconds."""

    name: str
    took_s: float
    asked_s: float = 0.0


def main() -> None:
    options = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("benchmarks/overhead.py: network namespaces need root; run it with sudo")
    with tempfile.TemporaryDirectory() as directory:
        file, results = Path(directory, "overhead.yaml"), ResultDirectory(Path(directory, "results"))
        file.write_text(PROFILE.format(repetitions=options.repetitions, duration=options.duration))
        began_ns, ended_ns, cpu_s, peak_mb = run(file, results.path)
        trials = tuple(results.results().trials)
        happened = list(times(results, began_ns, ended_ns))
        parts = list(breakdown(trials, load_profile(file, profile_kinds()), happened))
    ratio, of_trials = report(parts, len(trials), trials_s(happened))
    noise_s = sum(seconds for kind, seconds in happened if kind == NOISE)
    print(f"the noise floor took {noise_s:.2f} s (limit, with calibration: {NOISE_LIMIT_S:g} s)")
    print(f"CPU time of netbench and what it started: {cpu_s:.2f} s, {1e3 * cpu_s / len(trials):.0f} ms a trial")
    print(f"peak memory of the largest of its processes: {peak_mb:.1f} MB")
    sys.exit(1 if options.check and (ratio > LIMIT or of_trials > TRIALS_LIMIT or noise_s > NOISE_LIMIT_S) else 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what a campaign takes beside what was asked for")
    parser.add_argument("--repetitions", type=int, default=3, help="of 18 trials (default: 3)")
    parser.add_argument("--duration", type=float, default=1.0, help="of a trial, in seconds (default: 1)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio is above its limit")
    options = parser.parse_args()
    if options.repetitions < 1 or not 0.1 <= options.duration <= 60:
        parser.error("at least 1 repetition, 0.1–60 seconds")
    return options


def run(profile: Path, results: Path) -> tuple[int, int, float, float]:
    """Run the campaign; returns its start and end (CLOCK_REALTIME, ns), its CPU time in s, its peak memory in MB.

    All Python files are compiled, as in an installation of netbench. Trials that stay invalid do not matter here.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "netbench", "run", "netns", str(profile), "-o", str(results)]
    subprocess.run([*command, "--dry-run"], stdout=subprocess.DEVNULL, check=True, env=environment)
    before, began_ns = resource.getrusage(resource.RUSAGE_CHILDREN), time.time_ns()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    ended_ns = time.time_ns()
    if done.returncode:
        sys.exit(f"benchmarks/overhead.py: exit code {done.returncode} from: {' '.join(command)}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return began_ns, ended_ns, cpu_s, after.ru_maxrss / 1024


def times(results: ResultDirectory, began_ns: int, ended_ns: int) -> Iterator[tuple[str, float]]:
    """The events of a campaign, each with the seconds since the previous one."""
    events = [json.loads(line) for line in results.events.read_text().splitlines()]
    happened = [("", began_ns), *((event["kind"], event["time_ns"]) for event in events), ("end", ended_ns)]
    for (_, earlier_ns), (kind, later_ns) in pairwise(happened):
        yield kind, (later_ns - earlier_ns) / 1e9


def trials_s(times: Sequence[tuple[str, float]]) -> float:
    """The seconds from the first trial's start until the last one was stored, including the start of UUTs."""
    kinds = [kind for kind, _ in times]
    first, last = kinds.index("trial-started"), len(kinds) - 1 - kinds[::-1].index("trial-stored")
    return sum(seconds for _, seconds in times[first + 1 : last + 1])


def breakdown(trials: Sequence[TrialResult], profile: Profile, times: Sequence[tuple[str, float]]) -> Iterator[Part]:
    """All of a campaign's time, part by part."""
    until: defaultdict[str, float] = defaultdict(float)
    for kind, seconds in times:
        until[kind] += seconds
    steps: defaultdict[str, float] = defaultdict(float)
    for name, seconds in (step for trial in trials for step in trial.steps_s.items()):
        if name != SPANNING:
            steps[name] += seconds
    asked_of = {"send": profile.settle.before + profile.duration, "drain": profile.settle.after}
    for name, seconds in steps.items():
        yield Part(f"trials: {name}", seconds, len(trials) * asked_of.get(name, 0.0))
    yield Part("trials: read counters, judge, attempts that were repeated", until.pop(TRIALS) - sum(steps.values()))
    for kind, name in UNTIL.items():
        yield Part(name, until.pop(kind, 0.0))
    yield Part("end: undo the testbed, write the report", until.pop("end"))
    yield Part("anything else", sum(until.values()))


def report(parts: Sequence[Part], trials: int, trials_s: float) -> tuple[float, float]:
    """Print the parts; returns the ratios of the time of all parts, and of the trials, to the intended time."""
    took, asked = sum(part.took_s for part in parts), sum(part.asked_s for part in parts)
    print(f"{'':58}{'took s':>9}{'asked s':>9}{'more s':>9}{'ms a trial':>12}")
    for part in (*parts, Part("all", took, asked)):
        more = part.took_s - part.asked_s
        print(f"{part.name:58}{part.took_s:9.2f}{part.asked_s:9.2f}{more:9.2f}{1e3 * more / trials:12.1f}")
    print(f"\n{trials} trials took {took / asked:.3f} times what was asked for (limit: {LIMIT})")
    print(f"from the first one's start to the last one's end: {trials_s / asked:.3f} (limit: {TRIALS_LIMIT})")
    return took / asked, trials_s / asked


if __name__ == "__main__":
    main()
