"""Processes like those of stress-ng, for machines without it: a parent, workers, and children of memory workers.

The variable STAND_IN makes it misbehave: it `refuses` its options, `ends` at once, starts one worker too `few`, or is
`slow`: workers begin one after the other.
"""

import os
import sys
import time
from collections.abc import Callable

SLOW_S = 0.3


def worker(work: Callable[[], None]) -> int:
    """Start a child that works as long as its parent lives; return its process ID."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def compute() -> None:
    """Compute until the parent dies."""
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(1000))


def fill() -> None:
    """Have a child compute, and another one when it is killed."""
    parent = os.getppid()
    while os.getppid() == parent:
        os.waitpid(worker(compute), 0)


def main(words: list[str]) -> int:
    """Run the stand-in; return the exit code."""
    manner = os.environ.get("STAND_IN", "")
    if "--version" in words:
        return 0
    if manner == "refuses":
        print("stress-ng: unrecognized option", file=sys.stderr)
        return 2
    if manner == "ends" or "--dry-run" in words:
        return 0
    numbers = {name: int(words[words.index(name) + 1]) if name in words else 0 for name in ("--cpu", "--vm")}
    for _ in range(numbers["--cpu"] - (manner == "few")):
        time.sleep(SLOW_S if manner == "slow" else 0)
        worker(compute)
    for _ in range(numbers["--vm"]):
        worker(fill)
    while True:
        os.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
