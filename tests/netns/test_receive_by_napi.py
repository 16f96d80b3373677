"""Links that receive like NICs: the settings they need, the counts of the source, and the cleanup."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from netbench.hosts.local import LocalHost
from netbench.linux.changes.receive import threads_of
from tests.commands import netbench, settings, start
from tests.netns.watching import stored, wait_for

pytestmark = pytest.mark.root

SHORT = settings(frame_sizes=64, loads="5000fps", duration="200ms", drain_limit="100ms")
CHOSEN = ("quick", "--uut", "bridge", *SHORT)


def running() -> dict[int, str]:
    return threads_of(LocalHost("here", "test"), "nb-in1")


def features() -> dict[str, str]:
    text = subprocess.run(
        ["ip", "netns", "exec", "nb-netns-uut", "ethtool", "-k", "nb-in1"], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.strip().split(": ") for line in text.splitlines() if ": " in line)


def test_a_uut_with_cpus_of_its_own_has_the_thread_there_until_it_ends(tmp_path):
    there = settings(topology__uuts__0__host_cpus="[0]")  # of the bridge; the last CPU is the usual one
    chosen = ("quick", "--uut", "bridge", "--uut", "route", *SHORT, *settings(repetitions=5, order="sequential"))
    campaign = start("run", "netns", *chosen, "-o", tmp_path / "o", *there)
    try:
        wait_for(lambda: stored(tmp_path / "o") >= 1)
        link = json.loads((tmp_path / "o" / "manifest.json").read_text())["tester"][0]["links"]["s1"]
        (number,) = (number for number, name in running().items() if name == link["thread"])
        assert (link["cpus_of_uuts"], os.sched_getaffinity(number)) == ({"bridge": [0]}, {0})
        wait_for(lambda: stored(tmp_path / "o") >= 6)
        assert os.sched_getaffinity(number) == set(link["cpus"]) != {0}
    finally:
        campaign.send_signal(signal.SIGINT)
        campaign.communicate()


@pytest.mark.parametrize(
    ("receive", "policy", "sink", "found"),
    [
        ("napi", "other", "bpf", os.SCHED_OTHER),
        ("napi", "other", "tcpdump", os.SCHED_RR if len(os.sched_getaffinity(0)) < 3 else os.SCHED_OTHER),
        ("napi", "fifo", "bpf", os.SCHED_FIFO),
        ("softirq", "other", "bpf", None),
        ("inline", "other", "bpf", None),
    ],
)
def test_a_thread_receives_in_the_policy_of_its_uut_and_nothing_of_it_is_left(tmp_path, receive, policy, sink, found):
    own = settings(topology__links__0__receive=receive, topology__uuts__0__napi_policy=policy, sink=sink)
    campaign = start("run", "netns", *CHOSEN, "-o", tmp_path / "o", *settings(repetitions=50), *own)
    try:
        wait_for(lambda: stored(tmp_path / "o") >= 1)
        now, threads = features(), running()
        assert now["generic-receive-offload"] == ("off" if receive == "inline" else "on")
        assert {now["rx-gro-list"], now["rx-udp-gro-forwarding"]} == {"off"}
        assert len(threads) == (receive == "napi")
        link = json.loads((tmp_path / "o" / "manifest.json").read_text())["tester"][0]["links"]["s1"]
        assert (link["receive"], link["remark"]) == (receive, "")
        for number, name in threads.items():
            assert link["thread"] == name
            assert os.sched_getscheduler(number) == found
            assert list(os.sched_getaffinity(number)) == (link["cpus"] or sorted(os.sched_getaffinity(0)))
    finally:
        campaign.send_signal(signal.SIGKILL)
        campaign.communicate()
    assert netbench("clean").returncode == 0
    wait_for(lambda: not running(), timeout_s=5)  # the kernel has stopped its thread, which may not have run yet
    assert not list(Path("/run/netns").glob("nb-netns-*"))
