"""The tester without a unit under test: sources cabled directly to their sinks, and their maximum rates then.

A sink whose program is hindered meanwhile (stopped, traced, or given less CPU time) is reported.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from netbench.errors import MissingError
from netbench.linux.proc import ProcessStat, all_processes, read_process
from netbench.model.counts import DropKind, StreamCounts
from netbench.model.documents import plain
from netbench.model.foreign_text import read_text
from netbench.model.paths import host_of
from netbench.model.selftest_record import Ceiling, SelftestCheck
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind, Verdict
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.selftest.time_checks import judge_own_delay
from netbench.selftest.trials import Pattern, Tester, complaints
from netbench.signals import shielded
from netbench.statistics.totals import summed
from netbench.uut.base import ActiveGuest

_EVERY_S = 0.005
_HELD = frozenset("Tt")  # stopped by a signal, or by a debugger: proc_pid_stat(5)
_FEW = 0.05  # as a part of all samples


@dataclass(frozen=True, slots=True)
class Seen:
    """One sample of a process: its state letter, its nice value, and its control groups."""

    state: str
    nice: int
    cgroup: str


@dataclass(slots=True)
class Watch:
    """All samples of processes that run a program, started by this process or by a wrapper it started."""

    program: str
    seen: list[Seen] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample them every 5 ms while the block runs."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(_EVERY_S):
                self.seen += _running(self.program, os.getpid())

        thread = threading.Thread(target=look)
        try:
            with shielded():  # a thread whose start a signal interrupted can neither be joined nor does it end
                thread.start()
            yield
        finally:
            done.set()
            thread.join()


def judge_left_alone(program: str, seen: list[Seen], usual: Seen) -> SelftestCheck:
    """Check that none was hindered; `usual` is this process itself, whose nice value and groups they should share."""

    def share(odd: Callable[[Seen], bool]) -> float:
        return sum(map(odd, seen)) / len(seen) if seen else 0.0

    held = share(lambda sample: sample.state in _HELD)
    problems = []
    if held > _FEW:
        problems.append(f"{program} was stopped {held:.0%} of the time, by a signal or a debugger")
    if share(lambda sample: sample.nice > usual.nice) > _FEW:
        problems.append(
            f"{program} runs at nice {max(sample.nice for sample in seen)}, and netbench at nice {usual.nice}"
        )
    if share(lambda sample: sample.cgroup != usual.cgroup) > _FEW:
        problems.append(f"{program} runs in another control group than netbench, which may limit it")
    advice = f"; look at which {program} is first in PATH" if problems else ""
    return SelftestCheck(
        name=f"{program} is left alone",
        truth="never stopped",
        measured=f"stopped {held:.0%} of the time, in {len(seen):,} looks" if seen else f"no {program} was seen",
        passed=bool(seen) and not problems,
        detail="; ".join(problems) + advice,
    )


def this_process() -> Seen:
    """Return a sample of this process."""
    process = read_process("self")
    return Seen(process.state, process.nice, _cgroup("self"))


def _running(program: str, ancestor: int) -> Iterator[Seen]:
    processes = {process.pid: process for process in all_processes()}
    for process in processes.values():
        if process.name == program and _descends(process.pid, ancestor, processes):
            try:
                cgroup, now = _cgroup(process.pid), read_process(process.pid)
            except OSError:
                continue  # ended meanwhile
            if not now.is_ending:  # so it was not ending either when its control group was read
                yield Seen(now.state, now.nice, cgroup)


def _descends(pid: int, ancestor: int, processes: Mapping[int, ProcessStat]) -> bool:
    while pid in processes and pid != ancestor:
        pid = processes[pid].parent
    return pid == ancestor


def _cgroup(pid: int | str) -> str:
    return read_text(Path(f"/proc/{pid}/cgroup"))


LOOPBACK = UutSpec.model_validate({"name": "loopback", "kind": "external"})
FRAME_SIZES = (64, 512, 1518)

_TRIAL_S = 0.25
# The first rate after `max`, as a part of the rate offered then; each further one as a part of the one before. The last
# is 3 % of it: a ring of 256 frames then outlasts pauses of some milliseconds, which every machine makes.
_FIRST, _NEXT = 0.95, 0.8
_MOST_RATES = 16
# The time a sink may take longer than after a modest load to read all it captured: a part of the sending time, and
# seconds. A slower sink keeps up only until its buffer is full.
_LAG_PART, _LAG_S = 1.0, 0.5


def loopback(topology: Topology, *, cabled: bool) -> Topology:
    """Return the same sources and sinks without a UUT: joined by a veth pair per stream, or by existing cables.

    A reverse stream shares the link of its stream. MissingError where sources or sinks are ports, unless `cabled`: the
    user's statement that cables join them.
    """
    ports = [end for stream in topology.streams for end in (stream.source, stream.sink) if topology.is_port(end)]
    if ports and not cabled:
        raise MissingError(
            f"{ports[0]} is a port: cable the source and sink ports of each stream to each other, without the UUT, "
            "and say so with --cabled"
        )
    hosts = {host_of(end) for stream in topology.streams for end in (stream.source, stream.sink)}
    hosts |= {machine for host in hosts if (machine := topology.machine(host))}
    links = []
    for stream in (stream for stream in topology.streams if not stream.reverse):
        like = plain(topology.stream_link(stream), include={"rate", "receive"})
        ends = [stream.source, stream.sink]
        pairs = [[end] for end in ends] if any(map(topology.is_port, ends)) else [ends]
        links += [{**like, "ends": pair} for pair in pairs]
    return Topology.model_validate(
        {
            "name": topology.name,
            "hosts": {name: plain(host, exclude_none=True) for name, host in topology.hosts.items() if name in hosts},
            "links": links,
            "streams": [
                plain(stream, include={"name", "source", "sink", "reverse"}, exclude_none=True)
                for stream in topology.streams
            ],
            "uuts": [LOOPBACK],
        }
    )


def check_loopback(found: list[Ceiling], tester: Tester, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Check that sinks capture everything in time; then yield the ceilings, which are also added to `found`."""
    idle = tester.measure(active, LOOPBACK.name, tester.modest(64, tester.streams))
    yield judge_own_delay(idle)
    watch = Watch(tester.sink_program)
    with watch.watching():
        burst = tester.measure(active, LOOPBACK.name, _pattern(tester.streams, 64, Load(LoadKind.MAX)))
    yield judge_capture(tester.sink_program, idle, burst)
    if tester.topology.vms or not watch.program:
        why = "it runs inside the VM" if watch.program else "this kind of sink has no process of its own"
        yield SelftestCheck(name=f"{watch.program or 'the sink'} is left alone", passed=None, detail=f"skipped: {why}")
    else:
        yield judge_left_alone(watch.program, watch.seen, this_process())
    for sources in sorted({1, tester.streams}):
        for frame_size in FRAME_SIZES:
            pattern = _pattern(sources, frame_size, Load(LoadKind.MAX))
            search = CeilingSearch(tester.wanted(LOOPBACK.name, pattern, strict=True), sources)
            fps, why = search.found(tester.follow(active, search))
            if fps:
                found.append(Ceiling(sources, frame_size, fps))
            yield SelftestCheck(
                name=f"ceiling: {sources} {'source' if sources == 1 else 'sources'}, {frame_size} bytes",
                uut=LOOPBACK.name,
                measured=f"{fps:,.0f} frames/s each" if fps else "none found",
                passed=fps is not None,
                detail=why,
            )


def judge_capture(program: str, idle: TrialResult, burst: TrialResult) -> SelftestCheck:
    """Check that the sinks captured every frame of a burst at the maximum rate, and finished in time.

    `program` is the program of the sinks; empty: none. Frames lost to a full ring in front never reached them.
    """
    sent = summed(burst.streams, lambda counts: counts.sent.frames)
    received = summed(burst.streams, lambda counts: counts.received.frames)
    by_ring = sum(map(_lost_by_ring, burst.streams))
    came = (sent or 0) - by_ring
    dropped = summed(burst.streams, lambda counts: counts.capture_dropped_frames)
    took_s = max((counts.sent.duration_s for counts in burst.streams), default=0.0)
    lag_s = burst.steps_s["drain"] - idle.steps_s["drain"]
    most_s = _LAG_PART * took_s + _LAG_S
    kinds = {ReasonKind.TESTER_DROPPED} if by_ring and came == received else set()
    problem = complaints(burst, but=kinds) if burst.verdict is not Verdict.VALID else ""
    if not problem and lag_s > most_s:
        problem = (
            f"the sinks needed {lag_s:.2f} s more to read what arrived in {took_s:.2f} s, and may take {most_s:.2f} s: "
            f"{program or 'the sink'} is slowed down; look at what runs beside it"
        )
        problem += f", and at which {program} is first in PATH" if program else ""
    return SelftestCheck(
        name=f"sinks see everything: {len(burst.streams)} at once, 64 bytes, as fast as it goes",
        uut=LOOPBACK.name,
        truth=f"{sent or 0:,} sent" + (f", {by_ring:,} of them without room in the rings before" if by_ring else ""),
        measured="unknown" if received is None else f"{received:,} received, {dropped or 0:,} dropped by the capture",
        error="unknown" if received is None else f"{came - received:,} frames",
        passed=not problem and sent is not None and came == received,
        detail=problem,
    )


class CeilingSearch(Schedule):
    """Searches the highest rate, of a decreasing series, at which a trial is valid and nothing is lost.

    It starts from the rate offered at `max`, or from the rate that arrives of it, if a ring loses the rest.
    """

    def __init__(self, plan: CampaignPlan, sources: int) -> None:
        """Search for one UUT and frame size, with `sources` sources."""
        super().__init__(plan, self.Options())
        self._sources = sources

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """Return the trial at `max`, then trials at lower and lower rates until nothing is lost."""
        first = self._trial(0, Load(LoadKind.MAX))
        if first.key not in results:
            return first
        passed = min((_passed_fps(counts) for counts in results[first.key].streams), default=0.0)
        for step in range(_MOST_RATES if passed >= 1 else 0):
            trial = self._trial(step + 1, Load.of_fps(float(int(passed * _FIRST * _NEXT**step))))
            if trial.key not in results:
                return trial
            if _is_clean(results[trial.key]):
                return None
        return None

    def found(self, results: Mapping[str, TrialResult]) -> tuple[float | None, str]:
        """Return the ceiling in frames/s for each source; None with the cause, when no rate was low enough."""
        last = list(results.values())[-1]
        if last.spec.load.kind is LoadKind.FRAME_RATE and _is_clean(last):
            return last.spec.load.value, ""
        return None, complaints(last) or f"{summed(last.streams, lambda counts: counts.lost_frames)} frames were lost"

    def _trial(self, index: int, load: Load) -> TrialSpec:
        (uut,), (scenario,), (frame_size,) = self.plan.uuts, self.plan.scenarios, self.plan.profile.all_frame_sizes
        return self.plan.trial(uut, scenario, frame_size, load, 1, index=index, sources=self._sources)


def _passed_fps(counts: StreamCounts) -> float:
    """Return the offered rate in frames/s, without the frames lost to a full ring."""
    lost = _lost_by_ring(counts)
    return (counts.offered_fps or 0.0) * (1 - lost / counts.sent.frames if counts.sent.frames else 1)


def _lost_by_ring(counts: StreamCounts) -> int:
    return sum(loss.frames for loss in counts.lost_at if loss.dropper is DropKind.RING)


def _is_clean(result: TrialResult) -> bool:
    lost = summed(result.streams, lambda counts: counts.lost_frames)
    return result.verdict is Verdict.VALID and not result.is_saturated and lost == 0


def _pattern(streams: int, frame_size: int, load: Load) -> Pattern:
    return Pattern(streams, frame_size, load, _TRIAL_S)
