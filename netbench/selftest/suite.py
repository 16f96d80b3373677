"""The self-test of a whole testbed: references, loopback, machine; its record is printed, written and kept."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from netbench.errors import MissingError, TestbedError, UsageError, UutError
from netbench.model.documents import plain
from netbench.model.foreign_text import json_of
from netbench.model.profile import GeneratorSpec, SinkSpec
from netbench.model.selftest_record import Ceiling, SelftestCheck, SelftestRecord
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.report.selftest_page import selftest_page
from netbench.report.summary_json import write_selftest_summary
from netbench.results.atomic import write_atomically
from netbench.results.selftests import fingerprint, keep_record
from netbench.selftest.forwarders import DELAYING, check_forwarder, check_netem, forwarder_cases
from netbench.selftest.loopback import LOOPBACK, check_loopback, loopback
from netbench.selftest.loss_checks import ForeignFilter, check_drops, judge_attached, look, references
from netbench.selftest.time_checks import CpuTimes, check_pacing, judge_cpus
from netbench.selftest.trials import Tester, selftest_profile, with_uuts
from netbench.testbed.cpus import usable_cpus
from netbench.testbed.resolved import resolve
from netbench.testbed.testbed import open_testbed
from netbench.uut.base import ActiveGuest

# A rate that is easy for a source, frames/s: on this machine, and on the emulated CPU of a VM.
_FPS, _FPS_IN_VM = 40_000, 4_000

Checks = Callable[[Tester, ActiveGuest], Iterator[SelftestCheck]]


@dataclass(frozen=True, slots=True)
class SelftestPlan:
    """The parameters of a self-test: a testbed, a generator and a sink, and the approximate frames per trial.

    `cabled`: whether cables join source and sink ports directly.
    """

    topology: Topology
    generator: GeneratorSpec
    sink: SinkSpec
    frames: int
    cabled: bool


class Presenter(Protocol):
    """Shows the progress of a self-test."""

    def row(self, check: SelftestCheck) -> None:
        """Show one check: its truth and measurement, and what is wrong or missing."""

    def end(self, record: SelftestRecord, path: Path) -> None:
        """Show the conclusion, and where the record is kept for later campaigns."""


@dataclass(slots=True)
class _Found:
    """The results so far."""

    presenter: Presenter
    checks: list[SelftestCheck] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    in_the_way: list[ForeignFilter] = field(default_factory=list)
    sends: str = ""
    receives: str = ""

    def add(self, check: SelftestCheck) -> None:
        self.checks.append(check)
        self.presenter.row(check)


def run_selftest(presenter: Presenter, wanted: SelftestPlan, directory: Path | None) -> bool:
    """Make all checks, show them as they are made, and keep the record; return whether none failed and some passed.

    The record becomes the latest of this testbed. It is written to `directory`, if given, with a page about it.
    Raises the errors of opening the testbed; UsageError when the directory is not empty.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory}: is there already; name another with -o")
    found = _Found(presenter)
    before = CpuTimes.now()
    with tempfile.TemporaryDirectory(prefix="netbench-selftest-") as scratch:
        _references(wanted, found, Path(scratch))
        _loopback(wanted, found, Path(scratch))
    found.add(judge_attached(found.in_the_way, wanted.topology))
    found.add(judge_cpus(before, CpuTimes.now(), len(usable_cpus())))
    record = SelftestRecord(
        passed=_passed(found.checks),
        when_ns=time.time_ns(),
        topology=wanted.topology.name,
        generator=found.sends,
        fingerprint=fingerprint(wanted.topology, wanted.generator, found.sends, found.receives, wanted.sink),
        checks=tuple(found.checks),
        ceilings=tuple(found.ceilings),
    )
    if directory is not None:
        _write(record, directory)
    presenter.end(record, keep_record(record))
    return record.passed


def _write(record: SelftestRecord, directory: Path) -> None:
    """Write selftest.json, selftest.html and summary.json; UsageError or TestbedError when that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made: {error.strerror}; name another with -o") from error
    write_atomically(directory / "selftest.json", (json_of(plain(record), indent=2) + "\n").encode())
    write_atomically(directory / "selftest.html", selftest_page(record).encode())
    write_selftest_summary(record, directory / "summary.json")


def _passed(checks: list[SelftestCheck]) -> bool:
    """Return whether some checks passed and none failed; skipped checks do not count."""
    return any(check.passed for check in checks) and not any(check.passed is False for check in checks)


def _references(wanted: SelftestPlan, found: _Found, scratch: Path) -> None:
    """Make all checks on UUTs with known behaviour."""
    if not wanted.topology.uut_host:
        why = "skipped: the UUT of this testbed is not netbench's to configure"
        found.add(SelftestCheck(name="reference UUTs", passed=None, detail=why))
        return
    limit_fps = _fps(wanted.topology) // 2
    rounds: list[tuple[UutSpec, Checks]] = []
    both_ways = any(stream.reverse for stream in wanted.topology.streams)
    for reference in references(limit_fps, both_ways=both_ways):
        rounds.append((reference.spec, partial(check_drops, reference)))
    first = rounds[0][0]
    rounds.insert(0, (first, partial(check_pacing, first.name)))
    if wanted.topology.vms:
        rounds.append((DELAYING, check_netem))
    for case in forwarder_cases():
        rounds.append((case.spec, partial(check_forwarder, case)))
    topology = with_uuts(wanted.topology, list({spec.name: spec for spec, _ in rounds}.values()))
    _round(wanted, topology, rounds, found, scratch)


def _loopback(wanted: SelftestPlan, found: _Found, scratch: Path) -> None:
    """Make all checks without a UUT."""
    try:
        topology = loopback(wanted.topology, cabled=wanted.cabled)
    except MissingError as error:
        found.add(SelftestCheck(name="loopback without a UUT", passed=None, detail=f"skipped: {error}"))
        return
    _round(wanted, topology, [(LOOPBACK, partial(check_loopback, found.ceilings))], found, scratch)


def _round(
    wanted: SelftestPlan, topology: Topology, rounds: list[tuple[UutSpec, Checks]], found: _Found, scratch: Path
) -> None:
    """Bring a testbed up, and one UUT after the other on it; a UUT that does not come up becomes a check."""
    with ExitStack() as stack:
        testbed = stack.enter_context(open_testbed(resolve(topology, selftest_profile(wanted.generator, wanted.sink))))
        # As in a campaign: without a UUT, a stream and its reverse stream share one link.
        found.sends, found.receives = testbed.sends(), found.receives or testbed.receives()
        tester = Tester(testbed, topology, wanted.generator, wanted.sink, scratch, _fps(topology), wanted.frames)
        for spec, checks in rounds:
            with _explained(spec, found), testbed.uut(spec) as active:
                for check in checks(tester, active):
                    found.add(check)
                if spec is not DELAYING:  # its netem is netbench's own, but bears no mark
                    found.in_the_way += look(testbed, active)
        for other in testbed.others():
            who = f"netbench with process id {other.pid} (topology {other.topology})"
            detail = f"{who} measured on this machine too: the tester is better than it shows; test it again alone"
            found.add(SelftestCheck(name="alone on this machine", passed=None, detail=detail))


@contextmanager
def _explained(spec: UutSpec, found: _Found) -> Iterator[None]:
    """Convert the error of a UUT that does not come up to a check: skipped if this host lacks something, or failed."""
    try:
        yield
    except UutError as error:
        lacking = isinstance(error.__cause__, MissingError)
        detail = f"skipped: {error}" if lacking else f"it did not come up: {error}"
        found.add(
            SelftestCheck(name=f"UUT {spec.name}", uut=spec.name, passed=None if lacking else False, detail=detail)
        )
    except TestbedError as error:
        found.add(SelftestCheck(name=f"UUT {spec.name}", uut=spec.name, passed=False, detail=str(error)))


def _fps(topology: Topology) -> int:
    return _FPS_IN_VM if topology.vms else _FPS
