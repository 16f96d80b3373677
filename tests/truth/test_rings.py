"""A link that receives like a NIC, and overflows: each frame is received, or lost at a known place."""

import re

import pytest

from netbench.uut.reference import DropRule
from tests.commands import PATIENT, netbench, rows, settings

pytestmark = pytest.mark.root

RING = re.compile(r"ingress NIC \(receive ring full\)=(\d+)")
LOADS = "20000fps,max"


def test_what_a_ring_had_no_room_for_and_what_the_uut_dropped_are_reported_apart(tmp_path):
    wanted = settings(frame_sizes="64,1518", loads=LOADS, repetitions=1, duration="300ms")
    more = [*settings(generator="afpacket", drain_limit="1s"), *PATIENT]
    done = netbench("run", "netns", "quick", "-o", tmp_path / "o", "--uut", "drops-7-of-100", *wanted, *more)
    assert done.returncode == 0, done.stderr
    found, overflows = rows(tmp_path / "o"), 0
    assert len(found) == 4
    for row in found:
        sent, received = int(row["sent_frames"]), int(row["received_frames"])
        full = int(match[1]) if (match := RING.search(row["lost_at"])) else 0
        overflows += full
        dropped = DropRule(k=7, n=100).of(sent - full)
        assert received == sent - full - dropped, row  # none merged with another, at any size
        assert row["lost_at"].endswith(f"bridge (nft drop rule)={dropped}")
        assert (row["unexplained_frames"], row["capture_dropped_frames"]) == ("0", "0"), row
        assert not set(row["reasons"].split(";")) - {"", "uneven-pacing"}, row
    assert overflows, "no ring was ever full"
