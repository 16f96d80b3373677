"""The process that counts for a sink bpf on another host: `python -m netbench.sinks.bpf_worker INTERFACE HOOK`.

It attaches the program to the interface in its network namespace until its stdin ends. It executes the lines of stdin.
It answers each of them with one line; an answer also follows the start:

    → {"do": "begin", "request": {…}}       ← {"where": "the hook, and why there"}
    → {"do": "learn", "frames": ["…"]}      ← {"where": "…"}         once these frames (hexadecimal) are sent
    → {"do": "end"}                         ← {"no_sample": "why the sample cannot be written", or ""}
    → {"do": "received", "sent": {…}}       ← {"received": {…}}
    → {"do": "rest"}                        ← {"where": ""}          no program is there until the next `begin`

Other answers are {"missing": "what this kernel lacks"} and {"failed": "why"}. However the process ends, the kernel
removes the program.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from netbench.capture.capture_counts import Expected
from netbench.capture.pcap import write_pcap
from netbench.errors import MissingError, NetbenchError, TestbedError, UsageError
from netbench.hosts.clock import SystemClock, read_clocks
from netbench.linux.netns import namespace_path, within
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic, traffic_data, traffic_of
from netbench.sinks.bpf_counter import BpfCounter, Capacity
from netbench.sinks.bpf_hooks import AttachedCounter, HookChoice, attach
from netbench.sinks.flush import send_paced
from netbench.sinks.measuring_window import received_of, settled

NAME = "bpf"
_SMALLEST = Capacity.needed(1, 0.0, 0)


@dataclass(frozen=True, slots=True)
class CountRequest:
    """The frames to count in a trial: the expected ones, and other frames from their source's `network`.

    `by_napi`: whether the UUT receives by NAPI. One of `sample_every` frames (0: none) is stored, with `snap_length`
    bytes, in the file `sample` of the NIC's host.
    """

    expected: Expected
    traffic: Traffic
    network: str
    room: Capacity
    by_napi: bool
    snap_length: int
    sample_every: int = 0
    sample: str = ""


def to_json(request: CountRequest) -> dict[str, Any]:
    """Return the request as data for JSON; the packet is left out, whose headers are expected."""
    expected = request.expected.to_json()
    plain = asdict(replace(request, expected=replace(request.expected, headers=None)))
    return {**plain, "expected": expected, "traffic": traffic_data(request.traffic)}


def count_request_of(plain: Mapping[str, Any]) -> CountRequest:
    """Return the request that `to_json` has converted."""
    traffic = traffic_of(plain["traffic"])
    expected = Expected.from_json(plain["expected"], traffic.frame_size)
    return CountRequest(**{**plain, "expected": expected, "traffic": traffic, "room": Capacity(**plain["room"])})


class Counting:
    """The program at one NIC of a network namespace (None: that of the process), from attach() to detach().

    Order of calls for each trial: begin(); prime_fdb(); begun(); end(); received(). MissingError if the kernel does not
    accept the program, TestbedError if there is no such NIC.
    """

    def __init__(self, interface: str, hook: HookChoice, netns: str | None = None) -> None:
        self._interface, self._hook, self._netns = interface, hook, netns
        self._attached: AttachedCounter | None = None
        self._speaker: socket.socket | None = None
        self._by_napi = False  # whether UUTs receive by NAPI, as far as known
        self._request: CountRequest | None = None

    @property
    def where(self) -> str:
        """The hook at which it counts, and the reason; empty if it does not count."""
        return f"{self._attached.hook.name} ({self._attached.why})" if self._attached else ""

    def attach(self) -> None:
        """Attach the program with little room, unless it is attached already."""
        if self._attached is None:
            self._attach(_SMALLEST)

    def begin(self, request: CountRequest) -> None:
        """Start counting from 0."""
        self._request, self._clock = request, read_clocks(SystemClock())
        moves = request.by_napi != self._by_napi and self._hook == "auto"
        self._by_napi = request.by_napi
        if self._attached is None or moves:
            self._attach(request.room)
        elif not self._attached.counter.room.fits(request.room):
            self._attached = self._attached.with_room(request.room)
        self._counter.begin(
            request.expected, request.network, request.snap_length, self._clock, request.room, request.sample_every
        )

    def begun(self, timeout_s: float) -> None:
        """Return at once, because it counts already; RemoteCounting waits for its process here."""

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        """Send learning frames out of the NIC, with pauses."""
        assert self._speaker is not None, "attach() comes first"
        try:
            send_paced(self._speaker, list(frames))
        except OSError:
            return  # the NIC is gone or down: its counters show that to the judge

    def end(self) -> str:
        """Stop counting and write the sample; return why it cannot be written, empty if it is, or if there is none."""
        counter, request = self._counter, self._request
        assert request is not None, "begin() comes first"
        counter.end()
        if request.sample_every:
            try:
                write_pcap(Path(request.sample), counter.sample(), request.snap_length)
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def received(self, sent: Sent) -> Received:
        """Return the received frames of those sent; called after end()."""
        counter, request, by_ring = self._counter, self._request, self._attached is not None and self._attached.by_ring
        assert request is not None, "begin() comes first"
        uncounted = Received(matched=counter.matched, dropped=0, counted_by=NAME, by_ring=by_ring)
        if sent.first_ns is None or sent.last_ns is None:
            return uncounted
        expected = settled(request.expected, sent)
        if (expected.stamped, expected.stamped_early) != (request.expected.stamped, request.expected.stamped_early):
            return replace(uncounted, error="the source stamped its frames in another way than it announced")
        try:
            counts = counter.counts(expected, request.network, self._clock)
        except UsageError as error:
            return replace(uncounted, error=str(error), no_delay="the count is incomplete")
        result = received_of(counts, sent, request.traffic)
        if counter.too_late:
            result = replace(result, ipdv=None)
            if sent.stamped_early:
                result = replace(result, delay=None, no_delay="frames came long after their successors")
        return replace(result, matched=counter.matched, dropped=0, counted_by=NAME, by_ring=by_ring)

    def detach(self) -> None:
        """Detach the program; harmless if called twice."""
        if self._attached is not None:
            self._attached.close()
        if self._speaker is not None:
            self._speaker.close()
        self._attached = self._speaker = None

    def close(self) -> None:
        """Detach the program; nothing else is open."""
        self.detach()

    @property
    def _counter(self) -> BpfCounter:
        if self._attached is None:
            raise TestbedError(f"no capture is running on {self._interface}: open the sink bpf first")
        return self._attached.counter

    def _attach(self, room: Capacity) -> None:
        self.detach()

        def inside() -> None:
            self._attached = attach(self._interface, self._hook, room, by_napi=self._by_napi)
            self._speaker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._speaker.bind((self._interface, 0))

        try:
            within(namespace_path(self._netns), inside)
        except MissingError as error:
            raise MissingError(f"the sink bpf cannot work on {self._interface}: {error}") from error
        except OSError as error:
            self.detach()
            raise TestbedError(f"the sink bpf cannot work on {self._interface}: {error.strerror}") from error


def main() -> None:
    """Execute the lines of stdin until it ends."""
    _, interface, hook = sys.argv
    counting = Counting(interface, cast(HookChoice, hook))
    _answer(counting, {"do": "attach"})
    for line in sys.stdin:
        _answer(counting, json.loads(line))
    counting.detach()


def _answer(counting: Counting, request: Mapping[str, Any]) -> None:
    try:
        answer = _done(counting, request)
    except MissingError as error:
        answer = {"missing": str(error)}
    except NetbenchError as error:
        answer = {"failed": str(error)}
    with suppress(BrokenPipeError):  # the reader is gone: stdin will end
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


def _done(counting: Counting, request: Mapping[str, Any]) -> Mapping[str, object]:
    match request["do"]:
        case "attach":
            counting.attach()
        case "begin":
            counting.begin(count_request_of(request["request"]))
        case "rest":
            counting.detach()
        case "learn":
            if counting.where:  # otherwise the last answer reported why it does not count
                counting.prime_fdb([bytes.fromhex(frame) for frame in request["frames"]])
        case "end":
            return {"no_sample": counting.end()}
        case "received":
            return {"received": asdict(counting.received(Sent(**request["sent"])))}
    return {"where": counting.where}


if __name__ == "__main__":
    main()
