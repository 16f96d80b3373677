"""MAC addresses by which a sink recognises frames of its stream's other direction, which a UUT sends back.

Both directions have the same headers, numbers and times. A frame of one direction that arrives at the sink of the other
one would otherwise count as received there, and hide the loss of a frame with the same number.
"""

from netbench.model.frame_template import ExpectedHeaders

_MAC_BYTES = 6


def opposite_addresses(headers: ExpectedHeaders, source_mac: str, sink_mac: str) -> tuple[str, str]:
    """Return the destination and the source address of frames of the other direction, as text; empty: unknown.

    They are sent to the NIC of this stream's source (`source_mac`) in the end. They come from the address to which this
    stream's frames are sent: that of its sink (`sink_mac`), or the one that the packet chooses. An address that this
    stream's own frames have in the same place is left out.
    """
    own_destination, own_source = (_address(headers, at) for at in (0, _MAC_BYTES))
    destination, source = source_mac, own_destination or sink_mac
    return ("" if destination == own_destination else destination, "" if source == own_source else source)


def _address(headers: ExpectedHeaders, at: int) -> str:
    """Return the MAC address at a byte of the frames; empty if it varies, or may be any."""
    template, stop = headers.template, at + _MAC_BYTES
    varies = any(field.place is not None and at <= field.place.at < stop for field in template.varying)
    if varies or any(start < stop and at < end for start, end in headers.ignored):
        return ""
    return next(iter(template.frames.values()))[at:stop].hex(":")
