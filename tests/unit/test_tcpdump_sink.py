"""The sink `tcpdump`, on a stand-in that says and writes what tcpdump would."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.sinks import tcpdump
from netbench.sinks.base import Catch
from netbench.sinks.pusher import FLUSH_FRAMES
from netbench.sinks.tcpdump import (
    TcpdumpSink,
    flush_wait_s,
    most_ring_bytes,
    ring_bytes,
    target_of,
    tcpdump_command,
)
from tests.unit.fakes import FakeHost

LISTENING = "tcpdump: listening on nb-rx1, link-type EN10MB (Ethernet), snapshot length 64 bytes"
REPORT = """
1000 packets captured
1010 packets received by filter
7 packets dropped by kernel
3 packets dropped by interface
"""

# What the stand-in does: says its first words, waits for SIGINT, says its last words, ends.
STAND_IN = """
import os, signal, sys
first, last, code = sys.argv[1], sys.argv[2], int(sys.argv[3])
def stop(signum, frame):
    os.write(2, last.encode())  # past sys.stderr, which the signal may have found at work
    sys.exit(code)
signal.signal(signal.SIGINT, stop)
sys.stderr.write(first)
sys.stderr.flush()
while True:
    signal.pause()
"""


class TcpdumpHost(FakeHost):
    """A host with a stand-in for tcpdump, and 800 MB of memory."""

    def __init__(self, first=LISTENING + "\n", last=REPORT, exit_code=0, script=STAND_IN):
        super().__init__(files={"/proc/meminfo": "MemFree: 1 kB\nMemAvailable:     800000 kB\n"})
        self._script = script
        self._arguments = [first, last, str(exit_code)]
        self.capture = Path()
        self.spawned: list[list[str]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        self.spawned.append(list(argv))
        command = [sys.executable, "-c", self._script, *self._arguments]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.processes[-1]

    @property
    def shares_files(self) -> bool:
        return True


class FakePusher:
    """Sends nothing; the flush that is told is seen in the capture, others get `otherwise` for an answer."""

    def __init__(self, arrives_at: int = 1, otherwise: bool | None = False) -> None:
        self._arrives_at = arrives_at
        self._otherwise = otherwise
        self.asked: list[tuple[Path | None, float]] = []
        self.alive = False

    def start(self) -> None:
        self.alive = True

    def push(self, capture: Path | None, wait_s: float) -> bool | None:
        assert self.alive
        self.asked.append((capture, wait_s))
        return True if len(self.asked) == self._arrives_at else self._otherwise

    def close(self) -> None:
        self.alive = False


class FakeListener:
    """Takes what comes, and says of a flush what it is told to."""

    def __init__(self, hears_flush=True) -> None:
        self._hears_flush = hears_flush
        self.pipe = -1
        self.cpus: Sequence[int] = ()

    def begin(self, pipe, cpus):
        self.pipe, self.cpus = pipe, cpus

    def await_flush(self, timeout_s):
        return self._hears_flush


@pytest.fixture
def armed(tmp_path, monkeypatch):
    """A sink armed on a host."""
    sinks = []

    def arm(host: TcpdumpHost, pusher: FakePusher | None = None, listener: FakeListener | None = None) -> TcpdumpSink:
        monkeypatch.setattr(tcpdump, "Pusher", lambda host, interface: pusher or FakePusher())
        sink = TcpdumpSink()
        sinks.append(sink)
        host.capture = tmp_path / "x.pcap"
        host.capture.write_bytes(b"")
        sink.open(host, "nb-rx1", (3, 4))
        sink.arm(Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, host.capture, listener))
        return sink

    yield arm
    for sink in sinks:
        sink.close()


def test_a_trial_of_a_sink(armed):
    host = TcpdumpHost()
    sink = armed(host)
    assert sink.armed(20)
    sink.flush(5)
    arrived = sink.stop()
    assert (arrived.captured_frames, arrived.filter_frames) == (1000, 1010)
    assert arrived.dropped_frames == 7 + 3, "both are the tester's own loss"
    assert (arrived.flush_frames, arrived.flushed, arrived.error, arrived.disk_full) == (FLUSH_FRAMES, True, "", False)
    assert (arrived.capture, arrived.heard) == (host.capture, False)
    assert host.processes[0].poll() == 0


WRITES = STAND_IN.replace("sys.stderr.write(first)", "os.write(1, b'frames'); sys.stderr.write(first)")


def test_a_capture_that_is_heard_comes_down_a_pipe_and_no_disk_matters(armed, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: pytest.fail("asked for"))
    listener, pusher = FakeListener(), FakePusher()
    sink = armed(TcpdumpHost(script=WRITES), pusher, listener)
    assert sink.armed(20)
    sink.flush(5)
    arrived = sink.stop()
    assert (arrived.heard, arrived.flushed, arrived.captured_frames, arrived.error) == (True, True, 1000, "")
    assert pusher.asked == [(None, 0.5)]
    assert listener.cpus == (3, 4)
    assert [os.read(listener.pipe, 100), os.read(listener.pipe, 100)] == [b"frames", b""], "all of it, and its end"
    os.close(listener.pipe)


def test_flush_frames_that_nobody_hears_are_sent_again_for_a_while(armed):
    pusher, listener = FakePusher(), FakeListener(hears_flush=False)
    sink = armed(TcpdumpHost(), pusher, listener)
    assert sink.armed(20)
    sink.flush(0.3)
    arrived = sink.stop()
    assert (arrived.flush_frames, arrived.flushed) == (len(pusher.asked) * FLUSH_FRAMES, False)
    os.close(listener.pipe)


def test_a_listener_hears_the_end_when_the_sink_is_closed_amid_a_trial(armed):
    """Or it would wait for ever."""
    listener = FakeListener()
    sink = armed(TcpdumpHost(), None, listener)
    sink.close()
    assert os.read(listener.pipe, 100) == b""
    os.close(listener.pipe)


def test_a_sink_is_used_for_one_trial_after_the_other(armed):
    host = TcpdumpHost()
    sink = armed(host)
    sink.armed(20)
    sink.flush(5)
    sink.stop()
    host.capture.write_bytes(b"")
    sink.arm(Catch("198.18.1.2", "198.19.1.2", None, 64, host.capture))
    assert sink.armed(20)
    arrived = sink.stop()
    assert (arrived.flush_frames, arrived.flushed) == (0, False)
    assert [process.poll() for process in host.processes] == [0, 0]


def test_its_first_words_may_come_in_pieces(armed):
    pieces = """
for part in ("tcpdump: verbose output suppressed\\n", "tcpdump: liste", "ning on nb-rx1\\n"):
    sys.stderr.write(part)
    sys.stderr.flush()
    time.sleep(0.05)
"""
    script = STAND_IN.replace("import os, signal, sys", "import os, signal, sys, time")
    sink = armed(TcpdumpHost(script=script.replace("sys.stderr.write(first)\n", pieces)))
    assert sink.armed(20)
    assert sink.armed(0), "asked again, it still is"


@pytest.mark.parametrize("first", ["", "tcpdump: verbose output suppressed\ntcpdump: liste"])
def test_a_tcpdump_that_does_not_say_so_is_not_armed(armed, first):
    sink = armed(TcpdumpHost(first=first))
    assert not sink.armed(0.2)


def test_a_tcpdump_that_ends_at_once_is_not_armed_and_says_why(armed):
    says = "tcpdump: nb-rx1: No such device exists\n"
    sink = armed(TcpdumpHost(first=says, script="import sys; sys.exit(sys.argv[1])"))
    assert not sink.armed(20)
    arrived = sink.stop()
    assert arrived.error == "tcpdump ended before the trial did (exit code 1): tcpdump: nb-rx1: No such device exists"
    assert (arrived.captured_frames, arrived.filter_frames, arrived.dropped_frames) == (None, None, None)
    assert not arrived.flushed


def test_a_tcpdump_that_was_killed_says_so_and_its_counts_are_unknown(armed):
    host, pusher = TcpdumpHost(), FakePusher()
    sink = armed(host, pusher)
    assert sink.armed(20)
    host.processes[0].kill()
    host.processes[0].wait()
    sink.flush(5)
    assert pusher.asked == []
    arrived = sink.stop()
    assert arrived.error == "tcpdump ended before the trial did (killed by signal 9)"
    assert (arrived.captured_frames, arrived.dropped_frames) == (None, None)


def test_a_tcpdump_that_fails_though_it_reports_is_an_error(armed):
    sink = armed(TcpdumpHost(last="tcpdump: x.pcap: No space left on device\n" + REPORT, exit_code=1))
    assert sink.armed(20)
    arrived = sink.stop()
    assert arrived.error.endswith("(exit code 1): tcpdump: x.pcap: No space left on device")
    assert arrived.disk_full


def test_a_tcpdump_without_a_report_is_an_error(armed):
    sink = armed(TcpdumpHost(last=""))
    assert sink.armed(20)
    assert "(exit code 0)" in sink.stop().error


def test_a_tcpdump_that_ended_of_its_own_accord_missed_what_came_after(armed):
    """Whatever it reports, and though it was content."""
    script = "import sys; sys.stderr.write(sys.argv[1] + sys.argv[2])"
    host = TcpdumpHost(script=script)
    sink = armed(host)
    assert sink.armed(20)
    host.processes[0].wait(20)
    arrived = sink.stop()
    assert arrived.error == "tcpdump ended before the trial did (exit code 0)"


def test_one_frame_is_counted_too(armed):
    last = "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n"
    sink = armed(TcpdumpHost(last=last))
    assert sink.armed(20)
    arrived = sink.stop()
    assert (arrived.captured_frames, arrived.filter_frames, arrived.dropped_frames, arrived.error) == (1, 1, 0, "")


def test_flushing_goes_on_until_a_flush_frame_is_in_the_file(armed):
    host, pusher = TcpdumpHost(), FakePusher(arrives_at=3)
    sink = armed(host, pusher)
    assert sink.armed(20)
    sink.flush(4)
    arrived = sink.stop()
    assert pusher.asked == [(host.capture, 0.4)] * 3
    assert (arrived.flush_frames, arrived.flushed) == (3 * FLUSH_FRAMES, True)


def test_flushing_is_given_up(armed):
    pusher = FakePusher(arrives_at=0)
    sink = armed(TcpdumpHost(), pusher)
    assert sink.armed(20)
    sink.flush(0.1)
    arrived = sink.stop()
    assert len(pusher.asked) >= 1
    assert (arrived.flush_frames, arrived.flushed) == (len(pusher.asked) * FLUSH_FRAMES, False)


def test_flushing_through_a_nic_that_is_gone_is_not_tried_twice(armed):
    pusher = FakePusher(arrives_at=0, otherwise=None)
    sink = armed(TcpdumpHost(), pusher)
    assert sink.armed(20)
    sink.flush(20)
    assert len(pusher.asked) == 1
    arrived = sink.stop()
    assert (arrived.flush_frames, arrived.flushed) == (0, False)


def test_flushing_returns_when_tcpdump_dies_meanwhile(armed, monkeypatch):
    host, pusher = TcpdumpHost(), FakePusher(arrives_at=0)
    sink = armed(host, pusher)
    assert sink.armed(20)
    begin = time.monotonic()

    def kill(capture, wait_s):
        host.processes[0].kill()
        return False

    monkeypatch.setattr(pusher, "push", kill)
    sink.flush(60)
    assert time.monotonic() - begin < 30


class GuestHost(TcpdumpHost):
    """A host that does not share this machine's files: a capture is there only once it is fetched."""

    def __init__(self, free_kib=1_000_000, capture=b"frames", **more):
        super().__init__(**more)
        self._free_kib = free_kib
        self.there = {} if capture is None else {"/tmp/x.pcap": capture}

    @property
    def shares_files(self) -> bool:
        return False

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        if argv[0] == "df":
            title = "Filesystem 1024-blocks Used Available Capacity Mounted on"
            return Completed(tuple(argv), 0, f"{title}\ntmpfs 9000000 8 {self._free_kib} 1% /tmp\n", "")
        self.there.pop(argv[-1], None)
        return Completed(tuple(argv), 0, "", "")

    def fetch(self, path, target):
        if path not in self.there:
            raise TestbedError(f"guest g: {path} cannot be read: No such file or directory")
        target.write_bytes(self.there[path])


def test_a_capture_of_another_machine_is_brought_home_and_removed_there(armed):
    """Though somebody would listen: there is no pipe from there."""
    host = GuestHost()
    sink = armed(host, None, FakeListener())
    (spawned,) = host.spawned
    assert spawned[spawned.index("-w") + 1] == "/tmp/x.pcap"
    assert sink.armed(20)
    sink.flush(5)
    arrived = sink.stop()
    assert (arrived.capture, arrived.capture.read_bytes()) == (host.capture, b"frames")
    assert (arrived.captured_frames, arrived.flushed, arrived.error, arrived.disk_full) == (1000, True, "", False)
    assert host.there == {}


def test_a_disk_of_another_machine_that_is_full(armed):
    sink = armed(GuestHost(free_kib=15))
    assert sink.armed(20)
    assert sink.stop().disk_full


def test_a_tcpdump_of_another_machine_that_could_not_even_begin_is_a_reason_of_its_trial(armed):
    """There is no capture to bring home, and that is no reason to end a campaign."""
    script = "import sys; sys.exit(sys.argv[1])"
    says = "tcpdump: nb-rx1: No such device exists\n"
    sink = armed(GuestHost(capture=None, first=says, script=script))
    assert not sink.armed(20)
    arrived = sink.stop()
    assert arrived.error == "tcpdump ended before the trial did (exit code 1): tcpdump: nb-rx1: No such device exists"
    assert arrived.captured_frames is None


def test_a_capture_that_tcpdump_reports_and_is_not_there_is_a_broken_testbed(armed):
    sink = armed(GuestHost(capture=None))
    assert sink.armed(20)
    with pytest.raises(TestbedError, match="cannot be read"):
        sink.stop()


def test_closing_ends_it(armed):
    host, pusher = TcpdumpHost(), FakePusher()
    sink = armed(host, pusher)
    sink.close()
    sink.close()
    assert host.processes[0].poll() == -9
    assert not pusher.alive
    with pytest.raises(TestbedError, match="no capture is running on nb-rx1"):
        sink.stop()


def test_the_command(tmp_path):
    catch = Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, tmp_path / "x.pcap")
    command = tcpdump_command("nb-rx1", (), catch, catch.capture)
    *options, expression = command
    assert options == [
        "tcpdump",
        "-i",
        "nb-rx1",
        "-n",
        "-p",
        "-Z",
        "root",
        "-s",
        "64",
        "-B",
        "4096",
        "-w",
        str(tmp_path / "x.pcap"),
    ]
    assert "udp and src host 198.18.1.2 and dst host 198.19.1.2" in expression
    assert "or ether dst 01:80:c2:00:00:0f" in expression.replace("(outbound and ether", "ether")
    assert tcpdump_command("nb-rx1", (3, 4), catch, catch.capture) == ["taskset", "-c", "3,4", *command]
    heard = tcpdump_command("nb-rx1", (), catch, None)
    assert heard[heard.index("-w") + 1] == "-"


def test_arming_spawns_that_command(armed, tmp_path):
    host = TcpdumpHost()
    armed(host)
    catch = Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, tmp_path / "x.pcap")
    assert host.spawned == [tcpdump_command("nb-rx1", (3, 4), catch, catch.capture)]


@pytest.mark.parametrize(
    ("has_listener", "shares_files", "target"),
    [(True, True, None), (False, True, "c/x.pcap"), (True, False, "/tmp/x.pcap"), (False, False, "/tmp/x.pcap")],
)
def test_where_a_capture_goes(has_listener, shares_files, target):
    found = target_of(Path("c/x.pcap"), has_listener=has_listener, shares_files=shares_files)
    assert found == (None if target is None else Path(target))


@pytest.mark.parametrize(
    ("fps", "snap", "mib"),
    [
        (1.0, 64, 4),  # never less
        (1_488_095.0, 64, 1_488_095 * 176 / 2**20),
        (81_274.0, 262_144, 81_274 * 1626 / 2**20),  # no frame is larger than 1514 bytes
        (14_880_952.0, 64, 256),  # never more
        (None, 64, 128),
    ],
)
def test_the_ring_holds_a_second_of_frames(fps, snap, mib):
    assert ring_bytes(fps, snap) == int(mib * 2**20)


def test_all_rings_of_a_trial_leave_three_quarters_of_the_memory(armed, tmp_path):
    sink = armed(host := TcpdumpHost())
    sink.stop()
    sink.arm(Catch("198.18.1.2", "198.19.1.2", None, 64, tmp_path / "x.pcap", sinks=4))
    buffers = [argv[argv.index("-B") + 1] for argv in host.spawned]
    assert buffers == ["4096", "50000"], "of 800,000 KiB"
    assert most_ring_bytes("no such line\n", 4) == ring_bytes(1e9, 64), "where nobody knows, as if there were enough"


@pytest.mark.parametrize(("limit_s", "wait_s"), [(5.0, 0.5), (0.5, 0.2), (0.0, 0.2), (60.0, 6.0)])
def test_each_flush_waits_for_a_part_of_the_limit(limit_s, wait_s):
    assert flush_wait_s(limit_s) == wait_s
