"""The built-in sources on a real veth pair, counted by the kernel and captured frame by frame."""

import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dpkt
import pytest

from netbench.errors import TestbedError
from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.generators.worker_source import WorkerSource
from netbench.generators.xdp.xdp import XdpSource
from netbench.hosts.base import Process
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.linux.changes.receive import threads_of
from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.traffic import Traffic
from tests.unit.inputs import flow_ports

pytestmark = pytest.mark.root

REPOSITORY = Path(__file__).parents[2]
SNAP_BYTES = 80  # enough to identify a frame
SOON_NS = 20_000_000

of_both_kinds = pytest.mark.parametrize("kind", ["afpacket", "xdp"])


class Lab(NamespaceHost):
    """A separate namespace with the veth pairs tx0–rx0 and tx1–rx1; records the processes spawned in it."""

    def __init__(self, netns: str) -> None:
        super().__init__(LocalHost("lab", netns), netns)
        self.spawned: list[Process] = []

    def spawn(self, argv):
        process = super().spawn(argv)
        self.spawned.append(process)
        return process

    def do(self, command: str) -> None:
        done = self.run(command.split())
        assert done.exit_code == 0, done.stderr

    def tx(self, counter: str, interface: str = "tx0") -> int:
        return int(self.read(f"/sys/class/net/{interface}/statistics/tx_{counter}"))


@pytest.fixture
def lab(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    name = f"nbt-afpacket-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        lab = Lab(name)
        lab.do("sysctl -qw net.ipv6.conf.default.disable_ipv6=1")
        for pair in (0, 1):
            lab.do(f"ip link add name tx{pair} type veth peer name rx{pair}")
            lab.do(f"ip link set dev tx{pair} up")
            lab.do(f"ip link set dev rx{pair} up")
        yield lab
        for process in lab.spawned:
            process.kill()
            process.wait()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def opened(lab):
    """Opens sources; closes them afterwards."""
    sources = []

    def open_source(
        interface: str = "tx0", threads: int = 1, kind: str = "afpacket", cpus: Sequence[int] = ()
    ) -> WorkerSource:
        source: WorkerSource = XdpSource()
        if kind == "xdp":
            lab.do(f"ethtool -K {interface.replace('tx', 'rx')} gro on")
        else:
            source = AfPacketSource(AfPacketSource.Options(threads=threads))
        sources.append(source)
        source.open(lab, interface, cpus)
        return source

    yield open_source
    for source in sources:
        source.close()


def traffic(fps: float | None, duration_s: float, frame_size: int | FrameSize = 64, flows: int = 1) -> Traffic:
    return Traffic(
        stream="s1",
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="198.18.0.1",
        dst_ip="198.18.0.2",
        frame_size=parse_frame_size(frame_size),
        fps=fps,
        duration_s=duration_s,
        flows=flows,
        seed=11,
    )


def until_sending(lab: Lab) -> None:
    """Wait until the first frames have left."""
    assert wait_until(lambda: lab.tx("packets") > 0, 10)


def begin(lab: Lab, source: WorkerSource, what: Traffic) -> None:
    """Start a trial, and wait until it sends."""
    source.prepare(what)
    source.start(time.monotonic_ns())
    until_sending(lab)


def run(source: WorkerSource, what: Traffic, timeout_s: float = 30.0):
    source.prepare(what)
    source.start(time.monotonic_ns() + SOON_NS)
    return source.wait(timeout_s)


@dataclass
class Captured:
    """The frames received, in the order of arrival; send times are those of the headers, in µs."""

    sequences: list[int]
    send_us: list[int]
    ports: list[tuple[int, int]]
    lengths: set[int]


class Capture:
    """tcpdump on the far end of a veth pair."""

    def __init__(self, lab: Lab, path: Path, interface: str = "rx0") -> None:
        options = f"-Z root -n -U -B 131072 -s {SNAP_BYTES} -i {interface} -w {path} udp"
        self._path = path
        self._process = lab.spawn(["tcpdump", *options.split()])
        assert "listening on" in self._process.stderr.readline()

    def stop(self, frames: int, frame_size: float) -> Captured:
        """Wait until the file contains `frames` frames of this size, or of this mean size, then stop."""
        expected_bytes = 24 + frames * (16 + min(SNAP_BYTES, frame_size - 4))
        wait_until(lambda: self._path.stat().st_size >= expected_bytes, 10)
        self._process.send_signal(signal.SIGINT)
        _, report = self._process.communicate()
        assert re.search(r"^0 packets dropped by kernel", report, re.MULTILINE), report
        captured = Captured([], [], [], set())
        with self._path.open("rb") as file:
            for _, frame in dpkt.pcap.Reader(file):
                ip = dpkt.ethernet.Ethernet(frame).data
                source, destination = struct.unpack_from("!HH", frame, 34)
                magic, sequence, seconds, microseconds = struct.unpack_from("!IIII", frame, 42)
                assert magic == 0xBE9BE955
                captured.sequences.append(sequence)
                captured.send_us.append(seconds * 1_000_000 + microseconds)
                captured.ports.append((source, destination))
                captured.lengths.add(14 + ip.len)
        return captured


@of_both_kinds
@pytest.mark.parametrize(("frame_size", "flows"), [(64, 1), (65, 300), (1518, 1)])
def test_a_paced_trial_sends_every_frame_once_and_frame_i_in_flow_i_mod_flows(
    lab, opened, tmp_path, frame_size, flows, kind
):
    source = opened(kind=kind)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    packets, octets = lab.tx("packets"), lab.tx("bytes")

    sent = run(source, traffic(20_000.0, 0.2, frame_size, flows))

    assert (sent.frames, sent.errors, sent.error) == (4_000, 0, "")
    assert lab.tx("packets") - packets == 4_000
    assert lab.tx("bytes") - octets == 4_000 * (frame_size - 4)
    captured = capture.stop(4_000, frame_size)
    assert captured.sequences == list(range(4_000))
    assert captured.lengths == {frame_size - 4}
    assert captured.send_us == sorted(captured.send_us)
    assert captured.send_us[0] == sent.first_ns // 1000
    assert captured.send_us[-1] <= sent.last_ns // 1000
    expected = [tuple(pair) for pair in flow_ports(flows, 11)]
    assert captured.ports == [expected[sequence % flows] for sequence in range(4_000)]
    assert sent.duration_s >= 0.2  # 4,000 slots of 50 µs
    assert 1 <= sent.max_burst_frames <= 4_000


@of_both_kinds
def test_after_so_many_frames_the_rate_is_another_one(lab, opened, tmp_path, kind):
    """20,000 frames/s for a quarter of a second, then 5,000, each frame when it is due."""
    source = opened(kind=kind)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    sent = run(source, replace(traffic(12_500.0, 0.5), first_fps=20_000.0, first_s=0.25))
    assert (sent.frames, sent.error) == (6_250, "")
    assert sent.duration_s >= 0.5
    captured = capture.stop(6_250, 64)
    assert captured.sequences == list(range(6_250))
    # A frame is early only within its block of 50 µs, and at most as late as the source reports.
    due_us = [50 * place for place in range(5_000)] + [250_000 + 200 * place for place in range(1_250)]
    begin_us, late_us = captured.send_us[0], 1e6 * sent.max_lateness_s
    after_us = [at - begin_us - due for at, due in zip(captured.send_us, due_us, strict=True)]
    assert min(after_us) >= -late_us - 100, "the first may have been late itself"
    assert max(after_us) <= late_us + 2_000


@pytest.mark.parametrize("threads", [1, 2])
def test_as_fast_as_it_can_is_a_complete_sequence_too(lab, opened, tmp_path, threads):
    source = opened(threads=threads)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    packets = lab.tx("packets")
    sent = run(source, traffic(None, 0.05))
    assert sent.frames > 0
    assert sent.error == ""
    assert sent.duration_s >= 0.05
    assert lab.tx("packets") - packets == sent.frames
    captured = capture.stop(sent.frames, 64)
    assert sorted(captured.sequences) == list(range(sent.frames))


def test_two_threads_share_one_paced_sequence(lab, opened, tmp_path):
    source = opened(threads=2)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    sent = run(source, traffic(40_000.0, 0.2, flows=3))
    assert (sent.frames, sent.error) == (8_000, "")
    captured = capture.stop(8_000, 64)
    in_order = sorted(zip(captured.sequences, captured.send_us, captured.ports, strict=True))
    assert [sequence for sequence, _, _ in in_order] == list(range(8_000))
    assert [send_us for _, send_us, _ in in_order] == sorted(captured.send_us)
    flows = [tuple(pair) for pair in flow_ports(3, 11)]
    assert [ports for _, _, ports in in_order] == [flows[sequence % 3] for sequence in range(8_000)]


@of_both_kinds
def test_a_source_is_used_for_one_trial_after_another(lab, opened, kind):
    source = opened(kind=kind)
    packets = lab.tx("packets")
    expected = 0
    for frame_size, fps in ((64, 10_000.0), (1518, 3_000.0), (100, 7.0), (64, 33_333.0)):
        what = traffic(fps, 0.2, frame_size)
        sent = run(source, what)
        assert (sent.frames, sent.error) == (what.frames, "")
        expected += sent.frames
    assert lab.tx("packets") - packets == expected


def test_the_source_receives_nothing(lab, opened):
    """A socket that also received would cost the machine under test time for every frame."""
    opened()
    sockets = lab.read("/proc/net/packet").splitlines()[1:]
    assert [line.split()[3] for line in sockets] == ["0000"]  # its protocol: none


@of_both_kinds
def test_two_sources_start_together(lab, opened, kind):
    sources = [opened("tx0", kind=kind), opened("tx1", kind=kind)]
    for source in sources:
        source.prepare(traffic(5_000.0, 0.5))
    at_ns = time.monotonic_ns() + 50_000_000
    realtime_ns = at_ns + time.time_ns() - time.monotonic_ns()
    for source in sources:
        source.start(at_ns)
    one, other = [source.wait(30.0) for source in sources]
    for sent in (one, other):
        assert (sent.frames, sent.error) == (2500, "")
        assert sent.first_ns is not None
        # As late as it reports, and not too early (a millisecond for the two clocks read one after the other).
        assert realtime_ns - 1_000_000 <= sent.first_ns
        assert sent.first_ns <= realtime_ns + sent.max_lateness_s * 1e9 + 5_000_000
    assert one.first_ns < other.last_ns
    assert other.first_ns < one.last_ns
    assert lab.tx("packets", "tx0") == lab.tx("packets", "tx1") == 2500


@of_both_kinds
def test_an_interface_that_goes_away_ends_the_trial_and_the_next(lab, opened, kind):
    source = opened(kind=kind)
    begin(lab, source, traffic(10_000.0, 5.0))
    lab.do("ip link delete dev tx0")
    sent = source.wait(30.0)
    assert 0 < sent.frames < 50_000
    assert re.search("ENXIO|ENETDOWN|ENODEV|No such device", sent.error)
    with pytest.raises(TestbedError, match=r"tx0.*interface does not exist"):
        source.prepare(traffic(10_000.0, 5.0))


@of_both_kinds
def test_an_interface_taken_down_ends_the_trial_and_works_again_when_up(lab, opened, kind):
    source = opened(kind=kind)
    begin(lab, source, traffic(10_000.0, 5.0))
    lab.do("ip link set dev tx0 down")
    assert re.search("ENETDOWN|went down", source.wait(30.0).error)
    lab.do("ip link set dev tx0 up")
    sent = run(source, traffic(1_000.0, 0.1))
    assert (sent.frames, sent.errors, sent.error) == (100, 0, "")


def test_a_replaced_interface_of_the_same_name_is_used(lab, opened):
    source = opened()
    run(source, traffic(1_000.0, 0.1))
    lab.do("ip link delete dev tx0")
    lab.do("ip link add name tx0 type veth peer name rx0")
    lab.do("ip link set dev rx0 up")
    lab.do("ip link set dev tx0 up")
    assert run(source, traffic(1_000.0, 0.1)).frames == 100
    assert lab.tx("packets") == 100


def test_a_link_without_carrier_is_given_up_in_bounded_time(lab, opened):
    source = opened()
    lab.do("ip link set dev rx0 down")
    packets = lab.tx("packets")
    sent = run(source, traffic(1_000.0, 0.05))
    assert sent.frames == lab.tx("packets") - packets == 0
    assert sent.errors > 0
    assert "was stopped after" in sent.error
    assert (sent.first_ns, sent.last_ns, sent.duration_s) == (None, None, 0.0)


@of_both_kinds
def test_a_killed_worker_is_an_error_of_the_trial_and_of_the_next(lab, opened, kind):
    source = opened(kind=kind)
    begin(lab, source, traffic(10_000.0, 5.0))
    threading.Timer(0.1, lab.spawned[0].kill).start()
    assert "signal 9" in source.wait(30.0).error
    with pytest.raises(TestbedError, match="signal 9"):
        source.prepare(traffic(10_000.0, 5.0))


@of_both_kinds
@pytest.mark.parametrize("fps", [None, 2.0])
def test_a_trial_that_takes_too_long_is_stopped_with_what_it_sent(lab, opened, fps, kind):
    source = opened(kind=kind)
    packets = lab.tx("packets")
    sent = run(source, traffic(fps, 600.0), timeout_s=0.2)
    assert "stopped" in sent.error
    assert sent.frames == lab.tx("packets") - packets > 0
    # The source still works.
    assert run(source, traffic(1_000.0, 0.1)).frames == 100


@of_both_kinds
@pytest.mark.parametrize("way", ["close", "terminate"])
@pytest.mark.parametrize("fps", [None, 0.01])
def test_nothing_is_sent_after_the_end_of_a_source(lab, opened, fps, way, kind):
    source = opened(kind=kind)
    begin(lab, source, traffic(fps, 600.0))
    worker = lab.spawned[0]
    if way == "close":
        source.close()
        assert worker.returncode == 0  # it ended on request, without a signal
    else:
        worker.terminate()
        worker.wait(10)
    packets = lab.tx("packets")
    time.sleep(0.1)
    assert lab.tx("packets") == packets


@pytest.mark.parametrize(
    ("interface", "cpus", "why"),
    [("nowhere", (), r"nowhere of host lab.*interface does not exist"), ("tx0", [100_000], "CPU")],
)
def test_an_interface_or_cpu_that_is_not_there_is_an_error_of_open(opened, interface, cpus, why):
    with pytest.raises(TestbedError, match=why):
        opened(interface, cpus=cpus)


def test_the_threads_run_on_the_cpus_they_are_given(lab):
    source = AfPacketSource(AfPacketSource.Options(threads=2))
    source.open(lab, "tx0", [0])
    try:
        begin(lab, source, traffic(10_000.0, 600.0))
        tasks = list(Path(f"/proc/{lab.spawned[0].pid}/task").iterdir())
        assert len(tasks) == 4  # requests, the trial, two senders
        for task in tasks:
            assert "\nCpus_allowed_list:\t0\n" in (task / "status").read_text()
    finally:
        source.close()


def test_frames_that_a_ring_refuses_are_sent_and_no_failed_sends(lab, opened):
    lab.do("ethtool -K tx0 tso off")
    lab.do("ethtool -K rx0 gro on rx-gro-list off rx-udp-gro-forwarding off")
    lab.write("/sys/class/net/rx0/threaded", "1")
    ((number, _),) = threads_of(lab, "rx0").items()
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(number, {cpu})
    os.sched_setscheduler(number, os.SCHED_IDLE, os.sched_param(0))  # it has a ring overflow for certain
    source = opened(cpus=[cpu])
    refused, passed = lab.tx("dropped"), lab.tx("packets")
    sent = run(source, replace(traffic(None, 0.3), receive="napi"))
    assert (sent.errors, sent.error) == (0, "")
    assert wait_until(lambda: lab.tx("packets") - passed + lab.tx("dropped") - refused == sent.frames, 5)
    assert lab.tx("dropped") > refused
