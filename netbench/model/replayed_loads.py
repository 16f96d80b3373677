"""The absolute rates of a campaign's loads that are shares of a maximum, so that another campaign can replay them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import AliasChoices, Field

from netbench.model.frame_size import FrameSize
from netbench.model.scenario import Network
from netbench.model.trial import GuestTask, TrialFrames, TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind, rate_text
from netbench.model.workload import Workload


@dataclass(frozen=True, slots=True)
class ReplayedLoad:
    """The rate of a load of one measurement, of each stream in the `unit`.

    `load` is the share as written in the profile; `neighbour` is empty for the UUT's own load.
    """

    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: str  # bytes with FCS, the name of a mix, or a workload with its options
    neighbour: str
    load: str
    rate: Annotated[float, Field(validation_alias=AliasChoices("rate", "fps"))]  # version 0.1: frames/s
    unit: LoadKind = LoadKind.FRAME_RATE

    @property
    def key(self) -> tuple[object, ...]:
        """Its identity within a campaign."""
        return (self.uut, self.scenario, self.streams, self.frame_size, self.neighbour, self.load)

    def __str__(self) -> str:
        return f"{_named(self.key)}: {rate_text(self.rate, self.unit)}"


@dataclass(frozen=True, slots=True)
class ReplayedLoads:
    """Rates, and the result directory that they are from."""

    directory: str
    started: str
    loads: tuple[ReplayedLoad, ...]

    def resolved(self, trial: TrialSpec) -> TrialSpec:
        """Return the trial with all loads as rates; KeyError with the name of a measurement that has no rate."""
        rates = {load.key: Load(load.unit, load.rate) for load in self.loads}
        return replace(trial, guests=tuple(_resolved(trial, guest, rates) for guest in trial.guests))


def replayed_loads_of(trials: Iterable[TrialResult]) -> tuple[ReplayedLoad, ...]:
    """Return the rates of all loads in these trials that are shares of a maximum."""
    loads: dict[tuple[object, ...], ReplayedLoad] = {}
    for spec in (trial.spec for trial in trials):
        for guest in spec.guests:
            key = _key(spec, guest)
            if key is None or key in loads:
                continue
            of_neighbour = guest.traffic.load if guest.traffic else None
            rate = spec.load.found if guest is spec.victim else of_neighbour
            if rate is not None:
                loads[key] = ReplayedLoad(*key, rate.value, rate.kind)
    return tuple(loads.values())


def _key(trial: TrialSpec, guest: GuestTask) -> tuple[str, str, tuple[str, ...], str, str, str] | None:
    """Return the identity of a load; None for one that is no share of a maximum."""
    load = share_of(trial, guest)
    if load is None:
        return None
    whose = "" if guest is trial.victim else guest.name
    return (trial.uut, trial.scenario, trial.streams, _traffic_text(trial.kind_of_traffic), whose, load)


def _traffic_text(traffic: FrameSize | Workload) -> str:
    """Return a size as text, or a workload with the options that are not part of its name."""
    if not isinstance(traffic, Workload):
        return str(traffic)
    written = {key: value for key, value in traffic.written.items() if key not in ("kind", "name")}
    others = [text for key, value in written.items() if (text := f"{key}={value}") not in traffic.name]
    return " ".join([traffic.name, *others])


def share_of(trial: TrialSpec, guest: GuestTask) -> str | None:
    """Return a guest's load as written in the profile, if it is a share of a maximum; None otherwise."""
    if guest is trial.victim:
        load = trial.load
        return str(load) if load.kind is LoadKind.OF_MAXIMUM else None
    activity = guest.activity
    return str(activity) if isinstance(activity, Network) and activity.share is not None else None


def _resolved(trial: TrialSpec, guest: GuestTask, rates: dict[tuple[object, ...], Load]) -> GuestTask:
    key = _key(trial, guest)
    if key is None:
        return guest
    if key not in rates:
        raise KeyError(_named(key))
    if guest is trial.victim:
        return trial.at_rate(rates[key]).victim
    activity = guest.activity
    assert isinstance(activity, Network)
    load = rates[key]
    frames = trial.victim.traffic or TrialFrames(activity.frame_size, load)
    return replace(guest, traffic=replace(frames, size=activity.frame_size, load=load))


def _named(key: tuple[object, ...]) -> str:
    uut, scenario, streams, size, neighbour, load = key
    assert isinstance(streams, tuple)
    whose = f"neighbour {neighbour} {load}" if neighbour else str(load)
    unit = " bytes" if str(size).isdigit() else ""
    return f"{uut}, {scenario}, {'+'.join(streams)}, {size}{unit}, {whose}"
