"""Suggestions for mistyped names. Shell completion uses them too, so this module imports little."""

import difflib
from collections.abc import Iterable

_ALIKE = 0.65  # of difflib's ratio: `rwa` matches `raw`
HINT = "; did you mean "


def close_to(value: object, known: Iterable[str]) -> str:
    """Return the known name that a value resembles; empty if there is none."""
    by_small = {name.lower(): name for name in known}
    small = str(value).lower()
    begins = [name for name in by_small if len(small) > 1 and name.startswith(small)]
    matches = begins[:1] or difflib.get_close_matches(small, list(by_small), n=1, cutoff=_ALIKE)
    return by_small[matches[0]] if matches else ""


def did_you_mean(value: object, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of the known names resembles a value; empty otherwise."""
    close = close_to(value, known)
    return f"{HINT}{close}?" if close else ""


def choices(value: object, known: Iterable[str], plural: str = "there") -> str:
    """Return `did you mean A? there are A, B`, with the suggestion only if a known name resembles the value."""
    names = list(known)
    close = close_to(value, names)
    return f"{f'did you mean {close}? ' if close else ''}{plural} are {', '.join(names)}"
