"""Sink `bpf`: a program in the kernel counts the frames of a stream where they come in, and hands none of them on."""

import socket
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel

from netbench.capture.pcap import pcap_bytes
from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.base import Host, kernel_of
from netbench.hosts.clock import SystemClock, read_clocks
from netbench.linux.needs import ON_VETH, Feature
from netbench.linux.netns import namespace_path, within
from netbench.linux.probes import ProbeError, Probes
from netbench.model.frame_mix import largest_bytes
from netbench.model.received import Received
from netbench.model.tester import Identity, options_text
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink, SinkKind
from netbench.sinks.bpf_counts import SAMPLE_BYTES, Counter, Room
from netbench.sinks.bpf_hooks import Attached, Wanted, attach
from netbench.sinks.expected import expected_of
from netbench.sinks.flush import flush_frame
from netbench.sinks.from_capture import received_of, settled
from netbench.sinks.sample import Every, write_sample

NAME = "bpf"
_FEATURE = "bpf-sink"
_WITHOUT = "`sink: auto` and `sink: tcpdump` do without"


def _probe(_: Probes) -> str:
    """Load the program and attach it wherever it may be wanted."""
    there, refused = [], []
    hooks: tuple[Wanted, ...] = ("xdp", "tcx")
    for hook in hooks:
        try:
            attached = attach("nbp1", hook, Room.wanted(1, 1, 0), by_napi=False)
        except MissingError as error:
            refused.append(str(error))
        else:
            attached.close()
            there.append(attached.hook.name)
    if not there:
        raise ProbeError("; ".join(dict.fromkeys(refused)))
    return "; ".join((f"loaded its program and attached it ({' and '.join(there)})", *refused))


class BpfOptions(BaseModel, extra="forbid"):
    """Where captures are kept, one of so many frames is; `hook`: where frames are counted."""

    sample: Every = 1000
    hook: Wanted = "auto"


class Bpf(SinkKind):
    """A BPF program that counts frames in the kernel, at a fraction of tcpdump's cost; Linux 5.18 or newer."""

    Options = BpfOptions
    needs = frozenset({_FEATURE})
    may_need = (
        Feature(
            _FEATURE,
            "the sink bpf",
            ON_VETH,
            "CONFIG_BPF_SYSCALL (Linux 5.18)",
            "",
            _probe,
            optional=True,
            otherwise=_WITHOUT,
        ),
    )

    def __init__(self, options: BpfOptions) -> None:
        self._options = options

    def unfit(self, host: Host) -> str:
        return "" if host.shares_files else f"the sink bpf works on this machine only; {_WITHOUT}"

    def sink(self) -> "BpfSink":
        return BpfSink(self._options)


class BpfSink(Sink):
    """One program at one NIC, from open() to close(); it counts from arm() to stop()."""

    def __init__(self, options: BpfOptions) -> None:
        self._options = options
        self._attached: Attached | None = None
        self._speaker: socket.socket | None = None
        self._incoming: Incoming | None = None
        self._interface = self._kernel = ""
        self._by_napi = False  # as UUTs receive, as far as it is known

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        return [f"# the program netbench/bpf/programs/sink.c, attached to {interface} (hook: {self._options.hook})"]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Attach the program; MissingError where the kernel does not take it."""
        self._netns, self._interface, self._kernel = host.netns, interface, kernel_of(host)
        self._attach(Room.wanted(1, 0.0, 0))

    def identity(self) -> Identity:
        said = options_text(self._options)
        if self._attached is not None:
            said["hook"] = f"{self._attached.hook.name} ({self._attached.why})"
        return Identity(NAME, self._kernel, said, cpus=())

    def writes(self, incoming: Incoming) -> int:
        if not incoming.keep:
            return 0
        room, snap_length = self._room(incoming), min(incoming.snap_length, SAMPLE_BYTES)
        return pcap_bytes(room.sampled, largest_bytes(incoming.traffic.frame_size), snap_length)

    def arm(self, incoming: Incoming) -> None:
        self._incoming, self._expected, self._clock = incoming, expected_of(incoming), read_clocks(SystemClock())
        room = self._room(incoming)
        by_napi = incoming.path.receive == "napi"
        if by_napi != self._by_napi and self._options.hook == "auto":
            self._by_napi = by_napi
            self._attach(room)
        elif not self._opened.room.fits(room):
            assert self._attached is not None, "it is opened"
            self._attached = self._attached.with_room(room)
        network, every = incoming.path.src_network, self._options.sample if incoming.keep else 0
        self._opened.begin(self._expected, network, incoming.snap_length, self._clock, room, every)

    def learn(self, mac: str) -> None:
        assert self._speaker is not None, "open() comes first"
        try:
            self._speaker.send(flush_frame(self._speaker.getsockname()[4].hex(":"), mac))
        except OSError:
            return  # a NIC that is gone or down: the judge sees that from its counters

    def stop(self, limit_s: float) -> None:
        """Count no more, and keep what there is of a sample."""
        self._opened.end()
        incoming, self._no_room = self._incoming, ""
        assert incoming is not None, "arm() comes first"
        if incoming.keep:
            file = incoming.record.with_name(f"{incoming.record.name}.sample.pcap")
            try:
                write_sample(file, self._opened.sample(), incoming.snap_length)
            except OSError as error:
                self._no_room = (
                    f"{file} cannot be written: {error.strerror}; free some room, or write elsewhere with -o"
                )

    def received(self, sent: Sent) -> Received:
        assert self._incoming is not None, "arm() comes first"
        counter, incoming = self._opened, self._incoming
        by_ring = self._attached is not None and self._attached.by_ring
        known = Received(matched=counter.matched, dropped=0, no_room=self._no_room, counted_by=NAME, by_ring=by_ring)
        if sent.first_ns is None or sent.last_ns is None:
            return known
        expected = settled(self._expected, sent)
        if (expected.stamped, expected.stamped_early) != (self._expected.stamped, self._expected.stamped_early):
            return replace(known, error="the source stamped its frames otherwise than it said")
        try:
            counts = counter.counts(expected, incoming.path.src_network, self._clock)
        except UsageError as error:
            return replace(known, error=str(error), no_delay="there is no whole count")
        found = received_of(counts, sent, incoming.traffic)
        if counter.too_late:
            found = replace(found, ipdv=None)
            if sent.stamped_early:
                found = replace(found, delay=None, no_delay="frames came long after their successors")
        return replace(found, matched=known.matched, dropped=0, no_room=self._no_room, counted_by=NAME, by_ring=by_ring)

    def close(self) -> None:
        if self._attached is not None:
            self._attached.close()
        if self._speaker is not None:
            self._speaker.close()
        self._attached = self._speaker = None

    def _room(self, incoming: Incoming) -> Room:
        every = self._options.sample if incoming.keep else 0
        return Room.wanted(incoming.traffic.frames, incoming.traffic.duration_s, every)

    @property
    def _opened(self) -> Counter:
        if self._attached is None:
            raise TestbedError(f"no capture is running on {self._interface}: open the sink bpf first")
        return self._attached.counter

    def _attach(self, room: Room) -> None:
        """Have a program with this room at the hook that suits; MissingError where there is none."""
        self.close()

        def inside() -> None:
            self._attached = attach(self._interface, self._options.hook, room, by_napi=self._by_napi)
            self._speaker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._speaker.bind((self._interface, 0))

        try:
            within(namespace_path(self._netns), inside)
        except MissingError as error:
            raise MissingError(f"the sink bpf cannot work on {self._interface}: {error}; {_WITHOUT}") from error
        except OSError as error:
            self.close()
            raise TestbedError(f"the sink bpf cannot work on {self._interface}: {error.strerror}") from error
