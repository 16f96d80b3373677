"""The tables of lost frames: by place, as a waterfall for each measurement, and the finding of the paper."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from netbench.model.frame_mix import FrameSize, frames_text, rising, size_text
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Verdict
from netbench.report.blocks import Block, Cell, Choice, Column, Grid, Heading, Note, Option, Table, table
from netbench.report.formats import UNKNOWN, count, frames, mbps, percent, rough_percent
from netbench.report.model import ReportModel, View, uut_cell
from netbench.report.sentences import sentence
from netbench.report.styles import label
from netbench.report.tables.columns import largest_first, number, uut_column
from netbench.report.tables.registry import report_table
from netbench.statistics.groups import Group, grouped
from netbench.statistics.lost_frames import (
    Answer,
    FrameBalance,
    GroupOutcome,
    PaperFinding,
    Side,
    answer,
    group_outcome,
    lost_frames_by_place,
)

_SIDES_OF_GUEST = (Side.BEFORE, Side.INSIDE, Side.AFTER, Side.UNKNOWN)
_ANSWERS = {Answer.CONFIRMED: "confirmed", Answer.REFUTED: "refuted", Answer.OPEN: "open", None: "not tested"}
_SIDES = {
    Side.BEFORE: "were lost before they entered the guest",
    Side.INSIDE: "inside",
    Side.AFTER: "after they had left it",
    Side.UNKNOWN: "at a place that no counter shows",
}


@dataclass(frozen=True, slots=True)
class _PlaceRow:
    """The frames that a guest lost at a place."""

    guest: Cell
    place: str
    valid: str = ""
    share: float | None = None
    share_text: str = ""
    of_offered: str = ""
    suspicious: str = ""


@report_table("losses", "Where frames were lost", "measured trials")
def losses(model: ReportModel) -> Iterator[Table]:
    """The places where each guest lost frames, from source to sink; invalid trials are left out."""
    by_uut = grouped(model.trials, lambda trial: trial.spec.uut)
    rows: list[_PlaceRow] = []
    for uut in model.styles:
        trials = by_uut.get(uut, [])
        if trials:
            rows += _places(uut_cell(uut, model.styles), trials)
        for neighbour, trials_of_neighbour in _of_neighbours(trials).items():
            if any(trial.streams for trial in trials_of_neighbour):
                rows += _places(uut_cell(uut, model.styles, f", {neighbour}"), trials_of_neighbour)
    yield table(
        (
            Column("UUT, neighbour", lambda row: row.guest),
            Column("Place of the loss", lambda row: row.place),
            number("In valid trials", lambda row: row.valid),
            Column(
                "Share of the loss",
                lambda row: Cell(row.share_text, bar=None if row.share is None else (0.0, row.share), css="track"),
            ),
            number("Share of offered frames", lambda row: row.of_offered),
            number("In suspicious trials", lambda row: row.suspicious),
        ),
        rows,
        "lost",
        block=lambda row: row.guest.text,
        shows_blocks=False,
    )


def _places(guest: Cell, trials: Sequence[TrialResult]) -> list[_PlaceRow]:
    valid = [trial for trial in trials if trial.verdict is Verdict.VALID]
    suspicious = [trial for trial in trials if trial.verdict is Verdict.SUSPICIOUS]
    in_valid, in_suspicious = lost_frames_by_place(valid), lost_frames_by_place(suspicious)
    offered = sum(counts.sent_frames for trial in valid for counts in trial.streams)
    lost = in_valid.total()
    places = sorted({*in_valid, *in_suspicious})
    if not places:
        nothing = "nowhere: no frame was lost" if valid or suspicious else "no valid or suspicious trial"
        return [_PlaceRow(guest, nothing, frames(0) if valid else UNKNOWN)]
    return [
        _PlaceRow(
            guest,
            place.name,
            frames(in_valid[place]) if valid else UNKNOWN,
            in_valid[place] / lost if lost else None,
            f"{100 * in_valid[place] / lost:.1f} %" if lost else UNKNOWN,
            percent(in_valid[place] / offered) if offered else UNKNOWN,
            frames(in_suspicious[place]) if suspicious else UNKNOWN,
        )
        for place in places
    ]


def _of_neighbours(trials: Iterable[TrialResult]) -> dict[str, list[TrialResult]]:
    """The trials of each neighbour by its name, with the neighbour's streams, counters and CPU time as the trial's."""
    pairs = grouped(((trial, guest) for trial in trials for guest in trial.neighbours), lambda pair: pair[1].name)
    return {
        name: [replace(trial, guests=(guest,), machine_cpu_s=None) for trial, guest in of_name]
        for name, of_name in pairs.items()
    }


def waterfalls(model: ReportModel, view: View) -> Choice:
    """A waterfall per UUT for a frame size and load to be selected; the smallest frames at the highest load first."""
    measurements = grouped(
        largest_first(view.groups, lambda group: group.frame_size),
        lambda group: (group.frame_size, str(group.load)),
    )
    outcomes = {
        key: [(group, group_outcome(group, guest=group.uut in model.guests)) for group in groups]
        for key, groups in measurements.items()
    }
    options = [
        Option(f"{size}-{load}", f"{size_text(size, ' bytes')}, {load}{_in_mbps(groups)}", frames_text(size))
        for (size, load), groups in measurements.items()
    ]
    return Choice(
        "Frame size and load per source",
        options,
        [[Grid([_outcome(model, *pair) for pair in pairs], "outcomes")] for pairs in outcomes.values()],
        name=f"outcomes-{view.name}",
        start=_start(outcomes) or options[0].value,
    )


def _start(outcomes: dict[tuple[FrameSize, str], list[tuple[Group, GroupOutcome | None]]]) -> str:
    measured = [key for key, pairs in outcomes.items() if any(outcome for _, outcome in pairs)]
    smallest = min((size for size, _ in measured), key=rising, default=0)
    return next((f"{size}-{load}" for size, load in reversed(measured) if size == smallest), "")


def _in_mbps(groups: Sequence[Group]) -> str:
    """The load of a measurement in Mbit/s; empty where it is in bit/s already, or differs by UUT."""
    if groups[0].load.kind is LoadKind.OF_MAXIMUM:  # differs by UUT
        return ""
    intended = next((group.intended_mbps for group in groups if group.intended_mbps is not None), None)
    per_source = None if intended is None else intended / groups[0].sources
    return "" if per_source is None or "bit/s" in str(groups[0].load) else f" = {mbps(per_source)} Mbit/s"


def _outcome(model: ReportModel, group: Group, outcome: GroupOutcome | None) -> list[Block]:
    style = model.styles[group.uut]
    heading = Heading(style.label, 4, style.colour)
    if outcome is None:
        return [heading, Note("No valid trial.")]
    return [heading, _waterfall(outcome), Note(_trials_text(outcome))]


def _waterfall(outcome: FrameBalance) -> Table:
    """The steps from the frames sent to those received; the bar of each begins where the one above it ends."""
    steps: list[tuple[str, int, int, int, str]] = [("sent", outcome.sent, 0, outcome.sent, "arrived")]
    left = outcome.sent
    for drop in outcome.drops:
        side = "" if drop.side in (Side.HOST, Side.UNKNOWN) else f", {drop.side.value}"
        steps.append((f"lost: {drop.place.name}{side}", drop.frames, left - drop.frames, left, "lost"))
        left -= drop.frames
    steps.append(("received", outcome.received, 0, outcome.received, "arrived"))

    def part(number: int) -> float:
        return min(1.0, max(0.0, number / outcome.sent)) if outcome.sent else 0.0

    return table(
        (
            Column("Step", lambda step: step[0]),
            number("Frames", lambda step: frames(step[1])),
            number("of sent", lambda step: rough_percent(step[1] / outcome.sent) if outcome.sent else ""),
            Column("", lambda step: Cell("", bar=(part(min(step[2:4])), part(max(step[2:4]))), css=f"step {step[4]}")),
        ),
        steps,
        "waterfall",
    )


def _trials_text(outcome: GroupOutcome) -> str:
    kind = "suspicious trial" if outcome.doubtful else "valid trial"
    left_out = [
        f"{len(trials):,} {word}"
        for word, trials in (
            ("suspicious", () if outcome.doubtful else outcome.group.suspicious),
            ("invalid", outcome.group.invalid),
        )
        if trials
    ]
    text = count(outcome.trials, kind) + (", added up" if outcome.trials > 1 else "")
    return f"{text}; left out: {', '.join(left_out)}." if left_out else f"{text}."


def paper_finding_table(finding: PaperFinding, model: ReportModel) -> Table:
    """A row per UUT with a guest: the share of its loss before, inside and after it, and the answer."""
    return table(
        (
            uut_column(model.styles, lambda row: row[0]),
            number("Valid trials", lambda row: f"{row[1].trials:,}"),
            number("Lost frames", lambda row: frames(row[1].lost)),
            *(
                number(side.value.capitalize(), lambda row, side=side: rough_percent(row[1].share_on(side)))  # type: ignore[misc]
                for side in _SIDES_OF_GUEST
            ),
            Column("Main place of loss", lambda row: _worst_place(row[1])),
            Column("The finding is", lambda row: _ANSWERS[answer(row[1])]),
        ),
        list(finding.by_uut.items()),
        "lost",
    )


def finding_sentence(finding: PaperFinding, emulated: Collection[str] = ()) -> str:
    """A sentence with the counts, their guests and conditions, and the conclusion for the finding.

    `emulated` are the UUTs with an emulated CPU. UUTs with another conclusion are named.
    """
    together = finding.together
    guests = ", ".join(label(uut, emulated) for uut in finding.by_uut)
    result = answer(together)
    trials = count(together.trials, "valid trial")
    if result is None:
        return sentence("losses.finding_untested", trials=trials, guests=guests)
    shares = ", ".join(
        f"{rough_percent(together.share_on(side))} {_SIDES[side]}"
        for side in _SIDES_OF_GUEST
        if side is Side.BEFORE or together.on(side)
    )
    exceptions = [uut for uut, outcome in finding.by_uut.items() if answer(outcome) not in (result, None)]
    with_emulation = [uut for uut in finding.by_uut if uut in emulated]
    condition = (
        "with no CPU emulated"
        if not with_emulation
        else "with their CPUs emulated"
        if len(with_emulation) == len(finding.by_uut)
        else f"with the CPU of {', '.join(with_emulation)} emulated"
    )
    return sentence(
        "losses.finding",
        lost=frames(together.lost),
        trials=trials,
        guests=guests,
        shares=shares,
        condition=condition,
        answer=result.value,
        exceptions=f" (not so: {', '.join(exceptions)})" if exceptions else "",
    )


def _worst_place(outcome: FrameBalance) -> str:
    worst = max(outcome.drops, key=lambda drop: drop.frames, default=None)
    return UNKNOWN if worst is None else worst.place.name
