"""netbench as a user runs it: as a process of its own."""

import csv
import io
import subprocess
import sys
from pathlib import Path


def netbench(*arguments: object, timeout_s: float = 120, **more) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    argv = [sys.executable, "-m", "netbench", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, **more)


def start(*arguments: object, **more) -> "subprocess.Popen[str]":
    """Start a command."""
    argv = [sys.executable, "-m", "netbench", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def rows(directory: Path) -> list[dict[str, str]]:
    """What `netbench export --format csv` says of a result directory."""
    done = netbench("export", directory, "--format", "csv")
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


def settings(**values: object) -> list[str]:
    """`--set` options: `_` at the end of a word of a key stands for `.` (duration=…, topology_uuts_0_name=…)."""
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
