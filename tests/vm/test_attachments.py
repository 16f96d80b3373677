"""Guests under QEMU behind NAT, SLIRP and passt serve clients; the ends of passt and of netbench are survived."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from netbench.results.directory import ResultDirectory
from tests.commands import netbench, settings
from tests.netns.test_flows import PROFILE, processes_of_runs
from tests.netns.watching import wait_for

pytestmark = pytest.mark.vm

# Trials that other programs of the machine disturbed are repeated.
TIMES = settings(retries=10, duration="3s", warm_up="1s", repetitions=1)
# By UUT: the fact, and the place of the tap on the guest's side.
ATTACHED = {
    "virtio-nat": ("tap behind NAT", "guest"),
    "virtio-user": ("user networking (SLIRP)", "host"),
    "virtio-passt": ("user networking (passt)", "host"),
}


def profile_of(results, tool, load):
    profile = results.with_suffix(".yaml")
    profile.write_text(PROFILE.format(tool=json.dumps(tool), load=load))
    return profile


def passts() -> list[int]:
    """The processes passt of all runs."""
    return [pid for pid, command in processes_of_runs().items() if command.startswith("passt ")]


def serves() -> bool:
    return any("netbench.tools.tcp_client" in command for command in processes_of_runs().values())


def no_namespaces() -> bool:
    return "nb-" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_requests_and_bytes_agree_with_the_wire_through_each(results):
    """Exact counts. Of a connection that the host ends, handshakes are not shown."""
    profile = profile_of(results, [{"kind": "http"}, {"kind": "connect"}], "50/s")
    chosen = [word for uut in ATTACHED for word in ("--uut", uut)]
    done = netbench("run", "netns-attachments", profile, "-o", results, *chosen, *TIMES, timeout_s=300)
    assert done.returncode == 0, done.stderr + done.stdout
    found = ResultDirectory(results).results()
    served = {(trial.spec.uut, str(trial.victim.flows[0].workload)) for trial in found.trials}
    assert served == {("virtio-nat", "connect"), *((uut, "http") for uut in ATTACHED)}
    assert "virtio-user does not serve connect: its host accepts the connections of clients" in done.stdout
    for trial in found.trials:
        (flow,) = trial.victim.flows
        assert (flow.intended, flow.completed, flow.errors) == (100, 100, {}), trial.spec.key
        assert {tap.place for tap in flow.wire} == {"client", ATTACHED[trial.spec.uut][1]}
        for tap in flow.wire:
            assert tap.error == ""
            assert (tap.to_server_bytes, tap.to_client_bytes) == (flow.run_to_server_bytes, flow.run_to_client_bytes)
    assert {uut: facts["attachment"] for uut, facts in found.facts.items()} == {
        uut: fact for uut, (fact, _) in ATTACHED.items()
    }
    page = (results / "report.html").read_text()
    assert "user networking (passt)" in page
    assert processes_of_runs() == {}
    assert no_namespaces()


@pytest.mark.parametrize("victim", ["passt", "controller"])
def test_kills(results, start, victim):
    """The trial is repeated with another guest; a killed controller leaves nothing after `clean`."""
    profile = profile_of(results, {"kind": "http"}, "50/s")
    running = start("run", "netns-attachments", profile, "-o", results, "--uut", "virtio-passt", *TIMES)
    wait_for(serves)
    (passt,) = passts()
    assert Path(f"/proc/{passt}").stat().st_uid != 0, "it has given root up"
    os.kill(running.pid if victim == "controller" else passt, signal.SIGKILL)
    output, errors = running.communicate(timeout=200)
    if victim == "controller":
        assert netbench("clean").returncode == 0
    else:
        assert running.returncode == 0, errors + output
        (trial,) = ResultDirectory(results).results().trials
        assert trial.victim.flows[0].completed == 100
        reasons = [reason.detail for attempt in trial.thrown_away for reason in attempt]
        assert any("passt of s1 was killed by signal 9" in reason for reason in reasons), reasons
    assert processes_of_runs() == {}
    assert no_namespaces()
