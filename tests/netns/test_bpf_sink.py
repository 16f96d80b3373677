"""Campaigns whose frames a program in the kernel counts, and what is left of it."""

import json

import pytest

from netbench.capture.counting import analyze_capture
from netbench.hosts.clock import wait_until
from tests.commands import FEW, netbench, rows, settings
from tests.netns.watching import programs, wait_for

pytestmark = pytest.mark.root


def test_every_count_and_every_place_of_loss_is_the_same_with_both_sinks(results, tmp_path):
    same = "uut frame_size intended_fps sent_frames received_frames lost_frames lost_at duplicate_frames foreign_frames"
    same += " reordered_frames unexplained_frames loss_runs longest_loss_run_frames"
    found = []
    for sink, directory in (("tcpdump", results), ("bpf", tmp_path / "bpf")):
        frames = settings(frame_sizes=[64, 1518], sink=sink, order="sequential")
        done = netbench("run", "netns", "quick", "-o", directory, *FEW, *frames)
        assert done.returncode == 0, done.stderr
        assert {row["sink"] for row in rows(directory)} == {sink}
        found.append([{name: row[name] for name in same.split()} for row in rows(directory)])
    assert found[0] == found[1]
    assert {row["lost_at"] for row in found[1]} == {"", "bridge (nft drop rule)=14"}
    manifest = json.loads((tmp_path / "bpf" / "manifest.json").read_text())
    counted_by = manifest["tester"][0]["streams"]["s1"]["sink"]
    assert counted_by["kind"] == "bpf"
    assert counted_by["options"]["hook"].startswith(("xdp, native (", "tcx ingress ("))


def test_auto_takes_tcpdump_for_what_it_can_hold_and_a_sample_is_kept(results):
    options = settings(frame_sizes=64, loads=["1000fps", "max"], sink="auto", keep_captures="all", order="sequential")
    done = netbench("run", "netns", "quick", "-o", results, "--uut", "bridge", *FEW, *options)
    assert done.returncode == 0, done.stderr
    few, many = rows(results)
    assert (few["sink"], many["sink"]) == ("tcpdump", "bpf")
    assert "auto=within the 300,000 frames/s that tcpdump is trusted with" in few["sink_details"]
    captures = sorted(path.name for path in (results / "captures").iterdir())
    assert captures == ["trial-000000-s1.pcap", "trial-000001-s1.sample.pcap"]
    sample = analyze_capture(results / "captures" / captures[1])
    assert sample.frames == -(-int(many["received_frames"]) // 1000)
    assert sample.streams[0].min_seq == 0


@pytest.mark.parametrize("hook", ["tcx", "xdp"])
def test_a_killed_controller_leaves_no_program(results, start, hook):
    before = programs()
    campaign = start(
        "run", "netns", "quick", "-o", results, *settings(sink={"kind": "bpf", "hook": hook}, duration="20s")
    )
    wait_for(lambda: programs() - before)
    campaign.kill()
    campaign.wait()
    assert wait_until(lambda: programs() <= before, 10)
    assert netbench("clean").returncode == 0
