"""The sink bpf and its process: messages stay whole in both directions, and a failure costs one trial."""

import json
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from netbench.capture.capture_counts import Expected
from netbench.errors import MissingError, TestbedError
from netbench.hosts import worker_process
from netbench.hosts.local import LocalHost
from netbench.model.distributions import ClockOffset, Extent, LossRuns, Spread
from netbench.model.received import MeasuringWindow, Received
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.sinks.base import Incoming
from netbench.sinks.bpf import Bpf, BpfOptions, BpfSink
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.bpf_worker import CountRequest, count_request_of
from tests.unit.fakes import FakeHost
from tests.unit.inputs import topology

TRAFFIC = Traffic("s1", "02:00:00:00:00:01", "02:00:00:00:00:02", "198.18.1.2", "198.19.1.2", 64, 1e6, 1.0, 1, 7)
EXPECTED = Expected("s1", "198.18.1.2", "198.19.1.2", 64, sent_from_ns=1_700_000_000_000_000_017)
ORDER = CountRequest(EXPECTED, TRAFFIC, "198.18.1.0/24", Capacity(1 << 20, 1), True, 64, 1000, "/tmp/trial.sample.pcap")
INCOMING = Incoming(stream_paths(topology(1))[0], TRAFFIC, Stamps(), 0, Path("/nowhere/x"), keep=True)
SENT = Sent(1000, 2, 1.0, first_ns=1_700_000_000_000_000_017, last_ns=18, max_burst_frames=3, max_lateness_s=0.001)
NO_ROOM = (
    "/nowhere/x.sample.pcap cannot be written: No space left on device; free some room, or write elsewhere with -o"
)
RECEIVED = Received(
    frames=990,
    duplicates=1,
    late_from={"198.18.1.3": 2},
    loss_runs=2,
    loss_run_lengths=(LossRuns(1, 1), LossRuns(8, 1)),
    reordering_extent=Extent(1, 1.5, 2),
    first_ns=1_700_000_000_000_000_019,
    window=MeasuringWindow(900, 0.9, 0),
    delay=Spread(1, 1.1, 2, 3, None, None, 4),
    clock_offset=ClockOffset(-1, 1),
    no_delay="",
    by_ring=True,
)
PRELUDE = f"""
import json, os, sys
RECEIVED = {asdict(RECEIVED)!r}
def say(message): print(json.dumps(message), flush=True)
def hear(what):
    request = json.loads(sys.stdin.readline())
    assert request["do"] == what, request
    return request
"""
ONE_TRIAL = """
say({"where": "tcx ingress (why)"})
request = hear("begin")["request"]
assert (request["room"]["numbers"], request["sample_every"]) == (1 << 20, 1000)
say({"where": "xdp, native (why)"})
hear("learn"); hear("end")
say({"no_sample": "No space left on device"})
assert hear("received")["sent"]["frames"] == 1000
say({"received": RECEIVED})
hear("rest")
say({"where": ""})
sys.stdin.read()
"""


class ScriptedHost(LocalHost):
    """A host on which each command is the next of some Python scripts instead."""

    def __init__(self, *scripts: str) -> None:
        super().__init__("far", "test")
        self._scripts = [PRELUDE + textwrap.dedent(script) for script in scripts]
        self.argv: list[str] = []
        self.processes: list[subprocess.Popen[str]] = []

    def spawn(self, argv):
        self.argv = list(argv)
        self.processes.append(super().spawn([sys.executable, "-c", self._scripts.pop(0)]))
        return self.processes[-1]


@pytest.fixture
def opened(monkeypatch):
    """Open a sink on a host with these scripts; closed afterwards."""
    monkeypatch.setattr(worker_process, "_END_S", 0.5)
    sinks = []

    def open_on(*scripts: str) -> tuple[BpfSink, ScriptedHost]:
        host = ScriptedHost(*scripts)
        sinks.append(Bpf(BpfOptions()).sink())
        sinks[-1].open(host, "eth1", [])
        return sinks[-1], host

    yield open_on
    for sink in sinks:
        sink.close()


def trial(sink: BpfSink) -> Received:
    sink.arm(INCOMING)
    sink.prime_fdb("02:00:00:00:00:01")
    assert sink.armed(30)
    sink.stop(1)
    return sink.received(SENT)


def hook_of(sink: BpfSink) -> str:
    return (sink.identity().options or {})["hook"]


def test_an_order_and_what_came_of_it_are_the_same_at_both_ends(opened):
    assert count_request_of(json.loads(json.dumps(asdict(ORDER)))) == ORDER
    sink, host = opened(ONE_TRIAL)
    assert host.argv[-3:] == ["netbench.sinks.bpf_worker", "eth1", "auto"]
    assert hook_of(sink) == "tcx ingress (why)"
    assert trial(sink) == replace(RECEIVED, no_room=NO_ROOM)
    assert hook_of(sink) == "xdp, native (why)"
    sink.rest()
    sink.rest()
    assert hook_of(sink) == "auto"


def test_what_a_kernel_lacks_is_reported_with_the_host():
    host = ScriptedHost('say({"missing": "the sink bpf cannot work on eth1: no tcx"}); sys.stdin.read()')
    with pytest.raises(MissingError, match="host far: the sink bpf cannot work on eth1: no tcx; use `sink: auto` or"):
        Bpf(BpfOptions()).sink().open(host, "eth1", [])
    assert host.processes[0].poll() == 0, "its process has not stayed"


def test_where_nothing_of_netbench_is_it_does_not_fit():
    assert "host fake has no netbench" in Bpf(BpfOptions()).unsupported_reason(FakeHost())
    assert Bpf(BpfOptions()).unsupported_reason(LocalHost("local", "test")) == ""


@pytest.mark.parametrize(
    ("begins", "why", "is_replaced"),
    [
        ('hear("begin"); os._exit(3)', "the sink bpf on eth1 of host far died (exit code 3)", True),
        ('hear("begin"); say({"failed": "no NIC"}); hear("begin"); os._exit(4)', "host far: no NIC", False),
        ("sys.stdin.read()", "the sink bpf on eth1 of host far did not answer within 0.2 s", True),
    ],
    ids=["died", "failed", "silent"],
)
def test_a_process_that_cannot_count_reports_why_and_is_replaced_for_the_next_trial(opened, begins, why, is_replaced):
    sink, host = opened(f'say({{"where": ""}}); {begins}', ONE_TRIAL)
    sink.arm(INCOMING)
    assert not sink.armed(0.2 if "0.2" in why else 30)
    sink.stop(1)
    assert sink.received(SENT).error == why
    if not is_replaced:
        sink.arm(INCOMING)
        assert not sink.armed(30), "it has died meanwhile"
    assert trial(sink).frames == RECEIVED.frames
    assert host.processes[0].poll() is not None


def test_use_after_close(opened):
    sink, _ = opened(ONE_TRIAL)
    sink.close()
    with pytest.raises(TestbedError, match="open the sink bpf first"):
        sink.arm(INCOMING)
