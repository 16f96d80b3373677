"""The example of an extension: a source and a sink that come from outside."""

import json
import os
import socket
import subprocess
import sys

import pytest
from netbench_example.nic_counter import NicCounter
from netbench_example.plain_source import Plain

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.model.profile import NoOptions
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Stamps
from netbench.sinks.base import Incoming
from tests.unit.fakes import FakeHost
from tests.unit.inputs import stream_traffic, topology

(PATH,) = stream_paths(topology())
TRAFFIC = stream_traffic(src_ip=PATH.src_ip, dst_ip=PATH.dst_ip, duration_s=0.05)
SENT = Sent(50, 0, 0.05, 1, 2, 1, 0.0)


class CountingHost(FakeHost):
    """A host whose NIC has received 7 frames, and 50 more at each reading."""

    count = -43

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.count += 50
        return Completed(tuple(argv), 0, json.dumps([{"stats64": {"rx": {"packets": self.count}}}]), "")


def test_the_sink(tmp_path):
    sink = NicCounter(NoOptions()).sink()
    sink.open(CountingHost(), "nb-rx1", ())
    sink.arm(Incoming(PATH, TRAFFIC, Stamps(), 0, tmp_path / "x"))
    assert sink.armed(1.0)
    sink.stop(1.0)
    received = sink.received(SENT)
    assert (received.frames, received.duplicates, received.delay, received.error) == (50, None, None, "")
    sink.close()


class LoopbackHost(FakeHost):
    """A host that starts real processes, which find the example where the tests do."""

    def spawn(self, argv):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, text=True, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def test_the_source_reports_why_it_cannot_send():
    with pytest.raises(TestbedError, match="cannot send: (the interface does not exist|.* needs root)"):
        Plain(NoOptions()).source().open(LoopbackHost(is_here=True), "no-such-nic", ())


@pytest.mark.skipif(os.geteuid() != 0, reason="sends raw frames")
def test_the_source_sends_through_a_socket():
    source = Plain(NoOptions()).source()
    source.open(LoopbackHost(is_here=True), "lo", ())
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as listener:
        listener.bind(("lo", 0))
        listener.settimeout(20)
        source.prepare(TRAFFIC)
        source.start(0)
        sent = source.wait(20)
        magic = bytes.fromhex("be9be955")
        while (frame := listener.recv(2000))[42:46] != magic:
            pass
    source.close()
    assert (sent.frames, sent.errors, sent.error) == (50, 0, "")
    assert int.from_bytes(frame[46:50], "big") == 0
