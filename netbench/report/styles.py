"""The styles and labels of UUTs, the same wherever they are shown; labels mark UUTs with an emulated CPU."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from netbench.model.virtualisation import Setting
from netbench.report.chart import MarkerStyle
from netbench.report.palette import UUTS

MARK = "(emulated)"
_MEANING = "these numbers describe the emulator, not the VMM"
LEGEND = f"{MARK}: the CPU is emulated; {_MEANING}"

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagram")
_DASHES = ("solid", "dash", "dashdot", "longdash")
_PATTERNS = ("", "/", "\\", "x")
SMALLEST_MARKER = 7.0  # pixels
_LARGEST_MARKER = 13.0


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
    def look(self) -> MarkerStyle:
        """The style as a `Look`, which charts are drawn with."""
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
            UUTS[place % len(UUTS)],
            _SYMBOLS[place % len(_SYMBOLS)],
            _DASHES[place // len(UUTS) % len(_DASHES)],
            _PATTERNS[place // len(UUTS) % len(_PATTERNS)],
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
