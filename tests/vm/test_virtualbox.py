"""Guests under VirtualBox, as in topology lab-virtualbox: in a VM whose image has it. Without its packages, skipped."""

import time
from contextlib import contextmanager

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import run_checked
from netbench.model.host_spec import HostSpec
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import CpuShares
from netbench.model.verdict import Verdict
from netbench.testbed.testbed import Testbed
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm
from netbench.vmm.virtualbox.virtualbox import VirtualBox, VirtualBoxOptions
from tests.contract.vmm_contract import VmmContract
from tests.unit.inputs import planned_trial, profile, topology_in_vm
from tests.vm.lab import PATIENT

pytestmark = [
    pytest.mark.usefixtures("image"),
    pytest.mark.vm,
    pytest.mark.root,
    pytest.mark.timeout(1500),
    pytest.mark.vm_may_hang,
]

LAB = HostSpec.model_validate({"kind": "vm", "image": "virtualbox", "cpus": 2, "memory": "2G", "boot_limit": 120})

BUSY = "while :; do :; done"
MEASURED_S = 10.0
# Of the second guest, once some frames have come and before the trial ends.
KILL = """
seen() { cat /sys/class/net/nb-in2/statistics/rx_packets; }
first=$(seen)
(
    until [ "$(seen)" -gt $((first + 100)) ]; do sleep 0.2; done
    sleep 2
    for pid in $(pidof VBoxHeadless); do grep -q second /proc/$pid/cmdline && kill -KILL $pid; done
) >/dev/null 2>&1 </dev/null &
"""


@pytest.fixture
def lab(labs):
    return labs()


def driver(**options) -> VirtualBox:
    return VirtualBox(VirtualBoxOptions.model_validate({"boot_limit": 600, **options}))


class TestGuestsOfVirtualBox(VmmContract):
    """All checks that need an answer are with two guests, because one takes more than a minute to boot."""

    shares = CpuShares(), CpuShares(weight=25)

    def vmm(self) -> Vmm:
        return driver()

    def second(self) -> Vmm:
        return driver(cpu_cap=70)

    @pytest.fixture
    def yard(self, lab):
        yield lab
        assert lab.running() == [], "processes of guests are left"

    def check_first(self, yard, active, captures):
        with measuring(yard, active, 0, captures) as measure:
            accounts_for_every_frame_that_is_too_many(measure)

    def check_second(self, yard, active, captures):
        assert {"nic": "virtio", "cpu_cap": "70 %", "cpu_weight": "25"}.items() <= active.ready.facts.items()
        has_no_more_of_the_cpus_than_its_cap_and_its_weight_give_it(yard, active)
        with measuring(yard, active, 1, captures) as measure:
            is_missed_when_it_is_killed(yard, measure)


def test_what_linux_would_change_as_guests_come_and_go_is_changed_before_them_with_one_cpu(lab):
    machine = lab.machine.host()
    assert run_checked(machine, ["ls", "/sys/module/preempt_notifiers_on"])
    assert machine.read("/sys/devices/system/cpu/online").strip() == "0-1", "the other one is on again"
    assert machine.run(["rmmod", "preempt_notifiers_on"]).exit_code != 0


@contextmanager
def measuring(yard, active, number, captures):
    """A function that runs a trial with a guest, the first (0) or the second, and pktgen: measure(load, **profile)."""
    there, path = topology_in_vm(2, uuts=[{"name": "box", "kind": "virtualbox"}]), yard.paths[number]
    testbed = Testbed(there, "nbt", {"lab": yard.machine}, yard.hosts, (path,), profile(generator="pktgen"))
    indices = iter(range(100 * number, 100 * number + 100))
    try:
        testbed.open_endpoints()

        def measure(load, **more):
            asked = profile(**{**PATIENT, "loads": load, "generator": "pktgen", **more})
            wanted = planned_trial(there, asked, (path.name,), index=next(indices), uut="box")
            return run_trial(testbed.setup({VICTIM: active}), wanted, Recording.as_wanted(asked, captures), 1)

        yield measure
    finally:
        testbed.close_endpoints()


def accounts_for_every_frame_that_is_too_many(measure):
    (many,) = measure("20000fps", duration="500ms", drain_limit="60s").streams
    assert many.received.frames is not None
    assert many.lost_frames == many.sent.frames - many.received.frames > 0
    assert many.unexplained_frames == 0
    assert max(many.lost_at, key=lambda loss: loss.frames).point == "VMM ingress", many.lost_at


def has_no_more_of_the_cpus_than_its_cap_and_its_weight_give_it(lab, active):
    machine, inside = lab.machine.host(), active.ready.inside

    def share():
        before, began = active.uut.cpu_s()["host"], uptime_s(machine)
        time.sleep(MEASURED_S)
        used, ended = active.uut.cpu_s()["host"], uptime_s(machine)
        return (used - before) / (ended - began)

    computes = run_checked(inside, ["sh", "-c", f"({BUSY}) >/dev/null 2>&1 & echo $!"]).strip()
    try:
        # 0.7 is for its CPU; VirtualBox's other threads add to it.
        assert 0.5 < share() < 0.9
        busy = [f"taskset {mask} sh -c '{BUSY}' >/dev/null 2>&1 & echo $!" for mask in (1, 2)]
        pids = [run_checked(machine, ["sh", "-c", command]).strip() for command in busy]
        try:
            assert 0.05 < share() < 0.4, "25 of 125 on either CPU"
        finally:
            run_checked(machine, ["kill", *pids])
    finally:
        run_checked(inside, ["kill", computes])


def is_missed_when_it_is_killed(lab, measure):
    run_checked(lab.hosts["uut"], ["sh", "-c", KILL])
    killed = measure("200fps", duration="15s")
    assert killed.verdict is Verdict.INVALID
    assert any("VirtualBox ended with exit code" in reason.detail for reason in killed.reasons)
    (until,) = killed.streams
    assert 0 < (until.received.frames or 0) < until.sent.frames
    assert until.unexplained_frames == 0


def test_a_guest_that_is_not_ready_in_time_reports_how_far_it_came(lab):
    with (
        pytest.raises(
            TestbedError, match=r"guest slow did not answer within \S+ s of its start; (last line|its console is empty)"
        ),
        # VirtualBox starts it in 7 to 20 s; with a tenth of a CPU it answers minutes later.
        lab.uut(Guest(driver(cpu_cap=10, boot_limit=40)), "slow", lab.paths[:1]),
    ):
        pytest.fail("it was ready")
    assert lab.running() == []


def test_the_other_model_of_nic(lab, tmp_path):
    """It is too slow for some frames on a busy CPU. All other guests here have virtio NICs."""
    path = lab.paths[0]
    with (
        lab.uut(Guest(driver(nic="82540EM")), "emulated", (path,)) as active,
        measuring(lab, active, 0, tmp_path) as measure,
    ):
        assert (active.ready.facts["nic"], active.ready.facts["nic_kind"]) == ("82540EM", "emulated")
        (counts,) = measure("200fps", duration="1s").streams
        assert (counts.sent.frames, counts.unexplained_frames) == (200, 0)
        assert 100 < counts.received.frames == 200 - counts.lost_frames
        used_s = active.uut.cpu_s()
        assert used_s["host"] > used_s["guest"] > 0


def uptime_s(machine):
    return float(machine.read("/proc/uptime").split()[0])
