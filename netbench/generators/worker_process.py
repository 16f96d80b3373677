"""The process that a `WorkerSource` starts: what it sends is said in a `Worker`, of which `serve` makes one.

They talk JSON, one object a line. The first reply, to no request, says that it can send, and may have a `version`:

    → {"do": "prepare", "traffic": {…}, …}    ← {"ready": true} or {"failed": "why"}; at first also {"missing": "why"}
    → {"do": "start", "at_monotonic_ns": n}   ← {"sent": {…}} or {"failed": "why"} when sending has ended
    → {"do": "stop"}                          ends sending early; the reply to `start` says so

It ends when its stdin does. Only the standard library is imported here: it starts quickly.
"""

import errno
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict

from netbench.errors import MissingError, NetbenchError
from netbench.model.traffic import Sent, Traffic, traffic_of

# What a source that catches up gently comes to at most: so many times its rate, or frames/s where that is more.
_CATCH_UP, _CATCH_UP_FPS = 1.5, 100_000
# Where catching up is limited, a delay this short is caught up at once: the kernel delays every source that often. No
# queue holds fewer frames than the burst that follows.
_AT_ONCE_FRAMES, _LEAST_AT_ONCE_S, _MOST_AT_ONCE_S = 128, 25e-6, 250e-6
# So many times as long as the mean pause between two sends may any take without a reason.
_USUAL_SCATTER = 10
# A sleeping thread wakes up late by the timer slack (50 µs, prctl(2)) and the scheduler's whim.
_SPIN_NS = 200_000


class Halt:
    """Tells all threads of a trial to end, and why; the first reason stands."""

    def __init__(self) -> None:
        self._event = threading.Event()
        # Polling nothing lets go of the interpreter lock for the length of a system call. Without it, the
        # thread that listens for a stop would starve: woken at each send, always too late for the lock.
        self._breathe = select.poll().poll
        self.reason = ""

    def set(self, reason: str) -> None:
        """End the trial."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        """Whether the trial is to end."""
        return self._event.is_set()

    def sleep_until(self, due_ns: int) -> None:
        """Sleep until about `due_ns` (CLOCK_MONOTONIC), or until the trial is to end."""
        self._event.wait((due_ns - time.monotonic_ns()) / 1e9)

    def wait_until(self, due_ns: int) -> int:
        """Wait for `due_ns` to the microsecond; returns the CLOCK_MONOTONIC time, earlier when halted."""
        now_ns = time.monotonic_ns()
        if due_ns - now_ns > _SPIN_NS:
            self.sleep_until(due_ns - _SPIN_NS)
        while now_ns < due_ns and not self.is_set():
            self._breathe(0)
            now_ns = time.monotonic_ns()
        return now_ns


class Worker:
    """What sends, made of the words of the command line: the interface, the source's arguments, and the CPUs.

    Kept across trials. An OSError is told to whoever asked. `halt` ends the trial that was prepared last.
    """

    halt = Halt()
    version = ""  # of what sends, where that is not netbench itself
    realtime = 0  # the priority in SCHED_FIFO of the threads that send; 0: another class

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of the next trial."""

    def send(self, at_monotonic_ns: int) -> Sent:
        """Send them from `at_monotonic_ns` on, until all are sent or `halt` is set; in a thread of its own."""
        raise NotImplementedError


def serve(make_worker: Callable[..., Worker]) -> None:
    """Do what the lines of stdin say, until it ends."""
    sending: threading.Thread | None = None
    try:
        worker = make_worker(*sys.argv[1:])
    except MissingError as error:
        _reply({"missing": str(error)})
        return
    except (OSError, NetbenchError) as error:
        _reply({"failed": _explain(error)})
        return
    _reply({"ready": True, "version": worker.version} if worker.version else {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        match request["do"]:
            case "prepare":
                worker.halt, worker.realtime = Halt(), request.get("realtime", 0)
                try:
                    worker.prepare(traffic_of(request["traffic"]))
                except (OSError, NetbenchError) as error:
                    _reply({"failed": _explain(error)})
                else:
                    _reply({"ready": True})
            case "start":
                sending = threading.Thread(target=_send, args=(worker, request["at_monotonic_ns"]))
                sending.start()
            case "stop":
                worker.halt.set("stopped before its end")
    worker.halt.set("netbench went away")
    if sending is not None:
        sending.join()


def _send(worker: Worker, at_monotonic_ns: int) -> None:
    try:
        _reply({"sent": asdict(worker.send(at_monotonic_ns))})
    except Exception as error:  # nobody above a thread could catch it
        _reply({"failed": f"sending failed: {error!r}"})


def use_realtime(priority: int) -> None:
    """Have the calling thread scheduled as SCHED_FIFO with this priority (0: as it is); OSError where it must not."""
    if priority:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


def catch_up_fps(fps: float, catch_up: float | None = None) -> float:
    """The rate at which overdue frames are sent: `catch_up`, a part of the rate, above it.

    Without it, as fast as a ring takes them, which a burst would overrun.
    """
    return max(_CATCH_UP * fps, _CATCH_UP_FPS) if catch_up is None else (1 + catch_up) * fps


def at_once_s(fps: float) -> float:
    """The delay in seconds that a source with this rate catches up at once, even where catching up is limited."""
    return min(_MOST_AT_ONCE_S, max(_LEAST_AT_ONCE_S, _AT_ONCE_FRAMES / fps))


def pause_beyond_usual_ns(longest_ns: int, elapsed_ns: int, pauses: int) -> int:
    """For how long a source without a rate was stopped, whoever it waited for: by its longest pause among so many.

    It counts as far as it is longer than ten times the mean of the others.
    """
    if pauses < 2:
        return 0
    return max(0, longest_ns - _USUAL_SCATTER * (elapsed_ns - longest_ns) // (pauses - 1))


def _explain(error: OSError | NetbenchError) -> str:
    match error.errno if isinstance(error, OSError) else None:
        case errno.EPERM:
            return "opening a packet socket needs root or CAP_NET_RAW"
        case errno.ENODEV:
            return "there is no such interface"
        case errno.EINVAL:
            return "none of the CPUs it is to be pinned to is usable here"
        case _:
            return str(error)


def _reply(message: Mapping[str, object]) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more: stdin will tell
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")
