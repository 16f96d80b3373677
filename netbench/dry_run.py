"""What a campaign would do, as text: every change, command and trial, and how long it takes. Touches nothing."""

import math
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from netbench.campaign import Request
from netbench.model.paths import Nic, stream_paths
from netbench.sinks.base import Catch
from netbench.sinks.tcpdump import flush_command, tcpdump_command
from netbench.testbed import base_changes, cpu_plan, make_generator, make_uut, usable_cpus


def describe(request: Request) -> Iterator[str]:
    """The lines of `--dry-run`."""
    topology, profile, plan = request.topology, request.profile, request.plan
    yield f"# {topology.name} × {profile.name}: {len(plan.trials)} trials, seed {profile.seed}"
    yield "# testbed"
    yield from (f"  {change.command}" for change in base_changes(topology))
    paths = stream_paths(topology)
    for uut in topology.uuts:
        if uut.name in request.uuts:
            yield f"# UUT {uut.name} ({uut.kind})"
            yield from (f"  {command}" for command in make_uut(uut).commands(paths))
    yield "# sources, once"
    source = make_generator(profile).source()
    pins = cpu_plan(len(paths), usable_cpus())
    for path, (cpus, _) in zip(paths, pins, strict=True):
        for command in source.commands(path.source.interface, cpus):
            yield f"  {_inside(path.source)}{command}"
    yield "# sinks, in each trial; the ring (-B, KiB) grows with the rate"
    for path, (_, cpus) in zip(paths, pins, strict=True):
        fps = profile.loads[0].fps(profile.frame_sizes[0], path.link_bps)
        capture = Path("captures") / f"trial-NNNNNN-{path.name}.pcap"
        catch = Catch(path.src_ip, path.dst_ip, fps, profile.snap_length, capture)
        yield f"  {_inside(path.sink)}{shlex.join(tcpdump_command(path.sink.interface, cpus, catch))}"
        yield f"  {_inside(path.sink)}{shlex.join(flush_command(path.sink.interface))}"
    yield "# trials, in order"
    for uut_name, trials in groupby(plan.trials, key=lambda trial: trial.uut):
        yield f"  {uut_name}"
        for trial in trials:
            what = f"{trial.scenario}  {'+'.join(trial.streams)}  {trial.frame_size} B  {trial.load}"
            yield f"    {trial.index:>6}  {what}  repetition {trial.repetition}"
    yield f"# expected total time: {_clock(plan.expected_s)} ({plan.expected_s:.0f} s)"


def _inside(nic: Nic) -> str:
    return f"ip netns exec {nic.netns} " if nic.netns else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
