"""One trial on a ready testbed: arm, send, drain, collect, judge."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from netbench.errors import TestbedError
from netbench.hosts.clock import Clock, clock_set_ns, read_clocks
from netbench.linux.foreign_cpu import foreign_cpu_s
from netbench.linux.proc import CpuDelays
from netbench.loads.stress_ng import NeighbourLoad
from netbench.model.distributions import ClockDifference
from netbench.model.received import Received
from netbench.model.traffic import NOTHING_SENT, Sent
from netbench.model.trial import GuestResult, TrialResult, TrialSpec
from netbench.trial.accounting import accounts
from netbench.trial.disturbance import GuestTime, Watched, disturbance_of, watched_threads
from netbench.trial.draining import drain, learn_delays
from netbench.trial.fdb_priming import await_learning_frames, prime_bridges
from netbench.trial.flows import end_flows, judge_flows
from netbench.trial.loss_attribution import all_counted
from netbench.trial.probing import prove_ways
from netbench.trial.setup import Endpoints, TrialGuest, TrialSetup, guests_of
from netbench.trial.snapshots import (
    CounterSnapshot,
    FailureCollector,
    cpu_growth,
    evidence_of,
    machine_cpu_growth,
    nic_deltas,
    shared_counters,
    take_snapshot,
)
from netbench.trial.sources_and_sinks import Receiving, Recording, prepare, send
from netbench.trial.verdict_rules import FlowsSpan, judge_trial

# The greatest age of a comparison of clocks: hosts are queried each second.
_COMPARED_AGO_NS = 2_000_000_000


@dataclass(slots=True)
class _Steps:
    """The duration of each step, in seconds."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = self.clock.monotonic_ns()
        try:
            yield
        finally:
            self.seconds[name] = (self.clock.monotonic_ns() - begin) / 1e9


def run_trial(setup: TrialSetup, spec: TrialSpec, recording: Recording, attempt: int) -> TrialResult:
    """Measure once and return the result; the caller keeps or removes the captures.

    Each failure of a generator, sink, link, UUT or neighbour during the trial becomes a reason in the result.
    TestbedError is raised only if the testbed cannot continue.
    """
    steps, trouble = _Steps(setup.clock), FailureCollector()
    started_ns, clocks = setup.clock.realtime_ns(), read_clocks(setup.clock)
    guests = guests_of(setup, spec, recording.directory if recording.keep else None)
    endpoints = [ends for guest in guests for ends in guest.endpoints]
    traffic = {stream: stream_traffic for guest in guests for stream, stream_traffic in guest.traffic.items()}
    began_ns, compared = setup.clock.monotonic_ns(), _compared(setup, _machines(endpoints) & set(setup.not_own))
    flows = [guest.flows for guest in guests if guest.flows]
    with ExitStack() as loads:
        with steps.step("load"):
            under_load = _start_loads(guests, loads, trouble)
            for of_guest in flows:
                loads.callback(end_flows, of_guest)
                of_guest.start()
                of_guest.arm_taps()
        with steps.step("arm"):
            at_sink = {stream: change for guest in guests for stream, change in guest.active.ready.at_sink.items()}
            receiving = Receiving(endpoints, traffic, recording, spec.index, started_ns, setup.realtime, at_sink)
            receiving.arm()
            unready = prepare(endpoints, traffic)
            primed = prime_bridges(setup, endpoints, receiving.headers, at_once=attempt > 1)
            for guest in guests:
                guest.active.uut.reset()
            all_armed = receiving.armed()
            await_learning_frames(setup, primed)
        before = take_snapshot(setup, guests, trouble)
        watched = watched_threads(guests)
        foreign = setup.foreign_cpu() if flows and setup.foreign_cpu else {}
        delays = _cpu_delays(setup, watched)
        with steps.step("send"):
            sent = {ends.path.name: unready.get(ends.path.name, NOTHING_SENT) for ends in endpoints}
            if all_armed and under_load and not unready:
                meanwhile = partial(_meanwhile, setup, spec, guests, trouble)
                sent = send(setup.clock, guests, spec.settle_before_s, meanwhile)
        delays_after = _cpu_delays(setup, watched)
        foreign_s = foreign_cpu_s(foreign, setup.foreign_cpu()) if flows and setup.foreign_cpu else None
        with steps.step("drain"):
            sent_ns = setup.clock.monotonic_ns()
            all_dropped = partial(_all_dropped, setup, guests, sent, before, trouble)
            drained = drain(setup, guests, sent, before.nics, spec.drain_limit_s, all_dropped)
            setup.clock.sleep(max(0.0, spec.settle_after_s - (setup.clock.monotonic_ns() - sent_ns) / 1e9))
            after = take_snapshot(setup, guests, trouble)
            # Compare the clocks before counting, which may take long: they drift apart meanwhile.
            realtime, took_ns = _compared(setup, _machines(endpoints)), setup.clock.monotonic_ns() - began_ns
            receiving.stop(spec.drain_limit_s)
            set_ns = _clocks_set(clock_set_ns(clocks, read_clocks(setup.clock)), compared, realtime, took_ns)
        with steps.step("unload"):
            for of_guest in flows:
                of_guest.read_taps(setup.clock)
                end_flows(of_guest)
            _stop_loads(guests, trouble)
    steps.seconds["observe"] = (after.at_ns - before.at_ns) / 1e9
    with steps.step("analyse"):
        received = {name: receiving.received(name, what) for name, what in sent.items()}
        known = before, after, len(endpoints), set_ns, realtime.get
        evidence = [evidence_of(guest, sent, received, *known) for guest in guests]
        counts = accounts([stream for streams in evidence for stream in streams])
        results = tuple(
            GuestResult(
                guest.name,
                tuple(counts[stream.path.name] for stream in streams),
                shared_counters(guest, before, after),
                cpu_growth(guest, before, after),
                guest.flows.measured if guest.flows else (),
            )
            for guest, streams in zip(guests, evidence, strict=True)
        )
        if not set_ns:
            learn_delays(guests, results)
    for guest, result in zip(guests, results, strict=True):
        with trouble.noted(guest.name):
            prove_ways(setup, guest, result.streams, spec.drain_limit_s)
    machine_cpu_s, machine_softirq_s = machine_cpu_growth(before, after)
    sources = [*endpoints, *(setup.endpoints[ends.stream] for of_guest in flows for ends in of_guest.ends)]
    is_here = any(ends.path.source.machine not in setup.not_own for ends in sources)
    part = (delays_after.at_ns - delays.at_ns) / max(1, after.at_ns - before.at_ns)
    times = [GuestTime(_used_s(result, part), guest.active.cpus) for guest, result in zip(guests, results, strict=True)]
    disturbance = disturbance_of(endpoints, sent, watched, (delays, delays_after), times, is_here=is_here)
    disturbance = replace(disturbance, foreign_s=foreign_s if is_here else None)
    of_victim = guests[0].flows
    span = FlowsSpan(*of_victim.span_ns, of_victim.machine) if of_victim and of_victim.span_ns else None
    judged = judge_trial(
        spec, results, evidence, clocks_set_ns=set_ns, drained=drained, disturbance=disturbance, flows=span
    )
    return TrialResult(
        spec,
        attempt,
        started_ns,
        guests=results,
        reasons=(*trouble.reasons, *judged, *chain.from_iterable(map(judge_flows, flows))),
        steps_s=steps.seconds,
        machine_cpu_s=machine_cpu_s,
        machine_softirq_s=machine_softirq_s,
        ends={ends.path.name: ends.identities for ends in endpoints},
        disturbance=disturbance,
    )


def _cpu_delays(setup: TrialSetup, watched: Sequence[Watched]) -> CpuDelays:
    if setup.cpu_delays is None:
        return CpuDelays(setup.clock.monotonic_ns())
    return setup.cpu_delays([thread.process for thread in watched])


def _used_s(guest: GuestResult, part: float) -> float:
    """Return the CPU time of a guest and its load while frames were sent, in seconds.

    Sending took `part` of the observed time. The CPU time that a guest's own kernel counts is included in the CPU time
    that the host counts for it. A load computes all the time.
    """
    forwarding_s = max(guest.cpu_s.get("guest", 0.0), guest.cpu_s.get("host", 0.0))
    return forwarding_s + guest.cpu_s.get("load", 0.0) * min(1.0, part)


def _machines(endpoints: Sequence[Endpoints]) -> set[str | None]:
    """Return the machines of all sources and sinks."""
    return {nic.machine for ends in endpoints for nic in (ends.path.source, ends.path.sink)}


def _compared(setup: TrialSetup, machines: Iterable[str | None]) -> dict[str | None, ClockDifference | None]:
    return {machine: setup.realtime(machine) for machine in machines}


def _clocks_set(
    here_ns: int,
    before: Mapping[str | None, ClockDifference | None],
    after: Mapping[str | None, ClockDifference | None],
    took_ns: int,
) -> dict[str | None, int]:
    """Return by how much clocks were set, by machine: this machine's clock if it was set, or else the compared ones."""
    if here_ns:
        return {None: here_ns}  # the other clocks seem to have been set by as much
    differences = {
        machine: earlier.set_by_ns(later, took_ns + _COMPARED_AGO_NS)
        for machine, earlier in before.items()
        if earlier and (later := after[machine])
    }
    return {machine: set_ns for machine, set_ns in differences.items() if set_ns}


def _meanwhile(setup: TrialSetup, spec: TrialSpec, guests: list[TrialGuest], trouble: FailureCollector) -> None:
    """Wait for the end of flows while frames are sent; or restart the victim if this trial requires it."""
    for guest in guests:
        if guest.flows:
            guest.flows.wait()
    _restart(setup, spec, guests, trouble)


def _restart(setup: TrialSetup, spec: TrialSpec, guests: list[TrialGuest], trouble: FailureCollector) -> None:
    """Restart the victim if this trial requires it, and replace it in `guests` by the new one."""
    victim, *others = guests
    if spec.restart_at_s is None:
        return
    setup.clock.sleep(spec.restart_at_s)
    with trouble.noted(victim.name):
        if victim.active.restart is None or others:
            raise TestbedError("it cannot be restarted: netbench did not start it, or others are beside it")
        guests[0] = replace(victim, active=victim.active.restart())


def _start_loads(guests: Sequence[TrialGuest], loads: ExitStack, trouble: FailureCollector) -> bool:
    """Start the neighbours' loads, which end with `loads` at the latest; return True if all are running."""
    for guest in guests:
        if guest.load is not None:
            loads.callback(_end_quietly, guest.load)
            with trouble.noted(guest.name, of_load=True):
                guest.load.start()
    return not trouble.reasons


def _end_quietly(load: NeighbourLoad) -> None:
    with suppress(TestbedError):  # its failure is recorded already
        load.stop()


def _stop_loads(guests: Sequence[TrialGuest], trouble: FailureCollector) -> None:
    for guest in guests:
        if guest.load is not None:
            with trouble.noted(guest.name, of_load=True):
                guest.load.stop()


def _all_dropped(
    setup: TrialSetup,
    guests: Sequence[TrialGuest],
    sent: Mapping[str, Sent],
    before: CounterSnapshot,
    trouble: FailureCollector,
) -> bool:
    """Return True if every frame that has not reached its sink's NIC by now was counted as dropped."""
    now = take_snapshot(setup, guests, trouble)
    received = {}
    for ends in (ends for guest in guests for ends in guest.endpoints):
        nic, frames = nic_deltas(ends.path, before, now)["sink"], sent[ends.path.name].frames
        received[ends.path.name] = Received(frames=min(nic.rx, frames) if nic else None, dropped=0)
    evidence = [stream for guest in guests for stream in evidence_of(guest, sent, received, before, now, len(sent))]
    return all_counted(evidence)
