"""Ctrl-C, SIGTERM and a closed terminal as an exception that unwinds and cleans up, and places where they must wait."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived. A KeyboardInterrupt, so that event loops let it pass."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Raise Stopped on SIGINT, SIGTERM and SIGHUP, except where `shielded` makes them wait."""
    owner = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            # A fork (pyroute2 enters namespaces in one, and ends it by SIGTERM): unwinding there would
            # take down what the original still uses.
            os._exit(128 + signum)
        raise Stopped(signum)

    before = {one: signal.signal(one, stop) for one in _STOPPING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP wait until the block is done."""
    owner = os.getpid()
    waiting: list[int] = []

    def wait(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(128 + signum)
        waiting.append(signum)

    # Blocking them would not do: the kernel hands a blocked signal to another thread, and numpy starts some.
    before = {one: signal.signal(one, wait) for one in _STOPPING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if waiting:
            signal.raise_signal(waiting[0])
