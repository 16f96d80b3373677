"""How a self-test shows: one line a check on the console as it is made, and a record and a page in a directory."""

from pathlib import Path

from rich.console import Console

from netbench.errors import UsageError
from netbench.model.selftest import Check, SelftestRecord
from netbench.report.selftest_page import selftest_page
from netbench.results.atomic import write_atomically

_WORDS = {True: "pass", False: "FAIL", None: "----"}


class Present:
    """The console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def row(self, check: Check) -> None:
        """Show one check: its truth and measurement, and below what is wrong or missing."""
        parts = [part for part in (check.truth and f"truth: {check.truth}", check.measured) if part]
        self._say(f"{_WORDS[check.passed]}  {check.name}{': ' if parts else ''}{'; measured: '.join(parts)}")
        if check.detail:
            self._say(f"      {check.detail}")

    def end(self, record: SelftestRecord, kept: Path) -> None:
        """Say what follows from all of them."""
        failed = sum(check.passed is False for check in record.checks)
        skipped = sum(check.passed is None for check in record.checks)
        made = len(record.checks) - skipped
        more = f"; {skipped} could not be made here" if skipped else ""
        if record.passed:
            self._say(f"passed: {made} checks{more}; the tester can be trusted here")
        elif failed:
            self._say(f"FAILED: {failed} of {made} checks{more}; do not trust this tester here")
        else:
            self._say(f"FAILED: no check could be made here{more}")
        self._say(f"kept for later campaigns on this testbed: {kept}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def write_page(record: SelftestRecord, directory: Path) -> None:
    """selftest.json and selftest.html in a directory; UsageError or TestbedError when they cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made: {error.strerror}; name another with -o") from error
    write_atomically(directory / "selftest.json", (record.model_dump_json(indent=2) + "\n").encode())
    write_atomically(directory / "selftest.html", selftest_page(record.model_dump(mode="json")).encode())
