"""Checks of time: whether the sources keep their rate, and how much CPU time others take meanwhile."""

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netbench.linux.proc import USER_HZ, all_processes, parse_cpu_ticks
from netbench.model.selftest_record import SelftestCheck
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.selftest.trials import Tester, complaints
from netbench.uut.base import ActiveGuest

# If others take more than this part of all CPUs, the tester's timing is doubtful.
_MOST_OF_OTHERS = 0.2
_KTHREADD = 2  # the parent of all kernel threads


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU time so far, in seconds: of this machine's processes, of the hypervisor's others, and of netbench's own.

    Kernel threads do not count as processes here: they do the work that traffic makes. `own_s` includes a child only
    after it was waited for (getrusage(2)).
    """

    at_s: float
    processes_s: float
    stolen_s: float
    own_s: float

    @classmethod
    def now(cls) -> "CpuTimes":
        """Return the times from /proc and getrusage(2)."""
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return cls(
            uptime,
            *parse_stat(Path("/proc/stat").read_text(), _kernel_threads_ticks()),
            sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)),
        )


def parse_stat(stat: str, kernel_threads_ticks: int) -> tuple[float, float]:
    """Return the CPU time of processes, and the steal time, in seconds, from /proc/stat (proc_stat(5))."""
    ticks = parse_cpu_ticks(stat)
    return (ticks.user + ticks.nice + ticks.system - kernel_threads_ticks) / USER_HZ, ticks.steal / USER_HZ


def judge_cpus(before: CpuTimes, after: CpuTimes, cpus: int) -> SelftestCheck:
    """Check that others left the CPUs to the tester. netbench must have waited for all its children in between."""
    took_s = after.at_s - before.at_s
    own = (after.own_s - before.own_s) / took_s
    others = max(0.0, (after.processes_s - before.processes_s) / took_s - own)
    stolen = (after.stolen_s - before.stolen_s) / took_s
    most = _MOST_OF_OTHERS * cpus
    problems = []
    if others + stolen > most and others > stolen:
        problems.append(f"other processes used {others:.1f} of {cpus} CPUs while this tester measured: stop them")
    elif others + stolen > most:
        problems.append(
            f"the hypervisor gave {stolen:.1f} of {cpus} CPUs to others while this tester measured: "
            "measure on a dedicated machine, or with dedicated CPUs"
        )
    return SelftestCheck(
        name="CPUs left to the tester",
        truth=f"others at most {most:.2f} of {cpus} CPUs",
        measured=f"others {others:.2f}, hypervisor {stolen:.2f}, netbench {own:.2f}",
        passed=not problems,
        detail="; ".join(problems),
    )


def check_pacing(name: str, tester: Tester, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Check that sources keep a modest rate within the usual tolerance; one valid trial of a few is enough."""
    result = tester.measure(active, name, tester.modest(), strict=True)
    off = max((abs((counts.offered_fps or 0.0) / tester.fps - 1) for counts in result.streams), default=1.0)
    late_s = max((counts.sent.max_lateness_s for counts in result.streams), default=0.0)
    yield SelftestCheck(
        name="pace of a source",
        uut=name,
        truth=f"{tester.fps:,} frames/s",
        measured=f"{result.streams[0].offered_fps or 0.0:,.0f} frames/s, late by up to {late_s * 1e3:.1f} ms",
        error=f"{off:.2%}",
        passed=result.verdict is Verdict.VALID,
        detail=complaints(result),
    )


def judge_own_delay(result: TrialResult) -> SelftestCheck:
    """Check that one clock stamps both ends, by a trial without a UUT; measure source and sink's part of delays."""
    name, truth = "delay without a UUT", "captures and frames stamped by one clock"
    offsets = [counts.received.clock_offset for counts in result.streams]
    delays = [counts.received.delay for counts in result.streams]
    refused = "; ".join(dict.fromkeys(filter(None, (counts.received.no_delay for counts in result.streams))))
    if any(offset is not None and offset.differs for offset in offsets):
        return SelftestCheck(
            name=name, uut=result.spec.uut, truth=truth, measured="another", passed=False, detail=refused
        )
    known = [delay for delay in delays if delay is not None and delay.median_ns is not None]
    bounds = [offset.bound_ns for offset in offsets if offset is not None]
    if not known or len(known) < len(delays) or len(bounds) < len(delays):
        why = refused or "the sink does not report which clock it uses"
        return SelftestCheck(name=name, uut=result.spec.uut, truth=truth, passed=None, detail=f"skipped: {why}")
    return SelftestCheck(
        name=name,
        uut=result.spec.uut,
        truth=truth,
        measured=f"median {max(delay.median_ns or 0 for delay in known) / 1e3:,.0f} µs, "
        f"clocks ± {max(bounds) / 1e3:,.1f} µs",
        passed=True,
    )


def _kernel_threads_ticks() -> int:
    """Return the CPU time of all kernel threads, in ticks."""
    return sum(process.ticks for process in all_processes() if process.parent == _KTHREADD)
