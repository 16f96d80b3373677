"""Computes how long programs outside the trial stalled the tester, from readings before and after sending.

A wait for a CPU is a disturbance only if a program outside the trial used that CPU. Threads of the tester, guests and
the loads of neighbours share CPUs by design: the CPU time that they take from each other is part of the measurement.
The same applies to the kernel's softirq threads, which carry frames to the UUT and from there to the sink. The threads
by which the victim forwards are watched too: loss while another program had their CPU is not the UUT's.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from netbench.linux.proc import USER_HZ, CpuDelays, CpuTicks
from netbench.model.tester import Disturbance, Role, ThreadDelay
from netbench.model.traffic import Sent
from netbench.trial.setup import Endpoints, TrialGuest

# The kernel samples the CPU times in /proc/stat at each tick: the difference of two readings may be off by this much.
_SAMPLES_OFF_S = 0.02
# A forwarding process often waits for kernel work that belongs to no known thread: up to this part of the time.
_UNSEEN_PART = 0.05
# The CPU times are in whole ticks: less steal time than one tick is not reliably visible.
_TICK_S = 1 / USER_HZ
# Each wake-up of a thread takes a short wait, even on an idle CPU: at most this long, and this part of all time.
_WAKE_UP_S, _WAKE_UPS_PART = 10e-6, 0.03
# The shortest wait of one wake-up.
_SHORTEST_WAKE_UP_S = 50e-9


class GuestTime(NamedTuple):
    """CPU time of a guest and the load in it while frames were sent, and the CPUs it runs on (empty: any)."""

    used_s: float
    cpus: tuple[int, ...] = ()


class _Thread(NamedTuple):
    """One thread while it was working; `paused_s` is the sum of the pauses that it measured itself."""

    role: Role
    name: str
    stream: str
    cpu: int | None = None  # None: any
    ran_s: float | None = None
    wait_s: float | None = None
    turns: int = 0  # how often it was scheduled
    paused_s: float | None = None


class Watched(NamedTuple):
    """A thread whose counters are read before and after sending, by its id."""

    role: Role
    name: str
    stream: str
    process: int


def watched_threads(guests: Sequence[TrialGuest]) -> list[Watched]:
    """Return this machine's threads that take in frames at the ingress, forward them in the victim, or capture them."""
    victim, watched = guests[0], []
    for process, name in victim.active.uut.forwarding_threads().items():
        watched += [Watched("uut", name, ends.path.name, process) for ends in victim.endpoints]
    for ends in (ends for guest in guests for ends in guest.endpoints):
        stream, thread = ends.path.name, ends.receiver()
        if thread:
            watched.append(Watched("ingress", thread.name, stream, thread.process))
        kind = ends.identities.sink.kind
        watched += [Watched("sink", kind, stream, process) for process in ends.sink.processes()]
    return watched


def disturbance_of(
    endpoints: Sequence[Endpoints],
    sent: Mapping[str, Sent],
    watched: Sequence[Watched],
    readings: tuple[CpuDelays, CpuDelays],
    guests: Sequence[GuestTime] = (),
    *,
    is_here: bool = True,
) -> Disturbance:
    """Return how long the tester was stalled between two readings, by the counters of the watched threads.

    If the sources are not on this machine (`is_here` is False), its steal time, pressure and limits are left out.
    """
    before, after = readings
    sources = [_source(ends, sent[ends.path.name]) for ends in endpoints]
    threads = [*sources, *(_watched(thread, before, after) for thread in watched)]
    window = _Window(before, after, [thread for thread in threads if thread.role != "uut"], guests)
    # The CPU time of a guest without CPU binding cannot be attributed to one CPU.
    is_anywhere = any(guest.used_s and not guest.cpus for guest in guests)
    foreign_s = window.foreign_s() if is_anywhere else 0.0
    return Disturbance(
        window_s=window.seconds,
        threads=tuple(
            ThreadDelay(
                thread.role,
                thread.name,
                _rounded(thread.wait_s),
                _rounded(window.stalled_s(thread, foreign_s)),
                thread.stream,
                _rounded(window.longest_s(thread)),
            )
            for thread in threads
        ),
        steal_s=window.steal_s(None) if is_here else None,
        cpu_pressure_s=_rounded(_grown(before.pressure_s, after.pressure_s)) if is_here else None,
        throttled_s=_rounded(_grown(before.throttled_s, after.throttled_s)) if is_here else None,
    )


def _source(ends: Endpoints, sent: Sent) -> _Thread:
    name = ends.identities.source.kind
    return _Thread("source", name, ends.path.name, sent.cpu, sent.ran_s, sent.wait_s, sent.turns or 0, sent.stalled_s)


def _watched(thread: Watched, before: CpuDelays, after: CpuDelays) -> _Thread:
    who = thread.role, thread.name, thread.stream
    earlier, later = before.threads.get(thread.process), after.threads.get(thread.process)
    if earlier is None or later is None:
        return _Thread(*who)
    spent = later.since(earlier)
    return _Thread(*who, after.bound.get(thread.process), spent.ran_ns / 1e9, spent.waited_ns / 1e9, spent.turns)


class _Window(NamedTuple):
    """The time between two readings, with the threads of the tester and the guests that ran in it."""

    before: CpuDelays
    after: CpuDelays
    testers: Sequence[_Thread]
    guests: Sequence[GuestTime]

    @property
    def seconds(self) -> float:
        return (self.after.at_ns - self.before.at_ns) / 1e9

    @property
    def own_s(self) -> float:
        """The CPU time of netbench itself; the live count of a capture runs in it, on any CPU."""
        return self.after.own_s - self.before.own_s

    def stalled_s(self, thread: _Thread, foreign_s: float) -> float | None:
        """Return for how long programs outside the trial kept a thread from running, in seconds; None if unknown.

        `foreign_s` is the CPU time that programs outside the trial used on all CPUs.
        """
        if thread.wait_s is None and thread.paused_s is None:
            return None
        waited_s = thread.wait_s or 0.0
        wait_s = max(0.0, waited_s - min(thread.turns * _WAKE_UP_S, self.seconds * _WAKE_UPS_PART))
        if thread.role == "uut":
            stopped_s = 0.0  # it may have been idle
        elif thread.paused_s is None:
            # It does not measure its pauses. A run delay does not include the time in which its CPU was stolen either.
            steal_s = None if thread.cpu is None else self.steal_s(thread.cpu)
            stopped_s = max(0.0, (steal_s or 0.0) - _TICK_S)
        else:
            stopped_s = max(0.0, thread.paused_s - waited_s)
        guests_s = self._guests_s(thread)
        parties_s = guests_s + self._tester_s(thread) + self.own_s
        # CPU time of guests is sampled too.
        others_s = max(foreign_s, wait_s - parties_s - (_SAMPLES_OFF_S if guests_s else 0.0))
        if (busy_s := self._busy_s(thread.cpu)) is not None:
            others_s = max(others_s, busy_s - (thread.ran_s or 0.0) - parties_s - _SAMPLES_OFF_S)
        if thread.role == "uut":
            others_s -= _UNSEEN_PART * self.seconds
        return stopped_s + min(wait_s, max(0.0, others_s))

    def longest_s(self, thread: _Thread) -> float | None:
        """Return the longest stall of a thread that programs outside the trial can have caused, in seconds."""
        if thread.wait_s is None:
            return None
        parties_s = self._guests_s(thread) + self._tester_s(thread)
        return max(0.0, thread.wait_s - thread.turns * _SHORTEST_WAKE_UP_S - parties_s)

    def foreign_s(self) -> float:
        """Return the CPU time of programs outside the trial on all CPUs, in seconds; 0 if it is unknown."""
        busy_s, ran_s = self._busy_s(None), [thread.ran_s for thread in self.testers]
        if busy_s is None or None in ran_s:
            return 0.0
        parties_s = sum(filter(None, ran_s)) + self._softirqs_s(None) + sum(guest.used_s for guest in self.guests)
        cpus = len(self.after.ticks) - 1
        return busy_s - parties_s - self.own_s - _SAMPLES_OFF_S * sqrt(cpus)

    def steal_s(self, cpu: int | None) -> float | None:
        """Return the steal time of a CPU, or of all CPUs; None if unknown."""
        if cpu not in self.before.ticks or cpu not in self.after.ticks:
            return None
        return (self.after.ticks[cpu].steal - self.before.ticks[cpu].steal) / USER_HZ

    def _busy_s(self, cpu: int | None) -> float | None:
        """Return the CPU time that all programs and the kernel used on a CPU, or on all CPUs."""
        if cpu not in self.before.ticks or cpu not in self.after.ticks:
            return None
        return (_busy_ticks(self.after.ticks[cpu]) - _busy_ticks(self.before.ticks[cpu])) / USER_HZ

    def _guests_s(self, thread: _Thread) -> float:
        """Return the CPU time of guests and their loads on the CPU of a thread, without the thread's own CPU time."""
        used_s = sum(
            guest.used_s for guest in self.guests if not guest.cpus or thread.cpu is None or thread.cpu in guest.cpus
        )
        return max(0.0, used_s - (thread.ran_s or 0.0)) if thread.role == "uut" else used_s

    def _tester_s(self, thread: _Thread) -> float:
        """Return the CPU time of the tester's other threads and of the softirq threads on the CPU of a thread."""
        rivals = (rival for rival in self.testers if rival is not thread and _may_share_cpu(rival.cpu, thread.cpu))
        return sum(rival.ran_s or 0.0 for rival in rivals) + self._softirqs_s(thread.cpu)

    def _softirqs_s(self, cpu: int | None) -> float:
        """Return the CPU time of the kernel's softirq threads on a CPU, or on all CPUs."""
        earlier = self.before.softirqs
        return sum(
            (later.ran_ns - earlier[its_cpu].ran_ns) / 1e9
            for its_cpu, later in self.after.softirqs.items()
            if its_cpu in earlier and _may_share_cpu(its_cpu, cpu)
        )


def _may_share_cpu(first: int | None, second: int | None) -> bool:
    return first is None or second is None or first == second


def _busy_ticks(ticks: CpuTicks) -> int:
    return ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
