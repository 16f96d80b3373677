"""The self-test of a whole testbed: references, loopback, machine; its record is printed, written and kept."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from netbench.selftest.loss_checks import ForeignFilter, check_drops, foreign_filters, judge_attached, references
from netbench.selftest.packet_trials import check_packets
from netbench.selftest.time_checks import CpuTimes, check_pacing, judge_cpus
from netbench.selftest.tool_checks import SERVING, check_tools, tool_profile
from netbench.selftest.trials import Tester, selftest_profile, with_uuts
from netbench.testbed.cpus import usable_cpus
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.uut.base import ActiveGuest

_RECOUNTED = 1  # the index of the reference whose captures are counted twice: the first that drops frames
# A rate that is easy for a source, frames/s: on this machine, and on the emulated CPU of a VM.
_FPS, _FPS_IN_VM = 40_000, 4_000

Checks = Callable[[Tester, ActiveGuest], Iterator[SelftestCheck]]


@dataclass(frozen=True, slots=True)
class SelftestPlan:
    """The parameters of a self-test: a testbed, a generator and a sink, and the approximate frames per trial.

    `cabled`: whether cables join source and sink ports directly. `tools`: whether the tools of flows are checked too.
    """

    topology: Topology
    generator: GeneratorSpec
    sink: SinkSpec
    frames: int
    cabled: bool
    tools: bool = False


class Presenter(Protocol):
    """Shows the progress of a self-test."""

    def row(self, check: SelftestCheck) -> None:
        """Show one check: its truth and measurement, and what is wrong or missing."""

    def end(self, record: SelftestRecord, path: Path) -> None:
        """Show the conclusion, and where the record is kept for later campaigns."""


def run_selftest(presenter: Presenter, plan: SelftestPlan, directory: Path | None) -> bool:
    """Make all checks, show them as they are made, and keep the record; return whether none failed and some passed.

    The record becomes the latest of this testbed. It is written to `directory`, if given, with a page about it.
    Raises the errors of opening the testbed; UsageError when the directory is not empty.
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} already exists; name another with -o")
    before = CpuTimes.now()
    with tempfile.TemporaryDirectory(prefix="netbench-selftest-") as scratch:
        selftest = _Selftest(presenter, plan, Path(scratch))
        selftest.check_references()
        selftest.check_loopback()
        if plan.tools:
            selftest.check_tools()
    selftest.add(judge_attached(selftest.foreign, plan.topology))
    selftest.add(judge_cpus(before, CpuTimes.now(), len(usable_cpus())))
    record = selftest.record()
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


@dataclass(slots=True)
class _Selftest:
    """A self-test and its results so far."""

    presenter: Presenter
    plan: SelftestPlan
    scratch: Path
    checks: list[SelftestCheck] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    foreign: list[ForeignFilter] = field(default_factory=list)
    sends: str = ""
    receives: str = ""

    def add(self, check: SelftestCheck) -> None:
        """Keep a check and show it."""
        self.checks.append(check)
        self.presenter.row(check)

    def record(self) -> SelftestRecord:
        """Return the record; it has passed if some checks passed and none failed. Skipped checks do not count."""
        plan, results = self.plan, {check.passed for check in self.checks}
        return SelftestRecord(
            passed=True in results and False not in results,
            when_ns=time.time_ns(),
            topology=plan.topology.name,
            generator=self.sends,
            fingerprint=fingerprint(plan.topology, plan.generator, self.sends, self.receives, plan.sink),
            checks=tuple(self.checks),
            ceilings=tuple(self.ceilings),
        )

    def check_references(self) -> None:
        """Make all checks on UUTs with known behaviour."""
        topology = self.plan.topology
        if not topology.uut_host:
            why = "skipped: the UUT of this testbed is not netbench's to configure"
            self.add(SelftestCheck(name="reference UUTs", passed=None, detail=why))
            return
        both_ways = any(stream.reverse for stream in topology.streams)
        known = references(_fps(topology) // 2, both_ways=both_ways)
        rounds: list[tuple[UutSpec, Checks]] = [
            (reference.spec, partial(check_drops, reference, recounts=number == _RECOUNTED))
            for number, reference in enumerate(known)
        ]
        first = rounds[0][0]
        rounds[:0] = [(first, partial(check_pacing, first.name)), (first, partial(check_packets, first.name))]
        rounds += [(DELAYING, check_netem)] if topology.vms else []
        rounds += [(case.spec, partial(check_forwarder, case)) for case in forwarder_cases()]
        self._measure(with_uuts(topology, list({spec.name: spec for spec, _ in rounds}.values())), rounds)

    def check_loopback(self) -> None:
        """Make all checks without a UUT."""
        try:
            topology = loopback(self.plan.topology, cabled=self.plan.cabled)
        except MissingError as error:
            self.add(SelftestCheck(name="loopback without a UUT", passed=None, detail=f"skipped: {error}"))
            return
        self._measure(topology, [(LOOPBACK, partial(check_loopback, self.ceilings))])

    def check_tools(self) -> None:
        """Make all checks of the tools of flows, with a server on bare Linux."""
        if not self.plan.topology.uut_host:
            self.add(SelftestCheck(name="tools", passed=None, detail="skipped: this testbed has no host for a server"))
            return
        topology = with_uuts(self.plan.topology, [SERVING])
        try:
            with (
                open_testbed(resolve(topology, tool_profile())) as testbed,
                self._failures_of(SERVING),
                testbed.uut(SERVING) as active,
            ):
                for check in check_tools(testbed, topology, self.scratch, active):
                    self.add(check)
        except MissingError as error:
            self.add(SelftestCheck(name="tools", passed=None, detail=f"skipped: {error}"))

    def _measure(self, topology: Topology, rounds: list[tuple[UutSpec, Checks]]) -> None:
        """Bring a testbed up, and one UUT after the other on it; a UUT that does not come up becomes a check."""
        plan = self.plan
        with open_testbed(resolve(topology, selftest_profile(plan.generator, plan.sink))) as testbed:
            # As in a campaign: without a UUT, a stream and its reverse stream share one link.
            self.sends, self.receives = testbed.sends(), self.receives or testbed.receives()
            tester = Tester(testbed, topology, plan.generator, plan.sink, self.scratch, _fps(topology), plan.frames)
            for spec, checks in rounds:
                with self._failures_of(spec), testbed.uut(spec) as active:
                    for check in checks(tester, active):
                        self.add(check)
                    if spec is not DELAYING:  # its netem is netbench's own, but bears no mark
                        self.foreign += foreign_filters(testbed, active)
            for other in testbed.others():
                who = f"netbench with process id {other.pid} (topology {other.topology})"
                detail = f"{who} measured on this machine too: the tester is better than it shows; test it again alone"
                self.add(SelftestCheck(name="alone on this machine", passed=None, detail=detail))

    @contextmanager
    def _failures_of(self, spec: UutSpec) -> Iterator[None]:
        """Turn the error of a UUT into a check: skipped if this host lacks something, else failed."""
        passed: bool | None = False
        try:
            yield
            return
        except UutError as error:
            lacking = isinstance(error.__cause__, MissingError)
            passed = None if lacking else False
            detail = f"skipped: {error}" if lacking else f"it did not come up: {error}"
        except TestbedError as error:
            detail = str(error)
        self.add(SelftestCheck(name=f"UUT {spec.name}", uut=spec.name, passed=passed, detail=detail))


def _fps(topology: Topology) -> int:
    return _FPS_IN_VM if topology.vms else _FPS
