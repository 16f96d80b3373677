"""The sink trex with a real server, of the package that NETBENCH_TREX names, and UUTs whose loss is known."""

from pathlib import Path

import pytest

from tests.commands import netbench, rows, settings, verdict_of
from tests.trex import NO_PACKAGE, PACKAGE

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(NO_PACKAGE), reason=NO_PACKAGE)]

TOPOLOGY = """
name: trex
hosts:
  tester: {kind: netns}
  uut: {kind: netns}
links:
  - {ends: [tester/tx1, uut/in1], rate: 1Gbit/s}
  - {ends: [uut/out1, tester/rx1], rate: 1Gbit/s}
streams:
  - {name: s1, source: tester/tx1, ingress: uut/in1, egress: uut/out1, sink: tester/rx1}
  - {name: back, reverse: s1}
uuts:
  - {name: drop, kind: reference, forward: bridge, drop: {k: 7, n: 100}}
  - {name: limit, kind: reference, forward: bridge, limit: {fps: 1000, burst: 20, at: ingress}}
"""
SLOW = settings(tolerance="100%", max_lateness="1min", order="sequential", repetitions=1, streams=1)


def measured(tmp_path: Path, uut: str, *options: str, **generator: object) -> list[dict[str, str]]:
    """The rows of a campaign whose sources and sinks are TRex's, on a server that netbench starts."""
    (tmp_path / "trex.yaml").write_text(TOPOLOGY)
    words = {"kind": "trex", "path": PACKAGE, **generator}
    output = "{" + ", ".join(f"{name}: {value}" for name, value in words.items()) + "}"
    done = netbench(
        *("run", tmp_path / "trex.yaml", "quick", "--uut", uut, "-o", tmp_path / "results", *SLOW),
        *("--set", f"generator={output}", "--set", "sink=trex", *options),
        timeout_s=280,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return rows(tmp_path / "results")


def counts(row: dict[str, str], *names: str) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in names)


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both at once"])
def test_exactly_what_is_dropped_is_lost(tmp_path, both):
    more = settings(frame_sizes=64, loads="1000fps", duration="1s", streams=2 if both else 1)
    found = measured(tmp_path, "drop", *more)
    assert len(found) == 1 + both
    for row in found:
        # The server could lose frames, but its ring of 16,384 frames prevents that.
        assert (verdict_of(row), row["reasons"]) == ("valid", "")
        assert counts(row, "sent_frames", "received_frames", "lost_frames", "capture_dropped_frames") == (
            *(1000, 930, 70, 0),
        )
        assert (row["duplicate_frames"], row["delay_mean_us"], row["sink"]) == ("", "", "trex")
        assert row["source_details"].startswith("TRex v")


def test_a_mix_and_delays_by_the_servers_own_software(tmp_path):
    (row,) = measured(tmp_path, "drop", *settings(frame_sizes="imix", loads="1200fps", duration="1s"), delay_fps=100)
    assert (verdict_of(row), row["reasons"]) == ("valid", "")
    assert counts(row, "sent_frames", "received_frames") == (1200, 1116)
    by_size = dict(item.split("=") for item in row["received_frames_by_size"].split(";"))
    assert sum(map(int, by_size.values())) == 1116
    assert row["sent_frames_by_size"] == "64=700;594=400;1518=100"
    measured_frames = int(row["software_delay_frames"])
    assert 60 <= measured_frames <= 100  # of 100, of which the UUT drops those whose turn it is
    classes = [item.split("=") for item in row["software_delay_classes"].split(";")]
    assert sum(int(frames) for _, frames in classes) == measured_frames
    assert row["software_delay_by"].endswith("in software")
    assert float(row["software_delay_min_us"]) <= float(row["software_delay_max_us"] or "inf")


def test_what_a_limit_lets_through_arrives(tmp_path):
    (row,) = measured(tmp_path, "limit", *settings(frame_sizes=64, loads="4000fps", duration="1s"))
    sent, received, lost = counts(row, "sent_frames", "received_frames", "lost_frames")
    assert sent == 4000 == received + lost
    # 1,000 a second while it sends, and 20 at once before.
    assert received == pytest.approx(1000 * float(row["duration_s"]) + 20, rel=0.1)
