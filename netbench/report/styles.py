"""The styles, labels and colours of UUTs, the same wherever they are shown; labels mark UUTs with an emulated CPU.

All colours but those of fills and lines between cells have a contrast of 4.5 : 1 or more to the paper, as WCAG 2.2
(1.4.3) requires of text. UUTs differ in symbol, dash and pattern too, for readers who cannot tell colours apart.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from netbench.model.virtualisation import Setting

MARK = "(emulated)"
_MEANING = "these numbers describe the emulator, not the VMM"
LEGEND = f"{MARK}: the CPU is emulated; {_MEANING}"

_LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1d2124",
    "soft": "#565c61",
    "line": "#d5d8db",
    "grid": "#e6e8ea",
    "shade": "#f3f5f6",
    "link": "#00568a",
    "doubt": "#7d5200",  # suspicious, and values to be read with care
    "bad": "#a4161a",  # invalid and failed
    "u0": "#0063a6",
    "u1": "#b54708",
    "u2": "#00704a",
    "u3": "#9c3587",
    "u4": "#5b3fb5",
    "u5": "#00707f",
    "u6": "#4a4f54",
    # Where frames ended, along the path.
    "p0": "#2f3437",
    "p1": "#565c61",
    "p2": "#7f868c",
    "p3": "#a6acb1",
    "p4": "#cdd1d4",
}
_DARK: Mapping[str, str] = {
    "paper": "#16191c",
    "ink": "#e8eaec",
    "soft": "#a9b0b6",
    "line": "#3c4247",
    "grid": "#2b3034",
    "shade": "#1f2326",
    "link": "#7cc4ff",
    "doubt": "#f0b95a",
    "bad": "#ff8f88",
    "u0": "#6cb6ff",
    "u1": "#ff9f5a",
    "u2": "#4fd1a0",
    "u3": "#ee8fdc",
    "u4": "#b9a3ff",
    "u5": "#5fd0e0",
    "u6": "#c3c8cc",
    "p0": "#e8eaec",
    "p1": "#bcc2c7",
    "p2": "#8f969c",
    "p3": "#666d73",
    "p4": "#454b50",
}
INK, GREY = "var(--ink)", "var(--soft)"
_UUTS = tuple(f"var(--{name})" for name in _LIGHT if name.startswith("u") and name[1:].isdigit())
PLACES = tuple(f"var(--{name})" for name in _LIGHT if name.startswith("p") and name[1:].isdigit())
_VARIABLE = re.compile(r"var\(--([a-z0-9]+)\)")

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagram")
_DASHES = ("solid", "dash", "dashdot", "longdash")
_PATTERNS = ("", "/", "\\", "x")
SMALLEST_MARKER = 7.0  # pixels
_LARGEST_MARKER = 13.0


@dataclass(frozen=True, slots=True)
class MarkerStyle:
    """The style of a series: colours are those of CSS, or the variables of `css`."""

    colour: str
    symbol: str = "circle"  # `-open` behind it: hollow; `-open-dot`: with a dot in it; `x`: a cross
    dash: str = "solid"
    pattern: str = ""  # of bars; empty: plain
    size: float = 8.0  # pixels


@dataclass(frozen=True, slots=True)
class Style:
    """The style and label of a UUT in every figure."""

    uut: str
    label: str
    emulated: bool
    colour: str
    symbol: str
    dash: str  # of its lines
    pattern: str  # of its bars
    size: float  # of its markers, in pixels: larger for those drawn first, so that equal points show as rings
    setting: Setting  # UUTs of different settings share no figure

    @property
    def marker(self) -> MarkerStyle:
        """The style of its series in charts."""
        return MarkerStyle(self.colour, self.symbol, self.dash, self.pattern, self.size)


def styles(uuts: Iterable[str], settings: Mapping[str, Setting] = {}) -> dict[str, Style]:
    """A style for each UUT, in order; repeated colours have another dash and pattern.

    A UUT without a setting is treated as one on this machine's own CPU.
    """
    names = list(dict.fromkeys(uuts))
    where = {uut: settings.get(uut, Setting()) for uut in names}
    emulated = {uut for uut in names if where[uut].emulators}
    return {
        uut: Style(
            uut,
            label(uut, emulated),
            uut in emulated,
            _UUTS[place % len(_UUTS)],
            _SYMBOLS[place % len(_SYMBOLS)],
            _DASHES[place // len(_UUTS) % len(_DASHES)],
            _PATTERNS[place // len(_UUTS) % len(_PATTERNS)],
            min(_LARGEST_MARKER, SMALLEST_MARKER + 1.5 * (len(names) - 1 - place)),
            where[uut],
        )
        for place, uut in enumerate(names)
    }


def label(uut: str, emulated: Collection[str]) -> str:
    """The displayed name of a UUT, marked if it is among the `emulated` ones."""
    return f"{uut} {MARK}" if uut in emulated else uut


def emulation_note(uuts: Iterable[str]) -> str:
    """The note that goes with the numbers of these emulated UUTs."""
    return f"{', '.join(uuts)}: CPU emulated – {_MEANING}"


def css() -> str:
    """The colours as variables of a style sheet: light, and dark for readers who prefer that."""
    light, dark = ("; ".join(f"--{name}: {value}" for name, value in of.items()) for of in (_LIGHT, _DARK))
    return (
        f":root {{ color-scheme: light dark; {light}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}"
    )


def light() -> Mapping[str, str]:
    """The colours of a light page by name."""
    return _LIGHT


def dark() -> Mapping[str, str]:
    """The colours of a dark page by name."""
    return _DARK


def on_paper(colour: str) -> str:
    """The colour on a light page, for use without a style sheet."""
    return _VARIABLE.sub(lambda variable: _LIGHT[variable[1]], colour)
