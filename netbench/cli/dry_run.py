"""A dry run as text: every change, command and trial of a campaign, and its duration. Changes nothing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from netbench.campaign.request import CampaignRequest
from netbench.cli.dry_run_flows import flow_commands, inside, on_machine
from netbench.model.frame_size import MIN_FRAME_SIZE, FrameSize
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.traffic import Stamps, Traffic
from netbench.model.trial import TrialSpec
from netbench.model.units import rate_text
from netbench.packets.build import expected_headers
from netbench.plan.warm_up import MOST
from netbench.plan.warnings import skipped_traffic
from netbench.report.formats import count
from netbench.testbed.bring_up import (
    base_changes,
    cable_ends,
    flow_changes,
    host_identities,
    source_changes,
    usual_ends,
)
from netbench.testbed.cpus import bound_ends
from netbench.testbed.emulated_ssh_hosts import server_changes
from netbench.testbed.guest_specs import cpus_of
from netbench.testbed.resolved import make_backends
from netbench.testbed.rings import Ring, planned_changes, wanted_rings
from netbench.testbed.virtual_machines import planned_vm
from netbench.trial.setup import Endpoints
from netbench.trial.sources_and_sinks import Recording
from netbench.vmm.base import guest_directory

_NO_MAC = "00:00:00:00:00:00"  # of a port, whose address is read once the testbed is up


def describe(request: CampaignRequest) -> Iterator[str]:
    """Yield the lines of `--dry-run`."""
    topology, profile, planned = request.topology, request.profile, len(request.schedule.planned)
    expected = request.schedule.expected_number(())
    if request.schedule.trials is not None:
        number = f"{planned} trials"
    elif expected is not None:
        number = f"about {expected} trials" + (f", {expected - planned} of them to find maxima" if planned else "")
    else:
        number = "a number of trials that depends on the results" + (f", and {planned} more" if planned else "")
    yield f"# {topology.name} × {profile.name}: {number}, seed {profile.seed}"
    machines = dict.fromkeys(topology.uut(name).on for name in request.uuts)
    for machine in machines:
        yield from _testbed(replace(request, resolved=request.resolved.on(machine)), machine)
    yield from _neighbours(request)
    yield from _trials(request)


def _testbed(request: CampaignRequest, place: str | None) -> Iterator[str]:
    """Yield the changes for the testbed of the UUTs on one VM, or on none, those UUTs, and their sources and sinks."""
    topology, profile = request.topology, request.profile
    yield f"# testbed of UUTs on VM {place}" if place else "# testbed"
    cables = cable_ends(topology, {vm: guest_directory("RUN", vm) for vm in topology.vms})
    for machine, vm in topology.vms.items():
        yield from (f"  {command}" for command in planned_vm(machine, vm, cables[machine]))
    for change in server_changes(topology):
        yield f"  {change.command}"
    for host, spec in topology.ssh_hosts.items():
        played = ", an SSH server emulated by netbench" if spec.is_emulated else ""
        yield f"  # host {host}: ssh {f'{spec.user}@' if spec.user else ''}{spec.address}{played}"
    rings = wanted_rings(topology, request.resolved.in_use, partial(cpus_of, topology), request.resolved.competition)
    clients = [path for path in request.resolved.in_use if path.name in request.resolved.streams_of_flows]
    for target in (None, *topology.vms, *topology.ssh_hosts):
        changes = [
            *base_changes(topology, target, with_offloads=request.resolved.ends_of_flows),
            *planned_changes(rings, target),
            *source_changes(profile, request.resolved.in_use, target),
            *flow_changes(clients, request.resolved.streams_through, target),
        ]
        yield from (f"  {on_machine(target)}{change.command}" for change in changes)
    for uut in request.uuts:
        yield from _guests(request, uut, rings)
    generator, sinks = make_backends(profile)
    source, sink = generator.source(), sinks.sink()
    resolved = request.resolved
    ends = bound_ends(resolved.in_use, partial(cpus_of, topology), resolved.competition)
    pins = [(path, pin) for path, pin in ends if path.name in resolved.streams_of_frames]
    yield "# hosts"
    for host, identity in host_identities(topology).items():
        yield f"  {host}: {identity.kernel or 'a kernel not known yet'}; {identity.where}"
    yield from flow_commands(request)
    if not pins:
        return
    yield "# kinds of source and sink, where known in advance"
    for path, pin in pins:
        kinds = Endpoints(path, source, sink, usual_ends(profile, pin)).identities
        yield f"  {path.name}: {kinds.source} to {kinds.sink}"
    yield "# sources, once"
    for path, (cpus, _) in pins:
        for command in source.commands(path.source.interface, cpus):
            remark = command.startswith("#")
            yield f"  {'' if remark else inside(path.source)}{command}"
    yield "# sinks, in each trial; the ring (-B, KiB) grows with the rate"
    recording = Recording.as_wanted(profile, Path("captures"))
    for path, (_, cpus) in pins:
        traffic = _first_traffic(path, profile)
        headers = None if traffic.packet is None else expected_headers(traffic)
        if headers is not None:
            others = [other for other, _ in pins if other != path]
            headers = replace(
                headers,
                not_from=tuple(other.source.mac or "MAC" for other in others),
                not_to=tuple(other.sink.mac or "MAC" for other in others),
            )
        first = recording.incoming(path, traffic, Stamps(), "NNNNNN", headers=headers)
        for command in sink.commands(path.sink.interface, cpus, first):
            yield f"  {inside(path.sink)}{command}"


def _trials(request: CampaignRequest) -> Iterator[str]:
    """Yield all trials in order, boot by boot."""
    if replayed := request.replayed:
        what = (
            "the shares of maxima have its rates" if replayed.loads else "it has no load that is a share of a maximum"
        )
        yield f"# loads from {replayed.directory}, started {replayed.started}: {what}"
        yield from (f"  {load}" for load in replayed.loads)
    for mix in (size for size in request.profile.frame_sizes if size.is_mix):
        yield f"# frames of {mix.summary}; {mix.in_letters}"
    yield from _packets(request)
    trials, announced = request.schedule.planned, request.schedule.announced
    for sources, frame_size in request.schedule.needed_ceilings:
        many = "1 source" if sources == 1 else f"{sources} sources"
        yield f"# calibration: {many} at {frame_size.text(' bytes')}, without a UUT where links allow it"
    if announced:
        yield "# searched for first; each trial depends on earlier results"
        yield from (f"  {line}" for line in announced)
    if request.schedule.objective:
        yield f"# search: {request.schedule.objective}"
    if not trials:
        yield f"# trials: each depends on earlier results ({request.profile.schedule.kind})"
        yield from (f"# on each boot before:{line[3:]}" for line in _warm_up(request.profile))
    else:
        yield from _in_order(request, trials)
    expected_s = request.schedule.expected_s(())
    if expected_s is not None:
        about = "" if request.schedule.trials is not None else ", about"
        yield f"# expected total time{about}: {_clock(expected_s)} ({expected_s:.0f} s)"


def _packets(request: CampaignRequest) -> Iterator[str]:
    """Yield the described packets of the profile and of streams: layers, flows, varying fields."""
    for name, packet in request.profile.packets.items():
        yield f"# packet {name}: {packet.summary}"
    for path in request.resolved.in_use:
        if path.packet is not None:
            yield f"# packet of stream {path.name}, {path.packet.name}: {path.packet.summary}"
    for warning in skipped_traffic(request.profile, request.resolved.unsupported):
        yield f"# {warning.text}"


def _in_order(request: CampaignRequest, trials: Sequence[TrialSpec]) -> Iterator[str]:
    yield "# then trials, in order" if request.schedule.announced else "# trials, in order"
    if in_a_row := request.profile.stop_when_saturated:
        in_words = "a load is" if in_a_row == 1 else f"{in_a_row} loads in a row are"
        yield f"  # loads of a sweep rise; once {in_words} saturated, higher loads are skipped"
    phases = max(trial.phase for trial in trials)
    for (uut, phase, _), on_one_boot in groupby(trials, key=lambda trial: (trial.uut, trial.phase, trial.boot)):
        which = f"  phase {phase} of {phases}" if phases > 1 else ""
        finds = ": finds the maximum that neighbours' loads refer to" if phase < phases else ""
        yield f"  {uut}{which}{finds}"
        yield from _warm_up(request.profile)
        for trial in on_one_boot:
            traffic = trial.serves.workload if trial.serves else trial.frame_size.text(" B")
            what = f"{trial.scenario}  {'+'.join(trial.streams)}  {traffic}  {_load(trial)}"
            yield f"    {trial.index:>6}  {what}  repetition {trial.repetition}"


def _load(trial: TrialSpec) -> str:
    """Return the load of a trial, with the rate of a share of a maximum if it is known."""
    load = trial.load
    return str(load) if load.found is None else f"{load} ({rate_text(load.found.value, load.found.kind)})"


def _warm_up(profile: Profile) -> Iterator[str]:
    """Yield the warm-up trials on each boot, before its first trial."""
    wanted = profile.warm_up_trials
    if isinstance(wanted, str):
        yield f"    warm-up trials, until one is no faster and no slower than those before, {MOST} at most"
    elif wanted:
        yield f"    {count(wanted, 'warm-up trial')}"


def _guests(request: CampaignRequest, uut: str, rings: Sequence[Ring]) -> Iterator[str]:
    """Yield the changes that bring up a UUT and each neighbour that any trial needs."""
    topology = request.topology
    for name, guest in request.resolved.guests[uut].items():
        kind = guest.spec.kind
        if name != VICTIM and name not in request.resolved.activities:
            continue
        yield f"# UUT {uut} ({kind})" if name == VICTIM else f"# neighbour {name} of UUT {uut} ({kind})"
        if cpus := guest.assignment.cpu_shares.cpus:
            yield f"  # on the CPUs {', '.join(map(str, cpus))} of the host"
        streams = {path.name for path in guest.assignment.paths}
        for ring in (ring for ring in rings if ring.stream in streams and ring.cpus):
            if change := ring.moved(cpus, topology.uut(uut).napi_policy):
                yield f"  {on_machine(topology.uut_machine)}{change.command}"
        for step in guest.plan.steps:
            yield f"  {on_machine(topology.uut_machine)}{step.command}"


def _neighbours(request: CampaignRequest) -> Iterator[str]:
    """Yield the activities of the neighbours in each scenario with neighbours."""
    topology, profile = request.topology, request.profile
    if not request.resolved.activities:
        return
    yield "# activities of neighbours, from before each trial settles until it ends"
    for name in request.schedule.scenarios:
        scenario = profile.scenario(name)
        yield f"  {name}: " + "; ".join(
            f"{neighbour.name} {topology.activity(scenario, neighbour.name)}" for neighbour in topology.neighbours
        )


def _first_traffic(path: StreamPath, profile: Profile) -> Traffic:
    """Return the traffic of a stream in the first trials."""
    frame_size = next(iter(profile.all_frame_sizes), FrameSize.of(MIN_FRAME_SIZE))
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac or _NO_MAC,
        dst_mac=path.sink.mac or _NO_MAC,
        src_ip=path.src_ip,
        dst_ip=path.dst_ip,
        frame_size=frame_size,
        fps=profile.loads[0].fps(frame_size, path.link_bps) if profile.loads else None,
        duration_s=profile.duration,
        flows=profile.flows,
        seed=profile.seed,
        packet=path.packet or profile.packets.get(frame_size.packet),
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
