"""How real each kind of UUT is on this machine, judged by its checks, and how that is printed."""

from dataclasses import replace

import pytest

from netbench.cli import listing
from netbench.config.plugins import UUTS, plugins
from netbench.errors import MissingError
from netbench.hosts.local import LocalHost
from netbench.images.library import Image
from netbench.linux.requirements import Command, Facility
from netbench.model.virtualisation import Virtualisation
from netbench.testbed.doctor import diagnosis
from netbench.testbed.doctor import platforms as platforms_module
from netbench.testbed.doctor.diagnosis import judge_platforms
from netbench.testbed.doctor.host_checks import HostCheck, Status
from netbench.testbed.doctor.platforms import Platform, judge, platform_checks
from netbench.uut.base import UutPlan
from netbench.vmm.base import GuestOptions, Vmm
from netbench.vmm.qemu import acceleration
from netbench.vmm.qemu.acceleration import Acceleration, kvm_remedy, recall_kvm, remember
from netbench.vmm.qemu.qemu import Qemu

USER = 65534


class Boxes(Vmm):
    """Guests of a VMM from an external package."""

    kinds = (Virtualisation.PARA,)
    may_need = (Command("boxctl", "box-tools", "boxes", optional=True),)

    def needs(self):
        return frozenset({"boxctl"})

    def command(self, spec):
        return "boxctl"


class Simulated(Boxes):
    """A VMM from an external package that was never seen to forward frames."""

    unproven = "API only, against a simulator"


class Choosy(Boxes):
    """A VMM from an external package with a required option."""

    class Options(GuestOptions):
        """The required option."""

        domain: str


PLAN = UutPlan(needs=frozenset({"boxctl"}))
NEEDS = ("boxctl", "tun", "kvm", "image:micro")
ALL = {name: HostCheck(name, Status.OK, "there", "", "") for name in NEEDS}
QEMU = Platform("qemu", Qemu, UutPlan(needs=frozenset({"tun", "image:micro"})))
BOXES = Platform("boxes", Boxes, PLAN)


@pytest.mark.parametrize(
    ("platform", "wrong", "output"),
    [
        (BOXES, (), "real"),
        (QEMU, (), "real"),
        (BOXES, ("boxctl", Status.ABSENT), "cannot run here because: boxctl: seen"),
        (QEMU, ("tun", Status.MISSING), "cannot run here because: tun: seen"),
        (QEMU, ("kvm", Status.ABSENT), "under emulation: kvm: seen"),
        (QEMU, ("kvm", Status.WARNING), "not known: kvm: seen"),
        (QEMU, ("tun", Status.WARNING), "not known: tun: seen"),
        (replace(BOXES, kind=Simulated), (), "API only, against a simulator"),
        (replace(BOXES, kind=Simulated), ("boxctl", Status.MISSING), "cannot run here because: boxctl: seen"),
    ],
)
def test_how_real_a_platform_is(platform, wrong, output):
    found = ALL | ({wrong[0]: HostCheck(wrong[0], wrong[1], "seen", "do this", "")} if wrong else {})
    here = judge(platform, found)
    assert (str(here), here.remedies) == (output, ("do this",) if wrong else ())


@pytest.fixture
def from_outside(monkeypatch):
    """Register these VMMs beside netbench's own, as installed packages would."""
    kinds = {**plugins(UUTS), "boxes": Boxes, "choosy": Choosy}
    monkeypatch.setattr(platforms_module, "plugins", lambda group: kinds)
    return kinds


def test_all_that_is_installed_is_listed_in_80_columns_without_root(monkeypatch, from_outside):
    judged = judge_platforms(lambda name, path=None: None, USER)
    assert [platform.name for platform, _ in judged] == list(from_outside)
    here = {platform.name: str(judgement) for platform, judgement in judged}
    assert here["boxes"] == "cannot run here because: boxctl: not installed"
    assert here["choosy"].startswith("not known: depends on its options")
    assert here["raw"] == "not known: bridge: not checked: needs root; bridge-nf: not checked: needs root"
    monkeypatch.setattr(listing, "judge_platforms", lambda: judged)
    text = listing.uut_listing(80)
    assert max(map(len, text.splitlines())) <= 80
    assert "boxes (para virtualisation)\n  Guests of a VMM from an external package.\n  attachments:   tap\n" in text
    assert "  NICs:          virtio-net-pci, vmxnet3 (paravirtual); e1000, rtl8139" in text
    assert "raw (no virtualisation)" in text
    assert "external (unknown virtualisation)" in text


def test_the_doctor_has_a_line_for_each(from_outside):
    checks = {
        check.name: check for check in platform_checks(ALL | {"kvm": HostCheck("kvm", Status.ABSENT, "no", "do", "")})
    }
    assert set(checks) == {f"uut:{name}" for name in from_outside}
    assert (checks["uut:qemu"].status, checks["uut:qemu"].found) == (Status.WARNING, "under emulation: kvm: no")
    assert checks["uut:boxes"].status is Status.OK


def test_root_is_reported_how_kvm_is_tried(monkeypatch):
    kvm = Facility("kvm", "guests", "", lambda image: "tried", by_root=True, recall=lambda image: "")
    monkeypatch.setattr(diagnosis, "facilities", lambda needs: [kvm])
    (root,), (user,) = (diagnosis.check_facilities({"kvm"}, euid, quick=True) for euid in (0, USER))
    assert root.found == "not tried: `netbench doctor` starts a guest to find out"
    assert user.found == "not tried: only root may start guests here"


@pytest.mark.parametrize(
    ("flags", "device", "output"),
    [
        ("fpu svm", False, "modprobe kvm_amd"),
        ("vmx", False, "modprobe kvm_intel"),
        ("vmx", True, ""),
        ("fpu", False, ""),
    ],
)
def test_what_gives_a_machine_kvm(monkeypatch, tmp_path, flags, device, output):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    monkeypatch.setattr(acceleration, "KVM_DEVICE", tmp_path / ("cpuinfo" if device else "kvm"))
    reported = kvm_remedy(tmp_path / "cpuinfo")
    assert reported == output if output else "hardware virtualisation" in reported


def test_what_is_recall_kvm_is_not_tried_again(monkeypatch, tmp_path):
    image = Image("micro", tmp_path, tmp_path, tmp_path, tmp_path, "6.1", "x", "ab" * 32, {})
    monkeypatch.setattr(acceleration, "KVM_DEVICE", tmp_path)
    monkeypatch.setattr(acceleration, "CACHE", tmp_path / "acceleration.json")
    monkeypatch.setattr(acceleration, "find_image", lambda name: image)
    assert recall_kvm("micro") == ""
    remember(LocalHost("here", "no-run"), image, Acceleration("kvm"))
    assert recall_kvm("micro") == "a guest boots under it"
    remember(LocalHost("here", "no-run"), image, Acceleration("tcg", "it hangs"))
    with pytest.raises(MissingError, match="it hangs"):
        recall_kvm("micro")
    monkeypatch.setattr(acceleration, "KVM_DEVICE", tmp_path / "kvm")
    with pytest.raises(MissingError, match="no /dev/kvm"):
        recall_kvm("micro")
