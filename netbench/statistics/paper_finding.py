"""Do most frames die before they enter the guest?

Schlosser et al. 2011 found that they do, at the end of section 4.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.lost_frames import Outcome, Side, outcome


class Answer(Enum):
    """What the counts say of the paper's finding; the value completes "this … it"."""

    CONFIRMED = "confirms"
    REFUTED = "refutes"
    OPEN = "neither confirms nor refutes"


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted of it: the valid trials of some UUTs with a guest, at any load and frame size."""

    outcome: Outcome

    @property
    def before_ratio(self) -> float | None:
        """Frames that died before the guest ÷ all that died; None where none died."""
        return self.outcome.on(Side.BEFORE) / self.outcome.lost if self.outcome.lost > 0 else None

    @property
    def answer(self) -> Answer | None:
        """Whether it holds wherever those frames died of which that is unknown; None where none died."""
        lost, before = self.outcome.lost, self.outcome.on(Side.BEFORE)
        if lost <= 0:
            return None
        if 2 * before > lost:
            return Answer.CONFIRMED
        return Answer.REFUTED if 2 * (before + self.outcome.on(Side.UNKNOWN)) <= lost else Answer.OPEN


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """The finding beside all UUTs with a guest together, and each; it is not about those `without_guest`."""

    together: Tally
    by_uut: Mapping[str, Tally]
    without_guest: tuple[str, ...]


def paper_finding(trials: Sequence[TrialResult], uuts: Iterable[str], guests: Collection[str]) -> PaperFinding:
    """Hold the finding against the valid trials of these UUTs; `guests` are those on whose path a guest is."""
    measured = [uut for uut in uuts if any(trial.spec.uut == uut for trial in trials)]
    valid = [trial for trial in trials if trial.spec.uut in guests and trial.verdict is Verdict.VALID]
    return PaperFinding(
        together=Tally(outcome(valid, guest=True)),
        by_uut={
            uut: Tally(outcome((trial for trial in valid if trial.spec.uut == uut), guest=True))
            for uut in measured
            if uut in guests
        },
        without_guest=tuple(uut for uut in measured if uut not in guests),
    )
