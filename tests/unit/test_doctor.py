"""What the doctor says about hosts that lack things; the real kernel is tried in tests/netns."""

import io
import json
import platform

import pytest
from rich.console import Console

from netbench.cli.doctor import doctor_json, doctor_text
from netbench.errors import ExitCode
from netbench.testbed.doctor.checks import Check, Status, exit_code
from netbench.testbed.doctor.diagnosis import diagnose
from netbench.testbed.doctor.software import distribution_ids, install_command
from netbench.testbed.requirements import known_needs

USER = 65534


def which(*there, elsewhere=()):
    """Finds the tools `there` in PATH, and those `elsewhere` only in the system's directories."""

    def find(name, /, *, path=None):
        if name in there:
            return f"/usr/bin/{name}"
        return f"/usr/sbin/{name}" if path is not None and name in elsewhere else None

    return find


TOOLS = ("ip", "tcpdump", "nft", "ethtool", "taskset", "setpriv")


def by_name(checks):
    return {check.name: check for check in checks}


def check(status, name="thing", remedy=""):
    return Check(name, status, "seen", remedy, "something")


def test_a_user_is_told_to_become_root_and_nothing_is_tried():
    checks = by_name(diagnose(which=which(*TOOLS), euid=USER))

    assert checks["root"].status is Status.MISSING
    assert checks["root"].remedy == "sudo netbench doctor"
    for name in ("netns", "veth", "packet", "bridge", "nftables", "numgen"):
        assert checks[name].status is Status.WARNING
        assert checks[name].found == "not checked: needs root"
        assert checks[name].remedy == "sudo netbench doctor"
    assert exit_code(checks.values()) is ExitCode.MISSING


def test_sudo_starts_the_netbench_that_was_run(tmp_path, monkeypatch):
    command = tmp_path / "netbench"
    command.touch()
    monkeypatch.setattr("sys.argv", [str(command), "doctor"])

    assert by_name(diagnose(frozenset(), which=which(), euid=USER))["root"].remedy == f"sudo {command} doctor"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_is_not_installed(tool):
    others = [name for name in TOOLS if name != tool]

    found = by_name(diagnose(frozenset({tool, "ip"}), which=which(*others), euid=USER))[tool]

    assert found.status is Status.MISSING
    assert found.found == "not installed"
    assert "install" in found.remedy


def test_a_tool_outside_the_path_of_root_needs_no_installing():
    found = by_name(diagnose(frozenset({"nft"}), which=which(elsewhere=["nft"]), euid=0))["nft"]

    assert (found.status, found.remedy) == (Status.MISSING, "export PATH=$PATH:/usr/sbin")


def test_a_tool_outside_the_path_of_a_user_is_where_sudo_finds_it():
    found = by_name(diagnose(frozenset({"nft"}), which=which(elsewhere=["nft"]), euid=USER))["nft"]

    assert found.status is Status.OK


def test_only_what_is_needed_is_looked_at_with_what_it_rests_on():
    names = set(by_name(diagnose(frozenset({"numgen"}), which=which(*TOOLS), euid=USER)))

    assert {"root", "nft", "netns", "nftables", "numgen"} <= names
    assert not names & {"tcpdump", "ethtool", "veth", "bridge", "pktgen", "kvm"}
    assert not any(name.startswith("port:") for name in names)


def test_what_nobody_here_knows_is_a_command_that_a_plug_in_asks_for():
    needs = frozenset({"lxc-start", "xl", "veth", "image:own", "port:eth0"})
    found = by_name(diagnose(needs, which=which("xl"), euid=USER))
    assert (found["xl"].status, found["lxc-start"].status) == (Status.OK, Status.MISSING)
    assert "install lxc-start" in found["lxc-start"].remedy


def test_what_topologies_may_need():
    assert {"root", "netns", "veth", "bridge", "nftables", "numgen", *TOOLS} <= known_needs()


def test_a_port_in_use_is_missing_with_the_reason():
    found = by_name(diagnose(frozenset({"port:lo", "port:no-such"}), which=which(), euid=USER))

    assert found["port:lo"].status is Status.MISSING
    assert "is the loopback interface" in found["port:lo"].found
    assert found["port:no-such"].status is Status.MISSING
    assert "no interface of that name" in found["port:no-such"].found


@pytest.mark.parametrize(
    ("distribution", "package", "command"),
    [
        (["debian"], "tcpdump", "apt-get install tcpdump"),
        (["debian"], "iproute2", "apt-get install iproute2"),
        (["ubuntu", "debian"], "nftables", "apt-get install nftables"),
        (["fedora"], "iproute2", "dnf install iproute"),
        (["rocky", "rhel", "centos", "fedora"], "ethtool", "dnf install ethtool"),
        (["opensuse-leap", "suse", "opensuse"], "iproute2", "zypper install iproute2"),
        (["arch"], "util-linux", "pacman -S util-linux"),
        ([], "tcpdump", "install tcpdump with the package manager of this system"),
    ],
)
def test_the_command_that_installs_a_package(distribution, package, command):
    assert install_command(package, distribution) == command


@pytest.mark.skipif("debian" not in distribution_ids(), reason="names of Debian's packages")
def test_debian_packages():
    checks = by_name(diagnose(frozenset(TOOLS), which=which(), euid=USER))

    assert {tool: checks[tool].remedy for tool in TOOLS} == {
        "ip": "apt-get install iproute2",
        "tcpdump": "apt-get install tcpdump",
        "nft": "apt-get install nftables",
        "ethtool": "apt-get install ethtool",
        "taskset": "apt-get install util-linux",
        "setpriv": "apt-get install util-linux",
    }


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], ExitCode.DONE),
        ([Status.OK, Status.WARNING, Status.ABSENT, Status.IN_USE], ExitCode.DONE),
        ([Status.OK, Status.MISSING], ExitCode.MISSING),
    ],
)
def test_only_what_is_missing_makes_it_fail(statuses, code):
    assert exit_code([check(status) for status in statuses]) is code


def test_json_holds_every_check():
    checks = [check(Status.OK, "a"), check(Status.MISSING, "b", "do b")]

    assert json.loads(doctor_json(checks)) == {
        "ok": False,
        "checks": [
            {"name": "a", "status": "ok", "found": "seen", "remedy": "", "needed_for": "something"},
            {"name": "b", "status": "missing", "found": "seen", "remedy": "do b", "needed_for": "something"},
        ],
    }


def printed(checks):
    terminal = io.StringIO()
    Console(width=40, file=terminal).print(doctor_text(checks), soft_wrap=True, end="")
    return terminal.getvalue()


def test_text_keeps_commands_in_one_piece_on_a_narrow_terminal():
    command = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"

    assert f"do:  {command}\n" in printed([check(Status.WARNING, "governor", command)])


def test_text_says_a_remedy_once_and_sums_up():
    text = printed(
        [
            check(Status.MISSING, "root", "sudo x"),
            check(Status.WARNING, "veth", "sudo x"),
            check(Status.MISSING, "nft", "apt y"),
        ]
    )

    assert text.count("sudo x") == 1
    assert text.endswith("Missing: root, nft.\n")


def test_text_says_that_nothing_is_missing():
    assert printed([check(Status.OK), check(Status.ABSENT)]).endswith("Nothing that is needed is missing.\n")


def test_text_does_not_take_brackets_for_markup():
    seen = Check("x", Status.WARNING, "[red]brackets[/red]", "", "")

    assert "[red]brackets[/red]" in printed([seen])


def test_the_python_that_runs_is_named():
    assert by_name(diagnose(frozenset(), which=which(), euid=USER))["python"].found.startswith(
        platform.python_version()
    )
