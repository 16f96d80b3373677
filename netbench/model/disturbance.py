"""How far the tester and its host were held up while a trial was sent: CPU waits, steal, pressure, throttling."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# What a thread does in a trial. `ingress` takes in the frames of a source at the UUT's end of a veth pair (NAPI), `uut`
# is a process of a guest that forwards (Open vSwitch in userspace).
Role = Literal["source", "sink", "ingress", "uut"]

# A stall of these changes what is offered or forwarded. A sink that waits loses frames, which it counts, or none.
_DECISIVE: tuple[Role, ...] = ("source", "ingress", "uut")


@dataclass(frozen=True, slots=True)
class ThreadDelay:
    """One thread of the tester or a guest while frames were sent, in seconds; None where that is unknown.

    `wait_s` is how long it waited for a CPU (run delay of schedstat). `stalled_s` is how long it did not run though it
    should have: it waited, was stopped or throttled, or its CPU was taken away. The CPU time that other threads of the
    tester, and declared neighbours, took on its CPU is not part of `stalled_s`: the trial consists of that. No single
    stall was longer than `longest_s`: unlike `stalled_s` it leaves out no sum of short waits, as a single wait of a few
    milliseconds fills a ring.
    """

    role: Role
    name: str
    wait_s: float | None = None
    stalled_s: float | None = None
    stream: str = ""
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What held up the tester or its host during `window_s` seconds of sending; None where a value is unknown.

    `steal_s` is the CPU time that the hypervisor gave to others, `cpu_pressure_s` how long some task waited for a CPU
    (/proc/pressure/cpu), `throttled_s` how long CPU limits of netbench's control groups stopped it, all CPUs added up.
    """

    window_s: float
    threads: tuple[ThreadDelay, ...] = ()
    steal_s: float | None = None
    cpu_pressure_s: float | None = None
    throttled_s: float | None = None

    def stalled_of(self, stream: str) -> float | None:
        """The sum over the threads of one stream but for the sink's; None where that is not known of any."""
        return _total(thread.stalled_s for thread in self.decisive_of(stream))

    def decisive_of(self, stream: str) -> list[ThreadDelay]:
        """The threads of one stream whose stalls change what is offered or forwarded."""
        return [thread for thread in self.threads if thread.role in _DECISIVE and thread.stream == stream]

    def longest_s(self, role: Role, stream: str) -> float:
        """No stall of the threads of a role was longer than this, for one stream; 0 where nothing is known of them."""
        return sum(thread.longest_s or 0.0 for thread in self.threads if (thread.role, thread.stream) == (role, stream))

    def wait_s(self, role: Role, stream: str) -> float | None:
        """How long the threads of a role waited for a CPU, for one stream; None where that is unknown."""
        return _total(one.wait_s for one in self.threads if one.role == role and one.stream == stream)


def _total(seconds: Iterator[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if known else None
