"""What a campaign would do, as text: every change, command and trial, and how long it takes. Touches nothing."""

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from netbench.campaign.runner import Request
from netbench.linux.changes import AddRunDirectory
from netbench.model.paths import Nic, StreamPath, stream_paths
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec
from netbench.model.traffic import Traffic
from netbench.plan.order import company_of
from netbench.testbed.layout import (
    activities_of,
    as_uut,
    base_changes,
    cpu_plans,
    entitlements,
    make_backends,
    make_uut,
    neighbours_of,
    own_paths,
    paths_in_use,
    usable_cpus,
)
from netbench.testbed.virtual_machines import planned_vm
from netbench.trial.receiving import incoming
from netbench.uut.base import Assignment
from netbench.vmm.qemu_command import RunFiles, qemu_command, vm_directory


def describe(request: Request) -> Iterator[str]:
    """The lines of `--dry-run`."""
    topology, profile, plan = request.topology, request.profile, request.plan
    yield f"# {topology.name} × {profile.name}: {len(plan.trials)} trials, seed {profile.seed}"
    yield "# testbed"
    for machine, vm in topology.vms.items():
        directory = vm_directory("RUN", machine)
        yield f"  {AddRunDirectory(str(directory)).command}"
        yield f"  {shlex.join(qemu_command(planned_vm(machine, vm), RunFiles(directory)))}"
    for ground in (None, *topology.vms):
        yield from (f"  {_on(ground)}{change.command}" for change in base_changes(topology, ground))
    paths = stream_paths(topology)
    for uut in topology.uuts:
        if uut.name in request.uuts:
            yield from _guests(request, uut, paths)
    yield from _neighbours(request)
    yield "# sources, once"
    generator, sinks = make_backends(profile)
    source, sink = generator.source(), sinks.sink()
    in_use = paths_in_use(topology, paths, activities_of(topology, map(profile.scenario, request.planned_scenarios)))
    pins = list(cpu_plans(in_use, lambda machine: range(topology.vms[machine].cpus) if machine else usable_cpus()))
    for path, (cpus, _) in pins:
        for command in source.commands(path.source.interface, cpus):
            remark = command.startswith("#")
            yield f"  {'' if remark else _inside(path.source)}{command}"
    yield "# sinks, in each trial; the ring (-B, KiB) grows with the rate"
    for path, (_, cpus) in pins:
        first = incoming(path, _first_traffic(path, profile), profile, Path("captures") / f"trial-NNNNNN-{path.name}")
        for command in sink.commands(path.sink.interface, cpus, first):
            yield f"  {_inside(path.sink)}{command}"
    yield "# trials, in order"
    stages = max(visit.stage for visit in plan.visits)
    for visit in plan.visits:
        stage = f"  stage {visit.stage} of {stages}" if stages > 1 else ""
        finds = ": finds the maximum that neighbours' loads refer to" if stage and visit.stage < stages else ""
        yield f"  {visit.uut}{stage}{finds}"
        for trial in visit.trials:
            what = f"{trial.scenario}  {'+'.join(trial.streams)}  {trial.frame_size} B  {trial.load}"
            yield f"    {trial.index:>6}  {what}  repetition {trial.repetition}"
    yield f"# expected total time: {_clock(plan.expected_s)} ({plan.expected_s:.0f} s)"


def _guests(request: Request, uut: UutSpec, paths: Sequence[StreamPath]) -> Iterator[str]:
    """What brings a UUT up, and each neighbour that any trial needs."""
    topology = request.topology
    entitled = entitlements(topology, uut, _cpus(topology))
    guests = {"": uut, **{one.name: as_uut(one, uut) for one in neighbours_of(topology, uut)}}
    needed = {name for trial in request.plan.trials for name in company_of(topology, request.profile, trial.scenario)}
    for name, spec in guests.items():
        if name and name not in needed:
            continue
        yield f"# neighbour {name} of UUT {uut.name} ({spec.kind})" if name else f"# UUT {spec.name} ({spec.kind})"
        if cpus := entitled[name].cpus:
            yield f"  # on the CPUs {', '.join(map(str, cpus))} of the host"
        own = Assignment(spec.name, own_paths(topology, paths, name), entitled[name], topology.uut_host)
        for step in make_uut(spec).plan(own).steps:
            yield f"  {_on(topology.uut_machine)}{step.command}"


def _neighbours(request: Request) -> Iterator[str]:
    """What the neighbours do in each scenario that has any."""
    topology, profile = request.topology, request.profile
    if not activities_of(topology, map(profile.scenario, request.planned_scenarios)):
        return
    yield "# what the neighbours do, in each trial from before it settles until it is over"
    for name in dict.fromkeys(trial.scenario for trial in request.plan.trials):
        scenario = profile.scenario(name)
        yield f"  {name}: " + "; ".join(
            f"{one.name} {topology.activity(scenario, one.name)}" for one in topology.neighbours
        )


def _first_traffic(path: StreamPath, profile: Profile) -> Traffic:
    """What a stream carries in the first trials."""
    frame_size = profile.frame_sizes[0]
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac,
        dst_mac="",
        src_ip=path.src_ip,
        dst_ip=path.dst_ip,
        frame_size=frame_size,
        fps=profile.loads[0].fps(frame_size, path.link_bps),
        duration_s=profile.duration,
        flows=profile.flows,
        seed=profile.seed,
    )


def _cpus(topology: Topology) -> Sequence[int]:
    vm = topology.uut_machine
    return range(topology.vms[vm].cpus) if vm else usable_cpus()


def _inside(nic: Nic) -> str:
    return _on(nic.machine) + (f"ip netns exec {nic.netns} " if nic.netns else "")


def _on(machine: str | None) -> str:
    return f"[{machine}] " if machine else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
