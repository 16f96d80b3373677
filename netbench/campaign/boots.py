"""Measures the trials of a planned boot of a UUT: brings it up, and restarts it until it has failed too often."""

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from netbench.campaign.record import CampaignRecord
from netbench.campaign.testbeds import ActiveGuests, Testbeds
from netbench.errors import MachineGoneError, NeighbourError, UutError
from netbench.model.campaign import Boot
from netbench.model.events import (
    CapturesFull,
    MachineGone,
    NeighboursFailed,
    NeighboursReady,
    TrialFinished,
    TrialStarted,
    UutFailed,
    UutReady,
)
from netbench.model.profile import Profile
from netbench.model.selftest_record import Ceilings
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Reason, ReasonKind, Verdict
from netbench.plan import noise_trial as noise
from netbench.plan.warm_up import is_enough, warm_up_trial
from netbench.plan.warnings import too_short_for
from netbench.statistics.intervals import RUN_TO_RUN_IN_VM, noise_floor
from netbench.statistics.totals import TrialTotals
from netbench.testbed.environment import is_virtual
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.trial.verdict_rules import beyond_ceiling

# A UUT, or a set of neighbours, that failed in so many successive trials is not brought up again.
MOST_FAILURES = 3
# A UUT or a set of neighbours that was given up on so many planned boots is not tried again.
MOST_GIVEN_UP = 2
# After these a UUT is restarted: the kernel may take a second to detect that a bridge's port is up (linkwatch).
_LINKS_DISTURBED = (ReasonKind.LINK_CHANGED, ReasonKind.LINK_DOWN)

# Returns the next trial of the planned boot; None after the last. All results yielded so far must be stored before.
NextTrial = Callable[[], TrialSpec | None]


@dataclass(slots=True)
class _Progress:
    """The progress of a planned boot: attempts at its next trial, successive failures, also of tools, lost neighbours.

    `measuring` is the trial that is being measured, with the number of the attempt and of the boot.
    """

    next_trial: NextTrial
    discarded: list[tuple[Reason, ...]] = field(default_factory=list)
    failures: int = 0
    neighbours_failures: int = 0
    tool_failures: int = 0
    lost: dict[tuple[str, ...], str] = field(default_factory=dict)  # why these neighbours are left out
    measuring: tuple[TrialSpec, int, int] | None = None

    def final(self, result: TrialResult) -> TrialResult:
        """Return the final result of a trial, with its discarded attempts, and reset them for the next trial."""
        earlier, self.discarded = tuple(self.discarded), []
        return replace(result, attempt=len(earlier) + 1, thrown_away=earlier)


@dataclass(frozen=True, slots=True)
class Boots:
    """Measures the trials of planned boots.

    `numbers` are the numbers of boots. `ceilings` are the tester's own, by the VM that UUTs are on (None: none).
    `reference_holds` are the same with the default sink. Missing ceilings are unknown. `lacking` are missing
    requirements on this host, by UUT. `given_up` are the reasons why UUTs, and sets of neighbours, were given up.
    `earlier` are the reasons against attempts of a run that was stopped, by key of the trial. `captures_full` are the
    trials whose captures exceeded the limit.
    """

    testbeds: Testbeds
    profile: Profile
    captures: Path
    record: CampaignRecord
    numbers: Iterator[int]
    ceilings: dict[str | None, Ceilings] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    given_up: dict[str, list[str]] = field(default_factory=dict)
    earlier: dict[str, list[tuple[Reason, ...]]] = field(default_factory=dict)
    captures_full: list[str] = field(default_factory=list)
    reference_holds: dict[str | None, Ceilings] = field(default_factory=dict)

    def measure(self, uut: UutSpec, next_trial: NextTrial) -> Generator[TrialResult, None, None]:
        """Measure the trials of a planned boot; each result must be stored before the next one is requested.

        A UUT that fails in a trial, or whose links went down or were changed, is restarted; likewise its neighbours.
        If it does not come up, or keeps failing, the remaining trials are invalid for that reason, without counts. If
        neighbours fail, only the trials that need them are invalid. TestbedError if the testbed breaks. If a VM breaks,
        it is a failure of the UUTs on it, and another VM is started. If a host is lost over SSH, the attempt at the
        trial fails, and the testbed is brought up again.
        """
        progress = _Progress(next_trial)
        why = self.lacking.get(uut.name) or self._given_up_reason(uut.name)
        try:
            while not why and next_trial() is not None:
                try:
                    testbed = self.testbeds.of(uut.name)
                    with testbed.uut(uut) as up, ActiveGuests(testbed, uut, up) as guests:
                        boot = next(self.numbers)
                        self.record.store.keep_boot(Boot(uut.name, boot, up.start_s, up.memory_bytes))
                        self._keep_facts(uut.name, guests.facts())
                        self.record.report(UutReady(uut.name))
                        failure = yield from self._measure_on(guests, boot, progress)
                except MachineGoneError as error:
                    if uut.on is None and not self.testbeds.can_lose_hosts:
                        raise
                    failure = str(error)
                    self.record.report(MachineGone(uut.name, failure))
                    self.testbeds.lose()
                    yield from self._gone(progress, failure, ReasonKind.UUT_FAILED if uut.on else ReasonKind.HOST_LOST)
                if progress.failures == MOST_FAILURES and next_trial() is not None:
                    raise UutError(f"it failed in {progress.failures} trials one after the other: {failure}")
        except UutError as error:
            why = str(error)
            self.given_up.setdefault(uut.name, []).append(why)
            self.record.directory.keep_console(uut.name, error.log)
        if why and uut.name not in self.lacking and next_trial() is not None:
            self.record.report(UutFailed(uut.name, why))
        while (trial := next_trial()) is not None:
            yield progress.final(_unmeasured(trial, ReasonKind.UUT_FAILED, why))

    def _keep_facts(self, uut: str, facts: Mapping[str, str]) -> None:
        self.record.keep_facts(uut, facts)
        is_emulated = "emulated" in facts or "vm_emulated" in facts
        warning = too_short_for(uut, is_emulated=is_emulated, duration_s=self.profile.duration)
        if warning is not None:
            self.record.store.keep_warnings([warning])

    def _gone(self, progress: _Progress, why: str, kind: ReasonKind) -> Iterator[TrialResult]:
        """Handle the loss of a machine of the testbed; a trial that was being measured loses its attempt."""
        progress.failures += 1
        if progress.measuring is None:
            return
        (spec, attempt, boot), progress.measuring = progress.measuring, None
        result = replace(_unmeasured(spec, kind, why), attempt=attempt, boot=boot)
        self._finish(result)
        if attempt <= self.profile.retries and progress.failures < MOST_FAILURES:
            progress.discarded.append(result.reasons)
        else:
            yield progress.final(result)

    def _measure_on(self, guests: ActiveGuests, boot: int, progress: _Progress) -> Generator[TrialResult, None, str]:
        """Measure until all trials are done or the UUT must be restarted; return why it failed, or an empty string."""
        is_warm = self.profile.warm_up_trials is None
        needs_noise = self.profile.noise_floor_s and not self.record.knows_noise
        if needs_noise and (first := progress.next_trial()) is not None:
            failed = self._measure_noise(guests, boot, first)
            if failed:
                progress.failures += 1
                return failed
        while (trial := progress.next_trial()) is not None:
            neighbours = tuple(neighbour.name for neighbour in trial.neighbours)
            if not self._have_neighbours(guests, neighbours, progress):
                yield progress.final(_unmeasured(trial, ReasonKind.NEIGHBOUR_FAILED, progress.lost[neighbours]))
                continue
            if not is_warm:
                is_warm, failed = True, self._warm_up(guests, boot, trial)
                if failed:
                    progress.failures += 1
                    return failed
                continue  # the neighbours may have failed
            progress.discarded += self.earlier.pop(trial.key, [])
            attempt = len(progress.discarded) + 1
            progress.measuring = trial, attempt, boot
            self.record.report(TrialStarted(trial.key, trial.index, attempt))
            result = self._measured(guests, trial, boot, attempt, keep_captures=self._keeps_captures)
            self._finish(result)
            self._renew_what_failed(guests, result)
            progress.measuring = None
            failed = self._failure(guests, result)
            neighbours_failed = _why(result, ReasonKind.NEIGHBOUR_FAILED)
            progress.failures = progress.failures + 1 if failed else 0
            progress.neighbours_failures = progress.neighbours_failures + 1 if neighbours_failed else 0
            progress.tool_failures = progress.tool_failures + 1 if _why(result, ReasonKind.TOOL_FAILED) else 0
            if neighbours_failed and not failed:
                for name, text in guests.consoles().items():
                    self.record.directory.keep_console(f"{guests.name}.{name}", text)
                guests.end_neighbours()
            is_hopeless = MOST_FAILURES in (progress.failures, progress.neighbours_failures)
            if result.verdict is Verdict.INVALID and attempt <= self.profile.retries and not is_hopeless:
                progress.discarded.append(result.reasons)
            else:
                yield progress.final(result)
            if progress.neighbours_failures == MOST_FAILURES:
                why = f"they failed in {MOST_FAILURES} trials one after the other: {neighbours_failed}"
                self._do_without(guests.name, neighbours, why, progress)
            restarted = trial.restart_at_s is not None  # later trials run on a boot that netbench waited for
            may_be_stuck = guests.end_connections and progress.tool_failures <= MOST_FAILURES
            if failed or restarted or needs_new_boot(result, may_be_stuck):
                return failed
        return ""

    def _measure_noise(self, guests: ActiveGuests, boot: int, following: TrialSpec) -> str:
        """Repeat one fixed trial and store the noise floor of the host; return why the UUT failed, else empty.

        These trials are not part of the results.
        """
        spec = noise.noise_trial(following, self.profile)
        began_s, throughputs = time.monotonic(), list[float]()
        for repeat in itertools.count():
            if noise.is_enough(repeat, time.monotonic() - began_s, self.profile.noise_floor_s):
                break
            result = self._measured(guests, spec, boot)
            self._remove_captures(spec)
            self._renew_what_failed(guests, result)
            if failed := self._failure(guests, result):
                return failed
            fps = noise.came_out_fps(result)
            if repeat and fps is not None:
                throughputs.append(fps)
        parts = self.profile.duration / spec.duration_s
        run_to_run = RUN_TO_RUN_IN_VM if is_virtual(self.record.manifest["before"]) else 0.0
        self.record.keep_noise_floor(noise_floor(throughputs, noise.in_words(spec), parts, run_to_run=run_to_run))
        return ""

    def _warm_up(self, guests: ActiveGuests, boot: int, following: TrialSpec) -> str:
        """Measure and store the warm-up trials of a boot; return why the UUT failed in one, else empty.

        They are never repeated, regardless of their verdict. They end if neighbours fail: the next trial brings these
        up again.
        """
        spec = warm_up_trial(following, self.testbeds.of(guests.name).topology, self.profile.loads)
        throughputs: list[float | None] = []
        while not is_enough(self.profile.warm_up_trials, throughputs):
            result = self._measured(guests, spec, boot)
            self.record.keep_warm_up(len(throughputs) + 1, result)
            self._remove_captures(spec)
            throughputs.append(TrialTotals.of(result).throughput_fps if result.verdict is Verdict.VALID else None)
            self._renew_what_failed(guests, result)
            if failed := self._failure(guests, result):
                return failed
            if _why(result, ReasonKind.NEIGHBOUR_FAILED):
                guests.end_neighbours()
                break
        return ""

    def _have_neighbours(self, guests: ActiveGuests, neighbours: tuple[str, ...], progress: _Progress) -> bool:
        """Bring up exactly these neighbours; return False if that fails."""
        if neighbours in progress.lost:
            return False
        if neighbours == guests.neighbours:
            return True
        if reason := self._given_up_reason(_together(guests.name, neighbours)):
            self._do_without(guests.name, neighbours, reason, progress, final=True)
            return False
        try:
            guests.have(neighbours)
        except NeighbourError as error:
            guests.end_neighbours()
            self.record.directory.keep_console(f"{guests.name}.neighbours", error.log)
            self._do_without(guests.name, neighbours, str(error), progress)
            return False
        if neighbours:
            self.record.keep_facts(guests.name, guests.facts())
            self.record.report(NeighboursReady(guests.name, neighbours))
        return True

    def _do_without(
        self, uut: str, neighbours: tuple[str, ...], why: str, progress: _Progress, *, final: bool = False
    ) -> None:
        """Give up all trials of the planned boot that need these neighbours."""
        if not final:
            self.given_up.setdefault(_together(uut, neighbours), []).append(why)
        progress.neighbours_failures = 0
        progress.lost[neighbours] = why
        self.record.report(NeighboursFailed(uut, neighbours, why))

    def _given_up_reason(self, name: str) -> str:
        """Return why a UUT or a set of neighbours is not tried again; empty if it is."""
        reasons = self.given_up.get(name, [])
        if len(reasons) < MOST_GIVEN_UP:
            return ""
        return f"not tried again after it was given up {MOST_GIVEN_UP} times: {reasons[-1]}"

    def _measured(
        self, guests: ActiveGuests, spec: TrialSpec, boot: int, attempt: int = 1, *, keep_captures: bool = False
    ) -> TrialResult:
        """Run a trial; return its result with a reason for each stream whose load is above the tester's ceiling."""
        place = self.testbeds.place_of(guests.name)
        recording = replace(
            Recording.as_wanted(self.profile, self.captures),
            keep=keep_captures,
            reference_holds=self.reference_holds.get(place, Ceilings()),
        )
        result = run_trial(guests.setup(spec), spec, recording, attempt)
        ceilings, sources = self.ceilings.get(place, Ceilings()), sum(len(guest.streams) for guest in result.guests)
        limits = [
            reason
            for counts in result.streams
            for reason in beyond_ceiling(
                counts, sources, spec.frame_size, ceilings, saturated=counts.stream in result.saturated
            )
        ]
        return replace(result, reasons=(*result.reasons, *limits), boot=boot)

    def _finish(self, result: TrialResult) -> None:
        """Report the result of an attempt, and keep or remove its captures."""
        spec, reasons = result.spec, tuple(map(str, result.reasons))
        self.record.report(TrialFinished(spec.key, spec.index, result.attempt, result.verdict.value, reasons))
        is_kept = self._keeps_captures and (self.profile.keep_captures == "all" or result.verdict is Verdict.INVALID)
        # A capture that filled the disk is incomplete, and takes space that the results need.
        if is_kept and not _why(result, ReasonKind.CAPTURE_DISK_FULL):
            limit_mib = self.profile.captures_limit
            if sum(capture.stat().st_size for capture in self._kept_captures) <= limit_mib << 20:
                return
            self.captures_full.append(spec.key)
            self.record.report(CapturesFull(spec.key, limit_mib))
        self._remove_captures(spec)

    def _renew_what_failed(self, guests: ActiveGuests, result: TrialResult) -> None:
        """Renew failed endpoints after an attempt was reported.

        If that fails, the testbed is broken, and the trial is measured again.
        """
        if _why(result, ReasonKind.GENERATOR_FAILED):
            testbed = self.testbeds.of(guests.name)
            testbed.renew_endpoints()
            self.record.keep_identities(testbed.identities())

    def _failure(self, guests: ActiveGuests, result: TrialResult) -> str:
        """Return why the UUT failed in a trial, and store its console output; empty if it did not fail."""
        failure = _why(result, ReasonKind.UUT_FAILED)
        if failure:
            self.record.directory.keep_console(guests.name, guests.active.uut.console())
        return failure

    @property
    def _keeps_captures(self) -> bool:
        return self.profile.keep_captures != "none" and not self.captures_full

    @property
    def _kept_captures(self) -> list[Path]:
        try:
            return list(self.captures.iterdir())
        except (FileNotFoundError, NotADirectoryError):  # the directory was removed or replaced
            return []

    def _remove_captures(self, spec: TrialSpec) -> None:
        # glob() is not used: it caches every pattern.
        for capture in self._kept_captures:
            if capture.name.startswith(f"trial-{spec.index:06d}-"):
                capture.unlink(missing_ok=True)


def _unmeasured(spec: TrialSpec, kind: ReasonKind, why: str) -> TrialResult:
    return TrialResult(spec, 1, time.time_ns(), guests=(), reasons=(Reason(kind, "", why),), steps_s={})


def _together(uut: str, neighbours: Iterable[str]) -> str:
    return "+".join((uut, *neighbours))


def needs_new_boot(result: TrialResult, ends_connections: bool) -> bool:
    """Return whether the next attempt needs a new boot, because of a state that this one may have left behind.

    A process that `ends_connections` for the guest, such as passt, can be stuck after a tool failed: it then resets all
    later connections.
    """
    kinds = {reason.kind for reason in result.reasons}
    return not kinds.isdisjoint(_LINKS_DISTURBED) or (ends_connections and ReasonKind.TOOL_FAILED in kinds)


def _why(result: TrialResult, kind: ReasonKind) -> str:
    """Return the detail of the first reason of a kind, or the name of the kind; empty if there is no such reason."""
    return next((reason.detail or kind.value for reason in result.reasons if reason.kind is kind), "")
