"""The manifest's data about the machine: from a made-up /proc and /sys, and from this one."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from netbench.testbed.environment import SYSCTLS, git_revision, read_environment

REPOSITORY = Path(__file__).parents[2]


def read(*nics, **options):
    return read_environment(*nics, **options)


def nothing(name):
    return None


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.fixture
def bare_metal(tmp_path):
    cpu = "sys/devices/system/cpu"
    return machine(
        tmp_path,
        {
            "proc/cmdline": "root=UUID=1234 isolcpus=2-3 nohz_full=2-3 nosmt quiet",
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu tsc",
            "proc/loadavg": "0.50 0.25 0.10 1/100 4242",
            "proc/meminfo": "MemTotal:       16384 kB\nMemFree:         1000 kB",
            "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1",
            "proc/stat": "cpu  100 1 50 800 5 0 4 40 30 2\ncpu0 1 1 1 1 1 1 1 1 1 1",
            "proc/sys/net/core/rmem_max": "212992",
            "proc/sys/net/ipv4/ip_forward": "1",
            f"{cpu}/online": "0-3",
            f"{cpu}/smt/active": "0",
            f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave",
            f"{cpu}/cpu1/cpufreq/scaling_governor": "performance",
            f"{cpu}/intel_pstate/no_turbo": "0",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        },
    )


def test_what_is_there_is_recorded(bare_metal):
    environment = read(root=bare_metal, which=nothing)

    assert environment["cpu"] == {
        "model": "Fast CPU @ 3 GHz",
        "online": "0-3",
        "online_count": 4,
        "allowed": "0-1",
        "limit": None,
        "smt": False,
        "governor": "performance,powersave",
        "turbo": True,
        "idle_driver": None,
        "clocksource": "tsc",
    }
    assert environment["memory_bytes"] == 16384 * 1024
    assert environment["activity"] == {
        "load_average": [0.5, 0.25, 0.1],
        # guest and guest_nice (30 and 2) are part of user and nice already
        "cpu_ticks": {"total": 1000, "idle": 800, "steal": 40},
        "cpu_use": None,
    }
    assert environment["virtualisation"] == {"machine": "none", "container": None}


@pytest.mark.parametrize(("load", "idle", "use"), [(3.0, 25, 0.75), (0.5, 25, None), (3.0, 100, 0.0)])
def test_the_cpus_are_watched_where_the_load_is_high(bare_metal, monkeypatch, load, idle, use):
    def sleep(_):
        stat = bare_metal / "proc/stat"
        user, nice, system, was_idle, *rest = map(int, stat.read_text().splitlines()[0].split()[1:])
        stat.write_text(" ".join(map(str, ["cpu", user + 100 - idle, nice, system, was_idle + idle, *rest])))

    (bare_metal / "proc/loadavg").write_text(f"{load} 1.0 1.0 1/100 1234\n")
    monkeypatch.setattr("netbench.testbed.environment.time.sleep", sleep)
    assert read(root=bare_metal, which=nothing)["activity"]["cpu_use"] == use


def test_only_settings_that_matter_are_recorded_and_those_that_do_not_exist_are_null(bare_metal):
    environment = read(root=bare_metal, which=nothing)
    found = {name: value for name, value in environment["kernel"]["parameters"].items() if value is not None}
    assert found == {"isolcpus": "2-3", "nohz_full": "2-3", "nosmt": ""}
    assert "1234" not in json.dumps(environment)
    assert set(environment["sysctls"]) == set(SYSCTLS)
    found = {name: value for name, value in environment["sysctls"].items() if value is not None}
    assert found == {"net.core.rmem_max": "212992", "net.ipv4.ip_forward": "1"}


def test_a_machine_that_reports_nothing_is_all_null(tmp_path):
    environment = read(root=tmp_path, which=nothing)
    cpu = environment["cpu"]
    assert cpu.pop("online_count") == os.cpu_count()
    assert len(cpu) == 9
    assert environment["activity"].keys() == {"load_average", "cpu_ticks", "cpu_use"}
    output = [cpu, environment["activity"], environment["virtualisation"], environment["tools"]]
    assert {value for section in output for value in section.values()} == {environment["memory_bytes"]} == {None}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/cpuinfo": "flags : fpu hypervisor", "sys/class/dmi/id/sys_vendor": "QEMU"}, "QEMU"),
        ({"proc/cpuinfo": "flags : fpu hypervisor"}, "unknown"),
        ({"proc/cpuinfo": "flags : fpu"}, "none"),
        ({"sys/hypervisor/type": "xen", "proc/cpuinfo": "flags : fpu"}, "xen"),
        ({"proc/cpuinfo": "Features : fp asimd"}, None),
    ],
)
def test_virtualisation_without_systemd(tmp_path, files, expected):
    """Turbo is read without intel_pstate, too."""
    boost = {"sys/devices/system/cpu/cpufreq/boost": "0"}
    environment = read(root=machine(tmp_path, files | boost), which=nothing)
    assert environment["virtualisation"]["machine"] == expected
    assert environment["cpu"]["turbo"] is False


def fake_tool(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_tool_versions_are_the_first_line_of_what_they_print(tmp_path):
    fake_tool(tmp_path, "ip", 'test "$1" = -V && printf "ip 6.1\\nmore\\n"')
    fake_tool(tmp_path, "tcpdump", 'test "$1" = --version && echo "tcpdump 4.99" >&2')
    fake_tool(tmp_path, "nft", "exit 1")

    found = read(root=tmp_path, which=lambda name: str(tmp_path / name) if (tmp_path / name).exists() else None)
    others = dict.fromkeys(("nft", "ethtool", "iperf3", "lxc-start", "nginx", "podman", "sockperf"))
    assert found["tools"] == {"tcpdump": "tcpdump 4.99", "ip": "ip 6.1", **others}


def test_this_machine_fits_into_json_and_does_not_tell_its_name():
    environment = read({None: ["lo", "no-such-nic"], "no-such-netns": ["eth0"]})

    assert json.loads(json.dumps(environment)) == environment
    assert environment["kernel"]["release"] == os.uname().release
    assert environment["activity"]["cpu_ticks"]["total"] > 0
    assert environment["nics"]["lo"]["mtu"] > 0
    assert "rx-gro" in environment["nics"]["lo"]["offloads"]
    assert environment["nics"]["no-such-nic"] is None
    assert environment["namespaces"]["no-such-netns"]["nics"] == {"eth0": None}
    assert set(environment["namespaces"]["no-such-netns"]["sysctls"].values()) == {None}
    values = [leaf for leaf in leaves(environment) if isinstance(leaf, str)]
    assert socket.gethostname() not in values


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "checkout" / "netbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(package, "init", "-q")
    git(package, "add", ".")
    git(package, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return package


def git(directory, *words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(directory), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_git_revision_is_the_commit_and_reports_that_files_are_modified(checkout, monkeypatch):
    """Untracked files are no modifications, a tag does not replace the commit, nor a hook the checkout."""
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "results.csv").write_text("")
    git(checkout, "-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "release", "v1")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    os.utime(checkout / "__init__.py", (1, 1))  # git reads it anew, and may record in its index that it is unchanged
    index = (checkout / ".git/index").stat()
    assert git_revision(checkout) == commit
    assert (checkout / ".git/index").stat().st_ino == index.st_ino, "netbench writes nothing there"
    (checkout / "__init__.py").write_text("changed = True")
    assert git_revision(checkout) == f"{commit}-dirty"


def test_no_checkout_and_no_git_mean_no_revision(tmp_path, checkout):
    installed = checkout / ".venv" / "netbench"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert git_revision(installed) is None, "a package inside a foreign checkout"
    assert git_revision(tmp_path) is None
    assert git_revision(REPOSITORY / "netbench", which=nothing) is None
