"""Skips: with CI=true, a run fails on every skip except those for a missing platform feature that no package adds.

`make test` installs all tools that tests need. A test skipped because of a missing tool would go unnoticed; each reason
below explains why it is a different case.
"""

import os
import re

import pytest

# Why the platform, and not its setup, causes a skip, by the start of the skip's reason.
LACKS_OF_PLATFORMS = {
    r"needs tcx: ": "Linux is older than 6.6, as Debian 12's is",
    r"needs control groups with the memory controller": "the administrator of this machine has not delegated it",
    r"needs clang 14, whose objects are in the package": "another release of Debian has another clang",
    r"needs atheris, which has no wheel for here": "it is built for x86_64 and some Pythons only",
    r"the client of TRex \(\S+\) needs a Python older than 3\.12": "its modules are not for newer Pythons",
    r"NETBENCH_TREX is to be the ": "TRex is in no package registry, and hundreds of MB in size",
    r"needs vcsim, the simulator of the vSphere API": "no Go here, and Debian has no vcsim",
    r"needs vcsim, and go\S+ is too old to build it": "Debian 12's Go is",
    r"not checked: .*; vcsim has no guests that run": "a simulator has none",
    r"the image \S+ cannot be had: the image \S+ is built on \S+, this machine is ": "it is of one architecture",
    r"this machine has (?!no )": "what the test is about happens only where it is missing",
    r"this machine's own kernel has pktgen": "likewise",
}
_REASON = re.compile("|".join(LACKS_OF_PLATFORMS), re.S)


def is_excused(reason: str) -> bool:
    """Whether a test is skipped for a feature that this platform cannot have."""
    return _REASON.match(reason) is not None


class Skips:
    """Fails a run in which tests were skipped for other reasons."""

    def __init__(self) -> None:
        self.unexcused: dict[str, str] = {}

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report):
        if report.skipped:
            self._note(report)

    def _note(self, report):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not is_excused(reason):
            self.unexcused[report.nodeid] = reason

    def pytest_sessionfinish(self, session):
        if self.unexcused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.unexcused:
            terminalreporter.section("skipped, and not for a lack of the platform (tests/skips.py)", red=True)
            for test, reason in self.unexcused.items():
                terminalreporter.line(f"{test}: {reason}")


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")  # its reports go to the process that started it
    if os.environ.get("CI", "").lower() in ("true", "1") and not is_worker:
        config.pluginmanager.register(Skips(), "skips")
