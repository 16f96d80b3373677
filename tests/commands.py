"""netbench as a user runs it: as a process of its own."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

# What a trial is told of where this machine, or all of an emulated one, stood still for a moment.
HELD_UP = frozenset({"uneven-pacing", "buffered", "sources-apart"})
# In tests these commands exit with 1 if a trial stayed invalid.
STRICT = frozenset({"run", "resume", "search"})
# Most tests need no noise floor, which takes more than a second.
NO_NOISE_FLOOR = "noise_floor=0"


def netbench(*arguments: object, timeout_s: float = 120, netns: str = "", **more) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a network namespace if one is named."""
    argv = _argv(arguments, netns)
    more.setdefault("env", dict(os.environ))
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, **more)


def start(*arguments: object, netns: str = "", **more) -> "subprocess.Popen[str]":
    """Start a command, likewise."""
    argv = _argv(arguments, netns)
    more.setdefault("env", dict(os.environ))
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def _argv(arguments: tuple[object, ...], netns: str) -> list[str]:
    if arguments[0] in STRICT:
        arguments = (*arguments, "--strict")
    if arguments[0] in ("run", "search") and "noise_floor" not in " ".join(map(str, arguments)):
        arguments = (*arguments, "--set", NO_NOISE_FLOOR)
    inside = ["ip", "netns", "exec", netns] if netns else []
    return [*inside, sys.executable, "-m", "netbench", *map(str, arguments)]


def rows(directory: Path) -> list[dict[str, str]]:
    """What `netbench export --format csv` says of a result directory."""
    done = netbench("export", directory, "--format", "csv")
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def verdict_of(row: dict[str, str]) -> str:
    """The verdict of a row; "valid" too where only that this machine stood still for a moment speaks against it.

    Its hypervisor may do that to it, for 0.1 s and more. That such trials are suspicious has tests of its own.
    The verdict is that of the trial, the reasons are the row's own: where it has none, those are in another stream's.
    """
    held_up = row["verdict"] == "suspicious" and set(row["reasons"].split(";")) <= HELD_UP | {""}
    return "valid" if held_up else row["verdict"]


def settings(**values: object) -> list[str]:
    """`--set` options: `_` at the end of a word of a key stands for `.` (duration=…, topology_uuts_0_name=…)."""
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


# How evenly a shared machine can send is not the point where this is told: every frame is sent, however late.
PATIENT = settings(tolerance="100%", max_lateness="1min")
# Nor is what the ring of a link loses of frames that come late and all at once: there is none, ...
INLINE = settings(topology__links__0__receive="inline")
# ... or it has room for all frames of a trial. It holds 256 (VETH_RING_SIZE).
FEW_FRAMES = 200
FEW = [*settings(frame_sizes=64, loads="2000fps", repetitions=1, duration="100ms"), *PATIENT]
