"""The doctor on this machine: features are really tried, and nothing is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from pyroute2 import netns

from netbench.bpf import libbpf
from netbench.errors import ExitCode
from netbench.linux.requirements import PROBE_PREFIX
from netbench.testbed.doctor.diagnosis import diagnose, exit_code
from netbench.testbed.doctor.host_checks import Status
from netbench.testbed.environment import read_environment

pytestmark = pytest.mark.root

EMBEDDED = frozenset({"root", "netns", "veth", "packet", "bridge", "bridge-nf", "forwarding", "nftables", "numgen"})


def left_over():
    return [name for name in netns.listnetns() if name.startswith(PROBE_PREFIX)]


def python(program, *prefix):
    return subprocess.run([*prefix, sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_this_machine_can_run_what_these_tests_run():
    checks = diagnose(EMBEDDED)

    assert {check.name: check.found for check in checks if check.status is Status.MISSING} == {}
    assert {check.name for check in checks if check.status is Status.OK} >= EMBEDDED
    assert exit_code(checks) is ExitCode.DONE


def test_this_process_is_back_in_its_own_namespace_with_nothing_added():
    before = os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116 - pathlib resolves it

    diagnose()

    assert os.stat("/proc/self/ns/net").st_ino == before  # noqa: PTH116 - pathlib resolves it
    assert left_over() == []


def test_namespaces_links_and_rules_are_as_before_in_a_world_of_its_own():
    """No other process makes links or namespaces in there, so before and after must be equal."""
    program = f"""
import os, subprocess, sys
from netbench.testbed.doctor.diagnosis import diagnose
def world():
    commands = (["ip", "-d", "link"], ["nft", "list", "ruleset"], ["sysctl", "-a", "-r", "^net[.](ipv4|bridge)"])
    return sorted(os.listdir("/run/netns")), [subprocess.run(c, capture_output=True).stdout for c in commands]
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
os.mkdir("/run/netns")
before = world()
names = {{check.name for check in diagnose() if check.status == "ok"}}
assert set({sorted(EMBEDDED)}) <= names, names
assert world() == before
"""
    done = python(program, "unshare", "--net", "--mount")

    assert done.returncode == 0, done.stderr


DIE_WITHIN = """
import os, shutil
from pyroute2 import netns
from netbench.testbed.doctor.diagnosis import diagnose
def which(name, /, *, path=None):
    if name == "nft" and f"nb-probe-{{os.getpid()}}" in netns.listnetns():
        os.kill(os.getpid(), {signal})
    return shutil.which(name, path=path)
diagnose(which=which)
"""


def test_ctrl_c_in_the_middle_leaves_nothing():
    done = python(DIE_WITHIN.format(signal=int(signal.SIGINT)))

    assert "KeyboardInterrupt" in done.stderr
    assert left_over() == []


def test_what_a_killed_doctor_left_is_removed_by_the_next():
    done = python(DIE_WITHIN.format(signal=int(signal.SIGKILL)))
    assert done.returncode == -signal.SIGKILL
    assert len(left_over()) == 1

    diagnose(frozenset({"netns"}))

    assert left_over() == []


def test_the_namespace_of_another_running_doctor_is_left_alone():
    running = subprocess.Popen(["sleep", "60"])
    other = f"{PROBE_PREFIX}{running.pid}"
    netns.create(other)
    try:
        diagnose(frozenset({"netns"}))

        assert left_over() == [other]
    finally:
        running.kill()
        running.wait()
        netns.remove(other)


def test_root_without_the_right_to_make_namespaces():
    program = "from netbench.cli.doctor import run_doctor; raise SystemExit(run_doctor(as_json=True))"

    done = python(program, "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")

    assert done.returncode == ExitCode.MISSING, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["netns"]["status"] == "missing"
    assert "Operation not permitted" in checks["netns"]["found"]
    assert "--privileged" in checks["netns"]["remedy"]
    assert checks["veth"]["found"] == "not checked: needs netns"
    assert left_over() == []


def test_without_nft_the_features_behind_it_are_not_guessed():
    def which(name, /, *, path=None):
        return None if name == "nft" else shutil.which(name, path=path)

    checks = {check.name: check for check in diagnose(frozenset({"numgen", "veth"}), which=which)}

    assert checks["nft"].status is Status.MISSING
    assert checks["numgen"].found == "not checked: needs nft"
    assert checks["veth"].status is Status.OK


@pytest.fixture
def refused_by_nft(tmp_path):
    """A replacement of `which` that finds an nft whose requests the kernel rejects."""
    broken = tmp_path / "nft"
    broken.write_text('#!/bin/sh\necho "/dev/stdin:1:1-9: Error: Could not process rule: Not supported" >&2\nexit 1\n')
    broken.chmod(0o755)

    def which(name, /, *, path=None):
        return str(broken) if name == "nft" else shutil.which(name, path=path)

    return which


def test_a_kernel_that_refuses_a_rule_is_quoted(refused_by_nft):
    checks = {check.name: check for check in diagnose(frozenset({"nftables"}), which=refused_by_nft)}

    assert checks["nftables"].status is Status.MISSING
    assert checks["nftables"].found == "Could not process rule: Not supported"
    assert "CONFIG_NF_TABLES_BRIDGE" in checks["nftables"].remedy or "modprobe" in checks["nftables"].remedy


def test_an_optional_feature_is_missing_only_when_asked_for(refused_by_nft):
    asked = {check.name: check for check in diagnose(frozenset({"nft-ingress"}), which=refused_by_nft)}
    listed = {check.name: check for check in diagnose(which=refused_by_nft)}

    assert asked["nft-ingress"].status is Status.MISSING
    assert listed["nft-ingress"].status is Status.ABSENT


def environment_of(name, nics):
    namespaces = read_environment({name: nics})["namespaces"]
    assert isinstance(namespaces, dict)
    return namespaces[name]


def test_the_environment_of_another_namespace_is_its_own():
    name = f"nbt-environment-{os.getpid()}"
    netns.create(name)
    try:
        for words in (
            ["link", "add", "nbt-a", "mtu", "1400", "type", "veth", "peer", "name", "nbt-b"],
            ["netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1"],
            ["netns", "exec", name, "ethtool", "-K", "nbt-a", "gro", "on"],
            ["netns", "exec", name, "ethtool", "-K", "nbt-b", "gro", "off"],
        ):
            prefix = [] if words[0] == "netns" else ["-n", name]
            subprocess.run(["ip", *prefix, *words], check=True)

        there = environment_of(name, ["nbt-a", "nbt-b", "nbt-c"])

        assert there["sysctls"]["net.ipv4.ip_forward"] == "1"
        assert there["nics"]["nbt-a"]["mtu"] == 1400
        assert there["nics"]["nbt-a"]["kind"] == "veth"
        assert "rx-gro" in there["nics"]["nbt-a"]["offloads"]
        assert "rx-gro" not in there["nics"]["nbt-b"]["offloads"]
        assert there["nics"]["nbt-c"] is None
    finally:
        netns.remove(name)


def test_where_libbpf_is_missing_its_package_is_what_to_do(monkeypatch):
    monkeypatch.setattr(libbpf, "_LIBRARY", "libbpf-of-nowhere.so")
    libbpf.libbpf.cache_clear()
    try:
        (check,) = [check for check in diagnose(frozenset({"live-frames"})) if check.name == "live-frames"]
    finally:
        libbpf.libbpf.cache_clear()
    assert check.found.startswith("libbpf-of-nowhere.so cannot be loaded")
    assert "libbpf1;" in check.remedy, "and no other kernel"
    assert "CONFIG_BPF" not in check.remedy
