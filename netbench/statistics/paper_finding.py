"""Do most frames die before they enter the guest?

Schlosser et al. 2011 found that they do, at the end of section 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.guest_sides import Side, uuts_with_guest
from netbench.statistics.outcomes import Fate, fate


class Finding(Enum):
    """What the counts say of the claim; the value completes "this … it"."""

    CONFIRMED = "confirms"
    REFUTED = "refutes"
    OPEN = "neither confirms nor refutes"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim beside what was counted: the valid trials of some UUTs with a guest, at any load and frame size."""

    fate: Fate

    @property
    def before_ratio(self) -> float | None:
        """Frames that died before the guest ÷ all that died; None where none died."""
        return self.fate.on(Side.BEFORE) / self.fate.lost if self.fate.lost > 0 else None

    @property
    def finding(self) -> Finding | None:
        """Whether it holds wherever those frames died of which that is unknown; None where none died."""
        lost, before = self.fate.lost, self.fate.on(Side.BEFORE)
        if lost <= 0:
            return None
        if 2 * before > lost:
            return Finding.CONFIRMED
        return Finding.REFUTED if 2 * (before + self.fate.on(Side.UNKNOWN)) <= lost else Finding.OPEN


@dataclass(frozen=True, slots=True)
class Claims:
    """The claim judged by all UUTs with a guest together, and by each; `without_guest` are those it is not about."""

    together: Claim
    by_uut: Mapping[str, Claim]
    without_guest: tuple[str, ...]


def judge_claim(trials: Sequence[TrialResult], uuts: Iterable[str]) -> Claims:
    """Hold the claim against the valid trials of these UUTs."""
    measured = [uut for uut in uuts if any(trial.spec.uut == uut for trial in trials)]
    guests = uuts_with_guest(trials)
    valid = [trial for trial in trials if trial.spec.uut in guests and trial.verdict is Verdict.VALID]
    return Claims(
        together=Claim(fate(valid, guest=True)),
        by_uut={
            uut: Claim(fate((trial for trial in valid if trial.spec.uut == uut), guest=True))
            for uut in measured
            if uut in guests
        },
        without_guest=tuple(uut for uut in measured if uut not in guests),
    )
