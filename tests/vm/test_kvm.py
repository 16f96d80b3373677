"""Guests under KVM, as in topology lab-kvm: in a VM whose (possibly emulated) CPU has hardware virtualisation."""

import pytest

from netbench.model.host_spec import HostSpec
from netbench.model.topology_specs import UutSpec
from netbench.results.directory import ResultDirectory
from netbench.uut.raw import Raw, RawOptions
from netbench.vmm.base import Vmm
from netbench.vmm.qemu.options import QemuOptions
from netbench.vmm.qemu.qemu import Qemu
from tests.commands import netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.vm.served import serves_exactly

pytestmark = [pytest.mark.usefixtures("image"), pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(900)]

LAB = HostSpec.model_validate({"kind": "vm", "image": "lab", "cpus": 1, "memory": "2G", "boot_limit": 120})
SECOND = UutSpec.model_validate({"name": "g.second", "kind": "qemu", "forward": "route"})


class TestGuestsUnderKvm(VmmContract):
    def vmm(self) -> Vmm:
        return Qemu(QemuOptions(accelerator="kvm", vhost="off", boot_limit=120))

    def second(self) -> Vmm:
        return Qemu(QemuOptions(accelerator="kvm", vhost="on", forward="route", boot_limit=120))

    def check_second(self, yard, active, captures):
        serves_exactly(yard, LAB, SECOND, active, yard.paths[1], captures)

    @pytest.fixture
    def yard(self, labs):
        yard = labs()
        yield yard
        assert yard.left() == [], "processes of guests are left"


def test_a_server_on_the_vm_itself(labs, tmp_path):
    lab, spec = labs(), UutSpec.model_validate({"name": "bare", "kind": "raw", "forward": "route"})
    with lab.uut(Raw(RawOptions(forward="route")), "bare", lab.paths[:1]) as active:
        serves_exactly(lab, LAB, spec, active, lab.paths[0], tmp_path)


def test_a_campaign_under_kvm_and_where_a_guest_loses_what_it_is_too_slow_for(results):
    """Without the UUT that is in the contract above: its frames pass a tap like those of kvm-vhost."""
    done = netbench(
        "run",
        "lab-kvm",
        "quick",
        "-o",
        results,
        *settings(frame_sizes=64, loads="300fps,max", repetitions=1, duration="500ms", retries=0),
        *settings(tolerance="100%", max_lateness="1min"),
        *(word for uut in ("raw", "kvm-vhost", "kvm-macvtap") for word in ("--uut", uut)),
        timeout_s=900,
    )
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert {row["uut"]: row["virtualisation"] for row in found} == {
        "raw": "none",
        "kvm-vhost": "hardware-assisted",
        "kvm-macvtap": "hardware-assisted",
    }
    assert len(found) == 6
    for row in found:
        # At most: half a second may be too short to drain the queues.
        assert verdict_of(row) == "valid" or (row["load"], row["reasons"]) == ("max", "buffered"), row
        placed = sum(int(place.rpartition("=")[2]) for place in row["lost_at"].split(";") if place)
        assert placed == int(row["sent_frames"]) - int(row["received_frames"])
    facts = ResultDirectory(results).results().facts
    guests = {row["uut"]: row["lost_at"] for row in found if row["load"] == "max" and row["uut"] != "raw"}
    assert {uut: places.partition(" (")[0] for uut, places in guests.items()} == {
        "kvm-vhost": "ingress tap",
        "kvm-macvtap": "ingress macvtap",
    }
    assert {uut: (facts[uut]["accelerator"], facts[uut]["vhost"]) for uut in guests} == {
        "kvm-vhost": ("kvm", "on"),
        "kvm-macvtap": ("kvm", "on"),
    }
