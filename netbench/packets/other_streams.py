"""MAC addresses by which a sink recognises frames of other streams, which a UUT floods, sends back, or misdelivers.

All streams of a trial have the same magic number, sequence numbers and times, and may have the same headers. A frame of
another stream would otherwise count as received, and hide the loss of a frame with the same number.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import FieldRef, ListedValues, RandomValues, SteppedValues, Values
from netbench.model.traffic import Traffic

_DST, _SRC, _MAC_BYTES = 0, 6, 6
_SOURCE = FieldRef("Ether", "src")


class StreamMacs(NamedTuple):
    """The MAC addresses of a stream's frames, as text: the source as sent, and the destination at the sink.

    `source` is empty if it varies. A destination that varies, or may be any, is that of the sink's NIC.
    """

    source: str
    destination: str


def stream_macs(traffic: Traffic, headers: ExpectedHeaders | None, source_mac: str, sink_mac: str) -> StreamMacs:
    """Return the MAC addresses of the frames that a NIC sends to the NIC of a sink; `headers` None: plain frames."""
    packet = traffic.packet
    if packet is None or headers is None:
        return StreamMacs(source_mac, sink_mac)
    varies = any(field.ref == _SOURCE for field in packet.vary)
    chosen = packet.layers[0].value(_SOURCE.field)
    source = "" if varies else chosen.lower() if isinstance(chosen, str) else source_mac
    return StreamMacs(source, _fixed_address(headers, _DST) or sink_mac)


def apart_from(headers: ExpectedHeaders, own: StreamMacs, others: Iterable[StreamMacs]) -> ExpectedHeaders:
    """Return the headers with the MAC addresses of other streams, but not those that the stream's own frames have."""
    others = list(others)
    own_sources = {"", own.source, _fixed_address(headers, _SRC)}
    own_destinations = {"", own.destination, _fixed_address(headers, _DST)}
    return replace(
        headers,
        not_from=tuple(
            mac
            for mac in dict.fromkeys(other.source for other in others)
            if mac not in own_sources and not _varies_over(headers, _SRC, mac)
        ),
        not_to=tuple(
            mac
            for mac in dict.fromkeys(other.destination for other in others)
            if mac not in own_destinations and not _varies_over(headers, _DST, mac)
        ),
    )


def _fixed_address(headers: ExpectedHeaders, at: int) -> str:
    """Return the MAC address at a byte of the frames at the sink; empty if it varies, or may be any."""
    template, stop = headers.template, at + _MAC_BYTES
    varies = any(field.place is not None and at <= field.place.at < stop for field in template.varying)
    if varies or any(start < stop and at < end for start, end in headers.ignored):
        return ""
    return next(iter(template.frames.values()))[at:stop].hex(":")


def _varies_over(headers: ExpectedHeaders, at: int, mac: str) -> bool:
    """Return whether a MAC address is among the values that vary at a byte of the frames."""
    number = int(mac.replace(":", ""), 16)
    return any(
        field.place is not None and field.place.at == at and _contain(field.values, number)
        for field in headers.template.varying
    )


def _contain(values: Values, number: int) -> bool:
    match values:
        case SteppedValues(first, step, count):
            return number in range(first, first + step * count, step)
        case RandomValues(least, most, _):
            return least <= number <= most
        case ListedValues(listed):
            return number in listed
