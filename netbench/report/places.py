"""The sections about where frames were lost: by measurement, along the loss curve, in total; the paper's finding."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from netbench.model.frame_mix import FrameSize, frames_text, rising, size_text
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import Verdict
from netbench.report.formats import UNKNOWN, count, frames, mbps, percent, rough_percent
from netbench.report.loss_by_place import loss_by_place
from netbench.report.markup import Html, TableColumn, element, join, table
from netbench.report.panels import groups_by_uut
from netbench.report.published import schlosser2011
from netbench.report.sections import Option, Section, View, chosen, drawn, note, picked, reference, section
from netbench.report.styles import Style, label
from netbench.report.tables import uut_label
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
    paper_finding,
)

_ARRIVED, _LOST = "var(--p3)", "var(--p0)"
_SIDES_OF_GUEST = (Side.BEFORE, Side.INSIDE, Side.AFTER, Side.UNKNOWN)
_ANSWERS = {Answer.CONFIRMED: "confirmed", Answer.REFUTED: "refuted", Answer.OPEN: "open", None: "not tested"}


def places_sections(
    choice: Sequence[View], looks: Mapping[str, Style], trials: Sequence[TrialResult], guests: Collection[str]
) -> Iterable[Section]:
    """Where frames were lost; for UUTs with `guests` on their paths, whether most were lost before entering one."""
    finding = paper_finding(trials, looks, guests)
    yield section(
        "places",
        "Where frames were lost",
        note(
            "By the counters of the path from source to sink. Each bar begins where the one above it ends: from the"
            " frames sent down to those received. Frames that no counter explains are a bar of their own."
        ),
        chosen(choice, lambda view: _waterfalls(f"outcomes-{view.name}", view.groups, guests, looks)),
        element("h3", "The loss curve by place"),
        chosen(choice, lambda view: _split(view, guests, looks)),
        element("h3", "All loads and frame sizes together"),
        note("Sums over the valid trials. Suspicious trials have a column of their own; invalid ones are left out."),
        _lost_frames_table(trials, looks),
        *(() if finding.by_uut else (note(_without_guest(finding)),)),
    )
    if finding.by_uut:
        yield section(
            "paper-finding",
            "Are most frames lost before they enter the guest?",
            *_finding_content(finding, looks),
            link="Before the guest?",
        )


def _split(view: View, guests: Collection[str], looks: Mapping[str, Style]) -> Html:
    """The loss curve of each UUT that lost frames; at first the one that lost most is shown."""
    outcomes = {
        uut: [outcome for group in groups if (outcome := group_outcome(group, guest=uut in guests))]
        for uut, groups in groups_by_uut(view.groups).items()
    }
    lossy = {uut: of_uut for uut, of_uut in outcomes.items() if any(outcome.drops for outcome in of_uut)}
    if not lossy:
        return note("No frame was lost.")
    options = [Option(uut, looks[uut].label) for uut in lossy]
    parts = [
        _curves(looks[uut].label, of_uut, looks, f"split-{place}-{view.name}")
        for place, (uut, of_uut) in enumerate(lossy.items())
    ]
    most = max(lossy, key=lambda uut: sum(outcome.lost for outcome in lossy[uut]))
    return picked(f"split-{view.name}", "Unit under test", options, parts, most)


def _curves(label: str, outcomes: Sequence[GroupOutcome], looks: Mapping[str, Style], name: str) -> Html:
    sizes = {outcome.group.frame_size for outcome in outcomes}
    lost = {outcome.group.frame_size for outcome in outcomes if outcome.drops}
    whole = sorted(sizes - lost, key=rising, reverse=True)
    remark = (
        note(f"No frame of {' or '.join(size_text(size, ' bytes') for size in whole)} was lost.") if whole else Html()
    )
    return join((element("h4", label), drawn(loss_by_place(outcomes, looks), name), remark))


def _waterfalls(name: str, groups: Sequence[Group], guests: Collection[str], looks: Mapping[str, Style]) -> Html:
    """A waterfall per UUT for a frame size and load to be picked; the smallest frames at the highest load first.

    `groups` are of one scenario and number of sources, `guests` the UUTs with a guest on their path. `name` is
    unique on the page.
    """
    measurements = {
        measurement: [(group, group_outcome(group, guest=group.uut in guests)) for group in members]
        for measurement, members in _measurements(groups).items()
    }
    options = [
        Option(
            f"{size}-{load}",
            f"{size_text(size, ' bytes')}, {load}{_in_mbps([group for group, _ in members])}",
            frames_text(size),
        )
        for (size, load), members in measurements.items()
    ]
    known = [measurement for measurement, members in measurements.items() if any(outcome for _, outcome in members)]
    smallest = min((size for size, _ in known), key=rising, default=0)
    start = next((f"{size}-{load}" for size, load in reversed(known) if size == smallest), options[0].value)
    parts = [
        element("div", *(_of_uut(group, outcome, looks) for group, outcome in members), css="outcomes")
        for members in measurements.values()
    ]
    return picked(name, "Frame size and load per source", options, parts, start)


def _measurements(groups: Iterable[Group]) -> dict[tuple[FrameSize, str], list[Group]]:
    """Groups by frame size, the largest first, and by load of the profile."""
    in_order = sorted(groups, key=lambda group: rising(group.frame_size), reverse=True)
    return grouped(in_order, lambda group: (group.frame_size, str(group.load)))


def _in_mbps(groups: Sequence[Group]) -> str:
    """The load of a measurement in Mbit/s; empty where it is in bit/s already, or differs by UUT."""
    if groups[0].load.kind is LoadKind.OF_MAXIMUM:  # differs by UUT
        return ""
    intended = next((group.intended_mbps for group in groups if group.intended_mbps is not None), None)
    per_source = None if intended is None else intended / groups[0].sources
    return "" if per_source is None or "bit/s" in str(groups[0].load) else f" = {mbps(per_source)} Mbit/s"


def _of_uut(group: Group, outcome: GroupOutcome | None, looks: Mapping[str, Style]) -> Html:
    heading = element("h4", uut_label(group.uut, looks))
    if outcome is None:
        return element("div", heading, element("p", "No valid trial.", css="note"), css="outcome")
    return element("div", heading, _waterfall(outcome), element("p", _remark(outcome), css="note"), css="outcome")


def _waterfall(outcome: FrameBalance) -> Html:
    rows = [_row("sent", outcome.sent, outcome, (0, outcome.sent), _ARRIVED)]
    left = outcome.sent
    for drop in outcome.drops:
        side = "" if drop.side in (Side.HOST, Side.UNKNOWN) else f", {drop.side.value}"
        rows.append(_row(f"lost: {drop.place.name}{side}", drop.frames, outcome, (left - drop.frames, left), _LOST))
        left -= drop.frames
    rows.append(_row("received", outcome.received, outcome, (0, outcome.received), _ARRIVED))
    return element("table", element("tbody", *rows), css="waterfall")


def _row(name: str, number: int, outcome: FrameBalance, reach: tuple[int, int], colour: str) -> Html:
    """A step of the waterfall; its bar reaches between two numbers of frames."""
    first, last = (100 * min(1.0, max(0.0, end / outcome.sent)) if outcome.sent else 0.0 for end in sorted(reach))
    bar = element("span", style=f"left:{first:.2f}%;width:{last - first:.2f}%;background:{colour}")
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", frames(number), css="number"),
        element("td", rough_percent(number / outcome.sent) if outcome.sent else "", css="number"),
        element("td", element("div", bar), css="step"),
    )


def _remark(outcome: GroupOutcome) -> str:
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


def _lost_frames_table(trials: Iterable[TrialResult], looks: Mapping[str, Style]) -> Html:
    """Where the frames of each guest were lost, from source to sink; invalid trials are left out."""
    trials = list(trials)
    bodies = []
    for uut in looks:
        trials_of_uut = [trial for trial in trials if trial.spec.uut == uut]
        if trials_of_uut:
            bodies.append(_lost_frames(uut_label(uut, looks), trials_of_uut))
        for neighbour, seen in _of_neighbours(trials_of_uut).items():
            if any(trial.streams for trial in seen):
                label = join((uut_label(uut, looks), f", {neighbour}"))
                bodies.append(_lost_frames(label, seen))
    columns: tuple[TableColumn[tuple[str, ...]], ...] = (
        TableColumn("UUT, neighbour", lambda cells: cells[0]),
        TableColumn("Frames were lost at", lambda cells: cells[1]),
        TableColumn("In valid trials", lambda cells: cells[2], "number"),
        TableColumn("Share of the loss", lambda cells: cells[3]),
        TableColumn("Share of offered frames", lambda cells: cells[4], "number"),
        TableColumn("In suspicious trials", lambda cells: cells[5], "number"),
    )
    return table(columns, bodies, css="lost")


def _lost_frames(guest: Html, trials: Sequence[TrialResult]) -> list[tuple[str, ...]]:
    """The cells of a guest's rows."""
    valid = [trial for trial in trials if trial.verdict is Verdict.VALID]
    suspicious = [trial for trial in trials if trial.verdict is Verdict.SUSPICIOUS]
    in_valid, in_suspicious = lost_frames_by_place(valid), lost_frames_by_place(suspicious)
    offered = sum(counts.sent_frames for trial in valid for counts in trial.streams)
    lost = in_valid.total()
    places = sorted({*in_valid, *in_suspicious})
    if not places:
        nothing = "nowhere: no frame was lost" if valid or suspicious else "no valid or suspicious trial"
        return [(guest, nothing, frames(0) if valid else UNKNOWN, "", "", "")]
    return [
        (
            guest,
            place.name,
            frames(in_valid[place]) if valid else UNKNOWN,
            _bar(in_valid[place] / lost) if lost else UNKNOWN,
            percent(in_valid[place] / offered) if offered else UNKNOWN,
            frames(in_suspicious[place]) if suspicious else UNKNOWN,
        )
        for place in places
    ]


def _bar(share: float) -> Html:
    width = f"width:{100 * min(1.0, max(0.0, share)):.2f}%"
    track = element("span", element("span", style=width), css="track")
    return join((track, f"{100 * share:.1f} %"))


def _finding_content(finding: PaperFinding, looks: Mapping[str, Style]) -> Iterable[Html]:
    """The finding, a sentence that compares the counts with it, and a table with a row per UUT."""
    statement = "The paper found that most lost packets never get as far as the guest (end of its section 4). "
    yield reference(statement, schlosser2011())
    yield element(
        "p", element("strong", finding_sentence(finding, {uut for uut in looks if looks[uut].emulated})), css="finding"
    )
    columns: tuple[TableColumn[tuple[str, FrameBalance]], ...] = (
        TableColumn("UUT", lambda row: uut_label(row[0], looks)),
        TableColumn("Valid trials", lambda row: f"{row[1].trials:,}", "number"),
        TableColumn("Lost frames", lambda row: frames(row[1].lost), "number"),
        *(TableColumn(side.value.capitalize(), _share_on(side), "number") for side in _SIDES_OF_GUEST),
        TableColumn("Most were lost at", lambda row: _worst_place(row[1])),
        TableColumn("The finding is", lambda row: _ANSWERS[answer(row[1])]),
    )
    yield table(columns, [finding.by_uut.items()], css="lost")
    yield note(
        "From valid trials at any load and frame size. A frame that the virtual NIC dropped because the guest had no"
        " free buffer for it was lost before the guest, whose kernel never had it.",
        *((f" {_without_guest(finding)}",) if finding.without_guest else ()),
    )


def finding_sentence(finding: PaperFinding, emulated: Collection[str] = ()) -> str:
    """A sentence with the counts, their guests and conditions, and the conclusion for the finding.

    `emulated` are the UUTs with an emulated CPU. UUTs with another conclusion are named.
    """
    together = finding.together
    guests = ", ".join(label(uut, emulated) for uut in finding.by_uut)
    said = answer(together)
    if said is None:
        return f"No frame was lost in {count(together.trials, 'valid trial')} of {guests}: the finding is not tested."
    words = {
        Side.BEFORE: "were lost before they entered the guest",
        Side.INSIDE: "inside",
        Side.AFTER: "after they had left it",
        Side.UNKNOWN: "where no counter tells",
    }
    shares = ", ".join(
        f"{rough_percent(together.share_on(side))} {words[side]}"
        for side in _SIDES_OF_GUEST
        if side is Side.BEFORE or together.on(side)
    )
    exceptions = [uut for uut, outcome in finding.by_uut.items() if answer(outcome) not in (said, None)]
    imitated = [uut for uut in finding.by_uut if uut in emulated]
    condition = (
        "with no CPU emulated"
        if not imitated
        else "with their CPUs emulated"
        if len(imitated) == len(finding.by_uut)
        else f"with the CPU of {', '.join(imitated)} emulated"
    )
    but = f" (not so: {', '.join(exceptions)})" if exceptions else ""
    return (
        f"Of {frames(together.lost)} frames lost in {count(together.trials, 'valid trial')} of {guests}, {shares}:"
        f" {condition}, this {said.value} the finding for these guests{but}."
    )


def _without_guest(finding: PaperFinding) -> str:
    """A sentence with the UUTs that the finding does not cover."""
    return f"The finding is not about UUTs on whose path no guest counts frames: {', '.join(finding.without_guest)}."


def _share_on(side: Side) -> Callable[[tuple[str, FrameBalance]], str]:
    return lambda row: rough_percent(row[1].share_on(side))


def _worst_place(outcome: FrameBalance) -> str:
    worst = max(outcome.drops, key=lambda drop: drop.frames, default=None)
    return UNKNOWN if worst is None else worst.place.name


def _of_neighbours(trials: Iterable[TrialResult]) -> dict[str, list[TrialResult]]:
    """The trials of each neighbour by its name, with the neighbour's streams, counters and CPU time as the trial's."""
    seen = grouped(((trial, guest) for trial in trials for guest in trial.neighbours), lambda pair: pair[1].name)
    return {
        name: [replace(trial, guests=(guest,), machine_cpu_s=None) for trial, guest in pairs]
        for name, pairs in seen.items()
    }
