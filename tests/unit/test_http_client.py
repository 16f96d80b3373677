"""The client of the tools http and connect: responses as they arrive, and the intended starts of requests."""

import json
import subprocess
import sys
from itertools import pairwise
from statistics import mean, stdev

import pytest
from pydantic import ValidationError

from netbench.hosts.local import LocalHost
from netbench.hosts.trusted_code import module_command
from netbench.model.units import Load
from netbench.tools.base import Demand, FlowEnds
from netbench.tools.client_load import LoopSettings
from netbench.tools.client_loop import kind_of
from netbench.tools.connect import Connect, ConnectOptions
from netbench.tools.http import Http, HttpOptions
from netbench.tools.http_response import Response
from netbench.tools.iperf3 import Iperf3, Iperf3Options
from netbench.tools.sealed_output import sealed, unsealed
from netbench.tools.sockperf import Sockperf, SockperfOptions
from netbench.tools.tcp_client import ClientSettings

HERE = LocalHost("here", "client")
ENDS = FlowEnds("a", 2, HERE, HERE, "2001:2::2", "/tmp/d")
OK = b"HTTP/1.1 200 OK\r\nServer: known/1\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    ("data", "error", "is_reusable"),
    [
        (OK, "", True),
        (OK.replace(b"Content-Length: 5", b"content-length:5 "), "", True),
        (OK.replace(b"200 OK", b"200"), "", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "", True),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), "", False),
        (OK.replace(b"Server: known/1", b"Connection: close"), "", False),
        (OK.replace(b"200 OK", b"500 Internal Server Error"), "status-500", True),
        (OK.replace(b"200 OK", b"301 Moved"), "status-301", True),
        (OK.replace(b"Content-Length: 5\r\n", b""), "malformed", False),
        (OK.replace(b"Content-Length: 5", b"Content-Length: -5"), "malformed", False),
        (OK.replace(b"\r\nServer: known/1", b"\r\nContent-Length: 6"), "malformed", False),
        (OK.replace(b"Server: known/1", b"Transfer-Encoding: chunked"), "malformed", False),
        (OK.replace(b"HTTP/1.1", b"HTTP/2.0"), "malformed", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed", False),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "malformed", False),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_response_is_read_however_it_arrives(data, error, is_reusable, piece):
    response = Response()
    for at in range(0, len(data), piece):
        if not response.has_ended:
            response.feed(memoryview(data)[at : at + piece])
    assert response.has_ended
    assert (response.error, response.is_reusable) == (error, is_reusable)


def test_more_bytes_than_a_response_has_are_malformed():
    response = Response()
    response.feed(memoryview(OK + b"x"))
    assert (response.has_ended, response.error, response.is_reusable) == (True, "malformed", False)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "closed"),
        (OK[:10], "closed"),
        (OK[:-1], "short"),
        (OK[:-5], "short"),
        (OK.replace(b"200", b"500")[:-1], "short"),
    ],
)
def test_the_end_of_a_connection_within_a_response(data, error):
    response = Response()
    response.feed(memoryview(data))
    assert not response.has_ended
    response.end()
    assert (response.has_ended, response.error, response.is_reusable) == (True, error, False)


def loop(**settings):
    return LoopSettings(**{"address": "198.18.0.2", "port": 5201, "duration_s": 10.0, **settings})


@pytest.mark.parametrize(
    ("rate", "duration_s", "number", "last_ns"),
    [
        (100, 10, 1000, 9_990_000_000),
        (30, 0.1, 3, 66_666_667),
        (3, 1, 3, 666_666_667),
        (0.5, 3, 2, 2_000_000_000),
        (0.01, 1, 1, 0),
    ],
)
def test_even_starts(rate, duration_s, number, last_ns):
    starts = loop(rate=rate, duration_s=duration_s).starts_ns()
    assert (len(starts), starts[0], starts[-1]) == (number, 0, last_ns)


def test_starts_of_a_poisson_process():
    starts = loop(rate=1000, duration_s=20, poisson=True, seed=3).starts_ns()
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    # Gaps of an exponential distribution have a standard deviation equal to their mean.
    assert mean(gaps) == pytest.approx(1e6, rel=0.03)
    assert stdev(gaps) == pytest.approx(1e6, rel=0.05)
    assert starts == loop(rate=1000, duration_s=20, poisson=True, seed=3).starts_ns()
    assert starts != loop(rate=1000, duration_s=20, poisson=True, seed=4).starts_ns()
    assert starts[-1] < 20e9


def test_settings_reach_the_client():
    tool = Http(HttpOptions(arrivals="poisson", keep_alive=False, timeout=3, connections=7))
    argument = tool.client_command(ENDS, Demand(Load.parse("100/s"), 5, 1, seed=9))[-1]
    expected = LoopSettings("2001:2::2", 5202, 5, 1, 3.0, 100.0, 10, 0.0, True, 7, 9)
    assert ClientSettings.of(argument) == ClientSettings(expected, "/", keep_alive=False)
    assert (
        ClientSettings.of(Connect(ConnectOptions()).client_command(ENDS, Demand(Load.parse("max"), 5))[-1]).path == ""
    )


@pytest.mark.parametrize("number", [104, 111, 113, 110, 24, None])
def test_kinds_of_errors(number):
    names = {104: "reset", 111: "refused", 113: "unreachable", 110: "timeout", 24: "emfile", None: "unknown"}
    assert kind_of(number) == names[number]


@pytest.mark.parametrize("module", ["tcp_client", "sockperf_client"])
def test_clients_import_next_to_nothing(module):
    """They run on hosts that have numpy and none of netbench's other dependencies."""
    code = f"import netbench.tools.{module}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "pyroute2", "scapy", "asyncio", "rich"} & set(done.stdout.split())


def test_a_client_without_a_server_reports_its_errors():
    settings = ClientSettings(loop(address="127.0.0.1", port=1, rate=50, duration_s=0.4, warm_up_s=0.2), "/")
    command = module_command("netbench.tools.tcp_client", settings.as_argument)
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    output = unsealed(done.stdout)
    assert (output["intended"], output["completed"], output["errors"]) == (10, 0, {"refused": 10})


@pytest.mark.parametrize("text", ["", "{}", sealed({}).replace("{}", "[]"), sealed({}) + "x", json.dumps({})])
def test_output_without_its_checksum_is_refused(text):
    assert unsealed(sealed({"a": [1]})) == {"a": [1]}
    with pytest.raises(ValueError):
        unsealed(text)


def test_sockperf_needs_some_seconds():
    tool, load = Sockperf(SockperfOptions()), Load.parse("max")
    assert "4 s or more" in tool.unsupported_reason(Demand(load, duration_s=3.0))
    assert not tool.unsupported_reason(Demand(load, duration_s=4.0))


@pytest.mark.parametrize(
    ("tool", "load", "reason"),
    [
        (Http(HttpOptions()), "100/s", ""),
        (Http(HttpOptions()), "max", ""),
        (Http(HttpOptions()), "1Mbit/s", "no load of this tool"),
        (Http(HttpOptions()), "200k/s", "at most 100000/s"),
        (Connect(ConnectOptions()), "200k/s", "at most 100000/s"),
        (Sockperf(SockperfOptions()), "0.5/s", "whole messages"),
        (Sockperf(SockperfOptions()), "1000/s", ""),
        (Iperf3(Iperf3Options(protocol="udp", message_size=15)), "max", "datagrams of 16 to 65507 bytes, not 15"),
        (Iperf3(Iperf3Options(parallel=128)), "50bit/s", "less than 1 bit/s for each of 128 flows"),
        (Iperf3(Iperf3Options(parallel=128)), "1kbit/s", ""),
    ],
)
def test_loads_that_a_tool_cannot_run_at(tool, load, reason):
    found = tool.unsupported_reason(Demand(Load.parse(load), duration_s=10.0))
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (HttpOptions, {"body_size": 0}),
        (HttpOptions, {"arrivals": "random"}),
        (HttpOptions, {"timeout": 100}),
        (HttpOptions, {"clients": 1.5}),
        (ConnectOptions, {"body_size": 1}),
        (SockperfOptions, {"message_size": 13}),
    ],
)
def test_options_out_of_range(options, values):
    with pytest.raises(ValidationError):
        options.model_validate(values)


@pytest.mark.parametrize(
    ("duration_s", "warm_up_s", "words"),
    [
        (10, 1, "--time 7"),
        (10, 4, "--time 5 --pre-warmup-wait 2"),
        (2, 1, "--time 1"),
    ],
)
def test_sockperf_measures_within_the_window(duration_s, warm_up_s, words):
    argv = Sockperf(SockperfOptions()).client_command(ENDS, Demand(Load.parse("max"), duration_s, warm_up_s))
    assert " ".join(argv).endswith(words)
