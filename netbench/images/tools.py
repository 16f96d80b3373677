"""Runs the Debian commands that build images."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from netbench.errors import MissingError

Completed: TypeAlias = "subprocess.CompletedProcess[bytes]"
_WORDS = 4


def run_tool(
    argv: Sequence[str | Path], *, stdin: bytes = b"", cwd: Path | None = None, environment: Mapping[str, str] = {}
) -> Completed:
    """Run a command in the C locale, with any exit code; MissingError where it is not installed."""
    variables = {**os.environ, "LC_ALL": "C", **environment}
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, cwd=cwd, env=variables)
    except FileNotFoundError:
        raise MissingError(missing_tool(str(argv[0]))) from None


def start_tool(argv: Sequence[str | Path]) -> "subprocess.Popen[bytes]":
    """Start a command in the C locale whose output is read while it runs; MissingError where it is not installed."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise MissingError(missing_tool(str(argv[0]))) from None


def missing_tool(name: str) -> str:
    """Return the message for a user whose machine lacks a command."""
    if name in ("apt-get", "dpkg", "dpkg-deb"):
        return (
            f"there is no {name} here: guest images are made from Debian packages, so build them on Debian or one of "
            "its children (a container will do) and copy the cache's images/NAME here"
        )
    return f"there is no {name} here: apt-get install {name}"


def last_words(done: Completed) -> str:
    """Return the last lines of a command's error output, for an error message."""
    output = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in output[-_WORDS:]) or f"  exit code {done.returncode}"
