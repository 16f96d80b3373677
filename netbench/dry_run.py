"""What a campaign would do, as text: every change, command and trial, and how long it takes. Touches nothing."""

import math
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from netbench.campaign import Request
from netbench.model.paths import stream_paths
from netbench.sinks.base import Catch
from netbench.sinks.tcpdump import tcpdump_command
from netbench.testbed import base_changes, make_uut


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
    yield "# per trial and stream"
    for path in paths:
        source = f"{path.source.host}/{path.source.interface}"
        yield f"  {path.name}: generator {profile.generator.kind} on {source}, frames to {path.dst_ip}"
        fps = profile.loads[0].fps(profile.frame_sizes[0], path.link_bps)
        catch = Catch(
            path.src_ip, path.dst_ip, fps, profile.snap_length, Path("captures") / f"trial-…-{path.name}.pcap"
        )
        command = tcpdump_command(path.sink.interface, (), catch)
        yield f"  {path.name}: on {path.sink.host}: {shlex.join(command)}"
    yield "# trials, in order"
    for uut_name, trials in groupby(plan.trials, key=lambda trial: trial.uut):
        yield f"  {uut_name}"
        for trial in trials:
            what = f"{trial.scenario}  {'+'.join(trial.streams)}  {trial.frame_size} B  {trial.load}"
            yield f"    {trial.index:>6}  {what}  repetition {trial.repetition}"
    yield f"# expected total time: {_clock(plan.expected_s)} ({plan.expected_s:.0f} s)"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
