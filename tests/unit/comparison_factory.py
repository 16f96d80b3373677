"""Campaigns to compare, of UUTs with a given peak throughput and a given scatter."""

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.model.trial import TrialResult
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import digests
from netbench.results.store import Store
from netbench.statistics.compared_cells import Campaign
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import MANIFEST, campaign, stream_counts, trial

LOADS = (50_000, 100_000, 120_000)
Most = Callable[[], float]  # the peak throughput in a trial, in frames/s

# How the peak throughput of a UUT scatters over repetitions, as a factor.
SCATTER: Mapping[str, Callable[[random.Random], float]] = {
    "normal, 1 %": lambda chance: chance.gauss(1, 0.01),
    "dips, 1 % on average": lambda chance: 1 - chance.expovariate(100),
    "heavy tails": lambda chance: 1 + 0.005 * chance.gauss(0, 1) / max(chance.gammavariate(1.5, 2 / 3), 1e-3) ** 0.5,
    "two modes, 5 % apart": lambda chance: 1.0 if chance.random() < 0.7 else 0.95,
    "two modes, one rare": lambda chance: 1.0 if chance.random() < 0.9 else 0.8,
    "as counted": lambda chance: 1 + chance.gauss(0, 1) / 300_000,
}


def trials_of(
    uut: str = "raw",
    most: Most = lambda: 80_000.0,
    *,
    repetitions: int = 3,
    loads: Iterable[int] = LOADS,
    sizes: Iterable[int | FrameSize] = (64,),
) -> list[TrialResult]:
    """Return the trials of a UUT, 1 s each: it forwards the offered load, up to `most` frames/s."""
    return [
        trial(
            stream_counts(
                sent=load,
                received=max(0, min(load, round(most()))),
                intended_fps=float(load),
                intended_frames=load,
            ),
            uut=uut,
            frame_size=size,
            load=f"{load}fps",
            repetition=repetition,
        )
        for size in sizes
        for load in loads
        for repetition in range(1, repetitions + 1)
    ]


def made_up(
    most: float = 80_000.0,
    scatter: Callable[[random.Random], float] = lambda chance: chance.gauss(1, 0.0005),
    *,
    seed: int = 1,
    repetitions: int = 3,
    sizes: Iterable[int | FrameSize] = (64,),
    uuts: Iterable[str] = ("raw",),
) -> CampaignResults:
    """Return a campaign of UUTs that forward about `most` frames/s at most."""
    chance = random.Random(seed)
    every = tuple(uuts)
    trials = [
        result
        for uut in every
        for result in trials_of(uut, lambda: most * scatter(chance), repetitions=repetitions, sizes=sizes)
    ]
    return campaign(trials, uuts=every)


def exact_campaign(most: float = 80_000.0, **more: Any) -> CampaignResults:
    """Return a campaign of one UUT that forwards exactly `most` frames/s at most; `more` as for `trials_of`."""
    return campaign(trials_of("raw", lambda: most, **more))


def as_compared(results: CampaignResults, name: str = "new") -> Campaign:
    """Return the campaign in the form that is compared."""
    return Campaign.of(name, results)


def stored(
    path: Path, results: CampaignResults, lab: Topology | None = None, asked: Profile | None = None, **manifest: object
) -> Path:
    """Return the result directory of a campaign; `manifest` has the entries that differ from other campaigns."""
    asked = asked or profile()
    output = {
        **MANIFEST,
        "planned_trials": results.planned_trials,
        "uuts": list(results.uuts),
        "scenarios": ["dedicated"],
        "digests": digests(lab or topology(), asked),
        **manifest,
    }
    directory = ResultDirectory(path)
    with directory.created(lab or topology(), asked, output), closing(Store.open(directory.store)) as store:
        for index, result in enumerate(results.trials):
            store.add(replace(result, spec=replace(result.spec, index=index)))
        for uut, facts in results.facts.items():
            store.keep_facts(uut, facts)
        store.keep_warnings(results.warnings)
    return path
