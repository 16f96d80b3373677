"""Estimate of the duration of a campaign."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from netbench.model.scenario import Idle
from netbench.model.trial import TrialSpec
from netbench.model.virtualisation import DurationEstimate

_NO_TIME = DurationEstimate()


@dataclass(frozen=True, slots=True)
class VmCosts:
    """Extra time of a testbed with VMs and of a trial on it, in seconds; `vm` is the VM of its UUTs."""

    vm: str | None = None
    start_s: float = 0.0
    trial_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The time of a campaign in addition to traffic and pauses, in seconds, as measured on two shared cores.

    `start_s` is the time to bring a testbed up, which happens each time that UUTs with other `vms` follow. `vms` are by
    UUT; UUTs without an entry need no VM. `trial_s` is for arming, draining, analysing and storing, `stream_s` for each
    further stream in a trial. `guests` contains the extra time of each UUT (`NAME`) and neighbour (`UUT.NAME`). Each
    boot begins with `warm_up_trials`.
    """

    start_s: float = 0.0
    trial_s: float = 0.16
    stream_s: float = 0.08
    guests: Mapping[str, DurationEstimate] = field(default_factory=dict)
    vms: Mapping[str, VmCosts] = field(default_factory=dict)
    warm_up_trials: int = 0

    def expected_s(self, trials: Iterable[TrialSpec]) -> float:
        """Return the expected time of these trials in this order, in seconds, including the start of guests."""
        return sum(before_s + trial_s for _, before_s, trial_s in self.each(trials)) or self.start_s

    def each(self, trials: Iterable[TrialSpec]) -> Iterator[tuple[TrialSpec, float, float]]:
        """Yield each trial with the seconds to bring something up before it, and those of the trial itself."""
        for vms, on_same_vms in groupby(trials, key=lambda trial: self._vms(trial.uut)):
            before_s = self.start_s + vms.start_s
            for (uut, _), on_one_boot in groupby(on_same_vms, key=lambda trial: (trial.uut, trial.boot)):
                own = list(on_one_boot)
                before_s += self._of(uut).bring_up_s + self.warm_up_trials * self._trial_s(own[0])
                for neighbours, beside in groupby(own, key=lambda trial: [guest.name for guest in trial.neighbours]):
                    before_s += sum(self._of(f"{uut}.{name}").bring_up_s for name in neighbours)
                    for trial in beside:
                        yield trial, before_s, self._trial_s(trial)
                        before_s = 0.0

    def _trial_s(self, trial: TrialSpec) -> float:
        expected = trial.duration_s + trial.settle_before_s + trial.settle_after_s
        expected += self.trial_s + self._vms(trial.uut).trial_s + self._of(trial.uut).trial_s
        expected += (len(trial.streams) - 1) * self.stream_s
        longest_s = trial.settle_before_s + trial.duration_s
        for neighbour in trial.neighbours:
            pace = self._of(f"{trial.uut}.{neighbour.name}")
            if neighbour.streams:
                longest_s = max(longest_s, neighbour.duration_s)
                expected += pace.trial_s + len(neighbour.streams) * self.stream_s
            elif neighbour.load is not None:
                expected += pace.idle_s + pace.load_s + (neighbour.load.cpu + neighbour.load.vm) * pace.worker_s
            elif isinstance(neighbour.activity, Idle):
                expected += pace.idle_s
        return expected + longest_s - trial.settle_before_s - trial.duration_s

    def _vms(self, uut: str) -> VmCosts:
        return self.vms.get(uut, VmCosts())

    def _of(self, guest: str) -> DurationEstimate:
        return self.guests.get(guest, _NO_TIME)
