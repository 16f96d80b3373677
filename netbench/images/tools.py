"""Runs the commands that build images."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from netbench.errors import MissingError, TestbedError

Completed: TypeAlias = "subprocess.CompletedProcess[bytes]"
_LAST_LINES = 4
# Debian's packages of commands; other packages are called like their command.
_PACKAGES = {"strip": "binutils", "xz": "xz-utils", "lzma": "xz-utils"}
_PACKAGES |= dict.fromkeys(("depmod", "modinfo", "modprobe"), "kmod")
_OF_DEBIAN = ("apt-get", "dpkg", "dpkg-deb", "/usr/lib/apt/apt-helper")


def run_tool(
    argv: Sequence[str | Path], *, stdin: bytes = b"", cwd: Path | None = None, environment: Mapping[str, str] = {}
) -> Completed:
    """Run a command in the C locale, with any exit code; MissingError where it is not installed.

    An exception such as Stopped ends all its processes.
    """
    # Administrators' commands are not in the PATH of users.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    variables = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "PATH": path, **environment}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=variables, process_group=0)
    except FileNotFoundError:
        raise MissingError(missing_tool(str(argv[0]))) from None
    with process:
        try:
            stdout, stderr = process.communicate(stdin)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def require_output(argv: Sequence[str | Path], failure: str, *, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
    """Return the output of a command; TestbedError with the message `failure` where it fails."""
    done = run_tool(argv, stdin=stdin, cwd=cwd)
    if done.returncode:
        raise TestbedError(f"{failure}; {Path(argv[0]).name} reports:\n{last_words(done)}")
    return done.stdout


def missing_tool(name: str) -> str:
    """Return the message for a user whose machine lacks a command."""
    if name in _OF_DEBIAN:
        return (
            f"{name} is missing: guest images are built from Debian packages. Build them on Debian or a derivative "
            "(also in a container), and copy the cache's images/NAME here"
        )
    return f"{name} is missing: apt-get install {_PACKAGES.get(name, name)}"


def last_words(done: Completed) -> str:
    """Return the last lines of a command's error output, for an error message."""
    output = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in output[-_LAST_LINES:]) or f"  exit code {done.returncode}"
