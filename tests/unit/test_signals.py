"""Signals to stop: they act once, in one process, and not in the middle of a clean-up."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import BaseModel, PlainSerializer, TypeAdapter

import netbench
from netbench.hosts.local import LocalHost
from netbench.model.documents import document_of, plain, plain_text, plain_value
from netbench.signals import _REPEATED_S, Stopped, shielded, stopping_on_signals

STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.fixture(autouse=True)
def handlers_come_back():
    before = [signal.getsignal(signum) for signum in STOPPING]
    yield
    assert [signal.getsignal(signum) for signum in STOPPING] == before


def send(signum):
    os.kill(os.getpid(), signum)
    time.sleep(0)  # Python checks for signals here


@pytest.mark.parametrize("signum", STOPPING)
def test_a_signal_unwinds(signum):
    steps = []

    def stopped_halfway():
        try:
            send(signum)
            steps.append("went on")
        finally:
            steps.append("put back")

    with pytest.raises(Stopped) as stopped, stopping_on_signals():
        stopped_halfway()
    assert steps == ["put back"]
    assert (stopped.value.signum, str(stopped.value)) == (signum, signal.Signals(signum).name)
    assert isinstance(stopped.value, KeyboardInterrupt)


def run(script: str, timeout_s=30) -> subprocess.CompletedProcess[str]:
    begin = "import os, signal, sys, time\nfrom netbench.signals import Stopped, shielded, stopping_on_signals\n"
    argv = [sys.executable, "-c", begin + script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


SHIELDED = """
THREAD
steps = []
try:
    with stopping_on_signals():
        with shielded():
            with shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)
                steps.append("inner")
            os.kill(os.getpid(), signal.SECOND)
            time.sleep(0.05)
            steps.append("outer")
        steps.append("too far")
except Stopped as stopped:
    print(*steps, "then", stopped)
"""
A_THREAD = "import threading\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()"


@pytest.mark.parametrize(
    ("thread", "second", "stopped_by"),
    [("", "SIGTERM", ["SIGTERM"]), (A_THREAD, "SIGTERM", ["SIGTERM"]), ("", "SIGINT", ["SIGTERM", "SIGINT"])],
    ids=["alone", "with a thread", "two kinds"],
)
def test_signals_wait_until_a_shielded_block_is_done_and_stop_once(thread, second, stopped_by):
    """There are other threads: numpy starts some, and so does the bar on the console. Each can receive a signal."""
    done = run(SHIELDED.replace("THREAD", thread).replace("SECOND", second))
    assert done.stdout in [f"inner outer then {name}\n" for name in stopped_by]
    assert done.stderr == ""


AGAIN = """
import threading
threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
try:
    with stopping_on_signals():
        try:
            os.kill(os.getpid(), signal.FIRST)
            time.sleep(5)
        finally:
            with shielded():
                for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                    os.kill(os.getpid(), again)
                    time.sleep(0.02)
                os.write(1, b"put back")
except Stopped:
    os.write(1, b", stopped")
"""


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_an_impatient_user_does_not_keep_it_from_putting_things_back(first):
    done = run(AGAIN.replace("FIRST", first))
    assert (done.stdout, done.stderr) == ("put back, stopped", "")


def test_a_shield_is_lifted_whatever_happens():
    def fail():
        with shielded():
            raise ZeroDivisionError

    with stopping_on_signals():
        with pytest.raises(ZeroDivisionError):
            fail()
        with pytest.raises(Stopped):
            send(signal.SIGTERM)


HELD_DOWN = """
def put_back():
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
    os.write(1, b"put back, ")

try:
    with stopping_on_signals():
        try:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            finally:
                put_back()  # with no shield
        finally:
            put_back()
except Stopped:
    os.write(1, b"stopped")
"""


def test_a_key_that_is_held_down_stops_once():
    done = run(HELD_DOWN)
    assert (done.stdout, done.stderr) == ("put back, put back, stopped", "")


def blocked_in_a_command() -> set[signal.Signals]:
    mask = int(LocalHost("local", "test").run(["sed", "-n", "s/SigBlk://p", "/proc/self/status"]).stdout, 16)
    return {signum for signum in STOPPING if mask >> signum - 1 & 1}


def test_signals_to_the_process_group_do_not_end_a_command_that_undoes_changes():
    """They would end it between its start and its leaving the session. Foreign daemons must end by SIGTERM."""
    with stopping_on_signals():
        assert blocked_in_a_command() == {signal.SIGINT, signal.SIGQUIT}
        with shielded() as shield:
            assert blocked_in_a_command() == set(STOPPING)
            with shield.lifted():
                assert blocked_in_a_command() == {signal.SIGINT, signal.SIGQUIT}


def test_a_command_that_undoes_changes_and_was_killed_is_started_again(tmp_path):
    script = 'echo >>"$0"; [ $(wc -l <"$0") = 3 ] || kill -TERM $$'
    with stopping_on_signals(), shielded():
        assert LocalHost("local", "test").run(["sh", "-c", script, str(tmp_path / "starts")]).exit_code == 0


DISCARDED = """
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

try:
    with stopping_on_signals():
        Finalized()
        os.write(1, b"discarded, ")
        AFTERWARDS
        os.write(1, b"too far")
except Stopped as stopped:
    os.write(1, str(stopped).encode())
"""


@pytest.mark.parametrize(
    "afterwards",
    ["os.kill(os.getpid(), signal.SIGINT); time.sleep(0)", "with shielded(): pass"],
    ids=["the key is held down", "one signal"],
)
def test_a_signal_whose_exception_python_discards_stops_all_the_same(afterwards):
    """Each command that ends leaves a finalizer, and each import a callback."""
    done = run(DISCARDED.replace("AFTERWARDS", afterwards))
    assert (done.stdout, done.stderr) == ("discarded, SIGTERM", "")


class Interrupted(BaseModel):
    """A model in which a signal arrives while pydantic serialises its first value."""

    values: tuple[Annotated[int, PlainSerializer(lambda value: send(signal.SIGINT) or value)], int] = (1, 2)


@pytest.mark.parametrize(
    "spell",
    [
        lambda: plain(Interrupted()),
        lambda: plain_text(Interrupted()),
        lambda: plain_value(TypeAdapter(Interrupted), Interrupted()),
        lambda: document_of(TypeAdapter(Interrupted), Interrupted()),
    ],
    ids=["plain", "plain_text", "plain_value", "document_of"],
)
def test_a_signal_while_a_model_is_spelled_stops(spell):
    """pydantic would replace Stopped by its own error."""
    with pytest.raises(Stopped), stopping_on_signals():
        spell()


def test_only_documents_have_pydantic_spell_models():
    spells = re.compile(r"\.(model_dump(_json)?|dump_(python|json))\(")
    texts = {path: path.read_text() for path in Path(netbench.__path__[0]).rglob("*.py")}
    assert [path.name for path, text in texts.items() if spells.search(text)] == ["documents.py"]


def test_a_signal_after_a_pause_stops_again(monkeypatch):
    """The first one may have been swallowed by code that ignores exceptions, or its clean-up may take too long."""
    now_s = 1000.0
    monkeypatch.setattr("netbench.signals.time", SimpleNamespace(monotonic=lambda: now_s))
    with stopping_on_signals():
        for _ in range(2):
            with pytest.raises(Stopped):
                send(signal.SIGINT)
            now_s += _REPEATED_S - 0.01
            send(signal.SIGINT)
            now_s += _REPEATED_S


def test_a_shield_is_lifted_for_a_part_of_its_block_but_not_beneath_another():
    steps = []

    def stopped_in_the_outer_block():
        with stopping_on_signals(), shielded() as outer:
            send(signal.SIGTERM)
            with shielded() as inner, inner.lifted():
                steps.append("still held")
            with outer.lifted():
                steps.append("too far")

    with pytest.raises(Stopped):
        stopped_in_the_outer_block()
    assert steps == ["still held"]


def test_signals_wait_again_when_the_lifted_part_was_stopped():
    steps = []

    def stopped_in_the_lifted_part():
        with stopping_on_signals(), shielded() as shield:
            try:
                with shield.lifted():
                    send(signal.SIGINT)
            finally:
                send(signal.SIGTERM)
                steps.append("put back")

    with pytest.raises(Stopped):
        stopped_in_the_lifted_part()
    assert steps == ["put back"]


def test_an_error_that_leaves_a_shielded_block_is_not_replaced():
    def failing_while_a_signal_waits():
        with shielded():
            send(signal.SIGINT)
            raise ZeroDivisionError

    with stopping_on_signals():
        with pytest.raises(ZeroDivisionError):
            failing_while_a_signal_waits()
        with pytest.raises(Stopped), shielded():
            pass


FORKED = """
with stopping_on_signals():
    try:
        child = os.fork()
        if child == 0:
            HOW
            time.sleep(20)
            os._exit(7)
        _, status = os.waitpid(child, 0)
        os.write(1, f"child {os.waitstatus_to_exitcode(status)}, ".encode())
    finally:
        os.write(1, b"put back once")
"""


@pytest.mark.parametrize(("signum", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129), ("SIGQUIT", 131)])
def test_a_forked_child_ends_without_unwinding_what_is_its_parents(signum, code):
    done = run(FORKED.replace("HOW", f"os.kill(os.getpid(), signal.{signum})"))
    assert (done.stdout, done.stderr, done.returncode) == (f"child {code}, put back once", "", 0)
