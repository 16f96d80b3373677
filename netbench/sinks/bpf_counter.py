"""Data exchanged between the program bpf/programs/sink.c and netbench: its settings, and its counts of a trial.

The structures match its source, field by field.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from netbench.bpf.libbpf import BpfMap, Loaded, load
from netbench.capture.capture_counts import ArrivalTimes, CaptureCounts, Expected, StreamCapture
from netbench.capture.distribution import Distribution
from netbench.capture.sequences import losses_of, tracker_of
from netbench.errors import UsageError
from netbench.hosts.clock import ClockReading
from netbench.model.distributions import ClockOffset
from netbench.model.packet_counts import PacketCounts
from netbench.sinks.bpf_headers import HeaderMaps
from netbench.sinks.bpf_sizes import GENOME, MOST_PLACES, SizeMaps, genome_of

SAMPLE_BYTES = 240

_STEP_BITS = 10
_SPREAD = np.dtype([("count", "u8"), ("sum", "i8"), ("least", "i8"), ("most", "i8"), ("steps", "u4", 34 << _STEP_BITS)])
_COUNTS = np.dtype(
    [
        *((name, "u4") for name in ("lock", "to_sample")),
        *((name, "u8") for name in ("matched", "foreign", "control", "frames", "distinct", "reordered")),
        *((name, "u8") for name in ("lowest", "next", "first_ns", "last_ns", "first_stamp_us", "last_stamp_us")),
        *((name, "u8") for name in ("too_late", "ranges", "sampled", "low", "high")),
        ("late", "u8", 256),
        *((name, _SPREAD) for name in ("delay", "variation", "extent")),
    ]
)
_SETTINGS = np.dtype(
    [
        *((name, "u8") for name in ("start", "stop", "from_us", "until_us")),
        ("clock_ns", "i8"),
        *((name, "u4") for name in ("source", "network", "netmask", "destination", "snap_length")),
        *((name, "u4") for name in ("stamped", "stamped_early", "number_mask", "time_shift", "sample_every")),
        ("genome", GENOME),
    ]
)
_SAMPLE = np.dtype([("at_ns", "u8"), ("length", "u8"), ("bytes", "u1", SAMPLE_BYTES)])
# The least and the most sequence numbers with a bit: a page of the loss runs', and 256 MiB.
_LEAST_ROOM, _MOST_ROOM = 1 << 16, 1 << 31
# The highest rate of a source without a rate limit, in frames/s: twice the line rate of 10 Gbit/s, at 64 bytes.
_MOST_FPS = 32_000_000
# The most arrival times that are stored; with more numbers, only those of every second frame, every fourth …
_MOST_TIMES = 1 << 20
_MOST_SAMPLED = 1 << 14


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many sequence numbers have a bit in the program, a power of two, and how many sampled frames it can store.

    `flows` are those of a described packet; 0 for plain frames, which another program counts. `sizes` is the number of
    different frame sizes.
    """

    numbers: int
    sampled: int
    flows: int = 0
    sizes: int = 1

    @classmethod
    def needed(cls, frames: int | None, duration_s: float, sample_every: int, flows: int = 0, sizes: int = 1) -> Self:
        """Return the room for a trial of so many frames; None: as many as can be sent in its duration."""
        expected = round(duration_s * _MOST_FPS) if frames is None else frames
        room = min(max(_LEAST_ROOM, 1 << (expected - 1).bit_length()), _MOST_ROOM)
        return cls(room, min(expected // sample_every + 1, _MOST_SAMPLED) if sample_every else 1, flows, sizes)

    @property
    def times(self) -> int:
        """The number of arrival times that are stored."""
        return min(self.numbers, _MOST_TIMES)

    @property
    def times_by_size(self) -> int:
        """The number of arrival times that are stored by size: all of them; for each size, the last may not be full."""
        return self.times + 2 * MOST_PLACES if self.sizes > 1 else 1

    @property
    def time_shift(self) -> int:
        """The binary logarithm of n, if the time of every nth frame is stored."""
        return (self.numbers // self.times).bit_length() - 1

    def fits(self, other: "Capacity") -> bool:
        """Return whether this room is at least as large as the other, and for the same program."""
        here, there = ((room.numbers, room.sampled, room.flows, room.sizes) for room in (self, other))
        is_large = all(own >= needed for own, needed in zip(here, there, strict=True))
        return is_large and bool(self.flows) == bool(other.flows)


class BpfCounter:
    """The program with its maps in the kernel, for trials that need at most this room; removed by close()."""

    def __init__(self, room: Capacity, program: str) -> None:
        """Load the program of this name from its source; errors as in netbench.bpf.libbpf.load."""
        self.room, self._program = room, program
        sizes = {"arrived": room.numbers // 64, "times": room.times, "samples": room.sampled}
        of_frames = {"flows": max(room.flows, 1), "shapes": room.sizes, "times_by_size": room.times_by_size}
        self._loaded: Loaded = load("sink", sizes | of_frames, program)
        maps = {name: self._loaded.map(name) for name in ("settings", "counts", "history", *sizes)}
        self._maps: dict[str, BpfMap] = maps
        self._arrived = np.frombuffer(maps["arrived"].memory(), np.uint8)
        self._times = np.frombuffer(maps["times"].memory(), np.int64)
        self._samples = np.frombuffer(maps["samples"].memory(), _SAMPLE)
        self._sizes = SizeMaps(self._loaded)
        self._headers = HeaderMaps(self._loaded, self._sizes) if room.flows else None
        self._capacity = room
        self._counts: NDArray[Any] | None = None

    @property
    def program(self) -> int:
        """The file descriptor of the program."""
        return self._loaded.program(self._program)

    def begin(
        self, expected: Expected, network: str, snap_length: int, clock: ClockReading, room: Capacity, sample_every: int
    ) -> None:
        """Count from 0 the expected frames, and other frames from their source's network; all within `room`.

        Of frames with described headers, any network's are counted. UsageError if the program cannot compare these.
        """
        self._capacity, self._counts = room, None
        self._arrived[: room.numbers // 8] = 0
        self._times[: room.times] = 0
        self._samples[: room.sampled] = 0
        for name in ("counts", "history"):
            self._maps[name].put(0, bytes(self._maps[name].value_bytes))
        longer = expected.headers.longer if expected.headers else 0
        self._sizes.begin(expected.frame_size, longer, room.numbers, room.time_shift)
        settings = np.zeros((), _SETTINGS)
        stamps = expected.stamps_us
        values = {
            "start": expected.sequence.start,
            "stop": expected.sequence.stop,
            "from_us": stamps.start,
            "until_us": stamps.stop,
            "clock_ns": (clock.least_ns + clock.most_ns) // 2,
            "snap_length": snap_length,
            "stamped": expected.stamped,
            "stamped_early": expected.stamped_early,
            "number_mask": room.numbers - 1,
            "time_shift": room.time_shift,
            "sample_every": sample_every,
            "genome": genome_of(expected.frame_size),
        }
        if expected.headers is None:
            values |= _addresses(expected, IPv4Network(network))
        for name, value in values.items():
            settings[name] = value
        self._maps["settings"].put(0, settings.tobytes())
        if self._headers is not None and expected.headers is not None:
            captured_bytes = min(snap_length, SAMPLE_BYTES) if sample_every else 0
            self._headers.begin(expected.headers, expected.frame_size, captured_bytes)

    def end(self) -> None:
        """Stop counting; later frames pass."""
        if self._headers is not None:
            self._headers.end()
        self._maps["settings"].put(0, bytes(_SETTINGS.itemsize))
        self._sizes.end()
        self._counts = np.frombuffer(self._maps["counts"].get(0), _COUNTS)[0]

    @property
    def matched(self) -> int:
        """Frames for this sink from any sender."""
        return int(self._ended["matched"])

    @property
    def too_late(self) -> int:
        """Frames that arrived too late to compare their delays with those of their neighbours."""
        return int(self._ended["too_late"])

    def sample(self) -> list[tuple[int, int, bytes]]:
        """Return for each sampled frame its arrival (ns since 1970), its length in bytes, and its first bytes."""
        taken = self._samples[: min(int(self._ended["sampled"]), self._capacity.sampled)]
        return [(int(frame["at_ns"]), int(frame["length"]), frame["bytes"].tobytes()) for frame in taken]

    def counts(self, expected: Expected, network: str, clock: ClockReading) -> CaptureCounts:
        """Return the counts that a capture of the same frames would give, now that the sent frames are known.

        UsageError if counted frames turn out not to be the stream's, or could not be distinguished.
        """
        counted, numbers = self._ended, expected.sequence
        frames, distinct = int(counted["frames"]), int(counted["distinct"])
        lowest, highest = int(counted["lowest"]), int(counted["next"]) - 1
        if expected.sent_frames > self._capacity.numbers:
            raise UsageError(
                f"the source sent {expected.sent_frames:,} frames, and the sink bpf can distinguish only "
                f"{self._capacity.numbers:,} in such a trial; choose a shorter duration, or sink: tcpdump"
            )
        stamps_us = [int(counted["first_stamp_us"]), int(counted["last_stamp_us"])]
        is_own = lowest in numbers and highest in numbers and all(stamp in expected.stamps_us for stamp in stamps_us)
        if frames and not is_own:
            raise UsageError(
                "frames with the stream's addresses have numbers or times that its source did not send: the clock was "
                "set, or other software sent them; sink: tcpdump with keep_captures: invalid distinguishes them"
            )
        losses = losses_of(self._arrived[: self._capacity.numbers // 8], numbers)
        if losses.missing != len(numbers) - distinct:
            raise UsageError(
                f"the counts of the sink bpf contradict each other: {distinct:,} frames, but the numbers of "
                f"{len(numbers) - losses.missing:,}"
            )
        first_ns, last_ns = (int(counted[name]) if frames else None for name in ("first_ns", "last_ns"))
        span = self._sizes.span(first_ns, last_ns)
        shift = self._capacity.time_shift
        kept = self._times[: -(-distinct >> shift) if distinct else 0].copy()
        stream = StreamCapture(
            stream=expected.stream,
            src_ip=expected.src_ip,
            dst_ip=expected.dst_ip,
            received=distinct,
            duplicates=frames - distinct,
            reordered=int(counted["reordered"]),
            reordering_extent=_distribution(counted["extent"]).extent(),
            missing=losses.missing,
            loss_runs=losses.runs,
            longest_loss_run=losses.longest_run,
            loss_run_lengths=losses.lengths,
            last_missing=losses.last,
            min_seq=lowest if frames else None,
            max_seq=highest if frames else None,
            span=span,
            delay=_distribution(counted["delay"]).spread(),
            ipdv=_distribution(counted["variation"]).spread(),
            arrived=ArrivalTimes.of(distinct, 1 << shift, kept),
            arrived_by_size=self._sizes.arrived_by_size(),
            packet=self._packet_counts(expected),
        )
        late = counted["late"]
        late_from = _late_from(late, IPv4Network(network)) if expected.headers is None else {}
        half_ns = (clock.most_ns - clock.least_ns + 1) // 2
        return CaptureCounts(
            flavour="",
            link_type="Ethernet",
            snap_length=None,
            span=span,
            foreign_frames=int(counted["foreign"]),
            late_from=late_from,
            control_frames=int(counted["control"]),
            flush_frames=0,
            clock_offset=ClockOffset(-half_ns, half_ns),
            too_short_frames=0,
            odd_length_frames=0,
            leftover_bytes=0,
            damaged_at=None,
            damage="",
            streams=(stream,),
            late_without_address=0 if expected.headers is None else int(late.sum()),
        )

    def _packet_counts(self, expected: Expected) -> PacketCounts | None:
        if self._headers is None or expected.headers is None:
            return None
        arrived = tracker_of(self._arrived[: self._capacity.numbers // 8], expected.sequence)
        return self._headers.counts(expected.headers, arrived, expected.sequence)

    def close(self) -> None:
        """Release program and maps; harmless if called twice."""
        self._loaded.close()

    @property
    def _ended(self) -> Any:  # noqa: ANN401 - a record of numpy's has no better type
        assert self._counts is not None, "end() comes first"
        return self._counts


def _late_from(late: NDArray[Any], network: IPv4Network) -> dict[str, int]:
    """Return the late frames by their source's address, from their counts by its last byte."""
    return {str(network.network_address + host): int(late[host]) for host in np.flatnonzero(late).tolist()}


def _addresses(expected: Expected, network: IPv4Network) -> dict[str, int]:
    """Return the settings by which the program recognises plain frames."""
    return {
        "source": int(IPv4Address(expected.src_ip)),
        "network": int(network.network_address),
        "netmask": int(network.netmask),
        "destination": int(IPv4Address(expected.dst_ip)),
    }


def _distribution(spread: Any) -> Distribution:  # noqa: ANN401 - as above
    """Return the distribution of a `struct spread`: steps up to 2,047 are single integers, then 1,024 per doubling."""
    steps = np.flatnonzero(spread["steps"])
    shifts = np.maximum((steps >> _STEP_BITS) - 1, 0)
    values = steps - (shifts << _STEP_BITS) << shifts
    bounds = (int(spread[name]) for name in ("sum", "least", "most"))
    return Distribution.of(values, spread["steps"][steps].astype(np.int64), *bounds)
