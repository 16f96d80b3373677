"""UUTs whose CPU is emulated, marked wherever their numbers are shown: those describe the emulator."""

from collections.abc import Collection, Iterable

_MEANING = "these numbers describe the emulator, not the VMM"
MARK = "(emulated)"
LEGEND = f"{MARK}: the CPU is emulated; {_MEANING}"


def label(uut: str, emulated: Collection[str]) -> str:
    """The name of a UUT as readers see it, marked if it is one of those `emulated`."""
    return f"{uut} {MARK}" if uut in emulated else uut


def note(uuts: Iterable[str]) -> str:
    """What must be read beside the numbers of these emulated UUTs."""
    return f"{', '.join(uuts)}: CPU emulated – {_MEANING}"
