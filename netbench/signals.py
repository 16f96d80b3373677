"""Signals that stop, such as those of Ctrl-C, as an exception that cleans up, and blocks in which they wait."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, TracebackType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A key that is held down repeats each 30 ms or so. A signal after such a pause is another wish to stop.
_REPEATED_S = 2.0


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM, SIGHUP or SIGQUIT arrived. A KeyboardInterrupt, so that event loops let it pass."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Shield:
    """The handler of signals that stop: it raises Stopped for the first of a series, outside shielded blocks.

    Further signals of that series are ignored. They would interrupt the clean-up that the first one began.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.depth = 0  # how many shielded blocks the program is in
        self._waiting: int | None = None
        self._has_raised = False
        self._latest_s = -_REPEATED_S
        self._other_hook = sys.unraisablehook

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal: raise Stopped, now or when the shielded blocks are done."""
        if os.getpid() != self._owner:
            # A fork (pyroute2 enters namespaces in one, and ends it by SIGTERM): unwinding there would
            # take down what the original still uses.
            os._exit(128 + signum)
        now_s = time.monotonic()
        is_new = now_s - self._latest_s >= _REPEATED_S and not self.depth
        self._latest_s = now_s
        if self._waiting is None and (is_new or not self._has_raised):
            self._waiting = signum
        self.raise_waiting()

    def discarded(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Have a signal wait once more whose Stopped Python discarded, in a finalizer or a callback of a weakref.

        For sys.unraisablehook. The next signal or the end of the next held block raises it again.
        """
        if not isinstance(unraisable.exc_value, Stopped):
            self._other_hook(unraisable)
            return
        self.depth += 1  # no signal is to raise in here
        self._waiting = self._waiting or unraisable.exc_value.signum
        self.depth -= 1

    def held(self) -> AbstractContextManager[None]:
        """A block in which signals wait; an exception that leaves it is not replaced by Stopped."""
        return _Held(self)

    def lifted(self) -> AbstractContextManager[None]:
        """A block within one that is `held`, which signals stop, unless a third one around both is held."""
        return _Lifted(self)

    def raise_waiting(self) -> None:
        """Raise Stopped for a signal that waits, outside of held blocks."""
        if self._waiting is not None and self.depth == 0:
            signum, self._waiting, self._has_raised = self._waiting, None, True
            raise Stopped(signum)


# Not generators: a signal may arrive while Python enters or leaves one, which then ends whenever it is collected.
class _Held(AbstractContextManager[None]):
    def __init__(self, shield: Shield) -> None:
        self._shield = shield
        self._outside = 0

    def __enter__(self) -> None:
        self._outside = self._shield.depth
        self._shield.depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._shield.depth = self._outside
        if error is None:
            self._shield.raise_waiting()


class _Lifted(AbstractContextManager[None]):
    def __init__(self, shield: Shield) -> None:
        self._shield = shield
        self._outside = 0

    def __enter__(self) -> None:
        self._outside = self._shield.depth
        try:
            self._shield.depth -= 1
            self._shield.raise_waiting()
        except Stopped:
            self._shield.depth = self._outside
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._shield.depth = self._outside


class _NoShield(Shield):
    """For threads other than the main one, which no signal interrupts."""

    def lifted(self) -> AbstractContextManager[None]:
        return nullcontext()


def stop_on_signals() -> Shield:
    """Raise Stopped on SIGINT, SIGTERM, SIGHUP and SIGQUIT from now on, except where `shielded` makes them wait."""
    if isinstance(installed := signal.getsignal(signal.SIGINT), Shield):
        return installed
    shield = Shield()
    for signum in STOPPING:
        signal.signal(signum, shield)
    sys.unraisablehook = shield.discarded
    return shield


@contextmanager
def stopping_on_signals() -> Iterator[Shield]:
    """The same for the block."""
    before, hook = {signum: signal.getsignal(signum) for signum in STOPPING}, sys.unraisablehook
    try:
        yield stop_on_signals()
    finally:
        sys.unraisablehook = hook
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def shielded() -> Iterator[Shield]:
    """Let these signals wait until the block is done, but for parts in which the shield is `lifted`."""
    # Blocking them would not do: the kernel hands a blocked signal to another thread, and numpy starts some.
    if threading.current_thread() is not threading.main_thread():
        yield _NoShield()
        return
    if isinstance(shield := signal.getsignal(signal.SIGINT), Shield):
        with shield.held():
            yield shield
        return
    with stopping_on_signals() as shield:
        try:
            with shield.held():
                yield shield
        except Stopped as stopped:
            waited = stopped.signum
        else:
            return
    signal.raise_signal(waited)


def ignore_signals() -> None:
    """Ignore them from now on: the process ends anyway, with an exit code that they must not replace."""
    for signum in STOPPING:
        signal.signal(signum, signal.SIG_IGN)
