"""What was looked at, and what it came to: data without I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from netbench.errors import ExitCode


class Status(StrEnum):
    """What a check came to. Only `missing` keeps netbench from doing what was asked for."""

    OK = "ok"
    MISSING = "missing"
    WARNING = "warning"  # it works, with numbers to be read with care; or it could not be checked
    ABSENT = "absent"  # nothing that was asked for needs it
    IN_USE = "in use"  # a port that carries something else


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `remedy` is the command or change that adds it; empty: nothing to be done."""

    name: str
    status: Status
    found: str
    remedy: str
    needed_for: str


def exit_code(checks: Iterable[Check]) -> ExitCode:
    """3 when something needed is missing, 0 otherwise."""
    missing = any(check.status is Status.MISSING for check in checks)
    return ExitCode.MISSING if missing else ExitCode.DONE
