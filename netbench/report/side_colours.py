"""The colours of what became of frames: where they died by side of the guest, and those that arrived."""

from collections.abc import Iterable

from netbench.report.markup import Html, element, join
from netbench.statistics.guest_sides import Side
from netbench.statistics.outcomes import Death

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


def place_colours(deaths: Iterable[Death]) -> dict[str, str]:
    """A colour for each place of some deaths: that of its side, paler for each further place there."""
    colours: dict[str, str] = {}
    taken: dict[Side, int] = {}
    for death in deaths:
        if death.place not in colours:
            nth = taken.get(death.side, 0)
            taken[death.side] = nth + 1
            colours[death.place] = _mixed_with_white(_SIDES[death.side], 1 - (1 - _PALER) ** nth)
    return colours


def swatch(colour: str) -> Html:
    """A small square of a colour, to be put before a name."""
    return element("span", css="swatch", style=f"background:{colour}")


def sides_legend(sides: Iterable[Side]) -> Html:
    """What the colours mean, those of the sides that occur in their order, and of frames that arrived."""
    occurring = set(sides)
    entries = [(_SIDES[side], side.value) for side in Side if side in occurring]
    named = [element("span", swatch(colour), name) for colour, name in (*entries, (RECEIVED, "received"))]
    return element("p", join(named, " "), css="sides")


def _mixed_with_white(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
