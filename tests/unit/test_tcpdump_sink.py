"""The sink `tcpdump`, on a stand-in that prints and writes what tcpdump would."""

import os
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.linux.proc import all_processes
from netbench.model.distributions import Spread
from netbench.model.received import Received
from netbench.model.traffic import Sent, Stamps
from netbench.sinks import tcpdump
from netbench.sinks.tcpdump import TcpdumpSink
from netbench.sinks.tcpdump_process import FLUSH_FRAMES, most_ring_bytes, ring_bytes, tcpdump_command
from netbench.trial.probing import Probed
from tests.unit.capture_files import START_NS, pcap, stream_frame
from tests.unit.stand_in_for_tcpdump import (
    FLUSH,
    FRAMES,
    IN_VM,
    PATH,
    REPORT,
    STAND_IN,
    FarHost,
    GuestHost,
    TcpdumpHost,
    incoming,
)

SENT = Sent(100, 0, 0.1, START_NS, START_NS, 1, 0.0)
CPUS = (max(os.sched_getaffinity(0)),)
NOT_SENT = Sent(0, 0, 0.0, None, None, 0, 0.0)


ENDS_AT_ONCE = "import sys; sys.exit(sys.argv[1])"


class FakeFlushProcess:
    """A flush process that sends nothing; the given flush is in the capture, others return `otherwise`."""

    def __init__(self, arrives_at: int = 1, otherwise: bool | None = False) -> None:
        self._arrives_at = arrives_at
        self._otherwise = otherwise
        self.asked: list[tuple[Path | None, float]] = []
        self.alive = False

    def start(self) -> None:
        self.alive = True

    def push(self, capture: Path | None, wait_s: float, frames: int = FLUSH_FRAMES) -> bool | None:
        assert self.alive
        assert capture is None or frames == FLUSH_FRAMES
        self.asked.append((capture, wait_s))
        return True if len(self.asked) == self._arrives_at else self._otherwise

    def close(self) -> None:
        self.alive = False


@pytest.fixture
def arm(tmp_path, monkeypatch):
    """Arm a sink on a host, to write a file that is kept, or to be counted while it captures."""
    sinks = []

    def arm_it(
        host: TcpdumpHost, flush: FakeFlushProcess | None = None, *, path=PATH, keep=True, **more
    ) -> TcpdumpSink:
        monkeypatch.setattr(tcpdump, "FlushProcess", lambda host, interface: flush or FakeFlushProcess())
        sink = TcpdumpSink()
        sinks.append(sink)
        sink.open(host, "nb-rx1", CPUS)
        sink.arm(incoming(tmp_path / "x", path, keep=keep, **more))
        return sink

    yield arm_it
    for sink in sinks:
        sink.close()


def measured(sink: TcpdumpSink, sent: Sent = SENT, limit_s: float = 5) -> Received:
    """Return the counts of a trial."""
    assert sink.armed(20)
    sink.stop(limit_s)
    return sink.received(sent)


def unarmed(sink: TcpdumpSink) -> Received:
    """Return the counts of a trial in which nothing was sent, because the sink does not listen."""
    assert not sink.armed(20)
    sink.stop(5)
    return sink.received(NOT_SENT)


@pytest.mark.parametrize("keep", [True, False], ids=["from its file", "while it is made"])
def test_a_trial_of_a_sink(arm, tmp_path, monkeypatch, keep):
    if not keep:
        monkeypatch.setattr("shutil.disk_usage", lambda path: pytest.fail("no disk matters"))
    host, flush = TcpdumpHost(), FakeFlushProcess()
    received = measured(arm(host, flush, keep=keep))
    assert (received.frames, received.duplicates, received.reordered, received.foreign) == (100, 0, 0, 0)
    assert (received.loss_runs, received.longest_loss_run, received.reordering_extent) == (0, 0, None)
    assert (received.matched, received.dropped) == (110, 7 + 3), "both are the tester's own loss"
    assert (received.error, received.no_room, received.unsettled) == ("", "", "")
    assert received.delay == Spread(5000, 5000.0, 5000, 5000, 5000, None, 5000)
    assert received.counted_by == "tcpdump"
    assert host.processes[0].poll() == 0
    file = tmp_path / "x.pcap"
    assert set(flush.asked) == {(file if keep else None, 0.5)}
    assert file.exists() is keep, "a capture that is not kept is never on a disk"


def test_what_could_have_been_the_streams_own_and_is_not_is_an_error_that_reports_why(arm):
    received = measured(arm(TcpdumpHost(), keep=False), replace(SENT, frames=99))
    assert received.frames is None
    assert "bear numbers it did not send or times it did not send at" in received.error


def test_a_frame_whose_number_was_mangled_is_foreign_where_the_numbers_are_known(arm):
    mangled = stream_frame(1 << 30, src=PATH.src_ip, dst=PATH.dst_ip)
    content = pcap([*FRAMES[:50], mangled, *FRAMES[51:], FLUSH])
    for keep in (True, False):
        sink = arm(TcpdumpHost(content=content), keep=keep, stamps=Stamps(first_sequence=0))
        received = measured(sink)
        assert (received.frames, received.foreign, received.error) == (99, 1, "")


@pytest.mark.parametrize(
    "content",
    [
        pcap(FRAMES),  # not the number that tcpdump reports
        pcap([*FRAMES, FLUSH])[:-10],  # the last frame is cut
        pcap([*FRAMES, FLUSH]) + bytes(7),
    ],
    ids=["too few", "cut", "too long"],
)
@pytest.mark.parametrize("keep", [True, False], ids=["file", "pipe"])
def test_a_capture_that_is_not_whole_is_not_counted(arm, content, keep):
    """Part of a count would look like loss."""
    received = measured(arm(TcpdumpHost(content=content), keep=keep), limit_s=0.5)
    assert received.frames is None
    assert received.error.endswith("does not contain exactly the frames that tcpdump reports")
    assert received.no_delay == "the capture is incomplete"


@pytest.mark.parametrize(("content", "why"), [(b"no capture at all", "neither pcap"), (b"", "empty")])
def test_what_is_no_capture_is_reported(arm, content, why):
    received = measured(arm(TcpdumpHost(content=content)))
    assert (received.frames, why in received.error) == (None, True)


def test_frames_that_are_not_numbered_can_only_be_counted(arm):
    copies = [*FRAMES[:90], *[FRAMES[0]] * 10, FLUSH]
    received = measured(arm(TcpdumpHost(content=pcap(copies))), replace(SENT, numbered=False))
    assert (received.frames, received.duplicates, received.reordered, received.loss_runs) == (100, None, None, None)
    assert (received.foreign, received.delay) == (0, None)


def test_by_early_stamps_a_delay_of_0_is_below_the_resolution(arm):
    early = replace(SENT, stamped_early=True)
    frames = [stream_frame(n, src=PATH.src_ip, dst=PATH.dst_ip, delay_ns=5000 * (n > 0)) for n in range(100)]
    received = measured(arm(TcpdumpHost(content=pcap([*frames, FLUSH]))), early)
    assert received.delay is not None
    assert (received.delay.smallest_ns, received.delay.mean_ns, received.delay.median_ns) == (None, None, 5000)
    alone = TcpdumpHost(content=pcap([FRAMES[7], FLUSH]), last=REPORT.replace("101", "2"))
    received = measured(arm(alone), early)
    assert (received.frames, received.delay, received.no_delay) == (1, None, "no two consecutive frames arrived")


def test_the_process_that_receives_is_known_while_it_does(arm):
    assert arm(GuestHost()).processes() == (), "those of another machine are unknown"
    sink = arm(TcpdumpHost())
    (process,) = sink.processes()
    assert process in {running.pid for running in all_processes()}
    assert sink.armed(10)
    sink.stop(1.0)
    assert sink.processes() == ()


def test_a_sink_is_used_for_one_trial_after_the_other(arm, tmp_path):
    host = TcpdumpHost()
    sink = arm(host)
    assert measured(sink).frames == 100
    host.content = pcap([])
    sink.arm(incoming(tmp_path / "y", fps=None, keep=True))
    assert measured(sink, limit_s=0.5).frames is None, "not the capture of the trial before"
    assert [process.poll() for process in host.processes] == [0, 0]


def test_its_first_words_may_come_in_pieces(arm):
    pieces = """
for part in ("tcpdump: verbose output suppressed\\n", "tcpdump: liste", "ning on nb-rx1\\n"):
    sys.stderr.write(part)
    sys.stderr.flush()
    time.sleep(0.05)
"""
    script = STAND_IN.replace("import os, signal, sys", "import os, signal, sys, time")
    sink = arm(TcpdumpHost(script=script.replace("sys.stderr.write(first)\n", pieces)))
    assert sink.armed(20)
    assert sink.armed(0), "asked again, it still is"


@pytest.mark.parametrize("first", ["", "tcpdump: verbose output suppressed\ntcpdump: liste"])
def test_a_tcpdump_that_does_not_say_so_is_not_armed(arm, first):
    assert not arm(TcpdumpHost(first=first)).armed(0.2)


@pytest.mark.parametrize("path", [PATH, IN_VM], ids=["here", "on another machine"])
def test_a_tcpdump_that_ends_at_once_is_not_armed_and_reports_why(arm, path):
    """There is no capture to fetch, and that is no reason to end a campaign."""
    message = "tcpdump: nb-rx1: No such device exists\n"
    host = TcpdumpHost if path is PATH else GuestHost
    received = unarmed(arm(host(first=message, script=ENDS_AT_ONCE, content=b""), path=path))
    assert received.error == "tcpdump ended before the trial did (exit code 1): tcpdump: nb-rx1: No such device exists"
    assert (received.frames, received.matched, received.dropped) == (None, None, None)


# A tcpdump that ended by itself missed what came after, whatever it reports, and even if it succeeded.
@pytest.mark.parametrize(
    ("script", "is_killed", "why"),
    [
        (STAND_IN, True, "killed by signal 9"),
        ("import sys; sys.stderr.write(sys.argv[1] + sys.argv[2])", False, "exit code 0"),
    ],
    ids=["killed", "ended by itself"],
)
def test_a_tcpdump_that_ends_within_the_trial_reports_it_and_is_not_flushed(arm, script, is_killed, why):
    host, flush = TcpdumpHost(script=script), FakeFlushProcess()
    sink = arm(host, flush)
    assert sink.armed(20)
    if is_killed:
        host.processes[0].kill()
    host.processes[0].wait(20)
    sink.stop(5)
    received = sink.received(SENT)
    assert flush.asked == []
    assert (received.frames, received.error) == (None, f"tcpdump ended before the trial did ({why})")
    assert (received.dropped is None) == is_killed, "the counts of a killed one are unknown"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"last": "tcpdump: x.pcap: cannot\n" + REPORT, "exit_code": 1}, "(exit code 1): tcpdump: x.pcap: cannot"),
        ({"last": ""}, "(exit code 0)"),
    ],
    ids=["fails though it reports", "does not report"],
)
def test_a_tcpdump_that_is_not_content_is_an_error(arm, more, error):
    assert measured(arm(TcpdumpHost(**more))).error.endswith(error)


def test_a_full_disk_is_to_blame_for_a_capture_that_is_not_whole(arm, tmp_path, monkeypatch):
    last = "tcpdump: x.pcap: No space left on device\n" + REPORT
    received = measured(arm(TcpdumpHost(last=last, exit_code=1)))
    assert received.no_room == f"no space left for {tmp_path / 'x.pcap'}; free some, or write elsewhere with -o"
    monkeypatch.setattr("netbench.sinks.tcpdump._free_bytes", lambda path: 0)
    received = measured(arm(TcpdumpHost()))
    assert (received.frames, received.error, received.no_room) == (100, "", ""), "it did this one no harm"


@pytest.mark.parametrize(
    ("arrives_at", "otherwise", "limit_s", "wait_s", "tries"),
    [(3, False, 4, 0.4, 3), (0, False, 0.1, 0.2, None), (0, None, 20, 2.0, 1)],
    ids=["at last", "given up", "the NIC is gone"],
)
def test_flushing_goes_on_until_a_flush_frame_is_in_the_file(
    arm, tmp_path, arrives_at, otherwise, limit_s, wait_s, tries
):
    flush = FakeFlushProcess(arrives_at, otherwise)
    received = measured(arm(TcpdumpHost(), flush), limit_s=limit_s)
    assert set(flush.asked) == {(tmp_path / "x.pcap", wait_s)}
    assert tries in (None, len(flush.asked))
    why = "the last frames may still have been in the kernel when tcpdump was stopped"
    assert (received.frames, received.unsettled) == (100, "" if arrives_at else why)


def test_flush_frames_that_do_not_come_through_a_pipe_are_sent_again_for_a_while(arm):
    flush = FakeFlushProcess()
    sink = arm(TcpdumpHost(content=pcap(FRAMES), last=REPORT.replace("101", "100")), flush, keep=False)
    received = measured(sink, limit_s=0.3)
    assert len(flush.asked) >= 2
    assert (received.frames, "when tcpdump was stopped" in received.unsettled) == (100, True)


def test_flushing_returns_when_tcpdump_dies_meanwhile(arm, monkeypatch):
    host, flush = TcpdumpHost(), FakeFlushProcess(arrives_at=0)
    sink = arm(host, flush)
    assert sink.armed(20)
    begin = time.monotonic()

    def kill(capture, wait_s):
        host.processes[0].kill()
        return False

    monkeypatch.setattr(flush, "push", kill)
    sink.stop(60)
    assert time.monotonic() - begin < 30


def test_a_capture_of_another_machine_is_brought_home_and_removed_there(arm, tmp_path):
    """This holds even if it is not kept: there is no pipe from there."""
    host = GuestHost()
    sink = arm(host, path=IN_VM, keep=False)
    (spawned,) = host.spawned
    assert spawned[spawned.index("-w") + 1] == "/tmp/x.pcap"
    received = measured(sink)
    assert (received.frames, received.error, received.no_room) == (100, "", "")
    assert (tmp_path / "x.pcap").read_bytes() == host.content
    assert host.there == {}


def test_a_disk_of_another_machine_that_is_full(arm):
    content = pcap([*FRAMES, FLUSH])[:-10]
    received = measured(arm(GuestHost(free_kib=15, content=content), path=IN_VM))
    assert received.no_room.startswith("no space left for /tmp/x.pcap on ")
    assert received.no_room.endswith("; free some there"), "-o would not help"
    assert Probed(SENT, received).why_not == received.no_room


@pytest.mark.parametrize("keep", [True, False])
def test_captures_are_counted_by_one_process_where_netbench_was_brought(arm, tmp_path, tmp_path_factory, keep):
    host = FarHost(tmp_path_factory.mktemp("far"))
    sink = arm(host, path=IN_VM, keep=keep)
    for _ in range(2):
        received = measured(sink)
        assert (received.frames, received.foreign, received.error) == (100, 0, "")
        assert (tmp_path / "x.pcap").exists() == keep, "copied only where somebody wants it"
        assert host.there == {}
        sink.arm(incoming(tmp_path / "x", path=IN_VM, keep=keep))
    counting, *_ = host.processes
    assert len(host.processes) == 4, "beside a tcpdump for each of three trials"
    assert counting.poll() is None
    counting.kill()
    counting.wait()
    assert measured(sink).frames == 100, "another one replaces it"
    sink.close()
    assert host.processes[-1].poll() == 0


@pytest.mark.parametrize(
    ("counter", "why"),
    [
        ("input(); raise SystemExit('no memory')", r"the counting process .* died \(exit code 1\); .*: no memory"),
        ("input(); print('Welcome!', flush=True); input()", "the counting process .* wrote b'Welcome!' where "),
        ("input(); print('{}', flush=True); input()", r"invalid reply \{\}"),
        ("""input(); print('{"failed": "no such disk"}', flush=True); input()""", "no such disk"),
    ],
)
def test_what_cannot_be_counted_there_costs_a_trial_and_no_room(arm, tmp_path_factory, counter, why):
    host = FarHost(tmp_path_factory.mktemp("far"), counter)
    received = measured(arm(host, path=IN_VM, keep=False))
    assert received.frames is None
    assert re.match(f"{host.scratch}/x.pcap on host fake cannot be counted: {why}", received.error)
    assert host.there == {}, "it would be there until the end of the run"


def test_a_capture_that_tcpdump_reports_and_is_not_there_is_a_broken_testbed(arm):
    sink = arm(GuestHost(content=b""), path=IN_VM)
    assert sink.armed(20)
    with pytest.raises(TestbedError, match="cannot be read"):
        sink.stop(5)


@pytest.mark.parametrize("keep", [True, False], ids=["file", "pipe"])
def test_a_child_that_keeps_its_pipes_open_is_not_awaited(arm, keep):
    """One is a child of it that outlives this test; netbench used to wait for it without a limit."""
    child = "import subprocess\nsubprocess.Popen(['sleep', '100'])\n"
    host = TcpdumpHost(script=child + STAND_IN)
    begin = time.monotonic()
    received = measured(arm(host, keep=keep))
    assert (received.frames, received.error) == (100, "")
    assert time.monotonic() - begin < 20, "the limit for one that does not end"


@pytest.mark.parametrize("keep", [True, False], ids=["file", "pipe"])
def test_one_that_does_not_end_is_killed(arm, monkeypatch, keep):
    monkeypatch.setattr(tcpdump, "_STOP_S", 0.5)
    host = TcpdumpHost(script=STAND_IN.replace("SIGINT, stop", "SIGINT, signal.SIG_IGN"))
    received = measured(arm(host, keep=keep))
    assert received.frames is None
    assert received.error.endswith("tcpdump did not stop within 0.5 s of SIGINT and was killed")


@pytest.mark.parametrize("keep", [True, False])
def test_closing_ends_it(arm, keep):
    """That includes one whose capture is being read by a thread that would otherwise wait for ever."""
    host, flush = TcpdumpHost(), FakeFlushProcess()
    sink = arm(host, flush, keep=keep)
    sink.close()
    sink.close()
    assert host.processes[0].poll() == -9
    assert not flush.alive
    with pytest.raises(TestbedError, match="no capture is running on nb-rx1"):
        sink.stop(5)


def test_arming_spawns_that_command_and_a_dry_run_shows_it(arm, tmp_path):
    host = TcpdumpHost()
    sink = arm(host)
    command = tcpdump_command("nb-rx1", CPUS, incoming(), tmp_path / "x.pcap")
    assert host.spawned == [command]
    shown, flush = sink.commands("nb-rx1", CPUS, incoming(tmp_path / "x", keep=True))
    assert shlex.split(shown) == command
    assert "netbench.sinks.flush nb-rx1" in flush


def test_what_it_writes_to_a_disk():
    sink = TcpdumpSink()
    assert sink.writes(incoming(keep=True)) == 24 + 100 * (16 + 60)
    assert sink.writes(incoming(path=IN_VM)) == 24 + 100 * (16 + 60)
    assert sink.writes(incoming()) == 0
    assert sink.writes(incoming(keep=True, fps=None)) == 0, "unknown"


def test_all_rings_of_a_trial_leave_three_quarters_of_the_memory(arm):
    arm(host := TcpdumpHost(), fps=None, sinks=4)
    (argv,) = host.spawned
    assert argv[argv.index("-B") + 1] == "50000", "of 800,000 KiB"
    assert most_ring_bytes("no such line\n", 4) == ring_bytes(1e9, 64), "the most if it is unknown"


@pytest.mark.parametrize("is_far", [False, True])
def test_nothing_sent_is_nothing_to_count_and_no_error(arm, tmp_path_factory, is_far):
    host, path = (FarHost(tmp_path_factory.mktemp("far")), IN_VM) if is_far else (TcpdumpHost(), PATH)
    received = measured(arm(host, path=path), NOT_SENT)
    assert (received.frames, received.error, received.unsettled) == (None, "", "")
    assert getattr(host, "there", {}) == {}, "nothing stays on another machine"


def test_one_frame_is_counted_too(arm):
    last = "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n"
    received = measured(arm(TcpdumpHost(last=last, content=pcap(FRAMES[:1]))))
    assert (received.frames, received.matched, received.dropped, received.error) == (1, 1, 0, "")
