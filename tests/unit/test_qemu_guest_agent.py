"""A guest reached by QEMU's guest agent, on a small server that runs commands as the agent would."""

import subprocess
import threading
import time
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.hosts.relay import connect
from netbench.vmm.qemu.qmp import GuestAgentHost, QmpConnection
from tests.unit.fake_qmp import FakeQmp, Refusal

HERE = LocalHost("here", "no-run")


def talk(path: Path) -> QmpConnection:
    return QmpConnection("guest g: its guest agent", connect(HERE, str(path)), greets=False)


class Agent:
    """Runs commands here; the second query of its status reports that a command has ended."""

    def __init__(self) -> None:
        self._commands: dict[int, dict[str, object]] = {}
        self._asked: set[int] = set()
        self.hangs = False
        self.deaf = False  # to guest-ping
        self.environment: list[str] = []

    def answer(self, name, arguments):
        if name == "guest-ping":
            if self.deaf:
                raise Refusal("not yet")
            return {}
        if name == "guest-exec":
            return {"pid": self._start(arguments)}
        if name == "guest-exec-status":
            return self._status(arguments["pid"])
        raise Refusal(f"The command {name} has not been found")

    def _start(self, wanted) -> int:
        self.environment = wanted["env"]
        assert (wanted["path"], wanted["capture-output"]) == ("/usr/bin/env", True)
        given = b64decode(wanted.get("input-data", ""))
        done = subprocess.run([wanted["path"], *wanted["arg"]], input=given, capture_output=True, check=False)
        ending: dict[str, object] = (
            {"signal": -done.returncode} if done.returncode < 0 else {"exitcode": done.returncode}
        )
        for key, data in (("out-data", done.stdout), ("err-data", done.stderr)):
            if data:
                ending[key] = b64encode(data).decode()
        self._commands[len(self._commands) + 7] = {"exited": True, **ending}
        return len(self._commands) + 6

    def _status(self, pid):
        if self.hangs or pid not in self._asked:
            self._asked.add(pid)
            return {"exited": False}
        return self._commands[pid]


@pytest.fixture
def agent():
    return Agent()


@pytest.fixture
def server(tmp_path, agent):
    server = FakeQmp(tmp_path / "agent", agent.answer, greets=False)
    yield server
    server.close()


@pytest.fixture
def guest(tmp_path, server):
    guest = GuestAgentHost("g", "guest g", lambda: talk(tmp_path / "agent"))
    guest.await_answer(20, str)
    yield guest
    guest.close()


def test_a_command_its_input_output_and_exit_code(guest, server):
    done = guest.run(["sh", "-c", "cat; echo err >&2; exit 7"], stdin="in\xff\n")
    assert (done.exit_code, done.stdout, done.stderr) == (7, "in\xff\n", "err\n")
    assert [name for name, _ in server.asked] == ["guest-ping", "guest-exec", "guest-exec-status", "guest-exec-status"]


def test_a_command_that_reports_nothing_and_one_that_a_signal_ends(guest):
    assert guest.run(["true"]) == Completed(("true",), 0, "", "")
    assert guest.run(["sh", "-c", "kill -TERM $$"]).exit_code == -15


def test_words_are_not_interpreted_and_a_command_reads_nothing_unless_reported(guest, server):
    assert guest.run(["printf", "%s|", "a b", "$HOME", "*", ""]).stdout == "a b|$HOME|*||"
    (arguments,) = [arguments for name, arguments in server.asked if name == "guest-exec"]
    assert "input-data" not in arguments


def test_the_tools_of_root_are_found(guest, agent):
    guest.run(["true"])
    (path,) = agent.environment
    assert path.startswith("PATH=")
    assert {"/sbin", "/usr/sbin", "/usr/bin", "/bin"} <= set(path.removeprefix("PATH=").split(":"))


def test_a_command_that_does_not_end_in_time(guest, agent):
    agent.hangs = True
    with pytest.raises(TestbedError, match="^guest g: `sleep 0.01` did not end within 0.2 s$"):
        guest.run(["sleep", "0.01"], timeout_s=0.2)


@pytest.mark.parametrize(
    ("error", "message"),
    [(Refusal("Command guest-exec has been disabled"), "Command guest-exec has been disabled"), (OSError(), ".*")],
    ids=["Red Hat's has it switched off", "the guest dies, and QEMU closes the socket"],
)
def test_an_agent_that_does_not_run_a_command_reports_so(guest, agent, monkeypatch, error, message):
    def refuse(wanted):
        raise error

    monkeypatch.setattr(agent, "_start", refuse)
    with pytest.raises(TestbedError, match=f"guest g: its guest agent: {message}"):
        guest.run(["true"])


def test_waiting_waits_for_an_agent_that_comes_later(tmp_path, agent):
    """First there is no socket at all, then no answer; each try is a new connection."""
    servers: list[FakeQmp] = []
    agent.deaf = True

    def come() -> None:
        servers.append(FakeQmp(tmp_path / "agent", agent.answer, greets=False))
        while servers[0].connections < 3:
            time.sleep(0.01)
        agent.deaf = False

    coming = threading.Timer(0.1, come)
    coming.start()
    guest = GuestAgentHost("g", "guest g", lambda: talk(tmp_path / "agent"))
    guest.await_answer(30, str)
    assert guest.run(["true"]).exit_code == 0
    assert servers[0].connections >= 3
    guest.close()
    coming.join()
    servers[0].close()


def test_waiting_gives_up_in_time_or_as_soon_as_there_is_no_hope(tmp_path, agent):
    guest = GuestAgentHost("g", "guest g", lambda: talk(tmp_path / "agent"))
    with pytest.raises(TestbedError, match="did not answer within 0.2 s of its start; does the image run qemu-ga"):
        guest.await_answer(0.2, str)
    with pytest.raises(TestbedError, match="^QEMU has ended$"):
        guest.await_answer(60, lambda: "QEMU has ended")
    with pytest.raises(TestbedError, match="was not waited for"):
        guest.run(["true"])
