"""Commands of xl for a domain, and the use of its answers."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.linux.changes import MachineState
from netbench.linux.counters.counting_points import NicCounters
from netbench.linux.machine import Machine
from netbench.model.stream_paths import stream_paths
from netbench.model.virtualisation import Virtualisation
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.uut.guest_links import guest_links, places_of, read_links
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.xen import domain, xen
from netbench.vmm.xen.domain import AddDomain, PlaceVif, backend, domain_0, listed, parse_list
from netbench.vmm.xen.xen import ConsoleSocket, Xen, XenGuest, XenOptions, domain_config, kernel_words
from tests.unit.fakes import FakeHost, planned_commands
from tests.unit.inputs import topology

NICS = (GuestNic("nb-vi-s1", "02:6e:67:00:01:01"), GuestNic("nb-ve-s1", "02:6e:67:00:01:02"))
SPEC = GuestSpec("g", Path("/run/netbench/vm/0123456789ab-uut-g"), NICS)
NAME = "nb-0123456789ab-uut-g"
LIST = f"""\
Name                                        ID   Mem VCPUs	State	Time(s)
Domain-0                                     0   640     2     r-----      38.2
{NAME}                        7   256     1     -b----       8.2
"""


def config(spec=SPEC, **options):
    text = domain_config(spec, XenOptions(**options))
    return {key: json.loads(value) for key, _, value in (line.partition(" = ") for line in text.splitlines())}


class XenHost(FakeHost):
    """A domain 0 whose xl lists `there`; only making and destroying one domain changes that."""

    def __init__(self, there="", *, fails="", files=None):
        super().__init__(files=files)
        self.there = there
        self.fails = fails

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        code, out, err = 0, "", ""
        match tuple(argv):
            case ("xl", "list", *_):
                code, out, err = (0, self.there, "") if self.there else (1, "", self.fails or "invalid domain")
            case ("xl", "create", *_):
                self.there = LIST
                code, err = (1, f"Parsing config from x\n{self.fails}") if self.fails else (0, "")
            case ("xl", "destroy", *_):
                self.there = ""
        return Completed(tuple(argv), code, out, err)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("pv", Virtualisation.PARA), ("pvh", Virtualisation.HARDWARE), ("hvm", Virtualisation.HARDWARE)],
)
def test_a_domain_of_each_mode(mode, kind):
    made = config(mode=mode, cpus=2, memory="300M")
    assert (made["name"], made["type"], made["vcpus"], made["memory"]) == (NAME, mode, 2, 300)
    assert ("cmdline" in made) == (mode != "hvm")
    assert made.get("tsc_mode") == (None if mode == "pv" else "native")
    is_early = "pci=noearly" not in kernel_words(XenOptions(mode=mode))
    assert is_early == (mode != "hvm"), "it looks for PCI buses before it has any"
    assert [vif.split(",")[:2] for vif in made["vif"]] == [
        ["mac=02:6e:67:00:01:01", "script=/bin/true"],
        ["mac=02:6e:67:00:01:02", "script=/bin/true"],
    ]
    assert {made["on_poweroff"], made["on_reboot"], made["on_crash"]} == {"preserve"}
    assert Xen(XenOptions(mode=mode)).virtualisation == kind
    assert (Xen(XenOptions(mode=mode)).pace_of([]).bring_up_s > Xen.pace.bring_up_s) == (mode == "hvm")


def test_an_emulated_nic_is_one_of_hvm_that_the_guest_does_not_unplug():
    made = config(mode="hvm", nic="e1000")
    assert all(vif.endswith("type=ioemu,model=e1000") for vif in made["vif"])
    assert "xen_emul_unplug=never" in kernel_words(XenOptions(mode="hvm", nic="e1000"))
    assert "xen_emul_unplug" not in kernel_words(XenOptions(mode="hvm"))
    assert "e1000.romfile=" in made["device_model_args_hvm"]
    assert "-global" not in config(mode="hvm")["device_model_args_hvm"]
    assert all(vif.endswith("type=vif") for vif in config(mode="hvm")["vif"])
    assert (backend(7, 1, "vif"), backend(7, 1, "e1000")) == ("vif7.1", "vif7.1-emu")


def test_shares_are_those_of_xens_scheduler():
    """A weight of 100 is the usual one, as 256 is for Xen; a limit is of one CPU, as a cap is in percent."""
    spec = GuestSpec("g", SPEC.directory, NICS, weight=50, limit=1.5)
    assert (config(spec)["cpu_weight"], config(spec)["cap"]) == (128, 150)
    assert not {"cpu_weight", "cap", "cpus"} & config().keys()


def test_cpus_are_those_of_its_entitlement_but_for_the_vcpus_that_are_pinned():
    spec = GuestSpec("g", SPEC.directory, NICS, host_cpus=(2, 3))
    assert config(spec, cpus=2)["cpus"] == ["2,3", "2,3"]
    assert config(spec, cpus=2, pin=((1,),))["cpus"] == ["1", "2,3"]
    assert config(cpus=2, pin=((0,), (1,)))["cpus"] == ["0", "1"]
    assert config(cpus=2, pin=((0,),))["cpus"] == ["0", "all"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"mode": "pv", "nic": "e1000"}, "needs mode: hvm"),
        ({"pin": ((0,), (1,))}, "the guest has 1"),
        ({"image": "/x/disk.img"}, "no path"),
        ({"mode": "pvhvm"}, "pv"),
    ],
)
def test_what_no_domain_can_be_is_refused(wrong, why):
    with pytest.raises(ValidationError, match=why):
        XenOptions(**wrong)


def test_what_xl_lists():
    domains = parse_list(LIST)
    assert domains[NAME].number == 7
    assert (domains[NAME].cpu_s, domains[NAME].memory_mib, domains[NAME].trouble) == (8.2, 256, "")
    assert domain_0(XenHost(LIST)).vcpus == 2


@pytest.mark.parametrize(
    ("state", "trouble"),
    [("--p---", "is paused"), ("---s--", "has shut down"), ("----c-", "has crashed"), ("-----d", "is dying")],
)
def test_a_domain_that_is_not_at_work(state, trouble):
    assert parse_list(LIST.replace("-b----", state))[NAME].trouble == trouble


def test_a_domain_that_is_not_there_is_not_one_that_cannot_be_asked_for():
    assert listed(XenHost(), NAME) is None
    with pytest.raises(TestbedError, match="permission denied"):
        listed(XenHost(fails="permission denied"), NAME)


def test_a_plan_shows_the_domain_its_nics_and_its_start():
    path = stream_paths(topology(1))[0]
    commands = planned_commands(Guest(Xen(XenOptions())), Assignment("g", (path,)))
    made, placed, started = (
        next(number for number, command in enumerate(commands) if words in command)
        for words in ("xl create -p", "ip link set dev vifDOMID.0", "xl unpause")
    )
    assert made < placed < started
    assert 'type = "pv"' in commands[made]


@pytest.fixture
def image(monkeypatch):
    class Found:
        kernel, initrd = "/i/vmlinux", "/i/initrd"

    monkeypatch.setattr(domain, "find_image", lambda name: Found)
    monkeypatch.setattr(domain, "brought", lambda image, host: image)


ADD = AddDomain(NAME, "/run/d.cfg", domain_config(SPEC, XenOptions()), "micro")


def test_a_domain_is_made_of_its_image_and_goes_again(image):
    host = XenHost(files={"/run/d.cfg": ""})
    ADD.make(host)
    assert 'kernel = "/i/vmlinux"' in host.files["/run/d.cfg"]
    assert host.there == LIST
    ADD.undo(host)
    assert not host.there
    ADD.undo(host)


def test_an_hvm_domain_boots_from_a_disc_with_the_words_for_its_kernel(image, monkeypatch):
    discs = []

    def disc_of(image, words, host, directory):
        discs.append(words)
        return "/d/1.iso"

    monkeypatch.setattr(domain, "disc_of", disc_of)
    path = stream_paths(topology(1))[0]
    uut = Guest(Xen(XenOptions(mode="hvm")))
    (add,) = (step for step in uut.plan(Assignment("g", (path,))).steps if isinstance(step, AddDomain))
    host = XenHost(files={add.file: ""})
    add.make(host)
    assert "file=/d/1.iso" in host.files[add.file]
    assert "DISC" not in host.files[add.file]
    assert "netbench.channel=/dev/hvc0" in discs[0]


def test_of_a_domain_that_cannot_be_made_nothing_stays(image):
    host = XenHost(fails="no memory", files={"/run/d.cfg": ""})
    with pytest.raises(TestbedError, match=f"xl cannot create the domain {NAME}: no memory"):
        ADD.make(host)
    assert not host.there


def test_a_nic_is_named_and_placed_where_its_bridge_is():
    host = XenHost(LIST)
    placed = PlaceVif(NAME, 1, "vif", "uut", "nb-ve-s1", "02:6e:67:00:01:02")
    assert placed.command == (
        "ip link set dev vifDOMID.1 address 02:6e:68:00:01:02 name nb-ve-s1 && ip link set dev nb-ve-s1 netns uut"
    )
    placed.make(host)
    assert [" ".join(command) for command in host.commands[-2:]] == placed.command.replace("DOMID", "7").split(" && ")
    with pytest.raises(TestbedError, match="no domain"):
        placed.make(XenHost())


def test_what_a_console_takes_for_the_beginning_of_sysrq_is_reported_twice():
    ours, theirs = socket.socketpair()
    with ConsoleSocket(ours) as console, theirs:
        console.sendall(b"a\x0fb")
        assert theirs.recv(100) == b"a\x0f\x0fb"
        theirs.sendall(b"[1.0] Linux\r\n\x1b[0mready\r\n")
        console.recv(100)
        console.booted()
        theirs.sendall(b"O\x00\x00\x00")
        assert console.recv(100) == b"O\x00\x00\x00"
        assert console.words() == "[1.0] Linux\nready\n"


@pytest.mark.parametrize(
    ("is_here", "message"),
    [(True, "host fake has no `xl`: apt-get install xen-system-amd64"), (False, "host fake: its image has no xl")],
)
def test_a_machine_without_xen_reports_what_would_bring_it(is_here, message):
    machine = FakeHost({"which": Completed((), 1, "", "")}, is_here=is_here)
    with pytest.raises(MissingError, match=message):
        AddDomain("nb-x", "/run/netbench/vm/x/domain.cfg", "", "micro").with_former_state(MachineState(machine))


def counted_by(attachment):
    """Return the readings of a domain's NICs at their ends in domain 0: point, counter, role and frames."""
    links = guest_links([stream_paths(topology(1))[0]], attachment)
    counters = NicCounters(10, 20, 3, 4, 5, 6, True, 0, "", 1, 0)
    kernel = cast(Machine, SimpleNamespace(read_nics=lambda places: dict.fromkeys(places, counters)))
    readings = read_links(kernel, links, dict.fromkeys(places_of(links), 0), "guest g")
    return [(reading.point, reading.counter, reading.role, reading.frames) for reading in readings]


def test_the_vif_of_an_ingress_nic_has_dropped_what_expired_in_it_too():
    """Domain 0 counts these as if the domain had sent them; the frames from the domain have one counter."""
    assert counted_by(Xen(XenOptions()).attachment(SPEC)) == [
        ("ingress vif", "tx", "passed", 20),
        ("ingress vif", "tx_dropped", "dropped", 4),
        ("ingress vif", "rx_dropped", "dropped", 3),
        ("egress vif", "rx", "passed", 10),
        ("egress vif", "rx_dropped", "dropped", 3),
    ]


def test_an_emulated_nic_has_a_tap_which_counts_as_any_tap_does():
    attachment = Xen(XenOptions(mode="hvm", nic="rtl8139")).attachment(SPEC)
    assert (attachment.kind, set(attachment.needs)) == ("tap", {"tun"})
    assert counted_by(attachment) == [
        ("ingress tap", "tx", "passed", 20),
        ("ingress tap", "tx_dropped", "dropped", 4),
        ("egress tap", "rx", "passed", 10),
        ("egress tap", "rx_dropped", "dropped", 3),
    ]
    commands = planned_commands(
        Guest(Xen(XenOptions(mode="hvm", nic="rtl8139"))), Assignment("g", (stream_paths(topology(1))[0],))
    )
    (placed,) = (command for command in commands if "vifDOMID.0-emu" in command)
    assert "name nb-ti-s1" in placed


@pytest.mark.parametrize(
    ("state", "message"), [("--p---", "its domain is paused"), ("----c-", "has crashed: Oops: 0002")]
)
def test_one_that_is_paused_has_no_last_words(state, message, monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(xen, "console_of", lambda *_: ConsoleSocket(ours))
    guest = XenGuest(SPEC, XenHost(LIST.replace("-b----", state)), XenOptions())
    with theirs:
        theirs.sendall(b"Oops: 0002\r\n")
        guest._socket.recv(100)
        assert guest.death().endswith(message)
        guest._socket.close()
