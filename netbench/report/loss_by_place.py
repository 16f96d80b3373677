"""The loss curve of a UUT split by where the frames were lost, and the colours of what became of frames."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from netbench.model.frame_mix import FrameSize, rising
from netbench.report.axes import LOSS, OFFERED, end_of_axis
from netbench.report.chart import Chart, Trace
from netbench.report.formats import count, frames, mbps, rough_percent
from netbench.report.markup import Html, element, join
from netbench.report.panels import HOVER, INK, Panels, size_titles
from netbench.report.styles import Style
from netbench.report.tables import swatch
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import known_interval
from netbench.statistics.lost_frames import Drop, GroupOutcome, LossPlace, Side

SENT = "#767676"
RECEIVED = "#009e73"
_SIDES = {
    Side.BEFORE: "#d55e00",
    Side.INSIDE: "#0072b2",
    Side.AFTER: "#cc79a7",
    Side.HOST: "#56b4e9",
    Side.TESTER: "#222222",
    Side.UNKNOWN: "#f0c800",
}
_PALER = 0.4  # each further place on the same side


def side_colour(side: Side) -> str:
    """The colour of a side, as #rrggbb."""
    return _SIDES[side]


def place_colours(drops: Iterable[Drop]) -> dict[LossPlace, str]:
    """A colour for each place of some drops, each named once: that of its side, paler for each further place there."""
    return {
        drop.place: _mixed_with_white(side_colour(side), 1 - (1 - _PALER) ** nth)
        for side, on_side in grouped(drops, lambda drop: drop.side).items()
        for nth, drop in enumerate(on_side)
    }


def sides_legend(sides: Iterable[Side]) -> Html:
    """What the colours mean, those of the sides that occur in their order, and of frames that arrived."""
    occurring = set(sides)
    entries = [(_SIDES[side], side.value) for side in Side if side in occurring]
    named = [element("span", swatch(colour), name) for colour, name in (*entries, (RECEIVED, "received"))]
    return element("p", join(named, " "), css="sides")


def _mixed_with_white(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def loss_by_place(outcomes: Sequence[GroupOutcome], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size with a loss: loss against offered load, areas of places one on the other along the path.

    `outcomes` are those of one UUT, scenario and number of sources. The upper edge of all areas is the loss. Hollow
    marks stand for suspicious trials, where there are no others.
    """
    drops = {drop.place: drop for outcome in outcomes for drop in outcome.drops}
    places = [drops[place] for place in sorted(drops)]
    colours = place_colours(places)
    by_size = _by_size(outcomes)
    panels = Panels(size_titles(by_size), (outcome.group.uut for outcome in outcomes), looks, OFFERED, LOSS)
    for size, own in by_size.items():
        highest = max(100 * sum(outcome.ratio(drop) for drop in outcome.drops) for outcome in own)
        panels.scale(size, [0, end_of_axis((), [_offered(outcome) for outcome in own])], [0, 1.05 * highest or 1.0])
        for place in places:
            panels.add(size, _area(place, own, colours[place.place], named=size == next(iter(by_size))))
    panels.leave_room_for([_name(place) for place in places])
    panels.figure.layout["legend"]["traceorder"] = "normal"
    return panels.figure


def _area(place: Drop, outcomes: Sequence[GroupOutcome], colour: str, *, named: bool) -> Trace:
    there = [next((drop for drop in outcome.drops if drop.place == place.place), None) for outcome in outcomes]
    return {
        "type": "scatter",
        "x": [_offered(outcome) for outcome in outcomes],
        "y": [
            0.0 if drop is None else 100 * outcome.ratio(drop) for outcome, drop in zip(outcomes, there, strict=True)
        ],
        "mode": "lines+markers",
        "stackgroup": "places",
        "line": {"color": colour, "width": 1},
        "fillcolor": colour,
        "fillpattern": {
            "shape": "/" if place.side is Side.UNKNOWN else "",
            "bgcolor": colour,
            "fgcolor": INK,
            "size": 6,
        },
        "marker": {
            "color": colour,
            "size": [0 if drop is None else 6 for drop in there],
            "symbol": ["circle-open" if outcome.doubtful else "circle" for outcome in outcomes],
        },
        "hovertext": [
            "" if drop is None else _hover(outcome, drop) for outcome, drop in zip(outcomes, there, strict=True)
        ],
        "hovertemplate": HOVER,
        "name": _name(place),
        "legendgroup": place.place.name,
        "showlegend": named,
    }


def _by_size(outcomes: Iterable[GroupOutcome]) -> dict[FrameSize, list[GroupOutcome]]:
    """Outcomes by rising offered load of each frame size of which any frame was lost, the largest first."""
    by_load = sorted(outcomes, key=_offered)
    in_order = sorted(by_load, key=lambda outcome: rising(outcome.group.frame_size), reverse=True)
    by_size = grouped(in_order, lambda outcome: outcome.group.frame_size)
    return {size: own for size, own in by_size.items() if any(outcome.drops for outcome in own)}


def _offered(outcome: GroupOutcome) -> float:
    """Mbit/s (L1), the mean over the trials that make up the outcome."""
    group = outcome.group
    offered = known_interval(one.offered_mbps for one in group.suspicious) if outcome.doubtful else group.offered_mbps
    return 0.0 if offered is None else offered.mean


def _name(drop: Drop) -> str:
    return escape(
        drop.place.name if drop.side in (Side.UNKNOWN, Side.HOST) else f"{drop.place.name}: {drop.side.value}"
    )


def _hover(outcome: GroupOutcome, drop: Drop) -> str:
    kind = "suspicious trial" if outcome.doubtful else "valid trial"
    return "<br>".join(
        (
            f"<b>{escape(drop.place.name)}</b>, {drop.side.value}",
            f"{escape(str(outcome.group.load))}, offered {mbps(_offered(outcome))} Mbit/s",
            f"{frames(drop.frames)} of {frames(outcome.sent)} frames = {rough_percent(outcome.ratio(drop))}",
            f"in {count(outcome.trials, kind)}",
        )
    )
