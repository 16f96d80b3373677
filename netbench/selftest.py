"""Is the tester right? Reference UUTs whose true loss is known are measured like any other."""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from netbench import campaign
from netbench.config.loading import load_topology
from netbench.config.shipped import TOPOLOGIES, find
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec
from netbench.plugins import UUTS, option_models
from netbench.progress import ConsoleProgress
from netbench.results.campaign import CampaignResults
from netbench.results.directory import ResultDirectory
from netbench.uut.reference import Drop

# What the reference UUTs drop: nothing, half, some, a part that shares no divisor with usual counts, all.
_DROPS = ((0, 1), (1, 2), (7, 100), (13, 997), (5, 5))
_FRAMES_PER_SECOND = 40_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tester said of one trial, beside the truth, for each of its streams. Frames; None is unknown."""

    uut: str
    frame_size: int
    sent: tuple[int, ...]
    true_lost: tuple[int, ...]
    measured_lost: tuple[int | None, ...]
    unexplained: tuple[int | None, ...]
    verdict: str

    @property
    def right(self) -> bool:
        """Whether the trial is valid, and the loss of every stream exact to the frame and all of it placed."""
        placed = all(frames == 0 for frames in self.unexplained)
        return self.verdict == "valid" and self.measured_lost == self.true_lost and placed

    @property
    def error(self) -> int | None:
        """Frames by which the measurement is off, added up over the streams; None when a stream is unknown."""
        known = [measured for measured in self.measured_lost if measured is not None]
        if len(known) < len(self.measured_lost):
            return None
        return sum(abs(measured - true) for measured, true in zip(known, self.true_lost, strict=True))


def run_selftest(console: Console, frames: int, keep: Path | None) -> bool:
    """Measure the reference UUTs, print truth beside measurement; True when every answer is right.

    `frames` is about how many each trial sends. Results are kept in `keep`, if given.
    """
    topology, profile = _selftest_topology(), _selftest_profile(frames)
    request = campaign.make_request(topology, profile)
    with tempfile.TemporaryDirectory(prefix="netbench-selftest-") as scratch:
        directory = ResultDirectory(keep or Path(scratch) / "selftest")
        directory.refuse_existing()
        progress = ConsoleProgress(console)
        try:
            campaign.start(request, directory, sys.argv, [progress])
        finally:
            progress.close()
        results = directory.results()
    answers = list(_answers(topology, results))
    console.print(_table(answers))
    wrong = [answer for answer in answers if not answer.right]
    for reason in {f"{r.kind.value}: {r.detail}" for trial in results.trials for r in trial.reasons}:
        console.print(reason, markup=False, highlight=False)
    if wrong:
        console.print(f"FAILED: {len(wrong)} of {len(answers)} answers are wrong; do not trust this tester here")
    else:
        console.print(f"passed: all {len(answers)} answers are exact; the tester can be trusted here")
    return not wrong


def _selftest_topology() -> Topology:
    topology = load_topology(find(TOPOLOGIES, "netns-3"), option_models(UUTS))
    uuts = tuple(
        UutSpec.model_validate(
            {
                "name": f"{forward}-{k}-of-{n}",
                "kind": "reference",
                "forward": forward,
                "drop": {"k": k, "n": n},
            }
        )
        for forward in ("bridge", "route")
        for k, n in _DROPS
    )
    return topology.model_copy(update={"name": "selftest", "uuts": uuts})


def _selftest_profile(frames: int) -> Profile:
    return Profile.model_validate(
        {
            "name": "selftest",
            "frame_sizes": [64, 1518],
            "loads": [f"{_FRAMES_PER_SECOND}fps"],
            "streams": [1, 3],
            "repetitions": 1,
            "duration": frames / _FRAMES_PER_SECOND,
            # Counts are what is tested here, not timing.
            "tolerance": "100%",
            "max_lateness": "1min",
        }
    )


def _answers(topology: Topology, results: CampaignResults) -> Iterator[Answer]:
    drops = {uut.name: Drop.model_validate(uut.options["drop"]) for uut in topology.uuts}
    for trial in results.trials:
        yield Answer(
            uut=trial.spec.uut,
            frame_size=trial.spec.frame_size,
            sent=tuple(counts.sent_frames for counts in trial.streams),
            true_lost=tuple(drops[trial.spec.uut].of(counts.sent_frames) for counts in trial.streams),
            measured_lost=tuple(counts.lost_frames for counts in trial.streams),
            unexplained=tuple(counts.unexplained_frames for counts in trial.streams),
            verdict=trial.verdict.value,
        )


def _table(answers: list[Answer]) -> Table:
    table = Table(title="truth beside measurement, in frames of all streams", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("UUT", no_wrap=True)
    for heading in ("streams", "size", "sent", "lost", "measured", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for answer in sorted(answers, key=lambda one: (one.uut, len(one.sent), one.frame_size)):
        measured = "?" if answer.error is None else f"{sum(filter(None, answer.measured_lost)):,}"
        table.add_row(
            answer.uut,
            str(len(answer.sent)),
            str(answer.frame_size),
            f"{sum(answer.sent):,}",
            f"{sum(answer.true_lost):,}",
            measured,
            "?" if answer.error is None else f"{answer.error:,}",
            "pass" if answer.right else f"FAIL ({answer.verdict})",
        )
    return table
