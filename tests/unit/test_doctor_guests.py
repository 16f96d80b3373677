"""What the doctor says of guests: their image, KVM that is tried and not believed in, vhost, QEMU and ssh."""

import json

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.images.library import file_digest
from netbench.testbed import requirements
from netbench.testbed.doctor.checks import Status
from netbench.testbed.doctor.diagnosis import check_facilities, diagnose
from netbench.vmm.acceleration import Acceleration
from netbench.vmm.qemu_command import qemu_program
from tests.unit.test_doctor import TOOLS, USER, by_name, which


@pytest.fixture(autouse=True)
def tried(monkeypatch, tmp_path):
    """What trying KVM finds; a list, to which a test may give an error instead. No image is built, no vhost there."""
    found: list[Acceleration | Exception] = [Acceleration("kvm")]

    def choose(wanted, host, directory, image):
        assert wanted == "auto"
        assert directory.is_dir()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    monkeypatch.setattr(requirements, "choose", choose)
    monkeypatch.setattr(requirements, "VHOST_DEVICE", tmp_path / "vhost-net")
    monkeypatch.setenv("NETBENCH_CACHE", str(tmp_path / "cache"))
    return found


def checks(needs, euid=0):
    return by_name(check_facilities(needs, euid))


def build(cache, name="micro"):
    """An image as far as the library looks."""
    directory = cache / "images" / name
    directory.mkdir(parents=True)
    files = {}
    for file in ("vmlinux", "vmlinuz", "initrd"):
        (directory / file).write_text(file)
        files[file] = {"size": len(file), "sha256": file_digest(directory / file)}
    manifest = {"kernel": "vmlinux", "kernel_release": "6.1.0-31", "architecture": "x86_64", "digest": "ab" * 32}
    (directory / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
    return directory


@pytest.mark.parametrize(
    ("name", "remedy"), [("micro", "netbench image build"), ("new", "netbench image build --name new")]
)
def test_an_image_that_is_needed_and_not_built(name, remedy):
    check = checks({f"image:{name}"})[f"image:{name}"]
    assert (check.status, check.remedy) == (Status.MISSING, remedy)
    assert f"the guest image '{name}' is not built" in check.found


def test_an_image_that_is_built(tmp_path):
    directory = build(tmp_path / "cache")
    check = checks({"image:micro"})["image:micro"]
    assert (check.status, check.remedy) == (Status.OK, "")
    assert check.found == f"kernel 6.1.0-31, digest abababababab, in {directory}"
    (directory / "initrd").write_text("something else")
    check = checks({"image:micro"})["image:micro"]
    assert (check.status, check.remedy) == (Status.MISSING, "netbench image build")
    assert "initrd is not what was built" in check.found


def test_without_a_topology_nothing_of_it_is_missing(tried):
    tried[0] = Acceleration("tcg", "this host has no /dev/kvm")
    found = checks(None)
    assert found.pop("cgroup-cpu").status is not Status.MISSING, "whatever this machine has"
    assert {name: check.status for name, check in found.items()} == {
        "image:micro": Status.ABSENT,
        "kvm": Status.ABSENT,
        "vhost": Status.ABSENT,
    }


def test_only_what_is_needed_is_looked_at(tried):
    tried[0] = AssertionError("KVM was tried")
    assert checks({"netns", "tun", qemu_program()}) == {}
    assert list(checks({"image:b", "vhost", "image:a"})) == ["image:a", "image:b", "vhost"]


def test_kvm_under_which_a_guest_boots():
    assert (checks({"kvm"})["kvm"].status, checks({"kvm"})["kvm"].found) == (Status.OK, "a guest boots under it")


def test_kvm_under_which_none_does(tried):
    """Though its device is there."""
    tried[0] = Acceleration("tcg", "/dev/kvm is there, but no guest boots under it: QEMU was killed by signal 6")
    check = checks({"kvm"})["kvm"]
    assert (check.status, check.found) == (Status.MISSING, tried[0].why)
    assert "hardware virtualisation" in check.remedy
    assert checks(None)["kvm"].status is Status.ABSENT


@pytest.mark.parametrize("error", [MissingError("the command `qemu` is not on this host"), TestbedError("no space")])
def test_kvm_that_cannot_be_tried(tried, error):
    tried[0] = error
    check = checks({"kvm"})["kvm"]
    assert (check.status, check.found) == (Status.WARNING, f"not tried: {error}")


def test_kvm_is_not_tried_by_users(tried):
    tried[0] = AssertionError("KVM was tried")
    assert checks({"kvm"}, USER)["kvm"].status is Status.WARNING


@pytest.mark.parametrize("there", [True, False])
def test_vhost(tmp_path, there):
    if there:
        (tmp_path / "vhost-net").touch()
    check = checks({"vhost"})["vhost"]
    assert check.status is (Status.OK if there else Status.MISSING)
    assert check.remedy == ("" if there else "modprobe vhost_net")


@pytest.mark.parametrize("tool", [qemu_program(), "ssh"])
def test_tools_of_guests_are_missing_only_where_they_are_needed(tool):
    everything = by_name(diagnose(None, which=which(*TOOLS), euid=USER))
    assert (everything[tool].status, everything[tool].found) == (Status.ABSENT, "not installed")
    assert "install" in everything[tool].remedy
    needed = by_name(diagnose(frozenset({tool}), which=which(*TOOLS), euid=USER))
    assert needed[tool].status is Status.MISSING
    there = by_name(diagnose(frozenset({tool}), which=which(*TOOLS, tool), euid=USER))
    assert there[tool].status is Status.OK
    assert tool not in by_name(diagnose(frozenset({"netns"}), which=which(*TOOLS), euid=USER))


def test_the_doctor_looks_at_guests_where_a_topology_has_them():
    names = set(by_name(diagnose(frozenset({"image:new", "kvm"}), which=which(*TOOLS), euid=USER)))
    assert {"image:new", "kvm"} <= names
    assert not names & {"image:micro", "vhost"}


def test_shares_of_cpu_time_need_a_controller(monkeypatch):
    def none(host):
        raise MissingError("this host has no cpu controller")

    monkeypatch.setattr(requirements, "find_controller", none)
    (check,) = checks({"cgroup-cpu"}).values()
    assert (check.status, check.found, check.remedy) == (
        Status.MISSING,
        "this host has no cpu controller",
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    )
    assert checks(None)["cgroup-cpu"].status is Status.ABSENT
