"""Guests of Xen, as in topology lab-xen: in a VM that boots the hypervisor, and a domain 0 made of Debian packages."""

import pytest

from netbench.errors import TestbedError
from netbench.model.entitlement import Entitlement
from netbench.model.topology import HostSpec
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm
from netbench.vmm.xen import Xen
from netbench.vmm.xen_domain import parse_list
from netbench.vmm.xen_options import XenOptions
from tests.commands import netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.netns.yard import FRAMES, assert_declared

pytestmark = [pytest.mark.usefixtures("image"), pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(900)]

LAB = HostSpec.model_validate({"kind": "vm", "image": "xen", "cpus": 1, "memory": "1536M", "boot_limit": 240})
BOOT_LIMIT = 240


@pytest.fixture
def lab(labs):
    return labs()


def domains(yard):
    """The domains beside domain 0, by name."""
    listed = parse_list(yard.machine.host().run(["xl", "list"]).stdout)
    return {name: one for name, one in listed.items() if one.number}


class TestGuestsOfXen(VmmContract):
    def vmm(self) -> Vmm:
        return Xen(XenOptions(mode="pv", boot_limit=BOOT_LIMIT))

    def broken(self) -> Vmm:
        return Xen(XenOptions(mode="pv", image="no-such-image"))

    @pytest.fixture
    def yard(self, lab):
        yield lab
        assert lab.running() == [], "processes of guests are left"
        assert not domains(lab)
        assert "vif" not in lab.machine.host().run(["ip", "-br", "link"]).stdout

    def kill(self, yard):
        (name,) = domains(yard)
        yard.machine.host().run(["xl", "destroy", name])


def test_a_domain_that_never_becomes_ready_is_given_up_with_its_last_words(lab):
    with (
        pytest.raises(TestbedError, match="guest g did not answer within 1 s"),
        lab.uut(Guest(Xen(XenOptions(boot_limit=1))), "g"),
    ):
        pytest.fail("it is up")
    assert not domains(lab)


def test_a_pvh_domain_has_its_weight_its_cap_and_its_cpus(lab):
    uut = Guest(Xen(XenOptions(mode="pvh", boot_limit=BOOT_LIMIT, pin=((1,),))))
    with lab.uut(uut, "g", (lab.paths[0],), Entitlement((), 50, 0.5)) as active:
        facts = active.ready.facts
        assert (facts["mode"], facts["nic_kind"], facts["pin"]) == ("pvh", "paravirtual", "1")
        assert (facts["virtualisation"], facts["scheduler"]) == ("hardware-assisted", "credit2")
        assert facts["xen"].startswith("4.17")
        (name,) = domains(lab)
        xl = lab.machine.host()
        shares = xl.run(["xl", "sched-credit2", "-d", name]).stdout.split()
        assert shares[-2:] == ["128", "50"]
        assert xl.run(["xl", "vcpu-list", name]).stdout.splitlines()[-1].split()[6] == "1"
        assert name in xl.run(["xentop", "-b", "-f", "-i", "1"]).stdout
        assert active.uut.memory_bytes() == 256 << 20


def test_an_hvm_domain_boots_by_itself_and_forwards(lab):
    path = lab.paths[0]
    uut = Guest(Xen(XenOptions(mode="hvm", boot_limit=BOOT_LIMIT)))
    with lab.uut(uut, "g", (path,)) as active:
        facts = active.ready.facts
        assert (facts["mode"], facts["nic"], facts["nic_kind"]) == ("hvm", "vif", "paravirtual")
        assert lab.forwarded(active, path) == FRAMES
        assert_declared(active, path)


def test_a_campaign_with_a_domain_and_another_beside_it(results):
    done = netbench(
        "run",
        "lab-xen",
        "quick",
        "-o",
        results,
        "--uut",
        "pv",
        *settings(frame_sizes=64, loads="200fps", repetitions=1, duration="500ms", retries=0),
        *settings(tolerance="100%", max_lateness="1min"),
        *settings(scenarios="[dedicated, shared-idle, cpu-light, cpu-heavy, {network: 200fps}]"),
        timeout_s=880,
    )
    assert done.returncode in (0, 1), done.stderr
    found = rows(results)
    assert {row["virtualisation"] for row in found} == {"para"}
    for row in found:
        assert verdict_of(row) in ("valid", "suspicious")
        assert row["unexplained_frames"] == "0"
        assert int(row["sent_frames"]) == int(row["received_frames"]) + int(row["lost_frames"])
        assert float(row["cpu_machine_s"]) > 0, "domain 0 works for every guest"
