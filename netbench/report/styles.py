"""The styles, labels and colours of UUTs, the same wherever they are shown; labels mark UUTs with an emulated CPU.

All colours but those of fills and lines between cells have a contrast of 4.5 : 1 or more to the paper, as WCAG 2.2
(1.4.3) requires of text. UUTs differ in symbol, dash and pattern too, for readers who cannot tell colours apart.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from netbench.model.virtualisation import Setting

MARK = "(emulated)"
_MEANING = "these numbers describe the emulator, not the VMM"
LEGEND = f"{MARK}: the CPU is emulated; {_MEANING}"

# On a light and on a dark page.
_COLOURS: Mapping[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#16191c"),
    "ink": ("#1d2124", "#e8eaec"),
    "soft": ("#565c61", "#a9b0b6"),
    "line": ("#d5d8db", "#3c4247"),
    "grid": ("#e6e8ea", "#2b3034"),
    "shade": ("#f3f5f6", "#1f2326"),
    "link": ("#00568a", "#7cc4ff"),
    "doubt": ("#7d5200", "#f0b95a"),  # suspicious, and values to be read with care
    "bad": ("#a4161a", "#ff8f88"),  # invalid and failed
    "u0": ("#0063a6", "#6cb6ff"),
    "u1": ("#b54708", "#ff9f5a"),
    "u2": ("#00704a", "#4fd1a0"),
    "u3": ("#9c3587", "#ee8fdc"),
    "u4": ("#5b3fb5", "#b9a3ff"),
    "u5": ("#00707f", "#5fd0e0"),
    "u6": ("#4a4f54", "#c3c8cc"),
    # Where frames ended, along the path.
    "p0": ("#2f3437", "#e8eaec"),
    "p1": ("#565c61", "#bcc2c7"),
    "p2": ("#7f868c", "#8f969c"),
    "p3": ("#a6acb1", "#666d73"),
    "p4": ("#cdd1d4", "#454b50"),
}
INK, GREY = "var(--ink)", "var(--soft)"
_UUTS = tuple(f"var(--u{number})" for number in range(7))
PLACES = tuple(f"var(--p{number})" for number in range(5))

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
    size: float = 8.0  # pixels; larger for UUTs drawn first, so that equal points show as rings


@dataclass(frozen=True, slots=True)
class Style(MarkerStyle):
    """The style and label of a UUT in every figure. UUTs of different settings share no figure."""

    uut: str = ""
    label: str = ""
    setting: Setting = field(default_factory=Setting)

    @property
    def emulated(self) -> bool:
        """Whether the CPU of the UUT is emulated."""
        return bool(self.setting.emulators)


def styles(uuts: Iterable[str], settings: Mapping[str, Setting] = {}) -> dict[str, Style]:
    """A style for each UUT, in order; repeated colours have another dash and pattern.

    A UUT without a setting is treated as one on this machine's own CPU.
    """
    names = list(dict.fromkeys(uuts))
    emulated = {uut for uut in names if uut in settings and settings[uut].emulators}
    return {
        uut: Style(
            _UUTS[place % len(_UUTS)],
            _SYMBOLS[place % len(_SYMBOLS)],
            _DASHES[place // len(_UUTS) % len(_DASHES)],
            _PATTERNS[place // len(_UUTS) % len(_PATTERNS)],
            min(_LARGEST_MARKER, SMALLEST_MARKER + 1.5 * (len(names) - 1 - place)),
            uut,
            label(uut, emulated),
            settings.get(uut, Setting()),
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
    of_light, of_dark = ("; ".join(f"--{name}: {value}" for name, value in of.items()) for of in (light(), dark()))
    return (
        f":root {{ color-scheme: light dark; {of_light}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {of_dark}; }} }}"
    )


def light() -> dict[str, str]:
    """The colours of a light page by name."""
    return {name: colour for name, (colour, _) in _COLOURS.items()}


def dark() -> dict[str, str]:
    """The colours of a dark page by name."""
    return {name: colour for name, (_, colour) in _COLOURS.items()}


def on_paper(colour: str) -> str:
    """The colour on a light page, for use without a style sheet."""
    return re.sub(r"var\(--([a-z0-9]+)\)", lambda variable: _COLOURS[variable[1]][0], colour)
