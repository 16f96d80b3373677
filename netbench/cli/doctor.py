"""A diagnosis as text or JSON."""

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

from rich.text import Text

from netbench.cli.console import PrintingConsole
from netbench.cli.output import UNLIMITED, say, wrapped
from netbench.errors import ExitCode
from netbench.testbed.doctor.diagnosis import diagnose, exit_code
from netbench.testbed.doctor.host_checks import HostCheck, Status

_LEAST = 20  # minimum columns of text, even in a narrow terminal
_STYLES = {
    Status.OK: "green",
    Status.MISSING: "bold red",
    Status.WARNING: "yellow",
    Status.ABSENT: "dim",
    Status.IN_USE: "dim",
}


def run_doctor(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    elsewhere: Iterable[HostCheck] = (),
    as_json: bool = False,
) -> ExitCode:
    """Check this host, print the result and the checks from `elsewhere`, and return the exit code.

    A reader that closes the pipe causes no error. TestbedError when the output cannot be written.
    """
    checks = [*diagnose(needs, addresses=addresses), *elsewhere]
    with suppress(BrokenPipeError):
        if as_json:
            say(doctor_json(checks))
        else:
            console = PrintingConsole(sys.stdout)
            columns = console.width if console.is_terminal else UNLIMITED
            console.print(doctor_text(checks, columns), soft_wrap=True, end="")
    return exit_code(checks)


def doctor_text(checks: Collection[HostCheck], columns: int = UNLIMITED) -> Text:
    """Return one line per check, its remedy below it (once), and a summary; print it with `soft_wrap=True`.

    The finding and its purpose wrap between words at this number of columns; the remedy is one line, to be copied.
    """
    width = max((len(check.name) for check in checks), default=0)
    indent = " " * (8 + width + 2)
    text = Text()
    printed: set[str] = set()
    for check in checks:
        text.append(f"{check.status:<8}", style=_STYLES[check.status])
        text.append(f"{check.name:<{width}}  {_broken(check.found, indent, columns)}\n")
        if check.status is not Status.OK:
            text.append(f"{indent}for: {_broken(check.needed_for, f'{indent}     ', columns)}\n", style="dim")
        if check.remedy and check.remedy not in printed:
            text.append(f"{indent}do:  ").append(f"{check.remedy}\n", style="bold")
            printed.add(check.remedy)
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        return text.append(f"\nMissing: {', '.join(missing)}.\n", style="red")
    return text.append("\nNothing that is needed is missing.\n", style="green")


def _broken(text: str, indent: str, columns: int) -> str:
    """Return a text that starts after an indent, with the same indent on further lines."""
    return wrapped(indent, text, max(columns, len(indent) + _LEAST)).removeprefix(indent)


def doctor_json(checks: Collection[HostCheck]) -> str:
    """`{"ok": …, "checks": [{name, status, found, remedy, needed_for}, …]}`."""
    ok = exit_code(checks) is ExitCode.DONE
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)
