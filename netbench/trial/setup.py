"""What a trial is made with: sources and sinks at work, the victim, its neighbours, and who does what."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.generators.base import Source
from netbench.hosts.clock import Clock
from netbench.linux.nics import NicCounters
from netbench.loads.base import Neighbour
from netbench.model.paths import Place, StreamPath
from netbench.model.points import HopPoint, HopReading, Hops
from netbench.model.profile import Profile
from netbench.model.traffic import Traffic
from netbench.model.trial import TrialSpec
from netbench.model.units import Load
from netbench.sinks.base import Sink
from netbench.uut.base import ActiveGuest

NicReader = Callable[[Iterable[Place]], dict[Place, NicCounters]]
# What is on the way of these interfaces, and in what UUTs declare of their machine, beside the NICs' own counters.
HopReader = Callable[[Sequence[HopPoint], Sequence[Hops]], tuple[HopReading, ...]]


@dataclass(frozen=True, slots=True)
class Lane:
    """One stream with its source and sink at work."""

    path: StreamPath
    source: Source
    sink: Sink


@dataclass(frozen=True, slots=True)
class Companion:
    """A neighbour that is up, and what it does in the trial at hand: a load of its own, frames to forward, or nothing.

    `rate` is for each of its `streams`; None when it forwards nothing.
    """

    name: str
    active: ActiveGuest
    load: Neighbour
    activity: str
    streams: tuple[str, ...] = ()
    frame_size: int | None = None
    rate: Load | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What a trial needs of a ready testbed. `machine_cpu_s` is the CPU time that the UUT's machine has used so far."""

    lanes: Mapping[str, Lane]
    active: ActiveGuest
    read_nics: NicReader
    read_hops: HopReader
    clock: Clock
    machine_cpu_s: Callable[[], float] | None = None
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """A guest and the streams that run through it in this trial; the victim's `guest` is empty."""

    guest: str
    active: ActiveGuest
    load: Neighbour | None
    lanes: tuple[Lane, ...]
    traffic: Mapping[str, Traffic]  # by stream


def sides_of(bench: Bench, spec: TrialSpec, profile: Profile) -> Iterator[Side]:
    """The victim, then each neighbour."""
    lanes = [bench.lanes[name] for name in spec.streams]
    yield _side("", bench.active, None, lanes, spec.frame_size, spec.load, profile, profile.duration)
    for one in bench.companions:
        lanes = [bench.lanes[name] for name in one.streams] if one.rate is not None else []
        frame_size, rate = one.frame_size or spec.frame_size, one.rate or spec.load
        yield _side(one.name, one.active, one.load, lanes, frame_size, rate, profile, profile.neighbours_duration)


def _side(
    guest: str,
    active: ActiveGuest,
    load: Neighbour | None,
    lanes: Sequence[Lane],
    frame_size: int,
    rate: Load,
    profile: Profile,
    duration_s: float,
) -> Side:
    traffic = {}
    for lane in lanes:
        path = lane.path
        wanted = rate.fps(frame_size, path.link_bps)
        traffic[path.name] = Traffic(
            stream=path.name,
            src_mac=path.source.mac,
            dst_mac=active.ready.next_hop_macs[path.name],
            src_ip=path.src_ip,
            dst_ip=path.dst_ip,
            frame_size=frame_size,
            fps=None if wanted is None else lane.source.nearest_fps(wanted, frame_size),
            duration_s=duration_s,
            flows=profile.flows,
            seed=profile.seed,
        )
    return Side(guest, active, load, tuple(lanes), traffic)
