"""A diagnosis as text for people and JSON for programs."""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from netbench.cli.output import UNLIMITED, wrapped
from netbench.errors import ExitCode
from netbench.testbed.diagnosis import diagnose, exit_code
from netbench.testbed.host_checks import Check, Status

_LEAST = 20  # columns of text, however narrow the terminal
_STYLES = {
    Status.OK: "green",
    Status.MISSING: "bold red",
    Status.WARNING: "yellow",
    Status.ABSENT: "dim",
    Status.IN_USE: "dim",
}


def doctor_text(checks: Iterable[Check], columns: int = UNLIMITED) -> Text:
    """One line a check, what to do below it (once), and a summary; print it with `soft_wrap=True`.

    What was found, and what it is for, is broken between words at so many columns; what to do is in one piece, to be
    copied.
    """
    checks = list(checks)
    width = max((len(check.name) for check in checks), default=0)
    indent = " " * (8 + width + 2)
    text = Text()
    said: set[str] = set()
    for check in checks:
        text.append(f"{check.status:<8}", style=_STYLES[check.status])
        text.append(f"{check.name:<{width}}  {_broken(check.found, indent, columns)}\n")
        if check.status is not Status.OK:
            text.append(f"{indent}for: {_broken(check.needed_for, f'{indent}     ', columns)}\n", style="dim")
        if check.remedy and check.remedy not in said:
            text.append(f"{indent}do:  ")
            text.append(f"{check.remedy}\n", style="bold")
            said.add(check.remedy)
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        text.append(f"\nMissing: {', '.join(missing)}.\n", style="red")
    else:
        text.append("\nNothing that is needed is missing.\n", style="green")
    return text


def _broken(text: str, indent: str, columns: int) -> str:
    """A text that begins after an indent, its further lines likewise."""
    return wrapped(indent, text, max(columns, len(indent) + _LEAST)).removeprefix(indent)


def doctor_json(checks: Iterable[Check]) -> str:
    """`{"ok": …, "checks": [{name, status, found, remedy, needed_for}, …]}`."""
    checks = list(checks)
    ok = exit_code(checks) is ExitCode.DONE
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)


def run_doctor(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    elsewhere: Iterable[Check] = (),
    as_json: bool = False,
    console: Console | None = None,
) -> ExitCode:
    """Look at this host, print that and what was found `elsewhere` to `console` (stdout), and say how to exit.

    Whoever reads it may go. TestbedError when it cannot be written.
    """
    checks = [*diagnose(needs, addresses=addresses), *elsewhere]
    console = console or Console(highlight=False)
    with console.capture() as told:
        if as_json:
            console.print(doctor_json(checks), markup=False, highlight=False, soft_wrap=True)
        else:
            columns = console.width if console.is_terminal else UNLIMITED
            console.print(doctor_text(checks, columns), soft_wrap=True, end="")
    with suppress(BrokenPipeError):  # whoever read it has gone; rich itself would end the program
        console.file.write(told.get())
        console.file.flush()
    return exit_code(checks)
