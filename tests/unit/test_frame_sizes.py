"""Frame sizes that are refused beforehand: by the links on their way, by their sources, by guests."""

import pytest

from netbench.campaign.request import make_request
from netbench.errors import UsageError
from netbench.sinks.bpf import Bpf
from tests.unit.inputs import profile, shared_topology, topology


def with_mtus(lab, *mtus):
    """The topology with these MTUs of its links."""
    links = [link.model_copy(update={"mtu": mtu}) for link, mtu in zip(lab.links, mtus, strict=True)]
    return lab.model_copy(update={"links": tuple(links)})


ONE = with_mtus(topology(1), 9000, 9000)
NARROW_END = with_mtus(topology(1), 9000, 1500)
NARROW_NEIGHBOUR = with_mtus(shared_topology(), 9000, 9000, 1600, 1600)
JUMBO_MIX = {"name": "jumbo", "genome": [64, 3413]}
LOUD = [{"network": "50%", "frame_size": 1619}]


@pytest.mark.parametrize(
    ("lab", "wanted", "why"),
    [
        (
            topology(1),
            {"frame_sizes": [64, 1519]},
            "frames of 1519 bytes: link source/tx1 – uut/in1 takes at most 1518",
        ),
        (NARROW_END, {"frame_sizes": [9018]}, "uut/out1 – sink/rx1 takes at most 1518 .MTU 1500.; give it `mtu: 9000`"),
        (ONE, {"frame_sizes": [9019]}, "takes at most 9018"),
        (NARROW_NEIGHBOUR, {"scenarios": LOUD}, "frames of 1619 bytes: link source/tx2 – uut/in2 takes at most 1618"),
        (ONE, {"frame_sizes": [3413], "generator": "xdp"}, "the generator xdp makes at most 3412; take afpacket"),
        (
            ONE,
            {"frame_sizes": [1985], "generator": {"kind": "trex", "path": "/opt/trex"}},
            "the generator trex makes at most 1984; take afpacket",
        ),
        (topology(1), {"frame_sizes": [JUMBO_MIX]}, "frames of 3413 bytes .of jumbo.: link source/tx1 – uut/in1 takes"),
        (
            ONE,
            {"frame_sizes": [JUMBO_MIX], "generator": "xdp"},
            "3413 bytes .of jumbo.: the generator xdp makes",
        ),
        (
            topology(1),
            {"frame_sizes": [64, "imix"], "generator": "pktgen"},
            "imix: the generator pktgen cannot send fr",
        ),
        (
            shared_topology(),
            {"scenarios": [{"network": "50%", "frame_size": "imix"}], "generator": "pktgen"},
            "imix: the generator pktgen cannot send frames of several sizes",
        ),
        (
            ONE.model_copy(update={"uuts": topology(1, [{"name": "guest", "kind": "qemu"}]).uuts}),
            {},
            "UUT guest: stream s1: its links have `mtu: 9000`, and the NICs of guests 1500",
        ),
    ],
)
def test_frames_that_are_too_large_are_refused_with_who_does_not_take_them(lab, wanted, why):
    with pytest.raises(UsageError, match=why):
        make_request(lab, profile(**wanted))


def test_a_mix_is_refused_where_the_sink_counts_frames_of_one_size(monkeypatch):
    monkeypatch.setattr(Bpf, "counts_mixes", False)
    with pytest.raises(UsageError, match="imix: the sink bpf counts frames of one size, and a mix has several; take"):
        make_request(topology(1), profile(frame_sizes=["imix"], sink="bpf"))


@pytest.mark.parametrize(
    ("lab", "wanted"),
    [
        (topology(1), {"frame_sizes": [1518]}),
        (ONE, {"frame_sizes": [64, 9018]}),
        (ONE, {"frame_sizes": [3412], "generator": "xdp"}),
        (ONE, {"frame_sizes": [9018], "generator": "auto"}),
        (NARROW_NEIGHBOUR, {"frame_sizes": [9018]}),
        (topology(1), {"frame_sizes": ["imix", 64]}),
        (topology(1), {"frame_sizes": ["imix"], "generator": "auto", "sink": "auto"}),
        (topology(1), {"frame_sizes": ["imix"], "sink": "bpf"}),
        (ONE, {"frame_sizes": [JUMBO_MIX]}),
        (NARROW_NEIGHBOUR, {"scenarios": [{**LOUD[0], "frame_size": 1618}]}),
    ],
)
def test_frames_that_fit_are_not(lab, wanted):
    make_request(lab, profile(**wanted))
