"""Frames of one direction that a UUT sends back never count in the other direction, and never hide a loss there."""

import pytest

from netbench.hosts.base import run_checked
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.breakages import load_shipped
from tests.truth.test_both_ways import in_uut, profile
from tests.unit.inputs import planned_trial

pytestmark = pytest.mark.root

SENT, SEVEN = 500, "numgen inc mod 100 < 7"
WRONG = SENT * 7 // 100  # frames that are sent back, and lost ones
STREAMS = ("forth", "back")
PLAIN = "Ether()/IP()/UDP()"
# Options of the UUT, and the packet. Both directions have pktgen's header at the same byte.
UUTS = {
    "bridge": ({}, PLAIN),
    "chosen MACs": ({}, 'Ether(src="02:00:00:00:01:01",dst="02:00:00:00:02:02")/IP()/UDP()'),
    "VLAN": ({}, "vlan"),
    "router": ({"forward": "route"}, PLAIN),
    "IPv6": ({"forward": "route"}, "ipv6"),
    "NAT": ({"forward": "route", "nat": "source"}, PLAIN),
}
RULES = {
    "sent back as received": f"""
chain a {{ type filter hook ingress device "nb-in1" priority 0; {SEVEN} dup to "nb-in1"; }}
chain b {{ type filter hook ingress device "nb-out1" priority 0; {SEVEN} counter drop; }}""",
    "sent back as forwarded": f"""
chain a {{ type filter hook egress device "nb-out1" priority 0; {SEVEN} dup to "nb-in1"; }}
chain b {{ type filter hook ingress device "nb-out1" priority 0; {SEVEN} counter drop; }}""",
}


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
@pytest.mark.parametrize("name", UUTS)
def test_frames_that_come_back_count_in_neither_direction(name, sink, tmp_path):
    options, packet = UUTS[name]
    for result in measured(options, packet, sink, tmp_path):
        forth, back = result.streams
        assert (forth.received.frames, forth.received.duplicates, forth.lost_frames) == (SENT, 0, 0)
        assert (back.received.frames, back.received.duplicates, back.lost_frames) == (SENT - WRONG, 0, WRONG)
        for counts in (forth, back):
            assert counts.received.packet
            assert counts.received.packet.changed_frames == 0
        assert {reason.stream for reason in result.reasons if reason.stream} == {"back"}, result.reasons


def measured(options: dict[str, str], packet: str, sink: str, scratch) -> list[TrialResult]:
    """A trial under each of the rules."""
    wanted = profile(sink=sink, loads=["5kfps"], duration="100ms", generator="afpacket", packet=packet)
    spec = UutSpec.model_validate({"name": "u", "kind": "raw", **options})
    lab, results = load_shipped("netns-both").model_copy(update={"uuts": (spec,)}), []
    with open_testbed(resolve(lab, wanted)) as testbed, testbed.uut(spec) as active:
        for number, chains in enumerate(RULES.values()):
            run_checked(in_uut(), ["nft", "-f", "-"], stdin=f"table netdev back {{{chains}\n}}\n")
            trial = planned_trial(lab, wanted, STREAMS, uut="u", index=number)
            results.append(run_trial(testbed.setup({VICTIM: active}), trial, Recording.as_wanted(wanted, scratch), 1))
            run_checked(in_uut(), ["nft", "delete", "table", "netdev", "back"])
    return results
