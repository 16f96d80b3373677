"""Visits of a campaign to its UUTs: each brought up, and measured until its trials are done or it is beyond help."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from netbench.campaign.reference_throughput import Maxima
from netbench.errors import NeighbourError, UutError
from netbench.model.ceiling import Ceilings
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind, Verdict, Warning, WarningKind
from netbench.plan.order import company_of
from netbench.results.directory import ResultDirectory
from netbench.results.events import Announcer
from netbench.results.store import Store
from netbench.testbed.active_guests import ActiveGuests
from netbench.testbed.testbed import Testbed
from netbench.trial.judging import beyond_ceiling
from netbench.trial.run import run_trial

# A UUT, or a set of neighbours, that failed in so many trials one right after the other is not brought up once more.
MOST_FAILURES = 3
# One that was given up in so many visits is not tried again.
MOST_GIVEN_UP = 2
# After these a UUT is brought up anew: it may take the kernel a second to see that a bridge's port is up (linkwatch).
_LINKS_DISTURBED = (ReasonKind.LINK_CHANGED, ReasonKind.LINK_DOWN)


@dataclass(slots=True)
class _Progress:
    """How far a visit has come: what is left, the attempt at its first trial, and failures one after the other."""

    waiting: deque[TrialSpec]
    attempt: int = 1
    failures: int = 0
    neighbours_failures: int = 0

    def next_trial(self) -> None:
        """Go on to the next one."""
        self.waiting.popleft()
        self.attempt = 1


@dataclass(frozen=True, slots=True)
class Visits:
    """What trials are measured with, and where they are kept.

    `lifetimes` numbers those of guests; `ceilings` are the tester's own; `given_up` holds why UUTs, and neighbours of
    theirs, were.
    """

    testbed: Testbed
    topology: Topology
    profile: Profile
    directory: ResultDirectory
    store: Store
    announcer: Announcer
    maxima: Maxima
    lifetimes: Iterator[int]
    ceilings: Ceilings = field(default_factory=Ceilings)
    given_up: dict[str, list[str]] = field(default_factory=dict)

    def measure(self, spec: UutSpec, trials: Iterable[TrialSpec]) -> None:
        """Measure and store the trials.

        A UUT that fails in a trial, or whose links went down or were changed, is brought up anew; likewise its
        neighbours. When it does not come up, or keeps failing, the trials that are left are stored as invalid for that
        reason, without counts; those of neighbours cost only the trials that need them. TestbedError when the testbed
        breaks.
        """
        progress = _Progress(deque(trials))
        hopeless = self._hopeless(spec.name)
        if hopeless:
            self._give_up(progress, spec.name, ReasonKind.UUT_FAILED, hopeless)
        while progress.waiting:
            try:
                with self.testbed.uut(spec) as up, ActiveGuests(self.testbed, spec, up) as household:
                    lifetime = next(self.lifetimes)
                    self._welcome(spec.name, household)
                    why = self._measure_household(spec, household, lifetime, progress)
                if progress.waiting and progress.failures == MOST_FAILURES:
                    raise UutError(f"it failed in {progress.failures} trials one after the other: {why}")
            except UutError as error:
                self.given_up.setdefault(spec.name, []).append(str(error))
                self.directory.keep_console(spec.name, error.log)
                self._give_up(progress, spec.name, ReasonKind.UUT_FAILED, str(error))

    def _measure_household(self, spec: UutSpec, household: ActiveGuests, lifetime: int, progress: _Progress) -> str:
        """Measure until nothing is left, or the UUT has to be brought up anew; why, then."""
        while progress.waiting:
            trial = progress.waiting[0]
            if not self._gathered(spec, household, progress):
                continue
            resolved = self._resolved(trial)
            if resolved is None:
                self._keep(_unmeasured(trial, ReasonKind.MAXIMUM_UNKNOWN, _NO_MAXIMUM))
                progress.next_trial()
                continue
            result = replace(self._try(household, resolved, progress.attempt), boot=lifetime)
            failed, neighbours_failed = _why(result, ReasonKind.UUT_FAILED), _why(result, ReasonKind.NEIGHBOUR_FAILED)
            progress.failures = progress.failures + 1 if failed else 0
            progress.neighbours_failures = progress.neighbours_failures + 1 if neighbours_failed else 0
            if failed:
                self.directory.keep_console(spec.name, household.active.uut.console())
            elif neighbours_failed:
                for name, log in household.consoles().items():
                    self.directory.keep_console(f"{spec.name}.{name}", log)
                household.end_neighbours()
            hopeless = MOST_FAILURES in (progress.failures, progress.neighbours_failures)
            if result.verdict is Verdict.INVALID and progress.attempt <= self.profile.retries and not hopeless:
                progress.attempt += 1
            else:
                self._keep(result)
                progress.next_trial()
            if progress.neighbours_failures == MOST_FAILURES:
                why = f"they failed in {MOST_FAILURES} trials one after the other: {neighbours_failed}"
                self._do_without(spec.name, trial.scenario, why, progress)
            if failed or any(_why(result, kind) for kind in _LINKS_DISTURBED):
                return failed
        return ""

    def _gathered(self, spec: UutSpec, household: ActiveGuests, progress: _Progress) -> bool:
        """Have the neighbours of the next trial there; False when they cannot be, and what needs them is given up."""
        scenario = progress.waiting[0].scenario
        wanted = company_of(self.topology, self.profile, scenario)
        if wanted == household.neighbours:
            return True
        hopeless = self._hopeless(_together(spec.name, wanted))
        if hopeless:
            self._do_without(spec.name, scenario, hopeless, progress, final=True)
            return False
        try:
            household.have(wanted)
        except NeighbourError as error:
            household.end_neighbours()
            self.directory.keep_console(f"{spec.name}.neighbours", error.log)
            self._do_without(spec.name, scenario, str(error), progress)
            return False
        if wanted:
            self.store.keep_facts(spec.name, household.facts())
            self.announcer.announce("neighbours-ready", uut=spec.name, neighbours=list(wanted))
        return True

    def _resolved(self, trial: TrialSpec) -> TrialSpec | None:
        """The trial with loads instead of shares of a maximum; None when that is one that nobody knows."""
        known = {}
        for size in {one.frame_size for guest in trial.guests if (one := guest.unknown_share)}:
            maximum = self.maxima.of(trial.uut, size)
            if maximum is None:
                return None
            known[size] = maximum.fps
        return trial.with_maxima(known)

    def _welcome(self, name: str, household: ActiveGuests) -> None:
        facts = household.facts()
        self.store.keep_facts(name, facts)
        if "emulated" in facts:
            text = (
                f"The CPU of UUT {name} is emulated ({facts['emulated']}): its numbers describe the emulator, not the "
                "virtual machine monitor. Use a host where KVM works for numbers to be quoted."
            )
            self.store.keep_warnings([Warning(WarningKind.CPU_IS_EMULATED, text)])
        self.announcer.announce("uut-ready", uut=name)

    def _try(self, household: ActiveGuests, spec: TrialSpec, attempt: int) -> TrialResult:
        self.announcer.announce("trial-started", key=spec.key, index=spec.index, attempt=attempt)
        bench = household.bench(spec)
        result = _with_ceilings(run_trial(bench, spec, self.profile, attempt, self.directory.captures), self.ceilings)
        self.announcer.announce(
            "trial-finished",
            key=spec.key,
            index=spec.index,
            attempt=attempt,
            verdict=result.verdict.value,
            reasons=[f"{reason.kind.value}: {reason.detail}" for reason in result.reasons],
        )
        self._keep_or_remove_captures(result)
        if _why(result, ReasonKind.GENERATOR_FAILED):
            self.testbed.renew_lanes()
        return result

    def _keep(self, result: TrialResult) -> None:
        self.store.add(result)
        spec = result.spec
        if _short_of_load(result, self.profile.tolerance):
            text = (
                f"UUT {spec.uut}, scenario {spec.scenario}: in some trials the sources of a neighbour sent less than "
                "was intended. What is said of the neighbour's load refers to what they did send."
            )
            self.store.keep_warnings([Warning(WarningKind.NEIGHBOUR_BELOW_ITS_LOAD, text)])
        self.announcer.announce("trial-stored", key=spec.key, index=spec.index, verdict=result.verdict.value)

    def _hopeless(self, who: str) -> str:
        """Why somebody is not tried once more; empty when there is hope."""
        reasons = self.given_up.get(who, [])
        if len(reasons) < MOST_GIVEN_UP:
            return ""
        return f"not tried again after it was given up {MOST_GIVEN_UP} times: {reasons[-1]}"

    def _do_without(self, uut: str, scenario: str, why: str, progress: _Progress, *, final: bool = False) -> None:
        """Give up what is left of all trials with the same neighbours as those of this scenario."""
        company = company_of(self.topology, self.profile, scenario)
        if not final:
            self.given_up.setdefault(_together(uut, company), []).append(why)
        progress.neighbours_failures = 0
        lost = [one for one in progress.waiting if company_of(self.topology, self.profile, one.scenario) == company]
        self.announcer.announce("neighbours-failed", uut=uut, neighbours=list(company), why=why)
        for trial in lost:
            self._keep(_unmeasured(trial, ReasonKind.NEIGHBOUR_FAILED, why))
            progress.waiting.remove(trial)
        progress.attempt = 1

    def _give_up(self, progress: _Progress, uut: str, kind: ReasonKind, why: str) -> None:
        self.announcer.announce("uut-failed", uut=uut, why=why)
        for trial in progress.waiting:
            self._keep(_unmeasured(trial, kind, why))
        progress.waiting.clear()

    def _keep_or_remove_captures(self, result: TrialResult) -> None:
        keep = self.profile.keep_captures
        wanted = keep == "all" or (keep == "invalid" and result.verdict is Verdict.INVALID)
        # What filled the disk is incomplete, and in the way of the results.
        if wanted and not _why(result, ReasonKind.CAPTURE_DISK_FULL):
            return
        for capture in self.directory.captures.glob(f"trial-{result.spec.index:06d}-*"):
            capture.unlink(missing_ok=True)


_NO_MAXIMUM = (
    "the neighbours' load is a share of the maximum in shared-idle, and no trial that counts has found that maximum"
)


def _unmeasured(spec: TrialSpec, kind: ReasonKind, why: str) -> TrialResult:
    return TrialResult(spec, 1, time.time_ns(), guests=(), reasons=(Reason(kind, "", why),), steps_s={})


def _with_ceilings(result: TrialResult, ceilings: Ceilings) -> TrialResult:
    """The result with what is to be said of loads above the tester's own ceiling."""
    sources = sum(len(guest.streams) for guest in result.guests)
    size = result.spec.frame_size
    limits = [reason for counts in result.streams for reason in beyond_ceiling(counts, sources, size, ceilings)]
    return replace(result, reasons=(*result.reasons, *limits))


def _together(uut: str, company: Iterable[str]) -> str:
    return "+".join((uut, *company))


def _short_of_load(result: TrialResult, tolerance: float) -> bool:
    """Whether a neighbour's sources sent less than they were asked to."""
    return any(
        counts.intended_frames is not None and counts.sent_frames < counts.intended_frames * (1 - tolerance)
        for guest in result.guests[1:]
        for counts in guest.streams
    )


def _why(result: TrialResult, kind: ReasonKind) -> str:
    """The detail of the first reason of a kind; empty when there is none."""
    return next((reason.detail for reason in result.reasons if reason.kind is kind), "")
