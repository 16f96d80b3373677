"""Sizes of frames: one, or several in one stream in an order that repeats, a mix (RFC 6985, "IMIX Genome").

A frame size is the Ethernet frame including its 4-byte FCS, in bytes (RFC 1242, section 3.5 "Data link frame size").
Rates, loads and line rates of a mix are those of its mean size, because only the bytes of a frame determine its time on
a wire.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from netbench.errors import KeyedError

FCS_BYTES = 4
_ETHERNET_HEADER_BYTES = 14
MIN_FRAME_SIZE = 64
USUAL_MTU = 1500
MAX_MTU = 9216  # of switches and NICs that support jumbo frames
# RFC 6985, section 4. Links here take less than 16,000 bytes (j), and z, the MTU of the link, is written as a number.
_LETTERS = {
    "a": 64,
    "b": 128,
    "c": 256,
    "d": 512,
    "e": 1024,
    "f": 1280,
    "g": 1518,
    "h": 2112,
    "i": 9000,
    "j": 16_000,
}
_CUSTOM_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # section 5
_MOST_FRAMES = 1024  # of a genome; the array of the source xdp has this size (netbench/bpf/programs/source.c)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}")
_TIMES = re.compile(r"(?P<times>\d{1,4})\s*[x×]\s*(?P<size>\d{1,5})")
_FOR_EXAMPLE = "write for example {name: mine, genome: aaag} or {name: mine, genome: [7x64, 4x594, 1518]}"


def largest_frame(mtu: int) -> int:
    """Return the size of the largest frame on a link of this MTU, in bytes with FCS."""
    return _ETHERNET_HEADER_BYTES + mtu + FCS_BYTES


@dataclass(frozen=True, slots=True)
class FrameSize:
    """The size of frames, or a mix of sizes: frame number n of a stream has the size genome[n mod len(genome)].

    Sizes are in bytes with FCS. `name` is that of a mix in results; a single size has none, and a genome of one number.
    `packet` is the name of the frames' packet in results; empty for the plain one. Sizes sort by their mean, those of
    the plain packet first.
    """

    name: str
    genome: tuple[int, ...]
    packet: str = ""

    @staticmethod
    @lru_cache(maxsize=1024)  # the results of a campaign have the same few again and again
    def of(size: int, packet: str = "") -> "FrameSize":
        """Return a single size."""
        return FrameSize("", (size,), packet)

    def with_packet(self, packet: str) -> "FrameSize":
        """Return the same sizes of frames with the packet of this name; empty: the plain one."""
        return self if packet == self.packet else replace(self, packet=packet)

    @property
    def without_packet(self) -> "FrameSize":
        """The same sizes of plain frames."""
        return self.with_packet("")

    @property
    def is_mix(self) -> bool:
        """Whether frames have several sizes."""
        return self.name != ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its different sizes, the smallest first."""
        return tuple(sorted(set(self.genome)))

    @property
    def mean_bytes(self) -> float:
        """The mean size of its frames, in bytes with FCS."""
        return sum(self.genome) / len(self.genome) if self.is_mix else self.genome[0]

    @property
    def largest_bytes(self) -> int:
        """The size of its largest frames, in bytes with FCS."""
        return max(self.genome)

    @property
    def only_size(self) -> int:
        """The common size of all frames; ValueError for a mix, which an earlier check should have refused."""
        if self.is_mix:
            raise ValueError(f"{self}: frames of several sizes, where all are to have the same")
        return self.genome[0]

    def frames_by_size(self, numbers: range) -> dict[int, int]:
        """Return the number of frames of each size among the frames with these consecutive numbers."""
        length = len(self.genome)
        passes, rest = divmod(len(numbers), length)
        more = Counter(self.genome[number % length] for number in range(numbers.start, numbers.start + rest))
        once = Counter(self.genome)
        return {size: passes * once[size] + more[size] for size in self.sizes}

    @property
    def shares(self) -> str:
        """The number of frames of each size in a pass of the genome: `7 × 64, 4 × 594, 1 × 1518`."""
        once = Counter(self.genome)
        return ", ".join(f"{once[size]} × {size}" for size in self.sizes)

    @property
    def summary(self) -> str:
        """The mix in one line: `imix: 7 × 64, 4 × 594, 1 × 1518 bytes, 361.8 in the mean`."""
        return f"{self}: {self.shares} bytes, {self.mean_bytes:,.1f} in the mean"

    @property
    def in_letters(self) -> str:
        """The exact sequence in the notation of RFC 6985 (sections 4 and 5).

        It is `IMIX - aaag` if all sizes are in the table of the RFC, else `CUSTOM IMIX - AAB; A = 64, B = 594`. A mix
        with more than 26 sizes, not all in the table, is written as a list of sizes in runs (section 6.1).
        """
        known = {size: letter for letter, size in _LETTERS.items()}
        if set(self.genome) <= set(known):
            return f"IMIX - {''.join(known[size] for size in self.genome)}"
        if len(self.sizes) > len(_CUSTOM_LETTERS):
            return f"CUSTOM IMIX - {', '.join(map(str, _in_runs(self.genome)))}"
        letter_of = dict(zip(self.sizes, _CUSTOM_LETTERS, strict=False))
        table = ", ".join(f"{letter} = {size}" for size, letter in letter_of.items())
        return f"CUSTOM IMIX - {''.join(letter_of[size] for size in self.genome)}; {table}"

    @property
    def written(self) -> object:
        """The size or mix as a profile has it; the packet is a separate key there."""
        if self.without_packet == NAMED_MIXES.get(self.name):
            return self.name
        return {"name": self.name, "genome": _in_runs(self.genome)} if self.is_mix else self.only_size

    @property
    def stored(self) -> object:
        """The size or mix as results have it: `{size: 64, packet: vlan}` with a described packet."""
        if self.is_mix:
            return {"name": self.name, "genome": self.genome} | ({"packet": self.packet} if self.packet else {})
        return {"size": self.only_size, "packet": self.packet} if self.packet else self.only_size

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> object:
        """Return the pydantic schema: reads frame sizes of profiles and of results, writes those of results."""
        from pydantic_core import core_schema  # noqa: PLC0415 - not installed on the hosts of workers

        stored = core_schema.plain_serializer_function_ser_schema(lambda size: size.stored)
        return core_schema.no_info_plain_validator_function(stored_frame_size, serialization=stored)

    def text(self, unit: str) -> str:
        """Return `1,518` with a unit, or the name of a mix without a unit; then the packet, if it has a name."""
        return self._with_label(self.name or f"{self.only_size:,}{unit}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which users select it: `64 vlan`, and `64`, which means that size with any packet."""
        return tuple(dict.fromkeys((str(self), str(self.without_packet))))

    @property
    def in_bytes(self) -> str:
        """`1518 bytes`, `1518 bytes (vlan)`, or `imix`, for messages."""
        return (self.name or f"{self.only_size} bytes") + (f" ({self.packet})" if self.packet else "")

    @property
    def long_as(self) -> str:
        """`1518-byte`, or `imix`: the frames in the text of a neighbour's activity, by which results compare."""
        return self._with_label(self.name or f"{self.only_size}-byte")

    @property
    def frames_text(self) -> str:
        """`1,518-byte frames`, `1,518-byte vlan frames`, or `imix frames`."""
        return f"{self.text('-byte')} frames"

    def _with_label(self, size: str) -> str:
        return f"{size} {self.packet}" if self.packet else size

    def __str__(self) -> str:
        return f"{self}"

    def __format__(self, number: str) -> str:
        """Return the number in a format of numbers, or the name of a mix; then the packet: `64 vlan`."""
        return self._with_label(self.name or format(self.only_size, number))

    def __lt__(self, other: "FrameSize") -> bool:
        return (self.mean_bytes, self.name, self.packet) < (other.mean_bytes, other.name, other.packet)


# The "simple IMIX", 7:4:1: IP packets of 40, 576 and 1500 bytes, with 18 bytes of Ethernet; the smallest are padded.
IMIX = FrameSize("imix", (64,) * 7 + (594,) * 4 + (1518,))
# The same with the smallest frames that have room for IPv6, UDP and pktgen's header, and its checksum complement.
IMIX_V6 = FrameSize("imix-v6", (84,) * 7 + (594,) * 4 + (1518,))
NAMED_MIXES: Mapping[str, FrameSize] = {mix.name: mix for mix in (IMIX, IMIX_V6)}


def parse_frame_size(value: object) -> FrameSize:
    """Return a frame size or mix as users write it, in bytes with FCS; ValueError for anything else."""
    most = largest_frame(MAX_MTU)
    if type(value) is not int:
        return _mix_of(value, MIN_FRAME_SIZE, most)
    if value < MIN_FRAME_SIZE:
        raise ValueError(f"a frame has at least {MIN_FRAME_SIZE} bytes, FCS included")
    if value > most:
        raise ValueError(f"a frame has at most {most} bytes, FCS included")
    return FrameSize.of(value)


def stored_frame_size(value: object) -> FrameSize:
    """Return a frame size or mix as results have it: as users write it, and maybe with the name of a packet."""
    if not isinstance(value, Mapping) or "packet" not in value:
        return parse_frame_size(value)
    sizes = value["size"] if "size" in value else {key: item for key, item in value.items() if key != "packet"}
    return parse_frame_size(sizes).with_packet(str(value["packet"]))


def _mix_of(value: object, smallest: int, largest: int) -> FrameSize:
    """Return a mix as users write it: `imix`, or a name and a genome in letters or sizes; ValueError otherwise.

    A genome in letters uses those of RFC 6985; the sizes of capital letters are in `sizes`. A genome in sizes is a list
    of numbers, with the length of a run before the size, if more than one: `7x64`.
    """
    if isinstance(value, FrameSize):
        return value
    if isinstance(value, str) and value in NAMED_MIXES:
        return NAMED_MIXES[value]
    if not isinstance(value, Mapping):
        allowed = f"bytes with FCS, {smallest} to {largest}, imix or a mix"
        raise ValueError(f"not a frame size: {allowed}; {_FOR_EXAMPLE}{_size_hint(value)}")
    if unknown := sorted(set(value) - {"name", "genome", "sizes"}):
        raise ValueError(f"a mix has a name, a genome and maybe sizes of capital letters, no {unknown[0]}")
    name, genome, sizes = value.get("name"), value.get("genome"), value.get("sizes", {})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a mix needs a name: a letter, and up to 39 letters, digits, dots or dashes; {_FOR_EXAMPLE}")
    if not isinstance(genome, str | list | tuple) or not genome:
        raise ValueError(f"a mix needs a genome; {_FOR_EXAMPLE}")
    if not isinstance(genome, str) and sizes:
        raise KeyedError("sizes", "they define capital letters, and this genome has no letters")
    frames = _of_letters(genome, _custom(sizes)) if isinstance(genome, str) else _of_sizes(genome)
    if len(frames) > _MOST_FRAMES:
        raise ValueError(f"a genome of {len(frames):,} frames: at most {_MOST_FRAMES:,} are repeated")
    for size in sorted(set(frames)):
        if not smallest <= size <= largest:
            raise ValueError(f"a genome with frames of {size} bytes: {smallest} to {largest} are allowed, FCS included")
    if len(set(frames)) == 1:
        raise ValueError(f"a mix of one size only, which is no mix; write {frames[0]}")
    return FrameSize(name, frames)


def _custom(sizes: object) -> dict[str, int]:
    if not isinstance(sizes, Mapping):
        raise KeyedError("sizes", "what capital letters mean, for example {A: 72, B: 1400}")
    for letter, size in sizes.items():
        if letter not in set(_CUSTOM_LETTERS) or type(size) is not int:
            raise KeyedError("sizes", f"{letter}: a capital letter and its bytes with FCS, for example {{A: 72}}")
    return dict(sizes)


def _of_letters(genome: str, custom: Mapping[str, int]) -> tuple[int, ...]:
    known = {**_LETTERS, **custom}
    for letter in genome:
        if letter == "z":
            raise KeyedError(
                "genome", "z is the MTU of whatever link it is; write a list of sizes, or a capital letter"
            )
        if letter in _CUSTOM_LETTERS and letter not in known:
            raise KeyedError("genome", f"{letter} has no size; define it: sizes: {{{letter}: 72}}")
        if letter not in known:
            letters = ", ".join(f"{standard} = {size}" for standard, size in _LETTERS.items())
            raise KeyedError("genome", f"{letter!r} is none of the letters of RFC 6985: {letters}, or capital ones")
    if unused := sorted(set(custom) - set(genome)):
        raise KeyedError("sizes", f"{unused[0]} is not in the genome")
    return tuple(known[letter] for letter in genome)


def _of_sizes(genome: list[object] | tuple[object, ...]) -> tuple[int, ...]:
    frames: list[int] = []
    for item in genome:
        times = _TIMES.fullmatch(item.strip()) if isinstance(item, str) else None
        if times and int(times["times"]):
            frames += int(times["times"]) * [int(times["size"])]
        elif type(item) is int:
            frames.append(item)
        else:
            raise KeyedError("genome", f"{item!r} is no size; write bytes with FCS, for example 64, or 7x64")
    return tuple(frames)


def _in_runs(genome: tuple[int, ...]) -> list[int | str]:
    runs = ((size, len(list(run))) for size, run in groupby(genome))
    return [size if count == 1 else f"{count}x{size}" for size, count in runs]


def _size_hint(value: object) -> str:
    """Return `; did you mean …?` for an invalid frame size; empty if there is no suggestion."""
    written = str(value).strip().lower()
    if bytes_meant := re.fullmatch(r"(\d{2,5})(?:\.0)?\s*(?:b|bytes?|octets?)?", written):
        return f"; did you mean {bytes_meant[1]}?"
    return "; did you mean imix?" if written and sorted(set(written)) in (["i", "m", "x"], ["i", "m"]) else ""
