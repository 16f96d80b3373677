"""The records of a running campaign: results, facts, warnings, consoles, events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netbench.linux.locks import OtherMeasurement
from netbench.model.campaign import EndedSweep, NoiseFloor, WarmUpTrial
from netbench.model.events import (
    BoundsNarrowed,
    CampaignDisturbed,
    Event,
    NoiseFloorMeasured,
    Observer,
    SweepEnded,
    TrialRejudged,
    TrialStored,
    WarmUpTrialStored,
)
from netbench.model.search import SearchResult, SearchState
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Identities
from netbench.model.trial import TrialResult
from netbench.model.units import rate_text
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.model.workload import traffic_text
from netbench.plan.duration import TimeLeft
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import CEILINGS, ENDED_SWEEPS, IDENTITIES, NOISE_FLOOR, SEARCHES, ManifestPart, Value
from netbench.results.store import Store
from netbench.statistics.flow_figures import figures_text
from netbench.statistics.limits import maximum_of, workload_maximum_of
from netbench.statistics.totals import TrialTotals

_ANY_ADDRESS = ""


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """The outputs of a campaign; methods raise TestbedError if they cannot write."""

    directory: ResultDirectory
    store: Store
    observers: Sequence[Observer]
    manifest: dict[str, Any] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    searches: dict[str, SearchResult] = field(default_factory=dict)  # by key, as reported last
    # Keys of trials by stream and address; with _ANY_ADDRESS, of its last trial.
    sent_from: dict[tuple[str, str], str] = field(default_factory=dict)
    time_left: TimeLeft | None = None

    def report(self, event: Event) -> None:
        """Send an event to all observers, in order."""
        for observer in self.observers:
            observer.on(event)

    def warn(self, kind: WarningKind, text: str) -> None:
        """Store a warning; one that is stored already is not repeated."""
        self.store.keep_warnings([CampaignWarning(kind, text)])

    def keep(self, result: TrialResult) -> None:
        """Store a result."""
        self.store.add(result)
        spec = result.spec
        if any(
            counts.intended_frames is not None and counts.sent.frames < counts.intended_frames * (1 - spec.tolerance)
            for guest in result.neighbours
            for counts in guest.streams
        ):
            self.warn(
                WarningKind.NEIGHBOUR_BELOW_ITS_LOAD,
                f"UUT {spec.uut}, scenario {spec.scenario}: in some trials the sources of a neighbour sent less than "
                "was intended. Statements about the neighbour's load refer to the offered load.",
            )
        stored = TrialStored(
            spec.key,
            spec.index,
            result.verdict.value,
            tuple(dict.fromkeys(reason.kind.value for reason in result.reasons)),
            left_s=self.time_left.after(spec) if self.time_left else None,
            expected=self.time_left.expected_number if self.time_left else None,
        )
        if spec.serves:
            stored = replace(stored, flows=figures_text(result.victim.flows))
        else:
            totals = TrialTotals.of(result)
            rates = totals.offered_mbps, totals.throughput_mbps, totals.loss_ratio
            stored = replace(stored, offered_mbps=rates[0], throughput_mbps=rates[1], loss_ratio=rates[2])
        self.report(stored)
        self._note_senders(result, spec.key)

    def keep_warm_up(self, number: int, result: TrialResult) -> None:
        """Store a warm-up trial, the `number`th of its boot."""
        self.store.keep_warm_up(WarmUpTrial(number, result))
        self.report(WarmUpTrialStored(result.spec.uut, result.boot, number, result.verdict.value))
        self._note_senders(result, "")  # its late frames were not lost in any trial that counts

    def _note_senders(self, result: TrialResult, key: str) -> None:
        """Rejudge the trials whose frames arrived late, and record the source addresses of this trial under its key."""
        for counts in (counts for guest in result.guests for counts in guest.streams):
            for address, frames in counts.received.late_from.items():
                self._rejudge(self.sent_from.get((counts.stream, address)), counts.stream, frames, result)
            # Addresses do not distinguish the trials of described packets: these frames are of the trial before, unless
            # an attempt was discarded since then.
            unknown = (counts.received.late or 0) - sum(counts.received.late_from.values())
            if unknown > 0 and result.attempt == 1:
                self._rejudge(self.sent_from.get((counts.stream, _ANY_ADDRESS)), counts.stream, unknown, result)
            self.sent_from[counts.stream, counts.source_address] = key
            self.sent_from[counts.stream, _ANY_ADDRESS] = key

    def _rejudge(self, key: str | None, stream: str, frames: int, arrived_in: TrialResult) -> None:
        """Add the reason to an earlier trial that some of its lost frames were only late."""
        if key is None or key not in self.store:
            return
        earlier = self.store[key]
        of_stream = (counts for guest in earlier.guests for counts in guest.streams if counts.stream == stream)
        if all(counts.lost_frames == 0 for counts in of_stream):
            return  # they are of a trial before that one
        detail = (
            f"{frames:,} of the frames that it counts as lost arrived later, in trial {arrived_in.spec.index}; raise "
            "drain_limit above the longest delay of the UUT"
        )
        rejudged = replace(earlier, reasons=(*earlier.reasons, Reason(ReasonKind.LATE_FRAMES, stream, detail)))
        self.store.replace(rejudged)
        self.report(TrialRejudged(key, rejudged.spec.index, rejudged.verdict.value))

    def keep_others(self, others: Iterable[OtherMeasurement]) -> None:
        """Record that other campaigns measure on this machine; each is reported once."""
        for campaign in others:
            text = (
                f"Another netbench (process id {campaign.pid}, topology {campaign.topology}) measured on this machine "
                f"too, from {campaign.since} on. The two competed for CPU time, caches and memory bandwidth: "
                "loss, unsent frames and delays from then on may be wrong. Measure again with `netbench run --wait`, "
                "which begins once no other netbench measures."
            )
            if text not in self.reported:
                self.reported.add(text)
                self.warn(WarningKind.OTHER_CAMPAIGN, text)
                self.report(CampaignDisturbed(text))

    def keep_identities(self, identities: Identities) -> None:
        """Record in manifest.json the sources, sinks and machines of hosts from now on.

        A warning is stored if they differ from the last time that hosts were on these machines.
        """
        known = IDENTITIES.of(self.manifest)
        if not known or replace(known[-1], since=identities.since) != identities:
            self.manifest.update(IDENTITIES.put(self.manifest, (*known, identities)))
        self.directory.write_manifest(self.manifest)  # its sessions may be new too
        before = [earlier for earlier in known if earlier.machines == identities.machines]
        if before and replace(before[-1], since=identities.since) != identities:
            self.warn(
                WarningKind.TESTER_CHANGED,
                f"Sources, sinks or hosts changed at {identities.since} (kinds, versions, "
                "kernels or CPUs): manifest.json and the report list them, and each row of the export has its own. "
                "Compare trials before and after this time with care.",
            )

    def keep_ended(self, ended: Iterable[EndedSweep]) -> None:
        """Record in manifest.json the sweeps that ended early; each is reported once."""
        for sweep in ended:
            known = ENDED_SWEEPS.of(self.manifest)
            if sweep not in known:
                self._record(ENDED_SWEEPS, (*known, sweep))
                if self.time_left:
                    self.time_left.leave_out(sweep)
                self.report(SweepEnded(sweep))

    def keep_searches(self, searches: Sequence[SearchResult]) -> None:
        """Report the present bounds of searches, and record the finished searches in manifest.json."""
        for search in searches:
            last = self.searches.get(search.key)
            if last == search:
                continue
            bounds = search.state, search.lower, search.upper
            if last is None or (last.state, last.lower, last.upper) != bounds:
                self.report(BoundsNarrowed(search))
            self.searches[search.key] = search
            if search.for_maxima and search.of_flows:
                self._warn_of_workload(search)
            elif search.for_maxima and (maximum := maximum_of(search)) and not maximum.limited_by.is_uut:
                self.warn(
                    WarningKind.MAXIMUM_IS_LOWER_BOUND,
                    f"Loads of UUT {maximum.uut} with frames of {maximum.frame_size.in_bytes} are shares of a lower "
                    f"bound: the maximum is at least {maximum.fps:,.0f} frames/s, limited by {maximum.limited_by}. "
                    "Use a faster source to find the maximum.",
                )
        finished = tuple(search for search in searches if search.state is not SearchState.SEARCHING)
        if finished != SEARCHES.of(self.manifest):
            self._record(SEARCHES, finished)

    def _warn_of_workload(self, search: SearchResult) -> None:
        maximum = workload_maximum_of(search)
        if maximum is not None and not maximum.limited_by.is_uut:
            self.warn(
                WarningKind.MAXIMUM_IS_LOWER_BOUND,
                f"Loads of UUT {search.uut} with {traffic_text(search.kind_of_traffic)} are shares of a lower bound: "
                f"the maximum is at least {rate_text(maximum.rate, maximum.unit)}, limited by "
                f"{maximum.limited_by}. Set a higher maxima.highest, or measure on an idle machine.",
            )

    def keep_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Record the ceilings of the sources in manifest.json, and store a warning for each unreliable one."""
        if tuple(ceilings) == CEILINGS.of(self.manifest):
            return
        self._record(CEILINGS, tuple(ceilings))
        for ceiling in ceilings:
            if ceiling.doubt:
                sources = "the source" if ceiling.sources == 1 else f"each of {ceiling.sources} sources"
                uut = f" into UUT {ceiling.uut}" if ceiling.uut else ""
                self.warn(
                    WarningKind.SOURCE_CEILING_DOUBTFUL,
                    f"The highest rate of {sources} ({ceiling.source}) at {ceiling.frame_size.in_bytes}{uut} is not "
                    f"reliable: {ceiling.doubt}. Maxima that it limits are lower bounds: repeat the run on an idle "
                    "machine.",
                )

    @property
    def knows_noise(self) -> bool:
        """True if the noise floor of the host was measured, or a measurement failed."""
        return NOISE_FLOOR.key in self.manifest

    def keep_noise_floor(self, floor: NoiseFloor | None) -> None:
        """Record the noise floor of the host in manifest.json; None: too few repeats were valid."""
        self._record(NOISE_FLOOR, floor)
        if floor is not None:
            self.report(NoiseFloorMeasured(floor.half_width, floor.repeats, floor.trial))

    def keep_facts(self, uut: str, facts: Mapping[str, str]) -> None:
        """Record the facts that a UUT and its neighbours report."""
        self.store.keep_facts(uut, facts)
        if why := facts.get("emulated", facts.get("vm_emulated")):
            self.warn(
                WarningKind.CPU_IS_EMULATED,
                f"The CPU of UUT {uut} is emulated ({why}): its numbers describe the emulator, not the "
                "virtual machine monitor. Use a host where KVM works for numbers to be quoted.",
            )

    def _record(self, part: ManifestPart[Value], value: Value) -> None:
        self.manifest.update(part.put(self.manifest, value))
        self.directory.write_manifest(self.manifest)
