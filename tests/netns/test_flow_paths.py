"""Flows through a guest, between two guests and inside one, in whole campaigns; and a tool with a second tier."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from netbench.hosts.clock import wait_until
from netbench.model.workload import FlowPath
from netbench.results.directory import ResultDirectory
from netbench.tools import application
from tests.commands import netbench, rows, settings
from tests.netns.test_flows import processes_of_runs
from tests.netns.watching import wait_for

pytestmark = pytest.mark.root

ON_CONTAINER = ("--uut", "container", *settings(topology__uuts__container__root="host"))
TIMES = {"duration": "1s", "warm_up": "200ms", "repetitions": 1, "retries": 10}
PROFILE = "{{name: paths, tool: {tool}, loads: [{load}], scenarios: {scenarios}}}"
IDLE = ["shared-idle"]
ELSEWHERE = ["through", "between-guests", "loopback"]
# Where the taps of each path are.
TAPS = {
    FlowPath.THROUGH: {"client", "server"},
    FlowPath.BETWEEN_GUESTS: {"client", "guest"},
    FlowPath.LOOPBACK: set(),
}


def profile_of(results: Path, tool: object, load: str, scenarios: Sequence[object] = IDLE) -> Path:
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tool), load=load, scenarios=json.dumps(scenarios)))
    return profile


def run(
    results: Path, tool: object, load: str, *more: str, scenarios: Sequence[object] = IDLE, topology: str = "netns-vmm"
):
    profile = profile_of(results, tool, load, scenarios)
    return netbench("run", topology, profile, "-o", results, *settings(**TIMES), *more)


def trials_of(results: Path):
    return ResultDirectory(results).results().trials


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    assert processes_of_runs() == {}
    for what in ("netns", "link"):
        assert "nb-" not in subprocess.run(["ip", what], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    assert "198.18." not in routes
    assert "198.19." not in routes


@pytest.mark.parametrize(("kind", "load"), [("http", "100/s"), ("iperf3", "100Mbit/s")])
def test_tool_and_wire_agree_on_each_path(results, kind, load):
    """Raw has the same paths, except the one that needs a second guest."""
    done = run(results, {"kind": kind, "path": ELSEWHERE}, load, *ON_CONTAINER, "--uut", "raw")
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"raw × {kind} path=between-guests: it is no guest" in done.stdout
    trials = trials_of(results)
    paths = {(trial.spec.uut, trial.spec.kind_of_traffic.path) for trial in trials}
    assert paths == {*(("container", path) for path in TAPS), ("raw", FlowPath.THROUGH), ("raw", FlowPath.LOOPBACK)}
    for trial in trials:
        (flow,) = trial.victim.flows
        assert {tap.place for tap in flow.wire} == TAPS[trial.spec.kind_of_traffic.path], trial.spec.key
        assert flow.completed == 80 or flow.to_server_bps == pytest.approx(100e6, rel=0.05)
        for tap in flow.wire:
            assert tap.to_server_bytes == pytest.approx(flow.run_to_server_bytes, rel=0.001)
            assert flow.run_to_client_bytes in (None, tap.to_client_bytes)
            assert tap.error == ""
    assert {row["workload"] for row in rows(results)} == {f"{kind} path={path}" for path in ELSEWHERE}


@pytest.mark.parametrize("uut", ["container", "virtio"])
def test_a_guest_image_has_all_clients(results, uut):
    kinds = ("http", "iperf3", "sockperf")
    tools = [{"kind": kind, "path": "loopback"} for kind in kinds]
    done = run(results, tools, "max", "--uut", uut, *settings(duration="4s"))
    flows = {trial.spec.kind_of_traffic.tool: trial.victim.flows[0] for trial in trials_of(results)}
    assert flows.keys() == set(kinds), done.stderr + done.stdout
    assert {flow.error for flow in flows.values()} == {""}
    assert all(flow.completed > 50 for kind, flow in flows.items() if kind != "iperf3")
    assert flows["iperf3"].to_server_bps > 1e6


def test_neighbours_have_flows_through_and_inside_them(results):
    scenarios = [
        {"name": path, "activity": {"serve": {"kind": "iperf3", "path": path}, "load": "10Mbit/s"}}
        for path in ("through", "loopback")
    ]
    done = run(results, {"kind": "http"}, "50/s", *ON_CONTAINER, scenarios=scenarios)
    assert done.returncode == 0, done.stderr + done.stdout
    for trial in trials_of(results):
        (flow,) = trial.neighbours[0].flows
        assert flow.to_server_bps == pytest.approx(10e6, rel=0.05)
        assert trial.victim.flows[0].completed == 40


def test_a_flow_through_the_next_uut_runs_at_once(results):
    """Its MAC addresses are others than those of the UUT before, which the hosts beside it still have."""
    more = settings(reboot="trial", repetitions=2)
    done = run(results, {"kind": "http", "path": "through"}, "50/s", *ON_CONTAINER, "--uut", "raw", *more)
    assert done.returncode == 0, done.stderr + done.stdout
    trials = trials_of(results)
    assert [trial.victim.flows[0].completed for trial in trials] == [40] * 4
    reasons = [reason.detail for trial in trials for attempt in trial.thrown_away for reason in attempt]
    assert [detail for detail in reasons if "not ready" in detail] == []


REFUSED: dict[str, tuple[dict[str, str], Sequence[object], str]] = {
    "a neighbour that is absent": (
        {"kind": "iperf3", "path": "between-guests"},
        ["dedicated"],
        "the neighbour second, which is off in scenario dedicated; choose scenarios in which it is present",
    ),
    "a second tier that is absent": ({"kind": "two-tier"}, ["dedicated"], "off in scenario dedicated"),
    "a path that a tool does not have": (
        {"kind": "two-tier", "path": "through"},
        IDLE,
        "path: two-tier does not support through; supported: to-guest",
    ),
    "an unknown path": ({"kind": "http", "path": "trough"}, IDLE, "did you mean through?"),
    "a neighbour with a second guest": (
        {"kind": "http"},
        [{"name": "both", "activity": {"serve": {"kind": "iperf3", "path": "between-guests"}, "load": "max"}}],
        "only the measured guest can have flows with a second guest",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_paths_are_refused_before_anything_is_touched(results, name):
    tool, scenarios, words = REFUSED[name]
    load = "max" if tool["kind"] == "iperf3" else "50/s"
    done = run(results, tool, load, *ON_CONTAINER, scenarios=scenarios)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not results.exists()


@pytest.mark.parametrize(
    ("uut", "path", "words"),
    [
        ("bridge", "through", "it does not route with `forward: bridge`"),
        ("route", "between-guests", "topology netns has no neighbour"),
    ],
)
def test_a_uut_without_the_path_is_refused(results, uut, path, words):
    done = run(results, {"kind": "http", "path": path}, "50/s", "--uut", uut, scenarios=["dedicated"], topology="netns")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_second_tier_uses_the_requested_cpu_time(results):
    times_ms = [5, 20]
    tool = {"kind": "two-tier", "cpu_time": times_ms, "body_size": 3000}
    done = run(results, tool, "20/s", *ON_CONTAINER, *settings(duration="4s"))
    assert done.returncode == 0, done.stderr + done.stdout
    for trial in trials_of(results):
        (flow,) = trial.victim.flows
        assert (flow.completed, flow.errors) == (76, {})
        assert flow.tool.startswith("netbench two-tier client")
        cpu_ms = trial.spec.kind_of_traffic.option("cpu_time")
        (response,) = (times for times in flow.latencies if times.kind == "response")
        assert response.smallest_ns >= 1e6 * cpu_ms
        assert 1000 * trial.neighbours[0].cpu_s["host"] / 80 == pytest.approx(cpu_ms, rel=0.1)
        assert trial.victim.cpu_s["host"] < 0.2
    shown = {row["workload"]: float(row["operation_cpu_ms"].partition("; second: host=")[2]) for row in rows(results)}
    expected = {f"two-tier cpu_time={cpu_ms}": pytest.approx(cpu_ms, rel=0.1) for cpu_ms in times_ms}
    assert shown == expected


@contextmanager
def running_application(*arguments: object):
    """The application on this machine; yields the process and the port."""
    port = 5399
    command = [sys.executable, "-I", "-S", application.__file__, "127.0.0.1", str(port), *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, port
        finally:
            process.kill()


def get(port: int) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(port: int) -> bool:
    try:
        return len(get(port)) == 100
    except OSError:
        return False


@pytest.mark.parametrize("victim", ["parent", "child"])
def test_the_application_ends_with_any_of_its_processes(victim):
    with running_application(10_000, 100, 2) as (process, port):
        wait_for(lambda: answers(port))
        children = children_of(process.pid)
        assert len(children) == 2
        before_s = sum(map(cpu_s, children))
        began_s = time.monotonic()
        for _ in range(50):
            assert get(port) == b"x" * 100
        assert time.monotonic() - began_s > 0.5
        assert sum(map(cpu_s, children)) - before_s == pytest.approx(0.5, rel=0.1)
        os.kill(process.pid if victim == "parent" else children[0], signal.SIGKILL)
        assert process.wait(timeout=10) != 0
        assert wait_until(lambda: not answers(port), 5, every_s=0.05)


def test_a_second_tier_that_dies_during_a_trial_is_a_failure_of_the_tool(results, start):
    profile = profile_of(results, {"kind": "two-tier", "cpu_time": 2}, "50/s")
    more = settings(**{**TIMES, "duration": "4s", "retries": 0})
    running = start("run", "netns-vmm", profile, "-o", results, *ON_CONTAINER, *more)
    processes: list[int] = []

    def serves() -> bool:
        found = processes_of_runs()
        clients = [command for command in found.values() if "netbench.tools.tcp_client" in command]
        processes[:] = [pid for pid, command in found.items() if "The application of a second tier" in command]
        return bool(clients and processes)

    wait_for(serves)
    time.sleep(1)
    os.kill(max(processes), signal.SIGKILL)
    output, errors = running.communicate(timeout=100)
    assert running.returncode == 1, errors + output
    (trial,) = trials_of(results)
    failures = [reason.detail for reason in trial.reasons if reason.kind.value == "tool-failed"]
    assert failures, [reason.kind for reason in trial.reasons]
    assert "the server on guest container.second ended with exit code" in failures[0]
    assert "of the application ended" in failures[0]
