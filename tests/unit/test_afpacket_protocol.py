"""The source's side of the protocol, with workers that follow it and workers that do not."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

import pytest
from pydantic import ValidationError

from netbench.errors import TestbedError
from netbench.generators import worker_source
from netbench.generators.afpacket.afpacket import AfPacketSource
from netbench.hosts import worker_client
from netbench.hosts.local import LocalHost
from netbench.model.traffic import Sent
from netbench.packets.build import build_template
from tests.unit.inputs import stream_traffic

TRAFFIC = stream_traffic(seed=0)
SENT = Sent(1000, 2, 1.0, first_ns=17, last_ns=18, max_burst_frames=3, max_lateness_s=0.001)

# The beginning of each worker script.
PRELUDE = f"""
import json, os, signal, sys, time
SENT = {asdict(SENT)!r}
TRAFFIC = {json.loads(json.dumps(asdict(TRAFFIC)))!r}
TEMPLATE = {json.loads(json.dumps(build_template(TRAFFIC).to_json()))!r}
def say(message): print(message if isinstance(message, str) else json.dumps(message), flush=True)
def hear(): return json.loads(sys.stdin.readline())
READY = {{"ready": True}}
"""


class ScriptedHost(LocalHost):
    """A host that runs the given Python script instead of every command."""

    def __init__(self, script: str) -> None:
        super().__init__("fake", "test")
        self._script = PRELUDE + textwrap.dedent(script)
        self.argv: list[str] = []

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        self.argv = list(argv)
        self.process = super().spawn([sys.executable, "-c", self._script])
        return self.process


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    for module, name in ((worker_source, "_PREPARE_S"), (worker_source, "_STOP_S"), (worker_client, "_END_S")):
        monkeypatch.setattr(module, name, 2.0)


@pytest.fixture
def opened():
    """Opens a source on a worker with the given script; closes it afterwards."""
    sources = []

    def open_source(script: str, *, cpus=(), options=None):
        host = ScriptedHost(script)
        source = AfPacketSource(options)
        sources.append(source)
        source.open(host, "veth0", cpus)
        return source, host

    yield open_source
    for source in sources:
        source.close()


def sent_by(opened, script: str, timeout_s: float = 5.0) -> tuple[Sent, AfPacketSource, ScriptedHost]:
    """One trial of a worker that gets ready as it should and then goes on with `script`."""
    source, host = opened("say(READY); hear(); say(READY); hear()\n" + textwrap.dedent(script))
    source.prepare(TRAFFIC)
    source.start(0)
    return source.wait(timeout_s), source, host


def test_a_trial_is_prepare_start_and_what_was_sent(opened):
    source, host = opened(
        """
        say(READY)
        for _ in range(2):
            assert hear() == {"do": "prepare", "traffic": TRAFFIC, "template": TEMPLATE, "realtime": 0}
            say(READY)
            assert hear() == {"do": "start", "at_monotonic_ns": 123456789012345}
            say({"sent": SENT})
        assert sys.stdin.readline() == ""
        """
    )
    for _ in range(2):
        source.prepare(TRAFFIC)
        source.start(123456789012345)
        assert source.wait(5.0) == SENT
    source.close()
    assert host.process.returncode == 0


def test_the_worker_is_reported_interface_threads_and_cpus(opened):
    _, host = opened("say(READY); sys.stdin.read()", cpus=[2, 5], options=AfPacketSource.Options(threads=3))
    assert host.argv[-5:] == ["netbench.generators.afpacket.afpacket_worker", "veth0", "3", "2", "5"]
    assert sys.executable in host.argv


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 65}, {"threads": 1.5}, {"thread": 1}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValidationError):
        AfPacketSource.Options(**options)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("print('no such thing', file=sys.stderr); sys.exit(3)", ["exit code 3", "no such thing"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", ["signal 9"]),
        ("say('hello')", ["hello", "JSON"]),
        ("say('[1, 2]')", ["JSON"]),
        ("sys.stdout.buffer.write(bytes(range(256)) + b'\\n')", ["JSON"]),
        ("say({'ready': 'perhaps'})", ["invalid reply"]),
        ("say({'failed': 'the interface does not exist'})", ["the interface does not exist"]),
        ("sys.stdout.write('x' * 200_000); sys.stdout.flush(); time.sleep(60)", ["more than 64 KiB"]),
        ("sys.stdout.write('{\"ready\"'); sys.stdout.flush(); time.sleep(60)", ["did not answer within 0.5 s"]),
    ],
)
def test_a_worker_that_does_not_get_ready_is_an_error_of_open_and_ended(monkeypatch, script, expected):
    if "did not answer" in expected[0]:
        monkeypatch.setattr(AfPacketSource, "open_limit_s", 0.5)
    host = ScriptedHost(script)
    with pytest.raises(TestbedError) as error:
        AfPacketSource().open(host, "veth0", ())
    assert host.process.returncode is not None
    for part in ("veth0", "host fake", *expected):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sys.exit(4)", "exit code 4"),
        ("hear(); print('out of memory', file=sys.stderr); sys.exit(5)", "exit code 5.*out of memory"),
        ("hear(); time.sleep(60)", "did not answer within"),
        ("hear(); say({'failed': 'the interface does not exist'})", "the interface does not exist"),
        ("hear(); say({'sent': SENT})", "invalid reply"),
    ],
)
def test_what_goes_wrong_in_prepare_is_raised(opened, script, expected):
    source, _ = opened("say(READY)\n" + script)
    with pytest.raises(TestbedError, match=expected):
        source.prepare(TRAFFIC)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("print('oops', file=sys.stderr); sys.exit(7)", ["exit code 7", "oops"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", ["signal 9"]),
        ("say('rubbish'); time.sleep(60)", ["rubbish"]),
        ("say({'failed': 'sending failed: OSError'}); time.sleep(60)", ["cannot send: sending failed: OSError"]),
        ("say({'ready': True}); time.sleep(60)", ["did not report how many frames it sent"]),
        ("say({'sent': None}); time.sleep(60)", ["did not report how many frames it sent"]),
        ("say({'sent': {'frames': 3}}); time.sleep(60)", ["did not report how many frames it sent"]),
        ("say({'sent': {**SENT, 'colour': 'red'}}); time.sleep(60)", ["did not report how many frames it sent"]),
    ],
)
def test_what_goes_wrong_while_sending_is_reported_by_wait(opened, script, expected):
    sent, source, host = sent_by(opened, script)
    assert (sent.frames, sent.first_ns, sent.last_ns) == (0, None, None)
    for part in ("veth0", *expected):
        assert part in sent.error
    assert host.process.wait(10) != 0, "it sends no longer"
    with pytest.raises(TestbedError, match="died"):
        source.prepare(TRAFFIC)


def test_a_worker_that_takes_too_long_is_stopped_and_reports_the_frames_it_sent(opened):
    sent, source, _ = sent_by(
        opened,
        """
        assert hear() == {"do": "stop"}
        say({"sent": {**SENT, "frames": 400, "error": "stopped"}})
        hear()
        say(READY)
        hear()
        """,
        timeout_s=0.1,
    )
    assert (sent.frames, sent.error) == (400, "stopped")
    source.prepare(TRAFFIC)


def test_a_worker_that_does_not_even_stop_is_killed(opened):
    sent, source, host = sent_by(opened, "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", 0.1)
    assert "did not answer within" in sent.error
    with pytest.raises(TestbedError, match="signal 9"):
        source.prepare(TRAFFIC)
    assert host.process.returncode == -9


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("say(READY); sys.stdin.read()", 0),
        ("say(READY); time.sleep(60)", -15),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); say(READY); time.sleep(60)", -9),
        ("say(READY); sys.exit(3)", 3),
    ],
)
def test_close_insists_as_far_as_it_must(opened, script, expected):
    source, host = opened(script)
    source.close()
    source.close()
    assert host.process.returncode == expected
    with pytest.raises(TestbedError, match="open it first"):
        source.prepare(TRAFFIC)
