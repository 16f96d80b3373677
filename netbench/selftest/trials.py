"""Trials of a self-test: one at a time on a testbed that is up, kept in memory."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netbench.config.plugins import SINKS, plugins
from netbench.model.counts import StreamCounts
from netbench.model.packet import Packet
from netbench.model.profile import GeneratorSpec, Profile, SinkSpec
from netbench.model.scenario import VICTIM
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind, Verdict
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.testbed.testbed import Testbed
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.base import ActiveGuest

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """The traffic of one trial: the number of streams, the frame size in bytes, the load, and the duration.

    `packet` has the headers of the frames; None is the plain packet.
    """

    streams: int
    frame_size: int
    load: Load
    duration_s: float
    packet: Packet | None = None


@dataclass(frozen=True, slots=True)
class Tester:
    """The means to make trials. `fps` is a rate that all its sources and sinks should manage, for each stream."""

    testbed: Testbed
    topology: Topology
    generator: GeneratorSpec
    sink: SinkSpec
    captures: Path
    fps: int
    frames: int

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.topology.streams)

    @property
    def sink_program(self) -> str:
        """The program that its sinks run; empty: none."""
        program: str = getattr(plugins(SINKS)[self.sink.kind], "program", "")
        return program

    def modest(self, frame_size: int = 64, streams: int = 1) -> Pattern:
        """Return a pattern of about `frames` frames of each stream, at an easy rate."""
        return Pattern(streams, frame_size, Load(LoadKind.FRAME_RATE, self.fps), self.frames / self.fps)

    def measure(
        self, active: ActiveGuest, name: str, pattern: Pattern, *, strict: bool = False, keep: bool = False
    ) -> TrialResult:
        """Make one trial, again when it is invalid, and return the last result.

        `strict`: judge it by the usual tolerances; otherwise by its counts only, whatever the sources' timing. `keep`:
        its captures stay in `captures` until the next trial.
        """
        wanted = self.wanted(name, pattern, strict=strict)
        for attempt in range(1, _ATTEMPTS + 1):
            spec = wanted.trial(
                name,
                wanted.scenarios[0],
                wanted.profile.all_frame_sizes[0],
                pattern.load,
                attempt,
                index=0,
                sources=pattern.streams,
            )
            result = self._measure_once(active, spec, wanted.profile, keep=keep)
            if result.verdict is not Verdict.INVALID:
                break
        return result

    def follow(self, active: ActiveGuest, schedule: Schedule) -> dict[str, TrialResult]:
        """Make all trials of a schedule, each once, in its order; return the results."""
        results: dict[str, TrialResult] = {}
        while isinstance(spec := schedule.next(results), TrialSpec):
            results[spec.key] = self._measure_once(active, spec)
        return results

    def wanted(self, name: str, pattern: Pattern, *, strict: bool) -> CampaignPlan:
        """Return the plan for this UUT: the pattern, without neighbours."""
        profile = selftest_profile(self.generator, self.sink, pattern, strict)
        return CampaignPlan(self.topology, profile, (name,), profile.scenarios)

    def _measure_once(
        self, active: ActiveGuest, spec: TrialSpec, profile: Profile | None = None, *, keep: bool = False
    ) -> TrialResult:
        for capture in self.captures.iterdir():
            capture.unlink()
        setup = self.testbed.setup({VICTIM: active})
        if profile is not None:
            setup = replace(setup, packets=profile.packets)
        return run_trial(setup, spec, Recording(self.captures, keep), spec.repetition)


def selftest_profile(
    generator: GeneratorSpec, sink: SinkSpec, pattern: Pattern | None = None, strict: bool = False
) -> Profile:
    """Return the profile of one trial; without a pattern, the part common to all."""
    timing = {} if strict else {"tolerance": "100%", "max_lateness": "1min"}
    return Profile.model_validate(
        {
            "name": "selftest",
            "frame_sizes": [pattern.frame_size if pattern else 64],
            "packet": pattern.packet if pattern else None,
            "loads": [pattern.load if pattern else "max"],
            "duration": pattern.duration_s if pattern else 1.0,
            "repetitions": 1,
            "drain_limit": 2.0,  # reached once per UUT that loses frames, as nearly all UUTs here do
            "generator": generator,
            "sink": sink,
            **timing,
        }
    )


def with_uuts(topology: Topology, uuts: Sequence[UutSpec]) -> Topology:
    """Return the same testbed with these UUTs and no neighbours: every stream runs through them."""
    return topology.model_copy(update={"uuts": tuple(uuts), "neighbours": ()})


def lost_at(counts: StreamCounts) -> dict[str, int]:
    """Return the frames lost, by place."""
    return {loss.place: loss.frames for loss in counts.lost_at}


def complaints(result: TrialResult, but: Collection[ReasonKind] = ()) -> str:
    """Return the reasons against a trial, without some kinds, each once for all streams; empty for a valid one."""
    given = (reason for reason in result.reasons if reason.kind not in but)
    return "; ".join(dict.fromkeys(f"{reason.kind.value}: {reason.detail}" for reason in given))
