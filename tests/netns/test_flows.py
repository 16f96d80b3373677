"""Flows between a client and a server in a guest, in whole campaigns: figures, the wire as witness, and kills."""

import csv
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from netbench.hosts.local import MARK
from netbench.results.directory import ResultDirectory
from tests.commands import netbench, rows, settings
from tests.netns.watching import wait_for

pytestmark = pytest.mark.root

# Trials that other programs of the machine disturbed are repeated.
REPEATED = settings(retries=10, duration="1s", warm_up="200ms", repetitions=1)
PROFILE = "{{name: served, tool: {tool}, loads: [{load}]}}"


def run(results: Path, tool: dict[str, object], load: str, *more: str, topology: str = "netns", uut: str = "route"):
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tool), load=load))
    return netbench("run", topology, profile, "-o", results, "--uut", uut, *REPEATED, *more)


def only_flow(results: Path):
    """The result of the only flow of the only trial, and the trial."""
    (trial,) = ResultDirectory(results).results().trials
    (flow,) = trial.victim.flows
    return flow, trial


def test_requests_at_a_rate_agree_with_the_wire_to_the_byte(results):
    done = run(results, {"kind": "http", "body_size": 5000}, "100/s", *settings(generator="auto", sink="auto"))
    assert done.returncode == 0, done.stderr + done.stdout
    flow, trial = only_flow(results)
    assert (flow.intended, flow.started, flow.completed, flow.errors) == (80, 80, 80, {})
    assert {tap.place for tap in flow.wire} == {"client", "guest"}
    for tap in flow.wire:
        assert (tap.to_server_bytes, tap.to_client_bytes) == (flow.run_to_server_bytes, flow.run_to_client_bytes)
        (exchanges,) = (times for times in tap.latencies if times.kind == "exchange")
        assert exchanges.count in (79, 80, 81)  # those on the edge of the warm-up
        assert (tap.dropped_frames, tap.uncaptured_bytes, tap.retransmissions) == (0, 0, 0)
    (row,) = rows(results)
    assert (row["workload"], row["load"], row["completed_operations"]) == ("http", "100/s", "80")
    assert trial.victim.streams == ()


@pytest.mark.parametrize("direction", ["upload", "download"])
def test_bandwidth_agrees_with_the_wire(results, direction):
    done = run(results, {"kind": "iperf3", "direction": direction}, "100Mbit/s", *settings(duration="2s"))
    assert done.returncode == 0, done.stderr + done.stdout
    flow, _ = only_flow(results)
    by_tool = {"upload": flow.run_to_server_bytes, "download": flow.run_to_client_bytes}[direction]
    for tap in flow.wire:
        by_wire = {"upload": tap.to_server_bytes, "download": tap.to_client_bytes}[direction]
        assert by_wire == pytest.approx(by_tool, rel=0.001)
    bps = flow.to_server_bps if direction == "upload" else flow.to_client_bps
    assert bps == pytest.approx(100e6, rel=0.05)


def test_datagrams_lost_in_the_sockets_of_a_tool_are_attributed_to_it(results):
    """The socket of the server may overflow, while all datagrams arrive at the guest."""
    done = run(results, {"kind": "iperf3", "protocol": "udp", "message_size": 1400}, "max")
    flow, trial = only_flow(results)
    client, guest = flow.wire
    assert client.to_server_segments == guest.to_server_segments
    if flow.lost_datagrams and flow.lost_datagrams > 0.001 * flow.started:
        assert "tool-disagrees" in {reason.kind.value for reason in trial.reasons}, done.stdout
        assert flow.socket_drops == pytest.approx(flow.lost_datagrams, abs=500), "some are in the socket at the end"
        assert f"{min(flow.socket_drops, flow.lost_datagrams):,} were dropped at the full socket" in " ".join(
            reason.detail for reason in trial.reasons
        )


def test_a_tool_of_another_package(installed, results):
    done = run(results, {"kind": "echo"}, "max")
    assert done.returncode == 0, done.stderr + done.stdout
    flow, _ = only_flow(results)
    assert flow.tool == "echo 1.0"
    assert flow.completed is not None
    assert flow.completed == flow.wire[0].to_client_bytes
    assert flow.completed > 100


def test_a_container_serves_beside_a_neighbour_that_serves_too(results):
    """The neighbour's flows run on its own stream, and the container has its own web server."""
    serving = {"name": "both", "activity": {"serve": {"kind": "http"}, "load": "50/s"}}
    more = settings(scenarios=json.dumps([serving]), topology__uuts__container__root="host")
    done = run(results, {"kind": "http"}, "50/s", *more, topology="netns-vmm", uut="container")
    assert done.returncode == 0, done.stderr + done.stdout
    (trial,) = ResultDirectory(results).results().trials
    completed = {guest.name: sum(flow.completed or 0 for flow in guest.flows) for guest in trial.guests}
    assert completed["victim"] == 40
    assert completed["second"] >= 40, "it serves for longer than the victim"


def test_the_next_uut_at_an_address_answers_at_once(results):
    """Its MAC address is another one than that of the UUT before, which the client's host still has in its table."""
    more = settings(reboot="trial", repetitions=2, topology__uuts__container__root="host")
    done = run(results, {"kind": "http"}, "50/s", *more, "--uut", "container", topology="netns-vmm", uut="raw")
    assert done.returncode == 0, done.stderr + done.stdout
    trials = ResultDirectory(results).results().trials
    assert [trial.victim.flows[0].completed for trial in trials] == [40] * 4
    reasons = [reason for trial in trials for attempt in trial.thrown_away for reason in attempt]
    assert [reason for reason in reasons if "not ready" in reason.detail] == []


def test_hosts_over_ssh(results):
    done = run(results, {"kind": "http"}, "100/s", *settings(streams=1), topology="netns-ssh", uut="router")
    assert done.returncode == 0, done.stderr + done.stdout
    flow, _ = only_flow(results)
    assert (flow.completed, flow.errors) == (80, {})
    assert {tap.to_client_bytes for tap in flow.wire} == {flow.run_to_client_bytes}


REFUSED = {
    "a UUT without an address": (("--uut", "bridge"), {"kind": "http"}, "100/s", "no UUT can serve"),
    "a load of frames": (
        ("--uut", "route"),
        {"kind": "http"},
        "100fps",
        "loads: http does not support 100fps; supported: 100/s, max",
    ),
    "an unknown tool": (("--uut", "route"), {"kind": "htp"}, "100/s", "'htp' is no kind of tool"),
    "an unknown option": (("--uut", "route"), {"kind": "http", "body": 1}, "100/s", "tool.body: unknown key"),
    "a part of few connections": (
        ("--uut", "route", "--set", "witness=1/8"),
        {"kind": "iperf3"},
        "max",
        "witness: 1/8 of the connections of iperf3 shows nothing",
    ),
    "frame sizes beside a tool": (
        ("--uut", "route", "--set", "frame_sizes=64"),
        {"kind": "http"},
        "100/s",
        "has either a tool, which runs flows, or frame_sizes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_before_anything_is_touched(results, name):
    options, tool, load, words = REFUSED[name]
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tool), load=load))
    done = netbench("run", "netns", profile, "-o", results, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not results.exists()


def processes_of_runs() -> dict[int, str]:
    """The commands of all processes that belong to runs of netbench, or are web servers, by id."""
    found = {}
    for directory in Path("/proc").iterdir():
        try:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            marked = MARK.encode() + b"=" in (directory / "environ").read_bytes()
        except OSError:
            continue
        if directory.name.isdecimal() and (marked or command.startswith("nginx: ")):
            found[int(directory.name)] = command
    return found


@pytest.mark.parametrize("victim", ["nginx: master", "http_client", "tcpdump", "controller"])
def test_kills(results, start, victim):
    """The trial is repeated where a part of it was killed; a killed controller leaves nothing after `clean`."""
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps({"kind": "http"}), load="50/s"))
    more = settings(retries=10, duration="3s", warm_up="1s", repetitions=1)
    running = start("run", "netns", profile, "-o", results, "--uut", "route", *more)
    client = "netbench.tools.tcp_client"
    words = {"http_client": client, "controller": client, "tcpdump": "tcpdump -i"}  # not `tcpdump --version`
    pids: list[int] = []

    def runs() -> bool:
        pids[:] = [pid for pid, command in processes_of_runs().items() if words.get(victim, victim) in command]
        return bool(pids)

    wait_for(runs)
    os.kill(running.pid if victim == "controller" else pids[0], signal.SIGKILL)
    output, errors = running.communicate(timeout=100)
    if victim == "controller":
        assert netbench("clean").returncode == 0
    else:
        assert running.returncode == 0, errors + output
        flow, trial = only_flow(results)
        assert flow.completed == 100
        assert trial.attempt > 1, "the first attempt was spoilt"
    assert processes_of_runs() == {}
    assert "nb-" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_a_part_of_the_connections_is_followed(results):
    done = run(
        results, {"kind": "connect"}, "2000/s", "--set", "witness=1/8", *settings(retries=0, keep_captures="all")
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    flow, trial = only_flow(results)
    client, guest = flow.wire
    assert client.one_of == guest.one_of == 8
    assert client.connections == guest.connections
    assert client.connections == pytest.approx(2000 / 8, rel=0.3)
    assert {client.to_server_bytes, client.retransmissions, guest.to_client_segments} == {None}
    assert "tool-disagrees" not in {reason.kind.value for reason in trial.reasons}


def test_clients_and_taps_keep_off_the_cpu_of_a_pinned_guest(results, start):
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps({"kind": "http"}), load="50/s"))
    more = settings(duration="3s", repetitions=1, topology__neighbours__0__placement="same-cpu")
    more += settings(topology__uuts__container__root="host", retries=0)
    running = start("run", "netns-vmm", profile, "-o", results, "--uut", "container", *more)
    cpus: dict[str, set[int]] = {}

    def found_all() -> bool:
        for pid, command in processes_of_runs().items():
            for words in ("netbench.tools.tcp_client", "tcpdump -i", "nginx: master"):
                if words in command and "taskset" not in command:
                    cpus[words] = os.sched_getaffinity(pid)
        return len(cpus) == 3

    wait_for(found_all)
    running.communicate(timeout=100)
    *others, last = sorted(os.sched_getaffinity(0))
    beside = set(others) or {last}
    assert cpus == {"netbench.tools.tcp_client": beside, "tcpdump -i": beside, "nginx: master": {last}}


def test_exports_have_a_row_per_flow(results, tmp_path):
    tools = [{"kind": "http"}, {"kind": "connect"}]
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tools), load="50/s"))
    done = netbench("run", "netns", profile, "-o", results, "--uut", "route", *REPEATED, *settings(repetitions=2))
    assert done.returncode == 0, done.stderr + done.stdout
    for part in ("report.html", "summary.json"):
        assert (results / part).stat().st_size > 1000
    file = tmp_path / "flows.csv"
    assert netbench("export", results, "--format", "csv", "-o", file).returncode == 0
    found = list(csv.DictReader(file.open()))
    assert sorted((row["workload"], row["repetition"], row["completed_operations"]) for row in found) == [
        (tool, repetition, "40") for tool in ("connect", "http") for repetition in ("1", "2")
    ]
