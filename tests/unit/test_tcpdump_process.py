"""The tcpdump of a trial: its command, the counts that it reports while it runs, and the prespawned next one."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.model.frame_size import FrameSize
from netbench.sinks import tcpdump
from netbench.sinks.tcpdump import TcpdumpSink
from netbench.sinks.tcpdump_process import (
    TcpdumpProcess,
    counts_in,
    reports_while_running,
    ring_bytes,
    target_of,
    tcpdump_command,
)
from tests.unit.capture_files import pcap
from tests.unit.described_packets import PACKETS, Described
from tests.unit.stand_in_for_tcpdump import FLUSH, FRAMES, IN_VM, LISTENING, PATH, REPORT, TcpdumpHost, incoming
from tests.unit.test_tcpdump_sink import CPUS, FakeFlushProcess, measured

# Like tcpdump: it buffers the last frames until SIGUSR2, prints counts at SIGUSR1, and ends slowly at SIGINT.
SCRIPT = """
import os, signal, sys, time
first, last, code, capture = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
def on(number, do):
    signal.signal(number, lambda signum, frame: do())
rest = [capture[-76:]]
on(signal.SIGUSR1, lambda: os.write(2, ("tcpdump: " + ", ".join(last.split("\\n")[1:-1]) + "\\n").encode()))
on(signal.SIGUSR2, lambda: os.write(1, rest.pop()))
def stop():
    time.sleep(SECONDS)
    os.write(1, rest.pop() if rest else b"")
    os.write(2, last.encode())
    sys.exit(code)
on(signal.SIGINT, stop)
os.write(1, capture[:-76])
os.write(2, first.encode())
while True:
    signal.pause()
"""
LAST_REPORT = REPORT.replace("101", "102")
LINE = "tcpdump: 1 packet captured, 12 packets received by filter, 3 packets dropped by kernel\n"


class TellingHost(TcpdumpHost):
    """A host whose tcpdump prints its counts while it runs, and takes `seconds` to end."""

    def __init__(self, seconds=30.0, last=LAST_REPORT):
        content = pcap([*FRAMES, FLUSH, FLUSH])
        super().__init__(script=SCRIPT.replace("SECONDS", str(seconds)), last=last, content=content)

    def run(self, argv, *, stdin="", timeout_s=30.0):
        return Completed(tuple(argv), 0, "tcpdump version 4.99.3\n", "")


@pytest.fixture
def sink_on(monkeypatch):
    sinks = []
    monkeypatch.setattr(tcpdump, "FlushProcess", lambda host, interface: FakeFlushProcess(1))
    monkeypatch.setattr(tcpdump, "_STOP_S", 1.0)  # those that leave are killed when the test ends

    def open_it(host: TcpdumpHost) -> TcpdumpSink:
        sinks.append(sink := TcpdumpSink())
        sink.open(host, "nb-rx1", CPUS)
        return sink

    yield open_it
    for sink in sinks:
        sink.close()


def armed(sink: TcpdumpSink, **more) -> TcpdumpSink:
    # A host's tcpdump does not see the frames of the last flush process.
    sink._flush_process = FakeFlushProcess(1)  # type: ignore[assignment]  # a stand-in
    sink.arm(incoming(**more))
    return sink


def test_counts_are_complete_before_tcpdump_has_ended_and_the_next_one_is_prespawned(sink_on):
    host = TellingHost()
    begin = time.monotonic()
    received = measured(armed(sink_on(host)))
    assert time.monotonic() - begin < 20, "the end takes 30 s"
    assert (received.frames, received.foreign, received.error, received.unsettled) == (100, 0, "", "")
    assert (received.matched, received.dropped) == (110, 7 + 3)
    assert host.processes[0].poll() is None
    assert len(host.spawned) == 2
    assert host.spawned[1] == host.spawned[0]


def test_the_next_trial_uses_the_prespawned_tcpdump(sink_on, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 1)  # the stand-in's frames are from long ago
    host = TellingHost()
    sink = sink_on(host)
    measured(armed(sink))
    armed(sink)
    assert len(host.spawned) == 2
    assert measured(sink).frames == 100
    assert len(host.spawned) == 3


@pytest.mark.parametrize(("fps", "started"), [(1000.0, 2), (10_000.0, 2), (90_000.0, 3)])
def test_a_prespawned_tcpdump_with_a_small_buffer_is_replaced(sink_on, fps, started):
    host = TellingHost()
    sink = sink_on(host)
    measured(armed(sink))
    armed(sink, fps=fps)
    assert len(host.spawned) == started
    assert sink.armed(20)


def test_a_prespawned_tcpdump_that_died_is_replaced(sink_on, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 1)
    host = TellingHost()
    sink = sink_on(host)
    measured(armed(sink))
    host.processes[1].kill()
    host.processes[1].wait()
    assert measured(armed(sink)).frames == 100
    assert len(host.processes) == 4, "one more for the trial, and one ahead of the next"


@pytest.mark.parametrize(
    "more", [{"last": REPORT.replace("101", "103")}, {"last": "no numbers\n"}], ids=["more than it wrote", "silent"]
)
def test_a_tcpdump_with_unread_frames_is_awaited(sink_on, more):
    host = TellingHost(seconds=0, **more)
    received = measured(armed(sink_on(host)))
    assert (received.frames, bool(received.error)) == (None, True)
    assert host.processes[0].poll() == 0


def test_counts_in_the_output():
    assert counts_in(LINE) == {"captured": 1, "received by filter": 12, "dropped by kernel": 3}
    assert counts_in(f"{LISTENING}\n{LINE}{REPORT}")["captured"] == 101, "the latest"


@pytest.mark.parametrize(("version", "does"), [("4.99.3", True), ("5.0", True), ("4.9.3", False), ("", False)])
def test_only_versions_that_survive_sigusr2_are_queried(version, does):
    assert reports_while_running(f"tcpdump version {version}, libpcap version 1.10.3") is does


BUSY = """
import itertools, os, signal
counts = itertools.count(5)
def say(*_):
    os.write(2, b"tcpdump: %d packets captured, 9 packets received by filter\\n" % next(counts))
signal.signal(signal.SIGUSR1, say)
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"flushed"))
os.write(2, b"\\n")
while True:
    signal.pause()
"""


def test_a_busy_tcpdump_has_no_final_counts():
    """Its buffer is left alone: tcpdump may be writing to it."""
    tcpdump_process = TcpdumpProcess(LocalHost("here", "test"), [sys.executable, "-c", BUSY])
    process = tcpdump_process.process
    assert process.stderr is not None
    process.stderr.readline()
    assert tcpdump_process.final_counts() is None
    assert "tcpdump: 6 packets captured" in tcpdump_process.output
    process.kill()
    assert process.communicate()[0] == ""


def test_the_command(tmp_path):
    target = tmp_path / "x.pcap"
    command = tcpdump_command("nb-rx1", (), incoming(), target)
    *options, expression = command
    assert options == (
        ["tcpdump", "-i", "nb-rx1", "-n", "-p", "-Z", "root", "-s", "64", "-B", "4096", "-w", str(target)]
    )
    assert expression == (
        f"(udp and src net 198.18.1.0/24 and dst host {PATH.dst_ip}) or "
        "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0) or ether proto 0x88cc"
    )
    assert tcpdump_command("nb-rx1", (3, 4), incoming(), target) == ["taskset", "-c", "3,4", *command]
    piped = tcpdump_command("nb-rx1", (), incoming(), None)
    assert piped[piped.index("-w") + 1] == "-"


@pytest.mark.parametrize(
    ("name", "places", "snap"),
    [
        ("plain", [34, 38, 42, 46], 64),
        ("vlan", [38, 42, 46, 50], 66),
        ("vxlan", [38, 42, 84, 88, 92, 96], 112),
        ("pop", [34, 38, 42, 46], 64),
    ],
)
def test_the_command_for_a_described_packet_has_no_addresses(name, places, snap):
    """The last places are beyond the end of the smallest frames, which a filter must not reject for that reason."""
    described = Described.of(PACKETS[name], FrameSize.of(200))
    *options, expression = tcpdump_command("nb-rx1", (), incoming(headers=described.headers), None)
    assert options[options.index("-s") + 1] == str(snap)
    magic = " or ".join(f"ether[{at}:4] = 0xbe9be955" for at in places)
    control = "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0) or ether proto 0x88cc"
    assert expression == f"{control} or ({magic})"
    not_to = "02:00:00:00:00:08", "02:00:00:00:00:09"
    apart = replace(described.headers, not_from=("02:00:00:00:00:07",), not_to=not_to)
    *_, expression = tcpdump_command("nb-rx1", (), incoming(headers=apart), None)
    others = "ether src 02:00:00:00:00:07 or ether dst 02:00:00:00:00:08 or ether dst 02:00:00:00:00:09"
    assert expression.endswith(f" or (({magic}) and not ({others}))")


@pytest.mark.parametrize(
    ("path", "keep", "target"),
    [
        (PATH, False, None),
        (PATH, True, "c/x.pcap"),
        (IN_VM, False, "/tmp/x.pcap"),
        (IN_VM, True, "/tmp/x.pcap"),
        (replace(PATH, source=IN_VM.source), False, "c/x.pcap"),
    ],
)
def test_where_a_capture_goes(path, keep, target):
    """A capture is counted live only if its stream begins and ends on this machine: late frames need one clock."""
    assert target_of(incoming(path=path, keep=keep)) == (None if target is None else Path(target))


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


@pytest.mark.parametrize(("end", "still_run"), [(TcpdumpSink.rest, [True, False]), (TcpdumpSink.close, [False, False])])
def test_a_sink_that_rests_or_is_closed_ends_its_processes(sink_on, end, still_run):
    host = TellingHost()
    sink = sink_on(host)
    measured(armed(sink))
    end(sink)
    assert [process.poll() is None for process in host.processes] == still_run
