"""The functions specific to the source `xdp`; test_afpacket.py tests those of every source."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dpkt
import pytest

from netbench.errors import MissingError, TestbedError
from netbench.generators.xdp.xdp import Xdp, XdpSource
from netbench.hosts.clock import wait_until
from netbench.linux.changes.receive import threads_of
from netbench.packets.build import build_template
from tests.netns.test_afpacket import REPOSITORY, SOON_NS, Capture, lab, opened, run, traffic, until_sending
from tests.netns.watching import programs

pytestmark = pytest.mark.root

__all__ = ["lab", "opened"]  # fixtures

SECOND_NS = 1_000_000_000
LARGEST = Xdp().largest_frame


def whole_frames(path) -> list[bytes]:
    with path.open("rb") as file:
        return [frame for _, frame in dpkt.pcap.Reader(file)]


def expected(what, frame: bytes, sequence: int) -> bytes:
    """Frame `sequence` of one flow, with the time stamp of the given frame."""
    size = what.frame_size.only_size
    return build_template(what).frames[size][:46] + sequence.to_bytes(4, "big") + frame[50:58] + bytes(size - 62)


@pytest.mark.parametrize(("frame_size", "forward"), [(64, "drop"), (1518, "route")])
def test_every_byte_of_every_frame_is_right_whatever_was_done_to_those_before(
    lab, opened, tmp_path, monkeypatch, frame_size, forward
):
    """A router writes its addresses and TTL into the same pages that later frames are built in."""
    source = opened(kind="xdp")
    if forward == "route":
        for command in (
            "sysctl -qw net.ipv4.ip_forward=1",
            "ip address add 198.18.0.9/24 dev rx0",
            "ip address add 198.18.1.9/24 dev tx1",
            "ip neighbour add 198.18.1.2 lladdr 02:00:00:00:00:09 dev tx1",
            "ip link set dev rx0 address 02:00:00:00:00:02",
        ):
            lab.do(command)
    monkeypatch.setattr("tests.netns.test_afpacket.SNAP_BYTES", 2000)
    what = traffic(20_000.0, 0.25, frame_size)
    if forward == "route":
        what = replace(what, dst_ip="198.18.1.2")
    capture = Capture(lab, tmp_path / "rx0.pcap")
    routed = lab.tx("packets", "tx1")
    assert run(source, what).frames == 5000
    capture.stop(5000, frame_size)
    frames = whole_frames(tmp_path / "rx0.pcap")
    assert frames == [expected(what, frame, sequence) for sequence, frame in enumerate(frames)]
    assert lab.tx("packets", "tx1") - routed == (5000 if forward == "route" else 0)


def test_the_stamp_is_the_time_of_day_and_paced_to_the_microsecond(lab, opened, tmp_path):
    """Across the turn of a second, which the program counts itself."""
    source = opened(kind="xdp")
    capture = Capture(lab, tmp_path / "rx0.pcap")
    source.prepare(traffic(10_000.0, 0.2))
    ahead_ns = SECOND_NS - time.time_ns() % SECOND_NS
    source.start(time.monotonic_ns() + ahead_ns + (0 if ahead_ns > 2 * SOON_NS else SECOND_NS) - SECOND_NS // 10)
    sent = source.wait(10.0)
    captured = capture.stop(2000, 64)
    assert captured.sequences == list(range(2000))
    assert captured.send_us[0] // 1_000_000 + 1 == captured.send_us[-1] // 1_000_000
    assert captured.send_us[0] == sent.first_ns // 1000
    assert captured.send_us[-1] == sent.last_ns // 1000
    gaps = [later - earlier for earlier, later in pairwise(captured.send_us)]
    assert min(gaps) >= 2, "frames that are overdue are not sent back to back"


def test_a_high_rate_is_kept_on_a_cpu_that_another_session_wants_too(lab, opened):
    """Sessions share a CPU evenly, independent of nice values inside; overdue frames are sent as fast as possible."""
    command = ["taskset", "-c", "0", sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command, start_new_session=True) as other:
        try:
            source = opened(kind="xdp", cpus=(0,))
            lab.write("/sys/class/net/rx0/threaded", "1")
            for thread in threads_of(lab, "rx0"):
                os.sched_setaffinity(thread, {1})
            Path(f"/proc/{other.pid}/autogroup").write_text("0")  # one like any other
            sent = run(source, traffic(1_800_000.0, 0.5))
        finally:
            other.kill()
    assert (sent.error, sent.frames) == ("", 900_000)
    assert 0.5 <= sent.duration_s < 0.65, "with half of the CPU it takes 0.7 s at least"


def test_as_fast_as_it_can_is_a_sequence_whose_losses_the_device_counts(lab, opened, tmp_path):
    source = opened(kind="xdp")
    lab.write("/sys/class/net/rx0/threaded", "1")
    capture = Capture(lab, tmp_path / "rx0.pcap")
    before = lab.tx("packets"), lab.tx("dropped")
    sent = run(source, traffic(None, 0.05))
    assert wait_until(lambda: lab.tx("packets") - before[0] + lab.tx("dropped") - before[1] == sent.frames, 5)
    assert (sent.error, sent.duration_s) == ("", 0.05)
    captured = capture.stop(lab.tx("packets") - before[0], 64)
    assert len(captured.sequences) == lab.tx("packets") - before[0] > 0
    assert captured.sequences == sorted(set(captured.sequences))
    assert captured.send_us == sorted(captured.send_us)
    assert captured.sequences[-1] < sent.frames


def test_what_is_missing_is_reported_with_what_to_do(lab, opened):
    lab.do("ip link add name nothing type bridge")
    with pytest.raises(
        MissingError, match=r"nothing of host lab cannot send: the driver \(bridge\) of nothing rejects"
    ):
        opened("nothing", kind="xdp")
    source = XdpSource()
    with pytest.raises(MissingError, match=r"tx1 is a veth whose other end receives without NAPI.*receive: napi"):
        source.open(lab, "tx1", ())
    with pytest.raises(TestbedError, match=r"nowhere of host lab.*interface does not exist"):
        source.open(lab, "nowhere", ())


def test_a_link_or_size_that_will_not_do_is_an_error_of_the_trial(lab, opened):
    source = opened(kind="xdp")
    with pytest.raises(TestbedError, match=r"MTU of 1500: frames of 2000 bytes do not fit, at most 1522"):
        source.prepare(traffic(10.0, 0.1, 2000))
    for end in ("tx0", "rx0"):
        lab.do(f"ip link set dev {end} mtu 9000")
    with pytest.raises(TestbedError, match=r"for frames of 4000 bytes \(a live frame and .* fill a page\)"):
        source.prepare(traffic(10.0, 0.1, 4000))
    with pytest.raises(TestbedError, match="a live frame and"):
        source.prepare(traffic(10.0, 0.1, LARGEST + 1))
    packets = lab.tx("packets")
    assert run(source, traffic(1000.0, 0.1, LARGEST)).frames == lab.tx("packets") - packets == 100
    lab.do("ethtool -K rx0 gro off")
    with pytest.raises(TestbedError, match="receives without NAPI"):
        source.prepare(traffic(10.0, 0.1))
    lab.do("ip link set dev rx0 down")
    lab.do("ethtool -K rx0 gro on")
    with pytest.raises(TestbedError, match="tx0 is down, or its link is"):
        source.prepare(traffic(10.0, 0.1))


CONTROLLER = """
import sys, time
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from tests.netns.test_afpacket import traffic
source = XdpSource()
source.open(NamespaceHost(LocalHost("lab", sys.argv[1]), sys.argv[1]), "tx0", ())
source.prepare(traffic(None if sys.argv[2] == "max" else float(sys.argv[2]), 600.0))
source.start(time.monotonic_ns())
time.sleep(600)
"""


@pytest.mark.parametrize("load", ["max", "1000"])
def test_a_killed_controller_leaves_nothing_that_sends_and_no_program(lab, load):
    lab.do("ethtool -K rx0 gro on")
    before = programs()
    arguments = [sys.executable, "-c", CONTROLLER, str(lab.netns), load]
    controller = subprocess.Popen(arguments, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    try:
        until_sending(lab)
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    assert wait_until(lambda: programs() <= before, 10)
    packets = lab.tx("packets") + lab.tx("dropped")
    time.sleep(0.1)
    assert lab.tx("packets") + lab.tx("dropped") == packets
