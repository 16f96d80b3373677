"""The tables of lost frames: by place, as a waterfall for each measurement, and the finding of the paper."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from netbench.model.frame_size import FrameSize
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Verdict
from netbench.report.blocks import Block, Cell, Choice, Column, Grid, Heading, Note, Option, Table, table
from netbench.report.formats import UNKNOWN, count, frames, mbps, percent, rough_percent, sentence
from netbench.report.model import ReportModel, View, uut_cell
from netbench.report.styles import label
from netbench.report.tables.registry import largest_first, number, report_table, uut_column
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

_ANSWERS = {Answer.CONFIRMED: "confirmed", Answer.REFUTED: "refuted", Answer.OPEN: "open", None: "not tested"}
_SIDES_OF_GUEST = {
    Side.BEFORE: "were lost before they entered the guest",
    Side.INSIDE: "inside",
    Side.AFTER: "after they had left it",
    Side.UNKNOWN: "at a place that no counter shows",
}


class _PlaceRow(NamedTuple):
    """The frames that a guest lost at a place."""

    guest: Cell
    place: str
    valid: str = ""
    share: float | None = None
    share_text: str = ""
    of_offered: str = ""
    suspicious: str = ""


@report_table("losses")
def losses(model: ReportModel) -> Iterator[Table]:
    """The places where each guest lost frames, from source to sink; invalid trials are left out."""
    by_uut = grouped(model.trials, lambda trial: trial.spec.uut)
    rows: list[_PlaceRow] = []
    for uut in model.styles:
        trials = by_uut.get(uut, [])
        if trials:
            rows += _places(uut_cell(uut, model.styles), trials)
        pairs = grouped(((trial, guest) for trial in trials for guest in trial.neighbours), lambda pair: pair[1].name)
        for neighbour, members in pairs.items():
            of_neighbour = [replace(trial, guests=(guest,), machine_cpu_s=None) for trial, guest in members]
            if any(trial.streams for trial in of_neighbour):
                rows += _places(uut_cell(uut, model.styles, f", {neighbour}"), of_neighbour)
    yield table(
        rows,
        Column("UUT, neighbour", lambda row: row.guest),
        Column("Place of the loss", lambda row: row.place),
        number("In valid trials", lambda row: row.valid),
        Column(
            "Share of the loss",
            lambda row: Cell(row.share_text, bar=None if row.share is None else (0.0, row.share), css="track"),
        ),
        number("Share of offered frames", lambda row: row.of_offered),
        number("In suspicious trials", lambda row: row.suspicious),
        css="lost",
        block=lambda row: row.guest.text,
        shows_blocks=False,
    )


def _places(guest: Cell, trials: Sequence[TrialResult]) -> list[_PlaceRow]:
    valid = [trial for trial in trials if trial.verdict is Verdict.VALID]
    suspicious = [trial for trial in trials if trial.verdict is Verdict.SUSPICIOUS]
    in_valid, in_suspicious = lost_frames_by_place(valid), lost_frames_by_place(suspicious)
    offered = sum(counts.sent.frames for trial in valid for counts in trial.streams)
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


def waterfalls(model: ReportModel, view: View) -> Choice:
    """Return a waterfall per UUT, with a selector of frame size and load. Default: smallest frames, highest load."""
    groups = largest_first(view.groups, lambda group: group.frame_size)
    options, parts = [], []
    measured: dict[FrameSize, str] = {}
    for (size, load), members in grouped(groups, lambda group: (group.frame_size, str(group.load))).items():
        title = f"{size.text(' bytes')}, {load}{_in_mbps(members)}"
        options.append(Option(f"{size}-{load}", title, size.frames_text))
        outcomes = [group_outcome(group, guest=group.uut in model.guests) for group in members]
        cells = [_outcome(model, *pair) for pair in zip(members, outcomes, strict=True)]
        parts.append([Grid(cells, "outcomes")])
        if any(outcomes):
            measured[size] = f"{size}-{load}"
    start = measured[min(measured)] if measured else options[0].value
    return Choice("Frame size and load per source", options, parts, name=f"outcomes-{view.name}", start=start)


def _in_mbps(groups: Sequence[Group]) -> str:
    """The load of a measurement in Mbit/s; empty where it is in bit/s already, or differs by UUT."""
    load = groups[0].load
    intended = next((group.intended_mbps for group in groups if group.intended_mbps is not None), None)
    if load.kind in (LoadKind.OF_MAXIMUM, LoadKind.L1_BIT_RATE) or intended is None:
        return ""
    return f" = {mbps(intended / groups[0].sources)} Mbit/s"


def _outcome(model: ReportModel, group: Group, outcome: GroupOutcome | None) -> list[Block]:
    style = model.styles[group.uut]
    heading = Heading(style.label, 4, style.colour)
    if outcome is None:
        return [heading, Note("No valid trial.")]
    return [heading, _waterfall(outcome), Note(_trials_text(outcome))]


class _Step(NamedTuple):
    """A step of a waterfall: its frames, and the ends of its bar."""

    title: str
    frames: int
    low: int
    high: int
    css: str


def _waterfall(outcome: FrameBalance) -> Table:
    """The steps from the frames sent to those received; the bar of each begins where the one above it ends."""
    steps = [_Step("sent", outcome.sent, 0, outcome.sent, "arrived")]
    left = outcome.sent
    for drop in outcome.drops:
        side = "" if drop.side in (Side.HOST, Side.UNKNOWN) else f", {drop.side.value}"
        low, high = sorted((left - drop.frames, left))
        steps.append(_Step(f"lost: {drop.place.name}{side}", drop.frames, low, high, "lost"))
        left -= drop.frames
    steps.append(_Step("received", outcome.received, 0, outcome.received, "arrived"))

    def part(number: int) -> float:
        return min(1.0, max(0.0, number / outcome.sent)) if outcome.sent else 0.0

    return table(
        steps,
        Column("Step", lambda step: step.title),
        number("Frames", lambda step: frames(step.frames)),
        number("of sent", lambda step: rough_percent(step.frames / outcome.sent) if outcome.sent else ""),
        Column("", lambda step: Cell("", bar=(part(step.low), part(step.high)), css=f"step {step.css}")),
        css="waterfall",
    )


def _trials_text(outcome: GroupOutcome) -> str:
    kind, suspicious = ("suspicious", ()) if outcome.doubtful else ("valid", outcome.group.suspicious)
    counted = (("suspicious", suspicious), ("invalid", outcome.group.invalid))
    left_out = ", ".join(f"{len(trials):,} {word}" for word, trials in counted if trials)
    text = count(outcome.trials, f"{kind} trial") + (", added up" if outcome.trials > 1 else "")
    return f"{text}; left out: {left_out}." if left_out else f"{text}."


def paper_finding_table(finding: PaperFinding, model: ReportModel) -> Table:
    """A row per UUT with a guest: the share of its loss before, inside and after it, and the answer."""
    return table(
        list(finding.by_uut.items()),
        uut_column(model.styles, lambda row: row[0]),
        number("Valid trials", lambda row: f"{row[1].trials:,}"),
        number("Lost frames", lambda row: frames(row[1].lost)),
        *(
            number(side.value.capitalize(), lambda row, side=side: rough_percent(row[1].share_on(side)))  # type: ignore[misc]  # mypy cannot infer lambdas with bound arguments
            for side in _SIDES_OF_GUEST
        ),
        Column("Main place of loss", lambda row: _worst_place(row[1])),
        Column("The finding is", lambda row: _ANSWERS[answer(row[1])]),
        css="lost",
    )


def finding_sentence(finding: PaperFinding, emulated: Collection[str] = ()) -> str:
    """A sentence with the counts, their guests and conditions, and the conclusion for the finding.

    `emulated` are the UUTs with an emulated CPU. UUTs with another conclusion are named.
    """
    together, result = finding.together, answer(finding.together)
    guests, trials = ", ".join(label(uut, emulated) for uut in finding.by_uut), count(together.trials, "valid trial")
    if result is None:
        return sentence("losses.finding_untested", trials=trials, guests=guests)
    shares = (
        f"{rough_percent(together.share_on(side))} {text}"
        for side, text in _SIDES_OF_GUEST.items()
        if side is Side.BEFORE or together.on(side)
    )
    exceptions = [uut for uut, outcome in finding.by_uut.items() if answer(outcome) not in (result, None)]
    with_emulation = [uut for uut in finding.by_uut if uut in emulated]
    condition = f"with the CPU of {', '.join(with_emulation)} emulated" if with_emulation else "with no CPU emulated"
    if with_emulation and len(with_emulation) == len(finding.by_uut):
        condition = "with their CPUs emulated"
    return sentence(
        "losses.finding",
        lost=frames(together.lost),
        trials=trials,
        guests=guests,
        shares=", ".join(shares),
        condition=condition,
        answer=result.value,
        exceptions=f" (not so: {', '.join(exceptions)})" if exceptions else "",
    )


def _worst_place(outcome: FrameBalance) -> str:
    worst = max(outcome.drops, key=lambda drop: drop.frames, default=None)
    return UNKNOWN if worst is None else worst.place.name
