"""Guests of Xen, as in topology lab-xen: in a VM that boots the hypervisor, and a domain 0 made of Debian packages."""

import json

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.model.host_spec import HostSpec
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import CpuShares, UutSpec
from netbench.model.verdict import ReasonKind
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm
from netbench.vmm.xen.domain import parse_list
from netbench.vmm.xen.xen import Xen, XenOptions
from tests.breakages import NOTHING, PROFILE, SENT, Broken, measured_on, no_route_in_guest, ruled
from tests.commands import HELD_UP, netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.netns.yard import FRAMES, assert_declared
from tests.unit.inputs import planned_trial
from tests.vm.served import serves_exactly, trials_in

pytestmark = [pytest.mark.usefixtures("image"), pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(1200)]

LAB = HostSpec.model_validate({"kind": "vm", "image": "xen", "cpus": 1, "memory": "1536M", "boot_limit": 240})
BOOT_LIMIT = 400


@pytest.fixture
def lab(labs):
    return labs()


def domains(yard):
    """The domains beside domain 0, by name."""
    listed = parse_list(yard.machine.host().run(["xl", "list"]).stdout)
    return {name: domain for name, domain in listed.items() if domain.number}


class TestGuestsOfXen(VmmContract):
    """All checks that a PV and a PVH domain will do for, because one takes more than a minute to boot."""

    shares = CpuShares(), CpuShares(weight=50, limit=0.8)

    def vmm(self) -> Vmm:
        return Xen(XenOptions(mode="pv", forward="route", boot_limit=BOOT_LIMIT))

    def second(self) -> Vmm:
        return Xen(XenOptions(mode="pvh", boot_limit=BOOT_LIMIT, pin=((1,),)))

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

    def check_first(self, yard, active, captures):
        assert active.ready.facts["mode"] == "pv"
        serves_exactly(yard, LAB, PV, active, yard.paths[0], captures)
        with trials_in(yard, LAB, PV, output(), yard.paths[0]) as testbed:
            losses_are_placed_to_the_frame(yard, testbed, active, captures)
            what_dies_at_the_vif_of_a_domain_that_stands_still_is_lost_there(yard, testbed, active, captures)

    def check_second(self, yard, active, captures):
        facts = active.ready.facts
        assert (facts["mode"], facts["nic_kind"], facts["pin"]) == ("pvh", "paravirtual", "1")
        assert (facts["virtualisation"], facts["scheduler"]) == ("hardware-assisted", "credit2")
        assert facts["xen"].startswith("4.17")
        (name,) = [name for name in domains(yard) if name.endswith("second")]
        xl = yard.machine.host()
        shares = xl.run(["xl", "sched-credit2", "-d", name]).stdout.split()
        assert shares[-2:] == ["128", "80"]
        assert xl.run(["xl", "vcpu-list", name]).stdout.splitlines()[-1].split()[6] == "1"
        assert name in xl.run(["xentop", "-b", "-f", "-i", "1"]).stdout
        assert active.uut.memory_bytes() == 256 << 20


def test_a_domain_that_never_becomes_ready_is_given_up_with_its_last_words(lab):
    with (
        pytest.raises(TestbedError, match="guest g did not answer within 1 s"),
        lab.uut(Guest(Xen(XenOptions(boot_limit=1))), "g"),
    ):
        pytest.fail("it is up")
    assert not domains(lab)


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
        *settings(scenarios="[{network: 200fps}]"),
        timeout_s=880,
    )
    assert done.returncode in (0, 1), done.stderr
    found = rows(results)
    assert {(row["scenario"], row["virtualisation"]) for row in found} == {("network-200fps", "para")}
    assert {row["stream"] for row in found} == {"s1", "n1"}
    for row in found:
        assert verdict_of(row) in ("valid", "suspicious")
        assert row["unexplained_frames"] == "0"
        assert int(row["sent_frames"]) == int(row["received_frames"]) + int(row["lost_frames"])
        assert float(row["cpu_machine_s"]) > 0, "domain 0 works for every guest"


PV = UutSpec.model_validate({"name": "g", "kind": "xen"})
SEVEN = "numgen inc mod 100 < 7 counter drop"
BREAKAGES = [
    ruled("before the vif", "uut", "netdev egress nb-vi-s1", SEVEN, {"ingress vif (nft netdev x c rule 2)": 14}),
    Broken(
        "no room in front of the vif",
        "uut",
        "tc qdisc add dev nb-vi-s1 root pfifo limit 0",
        "tc qdisc del dev nb-vi-s1 root",
        {"ingress vif (qdisc pfifo)": SENT},
    ),
    no_route_in_guest("eth1"),
    Broken(
        "no room in its egress queue",
        "guest",
        "tc qdisc add dev eth1 root pfifo limit 0",
        "tc qdisc del dev eth1 root",
        {"guest egress queue (dropped)": SENT},
    ),
    ruled("behind the vif", "uut", "netdev ingress nb-ve-s1", SEVEN, {"egress vif (nft netdev x c rule 2)": 14}),
    Broken(
        "the vif is down",
        "uut",
        "ip link set nb-vi-s1 down",
        "ip link set nb-vi-s1 up",
        {"uut (between ingress NIC and egress NIC)": SENT},
        (ReasonKind.UUT_FAILED,),
    ),
]


def output(**more: object) -> Profile:
    """The profile of all breakages, for sources in a VM."""
    return Profile.model_validate(
        {**PROFILE.model_dump(mode="json", exclude_unset=True), "generator": "pktgen", **more}
    )


def losses_are_placed_to_the_frame(lab, testbed, active, captures):
    given = measured_on(testbed, PV, active, BREAKAGES, captures, lab.hosts, attempts=1)
    without_time = {
        name: (*counted, tuple(kind for kind in kinds if kind.value not in HELD_UP))
        for name, (*counted, kinds) in given.items()
    }
    assert without_time == {breakage.name: breakage.outcome for breakage in [*BREAKAGES, NOTHING]}


# After the first frames, the domain accepts none for longer than its vif keeps one (rx_drain_timeout_msecs).
PAUSE = """
seen() { cat /sys/class/net/nb-in1/statistics/rx_packets; }
first=$(seen)
(
    until [ "$(seen)" -gt $((first + 300)) ]; do sleep 0.05; done
    xl pause "$1"; sleep 11; xl unpause "$1"
) >/dev/null 2>&1 </dev/null &
"""


def counted(uut: Host) -> dict[str, int]:
    """The frames received, passed on by the vif, and lost in it or in front of it, by the kernel's own tools."""
    links = {
        link["ifname"]: link["stats64"] for link in json.loads(run_checked(uut, ["ip", "-s", "-j", "link"])) if link
    }
    (queue,) = json.loads(run_checked(uut, ["tc", "-s", "-j", "qdisc", "show", "dev", "nb-vi-s1"]))
    vif = links["nb-vi-s1"]
    return {
        "came": links["nb-in1"]["rx"]["packets"],
        "passed": vif["tx"]["packets"],
        "ingress vif (rx_dropped)": vif["rx"]["dropped"],
        "ingress vif (tx_dropped)": vif["tx"]["dropped"],
        f"ingress vif (qdisc {queue['kind']})": queue["drops"],
    }


def what_dies_at_the_vif_of_a_domain_that_stands_still_is_lost_there(lab, testbed, active, captures):
    profile = output(duration="14s", frame_sizes=[64])
    trial = planned_trial(testbed.topology, profile, ("s1",), index=len(BREAKAGES) + 1, uut=PV.name)
    uut, (name,) = lab.hosts["uut"], domains(lab)
    before = counted(uut)
    run_checked(uut, ["sh", "-c", PAUSE, "sh", name])
    setup, recording = testbed.setup({VICTIM: active}), Recording.as_wanted(profile, captures)
    result = run_trial(setup, trial, recording, 1)
    after = counted(uut)
    grew = {what: frames - before[what] for what, frames in after.items()}
    (counts,) = result.streams
    assert counts.lost_frames
    lost = {loss.place: loss.frames for loss in counts.lost_at}
    assert ReasonKind.UUT_FAILED not in [reason.kind for reason in result.reasons], "it ran again before it was asked"
    assert counts.sent.frames == grew.pop("came") == 14_000
    assert counts.sent.frames == grew.pop("passed") + sum(grew.values())
    assert lost["ingress vif (rx_dropped)"] > 500
    assert {place: frames for place, frames in lost.items() if "vif" in place} == {
        place: frames for place, frames in grew.items() if frames
    }
    assert (counts.lost_frames, counts.unexplained_frames) == (sum(lost.values()), 0)
    assert counts.sent.frames == (counts.received.frames or 0) + counts.lost_frames
