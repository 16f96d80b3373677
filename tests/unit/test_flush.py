"""The program that pushes captured frames out of the kernel, and the process that runs it on request."""

import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netbench.sinks import flush
from netbench.sinks.flush import FLUSH_MAC, flush_frame
from netbench.sinks.tcpdump_process import FLUSH_FRAMES, FlushProcess
from tests.unit.fakes import FakeHost


def test_the_flush_frame_goes_where_no_bridge_forwards():
    frame = flush_frame("02:6e:62:00:02:02")
    assert len(frame) == 60
    assert frame[:14].hex(":") == "01:80:c2:00:00:0f:02:6e:62:00:02:02:88:b5"
    assert set(frame[14:]) == {0}
    assert bytes.fromhex(FLUSH_MAC.replace(":", "")) == frame[:6]


@pytest.fixture
def flushing(monkeypatch, capsys, tmp_path):
    """Run the program on one request with a stand-in for the sender; return its answer."""
    capture = tmp_path / "a capture.pcap"

    def run(*arrivals: bytes, request="7 0.05 {}"):
        rest = list(arrivals)

        def arrive(*_):
            if rest:
                with capture.open("ab") as file:
                    file.write(rest.pop(0))

        monkeypatch.setattr(flush.FlushSender, "send", arrive)
        monkeypatch.setattr("time.sleep", arrive)
        monkeypatch.setattr(sys, "argv", ["flush", "nb-rx1"])
        monkeypatch.setattr(sys, "stdin", io.StringIO(request.format(capture) + "\n"))
        flush.main()
        return capsys.readouterr().out

    return run


FLUSHED = bytes(16) + flush_frame("02:00:00:00:00:01")


@pytest.mark.parametrize(
    ("arrivals", "answer"),
    [
        ((FLUSHED,), "seen"),
        ((b"other frames" * 1000, b"", FLUSHED), "seen"),
        ((FLUSHED[:20], FLUSHED[20:]), "seen"),
        ((), "unseen"),  # there is not even a file
        ((b"other frames",), "unseen"),
        ((FLUSHED + bytes(1 << 15),), "unseen"),  # of an earlier flush: what came after it may still be on its way
    ],
)
def test_flushing_is_done_when_the_capture_ends_with_a_flush_frame(flushing, arrivals, answer):
    assert flushing(*arrivals) == f"{answer}\n"


class FullSocket:
    """A socket that sends frames, apart from some that its queue has no room for at first."""

    def __init__(self, *full: int) -> None:
        self.full = list(full)
        self.sent: list[bytes] = []

    def bind(self, address) -> None:
        assert address == ("nb-rx1", 0)

    def send(self, frame: bytes) -> None:
        if len(self.sent) in self.full:
            self.full.remove(len(self.sent))
            raise OSError(105, "No buffer space available")
        self.sent.append(frame)


@pytest.mark.parametrize(("frames", "pauses"), [(1, 0), (10, 0), (11, 1), (95, 9)])
def test_learning_frames_are_sent_as_they_are_and_with_pauses(monkeypatch, capsys, frames, pauses):
    opened = FullSocket(0, 3, 3)
    slept: list[float] = []
    monkeypatch.setattr("socket.socket", lambda *_: opened)
    monkeypatch.setattr("time.sleep", slept.append)
    wanted = [flush.padded(number.to_bytes(18)) for number in range(frames)]
    monkeypatch.setattr(sys, "argv", ["flush", "nb-rx1"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"learn {','.join(frame.hex() for frame in wanted)}\n"))
    flush.main()
    assert capsys.readouterr().out == "unseen\n"
    assert opened.sent == wanted
    assert slept == [0.001] * pauses


@pytest.mark.parametrize(("answers", "requests"), [(["unseen"] * 3, 3), (["failed: nb-rx1: Network is down"], 1)])
def test_learning_frames_are_given_to_the_process_in_parts(pusher, monkeypatch, answers, requests):
    monkeypatch.setattr("netbench.sinks.tcpdump_process.LEARNING_BATCH", 2)
    host = PushingHost(answers)
    frames = [flush.padded(number.to_bytes(18)) for number in range(5)]
    pusher(host).prime_fdb(frames)
    process = host.processes[0]
    assert process.stderr is not None
    process.wait()
    lines = process.stderr.read().splitlines()
    assert len(lines) == requests
    asked = [frame for line in lines for frame in line.removeprefix("learn ").split(",")]
    assert asked == [frame.hex() for frame in frames][: len(asked)]


def test_a_frame_to_any_address_has_the_experimental_type():
    assert (
        flush_frame("02:00:00:00:00:08", "02:00:00:00:00:07").rstrip(bytes(1)).hex() == "02000000000702000000000888b5"
    )


def test_the_program_that_flushes_needs_nothing_but_python():
    """Started as in a guest, it reports the missing NIC each time and ends with its stdin."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", inspect.getsource(flush), "nb-no-such"],
        input="1 0.1 /no/capture\n1 0\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.fullmatch("(failed: nb-no-such: (No such device|Operation not permitted)\\n){2}", done.stdout)


# Answers each request with the next of its arguments.
ANSWERS = """
import sys
for answer in sys.argv[1:]:
    print(input(), file=sys.stderr)
    print(answer, flush=True)
"""


class PushingHost(FakeHost):
    """A host with a stand-in for the program; `answers` are those of one process after the other."""

    def __init__(self, *answers: list[str], shares_files=True) -> None:
        super().__init__()
        self._waiting = list(answers)
        self._shares_files = shares_files
        self.spawned: list[list[str]] = []
        self.processes: list[subprocess.Popen[str]] = []

    @property
    def shares_files(self):
        return self._shares_files

    def spawn(self, argv):
        self.spawned.append(list(argv))
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", ANSWERS, *self._waiting.pop(0)]
        self.processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.processes[-1]


@pytest.fixture
def pusher():
    """A pusher on a host."""
    made = []

    def make(host: PushingHost) -> FlushProcess:
        made.append(FlushProcess(host, "nb-rx1"))
        return made[-1]

    yield make
    for opened in made:
        opened.close()
        opened.close()


def test_one_process_serves_one_trial_after_the_other(pusher):
    host = PushingHost(["seen", "unseen", "unseen", "failed: nb-rx1: No such device", "seen", "end"])
    pushing = pusher(host)
    pushing.start()
    assert [pushing.push(Path("/c/x.pcap"), 0.5), pushing.push(None, 0.5)] == [True, False]
    assert [pushing.push(Path("/c/x.pcap"), 0.5) for _ in range(3)] == [False, None, True]
    assert len(host.spawned) == 1
    (process,) = host.processes
    assert process.stderr is not None
    asked = os.read(process.stderr.fileno(), 1000).decode().splitlines()
    assert asked[:2] == [f"{FLUSH_FRAMES} 0.5 /c/x.pcap", f"{FLUSH_FRAMES} 0"]


def test_a_process_that_died_or_talks_nonsense_sent_nothing_and_there_is_a_new_one(pusher):
    host = PushingHost([], ["what?"], ["seen", "end"])
    pushing = pusher(host)
    assert [pushing.push(Path("x.pcap"), 0.5) for _ in range(3)] == [None, None, True]
    assert [process.returncode is None for process in host.processes] == [False, False, True]


def test_a_host_without_netbench_is_given_the_program(pusher):
    """The program stands alone: it must not need netbench."""
    host = PushingHost(["seen"], shares_files=False)
    assert pusher(host).push(Path("/tmp/x.pcap"), 0.5)
    assert host.spawned == [["python3", "-I", "-S", "-c", inspect.getsource(flush), "nb-rx1"]]
