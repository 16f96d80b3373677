"""Ways to forward that need Debian's kernel: that of a VM, and that of a guest."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.commands import netbench, rows, settings

pytestmark = [pytest.mark.vm, pytest.mark.root]

TOLD = settings(repetitions=1, retries=0, tolerance="100%", max_lateness="1min", loads="500fps", duration="1s")


def routed(results) -> list[int]:
    """How many frames the IP layer has forwarded in each trial."""
    with closing(sqlite3.connect(results / "campaign.sqlite")) as store:
        trials = [json.loads(text) for (text,) in store.execute("SELECT document FROM trials")]
    return [one["grew"] for trial in trials for one in _points(trial) if one["counter"] == "ForwDatagrams"]


def _points(part) -> list[dict]:
    if isinstance(part, dict):
        return [part] if "grew" in part else _points(list(part.values()))
    return [one for inner in part for one in _points(inner)] if isinstance(part, list) else []


@pytest.mark.parametrize(("topology", "generator"), [("lab-vm", "pktgen"), ("netns-qemu-virtio", "afpacket")])
@pytest.mark.parametrize("forward", ["flowtable", "tc"])
def test_frames_that_take_a_short_cut_are_all_counted_and_hardly_any_is_routed(results, topology, generator, forward):
    told = settings(generator=generator, frame_sizes="64,1518", flows=3, topology__uuts__0__forward=forward)
    uut = "bridge" if topology == "lab-vm" else "route"  # the first
    done = netbench("run", topology, "quick", "-o", results, *TOLD, *told, "--uut", uut)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in rows(results):
        assert (row["verdict"], row["sent_frames"], row["lost_frames"]) == ("valid", "500", "0"), row
        assert row["received_frames"] == "500"
    assert any(routed(results)) == (forward == "flowtable")  # frames that tc redirects never come near the IP layer
    assert all(grew < 50 for grew in routed(results)), "of each flow what came before its entry was there"
