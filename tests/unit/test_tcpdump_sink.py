"""The sink `tcpdump`, on a stand-in that says and writes what tcpdump would."""

import inspect
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.sinks import flush
from netbench.sinks.base import Catch
from netbench.sinks.flush import FLUSH_MAC, NOT_SEEN, flush_frame
from netbench.sinks.tcpdump import (
    FLUSH_FRAMES,
    TcpdumpSink,
    flush_command,
    flush_wait_s,
    ring_bytes,
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
    """A host with a stand-in for tcpdump; flushing is seen to work with the flush that is told."""

    def __init__(
        self, first=LISTENING + "\n", last=REPORT, exit_code=0, script=STAND_IN, flush_answer=NOT_SEEN, arrives_at=1
    ):
        super().__init__()
        self._script = script
        self._arguments = [first, last, str(exit_code)]
        self._flush_answer = flush_answer
        self._arrives_at = arrives_at
        self.capture = Path()
        self.waited: list[float] = []
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

    @property
    def flushes(self) -> int:
        return len(self.waited)

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.waited.append(float(argv[-1]))
        assert list(argv) == flush_command("nb-rx1", self.capture, self.waited[-1])
        assert stdin == ""
        return Completed(tuple(argv), 0 if self.flushes == self._arrives_at else self._flush_answer, "", "")


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
    assert host.flushes >= 1
    assert (arrived.flush_frames, arrived.flushed) == (host.flushes * FLUSH_FRAMES, False)


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
        return Completed((), NOT_SEEN, "", "")

    monkeypatch.setattr(host, "run", kill)
    sink.flush(60)
    assert time.monotonic() - begin < 30


class GuestHost(TcpdumpHost):
    """A host that does not share this machine's files: a capture is there only once it is fetched."""

    def __init__(self, free_kib=1_000_000, capture=b"frames", **more):
        super().__init__(**more)
        self._free_kib = free_kib
        self.there = {} if capture is None else {"/tmp/x.pcap": capture}
        self.programs: list[str] = []

    @property
    def shares_files(self) -> bool:
        return False

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        if argv[0] == "df":
            title = "Filesystem 1024-blocks Used Available Capacity Mounted on"
            return Completed(tuple(argv), 0, f"{title}\ntmpfs 9000000 8 {self._free_kib} 1% /tmp\n", "")
        if argv[0] == "rm":
            self.there.pop(argv[-1], None)
            return Completed(tuple(argv), 0, "", "")
        self.programs.append(stdin)
        return Completed(tuple(argv), 0, "", "")

    def fetch(self, path, target):
        if path not in self.there:
            raise TestbedError(f"guest g: {path} cannot be read: No such file or directory")
        target.write_bytes(self.there[path])


def test_a_capture_of_another_machine_is_brought_home_and_removed_there(armed):
    host = GuestHost()
    sink = armed(host)
    (spawned,) = host.spawned
    assert spawned[spawned.index("-w") + 1] == "/tmp/x.pcap"
    assert sink.armed(20)
    sink.flush(5)
    arrived = sink.stop()
    assert (arrived.capture, arrived.capture.read_bytes()) == (host.capture, b"frames")
    assert (arrived.captured_frames, arrived.flushed, arrived.error, arrived.disk_full) == (1000, True, "", False)
    assert host.there == {}


def test_a_machine_without_netbench_is_given_the_program_that_flushes(armed):
    """By itself: it must not need anything of netbench."""
    host = GuestHost()
    sink = armed(host)
    assert sink.armed(20)
    sink.flush(5)
    (command,) = host.commands
    assert command[:4] == ("python3", "-I", "-S", "-")
    assert command[4:7] == ("nb-rx1", str(FLUSH_FRAMES), "/tmp/x.pcap")
    (program,) = host.programs
    assert "import netbench" not in program
    assert "from netbench" not in program
    assert program == inspect.getsource(flush)


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


@pytest.fixture
def flushing(monkeypatch, tmp_path):
    """Run the program with a stand-in for what sends: the exit code."""
    capture = tmp_path / "x.pcap"

    def run(*arrivals: bytes, wait_s=0.05) -> int:
        rest = list(arrivals)

        def arrive(*_):
            if rest:
                with capture.open("ab") as file:
                    file.write(rest.pop(0))

        monkeypatch.setattr(flush, "_send", arrive)
        monkeypatch.setattr("time.sleep", arrive)
        monkeypatch.setattr(sys, "argv", ["flush", "nb-rx1", "7", str(capture), str(wait_s)])
        return flush.main()

    return run


FLUSHED = bytes(16) + flush_frame("02:00:00:00:00:01")


@pytest.mark.parametrize(
    ("arrivals", "code"),
    [
        ((FLUSHED,), 0),
        ((b"other frames" * 1000, b"", FLUSHED), 0),
        ((FLUSHED[:20], FLUSHED[20:]), 0),
        ((), NOT_SEEN),  # there is not even a file
        ((b"other frames",), NOT_SEEN),
        ((FLUSHED + bytes(1 << 15),), NOT_SEEN),  # of an earlier flush: what came after it may still be on its way
    ],
)
def test_flushing_is_done_when_the_capture_ends_with_a_flush_frame(flushing, arrivals, code):
    assert flushing(*arrivals) == code


def test_the_program_that_flushes_needs_nothing_but_python():
    """As a guest starts it; a NIC that is not there is what it complains of."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", "nb-no-such", "1", "/no/capture", "0.1"],
        input=inspect.getsource(flush),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, NOT_SEEN)
    assert done.stderr.splitlines()[-1].endswith(("No such device", "Operation not permitted"))


@pytest.mark.parametrize(("limit_s", "wait_s"), [(5.0, 0.5), (0.5, 0.2), (0.0, 0.2), (60.0, 6.0)])
def test_each_flush_waits_for_a_part_of_the_limit(limit_s, wait_s):
    assert flush_wait_s(limit_s) == wait_s
