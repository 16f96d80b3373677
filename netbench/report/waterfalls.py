"""Where frames died, one measurement at a time: from those sent down to those received, a bar per place."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from netbench.model.units import Load
from netbench.report.formats import count, frames, mbps, rough_percent
from netbench.report.markup import Html, element, join
from netbench.report.panels import Style
from netbench.report.sections import Option, picked
from netbench.report.side_colours import RECEIVED, SENT, side_colour, sides_legend
from netbench.report.tables import uut_label
from netbench.statistics.groups import Group
from netbench.statistics.outcomes import Fate, GroupFate, group_fate


def waterfalls(name: str, groups: Sequence[Group], guests: Collection[str], looks: Mapping[str, Style]) -> Html:
    """A waterfall per UUT for a frame size and load to be picked; the smallest frames at the highest load first.

    `groups` are of one scenario and number of sources, `guests` the UUTs with a guest on their path. `name` tells this
    choice from others of the page.
    """
    measurements = {
        measurement: [(group, group_fate(group, guest=group.uut in guests)) for group in members]
        for measurement, members in _measurements(groups).items()
    }
    options = [
        Option(
            f"{size}-{load}",
            f"{size:,} bytes, {load}{_in_mbps([group for group, _ in members])}",
            f"{size:,}-byte frames",
        )
        for (size, load), members in measurements.items()
    ]
    known = [measurement for measurement, members in measurements.items() if any(fate for _, fate in members)]
    smallest = min((size for size, _ in known), default=0)
    start = next((f"{size}-{load}" for size, load in reversed(known) if size == smallest), options[0].value)
    parts = [
        element("div", *(_of_uut(group, fate, looks) for group, fate in members), css="fates")
        for members in measurements.values()
    ]
    sides = {death.side for members in measurements.values() for _, fate in members if fate for death in fate.deaths}
    return join((picked(name, "Frame size and load per source", options, parts, start), sides_legend(sides)))


def _measurements(groups: Iterable[Group]) -> dict[tuple[int, Load], list[Group]]:
    """Groups by frame size, the largest first, and load."""
    found: dict[tuple[int, Load], list[Group]] = {}
    for group in sorted(groups, key=lambda group: -group.frame_size):
        found.setdefault((group.frame_size, group.load), []).append(group)
    return found


def _in_mbps(groups: Sequence[Group]) -> str:
    """The load of a measurement in Mbit/s, where it does not say so itself."""
    intended = next((group.intended_mbps for group in groups if group.intended_mbps is not None), None)
    each = None if intended is None else intended / groups[0].sources
    return "" if each is None or "bit/s" in str(groups[0].load) else f" = {mbps(each)} Mbit/s"


def _of_uut(group: Group, fate: GroupFate | None, looks: Mapping[str, Style]) -> Html:
    heading = element("h4", uut_label(group.uut, looks))
    if fate is None:
        return element("div", heading, element("p", "No valid trial.", css="note"), css="fate")
    return element("div", heading, _waterfall(fate), element("p", _remark(fate), css="note"), css="fate")


def _waterfall(fate: Fate) -> Html:
    rows = [_row("sent", fate.sent, fate, (0, fate.sent), SENT)]
    left = fate.sent
    for death in fate.deaths:
        rows.append(_row(death.place, death.frames, fate, (left - death.frames, left), side_colour(death.side)))
        left -= death.frames
    rows.append(_row("received", fate.received, fate, (0, fate.received), RECEIVED))
    return element("table", element("tbody", *rows), css="waterfall")


def _row(name: str, number: int, fate: Fate, reach: tuple[int, int], colour: str) -> Html:
    """A step of the waterfall; its bar reaches between two numbers of frames."""
    first, last = (100 * min(1.0, max(0.0, end / fate.sent)) if fate.sent else 0.0 for end in sorted(reach))
    bar = element("span", style=f"left:{first:.2f}%;width:{last - first:.2f}%;background:{colour}")
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", frames(number), css="number"),
        element("td", rough_percent(number / fate.sent) if fate.sent else "", css="number"),
        element("td", element("div", bar), css="step"),
    )


def _remark(fate: GroupFate) -> str:
    kind = "suspicious trial" if fate.doubtful else "valid trial"
    left_out = [
        f"{len(trials):,} {word}"
        for word, trials in (
            ("suspicious", () if fate.doubtful else fate.group.suspicious),
            ("invalid", fate.group.invalid),
        )
        if trials
    ]
    text = count(fate.trials, kind) + (", added up" if fate.trials > 1 else "")
    return f"{text}; left out: {', '.join(left_out)}." if left_out else f"{text}."
