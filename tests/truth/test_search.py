"""A search on a UUT that forwards so many frames a second and no more."""

import json

import pytest

from tests.commands import INLINE, netbench, settings

pytestmark = pytest.mark.root

FPS, BURST = 15_000, 1000
TRIAL_S = 0.5
LAB = """
hosts: {{source: {{}}, uut: {{}}, sink: {{}}}}
links:
  - {{ends: [source/tx1, uut/in1], rate: 1Gbit/s}}
  - {{ends: [uut/out1, sink/rx1], rate: 1Gbit/s}}
streams:
  - {{name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}}
uuts:
  - {{name: limited, kind: reference, forward: {forward}, limit: {{fps: {fps}, burst: {burst}}}}}
"""
# A source that was kept from sending for a moment sends all at once afterwards: the bucket has room for that, of 60 ms.
# A full one is part of what passes in a trial, so all trials are of one length.
SHORT = [
    *INLINE,
    *settings(frame_sizes="64,1518", schedule__highest="40kfps", schedule__lowest="1000fps"),
    *settings(
        duration=f"{TRIAL_S * 1000:.0f}ms",
        schedule__initial="500ms",
        schedule__duration_sum="1500ms",
        max_lateness="200ms",
    ),
    *settings(generator="afpacket", sink="tcpdump"),
]


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_ndr_and_pdr_are_those_of_the_limit(tmp_path, forward):
    """Within 1 %, of which the search may take half for its width."""
    lab = tmp_path / "limited.yaml"
    lab.write_text(LAB.format(forward=forward, fps=FPS, burst=BURST))
    done = netbench("search", lab, "-o", tmp_path / "results", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results" / "manifest.json").read_text())["searches"]
    assert [(one["goal"], one["frame_size"]) for one in found] == [
        (goal, size) for size in (64, 1518) for goal in ("NDR", "PDR 0.5 %")
    ]
    for one in found:
        truth = (FPS + BURST / TRIAL_S) / (1 - one["loss_ratio"])
        assert one["state"] == "found", one
        assert 0.99 * truth <= one["lower_fps"] <= one["upper_fps"] <= 1.01 * truth, one


def test_searches_that_cannot_succeed_end(tmp_path):
    """A UUT that drops all, and a load that no UUT reaches: a clear answer each."""
    lab = tmp_path / "dead.yaml"
    text = LAB.format(forward="bridge", fps=FPS, burst=BURST).replace(
        f"limit: {{fps: {FPS}, burst: {BURST}}}", "drop: {k: 1, n: 1}"
    )
    lab.write_text(text)
    done = netbench("search", lab, "-o", tmp_path / "dead", *SHORT, "--set", "frame_sizes=64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not even at the lowest load tried" in done.stdout
    lab.write_text(text.replace("{k: 1, n: 1}", "{k: 0, n: 7}"))
    done = netbench(
        "search", lab, "-o", tmp_path / "free", *SHORT, *settings(frame_sizes=64, schedule__highest="3000fps")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "≥ 3.0" in done.stdout
    assert "limited by the highest load asked for" in done.stdout


def test_the_tests_of_rfc_2544_on_a_bucket_of_known_depth(tmp_path):
    """The longest burst is what fills the bucket, and a reset is as long as the sink sees no frame."""
    lab = tmp_path / "limited.yaml"
    lab.write_text(LAB.format(forward="bridge", fps=FPS, burst=BURST))
    suite = settings(
        frame_sizes=64,
        duration="1s",
        schedule__highest="40kfps",
        schedule__lowest="1000fps",
        schedule__method="tst009",
        schedule__verified=3,
        schedule__latency="{duration: 500ms, times: 2}",
        schedule__back_to_back="{longest: 100ms, times: 5}",
        schedule__recovery="{duration: 1s, reduced: 500ms, times: 2}",
        schedule__reset="{duration: 4s, before: 1s, times: 1}",
        generator="afpacket",
        sink="tcpdump",
        max_lateness="200ms",
        tolerance="5%",
    )
    done = netbench("run", lab, "rfc2544-short", "-o", tmp_path / "results", *suite)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads((tmp_path / "results" / "manifest.json").read_text())["searches"]
    tests = found["tests"]
    throughput = FPS + BURST  # a full bucket is part of what passes in a second
    assert found["lower_fps"] == pytest.approx(throughput, rel=0.02)
    assert len(tests["latency"]["means_ns"]) == 2
    losses = {round(one["share"], 1): one["loss_ratio"] for one in tests["losses"]}
    assert losses[1.0] == pytest.approx(1 - throughput / 40_000, rel=0.02)
    assert losses[0.3] == losses[0.2] == 0
    # n frames at R fill a bucket of B that drains at C when n·(1 − C/R) = B; one held up for a moment needs fewer.
    longest = BURST / (1 - FPS / 40_000)
    bursts = tests["back_to_back"]["frames"]
    assert len(bursts) == 5, tests["back_to_back"]
    assert max(bursts) == pytest.approx(longest, rel=0.03), bursts
    # At half the overload the bucket has room at once.
    assert tests["recovery"]["seconds"] == [0.0, 0.0], tests["recovery"]
    (reset_s,) = tests["reset"]["seconds"]
    assert 0 < reset_s < 3, tests["reset"]
    assert "Back-to-back frames" in (tmp_path / "results" / "report.html").read_text()
