"""How a self-test shows: one line a check on the console as it is made, and a record and a page in a directory."""

from pathlib import Path

from rich.console import Console

from netbench.errors import UsageError
from netbench.model.selftest import Check, SelftestRecord
from netbench.report.selftest_page import selftest_page
from netbench.report.tester import selftest_sentence
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

    def end(self, record: SelftestRecord) -> None:
        """Say what follows from all of them."""
        self._say(selftest_sentence(record))

    def kept(self, path: Path) -> None:
        """Say where the record is."""
        self._say(f"kept for later campaigns on this testbed: {path}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def write_page(record: SelftestRecord, directory: Path) -> None:
    """selftest.json and selftest.html in a directory; UsageError or TestbedError when they cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made: {error.strerror}; name another with -o") from error
    write_atomically(directory / "selftest.json", (record.model_dump_json(indent=2) + "\n").encode())
    write_atomically(directory / "selftest.html", selftest_page(record).encode())
