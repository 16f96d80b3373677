"""Line rates, loads, times and amounts of memory, with their units.

On the wire a frame costs 20 bytes more than its size: preamble 7, start-of-frame delimiter 1 and inter-frame gap 12
(IEEE 802.3, clauses 3.2 and 4.4). A rate that counts those 20 bytes is an L1 rate, one that does not is an L2 rate.
"""

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Self

from netbench.model.frame_size import FrameSize

WIRE_OVERHEAD_BYTES = 20
_SI = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# More digits than any real value has, and fewer than would overflow.
_NUMBER = r"(?P<number>\d{1,30}(?:\.\d{1,30})?)\s*"
_BIT_RATE = re.compile(_NUMBER + r"(?P<prefix>[kKMGT]?)bit/s")
_FRAME_RATE = re.compile(_NUMBER + r"(?P<prefix>[kKM]?)fps")
_OPERATION_RATE = re.compile(_NUMBER + r"(?P<prefix>[kKM]?)/s")
_SHARE = re.compile(_NUMBER + r"%")
_OF_MAXIMUM = re.compile(_NUMBER + r"% of (?:the )?maximum")
_MOST_OF_MAXIMUM = 1000
_TIME = re.compile(_NUMBER + r"(?P<unit>us|ms|s|min|h)")
_MEMORY = re.compile(r"(?P<number>\d{1,30})\s*(?P<unit>[MG])(?:i?B)?")
_MEBIBYTES = {"M": 1, "G": 1024}
_SECONDS = {"us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}


def line_rate_fps(link_bps: float, frame_bytes: float) -> float:
    """Return the frames/s that fill a link: link bit/s ÷ (8 × (frame size + 20)) (RFC 2544, section 20)."""
    return link_bps / l1_bits(frame_bytes)


def l1_bits(frame_bytes: float) -> float:
    """Return the bits of a frame of so many bytes on the wire, with preamble and gap."""
    return 8 * (frame_bytes + WIRE_OVERHEAD_BYTES)


def l2_bits(frame_bytes: float) -> float:
    """Return the bits of the frame itself, with FCS."""
    return 8 * frame_bytes


def parse_bit_rate(text: str) -> float:
    """Return the bit/s of a rate such as `1Gbit/s` or `400 Mbit/s`; ValueError for anything else."""
    match = _BIT_RATE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"not a bit rate; write for example 1Gbit/s or 400Mbit/s{bit_rate_hint(text)}")
    return _scaled(match["number"], _SI[match["prefix"]])


def parse_seconds(text: str | float) -> float:
    """Return the seconds of a time such as `500ms`, `1s`, `2min`, or a bare number of seconds; ValueError otherwise."""
    if isinstance(text, bool):
        raise ValueError("not a time; write for example 500ms or 2s")
    if isinstance(text, int | float):
        if not math.isfinite(text) or text < 0:
            raise ValueError("a time is a finite number of seconds, 0 or more")
        return float(text)
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise ValueError(f"not a time; write for example 500ms, 1s or 2min{time_hint(text)}")
    return _scaled(match["number"], _SECONDS[match["unit"]])


def parse_mebibytes(text: str) -> int:
    """Return the MiB of an amount of memory such as `256M` or `1G` (1024M); ValueError for anything else."""
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise ValueError(f"not an amount of memory; write for example 256M or 1G{memory_hint(text)}")
    return int(match["number"]) * _MEBIBYTES[match["unit"]]


def format_bit_rate(bps: float) -> str:
    """Return a bit rate as users write it: `1Gbit/s`, `400Mbit/s`."""
    prefix = next((prefix for prefix in ("T", "G", "M", "k") if bps >= _SI[prefix]), "")
    return f"{plain(Decimal(repr(bps)) / _SI[prefix])}{prefix}bit/s"


def plain(number: Decimal) -> str:
    """Return a number without an exponent, which no parser here accepts, and without trailing zeros."""
    return f"{number.normalize():f}"


def _scaled(number: str, factor: int | Decimal) -> float:
    """Return the float nearest to a product, so that a value written in another unit reads back unchanged."""
    return float(Decimal(number) * factor)


class LoadKind(Enum):
    """The unit in which a load was written."""

    L1_BIT_RATE = "bit/s"
    FRAME_RATE = "fps"
    OPERATION_RATE = "/s"
    SHARE = "%"
    OF_MAXIMUM = "% of maximum"
    MAX = "max"


_PER_SECOND = {LoadKind.FRAME_RATE: " frames/s", LoadKind.OPERATION_RATE: "/s", LoadKind.L1_BIT_RATE: " bit/s"}


def rate_text(rate: float, unit: LoadKind) -> str:
    """Return a rate in full: `1,234 frames/s`, `210/s`, `1,000,000 bit/s`."""
    digits = f"{rate:.3g}" if rate < _WHOLE_FROM and unit is LoadKind.OPERATION_RATE else f"{rate:,.0f}"
    return f"{digits}{_PER_SECOND[unit]}"


# From this rate of operations on, rates are whole numbers: some tools send whole messages per second only.
_WHOLE_FROM = 20


def nearest_rate(rate: float, unit: LoadKind) -> float:
    """Return the nearest rate that is offered: with six digits, of operations mostly a whole number."""
    if unit is LoadKind.OPERATION_RATE:
        return float(round(rate)) if rate >= _WHOLE_FROM else float(f"{rate:.3g}")
    return float(f"{rate:.6g}")


@dataclass(frozen=True, slots=True)
class Load:
    """The intended load of one source, or of one client.

    `value` is bit/s (L1; of a client: payload), frames per second, operations per second (requests, messages or
    connections of a client), or percent of line rate or of the UUT's maximum; 0 and unused for `max`, which is as fast
    as the generator or client can. `found` is the percentage of a maximum as a rate; None while that maximum is
    unknown.
    """

    kind: LoadKind
    value: float = 0.0
    found: "Load | None" = None

    @staticmethod
    def parse(text: str) -> "Load":
        """Parse a load as profiles have it: `400Mbit/s`, `148809fps`, `100/s`, `50%`, `50% of maximum`, or `max`."""
        return _parsed_load(text.strip())

    @classmethod
    def of_fps(cls, fps: float) -> Self:
        """Return a load of this number of frames per second."""
        return cls(LoadKind.FRAME_RATE, fps)

    @property
    def is_unknown(self) -> bool:
        """Whether it is a share of a maximum that is still unknown."""
        return self.kind is LoadKind.OF_MAXIMUM and self.found is None

    @property
    def as_requested(self) -> "Load":
        """The same without the known maximum of a UUT."""
        return replace(self, found=None)

    @property
    def as_rate(self) -> "Load":
        """The rate of a share of a known maximum; any other load itself."""
        return self.found or self

    def fps(self, frame_size: FrameSize, link_bps: float) -> float | None:
        """Return the frames/s at a frame size on a link of `link_bps`; None for `max`, operations, and if unknown."""
        match self.kind:
            case LoadKind.L1_BIT_RATE:
                return self.value / l1_bits(frame_size.mean_bytes)
            case LoadKind.FRAME_RATE:
                return self.value
            case LoadKind.OPERATION_RATE:
                return None
            case LoadKind.SHARE:
                return line_rate_fps(link_bps, frame_size.mean_bytes) * self.value / 100
            case LoadKind.OF_MAXIMUM:
                return None if self.found is None else self.found.fps(frame_size, link_bps)
            case LoadKind.MAX:
                return None

    def __str__(self) -> str:
        match self.kind:
            case LoadKind.L1_BIT_RATE:
                return format_bit_rate(self.value)
            case LoadKind.FRAME_RATE:
                return f"{plain(Decimal(repr(self.value)))}fps"
            case LoadKind.OPERATION_RATE:
                return f"{plain(Decimal(repr(self.value)))}/s"
            case LoadKind.SHARE:
                return f"{plain(Decimal(repr(self.value)))}%"
            case LoadKind.OF_MAXIMUM:
                return f"{plain(Decimal(repr(self.value)))}% of maximum"
            case LoadKind.MAX:
                return "max"


@lru_cache(maxsize=1024)  # the results of a campaign have the same few loads again and again
def _parsed_load(text: str) -> Load:
    if text == "max":
        return Load(LoadKind.MAX)
    for kind, pattern in (
        (LoadKind.L1_BIT_RATE, _BIT_RATE),
        (LoadKind.FRAME_RATE, _FRAME_RATE),
        (LoadKind.OPERATION_RATE, _OPERATION_RATE),
        (LoadKind.SHARE, _SHARE),
        (LoadKind.OF_MAXIMUM, _OF_MAXIMUM),
    ):
        match = pattern.fullmatch(text)
        if match:
            value = _scaled(match["number"], _SI[match.groupdict().get("prefix") or ""])
            if value <= 0:
                raise ValueError("a load must be more than 0")
            if kind is LoadKind.SHARE and value > 100:
                raise ValueError("a share of line rate is at most 100%")
            if kind is LoadKind.OF_MAXIMUM and value > _MOST_OF_MAXIMUM:
                raise ValueError(f"a share of the maximum is at most {_MOST_OF_MAXIMUM}%")
            return Load(kind, value)
    raise ValueError(f"not a load; write for example 400Mbit/s, 148809fps, 50%, 50% of maximum or max{load_hint(text)}")


_WRITTEN = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,15})?)(?:[eE]\+?(?P<power>\d{1,2}))?\s*(?P<unit>[A-Za-zµ%/ .]*)", re.ASCII
)
# Suggestions for values without a unit, or with an unsupported unit.
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
_MEBIBYTES_OF = {"": Decimal(1), "k": Decimal(1) / 1024, "M": Decimal(1), "G": Decimal(1024), "T": Decimal(1024**2)}
_MOST_DIGITS = 15


def load_hint(value: object) -> str:
    """Return ` did you mean …?` for an invalid load; empty if there is no suggestion."""
    if isinstance(value, str) and value.strip().lower() in ("max", "maximum", "full"):
        return _meant("max")
    if isinstance(value, str) and re.sub(r"[\s_-]", "", value.lower()) in ("linerate", "wirespeed"):
        return _meant("100%")
    number, prefix, unit = _number_and_unit(value)
    if number is None:
        return ""
    if not unit:
        if not prefix and number <= 1 and isinstance(value, float):
            return _percent_or_ratio(number)
        return _meant(*(f"{_short(number, prefix)}{suffix}" for suffix in ("fps", "bit/s")))
    if unit.lower() in ("percent", "pct"):
        return _meant(f"{plain(number)}%")
    if _FRAMES.fullmatch(unit):
        return _meant(f"{_short(number, prefix)}fps")
    return _bit_rate(number, prefix, unit)


def bit_rate_hint(value: object) -> str:
    """Return the same for an invalid rate of a link."""
    number, prefix, unit = _number_and_unit(value)
    if number is None:
        return ""
    if unit:
        return _bit_rate(number, prefix, unit)
    prefix = prefix or ("M" if number < 10**6 else "")  # link rates without a unit are usually in Mbit/s
    return _meant(f"{_short(number, prefix)}bit/s")


def time_hint(value: object) -> str:
    """Return the same for an invalid time."""
    match = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        return ""
    number, unit = _parsed_number(match), match["unit"].strip(" .")
    if unit in ("m", "M"):
        return _meant(f"{plain(number)}min", f"{plain(number)}ms")
    for right, spellings in _TIMES.items():
        if unit.lower() == right or unit.lower() in spellings:
            return _meant(f"{plain(number)}{right}")
    return ""


def memory_hint(value: object) -> str:
    """Return the same for an invalid amount of memory."""
    number, prefix, unit = _number_and_unit(value)
    if number is None or (unit and not _BYTES.fullmatch(unit) and unit.lower() != "b"):
        return ""
    mib = number * _MEBIBYTES_OF[prefix]
    if mib < 1:
        return ""
    whole = int(mib)
    return _meant(f"{whole // 1024}G" if whole % 1024 == 0 else f"{whole}M")


def percent_hint(value: object) -> str:
    """Return the same for an invalid percentage. A bare number up to 1 gets both, as percentage and ratio."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    match = _WRITTEN.fullmatch(f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value).strip())
    if not match or match["unit"].strip().lower() not in ("", "percent", "pct"):
        return ""
    number, is_bare = _parsed_number(match), not match["unit"].strip()
    return _percent_or_ratio(number) if is_bare and 0 < number <= 1 else _meant(f"{plain(number)}%")


def _percent_or_ratio(number: Decimal) -> str:
    return _meant(*(f"{plain(100 * ratio)}% (a ratio of {plain(ratio)})" for ratio in (number / 100, number)))


def _bit_rate(number: Decimal, prefix: str, unit: str) -> str:
    if _BYTES.fullmatch(unit):  # 10MB/s may be bytes, and may be meant as bits
        return _meant(f"{_short(number * 8, prefix)}bit/s", f"{_short(number, prefix)}bit/s")
    return _meant(f"{_short(number, prefix)}bit/s") if _BITS.fullmatch(unit) else ""


def _number_and_unit(value: object) -> tuple[Decimal | None, str, str]:
    """Return the number, the prefix and the unit of a value; the number is None if it has another form."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None, "", ""
    match = _WRITTEN.fullmatch(str(value).strip())
    if not match or not _parsed_number(match):
        return None, "", ""
    written = match["unit"].strip(" .")
    if written.lower() in ("percent", "pct") or written[:1] not in _PREFIXES:
        return _parsed_number(match), "", written
    rest = written[1:].strip()
    if rest and not any(unit.fullmatch(rest) for unit in (_BITS, _BYTES, _FRAMES)):
        return _parsed_number(match), "", written
    return _parsed_number(match), _PREFIXES[written[0]], rest


def _parsed_number(match: re.Match[str]) -> Decimal:
    return Decimal(match["number"]).scaleb(min(int(match["power"] or 0), _MOST_DIGITS))


def _short(number: Decimal, prefix: str) -> str:
    """Return `1000000` as `1M`, `100` with k as `100k`."""
    powers = ["", "k", "M", "G", "T"]
    power = powers.index(prefix)
    while number >= 1000 and number % 1000 == 0 and power + 1 < len(powers):
        number, power = number / 1000, power + 1
    return f"{plain(number)}{powers[power]}"


def _meant(*texts: str) -> str:
    return f"; did you mean {' or '.join(dict.fromkeys(texts))}?"
