"""Visits of a campaign to its UUTs: each brought up, and measured until its trials are done or it is beyond help."""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from netbench.errors import UutError
from netbench.model.profile import Profile
from netbench.model.topology import UutSpec
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind, Verdict, Warning, WarningKind
from netbench.results.directory import ResultDirectory
from netbench.results.events import Announcer
from netbench.results.store import Store
from netbench.testbed import Testbed
from netbench.trial import run_trial
from netbench.uut.base import UnitUnderTest

# A UUT that failed in so many trials, one right after the other, is not brought up once more.
MOST_FAILURES = 3
# A UUT that was given up in so many visits is not visited again.
MOST_GIVEN_UP = 2


@dataclass(frozen=True, slots=True)
class Visits:
    """What trials are measured with, and where they are kept. `given_up` holds why UUTs were, by name."""

    testbed: Testbed
    profile: Profile
    directory: ResultDirectory
    store: Store
    announcer: Announcer
    given_up: dict[str, list[str]] = field(default_factory=dict)

    def measure(self, spec: UutSpec, trials: Iterable[TrialSpec]) -> None:
        """Measure and store the trials.

        A UUT that fails in a trial, or whose links were changed, is brought up anew. When it does not come up, or keeps
        failing, the trials that are left are stored as invalid for that reason, without counts. TestbedError when the
        testbed breaks.
        """
        waiting = deque(trials)
        reasons = self.given_up.setdefault(spec.name, [])
        if len(reasons) == MOST_GIVEN_UP:
            self._give_up(
                spec.name, f"not tried again after it was given up {MOST_GIVEN_UP} times: {reasons[-1]}", waiting
            )
            return
        attempt, failures = 1, 0
        while waiting:
            try:
                with self.testbed.uut(spec) as uut:
                    self._welcome(spec.name, self.testbed.facts(uut))
                    anew = False
                    while waiting and not anew:
                        result = self._try(uut, waiting[0], attempt)
                        failed = _has(result, ReasonKind.UUT_FAILED)
                        anew = failed or _has(result, ReasonKind.LINK_CHANGED)
                        failures = failures + 1 if failed else 0
                        if failed:
                            self.directory.keep_console(spec.name, uut.log())
                        again = attempt <= self.profile.retries and failures < MOST_FAILURES
                        if result.verdict is Verdict.INVALID and again:
                            attempt += 1
                        else:
                            self._keep(result)
                            waiting.popleft()
                            attempt = 1
                if waiting and failures == MOST_FAILURES:
                    raise UutError(f"it failed in {failures} trials one after the other: {_why(result)}")
            except UutError as error:
                reasons.append(str(error))
                self.directory.keep_console(spec.name, error.log)
                self._give_up(spec.name, str(error), waiting)
                return

    def _welcome(self, name: str, facts: dict[str, str]) -> None:
        self.store.keep_facts(name, facts)
        if "emulated" in facts:
            text = (
                f"The CPU of UUT {name} is emulated ({facts['emulated']}): its numbers describe the emulator, not the "
                "virtual machine monitor. Use a host where KVM works for numbers to be quoted."
            )
            self.store.keep_warnings([Warning(WarningKind.CPU_IS_EMULATED, text)])
        self.announcer.announce("uut-ready", uut=name)

    def _try(self, uut: UnitUnderTest, spec: TrialSpec, attempt: int) -> TrialResult:
        self.announcer.announce("trial-started", key=spec.key, index=spec.index, attempt=attempt)
        result = run_trial(self.testbed.bench(uut), spec, self.profile, attempt, self.directory.captures)
        self.announcer.announce(
            "trial-finished",
            key=spec.key,
            index=spec.index,
            attempt=attempt,
            verdict=result.verdict.value,
            reasons=[f"{reason.kind.value}: {reason.detail}" for reason in result.reasons],
        )
        self._keep_or_remove_captures(result)
        if _has(result, ReasonKind.GENERATOR_FAILED):
            self.testbed.renew_lanes()
        return result

    def _keep(self, result: TrialResult) -> None:
        self.store.add(result)
        spec = result.spec
        self.announcer.announce("trial-stored", key=spec.key, index=spec.index, verdict=result.verdict.value)

    def _give_up(self, name: str, why: str, trials: Iterable[TrialSpec]) -> None:
        self.announcer.announce("uut-failed", uut=name, why=why)
        reason = Reason(ReasonKind.UUT_FAILED, "", why)
        for spec in trials:
            self._keep(TrialResult(spec, 1, time.time_ns(), streams=(), reasons=(reason,), steps_s={}))

    def _keep_or_remove_captures(self, result: TrialResult) -> None:
        keep = self.profile.keep_captures
        if keep == "all" or (keep == "invalid" and result.verdict is Verdict.INVALID):
            return
        for capture in self.directory.captures.glob(f"trial-{result.spec.index:06d}-*.pcap"):
            capture.unlink(missing_ok=True)


def _has(result: TrialResult, kind: ReasonKind) -> bool:
    return any(reason.kind is kind for reason in result.reasons)


def _why(result: TrialResult) -> str:
    return next(reason.detail for reason in result.reasons if reason.kind is ReasonKind.UUT_FAILED)
