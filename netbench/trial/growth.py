"""How much a counter grew between two readings, whether it began again from 0 in between or was reset."""

# No counter of 64 bits is ever full. Some are of 32, whatever they are shown as.
_NARROW = 1 << 32


def growth(before: int | None, after: int | None) -> int | None:
    """By how much a counter grew; None when that cannot be known.

    A counter that is lower than before has either wrapped or been reset. It has wrapped when it fitted into 32 bits,
    filled more than half of them, and grew by less than half (as RFC 1982, section 3.2, compares numbers).
    """
    if before is None or after is None:
        return None
    if after >= before:
        return after - before
    wrapped = after - before + _NARROW
    return wrapped if _NARROW // 2 <= before < _NARROW and wrapped < _NARROW // 2 else None
