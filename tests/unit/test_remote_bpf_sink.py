"""The controller's side of the sink bpf on another host: messages stay whole in both directions."""

import json
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace

import pytest

from netbench.capture.capture_counts import Expected
from netbench.errors import MissingError, TestbedError
from netbench.hosts import worker_client
from netbench.hosts.local import LocalHost
from netbench.model.distributions import ClockOffset, Extent, LossRuns, Spread
from netbench.model.frame_size import FrameSize
from netbench.model.packet_counts import ChangedField, FieldGroups, FlowGroup, PacketCounts
from netbench.model.received import MeasuringWindow, OfSize, Received
from netbench.model.traffic import Sent
from netbench.sinks.bpf import Bpf, BpfOptions, RemoteCounting
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.bpf_worker import CountRequest, count_request_of, to_json
from tests.unit.described_packets import PACKETS, Described
from tests.unit.fakes import FakeHost
from tests.unit.inputs import stream_traffic

TRAFFIC = stream_traffic(src_ip="198.18.1.2", dst_ip="198.19.1.2", fps=None, seed=7)
EXPECTED = Expected("s1", "198.18.1.2", "198.19.1.2", FrameSize.of(64), sent_from_ns=1_700_000_000_000_000_017)
ORDER = CountRequest(EXPECTED, TRAFFIC, "198.18.1.0/24", Capacity(1 << 20, 1), True, 64, 1000, "/tmp/trial.sample.pcap")
SENT = Sent(1000, 2, 1.0, first_ns=1_700_000_000_000_000_017, last_ns=18, max_burst_frames=3, max_lateness_s=0.001)
RECEIVED = Received(
    frames=990,
    duplicates=1,
    late_from={"198.18.1.3": 2},
    loss_runs=2,
    loss_run_lengths=(LossRuns(1, 1), LossRuns(8, 1)),
    reordering_extent=Extent(1, 1.5, 2),
    first_ns=1_700_000_000_000_000_019,
    window=MeasuringWindow(900, 0.9, 0),
    by_size={64: OfSize(600, 550), 1518: OfSize(390, None)},
    delay=Spread(1, 1.1, 2, 3, None, None, 4),
    clock_offset=ClockOffset(-1, 1),
    no_delay="",
    by_ring=True,
    packet=PacketCounts(
        flows=7,
        lossy_flows=2,
        changed_frames=3,
        changed=(ChangedField("headers", 1), ChangedField("IP.ttl", 2)),
        reordered_in_flows=0,
        groups=(FieldGroups("IP.src", 5, (FlowGroup("198.18.0.1", 3, 2),)),),
    ),
)
PRELUDE = f"""
import json, os, sys
RECEIVED = json.loads({json.dumps(asdict(RECEIVED))!r})
def say(message): print(json.dumps(message), flush=True)
def hear(what):
    asked = json.loads(sys.stdin.readline())
    assert asked["do"] == what, asked
    return asked
"""
LEARNING = [bytes(56) + number.to_bytes(4) for number in range(300)]
ONE_TRIAL = """
say({"where": "tcx ingress (why)"})
assert hear("begin")["request"]["room"]["numbers"] == 1 << 20
say({"where": "xdp, native (why)"})
for first, size in ((0, 250), (250, 50)):
    assert hear("learn")["frames"] == [(bytes(56) + number.to_bytes(4)).hex() for number in range(first, first + size)]
    say({"where": "xdp, native (why)"})
hear("end")
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
def counting(monkeypatch):
    """Counts on a host with these scripts; closed afterwards."""
    monkeypatch.setattr(worker_client, "_END_S", 2.0)
    made = []

    def make(*scripts: str) -> tuple[RemoteCounting, ScriptedHost]:
        host = ScriptedHost(*scripts)
        made.append(RemoteCounting("eth1", "auto", host))
        return made[-1], host

    yield make
    for sink in made:
        sink.close()


@pytest.mark.parametrize("frame_size", [FrameSize.of(128), FrameSize("mix", (1518, 128, 594, 128))], ids=str)
@pytest.mark.parametrize("name", ["", "vlans", "macs", "pop", "vxlan", "ipv6"])
def test_an_order_is_the_same_at_both_ends(name, frame_size):
    order = ORDER
    if name:
        described = Described.of(PACKETS[name], frame_size)
        expected = replace(EXPECTED, frame_size=frame_size, headers=described.headers)
        room = replace(ORDER.room, flows=described.headers.flows, sizes=len(frame_size.sizes))
        order = replace(ORDER, expected=expected, room=room, traffic=described.traffic)
    there = count_request_of(json.loads(json.dumps(to_json(order))))
    assert there == replace(order, traffic=replace(order.traffic, packet=None))


def test_an_order_and_what_came_of_it_arrive_whole(counting):
    there, host = counting(ONE_TRIAL)
    there.attach()
    assert host.argv[-3:] == ["netbench.sinks.bpf_worker", "eth1", "auto"]
    assert there.where == "tcx ingress (why)"
    there.begin(ORDER)
    there.prime_fdb(LEARNING)
    there.begun(5)
    assert there.where == "xdp, native (why)"
    assert there.end() == "No space left on device"
    assert there.received(SENT) == RECEIVED
    there.detach()
    there.detach()
    assert there.where == ""


def test_what_a_kernel_lacks_is_reported_with_the_host():
    sink = Bpf(BpfOptions()).sink()

    class Without(ScriptedHost):
        shares_files = False
        scratch = "/tmp"

        def run(self, argv, **_):
            return super().run(["true"])

        def module_command(self, module, *arguments):
            return [module, *arguments]

        def bring(self, package):
            raise AssertionError(f"nothing here needs {package}")

    host = Without('say({"missing": "the sink bpf cannot work on eth1: no tcx"}); sys.stdin.read()')
    with pytest.raises(MissingError, match="host far: the sink bpf cannot work on eth1: no tcx; use `sink: auto` or"):
        sink.open(host, "eth1", [])
    assert host.processes[0].poll() == 0, "its process has not stayed"


def test_where_nothing_of_netbench_is_it_does_not_fit():
    assert "host fake has no netbench" in Bpf(BpfOptions()).unsupported_reason(FakeHost())
    assert Bpf(BpfOptions()).unsupported_reason(LocalHost("local", "test")) == ""


@pytest.mark.parametrize(
    ("begins", "why"),
    [
        ('say({"where": ""}); hear("begin"); os._exit(3)', r"the sink bpf on eth1 of host far died \(exit code 3\)"),
        ('say({"where": ""}); hear("begin"); say({"failed": "no NIC"}); sys.stdin.read()', "host far: no NIC"),
        ('say({"where": ""}); sys.stdin.read()', "the sink bpf on eth1 of host far did not answer within 0.2 s"),
    ],
    ids=["died", "failed", "silent"],
)
def test_a_process_that_cannot_count_reports_why_and_is_replaced_for_the_next_trial(counting, begins, why):
    there, host = counting(begins, ONE_TRIAL)
    there.begin(ORDER)
    with pytest.raises(TestbedError, match=why):
        there.begun(0.2 if "0.2" in why else 30)
    if "no NIC" in why:
        host.processes[0].kill()
        host.processes[0].wait()
        with pytest.raises(TestbedError, match=r"died \(signal 9\)"):
            there.end()
    there.begin(ORDER)
    there.prime_fdb(LEARNING)
    there.begun(30)
    there.end()
    assert there.received(SENT) == RECEIVED
    assert host.processes[0].poll() is not None
