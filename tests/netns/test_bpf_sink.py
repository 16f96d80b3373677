"""Campaigns with frames counted by a program in the kernel, and the cleanup of that program."""

import json
import socket

import pytest

from netbench.bpf.libbpf import attach_xdp, load
from netbench.capture.counting import analyze_capture
from netbench.errors import MissingError
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.bpf_hooks import attach
from tests.commands import FEW, netbench, rows, settings
from tests.netns.watching import programs, wait_for

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("packets", "frame_sizes"),
    [(["plain"], [64, 1518]), (["vlan", "vxlan", "1k-flows"], [256])],
    ids=["plain", "described"],
)
def test_every_count_and_every_place_of_loss_is_the_same_with_both_sinks(results, tmp_path, packets, frame_sizes):
    same = "uut frame_size intended_fps sent_frames received_frames lost_frames lost_at duplicate_frames foreign_frames"
    same += " reordered_frames unexplained_frames loss_runs longest_loss_run_frames"
    same += " packet flows lossy_flows changed_frames"
    found = []
    for sink, directory in (("tcpdump", results), ("bpf", tmp_path / "bpf")):
        frames = settings(frame_sizes=frame_sizes, packet=packets, sink=sink, order="sequential")
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


@pytest.fixture
def taken():
    """A veth pair at one end of which somebody has an XDP program, as the source xdp has at NICs that want one."""
    here = LocalHost("local", "nbt")
    run_checked(here, ["ip", "link", "add", "nbt-a", "type", "veth", "peer", "nbt-b"])
    try:
        for end in ("nbt-a", "nbt-b"):
            run_checked(here, ["ip", "link", "set", end, "up"])
        with load("source") as program:
            link = attach_xdp(program.program("attached"), socket.if_nametoindex("nbt-a"), "native")
            try:
                yield "nbt-a"
            finally:
                link.close()
    finally:
        run_checked(here, ["ip", "link", "del", "nbt-a"])


def test_beside_the_program_of_a_source_there_is_room_at_tcx_and_none_at_xdp(taken):
    """The NIC of a stream's sink is also that of the source of its reverse."""
    room = Capacity.needed(1, 1, 0)
    with pytest.raises(MissingError, match=r"another one is there.*`hook: tcx`"):
        attach(taken, "xdp", room, by_napi=True)
    try:
        attached = attach(taken, "auto", room, by_napi=True)
    except MissingError as error:
        pytest.skip(f"needs tcx: {error}")
    assert attached.hook.name == "tcx ingress"
    attached.close()
