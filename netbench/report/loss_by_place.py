"""The loss curve of a UUT split by where the frames died."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from netbench.report.formats import count, frames, mbps, rough_percent
from netbench.report.panels import INK, Panels, Style, size_titles
from netbench.report.side_colours import place_colours
from netbench.report.traces import HOVER, LOSS, end_of_axis
from netbench.statistics.guest_sides import Side
from netbench.statistics.outcomes import Death, GroupFate
from netbench.statistics.placed_losses import along_the_path

_OFFERED = "Offered load [Mbit/s, L1]"


def loss_by_place(fates: Sequence[GroupFate], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size with a loss: loss against offered load, areas of places one on the other along the path.

    `fates` are those of one UUT, scenario and number of sources. The upper edge of all areas is the loss. Hollow marks
    stand for suspicious trials, where there are no others.
    """
    deaths = {death.place: death for fate in fates for death in fate.deaths}
    places = [deaths[place] for place in along_the_path(deaths)]
    colours = place_colours(places)
    by_size = _by_size(fates)
    panels = Panels(size_titles(by_size), (fate.group.uut for fate in fates), looks, _OFFERED, LOSS)
    for size, own in by_size.items():
        highest = max(100 * sum(fate.ratio(death) for death in fate.deaths) for fate in own)
        panels.scale(size, [0, end_of_axis((), [_offered(fate) for fate in own])], [0, 1.05 * highest or 1.0])
        for place in places:
            panels.add(size, _area(place, own, colours[place.place], named=size == max(by_size)))
    panels.leave_room_for([_name(place) for place in places])
    panels.figure.update_layout(legend_traceorder="normal")
    return panels.figure


def _area(place: Death, fates: Sequence[GroupFate], colour: str, *, named: bool) -> go.Scatter:
    there = [next((death for death in fate.deaths if death.place == place.place), None) for fate in fates]
    return go.Scatter(
        x=[_offered(fate) for fate in fates],
        y=[0.0 if death is None else 100 * fate.ratio(death) for fate, death in zip(fates, there, strict=True)],
        mode="lines+markers",
        stackgroup="places",
        line={"color": colour, "width": 1},
        fillcolor=colour,
        fillpattern={"shape": "/" if place.side is Side.UNKNOWN else "", "bgcolor": colour, "fgcolor": INK, "size": 6},
        marker={
            "color": colour,
            "size": [0 if death is None else 6 for death in there],
            "symbol": ["circle-open" if fate.doubtful else "circle" for fate in fates],
        },
        hovertext=["" if death is None else _hover(fate, death) for fate, death in zip(fates, there, strict=True)],
        hovertemplate=HOVER,
        name=_name(place),
        legendgroup=place.place,
        showlegend=named,
    )


def _by_size(fates: Iterable[GroupFate]) -> dict[int, list[GroupFate]]:
    """Fates by rising offered load of each frame size of which any died, the largest first."""
    found: dict[int, list[GroupFate]] = {}
    for fate in sorted(fates, key=lambda fate: (-fate.group.frame_size, _offered(fate))):
        found.setdefault(fate.group.frame_size, []).append(fate)
    return {size: own for size, own in found.items() if any(fate.deaths for fate in own)}


def _offered(fate: GroupFate) -> float:
    """Mbit/s (L1), the mean over the trials that make up the fate."""
    trials = fate.group.suspicious if fate.doubtful else fate.group.valid
    known = [one.offered_mbps for one in trials if one.offered_mbps is not None]
    return sum(known) / len(known) if known else 0.0


def _name(death: Death) -> str:
    return escape(death.place if death.side in (Side.UNKNOWN, Side.HOST) else f"{death.place}: {death.side.value}")


def _hover(fate: GroupFate, death: Death) -> str:
    kind = "suspicious trial" if fate.doubtful else "valid trial"
    return "<br>".join(
        (
            f"<b>{escape(death.place)}</b>, {death.side.value}",
            f"{escape(str(fate.group.load))}, offered {mbps(_offered(fate))} Mbit/s",
            f"{frames(death.frames)} of {frames(fate.sent)} frames = {rough_percent(fate.ratio(death))}",
            f"in {count(fate.trials, kind)}",
        )
    )
