"""Real captures of flows between namespaces, compared with the kernel, tools, tshark, and servers of known delay."""

import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netbench.capture.exchanges import read_exchanges
from netbench.capture.tcp_connections import read_connections
from netbench.capture.udp_sessions import read_datagrams
from netbench.hosts.base import run_checked
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.model.datagram_witness import IPERF3_KEY, SOCKPERF_KEY
from netbench.model.flow_witness import (
    UNKNOWN_NS,
    ConnectionEnd,
    DisagreementKind,
    FlowDirection,
    FlowFigures,
    disagreement,
)

pytestmark = pytest.mark.root
CLIENT, SERVER, PORT = "198.18.0.1", "198.19.0.1", 5201
PYTHON = sys.executable
_WAIT_S = 10.0
BULK_BYTES = 30_000_000

# Server: answers each request of 16 bytes, whose first 8 are the delay in µs and the last 8 the size of the response.
# A delay of 2^32 µs closes the connection instead.
SERVE = """
import socket, struct, sys, threading, time
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while len(request := connection.recv(16, socket.MSG_WAITALL)) == 16:
            delay_us, size = struct.unpack(">QQ", request)
            if delay_us == 1 << 32:
                return
            time.sleep(delay_us / 1e6)
            connection.sendall(bytes(size))
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Client: sends requests on one connection, and prints the time of each response in ns; -1 if there was none.
REQUEST = """
import json, socket, struct, sys, time
times = []
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for delay_us, size in json.loads(sys.argv[3]):
        begin = time.perf_counter_ns()
        connection.sendall(struct.pack(">QQ", delay_us, size))
        left = max(size, 1)
        while left and (got := connection.recv(left)):
            left -= len(got)
        times.append(time.perf_counter_ns() - begin if not left else -1)
print(json.dumps(times))
"""
# Sink: reads everything, and answers one byte at the end. Bulk: sends, waits for it, and prints the kernel's counters.
SINK = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    with connection:
        while connection.recv(1 << 20):
            pass
        connection.sendall(b"x")
        connection.recv(1)
"""
BULK = """
import json, socket, struct, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    block, left = bytes(1 << 17), int(sys.argv[3])
    while left:
        left -= connection.send(block[:left])
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512)
# struct tcp_info of linux/tcp.h
print(json.dumps({
    "total_retrans": struct.unpack_from("=I", info, 100)[0],
    "bytes_acked": struct.unpack_from("=Q", info, 120)[0],
    "segs_out": struct.unpack_from("=I", info, 136)[0],
    "segs_in": struct.unpack_from("=I", info, 140)[0],
    "data_segs_out": struct.unpack_from("=I", info, 156)[0],
    "bytes_sent": struct.unpack_from("=Q", info, 200)[0],
    "bytes_retrans": struct.unpack_from("=Q", info, 208)[0],
}))
"""


@dataclass(frozen=True)
class Path2:
    """A client, a router and a server; `near_client` and `near_server` are the router's captures."""

    client: NamespaceHost
    router: NamespaceHost
    server: NamespaceHost
    directory: Path

    @property
    def near_client(self) -> Path:
        return self.directory / "client.pcap"

    @property
    def near_server(self) -> Path:
        return self.directory / "server.pcap"

    def endpoints(self, port: int = PORT) -> dict[str, Any]:
        return {"client": CLIENT, "server": SERVER, "ports": [port]}

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Capture both links during the block."""
        with self._tcpdump("wire-c", self.near_client), self._tcpdump("wire-s", self.near_server):
            yield
            time.sleep(0.3)  # for the last frames

    @contextmanager
    def _tcpdump(self, interface: str, path: Path) -> Iterator[None]:
        options = ["-s", "128", "-B", "65536", "--time-stamp-precision=nano", "--immediate-mode", "-w", str(path)]
        with self.running(
            self.router, ["tcpdump", "-n", "-i", interface, *options], "listening on", on_error=True
        ) as p:
            yield
            p.send_signal(signal.SIGINT)
            report = p.communicate(timeout=_WAIT_S)[1]
            assert "0 packets dropped by kernel" in report, report

    @contextmanager
    def running(
        self, host: NamespaceHost, command: list[str], sign: str, *, on_error: bool = False
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command during the block, which begins once its output has `sign`."""
        argv = ["ip", "netns", "exec", str(host.netns), *command]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            stream = process.stderr if on_error else process.stdout
            assert stream is not None
            for line in stream:
                if sign in line:
                    break
            yield process
        finally:
            process.kill()
            process.communicate()

    def lose(self, what: str) -> None:
        """Drop forwarded frames by an nftables rule."""
        chain = f"chain forward {{ type filter hook forward priority 0\n {what} counter drop\n }}"
        rules = f"table ip wire {{\n {chain}\n }}\n"
        run_checked(self.router, ["nft", "-f", "-"], stdin=rules)

    def dropped(self) -> int:
        listing = json.loads(run_checked(self.router, ["nft", "-j", "list", "table", "ip", "wire"]))
        rules = [item["rule"]["expr"] for item in listing["nftables"] if "rule" in item]
        return int(next(part["counter"]["packets"] for part in rules[0] if "counter" in part))

    def nstat(self, host: NamespaceHost, name: str) -> int:
        counters = json.loads(run_checked(host, ["nstat", "-a", "-z", "-s", "-j", name]))
        return int(counters["kernel"][name])


@pytest.fixture
def flows(tmp_path: Path) -> Iterator[Path2]:
    names = ("nbt-wire-c", "nbt-wire-r", "nbt-wire-s")
    here = LocalHost("local", "nbt")
    hosts = [NamespaceHost(here, name) for name in names]
    client, router, server = hosts
    try:
        for name in names:
            run_checked(here, ["ip", "netns", "add", name])
        for end, name, network in (("c", names[0], "198.18.0"), ("s", names[2], "198.19.0")):
            veth = ["ip", "link", "add", f"wire-{end}", "netns", names[1], "type", "veth"]
            run_checked(here, [*veth, "peer", "eth0", "netns", name])
            for netns, link, address in ((names[1], f"wire-{end}", "254"), (name, "eth0", "1")):
                run_checked(here, ["ip", "-n", netns, "address", "add", f"{network}.{address}/24", "dev", link])
                run_checked(here, ["ip", "-n", netns, "link", "set", link, "up"])
            run_checked(here, ["ip", "-n", name, "link", "set", "lo", "up"])
            run_checked(here, ["ip", "-n", name, "route", "add", "default", "via", f"{network}.254"])
        run_checked(router, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        yield Path2(client, router, server, tmp_path)
    finally:
        for name in names:
            here.run(["ip", "netns", "del", name])


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"`make test` installs {name}"
    return found


def requests(flows: Path2, wanted: list[tuple[int, int]]) -> list[int]:
    """The times of the responses as the client measures them, in ns."""
    with (
        flows.captured(),
        flows.running(flows.server, [PYTHON, "-c", SERVE, SERVER, str(PORT)], "ready"),
    ):
        measured: list[int] = json.loads(
            run_checked(flows.client, [PYTHON, "-c", REQUEST, SERVER, str(PORT), json.dumps(wanted)])
        )
    return measured


@pytest.mark.parametrize("delay_ms", [1, 10, 100])
def test_response_times_of_a_server_with_a_known_delay(flows: Path2, delay_ms: int) -> None:
    measured = requests(flows, [(delay_ms * 1000, 20_000)] * 20)
    for path in (flows.near_client, flows.near_server):
        wire = read_exchanges(path, **flows.endpoints())
        times = wire.exchanges.response_times_ns()
        assert len(times) == 20
        assert (wire.exchanges.request_bytes == 16).all()
        assert (wire.exchanges.response_bytes == 20_000).all()
        assert times.min() >= delay_ms * 1_000_000
        # The client measures its own calls too: never less than the wire.
        assert all(tool >= on_wire for tool, on_wire in zip(measured, times.tolist(), strict=True))
        medians = statistics.median(measured), statistics.median(times.tolist())
        assert medians[0] - medians[1] < 0.01 * medians[1] + 500_000


def test_early_close_and_short_replies(flows: Path2) -> None:
    measured = requests(flows, [(1000, 5), (0, 1), (1 << 32, 100)])
    assert measured[-1] == -1
    wire = read_exchanges(flows.near_client, **flows.endpoints())
    assert wire.exchanges.is_complete.tolist() == [True, True, False]
    assert wire.exchanges.response_bytes.tolist() == [5, 1, 0]
    assert wire.exchanges.response_first_ns[-1] == UNKNOWN_NS
    assert wire.traffic.connections.ends.count(ConnectionEnd.CLOSED) == 1


def test_a_closed_port_refuses(flows: Path2) -> None:
    with flows.captured():
        for _ in range(3):
            flows.client.run([PYTHON, "-c", REQUEST, SERVER, str(PORT), "[]"])
    traffic = read_connections(flows.near_client, **flows.endpoints())
    assert (traffic.connections.ends.count(ConnectionEnd.REFUSED), traffic.opened) == (3, 0)


def test_a_lost_syn_makes_the_handshake_ambiguous(flows: Path2) -> None:
    flows.lose("tcp flags & (syn | ack) == syn numgen inc mod 4 < 1")
    with flows.captured(), flows.running(flows.server, [PYTHON, "-c", SERVE, SERVER, str(PORT)], "ready"):
        for _ in range(3):
            run_checked(flows.client, [PYTHON, "-c", REQUEST, SERVER, str(PORT), "[]"])
    near_client = read_connections(flows.near_client, **flows.endpoints())
    near_server = read_connections(flows.near_server, **flows.endpoints())
    assert near_client.opened == near_server.opened == 3
    again = near_client.to_server.retransmitted_syns
    assert again == flows.nstat(flows.client, "TcpRetransSegs") >= 1
    assert sum(near_client.connections.is_ambiguous) == again
    assert near_server.to_server.retransmitted_syns == 0


@pytest.mark.parametrize("offloads", ["on", "off"])
@pytest.mark.parametrize("loss", [0, 1])
def test_bulk_as_the_kernel_counts_it(flows: Path2, loss: int, offloads: str) -> None:
    if loss:
        flows.lose(f"ip daddr {SERVER} numgen inc mod 100 < {loss}")
    if offloads == "off":
        for host, link in ((flows.client, "eth0"), (flows.router, "wire-c"), (flows.router, "wire-s")):
            run_checked(host, [program("ethtool"), "-K", link, "tso", "off", "gso", "off", "gro", "off"])
    with flows.captured(), flows.running(flows.server, [PYTHON, "-c", SINK, SERVER, str(PORT)], "ready"):
        kernel = json.loads(run_checked(flows.client, [PYTHON, "-c", BULK, SERVER, str(PORT), str(BULK_BYTES)]))
        time.sleep(0.2)
    near_client = read_connections(flows.near_client, **flows.endpoints())
    near_server = read_connections(flows.near_server, **flows.endpoints())
    to_server = near_client.to_server
    print(kernel, to_server, near_server.to_server, sep="\n")
    assert to_server.stream_bytes == near_server.to_server.stream_bytes == BULK_BYTES
    assert to_server.payload_bytes == kernel["bytes_sent"]
    assert to_server.retransmitted_bytes == kernel["bytes_retrans"]
    assert to_server.retransmissions == kernel["total_retrans"] == flows.nstat(flows.client, "TcpRetransSegs")
    assert (to_server.uncaptured_bytes, near_server.to_server.uncaptured_bytes) == (0, 0)
    # The last ACK may leave after the counters are read.
    assert 0 <= to_server.segments - kernel["segs_out"] <= 2
    arrived = near_server.to_server
    assert (to_server.payload_bytes > arrived.payload_bytes) == bool(loss)
    if loss:
        # nftables drops frames, each of several segments.
        assert to_server.segments - arrived.segments >= flows.dropped() >= 1
        assert arrived.late_segments > 0


@contextmanager
def iperf3_server(flows: Path2) -> Iterator[None]:
    with flows.running(flows.server, [program("iperf3"), "-s", "-p", str(PORT), "--forceflush"], "listening"):
        yield


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("loss", [0, 1])
def test_iperf3_over_tcp(flows: Path2, loss: int, reverse: bool) -> None:
    if loss:
        flows.lose("meta l4proto tcp tcp flags ack numgen inc mod 100 < 1")
    # iperf3 also counts bytes in a socket that it closes before they are sent. At this rate the socket is empty.
    options = ["-t", "2", "-b", "40M", "-P", "2", *(["-R"] if reverse else [])]
    with flows.captured(), iperf3_server(flows):
        output = run_checked(flows.client, [program("iperf3"), "-c", SERVER, "-p", str(PORT), "-J", *options])
    report = json.loads(output)["end"]
    near_client = read_connections(flows.near_client, **flows.endpoints())
    near_server = read_connections(flows.near_server, **flows.endpoints())
    near_sender = near_server if reverse else near_client
    direction = FlowDirection.TO_CLIENT if reverse else FlowDirection.TO_SERVER
    totals = near_sender.totals(direction)
    by_tool = report["sum_sent"]["bytes"]
    print(report["sum_sent"], report["sum_received"], totals, sep="\n")
    figures = {("to_client_bytes" if reverse else "to_server_bytes"): by_tool}
    wire = FlowFigures(near_sender.to_server.delivered_bytes, near_sender.to_client.delivered_bytes)
    assert disagreement(tool=FlowFigures(**figures), wire=wire) == ()
    assert len(near_client.connections) == 3  # one controls the test
    assert totals.retransmissions == flows.nstat(flows.server if reverse else flows.client, "TcpRetransSegs")
    if loss:
        assert totals.retransmissions >= 1
        assert report["sum_sent"]["retransmits"] <= totals.retransmissions
    assert totals.uncaptured_bytes == 0


@pytest.mark.parametrize(("size", "loss"), [(1400, 0), (1400, 1), (4000, 0), (64, 1)])
def test_iperf3_over_udp(flows: Path2, size: int, loss: int) -> None:
    if loss:
        flows.lose("meta l4proto udp numgen inc mod 100 > 98")  # not the datagram that opens the session
    options = ["-u", "-b", "10M" if size > 100 else "2M", "-l", str(size), "-t", "2", "--get-server-output"]
    with flows.captured(), iperf3_server(flows):
        output = run_checked(flows.client, [program("iperf3"), "-c", SERVER, "-p", str(PORT), "-J", *options])
    summary = json.loads(output)["end"]["sum"]
    near_client, near_server = (
        read_datagrams(path, **flows.endpoints(), key=IPERF3_KEY).traffic
        for path in (flows.near_client, flows.near_server)
    )
    sent, arrived = near_client.to_server, near_server.to_server
    print(summary, sent, arrived, sep="\n")
    assert sent.unnumbered_datagrams is not None
    assert arrived.lost_datagrams is not None
    assert sent.datagrams - sent.unnumbered_datagrams == pytest.approx(summary["packets"], abs=2)
    assert sent.payload_bytes == pytest.approx(summary["bytes"], rel=0.001, abs=2 * size)
    assert (sent.lost_datagrams, sent.incomplete_datagrams, arrived.incomplete_datagrams) == (0, 0, 0)
    assert arrived.lost_datagrams == pytest.approx(sent.datagrams - arrived.datagrams, abs=1)
    assert arrived.lost_datagrams == pytest.approx(summary["lost_packets"], abs=1)
    if size > 1472:
        assert sent.fragments == 2 * (sent.datagrams - sent.unnumbered_datagrams)
    if loss:
        assert flows.dropped() == sent.frames - arrived.frames
    assert (arrived.lost_datagrams > 0) == bool(loss)


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_sockperf_ping_pong(flows: Path2, tcp: bool) -> None:
    protocol = ["--tcp"] if tcp else []
    log = flows.directory / "log.csv"
    serve = [program("sockperf"), "server", "-i", SERVER, "-p", str(PORT), *protocol]
    client = [program("sockperf"), "ping-pong", "-i", SERVER, "-p", str(PORT), "-t", "1", "-m", "64", "--full-rtt"]
    with flows.captured(), flows.running(flows.server, serve, "using"):
        time.sleep(0.3)
        run_checked(flows.client, [*client, "--full-log", str(log), *protocol])
    rows = [line.split(",") for line in log.read_text().splitlines() if line[:1].isdigit()]
    sent, tool = (np.array([float(row[column]) for row in rows]) * unit for column, unit in ((1, 1e9), (-1, 1e3)))
    if tcp:
        exchanges = read_exchanges(flows.near_client, **flows.endpoints(), message_bytes=64).exchanges
        assert exchanges.is_complete.all()
        begin, times = exchanges.request_first_ns, exchanges.response_times_ns()
        turns = read_exchanges(flows.near_client, **flows.endpoints()).exchanges
        assert turns.response_times_ns().tolist() == times.tolist()
    else:
        udp_wire = read_datagrams(flows.near_client, **flows.endpoints(), key=SOCKPERF_KEY)
        assert udp_wire.exchanges is not None
        assert udp_wire.traffic.to_server.lost_datagrams == 0
        answered = udp_wire.exchanges.response_ns != UNKNOWN_NS
        begin, end = udp_wire.exchanges.request_ns[answered], udp_wire.exchanges.response_ns[answered]
        times = end - begin
    # The log begins after the warm-up: with the exchange from which on the clocks differ by a constant.
    spreads = [float(np.std(sent - begin[first:][: len(sent)])) for first in range(len(begin) - len(sent) + 1)]
    wire = times[int(np.argmin(spreads)) :][: len(tool)]
    print(len(tool), len(times), min(spreads), np.median(tool), np.median(wire), min(tool - wire))
    assert (tool > wire).all()
    assert np.median(tool - wire) < 100_000  # of system calls, and of waking up
    by_tool, on_wire = (
        FlowFigures(percentiles_ns={99: float(np.percentile(column, 99))}) for column in (tool + 10**7, wire)
    )
    assert [found.kind for found in disagreement(tool=by_tool, wire=on_wire)] == [DisagreementKind.PERCENTILE]


def test_tshark_finds_the_same_retransmissions(flows: Path2) -> None:
    program("tshark")
    flows.lose(f"ip daddr {SERVER} numgen inc mod 100 < 1")
    with flows.captured(), flows.running(flows.server, [PYTHON, "-c", SINK, SERVER, str(PORT)], "ready"):
        run_checked(flows.client, [PYTHON, "-c", BULK, SERVER, str(PORT), str(BULK_BYTES)])
    totals = read_connections(flows.near_client, **flows.endpoints()).to_server
    condition = f"tcp.dstport == {PORT} && tcp.len > 0"
    frames = _tshark(flows.near_client, condition)
    assert sum(int(size) for size, _ in frames) == totals.payload_bytes
    again = [int(size) for size, is_again in frames if is_again]
    print(len(again), sum(again), totals)
    assert sum(again) == totals.retransmitted_bytes + totals.late_bytes


def _tshark(path: Path, condition: str) -> list[tuple[str, str]]:
    # tshark counts a retransmission as out of order if it comes soon after the segment before it.
    signs = ("retransmission", "spurious_retransmission", "out_of_order")
    fields = ["-e", "tcp.len", *(word for sign in signs for word in ("-e", f"tcp.analysis.{sign}"))]
    command = ["tshark", "-n", "-r", str(path), "-Y", condition, "-T", "fields", "-E", "separator=,", *fields]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(size, marks.strip(",")) for size, _, marks in (line.partition(",") for line in output.splitlines())]


def test_a_capture_whose_writer_is_killed(flows: Path2) -> None:
    options = ["-s", "128", "--time-stamp-precision=nano", "--immediate-mode", "-w", str(flows.near_client)]
    with (
        flows.running(flows.server, [PYTHON, "-c", SINK, SERVER, str(PORT)], "ready"),
        flows.running(flows.router, ["tcpdump", "-n", "-i", "wire-c", *options], "listening on", on_error=True),
    ):
        run_checked(flows.client, [PYTHON, "-c", BULK, SERVER, str(PORT), str(BULK_BYTES)])
    traffic = read_connections(flows.near_client, **flows.endpoints())
    assert traffic.opened == 1
    assert 0 < traffic.to_server.stream_bytes <= BULK_BYTES
    assert traffic.quality.damage == ""
