"""Guests under KVM, as in topology lab-kvm: in a VM whose CPU, be it emulated, has hardware virtualisation."""

import pytest

from netbench.model.topology import HostSpec
from netbench.results.directory import ResultDirectory
from netbench.vmm.base import Vmm
from netbench.vmm.qemu import Qemu
from netbench.vmm.qemu_options import QemuOptions
from tests.commands import netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.vm.lab import fresh_yard_in_vm

pytestmark = [pytest.mark.vm, pytest.mark.root]

LAB = HostSpec.model_validate({"kind": "vm", "image": "lab", "cpus": 2, "memory": "2G", "boot_limit": 120})


@pytest.fixture(scope="module")
def lab():
    with fresh_yard_in_vm(LAB) as yard:
        yield yard


class TestGuestsUnderKvm(VmmContract):
    def vmm(self) -> Vmm:
        return Qemu(QemuOptions(accelerator="kvm", vhost="off", boot_limit=120))

    @pytest.fixture
    def yard(self, lab):
        yield lab
        assert lab.left() == [], "processes of guests are left"


def test_a_campaign_under_kvm_with_vhost_and_without(results):
    """Of what a guest is too slow for, every frame is lost at the tap in front of it."""
    done = netbench(
        "run",
        "lab-kvm",
        "quick",
        "-o",
        results,
        *settings(frame_sizes=64, loads="300fps,max", repetitions=1, duration="500ms", retries=0),
        *settings(tolerance="100%", max_lateness="1min"),
        timeout_s=400,
    )
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert {row["uut"]: row["virtualisation"] for row in found} == {
        "raw": "none",
        "kvm": "hardware-assisted",
        "kvm-vhost": "hardware-assisted",
    }
    assert [verdict_of(row) for row in found] == ["valid"] * 6
    for row in found:
        assert int(row["sent_frames"]) == int(row["received_frames"]) + int(row["lost_frames"])
        assert row["unexplained_frames"] == "0"
    lossy = {row["uut"]: row["lost_at"] for row in found if row["load"] == "max" and row["uut"] != "raw"}
    assert all(places.startswith("ingress tap") for places in lossy.values()), lossy
    facts = ResultDirectory(results).results().facts
    assert {uut: facts[uut]["vhost"] for uut in lossy} == {"kvm": "off", "kvm-vhost": "on"}
    assert {facts[uut]["accelerator"] for uut in lossy} == {"kvm"}
