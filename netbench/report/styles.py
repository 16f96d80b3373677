"""How UUTs look and what they are called wherever they are shown; those whose CPU is emulated are marked there."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from netbench.model.virtualisation import Setting
from netbench.report.chart import Look
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
    """How a UUT looks and what it is called in every figure."""

    uut: str
    label: str
    emulated: bool
    colour: str
    symbol: str
    dash: str  # of its lines
    pattern: str  # of its bars
    size: float  # of its markers, in pixels: larger for those drawn first, so that equals show as rings
    setting: Setting  # UUTs of different ones are in no figure together

    @property
    def look(self) -> Look:
        """The same for what draws it."""
        return Look(self.colour, self.symbol, self.dash, self.pattern, self.size)


def styles(uuts: Iterable[str], settings: Mapping[str, Setting] = {}) -> dict[str, Style]:
    """A style for each UUT, in order; used-up colours come again with another dash and pattern.

    Of one without a setting nothing is known: it is taken for one of this machine's own CPU.
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
    """The name of a UUT as readers see it, marked if it is one of those `emulated`."""
    return f"{uut} {MARK}" if uut in emulated else uut


def emulation_note(uuts: Iterable[str]) -> str:
    """What must be read beside the numbers of these emulated UUTs."""
    return f"{', '.join(uuts)}: CPU emulated – {_MEANING}"
