"""netbench as a user runs it: as a separate process."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from netbench.results.directory import ResultDirectory
from netbench.results.export_files import export

# The reasons against a trial in which this machine, or an emulated one, stalled for a moment.
HELD_UP = frozenset({"uneven-pacing", "buffered", "sources-apart"})
# The reasons for which tests repeat a trial, as a campaign repeats invalid ones.
REPEATED = HELD_UP | {"tester-disturbed"}
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
    """Start a command, in a network namespace if one is named."""
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
    """The rows of `netbench export --format csv` for a result directory, without a process for it."""
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "rows.csv")
        export(ResultDirectory(directory).results(counters=False), "csv", aggregate=False, out=file)
        return list(csv.DictReader(io.StringIO(file.read_text())))


def verdict_of(row: dict[str, str]) -> str:
    """The verdict of a row; also "valid" where the only reason against it is that this machine stalled for a moment.

    Its hypervisor may stop it for 0.1 s and more. Other tests check that such trials are suspicious.
    The verdict is that of the trial, the reasons are those of the row; without any, they are in another stream's row.
    """
    held_up = row["verdict"] == "suspicious" and set(row["reasons"].split(";")) <= HELD_UP | {""}
    return "valid" if held_up else row["verdict"]


def settings(**values: object) -> list[str]:
    """`--set` options: `_` at the end of a word of a key stands for `.` (duration=…, topology_uuts_0_name=…)."""
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


# For tests that do not depend on how evenly a shared machine sends: every frame is sent, however late.
PATIENT = settings(tolerance="100%", max_lateness="1min")
# For tests that do not depend on losses in the ring of a link, caused by late frames in a burst: there is no ring ...
INLINE = settings(topology__links__0__receive="inline")
# ... or it has room for all frames of a trial. Its size is 256 (VETH_RING_SIZE).
FEW_FRAMES = 200
FEW = [*settings(frame_sizes=64, loads="2000fps", repetitions=1, duration="100ms"), *PATIENT]
