"""The values of varying fields, and the bytes of frames that differ between flows, for sources and sinks.

It imports only numpy and the standard library: workers on other hosts load it.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from netbench.errors import UsageError
from netbench.model.frame_template import MOST_CHECKSUMS, MOST_WORDS, FieldPlace, FrameTemplate, VaryingPlace
from netbench.model.packet import ListedValues, RandomValues, SteppedValues, Values

Numbers = npt.NDArray[np.uint64]
_WORD_BYTES = 4
# A range of so many values is shuffled as a whole; values of a larger range are drawn, and drawn again if they repeat.
_MOST_SHUFFLED = 1 << 22
_CARRIES = 4  # of 16 bits, that one's complement sums of this many words can have


@lru_cache(maxsize=16)
def values_of(values: Values, seed: int) -> Numbers:
    """Return all values of a field in their order: uint64, shape (count,), read-only. `seed` is for random ones.

    numpy guarantees that its legacy generator (RandomState) returns the same numbers in all versions (NEP 19).
    """
    match values:
        case SteppedValues(first, step, count):
            # Modulo 2⁶⁴, so that negative steps are right as well.
            found = np.uint64(first % 2**64) + np.arange(count, dtype=np.uint64) * np.uint64(step % 2**64)
        case ListedValues(listed):
            found = np.array([value % 2**64 for value in listed], dtype=np.uint64)
        case RandomValues(least, most, count):
            found = np.uint64(least % 2**64) + _drawn(most - least + 1, count, seed)
    found.flags.writeable = False
    return found


def _drawn(span: int, count: int, seed: int) -> Numbers:
    """Return `count` different numbers below `span`, in a random order."""
    draw = np.random.RandomState(seed)
    if span <= _MOST_SHUFFLED:
        return draw.permutation(span)[:count].astype(np.uint64)
    found = np.empty(0, np.uint64)
    while len(found) < count:
        more = draw.randint(0, span, size=2 * count, dtype=np.uint64)
        together = np.concatenate((found, more))
        _, first = np.unique(together, return_index=True)
        found = together[np.sort(first)][:count]
    return found


def value_numbers(varying: VaryingPlace, flows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return which of its values a field has in these flows: indices of `values_of`, shape as `flows`."""
    numbers: npt.NDArray[np.int64] = flows // varying.frames_per_value % varying.values.count
    return numbers


class FlowBytes(NamedTuple):
    """The bytes that differ between the flows of a template.

    `words_at` are the offsets of 4-byte words, and `words` their contents, uint32 of shape (flows, len(words_at)), in
    the order of the bytes in the frame (`>u4` as it lies). `sums_at` are the offsets of checksums, `sums` (uint16,
    numbers, shape (flows, len(sums_at))) the number to add to the complement of the template's checksum, in one's
    complement arithmetic (RFC 1624, equation 3): checksum = ~(~template's + sum). `udp_sums` is which of them are never
    0. A template with one flow has none of either.
    """

    words_at: tuple[int, ...]
    words: npt.NDArray[np.uint32]
    sums_at: tuple[int, ...]
    sums: npt.NDArray[np.uint16]
    udp_sums: tuple[bool, ...]


def flow_bytes(template: FrameTemplate) -> FlowBytes:
    """Return the bytes that differ between flows; UsageError if there are more than a source can write."""
    flows = np.arange(template.flows, dtype=np.int64)
    frame = next(iter(template.frames.values()))
    halves = _halves(template, frame, flows) if template.flows > 1 else {}
    words_at = _words(sorted(halves), template)
    words = np.empty((template.flows, len(words_at)), ">u4")
    for number, at in enumerate(words_at):
        high, low = (halves.get(half, _half(frame, half)) for half in (at, at + 2))
        words[:, number] = high.astype(np.uint32) << 16 | low
    affected = [
        checksum for checksum in template.checksums if halves and any(_covers(checksum.covers, at) for at in halves)
    ]
    sums = np.zeros((template.flows, len(affected)), np.uint16)
    for number, checksum in reversed(list(enumerate(affected))):
        total = np.zeros(template.flows, np.uint64)
        for at, half in halves.items():
            times = sum(start <= at < stop for start, stop in checksum.covers)
            total += np.uint64(times) * (half.astype(np.uint64) + np.uint64(0xFFFF - int(_half(frame, at))))
        # Checksums of the headers inside are covered as well, and change by the opposite of their sums.
        for inner in range(number + 1, len(affected)):
            if _covers(checksum.covers, affected[inner].at):
                total += 0xFFFF ^ sums[:, inner]
        for _ in range(_CARRIES):
            total = (total & np.uint64(0xFFFF)) + (total >> np.uint64(16))
        sums[:, number] = total
    return FlowBytes(
        words_at,
        words.view(np.uint32),
        tuple(checksum.at for checksum in affected),
        sums,
        tuple(checksum.is_udp for checksum in affected),
    )


def first_bytes(template: FrameTemplate, flows: npt.NDArray[np.int64], size: int) -> list[bytes]:
    """Return the first bytes of the frames of these flows, `size` (even) bytes of each."""
    frame = next(iter(template.frames.values()))
    found = np.tile(np.frombuffer(frame[:size], ">u2"), (len(flows), 1))
    for at, half in _halves(template, frame, flows).items():
        if at < size:
            found[:, at // 2] = half
    return [row.tobytes() for row in found]


def check_layout(template: FrameTemplate) -> None:
    """Raise UsageError if more bytes differ between flows than a source can write; without the values of any flow."""
    if template.flows > 1:
        places = [varying.place for varying in template.varying if varying.place is not None]
        _words(sorted({at for place in places for at, _, _ in _parts(place)}), template)


def _halves(template: FrameTemplate, frame: bytes, flows: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.uint16]]:
    """Return the 16-bit words of a frame that contain varying fields, by offset, each with its value in each flow."""
    halves: dict[int, npt.NDArray[np.uint16]] = {}
    for varying in template.varying:
        if varying.place is None:
            continue
        values = values_of(varying.values, varying.seed)[value_numbers(varying, flows)]
        for at, mask, shift in _parts(varying.place):
            half = halves.get(at)
            if half is None:
                half = np.full(len(flows), _half(frame, at), np.uint16)
            shifted = values >> np.uint64(shift) if shift >= 0 else values << np.uint64(-shift)
            halves[at] = (half & np.uint16(0xFFFF ^ mask)) | (shifted.astype(np.uint16) & np.uint16(mask))
    return halves


def _parts(place: FieldPlace) -> list[tuple[int, int, int]]:
    """Return the 16-bit words of a frame that contain a field: offset, mask in it, and the bit of the value at bit 0.

    Only the low 64 bits of a field are considered: fields vary by less.
    """
    begin = place.at - place.at % 2
    end = place.at + place.size + (place.at + place.size) % 2
    mask = place.mask << 8 * (end - place.at - place.size)
    shift = (mask & -mask).bit_length() - 1
    parts = []
    for at in range(begin, end, 2):
        above = 8 * (end - at - 2)  # bits behind this word
        part = mask >> above & 0xFFFF
        if part and above - shift < 64:
            parts.append((at, part, above - shift))
    return parts


def _half(frame: bytes, at: int) -> np.uint16:
    return np.uint16(int.from_bytes(frame[at : at + 2]))


def _covers(ranges: tuple[tuple[int, int], ...], at: int) -> bool:
    return any(start <= at < stop for start, stop in ranges)


def _words(halves: list[int], template: FrameTemplate) -> tuple[int, ...]:
    """Return the offsets of 4-byte words that cover these 16-bit words, and nothing else that differs between frames.

    UsageError if there are too many, or too many checksums.

    Checksums and lengths differ between frames of the same flow: no word may contain them. Words may overlap, and may
    contain the beginning of pktgen's header: they have the same bytes there.
    """
    fixed = _differing(template) | {checksum.at for checksum in template.checksums}
    words: list[int] = []
    for at in halves:
        if words and at < words[-1] + _WORD_BYTES:
            continue
        free = [start for start in (at, at - 2) if start >= 0 and not {start, start + 2} & fixed]
        if not free:
            raise UsageError(f"the field at byte {at} of the frame lies between checksums or lengths, and cannot vary")
        words.append(free[0])
    if len(words) > MOST_WORDS or len(template.checksums) > MOST_CHECKSUMS:
        raise UsageError(
            f"fields that vary take {len(words)} words of 4 bytes and {len(template.checksums)} checksums of a "
            f"frame: at most {MOST_WORDS} and {MOST_CHECKSUMS}; let fewer fields vary"
        )
    return tuple(words)


def _differing(template: FrameTemplate) -> set[int]:
    """Return the offsets of the 16-bit words before the payload that differ between frame sizes."""
    first, *others = template.frames.values()
    return {
        at
        for at in range(0, template.payload_at, 2)
        if any(other[at : at + 2] != first[at : at + 2] for other in others)
    }


def frame_of_flow(varying: FlowBytes, frame: bytes, flow: int) -> bytes:
    """Return the frame of a flow; `frame` is that of flow 0 in the template, of the same size."""
    only = varying._replace(words=varying.words[flow : flow + 1], sums=varying.sums[flow : flow + 1])
    found = bytearray(frame)
    for at, word in zip(only.words_at, only.words[0], strict=True):
        found[at : at + _WORD_BYTES] = word.tobytes()
    for at, checksum in zip(only.sums_at, checksums_of(only, frame)[0].tolist(), strict=True):
        found[at : at + 2] = checksum.to_bytes(2)
    return bytes(found)


def checksums_of(varying: FlowBytes, frame: bytes) -> npt.NDArray[np.uint16]:
    """Return the checksums at `sums_at` in a frame of the template, for each flow: numbers, shape as `sums`."""
    complements = [0xFFFF ^ int(_half(frame, at)) for at in varying.sums_at]
    totals = varying.sums.astype(np.uint32) + np.array(complements, np.uint32)
    values = 0xFFFF ^ ((totals & 0xFFFF) + (totals >> 16))
    values[(values == 0) & np.array(varying.udp_sums, np.bool_)] = 0xFFFF
    return values.astype(np.uint16)
