"""The life of a guest as a UUT, on stand-ins for QEMU, the channel into its guest and the kernel of its machine."""

import json
import os
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, GoneError, run_checked
from netbench.images.library import Image
from netbench.linux.changes import AddCgroup, AddRunDirectory
from netbench.linux.counters.counting_points import NicCounters
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.uut import forwarding, guest_reception
from netbench.uut.base import EVERYTHING, Assignment, Site, bring_up
from netbench.uut.guest import Guest
from netbench.uut.guest_links import guest_mac
from netbench.vmm.qemu import qemu
from netbench.vmm.qemu.acceleration import Acceleration
from netbench.vmm.qemu.command import qemu_program
from netbench.vmm.qemu.options import NicModel, QemuOptions
from netbench.vmm.qemu.process import QemuVm
from tests.unit.fakes import FakeHost, planned_commands
from tests.unit.inputs import topology
from tests.unit.points import GUEST
from tests.unit.test_guest_counters import DRIVERS, STAT, text

PATHS = stream_paths(topology(2))
LINK = json.loads(Path(__file__).with_name("ip_links.json").read_text().splitlines()[2].rstrip(","))
LOG: list[str] = []


class FakeQemu(QemuVm):
    """A guest that runs until a test ends it."""

    def __init__(self, spec, machine, host) -> None:
        super().__init__(spec, host)
        self.machine = machine
        self.dead = ""
        self.died = ""  # the cause of its death, once a sign of it was seen
        self.pins: list[object] = []

    def start(self) -> None:
        LOG.append("start")

    def pin(self, vcpus, io) -> None:
        self.pins = [vcpus, io]

    def channel(self):
        return self

    def end_of_vmm(self) -> str:
        return self.dead

    def end_just_now(self) -> str:
        return self.died

    def death(self) -> str:
        return self.dead

    def cpu_s(self) -> float:
        return 12.5

    def memory_bytes(self) -> int:
        return 1 << 28

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            LOG.append("stop")


class FakeGuest(FakeHost):
    """A guest with counters, and with NICs that include the MACs of QEMU's command line."""

    def __init__(self, name, channel) -> None:
        super().__init__()
        _, qemu = channel
        self.output: list[tuple[str, str]] = []
        self.gone = False
        macs = [nic.mac for nic in qemu.machine.nics]
        # The last NIC of the command line is the first in this guest.
        self.links = [
            {**deepcopy(LINK), "ifname": f"eth{n}", "ifindex": n + 2, "address": mac}
            for n, mac in enumerate(reversed(macs))
        ]
        self.drivers = ""

    def __str__(self) -> str:
        return "guest g"

    def await_answer(self, limit_s, hopeless) -> None:
        assert hopeless() == ""

    def read(self, path) -> str:
        return run_checked(self, ["cat", path])

    def write(self, path, text) -> None:
        self.files[path] = text

    def run(self, argv, *, stdin="", timeout_s=30.0) -> Completed:
        if self.gone:
            raise GoneError("guest g: it is gone")
        command = " ".join(argv)
        lines = stdin.splitlines() if command.endswith(" -batch -") else [""]
        self.output += [(command.replace("-batch -", line), "" if line else stdin) for line in lines]
        links = json.dumps(self.links)
        answers = {"ip -j": links, "uname": "6.1.0-31\n", "cat /proc/stat": STAT}
        answers["sh -c"] = text(links=links, drivers=self.drivers)
        given = next((given for start, given in answers.items() if " ".join(argv).startswith(start)), "")
        return Completed(tuple(argv), 0, given, "")

    def close(self) -> None:
        LOG.append("close")


class TapHost(FakeHost):
    """The host of the taps: the guest receives the frames sent into a tap, unless it is deaf."""

    def __init__(self, life) -> None:
        version = Completed((), 0, "QEMU emulator version 7.2.15 (Debian 1:7.2)\nCopyright\n", "")
        done = Completed((), 0, "", "")
        groups = {
            f"/proc/{os.getpid()}/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            f"/proc/{os.getpid()}/root/sys/fs/cgroup/cgroup.controllers": "cpu",
        }
        answers = {qemu_program(): version, sys.executable: done, "test": done, "setpriv": done, "sh": done}
        super().__init__(answers, groups, is_here=True)
        self._life = life

    def run(self, argv, *, stdin="", timeout_s=30.0):
        done = super().run(argv, stdin=stdin, timeout_s=timeout_s)
        if argv[0] == sys.executable and not self._life.deaf:
            mac = argv[-1]
            (link,) = [link for link in self._life.inside.links if link["address"] == mac]
            link["stats64"]["rx"]["packets"] += 1
        return done


class FakeKernel:
    """A kernel whose NICs are all there and forward."""

    def __init__(self) -> None:
        self.made: list[object] = []
        self.gone = ""

    def make(self, changes) -> None:
        self.made += changes

    def read_nics(self, places):
        counters = NicCounters(1, 2, 3, 4, 5, 6, True, 0, "", 1, 0)
        numbers = {"nb-ti-s1": (0, 1000, 0, 80), "nb-te-s1": (900, 0, 7, 0)}
        found = {}
        for place in places:
            rx, tx, rx_dropped, tx_dropped = numbers.get(place.interface, (1, 2, 3, 4))
            if place.interface != self.gone:
                found[place] = replace(counters, rx=rx, tx=tx, rx_dropped=rx_dropped, tx_dropped=tx_dropped)
        return found


class Life:
    """A UUT with all the stand-ins that it needs."""

    def __init__(self, monkeypatch, **options) -> None:
        self.uut = Guest(qemu.Qemu(QemuOptions.model_validate(options)))
        self.kernel = FakeKernel()
        self.acceleration = Acceleration("tcg", "this host has no /dev/kvm")
        self.tried: list[tuple[str, str]] = []
        self.deaf = False
        self.qemu: FakeQemu
        self.inside: FakeGuest
        monkeypatch.setattr(qemu, "choose", self._choose)
        monkeypatch.setattr(qemu, "QemuGuest", self._start)
        monkeypatch.setattr(qemu, "AgentChannel", lambda title, connected: (title, connected))
        monkeypatch.setattr(qemu, "AgentHost", self._reach)
        monkeypatch.setattr(qemu, "find_image", self._image)
        for limit in ("_CARRIER_S", "_GUEST_CARRIER_S"):
            monkeypatch.setattr(forwarding, limit, 0.05)
        monkeypatch.setattr(guest_reception, "_RECEPTION_S", 0.05)

    def provision(self, paths=PATHS, entitlement=EVERYTHING) -> None:
        self.host = TapHost(self)
        kernel: Any = self.kernel
        self.own = Assignment("g", paths, entitlement, "uut", "lab-20250101-120000-1")
        self.uut.provision(Site(self.own, kernel, {"uut": self.host}))

    def bring_up(self) -> "Life":
        self.provision()
        self.ready = self.uut.ready()
        return self

    def _choose(self, wanted, host, directory, image):
        self.tried.append((wanted, image))
        return self.acceleration

    def _start(self, spec, machine, host, passts=()):
        self.qemu = FakeQemu(spec, machine, host)
        return self.qemu

    def _reach(self, name, channel):
        self.inside = FakeGuest(name, channel)
        return self.inside

    def _image(self, name):
        place = Path("/images") / name
        return Image(name, place, place / "vmlinux", place / "vmlinuz", place / "initrd", "6.1", "x", "ab" * 32, {})


@pytest.fixture
def life(monkeypatch):
    LOG.clear()
    return lambda **options: Life(monkeypatch, **options)


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_what_was_reported_by_a_dry_run_is_what_is_done(life, forward):
    guest = life(forward=forward).bring_up()
    directory, *changes = guest.kernel.made
    assert isinstance(directory, AddRunDirectory)
    assert directory.path.endswith("-uut-g")
    planned = planned_commands(guest.uut, guest.own)
    assert [change.command for change in changes] == planned[1 : 1 + len(changes)]
    output = [
        command for command, _ in guest.inside.output if not command.startswith(("ip -j", "uname", "sh -c", "cat"))
    ]
    for number, name in enumerate(("EGRESS-s2", "INGRESS-s2", "EGRESS-s1", "INGRESS-s1")):
        output = [command.replace(f"eth{number}", name) for command in output]
    assert [f"guest: {command}" for command in output] == [
        command for command in planned if command.startswith("guest: ") and "sysctl" not in command
    ]


def test_a_guest_runs_as_the_topology_reports(life):
    guest = life(image="new", cpus=3, memory="512M", accelerator="auto", pin={"vcpus": [[0], [1, 2]], "io": [3]})
    guest.acceleration = Acceleration("kvm")
    guest.provision()
    assert guest.tried == [("auto", "new")]
    machine = guest.qemu.machine
    assert (machine.name, machine.accelerator, machine.cpus, machine.memory_mib) == ("g", "kvm", 3, 512)
    assert str(machine.boot.kernel) == "/images/new/vmlinux"
    assert [nic.tap for nic in machine.nics] == ["nb-ti-s1", "nb-te-s1", "nb-ti-s2", "nb-te-s2"]
    assert guest.qemu.pins == [((0,), (1, 2)), (3,)]


def test_what_it_may_take_of_the_cpus_is_in_force_from_the_start_and_known_to_the_reader(life):
    guest = life()
    guest.provision(entitlement=CpuShares((1, 2), limit=0.2))
    (group,) = [change for change in guest.kernel.made if isinstance(change, AddCgroup)]
    assert (group.name, group.weight, group.limit) == ("nb-101-120000-1-g", None, 0.2)
    machine = guest.qemu.machine
    assert machine.host_cpus == (1, 2)
    assert machine.cgroup_procs == f"/proc/{os.getpid()}/root/sys/fs/cgroup/{group.name}/cgroup.procs"
    facts = guest.uut.ready().facts
    assert {"host_cpus": "1,2", "cpu_limit": "20%"}.items() <= facts.items()
    assert "cpu_weight" not in facts


def test_a_guest_without_streams_has_no_nics_and_reports_its_cpu_time_all_the_same(life):
    guest = life()
    guest.provision(paths=())
    ready = guest.uut.ready()
    assert guest.qemu.machine.nics == ()
    assert [type(change) for change in guest.kernel.made] == [AddRunDirectory]
    assert guest.inside.files == {}
    assert not any(command.startswith(("ip link", "bridge")) for command, _ in guest.inside.output)
    assert guest.uut.cpu_s() == {"guest": pytest.approx(4.96), "host": 12.5}
    assert not {"nic", "queues", "forward", "vhost"} & set(ready.facts)


def test_a_guest_without_a_driver_reports_so(life):
    guest = life(nic="vmxnet3")
    guest.provision()
    guest.inside.links = [link for link in guest.inside.links if link["ifname"] != "eth3"]
    mac = guest_mac(PATHS[0], "ingress")
    with pytest.raises(TestbedError, match=f"^guest g has no NIC {mac}: its kernel has no driver for vmxnet3$"):
        guest.uut.ready()


@pytest.mark.parametrize("listing", ["", "busybox: ip -j: unknown option", "[5]", "[{}]", "{}x"])
def test_a_guest_whose_tools_are_others_reports_what_it_needs(life, listing):
    guest = life()
    guest.provision()
    guest.inside.links = None
    run = guest.inside.run
    guest.inside.run = lambda argv, *more, **named: (
        Completed((), 0, listing, "") if argv[:2] == ["ip", "-j"] else run(argv, *more, **named)
    )
    with pytest.raises(TestbedError, match="the output of `ip -j link` is malformed .*; install iproute2 there"):
        guest.uut.ready()


def test_a_guest_whose_nics_stay_down_is_not_ready(life):
    guest = life()
    guest.provision()
    guest.inside.links[0] = {**guest.inside.links[0], "operstate": "DOWN"}
    with pytest.raises(TestbedError, match="^guest g: its NICs have no carrier after 0.05 s$"):
        guest.uut.ready()


def test_a_tap_that_does_not_come_up_is_named(life):
    guest = life()
    guest.provision()
    guest.kernel.gone = "nb-te-s2"
    with pytest.raises(TestbedError, match="^nb-te-s2: no carrier after 0.05 s"):
        guest.uut.ready()


def test_a_guest_is_ready_once_frames_reach_it(life):
    """Some NICs have a carrier and take nothing yet."""
    guest = life().bring_up()
    sent = [command[-2:] for command in guest.host.commands if command[0] == sys.executable]
    assert sent == [("nb-ti-s1", guest_mac(PATHS[0], "ingress")), ("nb-ti-s2", guest_mac(PATHS[1], "ingress"))]
    deaf = life()
    deaf.deaf = True
    deaf.provision()
    with pytest.raises(TestbedError, match="^guest g: it takes no frames 0.05 s after its NICs came up$"):
        deaf.uut.ready()


def test_every_counter_is_read_at_a_point_that_is_declared(life):
    guest = life().bring_up()
    guest.inside.drivers = DRIVERS.replace("eth0", "eth3")
    reading = guest.uut.read()
    first = [
        (count.point, count.counter, count.role, count.frames) for count in reading.counters if count.stream == "s1"
    ]
    for expected in (
        ("ingress tap", "tx", "passed", 1000),
        ("ingress tap", "tx_dropped", "dropped", 80),
        ("VMM ingress", "rx_out_of_buffers", "dropped", 17),
        ("egress tap", "rx", "passed", 900),
        ("egress tap", "rx_dropped", "dropped", 7),
    ):
        assert expected in first
    declared = guest.ready.points
    assert {count.stream for count in reading.counters} == {*declared, ""} == {"s1", "s2", ""}
    for count in reading.counters:
        assert count.point in [point.name for point in declared[count.stream or "s1"]]
    assert reading.cpu_s == {"guest": pytest.approx(4.96), "host": 12.5}
    asked = len(guest.inside.output)
    guest.uut.read()
    assert len(guest.inside.output) == asked + 1, "a guest answers slowly: all by one command"


def test_points_are_declared_in_the_order_of_the_path(life):
    (first, second) = life().bring_up().ready.points.values()
    assert [(point.name, point.where, point.passing, point.names_segment) for point in first] == [
        (point.name, point.where, point.passing, point.names_segment) for point in GUEST
    ]
    assert [point.name for point in second] == [point.name for point in GUEST]


def test_a_guest_that_is_not_well_is_not_asked(life):
    guest = life().bring_up()
    asked = len(guest.inside.output)
    guest.qemu.dead = "guest g is not running: QEMU reports 'paused'"
    with pytest.raises(TestbedError, match="QEMU reports 'paused'"):
        guest.uut.read()
    assert len(guest.inside.output) == asked


@pytest.mark.parametrize(
    ("death", "message"), [("QEMU was killed by signal 9", "^QEMU was killed"), ("", "it is gone$")]
)
def test_a_guest_that_dies_while_it_is_asked_reports_how(life, death, message):
    guest = life().bring_up()
    assert guest.ready.inside.run(["uname", "-r"]).stdout == "6.1.0-31\n"
    guest.inside.gone = True
    guest.qemu.died = death
    for ask in (guest.uut.read, lambda: guest.ready.inside.run(["true"])):
        with pytest.raises(TestbedError, match=message):
            ask()


def test_a_tap_that_was_removed_is_named(life):
    guest = life().bring_up()
    guest.kernel.gone = "nb-ti-s2"
    with pytest.raises(TestbedError, match="^guest g: its tap nb-ti-s2 is gone$"):
        guest.uut.read()


@pytest.mark.parametrize(
    ("options", "acceleration", "more"),
    [
        (
            {"vhost": "off", "queues": 2, "cpus": 2},
            Acceleration("kvm"),
            {"accelerator": "kvm", "nic": "virtio-net-pci", "queues": "2", "cpus": "2", "vhost": "off"},
        ),
        (
            {"nic": "e1000", "forward": "route", "memory": "1G"},
            Acceleration("tcg", "this host has no /dev/kvm"),
            {
                "accelerator": "tcg",
                "emulated": "this host has no /dev/kvm",
                "nic": "e1000",
                "forward": "route",
                "memory": "1024 MiB",
            },
        ),
    ],
)
def test_what_a_reader_must_know(life, options, acceleration, more):
    guest = life(**options)
    guest.acceleration = acceleration
    guest.bring_up()
    plain = {"queues": "1", "forward": "bridge", "cpus": "1", "memory": "256 MiB", "attachment": "tap"}
    known = {"qemu": "7.2.15 (Debian 1:7.2)", "image": "micro abababababab", "guest_kernel": "6.1.0-31"}
    known["confined"] = "seccomp, unprivileged"
    known["nic_kind"] = {"virtio-net-pci": "paravirtual", "e1000": "emulated"}[more["nic"]]
    assert guest.ready.facts == {**plain, **known, **more}


@pytest.mark.parametrize(
    ("accelerator", "found", "planned", "kind"),
    [
        ("auto", Acceleration("tcg", "no KVM"), None, "full"),
        ("auto", Acceleration("kvm"), None, "hardware-assisted"),
        ("tcg", Acceleration("tcg", "asked for"), "full", "full"),
        ("kvm", Acceleration("kvm"), "hardware-assisted", "hardware-assisted"),
    ],
)
def test_what_kind_of_virtualisation_it_is_depends_on_the_machine(life, accelerator, found, planned, kind):
    guest = life(accelerator=accelerator)
    assert qemu.Qemu(QemuOptions(accelerator=accelerator)).virtualisation == planned
    guest.acceleration = found
    guest.provision()
    assert bring_up(guest.uut, guest.uut.site).ready.facts["virtualisation"] == kind


def test_every_nic_that_qemu_may_be_given_is_of_a_known_kind():
    assert set(qemu.Qemu.nic_models) == set(get_args(NicModel))


def test_emulated_guests_are_waited_for_longer(life):
    emulated_s = life().bring_up().ready.quiet_time_s
    fast = life()
    fast.acceleration = Acceleration("kvm")
    assert emulated_s > fast.bring_up().ready.quiet_time_s


def test_the_conversation_ends_before_the_guest_does(life):
    guest = life().bring_up()
    LOG.clear()
    guest.uut.destroy()
    guest.uut.destroy()
    assert LOG == ["close", "stop"]
    with pytest.raises(TestbedError, match="is not provisioned"):
        guest.uut.read()


def test_a_guest_is_ended_though_the_conversation_cannot_be(life, monkeypatch):
    guest = life().bring_up()

    def fail():
        raise TestbedError("SSH hangs")

    guest.inside.close = fail
    LOG.clear()
    with pytest.raises(TestbedError, match="SSH hangs"):
        guest.uut.destroy()
    assert LOG == ["stop"]


def test_a_guest_that_did_not_start_is_ended_too(life, monkeypatch):
    guest = life()

    def fail(self):
        raise TestbedError("guest g: QEMU ended with exit code 1: out of memory")

    monkeypatch.setattr(FakeQemu, "start", fail)
    with pytest.raises(TestbedError, match="out of memory"):
        guest.provision()
    guest.uut.destroy()
    assert LOG == ["stop"]
