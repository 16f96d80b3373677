"""Topology × profile → the ordered trials. Pure, and the same for the same seed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.model.trial import TrialSpec
from netbench.model.units import Load, LoadKind

MAX_TRIALS = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """What a campaign takes beside traffic and pauses, in seconds, about: measured on two shared cores.

    `trial_s` is for arming, draining, analysing and storing; `uut_s` for bringing each UUT up, by name.
    """

    start_s: float = 0.0
    trial_s: float = 0.18
    uut_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The trials of a campaign in the order they are run."""

    trials: tuple[TrialSpec, ...]
    expected_s: float


def make_plan(
    topology: Topology,
    profile: Profile,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    costs: Costs = Costs(),
) -> Plan:
    """The plan of a campaign; UsageError for an unknown UUT or scenario, too many streams or trials.

    `interleaved` visits every UUT in each repetition, in shuffled order, and shuffles the trials within
    each visit, so that drift of the machine spreads over all of them. `sequential` finishes one UUT before the next,
    as written. `random` shuffles everything.
    """
    chosen = _chosen("UUT", uuts, [uut.name for uut in topology.uuts])
    cases = _chosen("scenario", scenarios, list(profile.scenarios))
    counts = profile.streams or (len(topology.streams),)
    if max(counts) > len(topology.streams):
        raise UsageError(
            f"profile {profile.name}: streams: {max(counts)} sources are asked for, "
            f"topology {topology.name} has {len(topology.streams)}"
        )
    total = len(chosen) * len(cases) * len(counts) * len(profile.frame_sizes) * len(profile.loads) * profile.repetitions
    if total > MAX_TRIALS:
        raise UsageError(f"profile {profile.name}: that makes {total:,} trials; at most {MAX_TRIALS:,} are possible")
    cells = [
        (scenario, count, size, load)
        for scenario in cases
        for count in counts
        for size in profile.frame_sizes
        for load in profile.loads
    ]
    names = tuple(stream.name for stream in topology.streams)
    order = list(_ordered(chosen, cells, profile))
    trials = tuple(
        TrialSpec(index, uut, scenario, names[:count], size, load, repetition)
        for index, (uut, (scenario, count, size, load), repetition) in enumerate(order)
    )
    return Plan(trials, expected_seconds(trials, profile, costs))


def expected_seconds(trials: Sequence[TrialSpec], profile: Profile, costs: Costs) -> float:
    """How long these trials should take, in seconds, changes of UUT included."""
    one = profile.duration + profile.settle.before + profile.settle.after + costs.trial_s
    visits = (uut for uut, _ in groupby(trials, key=lambda trial: trial.uut))
    return costs.start_s + len(trials) * one + sum(costs.uut_s.get(uut, 0.0) for uut in visits)


def loads_above_line_rate(topology: Topology, profile: Profile) -> list[str]:
    """Loads that no link of this nominal rate can carry, as text for a warning or an error."""
    found = []
    for stream in topology.streams:
        rate = topology.stream_link(stream).rate
        for load in profile.loads:
            for size in profile.frame_sizes:
                fps = load.fps(size, rate)
                line = Load(LoadKind.SHARE, 100).fps(size, rate)
                assert line is not None
                if fps is not None and fps > line * 1.000001:
                    found.append(f"{load} at {size} bytes on {stream.source} (line rate {line:,.0f} frames/s)")
    return found


Cell = tuple[str, int, int, Load]


def _ordered(uuts: Sequence[str], cells: Sequence[Cell], profile: Profile) -> Iterator[tuple[str, Cell, int]]:
    repetitions = range(1, profile.repetitions + 1)
    generator = random.Random(profile.seed)
    if profile.order == "sequential":
        yield from ((uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions)
    elif profile.order == "random":
        every = [(uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions]
        generator.shuffle(every)
        yield from every
    else:
        for repetition in repetitions:
            for uut in generator.sample(uuts, len(uuts)):
                yield from ((uut, cell, repetition) for cell in generator.sample(cells, len(cells)))


def _chosen(what: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"there is no {what} {unknown[0]!r} here; there are {', '.join(known)}")
    return [name for name in known if name in wanted] if wanted else list(known)
