"""The seam between a trial and what sends its frames."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.hosts.base import Host
from netbench.linux.needs import Need
from netbench.model.frame_mix import FrameSize
from netbench.model.profile import NoOptions
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic


class Source(Protocol):
    """One source on one NIC, kept ready across trials.

    Order of calls: commands() at any time; open() once; then nearest_fps(), stamps(), prepare(), start(), wait()
    for each trial; close() at the end.
    A source that dies raises TestbedError from prepare(), or says so in `Sent.error`. Whoever derives from this class
    need only say what is not as usual.
    """

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """What open() would do, as commands, for `--dry-run`; nothing is touched."""
        return []

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Bring the source up on `interface` of `host`, pinned to `cpus` (empty: not pinned)."""

    def identity(self) -> Identity:
        """What it really is, for the results: in the last trial, or as far as it is known before; asks no machine.

        What is left out is as usual: the kind and its options as the profile has them, the version of the package that
        the kind is from, the CPUs that open() is given.
        """
        return Identity()

    def remarks(self) -> list[str]:
        """What a reader of the results must know of this source, known once it is open; mostly nothing."""
        return []

    def nearest_fps(self, fps: float, frame_size: FrameSize) -> float:
        """The rate this source can pace that is nearest to `fps` frames/s: what is intended of it instead."""
        return fps

    def stamps(self, traffic: Traffic) -> Stamps:
        """How it will stamp these frames."""
        return Stamps()

    def prepare(self, traffic: Traffic) -> None:
        """Build the frames of the next trial; nothing is sent yet. Returns when the source is ready."""

    @property
    def start_ahead_ns(self) -> int:
        """How far in the future start() is to be told, for all sources of a trial to be waiting when the time comes."""
        return 5_000_000

    def start(self, at_monotonic_ns: int) -> None:
        """Send from `at_monotonic_ns` (CLOCK_MONOTONIC of the source's host) on; returns at once."""

    def wait(self, timeout_s: float) -> Sent:
        """What was sent, once sending has ended; a source that does not end in time is stopped."""

    def close(self) -> None:
        """End the source; harmless when called twice or before open()."""
        return


class Generator(Protocol):
    """A kind of source. One object serves a whole campaign, so that sources that start as one know of each other."""

    Options: ClassVar[type[BaseModel]] = NoOptions  # how the profile describes this kind of generator
    sends_mixes: ClassVar[bool] = False  # whether frame n can have a size of its own: that of a mix of sizes
    may_need: ClassVar[tuple[Need, ...]] = ()  # what a machine may lack for it: how that is looked for, and added

    def __init__(self, options: BaseModel) -> None:
        """`options` are of the class Options."""
        return

    @property
    def largest_frame(self) -> int | None:
        """How many bytes, with FCS, a frame can have at most; None: as many as a link takes."""
        return None

    def unfit(self, host: Host) -> str:
        """Why it cannot send from this host, as a phrase; empty when it can. Nothing is touched."""
        return ""

    def source(self) -> Source:
        """A source, not open yet."""
