"""The sink `tcpdump`, on a stand-in that says and writes what tcpdump would."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.sinks.base import Catch
from netbench.sinks.flush import FLUSH_MAC, flush_frame
from netbench.sinks.tcpdump import FLUSH_FRAMES, TcpdumpSink, flush_command, ring_bytes, tcpdump_command
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
    """A host with a stand-in for tcpdump; a flush frame arrives with the flush that is told."""

    def __init__(self, first=LISTENING + "\n", last=REPORT, exit_code=0, script=STAND_IN, flush_answer=0, arrives_at=1):
        super().__init__()
        self._script = script
        self._arguments = [first, last, str(exit_code)]
        self._flush_answer = flush_answer
        self._arrives_at = arrives_at
        self.capture = Path()
        self.flushes = 0
        self.spawned: list[list[str]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        self.spawned.append(list(argv))
        command = [sys.executable, "-c", self._script, *self._arguments]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.processes[-1]

    def run(self, argv, *, stdin="", timeout_s=30.0):
        assert list(argv) == flush_command("nb-rx1")
        self.flushes += 1
        if self.flushes == self._arrives_at:
            with self.capture.open("ab") as file:
                file.write(bytes(16) + flush_frame("02:00:00:00:00:01"))
        return Completed(tuple(argv), self._flush_answer, "", "")


@pytest.fixture
def armed(tmp_path):
    """A sink armed on a host."""
    sinks = []

    def arm(host: TcpdumpHost) -> TcpdumpSink:
        sink = TcpdumpSink()
        sinks.append(sink)
        host.capture = tmp_path / "x.pcap"
        host.capture.write_bytes(b"")
        sink.open(host, "nb-rx1", (3, 4))
        sink.arm(Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, host.capture))
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
    assert arrived.capture == host.capture
    assert host.processes[0].poll() == 0


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
    host = TcpdumpHost()
    sink = armed(host)
    assert sink.armed(20)
    host.processes[0].kill()
    host.processes[0].wait()
    sink.flush(5)
    assert host.flushes == 0
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
    host = TcpdumpHost(arrives_at=3)
    sink = armed(host)
    assert sink.armed(20)
    sink.flush(4)
    arrived = sink.stop()
    assert host.flushes == 3
    assert (arrived.flush_frames, arrived.flushed) == (3 * FLUSH_FRAMES, True)


def test_flushing_is_given_up(armed):
    host = TcpdumpHost(arrives_at=0)
    sink = armed(host)
    assert sink.armed(20)
    sink.flush(0.3)
    arrived = sink.stop()
    assert 1 <= host.flushes <= 3
    assert not arrived.flushed


def test_flushing_through_a_nic_that_is_gone_is_not_tried_twice(armed):
    host = TcpdumpHost(flush_answer=1, arrives_at=0)
    sink = armed(host)
    assert sink.armed(20)
    sink.flush(20)
    assert host.flushes == 1
    arrived = sink.stop()
    assert (arrived.flush_frames, arrived.flushed) == (0, False)


def test_flushing_returns_when_tcpdump_dies_meanwhile(armed, monkeypatch):
    host = TcpdumpHost(arrives_at=0)
    sink = armed(host)
    assert sink.armed(20)
    begin = time.monotonic()

    def kill(argv, **more):
        host.processes[0].kill()
        return Completed((), 0, "", "")

    monkeypatch.setattr(host, "run", kill)
    sink.flush(60)
    assert time.monotonic() - begin < 30


def test_closing_ends_it(armed):
    host = TcpdumpHost()
    sink = armed(host)
    sink.close()
    sink.close()
    assert host.processes[0].poll() == -9
    with pytest.raises(TestbedError, match="no capture is running on nb-rx1"):
        sink.stop()


def test_the_command(tmp_path):
    catch = Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, tmp_path / "x.pcap")
    command = tcpdump_command("nb-rx1", (), catch)
    *options, expression = command
    assert options == [
        "tcpdump", "-i", "nb-rx1", "-n", "-p", "-Z", "root", "-s", "64", "-B", "4096", "-w", str(tmp_path / "x.pcap"),
    ]  # fmt: skip
    assert "udp and src host 198.18.1.2 and dst host 198.19.1.2" in expression
    assert "or ether dst 01:80:c2:00:00:0f" in expression.replace("(outbound and ether", "ether")
    assert tcpdump_command("nb-rx1", (3, 4), catch) == ["taskset", "-c", "3,4", *command]


def test_arming_spawns_that_command(armed, tmp_path):
    host = TcpdumpHost()
    armed(host)
    catch = Catch("198.18.1.2", "198.19.1.2", 1000.0, 64, tmp_path / "x.pcap")
    assert host.spawned == [tcpdump_command("nb-rx1", (3, 4), catch)]


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


def test_the_flush_frame_goes_where_no_bridge_forwards():
    frame = flush_frame("02:6e:62:00:02:02")
    assert len(frame) == 60
    assert frame[:14].hex(":") == "01:80:c2:00:00:0f:02:6e:62:00:02:02:88:b5"
    assert set(frame[14:]) == {0}
    assert bytes.fromhex(FLUSH_MAC.replace(":", "")) == frame[:6]
