"""UUTs that terminate, originate and filter encapsulations for which a machine's kernel may lack modules, in a VM."""

from collections import Counter
from pathlib import Path

import pytest

from tests.commands import PATIENT, netbench, rows, settings, verdict_of
from tests.vm.lab import build_or_skip

pytestmark = [pytest.mark.vm, pytest.mark.root]

SHIPPED = Path(__file__).parents[2] / "topologies" / "lab-encapsulations.yaml"
MORE = """\
  - {name: vxlan-begin, kind: raw, forward: route, originate: vxlan, vni: 7}
  - {name: geneve-begin, kind: raw, forward: bridge, originate: geneve, vni: 7}
  - {name: gre-begin, kind: raw, forward: route, originate: gre, key: 7}
"""
WANTED = settings(loads="1000fps", duration="200ms", frame_sizes=200, repetitions=1, order="sequential", retries=4)
FRAMES = "200"


@pytest.mark.parametrize(
    ("sink", "packets", "forwarded"),
    [
        (
            "bpf",
            ["vlan", "geneve"],
            {"trunk": 1, "vlan-end": 2, "vlan-begin": 2, "geneve-end": 1, "geneve-begin": 2},
        ),
        (
            "tcpdump",
            ["vxlan", "gre"],
            {"vxlan-end": 2, "gre-end": 2, "nat": 2, "vxlan-begin": 2, "gre-begin": 2},
        ),
    ],
)
def test_encapsulations_are_added_and_removed_and_every_frame_arrives(results, tmp_path, sink, packets, forwarded):
    """The numbers are those of the packets that each UUT can forward."""
    build_or_skip("tester")
    topology = tmp_path / "lab.yaml"
    topology.write_text(SHIPPED.read_text() + MORE)
    wanted = [*WANTED, *PATIENT, *settings(packet=f"[{', '.join(packets)}]", generator="afpacket", sink=sink)]
    uuts = [word for uut in forwarded for word in ("--uut", uut)]
    done = netbench("run", topology, "quick", "-o", results, *wanted, *uuts, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr

    found = rows(results)

    assert Counter(row["uut"] for row in found) == forwarded
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["received_frames"]) == ("valid", FRAMES, FRAMES), row
        assert (row["lost_frames"], row["foreign_frames"], row["unexplained_frames"]) == ("0", "0", "0"), row
        assert (row["changed_frames"], row["lossy_flows"]) == ("0", "0"), row


BOTH_WAYS = """\
  - {name: vlan-bridge, kind: raw, forward: bridge, terminate: vlan, vlan: 100}
  - {name: geneve-bridge, kind: raw, forward: bridge, terminate: geneve, vni: 100}
  - {name: gre-bridge, kind: raw, forward: bridge, terminate: gre}
"""


def test_answers_of_reverse_streams_pass_the_same_encapsulations(results, tmp_path):
    build_or_skip("tester")
    topology = tmp_path / "lab.yaml"
    streams = "sink: sink/rx1}\n  - {name: back, reverse: s1}\n"
    topology.write_text(SHIPPED.read_text().replace("sink: sink/rx1}\n", streams) + MORE + BOTH_WAYS)
    packets = "[vlan, geneve, gre, {name: gretap, headers: Ether()/IP()/GRE()/Ether()/IP()/UDP()}]"
    forwarded = {
        "vlan-bridge": ["vlan"],
        "vlan-begin": ["vlan", "geneve", "gre", "gretap"],
        "geneve-end": ["geneve"],
        "geneve-bridge": ["geneve"],
        "gre-bridge": ["gretap"],
        "gre-begin": ["geneve", "gre", "gretap"],
    }
    wanted = [*WANTED, *PATIENT, *settings(packet=packets, generator="afpacket", sink="tcpdump")]
    uuts = [word for uut in forwarded for word in ("--uut", uut)]
    done = netbench("run", topology, "quick", "-o", results, *wanted, *uuts, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr

    found = rows(results)

    assert {(row["uut"], row["packet"], row["stream"]) for row in found} == {
        (uut, packet, stream) for uut, packets in forwarded.items() for packet in packets for stream in ("s1", "back")
    }
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["received_frames"]) == ("valid", FRAMES, FRAMES), row
        counts = ("lost_frames", "changed_frames", "foreign_frames", "unexplained_frames")
        assert [row[count] for count in counts] == ["0"] * 4, row
