"""Frames of several sizes with known truth: the frames sent, lost and received of each size are exact."""

import subprocess
from collections import Counter

import pytest

from netbench.model.frame_size import IMIX, FrameSize
from tests.commands import PATIENT, netbench, rows, settings, verdict_of

pytestmark = pytest.mark.root

MINE = FrameSize("mine", (64, 64, 64, 1280, 1518))
# For genomes of any length: drops all of one size, some of each, and in a pattern unrelated to the genome.
DROPS = [(7, 12), (3, 5), (13, 101)]
FRAMES = 2105
TOPOLOGY = """
hosts: {source: {}, uut: {}, sink: {}}
links:
  - {ends: [source/tx1, uut/in1], rate: 1Gbit/s}
  - {ends: [uut/out1, sink/rx1], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}
uuts:
  - {name: bridge, kind: raw, forward: bridge}
"""
WANTED = settings(
    frame_sizes="[64, imix, {name: mine, genome: aaafg}]", loads="10kfps", repetitions=1, duration=f"{FRAMES / 10}ms"
)


def by_size(text: str) -> dict[int, int]:
    return {int(size): int(frames) for size, _, frames in (item.partition("=") for item in text.split(";"))}


def counted_by_tcpdump(capture, sizes) -> dict[int, int]:
    """The number of the stream's frames by length in a capture, read by tcpdump; lengths include the FCS."""
    found = {}
    for size in sizes:
        wanted = f"udp and len == {size - 4}"
        done = subprocess.run(
            ["tcpdump", "-n", "-r", capture, "--count", wanted], capture_output=True, text=True, check=True
        )
        found[size] = int(done.stdout.split()[0])
    return found


def lost(uut: str, number: int) -> bool:
    if not uut.startswith("drops-"):
        return False
    k, n = map(int, uut.removeprefix("drops-").split("-of-"))
    return number % n < k


@pytest.mark.parametrize(
    ("sink", "keep", "drops"), [("tcpdump", "all", DROPS), ("tcpdump", "none", DROPS[:1]), ("bpf", "none", DROPS)]
)
def test_frames_of_each_size_are_exact_on_a_bridge_and_where_drops_are_known(results, tmp_path, sink, keep, drops):
    topology = tmp_path / "truth.yaml"
    uuts = "".join(
        f"  - {{name: drops-{k}-of-{n}, kind: reference, forward: bridge, drop: {{k: {k}, n: {n}}}}}\n"
        for k, n in drops
    )
    topology.write_text(TOPOLOGY + uuts)
    done = netbench(
        "run", topology, "quick", "-o", results, *WANTED, *PATIENT, *settings(keep_captures=keep, sink=sink)
    )
    assert done.returncode == 0, done.stderr

    found = rows(results)

    assert len(found) == 3 * (1 + len(drops))
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["foreign_frames"]) == ("valid", str(FRAMES), "0"), row
        mix = {"imix": IMIX, "mine": MINE}.get(row["frame_mix"])
        if mix is None:
            assert (row["frame_size"], row["received_frames_by_size"]) == ("64", "")
            continue
        assert row["frame_size"] == ""
        size_of = {number: mix.genome[number % len(mix.genome)] for number in range(FRAMES)}
        nothing = dict.fromkeys(mix.sizes, 0)
        gone = nothing | Counter(size for number, size in size_of.items() if lost(row["uut"], number))
        there = nothing | Counter(size for number, size in size_of.items() if not lost(row["uut"], number))
        assert by_size(row["sent_frames_by_size"]) == Counter(size_of.values())
        assert by_size(row["received_frames_by_size"]) == there, row
        assert by_size(row["lost_frames_by_size"]) == gone
        assert (int(row["lost_frames"]), int(row["received_frames"])) == (sum(gone.values()), sum(there.values()))
        if keep == "all":
            (capture,) = (results / "captures").glob(f"trial-{int(row['trial']):06}-s1*")
            assert counted_by_tcpdump(capture, mix.sizes) == there
        if row["uut"] == "drops-7-of-12" and mix is IMIX:
            # No frame of 64 bytes arrives: throughput is that of the other sizes.
            assert by_size(row["window_frames_by_size"])[64] == 0
            others = (4 * 594 + 1518) / 5
            l1_of_l2 = float(row["throughput_mbps"]) / float(row["throughput_l2_mbps"])
            assert l1_of_l2 == pytest.approx((others + 20) / others, rel=2e-3)
