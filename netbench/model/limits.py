"""The limit of a maximum: the UUT, the source, the highest load that was requested, or the tester."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

# A load with more loss than this exceeds what the UUT can forward.
OVERLOAD_LOSS_RATIO = 0.005


class LimitKind(Enum):
    """The kinds of limits of a maximum; results and reports show the value."""

    UUT = "the UUT"
    SOURCE = "the source"
    REQUESTED_LOAD = "the highest load requested"
    CLOSED_LOOP = "the rate of the closed loop"
    TESTER = "the tester"
    TRIAL_REASON = "a reason against a trial"


@dataclass(frozen=True, slots=True)
class LimitCause:
    """The cause that limited a maximum. Only a maximum that the UUT limited is more than a lower bound.

    `paced_fps` is the calibrated rate of a SOURCE in frames/s, and `doubt` is why it is not reliable. `detail` explains
    TESTER, and is the whole text of a TRIAL_REASON. `still_rises`: throughput still rises at the highest load.
    """

    kind: LimitKind = LimitKind.UUT
    paced_fps: float | None = None
    doubt: str = ""
    detail: str = ""
    still_rises: bool = False

    @classmethod
    def parse(cls, stored: str) -> "LimitCause":
        """Return a stored limit."""
        if not stored:
            return LIMITED_BY_UUT
        if match := _PACED_SOURCE.fullmatch(stored):
            return cls(LimitKind.SOURCE, paced_fps=float(match[1].replace(",", "")), doubt=match[2] or "")
        kind = _STORED.get(stored)
        return cls(kind) if kind else cls(LimitKind.TRIAL_REASON, detail=stored)

    @property
    def is_uut(self) -> bool:
        """Whether the UUT or its links were the limit."""
        return self.kind is LimitKind.UUT

    @property
    def stored(self) -> str:
        """The form in results: the text, empty for the UUT."""
        return "" if self.is_uut else str(self)

    def __str__(self) -> str:
        if self.kind is LimitKind.TRIAL_REASON:
            return self.detail
        text = self.kind.value
        if self.paced_fps is not None:
            text += f", which can be paced at {self.paced_fps:,.0f} frames/s"
        if self.doubt:
            text += f" (not reliable: {self.doubt})"
        detail = "throughput still rises there" if self.still_rises else self.detail
        return f"{text}: {detail}" if detail else text


LIMITED_BY_UUT = LimitCause()
_STORED = {kind.value: kind for kind in (LimitKind.SOURCE, LimitKind.REQUESTED_LOAD, LimitKind.CLOSED_LOOP)}
_STORED["the highest load asked for"] = LimitKind.REQUESTED_LOAD  # in results of earlier versions
_PACED_SOURCE = re.compile(
    r"the source, which can be paced at ([\d,]+) frames/s(?: \(not reliable: (.*)\))?", re.DOTALL
)


def _read(stored: object) -> object:
    return LimitCause.parse(stored) if isinstance(stored, str) else stored


LimitCauseField = Annotated[
    LimitCause, BeforeValidator(_read), PlainSerializer(lambda limit: limit.stored, return_type=str)
]
