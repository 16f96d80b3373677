"""Sources send the frames of a mix in the order of its genome, as the kernel and a capture count them by length."""

import json
from collections import Counter

import dpkt
import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from netbench.model.frame_size import IMIX, FrameSize
from tests.netns.test_afpacket import Capture, lab, of_both_kinds, opened, run, traffic

pytestmark = pytest.mark.root

__all__ = ["lab", "opened"]  # fixtures

# Longer than a block of frames, with a length that divides no other number here.
LONG = FrameSize("long", tuple(64 + 7 * (place * place % 199) for place in range(331)))


def count_by_length(lab, mix: FrameSize) -> None:
    """Have nftables count the frames received at rx0 by length, without Ethernet header and FCS."""
    counters = "".join(f"meta length {size - 18} counter; " for size in mix.sizes)
    chain = f"chain c {{ type filter hook ingress device rx0 priority 0; policy accept; {counters}}};"
    done = lab.run(["nft", f"table netdev counted {{ {chain} }}"])
    assert done.exit_code == 0, done.stderr


def counted_by_length(lab) -> dict[int, int]:
    done = lab.run(["nft", "--json", "list", "table", "netdev", "counted"])
    assert done.exit_code == 0, done.stderr
    packets = {}
    for entry in json.loads(done.stdout)["nftables"]:
        if "rule" in entry:
            match, counter = entry["rule"]["expr"]
            packets[match["match"]["right"] + 18] = counter["counter"]["packets"]
    return packets


@of_both_kinds
@pytest.mark.parametrize("mix", [IMIX, LONG], ids=str)
def test_every_frame_has_the_size_of_its_number_and_the_kernel_counts_as_many(
    lab, opened, tmp_path, monkeypatch, kind, mix
):
    monkeypatch.setattr("tests.netns.test_afpacket.SNAP_BYTES", 2000)
    source = opened(kind=kind)
    count_by_length(lab, mix)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    frames = 1003
    sizes = [mix.genome[number % len(mix.genome)] for number in range(frames)]

    sent = run(source, traffic(10_000.0, frames / 10_000, mix, 3))

    assert (sent.frames, sent.error) == (frames, "")
    capture.stop(frames, sum(sizes) / frames - 1e-6)  # less by what rounding may add
    with (tmp_path / "rx0.pcap").open("rb") as file:
        arrived = [frame for _, frame in dpkt.pcap.Reader(file)]
    assert [len(frame) + 4 for frame in arrived] == sizes
    assert counted_by_length(lab) == mix.frames_by_size(range(frames)) == dict(Counter(len(raw) + 4 for raw in arrived))
    for number, frame in enumerate(arrived):
        assert int.from_bytes(frame[46:50]) == number
        ip_bytes, udp_bytes = int.from_bytes(frame[16:18]), int.from_bytes(frame[38:40])
        assert (ip_bytes, udp_bytes) == (len(frame) - 14, len(frame) - 34)
        assert not any(frame[58:])
    sample = Ether(arrived[11])
    checksum = sample[IP].chksum
    del sample[IP].chksum
    assert Ether(bytes(sample))[IP].chksum == checksum


@of_both_kinds
def test_a_mix_and_frames_of_one_size_follow_each_other_on_one_source(lab, opened, tmp_path, kind):
    source = opened(kind=kind)
    octets = lab.tx("bytes")
    two = FrameSize("two", (64, 1518))
    for size, each in ((two, (60 + 1514) / 2), (128, 124), (IMIX, (7 * 60 + 4 * 590 + 1514) / 12), (64, 60)):
        assert run(source, traffic(12_000.0, 0.01, size)).frames == 120
        octets += round(120 * each)
        assert lab.tx("bytes") == octets


@of_both_kinds
def test_a_mix_is_sent_as_fast_as_it_goes_too(lab, opened, kind):
    source = opened(kind=kind)
    octets, packets = lab.tx("bytes"), lab.tx("packets") + lab.tx("dropped")
    sent = run(source, traffic(None, 0.05, IMIX))
    assert sent.frames > 0
    assert lab.tx("packets") + lab.tx("dropped") - packets == sent.frames
    if kind == "afpacket":  # there is no ring behind it
        by_size = IMIX.frames_by_size(range(sent.frames))
        assert lab.tx("bytes") - octets == sum((size - 4) * frames for size, frames in by_size.items())
