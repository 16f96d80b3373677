"""Probes the paths that netbench did not create: ports, cables and devices outside its control.

A port that spanning tree blocks has a carrier, but forwards nothing for half a minute. Frames sent meanwhile are not
lost by the UUT: the path is not ready. Probes are therefore sent before the first trial, until the sink receives one,
and again after a trial in which nothing arrived. Probes are plain frames, or the packet whose `expect` describes what
the UUT changes, if no plain frames are measured. Not every sink counts probes that arrive changed, for example with a
VLAN tag. A capture at its interface shows them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from netbench.errors import TestbedError
from netbench.model.counts import StreamCounts
from netbench.model.frame_size import MIN_FRAME_SIZE, FrameSize
from netbench.model.packet import Packet
from netbench.model.received import Received
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic
from netbench.packets.build import smallest_frame
from netbench.trial.arrivals import Witness
from netbench.trial.draining import drain
from netbench.trial.fdb_priming import prime_bridges
from netbench.trial.setup import Endpoints, TrialGuest, TrialSetup
from netbench.trial.snapshots import places_of
from netbench.trial.sources_and_sinks import Receiving, Recording, prepare, send
from netbench.uut.base import ActiveGuest, ObservedDelays
from netbench.uut.forwarding import forwards

# The frames of a probe, and how long a sink waits for them. It waits longer if frames of an earlier probe arrive late.
_FRAMES, _FPS = 3, 100.0
_WAIT_S = 1.0
_CARRIER_POLL_S = 0.1


class Probed(NamedTuple):
    """The frames sent on a stream, those that its sink received, and how captured probes had been changed."""

    sent: Sent
    received: Received
    changes: str = ""

    @property
    def why_not(self) -> str:
        """The reason why it is unknown whether the path is ready; empty if no error occurred."""
        return self.sent.error or self.received.no_room or self.received.error


def await_ways(setup: TrialSetup, active: ActiveGuest, endpoints: Sequence[Endpoints], limit_s: float) -> None:
    """Return once all links are up and probes arrive at each sink.

    TestbedError if that takes longer than `limit_s`, or as soon as a sink has no disk space for its capture.
    """
    clock, waiting, wait_s, probes = setup.clock, list(endpoints), _WAIT_S, 0
    changed: Counter[str] = Counter()  # number of changed probes, by stream
    deadline_ns = clock.monotonic_ns() + int(limit_s * 1e9)
    while down := _without_carrier(setup, endpoints):
        if clock.monotonic_ns() > deadline_ns:
            raise TestbedError(f"{', '.join(down)}: no carrier after {limit_s:g} s; check the cable")
        clock.sleep(_CARRIER_POLL_S)
    while waiting:
        probed = probe(setup, active, waiting, wait_s, look=probes > 0)
        probes += 1
        for name, result in probed.items():
            if result.received.no_room:  # waiting would not help
                raise TestbedError(f"stream {name}: not ready: {result.received.no_room}")
            changed[name] += bool(result.changes and not result.received.frames)
            if changed[name] > 1:
                ends = setup.endpoints[name]
                text = _arrived_changed(ends, result, setup.probe_packet(ends.path, active))
                raise TestbedError(f"stream {name}: not ready: {text}")
        if any(result.received.late for result in probed.values()):
            wait_s = min(2 * wait_s, limit_s)
            clock.sleep(wait_s)  # the NIC's counter would mistake late frames for the next probe
        waiting = [ends for ends in waiting if not probed[ends.path.name].received.frames]
        if waiting and clock.monotonic_ns() > deadline_ns:
            path = waiting[0].path
            why = probed[path.name].why_not or (
                "is a port on the way held back by spanning tree, a cable elsewhere, an address or neighbour missing? "
                "raise ready_limit for one that takes longer"
            )
            raise TestbedError(
                f"stream {path.name}: not ready: of {probes * _FRAMES} probes that {path.source.interface} sent in "
                f"{limit_s:g} s none arrived at {path.sink.interface} in time: {why}"
            )


def prove_ways(setup: TrialSetup, guest: TrialGuest, counted: Sequence[StreamCounts], wait_s: float) -> None:
    """Raise TestbedError if no frame of a stream arrived because its path is not ready or is slower than `wait_s`.

    If unchanged probes arrive in time, the UUT lost all frames, and no error is raised.
    """
    silent = [
        ends
        for ends, counts in zip(guest.endpoints, counted, strict=True)
        if ends.path.leads_outside and counts.sent.frames and counts.received.frames == 0
    ]
    # A link that is down is reported as a separate reason.
    if not silent or guest.active.ready.probe_limit_s is None or _without_carrier(setup, silent):
        return
    for name, probed in probe(setup, guest.active, silent, wait_s, look=True).items():
        if probed.received.late:
            raise TestbedError(
                f"stream {name}: nothing arrived, for frames come out more than {wait_s:g} s late; raise drain_limit"
            )
        if probed.changes and not probed.received.frames:
            ends = setup.endpoints[name]
            text = _arrived_changed(ends, probed, setup.probe_packet(ends.path, guest.active))
            raise TestbedError(f"stream {name}: nothing was counted: {text}")
        if not probed.received.frames and not probed.why_not:
            raise TestbedError(f"stream {name}: not ready any more: nothing arrived, and neither do probes")


def _arrived_changed(ends: Endpoints, probed: Probed, packet: Packet | None) -> str:
    arrived = f"arrived at {ends.path.sink.interface} {probed.changes}"
    if packet is None:
        return (
            f"probes of {MIN_FRAME_SIZE} bytes {arrived}; the sink counts only frames that arrive as they were sent: "
            "configure the UUT to send them so; or describe all packets, without plain, one of them with expect"
        )
    expected = "/".join(layer.name for layer in packet.expect or packet.layers)
    return (
        f"probes of packet {packet.name} ({packet.headers}) {arrived}; the sink expects {expected}: configure the UUT "
        "to send this, or correct expect"
    )


def probe(
    setup: TrialSetup, active: ActiveGuest, endpoints: Sequence[Endpoints], wait_s: float, *, look: bool = False
) -> dict[str, Probed]:
    """Send some frames on each stream, wait up to `wait_s` for them, and return the results by stream.

    With `look`, frames that the sinks do not count are captured too.
    """
    number = next(setup.numbers)
    traffic = {
        ends.path.name: _traffic(ends, active, number, setup.probe_packet(ends.path, active)) for ends in endpoints
    }
    # Delays are not learned from probes, which may not arrive at all.
    guest = TrialGuest("", replace(active, delays=ObservedDelays()), None, tuple(endpoints), traffic)
    with TemporaryDirectory(prefix="netbench-probe-", dir=setup.scratch) as scratch, ExitStack() as stack:
        began = number, setup.clock.realtime_ns(), setup.realtime
        receiving = Receiving(endpoints, traffic, Recording(Path(scratch)), *began, active.ready.at_sink)
        receiving.arm()
        unready = prepare(endpoints, traffic)
        prime_bridges(setup, endpoints, receiving.headers)
        armed = receiving.armed()
        witnesses = _witnesses(endpoints, traffic) if look else {}
        for witness in witnesses.values():
            stack.callback(witness.close)
        before = setup.read_nics(places_of(endpoints))
        sent = {name: unready.get(name, NOTHING_SENT) for name in traffic}
        if armed and not unready:
            sent = send(setup.clock, [guest])
            drain(setup, [guest], sent, before, wait_s)
        receiving.stop(wait_s)
        changes = {name: witness.changes(sent[name]) for name, witness in witnesses.items()}
        return {
            name: Probed(what, receiving.received(name, what), changes.get(name, "")) for name, what in sent.items()
        }


def _witnesses(endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic]) -> dict[str, Witness]:
    return {
        ends.path.name: Witness(ends.sink_host, ends.path, traffic[ends.path.name])
        for ends in endpoints
        if ends.sink_host
    }


def _traffic(ends: Endpoints, active: ActiveGuest, number: int, packet: Packet | None) -> Traffic:
    path, size = ends.path, FrameSize.of(MIN_FRAME_SIZE if packet is None else smallest_frame(packet))
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac,
        dst_mac=active.ready.next_hop_macs[path.name],
        src_ip=path.src_ip_of(number),
        dst_ip=path.dst_ip,
        src_ip6=path.src_ip6_of(number),
        dst_ip6=path.dst_ip6,
        packet=packet,
        frame_size=size,
        fps=ends.source.nearest_fps(_FPS, size),
        duration_s=_FRAMES / _FPS,
        flows=1,
        seed=1,
    )


def _without_carrier(setup: TrialSetup, endpoints: Sequence[Endpoints]) -> list[str]:
    """Return the interfaces of these paths whose link is not up."""
    places = places_of(endpoints)
    counted = setup.read_nics(places)
    return [place.interface for place in places if not (place in counted and forwards(counted[place]))]
