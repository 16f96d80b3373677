"""What a campaign would do, as text: every change, command and trial, and how long it takes. Touches nothing."""

import math
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from netbench.campaign import Request
from netbench.links.changes import AddRunDirectory
from netbench.model.paths import Nic, stream_paths
from netbench.sinks.base import Catch
from netbench.sinks.tcpdump import flush_command, flush_wait_s, tcpdump_command, there
from netbench.testbed import base_changes, cpu_plans, make_generator, make_uut, usable_cpus
from netbench.vm.machine import RunFiles, qemu_command, vm_directory
from netbench.vm.running import planned_vm


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
            yield f"# UUT {uut.name} ({uut.kind})"
            yield from (f"  {_on(topology.uut_machine)}{command}" for command in make_uut(uut).commands(paths))
    yield "# sources, once"
    source = make_generator(profile).source()
    pins = list(cpu_plans(paths, lambda machine: range(topology.vms[machine].cpus) if machine else usable_cpus()))
    for path, (cpus, _) in pins:
        for command in source.commands(path.source.interface, cpus):
            remark = command.startswith("#")
            yield f"  {'' if remark else _inside(path.source)}{command}"
    yield "# sinks, in each trial; the ring (-B, KiB) grows with the rate"
    for path, (_, cpus) in pins:
        fps = profile.loads[0].fps(profile.frame_sizes[0], path.link_bps)
        capture = there(Path("captures") / f"trial-NNNNNN-{path.name}.pcap", shares_files=path.sink.machine is None)
        catch = Catch(path.src_ip, path.dst_ip, fps, profile.snap_length, capture)
        wait_s, inside_vm = flush_wait_s(profile.drain_limit), path.sink.machine is not None
        flush = flush_command(path.sink.interface, capture, wait_s, by_itself=inside_vm)
        yield f"  {_inside(path.sink)}{shlex.join(tcpdump_command(path.sink.interface, cpus, catch))}"
        yield f"  {_inside(path.sink)}{shlex.join(flush)}"
    yield "# trials, in order"
    for uut_name, trials in groupby(plan.trials, key=lambda trial: trial.uut):
        yield f"  {uut_name}"
        for trial in trials:
            what = f"{trial.scenario}  {'+'.join(trial.streams)}  {trial.frame_size} B  {trial.load}"
            yield f"    {trial.index:>6}  {what}  repetition {trial.repetition}"
    yield f"# expected total time: {_clock(plan.expected_s)} ({plan.expected_s:.0f} s)"


def _inside(nic: Nic) -> str:
    return _on(nic.machine) + (f"ip netns exec {nic.netns} " if nic.netns else "")


def _on(machine: str | None) -> str:
    return f"[{machine}] " if machine else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
