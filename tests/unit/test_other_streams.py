"""MAC addresses by which a sink recognises frames of other streams."""

from dataclasses import replace
from typing import Any

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import ANY, Layer, ListedValues, Packet, RandomValues, SteppedValues
from netbench.packets.build import expected_headers
from netbench.packets.other_streams import StreamMacs, apart_from, stream_macs
from tests.unit.described_packets import layers, traffic_of_packet, vary

SIZE = FrameSize.of(128)
SOURCE, SINK = "02:00:00:00:00:01", "02:00:00:00:00:02"  # of `traffic_of_packet`
CHOSEN, FROM = "02:00:00:00:01:01", "02:00:00:00:02:02"
MACS = SteppedValues(0x020000000100, 1, 3)  # CHOSEN is the second one
OTHER = StreamMacs(FROM, CHOSEN)


def described(ether: Any, expect: tuple[Layer, ...] | None = None, **fields) -> Packet:
    varying = tuple(vary(name.replace("_", "."), values) for name, values in fields.items())
    return Packet("p", layers(ether, "IP", "UDP"), varying, expect=expect)


def headers_of(packet: Packet) -> ExpectedHeaders:
    return expected_headers(traffic_of_packet(packet, SIZE))


MACS_OF = {
    "NICs": (described("Ether"), (SOURCE, SINK)),
    "chosen": (described(("Ether", {"dst": CHOSEN, "src": FROM.upper()})), (FROM, CHOSEN)),
    "varied destination": (described("Ether", Ether_dst=MACS), (SOURCE, SINK)),
    "varied source": (described("Ether", Ether_src=MACS), ("", SINK)),
    "any": (described("Ether", layers(("Ether", {"dst": ANY, "src": ANY}), "IP", "UDP")), (SOURCE, SINK)),
}


@pytest.mark.parametrize("name", MACS_OF)
def test_frames_have_the_addresses_of_their_nics_or_chosen_ones(name):
    packet, macs = MACS_OF[name]
    assert stream_macs(traffic_of_packet(packet, SIZE), headers_of(packet), SOURCE, SINK) == macs


def test_plain_frames_have_the_addresses_of_their_nics():
    plain = replace(traffic_of_packet(described("Ether"), SIZE), packet=None)
    assert stream_macs(plain, None, SOURCE, SINK) == (SOURCE, SINK)


# A packet, the addresses of other streams, and those by which their frames are recognised.
APART = {
    "other": (described("Ether"), [OTHER], ((FROM,), (CHOSEN,))),
    "opposite": (described("Ether"), [StreamMacs(SINK, SOURCE)], ((SINK,), (SOURCE,))),
    "same destination": (described("Ether"), [StreamMacs(FROM, SINK)], ((FROM,), ())),
    "same source": (described("Ether"), [StreamMacs(SOURCE, CHOSEN)], ((), (CHOSEN,))),
    "unknown source": (described("Ether"), [StreamMacs("", CHOSEN)], ((), (CHOSEN,))),
    "several": (
        described("Ether"),
        [OTHER, StreamMacs(FROM, SINK), StreamMacs(SINK, SOURCE)],
        ((FROM, SINK), (CHOSEN, SOURCE)),
    ),
    "varied over it": (described("Ether", Ether_dst=MACS), [OTHER], ((FROM,), ())),
    "listed": (described("Ether", Ether_dst=ListedValues((0x020000000101, 7))), [OTHER], ((FROM,), ())),
    "random": (described("Ether", Ether_dst=RandomValues(0x020000000100, 0x020000000200, 3)), [OTHER], ((FROM,), ())),
    "varied beside it": (
        described("Ether", Ether_dst=SteppedValues(0x020000000100, 2, 3)),
        [OTHER],
        ((FROM,), (CHOSEN,)),
    ),
    "varied downwards": (described("Ether", Ether_dst=SteppedValues(0x020000000102, -1, 3)), [OTHER], ((FROM,), ())),
    "varied sources": (described("Ether", Ether_src=MACS), [StreamMacs(CHOSEN, SOURCE)], ((), (SOURCE,))),
}


@pytest.mark.parametrize("name", APART)
def test_own_addresses_are_not_those_of_other_streams(name):
    packet, others, (not_from, not_to) = APART[name]
    headers = headers_of(packet)
    own = stream_macs(traffic_of_packet(packet, SIZE), headers, SOURCE, SINK)
    apart = apart_from(headers, own, others)
    assert (apart.not_from, apart.not_to) == (not_from, not_to)
    assert ExpectedHeaders.from_json(apart.to_json()) == apart
