"""Existing state, and processes stopped by others: netbench removes nothing foreign, and reports every stop."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.linux.locks import STATE_DIRECTORY
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.uut.raw import Raw
from tests.breakages import load_shipped
from tests.commands import FEW, INLINE, netbench, rows, settings, verdict_of
from tests.netns.watching import events, frames_sent, pids_in, wait_for
from tests.this_machine import LOCAL
from tests.unit.inputs import profile

pytestmark = pytest.mark.root

LONG = ["--uut", "bridge", *FEW, *INLINE, *settings(loads="5000fps", duration="1500ms", retries=0)]


def test_a_namespace_of_the_same_name_is_left_alone(results):
    subprocess.run(["ip", "netns", "add", "nb-netns-sink"], check=True)
    try:
        done = netbench("run", "netns", "quick", "-o", results, *FEW)
        assert done.returncode == 4
        assert "nb-netns-sink exists already and is not netbench's" in done.stderr
        assert [path.name for path in Path("/run/netns").glob("nb-netns-*")] == ["nb-netns-sink"]
        assert not results.exists()
    finally:
        subprocess.run(["ip", "netns", "delete", "nb-netns-sink"], check=True)


DROPS = f"""{LOCAL}
  - {{name: drops, kind: reference, forward: FORWARD, drop: {{k: 1, n: 10}}}}
"""


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_the_machine_itself_can_forward_and_is_itself_again_afterwards(results, tmp_path, forward):
    (tmp_path / "local.yaml").write_text(DROPS.replace("FORWARD", forward))
    done = netbench("run", tmp_path / "local.yaml", "quick", "-o", results, *FEW)
    assert done.returncode == 0, done.stderr
    (row,) = rows(results)
    assert (row["sent_frames"], row["lost_frames"], verdict_of(row)) == ("200", "20", "valid"), row


def test_rules_in_the_machine_itself_go_after_a_killed_run(results, tmp_path, start):
    (tmp_path / "local.yaml").write_text(DROPS.replace("FORWARD", "route"))
    campaign = start("run", tmp_path / "local.yaml", "quick", "-o", results, *FEW, *settings(duration="20s"))
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)))
    assert "table ip nb-drops" in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
    campaign.kill()
    campaign.communicate()
    assert netbench("clean").returncode == 0
    assert "netbench" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout


def test_a_source_that_was_held_up_is_not_silently_valid(results, start):
    campaign = start("run", "netns", "quick", "-o", results, *LONG, *settings(max_lateness="50ms"))
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)))
    wait_for(lambda: frames_sent() > 1000)
    (source,) = pids_in("nb-netns-source", "afpacket")
    os.kill(source, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(source, signal.SIGCONT)
    campaign.communicate(timeout=60)
    (row,) = rows(results)
    assert (row["sent_frames"], row["lost_frames"]) == ("7500", "0")
    assert (row["verdict"], row["reasons"]) == ("suspicious", "uneven-pacing")


def test_a_uut_that_cannot_be_ended_is_undone_all_the_same(monkeypatch):
    def fails(_self):
        raise TestbedError("it does not end")

    monkeypatch.setattr(Raw, "destroy", fails)
    topology = load_shipped("netns")
    spec = next(uut for uut in topology.uuts if uut.name == "bridge")
    listing = ["ip", "-n", "nb-netns-uut", "-br", "link", "show", "type", "bridge"]
    with open_testbed(resolve(topology, profile())) as testbed:
        with pytest.raises(TestbedError, match="it does not end"), testbed.uut(spec):
            assert "nb-br-s1" in subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        assert "nb-br-s1" not in subprocess.run(listing, capture_output=True, text=True, check=True).stdout


def test_a_damaged_journal_is_named_and_stops_no_one(results):
    damaged = STATE_DIRECTORY / "journals" / "garbage-000000000000.jsonl"
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(b'{"topology": "x"}\n\xff\xfe\x00{{{\n')
    try:
        done = netbench("clean")
        assert done.returncode == 4
        assert f"{damaged}: line 2 is damaged" in done.stderr
        assert damaged.with_suffix(".damaged").exists()
        assert netbench("clean").returncode == 0
    finally:
        damaged.unlink(missing_ok=True)
        damaged.with_suffix(".damaged").unlink(missing_ok=True)
