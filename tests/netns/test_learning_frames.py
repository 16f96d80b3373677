"""Learning frames leave the sink's NIC as they are, in order and with pauses, before the sink is ready."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from netbench.hosts.base import run_checked
from netbench.hosts.local import LocalHost
from netbench.sinks.bpf import RemoteCounting
from netbench.sinks.bpf_worker import Counting
from netbench.sinks.flush import padded
from netbench.sinks.tcpdump_process import FlushProcess
from tests.unit.test_remote_bpf_sink import ORDER

pytestmark = pytest.mark.root

HERE = LocalHost("local", "nbt")
FRAMES = [padded(bytes.fromhex("020000000001") + (0x020000010000 + number).to_bytes(6)) for number in range(3000)]
LEAST_S = 0.29  # 299 pauses of 1 ms
Send = Callable[[Sequence[bytes]], None]


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A socket at the other end of the sink's NIC, with room for all frames."""
    run_checked(HERE, ["ip", "link", "add", "nbt-a", "type", "veth", "peer", "nbt-b"])
    try:
        for end in ("nbt-a", "nbt-b"):
            run_checked(HERE, ["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"])
            run_checked(HERE, ["ip", "link", "set", end, "up"])
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
            opened.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            opened.bind(("nbt-b", 0x88B5))
            opened.setblocking(False)
            yield opened
    finally:
        run_checked(HERE, ["ip", "link", "del", "nbt-a"])


@contextmanager
def of_counting(counting: Counting | RemoteCounting) -> Iterator[Send]:
    def send(frames: Sequence[bytes]) -> None:
        counting.begin(replace(ORDER, sample_every=0))
        counting.prime_fdb(frames)
        counting.begun(30)

    with closing(counting):
        counting.attach()
        yield send
        assert counting.end() == "", "its answers are those to its requests"


@contextmanager
def of_tcpdump() -> Iterator[Send]:
    with closing(FlushProcess(HERE, "nbt-a")) as process:
        process.start()
        yield process.prime_fdb
        assert process.push(None, 1, 1) is False, "its answers are those to its requests"


SENDERS = {
    "tcpdump": of_tcpdump,
    "bpf": lambda: of_counting(Counting("nbt-a", "auto")),
    "bpf elsewhere": lambda: of_counting(RemoteCounting("nbt-a", "auto", HERE)),
}


@pytest.mark.parametrize("name", SENDERS)
def test_all_learning_frames_leave_the_nic_of_the_sink(receiver, name):
    with SENDERS[name]() as send:
        began = time.monotonic()
        send(FRAMES)
        took_s = time.monotonic() - began
        arrived = []
        for _ in FRAMES:
            arrived.append(receiver.recv(2048))
        with pytest.raises(BlockingIOError):
            receiver.recv(2048)
    assert arrived == FRAMES
    assert took_s > LEAST_S
