"""MAC addresses by which a sink recognises frames of the other direction."""

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import ANY, Layer, Packet, SteppedValues
from netbench.packets.build import expected_headers
from netbench.packets.opposite import opposite_addresses
from tests.unit.described_packets import layers, traffic_of_packet, vary

SOURCE, SINK = "02:00:00:00:00:01", "02:00:00:00:00:02"  # of `traffic_of_packet`
CHOSEN, OTHER = "02:00:00:00:01:01", "02:00:00:00:02:02"
MACS = SteppedValues(0x020000000100, 1, 3)


def described(ether: object, expect: tuple[Layer, ...] | None = None, **fields) -> Packet:
    varying = tuple(vary(name.replace("_", "."), values) for name, values in fields.items())
    return Packet("p", layers(ether, "IP", "UDP"), varying, expect=expect)


# Each packet, and the destination and the source of frames of the other direction.
CASES = {
    "own addresses": (described("Ether"), (SOURCE, SINK)),
    "chosen addresses": (described(("Ether", {"dst": CHOSEN, "src": OTHER})), (SOURCE, CHOSEN)),
    "varied sink": (described("Ether", Ether_dst=MACS), (SOURCE, SINK)),
    "varied source": (described("Ether", Ether_src=MACS), (SOURCE, SINK)),
    "any address": (described("Ether", layers(("Ether", {"dst": ANY, "src": ANY}), "IP", "UDP")), (SOURCE, SINK)),
    "frames to their source": (described(("Ether", {"dst": SOURCE, "src": OTHER})), ("", SOURCE)),
    "frames from their sink": (described(("Ether", {"dst": CHOSEN, "src": CHOSEN})), (SOURCE, "")),
}


@pytest.mark.parametrize("name", CASES)
def test_frames_of_the_other_direction_have_other_addresses(name):
    packet, opposite = CASES[name]
    headers = expected_headers(traffic_of_packet(packet, FrameSize.of(128)))
    assert opposite_addresses(headers, SOURCE, SINK) == opposite
    assert ExpectedHeaders.from_json(headers.to_json()) == headers
