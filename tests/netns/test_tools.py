"""Tools against servers of known behaviour, over a link between two namespaces: exact counts, and times that follow."""

import json
import math
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost, end_marked_processes
from netbench.model.units import Load
from netbench.selftest import known_server as known_server_program
from netbench.tools.base import Demand, FlowEnds, RunningServer, ToolError
from netbench.tools.connect import Connect, ConnectOptions
from netbench.tools.http import Http, HttpOptions
from netbench.tools.iperf3 import Iperf3, Iperf3Options
from netbench.tools.sockperf import Sockperf, SockperfOptions

pytestmark = pytest.mark.root

CLIENT, SERVER = "nbt-client", "nbt-server"
CLIENT_ADDRESS, ADDRESS = "198.18.0.1", "198.18.0.2"
RUN_ID = "nbt-tools"
CLOSES_FIRST = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
client = socket.create_connection(listening.getsockname())
listening.accept()[0].close()
client.close()
"""
# A request takes so much longer than its server takes to answer, in the median.
OVERHEAD_S = 0.0015
MS = 1_000_000


@pytest.fixture(scope="module")
def machine():
    return LocalHost("here", RUN_ID)


@pytest.fixture(scope="module")
def link(machine):
    """A pair of interfaces between two namespaces."""

    def ip(*words):
        run_checked(machine, ["ip", *words])

    try:
        for namespace in (CLIENT, SERVER):
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("link", "add", "nbtc", "netns", CLIENT, "type", "veth", "peer", "name", "nbts", "netns", SERVER)
        for namespace, nic, address in ((CLIENT, "nbtc", CLIENT_ADDRESS), (SERVER, "nbts", ADDRESS)):
            ip("-n", namespace, "addr", "add", f"{address}/24", "dev", nic)
            ip("-n", namespace, "link", "set", nic, "up")
        yield NamespaceHost(machine, CLIENT), NamespaceHost(machine, SERVER)
    finally:
        end_marked_processes(RUN_ID)
        for namespace in (CLIENT, SERVER):
            machine.run(["ip", "netns", "del", namespace])


@pytest.fixture
def ends(link, tmp_path):
    client, server = link
    return FlowEnds("a", 1, client, server, ADDRESS, str(tmp_path))


@contextmanager
def known_server(ends, **behaviour):
    argv = [sys.executable, known_server_program.__file__, ADDRESS, str(ends.port), json.dumps(behaviour)]
    running = RunningServer.started(ends, argv)
    try:
        running.await_ready(connects=True)
        yield
    finally:
        running.stop()


@contextmanager
def own_server(tool, ends):
    running = tool.start_server(ends)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def dropped(ends, rule, words="numgen inc mod 100 == 7 counter drop"):
    """Drop some packets that the server's host receives; yields a function that counts them."""

    def nft(*words):
        return run_checked(ends.server, ["nft", *words])

    nft("add table ip nbt")
    nft("add chain ip nbt c { type filter hook input priority 0; }")
    nft("add rule ip nbt c " + f"{rule} {words}")
    try:
        yield lambda: int(nft("list chain ip nbt c").partition("counter packets ")[2].split()[0])
    finally:
        nft("delete table ip nbt")


def waiting_ports(host):
    """The ports that a host cannot use for new connections."""
    return set(run_checked(host, ["ss", "-tanH", "state", "time-wait"]).split("\n"))


def measured(tool, ends, load, duration_s, warm_up_s=0.0):
    demand = Demand(Load.parse(load), duration_s, warm_up_s)
    done = ends.client.run(tool.client_command(ends, demand), timeout_s=duration_s + 20)
    return tool.result(done, demand, ends, "work")


def times_of(result, kind):
    (found,) = (latencies for latencies in result.latencies if latencies.kind == kind)
    timeouts = result.errors.get("timeout", 0) if kind == "response" else 0  # count at their deadlines
    assert found.count == result.completed + timeouts
    return found


def quantile_s(times, quantile):
    """The nearest rank, as capture/distribution.py has it."""
    rank = math.ceil(round(quantile * times.count, 6))
    for middle, number in times.steps:
        rank -= number
        if rank <= 0:
            return middle / 1e9
    raise AssertionError("no times")


def number_from(times, least_s):
    return sum(number for middle, number in times.steps if middle >= least_s * 1e9)


def http(**options):
    return Http(HttpOptions(**options))


@pytest.mark.parametrize("delay_s", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("arrivals", ["even", "poisson"])
def test_a_delay_is_measured(ends, delay_s, arrivals):
    with known_server(ends, delay_s=delay_s):
        result = measured(http(arrivals=arrivals), ends, "100/s", 3, warm_up_s=1)
    assert result.errors == {}
    assert result.intended == result.started == result.completed
    assert result.completed == 200 or (arrivals == "poisson" and 140 < result.completed < 260)
    for kind in ("response", "service"):
        times = times_of(result, kind)
        assert times.smallest_ns >= delay_s * 1e9
        assert delay_s <= quantile_s(times, 0.5) < delay_s + OVERHEAD_S
    assert result.tool.endswith(", known/1")


def test_a_stall_is_in_the_response_times_of_an_open_loop_and_hidden_in_a_closed_one(ends):
    stall = {"stall_from_s": 4.0, "stall_s": 1.0}
    with known_server(ends, **stall):
        result = measured(http(), ends, "100/s", 10)
    assert (result.intended, result.completed, result.errors) == (1000, 1000, {})
    response = times_of(result, "response")
    # 100 requests are due in the stall, which end with it: 1.00, 0.99, ... 0.01 s. Ten are above the 99th percentile.
    assert quantile_s(response, 0.99) == pytest.approx(0.9, rel=0.05)
    assert quantile_s(response, 0.95) == pytest.approx(0.5, rel=0.05)
    assert number_from(response, 0.02) == pytest.approx(98, abs=3)
    with known_server(ends, **stall):
        closed = measured(http(clients=1, think_time=0.01), ends, "max", 10)
    service = times_of(closed, "service")
    assert service.largest_ns == pytest.approx(1e9, rel=0.05)
    assert quantile_s(service, 0.99) < 0.1


def test_few_connections_hide_no_stall(ends):
    with known_server(ends, stall_from_s=1.0, stall_s=1.0):
        result = measured(http(connections=2), ends, "100/s", 4)
    assert (result.intended, result.completed, result.errors) == (400, 400, {})
    assert quantile_s(times_of(result, "response"), 0.90) == pytest.approx(0.6, rel=0.1)  # 40 of 100 are longer
    assert number_from(times_of(result, "service"), 0.1) <= 2


def test_a_server_at_its_limit_answers_later_and_later(ends):
    with known_server(ends, serial_s=0.02):
        result = measured(http(timeout=10), ends, "100/s", 2)
    assert (result.intended, result.completed, result.errors) == (200, 200, {})
    response = times_of(result, "response")
    # Request k is due after 10 k ms and answered after 20 (k + 1) ms.
    assert response.total_ns / 200e9 == pytest.approx(0.020 + 0.010 * 99.5, rel=0.05)
    assert response.largest_ns / 1e9 == pytest.approx(0.020 + 0.010 * 199, rel=0.05)


def test_a_slow_answer_of_1000_is_one(ends):
    with known_server(ends, every=1000, fault="slow", slow_s=0.2):
        result = measured(http(), ends, "1000/s", 4)
    assert (result.intended, result.completed, result.errors) == (4000, 4000, {})
    response = times_of(result, "response")
    assert number_from(response, 0.199) == 4
    assert quantile_s(response, 0.9995) == pytest.approx(0.2, rel=0.02)
    assert quantile_s(response, 0.5) < OVERHEAD_S


@pytest.mark.parametrize(
    ("fault", "kind", "keep_alive"),
    [
        ("closed", "closed", True),
        ("reset", "reset", True),
        ("short", "short", True),
        ("short", "short", False),
        ("status", "status-500", True),
        ("status", "status-500", False),
        ("malformed", "malformed", True),
        ("silent", "timeout", True),
        ("silent", "timeout", False),
        ("dribble", None, True),
    ],
)
def test_errors_are_counted_by_kind(ends, fault, kind, keep_alive):
    with known_server(ends, every=10, fault=fault):
        begin = time.monotonic()
        result = measured(http(timeout=1, keep_alive=keep_alive), ends, "100/s", 2, warm_up_s=1)
        taken_s = time.monotonic() - begin
    assert (result.intended, result.started) == (100, 100)
    assert result.errors == ({kind: 10} if kind else {})
    assert result.completed == 100 - sum(result.errors.values())
    # A timeout counts at its deadline.
    assert (times_of(result, "response").largest_ns >= 1e9) == (kind == "timeout")
    assert taken_s < 2 + 1 + 1


def test_no_answer_is_a_timeout_at_the_deadline(ends):
    with known_server(ends, fault="silent"):
        begin = time.monotonic()
        result = measured(http(timeout=2, connections=50), ends, "100/s", 1)
        taken_s = time.monotonic() - begin
    # Half of the requests start on connections that others free at their deadlines.
    assert (result.intended, result.started, result.completed) == (100, 100, 0)
    assert result.errors == {"timeout": 100}
    assert [times.count for times in result.latencies] == [100, 0]
    assert times_of(result, "response").smallest_ns == times_of(result, "response").largest_ns == 2_000_000_000
    assert taken_s == pytest.approx(1 + 2, abs=0.6)


def test_nothing_listens(ends):
    result = measured(http(), ends, "100/s", 1)
    assert (result.intended, result.completed, result.errors) == (100, 0, {"refused": 100})
    result = measured(http(clients=3, think_time=0.1), ends, "max", 1)
    assert result.errors == {"refused": result.intended}
    assert result.intended == pytest.approx(30, abs=3)


def test_clients_that_think_offer_what_they_can(ends):
    with known_server(ends, delay_s=0.01):
        result = measured(http(clients=10, think_time=0.1), ends, "max", 4, warm_up_s=1)
    assert result.errors == {}
    assert result.completed_per_s == pytest.approx(10 / 0.11, rel=0.04)
    assert quantile_s(times_of(result, "service"), 0.5) == pytest.approx(0.01, abs=OVERHEAD_S)


@pytest.mark.parametrize("body_size", [1, 1024, 3 << 20])
@pytest.mark.parametrize("keep_alive", [True, False])
def test_nginx_serves_the_body(ends, body_size, keep_alive):
    tool = http(body_size=body_size, keep_alive=keep_alive, workers=2)
    with own_server(tool, ends):
        result = measured(tool, ends, "20/s", 2, warm_up_s=1)
    assert (result.intended, result.completed, result.errors) == (20, 20, {})
    head_bytes, rest = divmod(result.to_client_bytes - 20 * body_size, 20)
    assert rest == 0
    assert 150 < head_bytes < 400
    assert result.run_to_client_bytes == 2 * result.to_client_bytes
    assert result.tool.rpartition(", ")[2].startswith("nginx/")


def test_the_client_names_its_own_delay(ends):
    tool = http()
    with own_server(tool, ends):
        result = measured(tool, ends, "500/s", 2)
    assert result.client_late.count == 1000
    response, service = times_of(result, "response"), times_of(result, "service")
    assert response.total_ns - service.total_ns == pytest.approx(result.client_late.total_ns, rel=0.2)
    assert 0 < result.client_cpu_share < 1


@pytest.mark.parametrize("killed", ["stop", "master", "unshare"])
def test_no_process_outlives_its_server(ends, machine, killed):
    tool = http(workers=4)

    def there():
        return machine.run(["ip", "netns", "pids", SERVER]).stdout.split()

    with own_server(tool, ends) as running:
        assert len(there()) > tool.options.workers
        if killed == "stop":
            running.stop()
        elif killed == "unshare":
            machine.run(["kill", "-KILL", str(running.process.pid)])
        else:
            masters = [pid for pid in there() if "nginx: master" in Path("/proc", pid, "cmdline").read_text()]
            machine.run(["kill", "-KILL", *masters])
        assert wait_until(lambda: not there(), 5)


@pytest.mark.parametrize("load", ["200/s", "max"])
def test_connections_are_counted(ends, load):
    tool = Connect(ConnectOptions(clients=5))
    with own_server(tool, ends):
        before = waiting_ports(ends.client)
        result = measured(tool, ends, load, 2, warm_up_s=1)
        assert waiting_ports(ends.client) <= before
    assert result.errors == {}
    assert result.intended == result.completed
    assert result.completed == 200 if load == "200/s" else result.completed > 1000
    assert 0 < quantile_s(times_of(result, "connect"), 0.5) < OVERHEAD_S


def test_a_lost_handshake_takes_a_second_longer(ends):
    tool = Connect(ConnectOptions())
    with (
        own_server(tool, ends),
        dropped(ends, "tcp flags & (syn|ack) == syn", "numgen inc mod 10 == 3 counter drop") as n,
    ):
        result = measured(tool, ends, "50/s", 4)
        lost = n()
    assert (result.intended, result.completed, result.errors) == (200, 200, {})
    times = times_of(result, "connect")
    # SYNs are sent again after 1, 2, 4 s (Linux, TCP_TIMEOUT_INIT).
    assert sum(number * round(math.log2(round(middle / 1e9) + 1)) for middle, number in times.steps) == lost
    assert lost == pytest.approx(22, abs=1)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("load", ["1000/s", "max"])
def test_sockperf_measures_round_trips(ends, protocol, load):
    tool = Sockperf(SockperfOptions(protocol=protocol, message_size=100))
    with own_server(tool, ends):
        result = measured(tool, ends, load, 3, warm_up_s=1)
    assert result.errors == {}
    assert result.completed == result.started
    assert result.to_client_bytes == 100 * result.completed
    if load == "1000/s":
        assert result.intended == pytest.approx(1000 * result.duration_s, abs=1)
        assert result.completed == pytest.approx(result.intended, rel=0.02)
    assert quantile_s(times_of(result, "rtt"), 0.5) < OVERHEAD_S


SLOW_SOCKPERF = """
import socket, struct, sys, time
served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
served.bind((sys.argv[1], int(sys.argv[2])))
while True:
    message, sender = served.recvfrom(65536)
    time.sleep(float(sys.argv[3]))
    number, flags = struct.unpack(">QH", message[:10])
    served.sendto(struct.pack(">QH", number, flags & ~1) + message[10:], sender)
"""


def test_sockperf_serves_where_a_server_closed_its_connections(ends):
    """The side that closes first has its port in TIME-WAIT for a minute, here that of the earlier server."""
    run_checked(ends.server, [sys.executable, "-c", CLOSES_FIRST, ADDRESS, str(ends.port)])
    assert f"{ADDRESS}:{ends.port}" in str(waiting_ports(ends.server))
    with own_server(tool := Sockperf(SockperfOptions(protocol="tcp")), ends):
        assert measured(tool, ends, "1000/s", 4.0).completed


@pytest.mark.parametrize("delay_s", [0.001, 0.01])
def test_sockperf_reports_the_whole_round_trip(ends, delay_s):
    """Its own latency is half of it. The first flag of a message is that of the client."""
    tool = Sockperf(SockperfOptions())
    argv = [sys.executable, "-c", SLOW_SOCKPERF, ADDRESS, str(ends.port), str(delay_s)]
    running = RunningServer.started(ends, argv)
    try:
        result = measured(tool, ends, "max", 3)
    finally:
        running.stop()
    assert delay_s < quantile_s(times_of(result, "rtt"), 0.5) < delay_s + OVERHEAD_S


def test_sockperf_counts_lost_datagrams(ends):
    tool = Sockperf(SockperfOptions())
    with own_server(tool, ends), dropped(ends, f"udp dport {ends.port}"):
        result = measured(tool, ends, "1000/s", 5)
    assert result.lost_datagrams == result.errors["lost"] == result.started - result.completed
    assert result.lost_datagrams == pytest.approx(result.started / 100, abs=1)


def test_sockperf_is_stopped_by_a_lost_datagram_in_ping_pong(ends):
    tool = Sockperf(SockperfOptions())
    with (
        own_server(tool, ends),
        dropped(ends, f"udp dport {ends.port}"),
        pytest.raises(ToolError, match=r"waits forever for a lost datagram"),
    ):
        measured(tool, ends, "max", 3)


def test_iperf3_counts_lost_datagrams(ends):
    tool = Iperf3(Iperf3Options(protocol="udp"))
    with own_server(tool, ends), dropped(ends, f"udp dport {ends.port}") as count:
        result = measured(tool, ends, "10Mbit/s", 2)
        lost = count()
    assert result.lost_datagrams == pytest.approx(lost, abs=1)
    assert result.lost_datagrams == pytest.approx(result.started / 100, abs=2)
