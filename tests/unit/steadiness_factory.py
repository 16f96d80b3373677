"""Campaigns over time: UUTs that drift, whose boots differ, or that are slower at first."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from netbench.model.campaign import CampaignResults
from netbench.model.trial import TrialResult
from netbench.statistics.drift import Steadiness, steadiness_of
from netbench.statistics.groups import group_trials
from tests.unit.comparison_factory import LOADS
from tests.unit.results_factory import campaign, stream_counts, trial

STARTED_NS = 1_741_079_700_000_000_000
MOST = 80_000  # frames/s
_TRIAL_S = 10.3
_BOOT_S = 4.0


def one_percent(chance: random.Random) -> float:
    return chance.gauss(1, 0.01)


def exact(_: random.Random) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class Made:
    """A made-up campaign: interleaved, with a boot for each repetition unless on `one_boot`.

    `drift` is the change from the first trial to the last, as a share of the throughput. `boots_scatter` is the
    standard deviation between boots. `first` is the deviation of the first trials of a boot. `wander` is how much each
    trial resembles the one before.
    """

    scatter: Callable[[random.Random], float] = one_percent
    drift: float = 0.0
    boots_scatter: float = 0.0
    first: tuple[float, ...] = ()
    repetitions: int = 9
    sizes: tuple[int, ...] = (64, 512, 1518)
    loads: tuple[int, ...] = LOADS
    uuts: tuple[str, ...] = ("one", "other")
    drifting: tuple[str, ...] = ("one",)
    one_boot: bool = False
    wander: float = 0.0

    def campaign(self, seed: int = 1) -> CampaignResults:
        """The results, for a seed."""
        return campaign(self.trials(seed), uuts=self.uuts)

    def steadiness(self, seed: int = 1) -> dict[str, Steadiness]:
        """The steadiness of each UUT."""
        return {steadiness.uut: steadiness for steadiness in steadiness_of(group_trials(self.campaign(seed)))}

    def trials(self, seed: int = 1) -> list[TrialResult]:
        """All trials in order of time."""
        chance = random.Random(seed)
        when_s, number, found = 0.0, 0, list[TrialResult]()
        boots: dict[str, tuple[int, float]] = {}  # the boot of each UUT, and its effect
        places = dict.fromkeys(self.uuts, 0)
        planned = len(self.uuts) * self.repetitions * len(self.sizes) * len(self.loads)
        previous = dict.fromkeys(self.uuts, 0.0)
        for repetition in range(1, self.repetitions + 1):
            for uut in chance.sample(self.uuts, len(self.uuts)):
                if not self.one_boot or repetition == 1:
                    number += 1
                    boots[uut] = number, chance.gauss(0, self.boots_scatter) if self.boots_scatter else 0.0
                    places[uut] = 0
                    when_s += _BOOT_S
                boot, effect = boots[uut]
                cells = [(size, load) for size in self.sizes for load in self.loads]
                for size, load in chance.sample(cells, len(cells)):
                    through = len(found) / max(planned - 1, 1) - 0.5
                    drift = self.drift * through if uut in self.drifting else 0.0
                    first = self.first[places[uut]] if places[uut] < len(self.first) else 0.0
                    previous[uut] = self.wander * previous[uut] + self.scatter(chance) - 1
                    most = MOST * (1 + previous[uut]) * (1 + drift) * (1 + effect) * (1 + first)
                    made = _trial(uut, size, load, repetition, len(found), round(most))
                    found.append(replace(made, boot=boot, started_ns=STARTED_NS + round(1e9 * when_s)))
                    when_s += _TRIAL_S
                    places[uut] += 1
        return found


def _trial(uut: str, size: int, load: int, repetition: int, index: int, most: int) -> TrialResult:
    counts = stream_counts(sent=load, received=max(0, min(load, most)), intended_fps=float(load), intended_frames=load)
    return trial(counts, uut=uut, frame_size=size, load=f"{load}fps", repetition=repetition, index=index)
