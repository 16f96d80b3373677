"""Is the tester right? Reference UUTs whose true loss is known are measured like any other."""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from netbench import campaign
from netbench.config.loading import load_topology
from netbench.config.shipped import TOPOLOGIES, find
from netbench.model.counts import StreamCounts
from netbench.model.profile import Profile
from netbench.model.topology import Topology, UutSpec
from netbench.model.trial import TrialResult
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
    """What the tester said of one stream of one trial, beside the truth. Frames; None is unknown."""

    uut: str
    streams: int
    stream: str
    frame_size: int
    sent: int
    true_lost: int
    measured_lost: int | None
    unexplained: int | None
    verdict: str

    @property
    def right(self) -> bool:
        """Whether the trial is valid and its loss exact to the frame, all of it placed."""
        return self.verdict == "valid" and self.measured_lost == self.true_lost and self.unexplained == 0


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
        console.print(f"  {reason}", markup=False, highlight=False)
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
            "tolerance": "100%",  # counts are what is tested here, not timing
        }
    )


def _answers(topology: Topology, results: CampaignResults) -> Iterator[Answer]:
    drops = {uut.name: Drop.model_validate(uut.options["drop"]) for uut in topology.uuts}
    for trial in results.trials:
        for counts in trial.streams:
            yield _answer(trial, counts, drops[trial.spec.uut])


def _answer(trial: TrialResult, counts: StreamCounts, drop: Drop) -> Answer:
    return Answer(
        uut=trial.spec.uut,
        streams=len(trial.streams),
        stream=counts.stream,
        frame_size=trial.spec.frame_size,
        sent=counts.sent_frames,
        true_lost=drop.of(counts.sent_frames),
        measured_lost=counts.lost_frames,
        unexplained=counts.unexplained_frames,
        verdict=trial.verdict.value,
    )


def _table(answers: list[Answer]) -> Table:
    table = Table(title="truth beside measurement, in frames")
    for heading in (
        "UUT",
        "streams",
        "stream",
        "size",
        "sent",
        "truly lost",
        "measured lost",
        "error",
        "verdict",
        "",
    ):
        table.add_column(heading, justify="left" if heading in ("UUT", "stream", "verdict", "") else "right")
    for answer in sorted(answers, key=lambda a: (a.uut, a.streams, a.frame_size, a.stream)):
        measured = answer.measured_lost
        error = (
            "?" if measured is None else f"{measured - answer.true_lost:+,}" if measured != answer.true_lost else "0"
        )
        table.add_row(
            answer.uut,
            str(answer.streams),
            answer.stream,
            str(answer.frame_size),
            f"{answer.sent:,}",
            f"{answer.true_lost:,}",
            "?" if measured is None else f"{measured:,}",
            error,
            answer.verdict,
            "pass" if answer.right else "FAIL",
        )
    return table
