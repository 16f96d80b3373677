"""Delays of the tester and its host while a trial was sent: CPU waits, steal, pressure, throttling."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# The role of a thread in a trial. `ingress` receives the frames of a source at the UUT's end of a veth pair (NAPI),
# `uut` is a process of a guest that forwards (Open vSwitch in userspace).
Role = Literal["source", "sink", "ingress", "uut"]

# A stall of these changes the offered or forwarded load. A sink that waits loses frames, which it counts, or none.
_DECISIVE: tuple[Role, ...] = ("source", "ingress", "uut")


@dataclass(frozen=True, slots=True)
class ThreadDelay:
    """One thread of the tester or a guest while frames were sent, in seconds; None where that is unknown.

    `wait_s` is how long it waited for a CPU (run delay of schedstat). `stalled_s` is how long it did not run though it
    should have: it waited, was stopped or throttled, or its CPU was taken away. `stalled_s` omits the CPU time that
    other threads of the tester, and declared neighbours, used on its CPU, because they are part of the trial. No
    single stall was longer than `longest_s`. Unlike `stalled_s` it omits no sum of short waits, because a single wait
    of a few milliseconds fills a ring.
    """

    role: Role
    name: str
    wait_s: float | None = None
    stalled_s: float | None = None
    stream: str = ""
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Delays of the tester or its host during `window_s` seconds of sending; None where a value is unknown.

    `steal_s` is the CPU time that the hypervisor gave to other machines. `cpu_pressure_s` is how long some task waited
    for a CPU (/proc/pressure/cpu). `throttled_s` is how long CPU limits of netbench's control groups stopped it, all
    CPUs added up.
    """

    window_s: float
    threads: tuple[ThreadDelay, ...] = ()
    steal_s: float | None = None
    cpu_pressure_s: float | None = None
    throttled_s: float | None = None

    def stalled_of(self, stream: str) -> float | None:
        """Return the sum over the threads of one stream, except the sink's; None if it is unknown for all of them."""
        return _total(thread.stalled_s for thread in self.decisive_of(stream))

    def decisive_of(self, stream: str) -> list[ThreadDelay]:
        """Return the threads of one stream whose stalls change the offered or forwarded load."""
        return [thread for thread in self.threads if thread.role in _DECISIVE and thread.stream == stream]

    def longest_s(self, role: Role, stream: str) -> float:
        """Return an upper bound of the stalls of a role's threads for one stream; 0 where they are unknown."""
        return sum(thread.longest_s or 0.0 for thread in self.threads if (thread.role, thread.stream) == (role, stream))

    def wait_s(self, role: Role, stream: str) -> float | None:
        """Return how long the threads of a role waited for a CPU, for one stream; None where that is unknown."""
        return _total(thread.wait_s for thread in self.threads if thread.role == role and thread.stream == stream)


def _total(seconds: Iterator[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
