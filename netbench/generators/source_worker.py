"""The process that a `WorkerSource` starts. `serve` creates its `Worker`, which builds and sends the frames.

The protocol is JSON, one object per line. An unrequested first reply reports readiness, with an optional
`version`, or is {"missing": "why"}:

    → {"do": "prepare", "traffic": {…}, "template": {…}, …}   ← {"ready": true} or {"failed": "why"}
    → {"do": "start", "at_monotonic_ns": n}                   ← {"sent": {…}} or {"failed": "why"} at the end
    → {"do": "stop"}                                          ends sending early; the reply to `start` reports it

The process ends at the end of its stdin.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable

from netbench.hosts.worker_requests import Reply, Request, reply_to, reply_when_sent, serve_requests
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Sent, Traffic, traffic_of

# The highest rate of a source that catches up gently: a multiple of its rate or, if higher, this many frames/s.
_CATCH_UP, _CATCH_UP_FPS = 1.5, 100_000
# Where catching up is limited, a delay this short is still caught up at once: such delays by the kernel are frequent.
# Every queue has room for the burst that follows.
_AT_ONCE_FRAMES, _LEAST_AT_ONCE_S, _MOST_AT_ONCE_S = 128, 25e-6, 250e-6
# A pause between two sends is normal up to this multiple of the mean pause.
USUAL_SCATTER = 10
# A sleeping thread wakes up late, by the timer slack (50 µs, prctl(2)) and the scheduling latency.
_SPIN_NS = 200_000


class Halt:
    """A flag that ends all threads of a trial, with the reason; the first reason is kept."""

    def __init__(self) -> None:
        self._event = threading.Event()
        # An empty poll releases the interpreter lock for the length of a system call. Without it, the thread
        # that reads the stop request would starve: it wakes at each send, always too late for the lock.
        self._release_lock = select.poll().poll
        self.reason = ""

    def set(self, reason: str) -> None:
        """End the trial."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        """Return whether the trial must end."""
        return self._event.is_set()

    def sleep_until(self, due_ns: int) -> None:
        """Sleep until about `due_ns` (CLOCK_MONOTONIC), or until the trial must end."""
        self._event.wait((due_ns - time.monotonic_ns()) / 1e9)

    def wait_until(self, due_ns: int) -> int:
        """Wait for `due_ns` with microsecond accuracy; return the CLOCK_MONOTONIC time, earlier when halted."""
        now_ns = time.monotonic_ns()
        if due_ns - now_ns > _SPIN_NS:
            self.sleep_until(due_ns - _SPIN_NS)
        while now_ns < due_ns and not self.is_set():
            self._release_lock(0)
            now_ns = time.monotonic_ns()
        return now_ns


class Worker:
    """The sender, constructed from the command line: the interface, the source's arguments, and the CPUs.

    It is kept across trials. An OSError is sent to the controller. `halt` ends the trial that was prepared last.
    `template` has the frames of that trial.
    """

    halt = Halt()
    template: FrameTemplate
    version = ""  # of the sending software, if other than netbench
    realtime = 0  # the priority in SCHED_FIFO of the threads that send; 0: another class

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of the next trial."""

    def send(self, at_monotonic_ns: int) -> Sent:
        """Send the frames from `at_monotonic_ns` until all are sent or `halt` is set; runs in a separate thread."""
        raise NotImplementedError


def serve(make_worker: Callable[..., Worker]) -> None:
    """Execute the requests on stdin until it ends."""
    worker: Worker
    sending: threading.Thread | None = None

    def start() -> Reply:
        nonlocal worker
        worker = make_worker(*sys.argv[1:])
        return {"ready": True, "version": worker.version}

    def execute(request: Request) -> Reply | None:
        nonlocal sending
        match request["do"]:
            case "prepare":
                worker.halt, worker.realtime = Halt(), request.get("realtime", 0)
                worker.template = FrameTemplate.from_json(request["template"])
                worker.prepare(traffic_of(request["traffic"]))
                return {"ready": True}
            case "start":
                sending = reply_when_sent(request, lambda: worker.send(request["at_monotonic_ns"]))
            case "stop":
                worker.halt.set("stopped before its end")
        return None

    if reply_to({}, start):
        serve_requests(execute)
        worker.halt.set("the controller ended")
        if sending is not None:
            sending.join()


def use_realtime(priority: int) -> None:
    """Schedule the calling thread as SCHED_FIFO with this priority (0: no change); OSError where not permitted."""
    if priority:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


def catch_up_fps(fps: float, catch_up: float | None = None) -> float:
    """Return the rate for overdue frames, in frames/s: the rate `fps` plus the fraction `catch_up` of it.

    Without `catch_up`, it is as fast as a ring accepts frames; a burst would overrun the ring.
    """
    return max(_CATCH_UP * fps, _CATCH_UP_FPS) if catch_up is None else (1 + catch_up) * fps


def at_once_s(fps: float) -> float:
    """Return the delay in seconds that a source with this rate catches up at once, even if catching up is limited."""
    return min(_MOST_AT_ONCE_S, max(_LEAST_AT_ONCE_S, _AT_ONCE_FRAMES / fps))


def pause_beyond_usual_ns(longest_ns: int, elapsed_ns: int, pauses: int) -> int:
    """Return for how many ns a source without a rate was stopped, for any reason, from its longest pause.

    Only the part above ten times the mean of the other pauses counts. `pauses` is the number of pauses.
    """
    if pauses < 2:
        return 0
    return max(0, longest_ns - USUAL_SCATTER * (elapsed_ns - longest_ns) // (pauses - 1))
