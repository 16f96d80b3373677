"""What the doctor reports for hosts that lack things, and for guests; tests/netns tries the real kernel."""

import io
import json
import platform
import sys

import pytest
from rich.console import Console

from netbench.cli.doctor import doctor_json, doctor_text
from netbench.errors import ExitCode, MissingError, TestbedError
from netbench.generators.trex import trex_package
from netbench.images.library import file_digest
from netbench.testbed import requirements
from netbench.testbed.doctor.diagnosis import check_facilities, diagnose, exit_code
from netbench.testbed.doctor.host_checks import HostCheck, Status, distribution_ids, install_command, unattended_install
from netbench.testbed.requirements import known_needs
from netbench.vmm.container import cgroups
from netbench.vmm.libvirt import domain
from netbench.vmm.qemu import acceleration, qemu
from netbench.vmm.qemu.acceleration import Acceleration
from netbench.vmm.qemu.command import qemu_program

USER = 65534
PACKAGES = {
    "ip": "iproute2",
    "tcpdump": "tcpdump",
    "nft": "nftables",
    "ethtool": "ethtool",
    "taskset": "util-linux",
    "setpriv": "util-linux",
}
FEATURES = {"netns", "veth", "packet", "bridge", "nftables", "numgen"}


@pytest.fixture(autouse=True)
def tried(monkeypatch, tmp_path):
    """The result of trying KVM, in a list; a test may put an error there. No image is built, no vhost exists."""
    found: list[Acceleration | Exception] = [Acceleration("kvm")]

    def choose(wanted, host, directory, image):
        assert wanted == "auto"
        assert directory.is_dir()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    monkeypatch.setattr(acceleration, "choose", choose)
    monkeypatch.setattr(acceleration, "KVM_DEVICE", tmp_path)  # exists, so that it is tried
    monkeypatch.setattr(qemu, "VHOST_DEVICE", tmp_path / "vhost-net")
    monkeypatch.setenv("NETBENCH_CACHE", str(tmp_path / "cache"))
    return found


def which(*there, elsewhere=()):
    """Finds the tools `there` in PATH, and those `elsewhere` only in the system's directories."""

    def find(name, /, *, path=None):
        if name in there:
            return f"/usr/bin/{name}"
        return f"/usr/sbin/{name}" if path is not None and name in elsewhere else None

    return find


def diagnosed(needs, there=PACKAGES, euid=USER, elsewhere=()):
    """Return the check of each need, by name, on a host with these tools."""
    wanted = None if needs is None else frozenset(needs)
    return {check.name: check for check in diagnose(wanted, which=which(*there, elsewhere=elsewhere), euid=euid)}


def guests(needs, euid=0):
    return {check.name: check for check in check_facilities(needs, euid)}


def check(status, name="thing", remedy=""):
    return HostCheck(name, status, "seen", remedy, "something")


def test_a_user_is_reported_to_become_root_and_nothing_is_tried(tmp_path, monkeypatch):
    checks = diagnosed(None)
    assert (checks["root"].status, checks["root"].remedy) == (Status.MISSING, "sudo netbench doctor")
    for name in FEATURES:
        assert checks[name] == HostCheck(
            name, Status.WARNING, "not checked: needs root", "sudo netbench doctor", checks[name].needed_for
        )
    assert exit_code(checks.values()) is ExitCode.MISSING
    assert checks["python"].found.startswith(platform.python_version())
    command = tmp_path / "netbench"
    command.touch()
    monkeypatch.setattr("sys.argv", [str(command), "doctor"])
    assert diagnosed(())["root"].remedy == f"sudo {command} doctor", "the netbench that was run"


@pytest.mark.parametrize("tool", [*PACKAGES, qemu_program(), "ssh"])
def test_a_tool_that_is_not_installed(tool):
    found = diagnosed({tool}, there=())[tool]
    assert (found.status, found.found) == (Status.MISSING, "not installed")
    assert "install" in found.remedy
    if "debian" in distribution_ids() and tool in PACKAGES:
        assert found.remedy == f"apt-get install {PACKAGES[tool]}"
    assert diagnosed({tool}, there=[tool])[tool].status is Status.OK
    needed = tool in PACKAGES
    assert diagnosed(None, there=())[tool].status is (Status.MISSING if needed else Status.ABSENT)
    assert tool not in diagnosed(())


@pytest.mark.parametrize(
    ("euid", "status", "remedy"), [(0, Status.MISSING, "export PATH=$PATH:/usr/sbin"), (USER, Status.OK, "")]
)
def test_a_tool_outside_the_path_needs_no_installing(euid, status, remedy):
    """In a user's path it counts as found, because sudo finds it."""
    found = diagnosed({"nft"}, there=(), euid=euid, elsewhere=["nft"])["nft"]
    assert (found.status, found.remedy) == (status, remedy)


def test_only_what_is_needed_is_looked_at_with_what_it_rests_on():
    names = set(diagnosed({"numgen"}))
    assert {"root", "nft", "netns", "nftables", "numgen"} <= names
    assert not names & {"tcpdump", "ethtool", "veth", "bridge", "pktgen", "kvm", "image:micro", "vhost"}
    assert not any(name.startswith("port:") for name in names)
    assert {"image:new", "kvm"} <= set(diagnosed({"image:new", "kvm"}))


def test_what_no_one_declares_is_a_command_that_a_plug_in_asks_for():
    found = diagnosed({"jexec", "vmrun", "veth", "image:own", "port:eth0"}, there=["vmrun"])
    assert (found["vmrun"].status, found["jexec"].status) == (Status.OK, Status.MISSING)
    assert "install jexec" in found["jexec"].remedy


def test_what_topologies_may_need():
    assert {"root", *FEATURES, *PACKAGES, qemu_program(), "ssh", "stress-ng"} <= known_needs()


def test_a_port_in_use_is_missing_with_the_reason():
    found = diagnosed({"port:lo", "port:no-such"})
    assert (found["port:lo"].status, found["port:no-such"].status) == (Status.MISSING, Status.MISSING)
    assert "is the loopback interface" in found["port:lo"].found
    assert "no interface of that name" in found["port:no-such"].found


@pytest.mark.parametrize(
    ("distribution", "package", "command"),
    [
        (["debian"], "iproute2", "apt-get install iproute2"),
        (["ubuntu", "debian"], "nftables", "apt-get install nftables"),
        (["fedora"], "iproute2", "install iproute2 (as Debian names it) with the package manager of this system"),
        ([], "tcpdump", "install tcpdump (as Debian names it) with the package manager of this system"),
    ],
)
def test_the_command_that_installs_a_package(distribution, package, command):
    assert install_command(package, distribution) == command


@pytest.mark.parametrize(
    ("distribution", "command"),
    [
        (["debian"], "DEBIAN_FRONTEND=noninteractive apt-get install -y iproute2 python3-numpy"),
        (["ubuntu", "debian"], "DEBIAN_FRONTEND=noninteractive apt-get install -y iproute2 python3-numpy"),
        (["fedora"], ""),
    ],
)
def test_the_command_that_installs_packages_where_no_one_can_answer(distribution, command):
    assert unattended_install(["iproute2", "python3-numpy"], distribution) == command
    assert unattended_install([], distribution) == ""


def test_json_holds_every_check():
    assert json.loads(doctor_json([check(Status.OK, "a"), check(Status.MISSING, "b", "do b")])) == {
        "ok": False,
        "checks": [
            {"name": "a", "status": "ok", "found": "seen", "remedy": "", "needed_for": "something"},
            {"name": "b", "status": "missing", "found": "seen", "remedy": "do b", "needed_for": "something"},
        ],
    }


def printed(*checks):
    terminal = io.StringIO()
    Console(width=40, file=terminal).print(doctor_text(checks), soft_wrap=True, end="")
    return terminal.getvalue()


def test_text_reports_each_remedy_once_in_one_piece_and_sums_up():
    long = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    text = printed(
        check(Status.MISSING, "root", long), check(Status.WARNING, "veth", long), check(Status.MISSING, "nft", "apt y")
    )
    assert text.count(f"do:  {long}\n") == 1
    assert text.endswith("Missing: root, nft.\n")
    assert "[red]brackets[/red]" in printed(HostCheck("x", Status.WARNING, "[red]brackets[/red]", "", ""))


def test_on_a_terminal_what_was_found_is_broken_between_words_and_what_to_do_is_not():
    found, command = "a port that carries something else " * 4, "apt-get install " + "package " * 20
    text = doctor_text(
        [HostCheck("port:eth0", Status.WARNING, found.strip(), command.strip(), found.strip())], 80
    ).plain
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 80] == [line for line in lines if "do:  apt-get" in line]
    assert " ".join(text.split()).count(found.strip()) == 2


def test_only_what_is_missing_makes_it_fail():
    fine = [check(status) for status in Status if status is not Status.MISSING]
    assert exit_code(fine) is ExitCode.DONE
    assert printed(*fine).endswith("Nothing that is needed is missing.\n")
    assert exit_code([*fine, check(Status.MISSING)]) is ExitCode.MISSING


@pytest.mark.parametrize(
    ("name", "remedy"), [("micro", "netbench image build"), ("new", "netbench image build --name new")]
)
def test_an_image_that_is_needed_and_not_built(name, remedy):
    check = guests({f"image:{name}"})[f"image:{name}"]
    assert (check.status, check.remedy) == (Status.MISSING, remedy)
    assert f"the guest image '{name}' is not built" in check.found


def test_an_image_that_is_built(tmp_path):
    directory = tmp_path / "cache/images/micro"
    directory.mkdir(parents=True)
    files = {}
    for file in ("vmlinux", "vmlinuz", "initrd"):
        (directory / file).write_text(file)
        files[file] = {"size": len(file), "sha256": file_digest(directory / file)}
    manifest = {"kernel": "vmlinux", "kernel_release": "6.1.0-31", "architecture": "x86_64", "digest": "ab" * 32}
    (directory / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
    check = guests({"image:micro"})["image:micro"]
    assert (check.status, check.remedy) == (Status.OK, "")
    assert check.found == f"kernel 6.1.0-31, digest abababababab, in {directory}"
    (directory / "initrd").write_text("something else")
    check = guests({"image:micro"})["image:micro"]
    assert (check.status, check.remedy) == (Status.MISSING, "netbench image build")
    assert "initrd has changed" in check.found


def test_without_a_topology_nothing_of_guests_is_missing(tried, monkeypatch, tmp_path):
    def none(host):
        raise MissingError("this host has no cpu controller")

    monkeypatch.setattr(requirements, "find_controller", none)
    monkeypatch.setattr(cgroups, "find_memory_controller", none)
    for name in ("libvirt", "pyVmomi"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(domain, "_LIBRARIES", tmp_path)
    monkeypatch.setattr(trex_package, "PACKAGE", "no-such-package")
    tried[0] = Acceleration("tcg", "/dev/kvm is there, but no guest boots under it: QEMU was killed by signal 6")
    of_libvirt, of_openvz = ("libvirt-lxc", "libvirt-python", "libvirtd"), ("vzctl", "prlctl")
    of_virtualbox, of_trex = ("virtualbox", "isolinux"), ("trex-client",)
    groups = ("cgroup-cpu", "cgroup-memory")
    names = ("image:micro", "kvm", "vhost", *groups, *of_libvirt, *of_openvz, "pyvmomi", *of_virtualbox, *of_trex, "xl")
    assert {name: check.status for name, check in guests(None).items()} == dict.fromkeys(names, Status.ABSENT)
    needed = guests(set(names))
    assert {name: check.status for name, check in needed.items()} == dict.fromkeys(names, Status.MISSING)
    assert needed["kvm"].found == tried[0].why
    assert "hardware virtualisation" in needed["kvm"].remedy
    assert needed["vhost"].remedy == "modprobe vhost_net"
    assert (needed["cgroup-cpu"].found, needed["cgroup-cpu"].remedy) == (
        "this host has no cpu controller",
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    )


def test_what_guests_need_is_there(tmp_path):
    (tmp_path / "vhost-net").touch()
    found = guests({"kvm", "vhost"})
    assert {(check.status, check.remedy) for check in found.values()} == {(Status.OK, "")}
    assert found["kvm"].found == "a guest boots under it"


def test_only_what_guests_need_is_looked_at(tried):
    tried[0] = AssertionError("KVM was tried")
    assert guests({"netns", "tun", qemu_program()}) == {}
    assert list(guests({"image:b", "vhost", "image:a"})) == ["image:a", "image:b", "vhost"]
    assert guests({"kvm"}, USER)["kvm"].status is Status.WARNING, "users may not try"


@pytest.mark.parametrize("error", [MissingError("the command `qemu` is not on this host"), TestbedError("no space")])
def test_kvm_that_cannot_be_tried(tried, error):
    tried[0] = error
    check = guests({"kvm"})["kvm"]
    assert (check.status, check.found) == (Status.WARNING, f"not tried: {error}")
