"""Ending what a killed run left behind: processes that carry its mark in their environment."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from netbench.hosts.clock import wait_until
from netbench.hosts.local import MARK


def marked_processes(run_id: str) -> Iterator[tuple[int, str]]:
    """Process id and command line of every process that this run started and that is still there."""
    wanted = f"{MARK}={run_id}".encode()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield int(directory.name), words
        except OSError:
            continue  # ended meanwhile, or not ours to read


def end_marked_processes(run_id: str, patience_s: float = 2.0) -> list[str]:
    """Kill them and wait until they are gone; the command lines of those ended."""
    ended = []
    for pid, words in list(marked_processes(run_id)):
        try:
            os.kill(pid, signal.SIGKILL)
            ended.append(words)
        except ProcessLookupError:
            continue
    wait_until(lambda: not any(marked_processes(run_id)), patience_s, 0.01)
    return ended
