"""A diagnosis as text or JSON."""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from netbench.cli.output import UNLIMITED, wrapped
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


def doctor_text(checks: Iterable[HostCheck], columns: int = UNLIMITED) -> Text:
    """Return one line per check, its remedy below it (once), and a summary; print it with `soft_wrap=True`.

    The finding and its purpose wrap between words at this number of columns; the remedy is one line, to be copied.
    """
    checks = list(checks)
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
            text.append(f"{indent}do:  ")
            text.append(f"{check.remedy}\n", style="bold")
            printed.add(check.remedy)
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        text.append(f"\nMissing: {', '.join(missing)}.\n", style="red")
    else:
        text.append("\nNothing that is needed is missing.\n", style="green")
    return text


def _broken(text: str, indent: str, columns: int) -> str:
    """Return a text that starts after an indent, with the same indent on further lines."""
    return wrapped(indent, text, max(columns, len(indent) + _LEAST)).removeprefix(indent)


def doctor_json(checks: Iterable[HostCheck]) -> str:
    """`{"ok": …, "checks": [{name, status, found, remedy, needed_for}, …]}`."""
    checks = list(checks)
    ok = exit_code(checks) is ExitCode.DONE
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)


def run_doctor(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    elsewhere: Iterable[HostCheck] = (),
    as_json: bool = False,
    console: Console | None = None,
) -> ExitCode:
    """Check this host, print the result and the checks from `elsewhere` to `console` (stdout); return the exit code.

    A reader that closes the pipe causes no error. TestbedError when the output cannot be written.
    """
    checks = [*diagnose(needs, addresses=addresses), *elsewhere]
    console = console or Console(highlight=False)
    with console.capture() as capture:
        if as_json:
            console.print(doctor_json(checks), markup=False, highlight=False, soft_wrap=True)
        else:
            columns = console.width if console.is_terminal else UNLIMITED
            console.print(doctor_text(checks, columns), soft_wrap=True, end="")
    with suppress(BrokenPipeError):  # the reader has closed the pipe; rich itself would end the program
        console.file.write(capture.get())
        console.file.flush()
    return exit_code(checks)
