"""Suggestions for values without a unit, or with an unsupported unit."""

import re
from decimal import Decimal

_WRITTEN = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,15})?)(?:[eE]\+?(?P<power>\d{1,2}))?\s*(?P<unit>[A-Za-zµ%/ .]*)", re.ASCII
)
_PREFIXES = {"k": "k", "K": "k", "m": "M", "M": "M", "g": "G", "G": "G", "t": "T", "T": "T"}
_BITS = re.compile(r"(?:bit|b|bits)(?:/?s|ps|/sec|/second|ersecond| per second)?|bE|E", re.IGNORECASE)
_BYTES = re.compile(r"(?:B|[Bb]ytes?|iB)(?:/?s|ps|/sec)?")
_FRAMES = re.compile(r"(?:frames?|packets?|pkts?|f|p)(?:/?s|ps|/sec|/second| per second)?", re.IGNORECASE)
_TIMES = {
    "us": ("u", "µs", "usec", "usecs", "microsecond", "microseconds"),
    "ms": ("msec", "msecs", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("minute", "minutes", "mins"),
    "h": ("hr", "hrs", "hour", "hours"),
}
_MEBIBYTES = {"": Decimal(1), "k": Decimal(1) / 1024, "M": Decimal(1), "G": Decimal(1024), "T": Decimal(1024**2)}
_MOST_DIGITS = 15


def load_hint(value: object) -> str:
    """Return ` did you mean …?` for an invalid load; empty if there is no suggestion."""
    if isinstance(value, str) and value.strip().lower() in ("max", "maximum", "full"):
        return _meant("max")
    if isinstance(value, str) and re.sub(r"[\s_-]", "", value.lower()) in ("linerate", "wirespeed"):
        return _meant("100%")
    number, prefix, unit = _parts(value)
    if number is None:
        return ""
    if not unit:
        if not prefix and number <= 1 and isinstance(value, float):
            return _percent_or_ratio(number)
        return _meant(*(f"{_short(number, prefix)}{suffix}" for suffix in ("fps", "bit/s")))
    if unit.lower() in ("percent", "pct"):
        return _meant(f"{_plain(number)}%")
    if _FRAMES.fullmatch(unit):
        return _meant(f"{_short(number, prefix)}fps")
    return _bit_rate(number, prefix, unit)


def bit_rate_hint(value: object) -> str:
    """Return the same for an invalid rate of a link."""
    number, prefix, unit = _parts(value)
    if number is None:
        return ""
    if unit:
        return _bit_rate(number, prefix, unit)
    prefix = prefix or ("M" if number < 10**6 else "")  # link rates without a unit are usually in Mbit/s
    return _meant(f"{_short(number, prefix)}bit/s")


def time_hint(value: object) -> str:
    """Return the same for an invalid time."""
    found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return ""
    number, unit = _number(found), found["unit"].strip(" .")
    if unit in ("m", "M"):
        return _meant(f"{_plain(number)}min", f"{_plain(number)}ms")
    for right, others in _TIMES.items():
        if unit.lower() == right or unit.lower() in others:
            return _meant(f"{_plain(number)}{right}")
    return ""


def memory_hint(value: object) -> str:
    """Return the same for an invalid amount of memory."""
    number, prefix, unit = _parts(value)
    if number is None or (unit and not _BYTES.fullmatch(unit) and unit.lower() != "b"):
        return ""
    mib = number * _MEBIBYTES[prefix]
    if mib < 1:
        return ""
    whole = int(mib)
    return _meant(f"{whole // 1024}G" if whole % 1024 == 0 else f"{whole}M")


def percent_hint(value: object) -> str:
    """Return the same for an invalid percentage. A bare number up to 1 gets both, as percentage and ratio."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    found = _WRITTEN.fullmatch(f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value).strip())
    if not found or found["unit"].strip().lower() not in ("", "percent", "pct"):
        return ""
    number, is_bare = _number(found), not found["unit"].strip()
    return _percent_or_ratio(number) if is_bare and 0 < number <= 1 else _meant(f"{_plain(number)}%")


def _percent_or_ratio(number: Decimal) -> str:
    return _meant(*(f"{_plain(100 * ratio)}% (a ratio of {_plain(ratio)})" for ratio in (number / 100, number)))


def size_hint(value: object) -> str:
    """Return the same for an invalid frame size."""
    written = str(value).strip().lower()
    if bytes_meant := re.fullmatch(r"(\d{2,5})(?:\.0)?\s*(?:b|bytes?|octets?)?", written):
        return _meant(bytes_meant[1])
    return _meant("imix") if written and sorted(set(written)) in (["i", "m", "x"], ["i", "m"]) else ""


def _bit_rate(number: Decimal, prefix: str, unit: str) -> str:
    if _BYTES.fullmatch(unit):  # 10MB/s may be bytes, and may be meant as bits
        return _meant(f"{_short(number * 8, prefix)}bit/s", f"{_short(number, prefix)}bit/s")
    return _meant(f"{_short(number, prefix)}bit/s") if _BITS.fullmatch(unit) else ""


def _parts(value: object) -> tuple[Decimal | None, str, str]:
    """Return the number, the prefix and the unit of a value; the number is None if it has another form."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None, "", ""
    found = _WRITTEN.fullmatch(str(value).strip())
    if not found or not _number(found):
        return None, "", ""
    written = found["unit"].strip(" .")
    if written.lower() in ("percent", "pct") or written[:1] not in _PREFIXES:
        return _number(found), "", written
    rest = written[1:].strip()
    if rest and not any(unit.fullmatch(rest) for unit in (_BITS, _BYTES, _FRAMES)):
        return _number(found), "", written
    return _number(found), _PREFIXES[written[0]], rest


def _number(found: re.Match[str]) -> Decimal:
    return Decimal(found["number"]).scaleb(min(int(found["power"] or 0), _MOST_DIGITS))


def _short(number: Decimal, prefix: str) -> str:
    """Return `1000000` as `1M`, `100` with k as `100k`."""
    powers = ["", "k", "M", "G", "T"]
    power = powers.index(prefix)
    while number >= 1000 and number % 1000 == 0 and power + 1 < len(powers):
        number, power = number / 1000, power + 1
    return f"{_plain(number)}{powers[power]}"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _meant(*texts: str) -> str:
    return f"; did you mean {' or '.join(dict.fromkeys(texts))}?"
