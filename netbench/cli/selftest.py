"""A self-test on the console: one line per finished check, and the conclusion."""

import sys
from pathlib import Path

from netbench.cli.console import PrintingConsole
from netbench.cli.output import LastingOutput
from netbench.model.selftest_record import SelftestCheck, SelftestRecord
from netbench.report.selftest_page import selftest_sentence
from netbench.testbed.cpus import receiving_cpus, usable_cpus

_RESULTS = {True: "pass", False: "FAIL", None: "----"}


def usual_topology() -> str:
    """Return the default topology: three streams, if links can receive by NAPI with so many."""
    return "netns-3" if all(receiving_cpus(3, usable_cpus())) else "netns"


class ConsolePresenter:
    """A presenter that prints to standard output."""

    def __init__(self) -> None:
        self._console = PrintingConsole(LastingOutput(sys.stdout))

    def row(self, check: SelftestCheck) -> None:
        """Print truth and measurement in one line, and below it the fault or the missing part."""
        parts = [part for part in (check.truth and f"truth: {check.truth}", check.measured) if part]
        self._print(f"{_RESULTS[check.passed]}  {check.name}{': ' if parts else ''}{'; measured: '.join(parts)}")
        if check.detail:
            self._print(f"      {check.detail}")

    def end(self, record: SelftestRecord, path: Path) -> None:
        """Print the verdict, and the path of the record."""
        self._print(selftest_sentence(record))
        self._print(f"kept for later campaigns on this testbed: {path}")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=not self._console.is_terminal)
