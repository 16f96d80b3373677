"""Guests that libvirt starts: their description beforehand, and the messages where libvirt cannot start them."""

import platform
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.libvirt import api
from netbench.vmm.libvirt.api import LibvirtConnection
from netbench.vmm.libvirt.domain import LibvirtGuest, domain_xml
from netbench.vmm.libvirt.libvirt import Libvirt, LibvirtOptions
from netbench.vmm.qemu.command import KernelBoot, RunFiles, VirtualMachine, VirtualNic, qemu_program
from netbench.vmm.qemu.options import Pinning
from tests.unit.fakes import FakeHost

SPEC = GuestSpec("g", Path("/run/netbench/vm/r-uut-g"), (GuestNic("nb-ti-s1", "02:6e:67:00:01:01"),))
BOOT = KernelBoot(Path("/images/a&b/vmlinuz"), Path("/images/a&b/initrd"))


def made(machine: VirtualMachine, pin: Pinning) -> ElementTree.Element:
    return ElementTree.fromstring(domain_xml("nb-g", machine, RunFiles(SPEC.directory), pin, "run-1"))


def test_a_domain_has_what_the_direct_guest_has():
    nics = tuple(VirtualNic(f"nb-{n}", f"02:6e:67:00:01:0{n}", model) for n, model in enumerate(["e1000", "vmxnet3"]))
    served = VirtualNic("nb-2", "02:6e:67:00:01:02", "virtio-net-pci", queues=2, vhost=True)
    domain = made(VirtualMachine("g", BOOT, "kvm", 2, 512, (*nics, served), (3, 4)), Pinning(vcpus=((1, 2),)))
    assert domain.get("type") == "kvm"
    assert [domain.findtext(tag) for tag in ("memory", "vcpu", "os/kernel")] == ["512", "2", "/images/a&b/vmlinuz"]
    assert [pin.attrib for pin in domain.findall("cputune/*")] == [
        {"vcpu": "0", "cpuset": "1,2"},
        {"vcpu": "1", "cpuset": "3,4"},
        {"cpuset": "3,4"},
    ]
    nics_of = {tag: domain.findall(f"devices/interface/{tag}") for tag in ("model", "target", "driver")}
    assert [element.get("type") for element in nics_of["model"]] == ["e1000", "vmxnet3", "virtio"]
    assert [element.attrib for element in nics_of["target"]] == [{"dev": f"nb-{n}", "managed": "no"} for n in range(3)]
    assert [element.attrib for element in nics_of["driver"]] == [{"name": "vhost", "queues": "2"}]
    (mark,) = (element for element in domain.iter() if element.tag.endswith("env"))
    assert mark.attrib == {"name": "NETBENCH_RUN", "value": "run-1"}


def test_a_vcpu_that_pin_reports_nothing_of_stays_on_the_cpus_of_the_guest():
    domain = made(VirtualMachine("g", BOOT, "tcg", 2, host_cpus=(3, 4)), Pinning(vcpus=((), (1,)), io=(2,)))
    assert [pin.get("cpuset") for pin in domain.findall("cputune/*")] == ["3,4", "1", "2"]


@pytest.mark.parametrize(("machine", "has"), [("x86_64", True), ("aarch64", False)])
def test_acpi_is_asked_for_where_no_firmware_is_needed_for_it(monkeypatch, machine, has):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    domain = made(VirtualMachine("g", BOOT, "tcg"), Pinning())
    assert (domain.find("features/acpi") is not None) == has


def test_what_would_be_done_is_reported_and_who_does_it():
    own = Libvirt(LibvirtOptions()).command(SPEC)
    assert own.startswith("unshare --mount --pid --fork --kill-child --mount-proc sh ")
    assert "virsh -c 'qemu+unix:///system?socket=/run/netbench/vm/r-uut-g/libvirt-sock' create" in own
    running = Libvirt(LibvirtOptions(uri="qemu:///system"))
    assert running.command(SPEC).startswith("virsh -c qemu:///system create /dev/stdin <<'END'\n<domain")
    assert "libvirtd" in Libvirt(LibvirtOptions()).needs()
    assert "libvirtd" not in running.needs()


def test_a_disk_image_is_refused():
    with pytest.raises(ValidationError, match="for a disk image use kind qemu"):
        LibvirtOptions.model_validate({"image": "./mine.qcow2", "channel": "guest-agent"})


def test_an_empty_uri_is_refused():
    """libvirt would choose a daemon by itself."""
    with pytest.raises(ValidationError, match="uri"):
        LibvirtOptions.model_validate({"uri": ""})


def test_without_bindings_what_adds_them_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    path = list(sys.path)
    with pytest.raises(MissingError, match=r"apt-get install python3-libvirt, or pip install 'netbench\[libvirt\]'"):
        api.libvirt_module()
    assert sys.path == path


class LibvirtError(Exception):
    def get_error_code(self) -> int:
        return 42


class Elsewhere(LocalHost):
    """This machine, as if it were another one."""

    shares_files = False


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        (
            "qemu+ssh://other/system",
            r"uri qemu\+ssh://other/system leads away from host far: use that of a daemon on that host",
        ),
        ("test:///default", "leads away from host far"),
        ("qemu+unix:///system?socket=/no/such", "host far: /no/such cannot be reached: No such file or directory"),
    ],
)
def test_the_daemon_of_another_host_is_one_of_its_own(monkeypatch, uri, why):
    monkeypatch.setattr(api, "libvirt_module", lambda: SimpleNamespace(registerErrorHandler=lambda *_: None))
    with pytest.raises(TestbedError, match=f"^guest g: .*{why}"):
        LibvirtConnection("guest g", uri, Elsewhere("far", "no-run"))


def test_a_host_without_libvirt_is_reported_what_adds_it(tmp_path):
    host = FakeHost({"sh": Completed((), 0, f"/usr/bin/{qemu_program()}\n", "")})
    with pytest.raises(
        MissingError, match="host fake has no libvirtd for guests of libvirt: install libvirt-daemon lib"
    ):
        Libvirt(LibvirtOptions()).start(GuestSpec("g", tmp_path), host)


def test_a_daemon_that_hangs_or_complains_is_an_error_that_names_the_guest(monkeypatch):
    """Its bindings would wait for ever."""

    def complain(_: str, __: int) -> None:
        raise LibvirtError("no such machine type")

    connection = SimpleNamespace(getLibVersion=Event().wait, createXML=complain)
    module = SimpleNamespace(
        libvirtError=LibvirtError,
        registerErrorHandler=lambda *_: None,
        open=lambda _: connection,
        VIR_DOMAIN_START_PAUSED=1,
        VIR_DOMAIN_START_AUTODESTROY=2,
    )
    monkeypatch.setattr(api, "libvirt_module", lambda: module)
    talk = LibvirtConnection("guest g", "qemu:///system")
    with pytest.raises(TestbedError, match=r"^guest g: libvirt cannot start its domain: no such machine type$"):
        talk.create("<domain/>")
    monkeypatch.setattr(api, "_ANSWER_S", 0.01)
    with pytest.raises(TestbedError, match=r"^guest g: libvirt does not report its version: no answer within 0.01 s$"):
        talk.version()


def test_a_defect_is_raised_where_somebody_hears_of_it(monkeypatch):
    module = SimpleNamespace(libvirtError=LibvirtError, registerErrorHandler=lambda *_: None, open=len)
    monkeypatch.setattr(api, "libvirt_module", lambda: module)
    assert LibvirtConnection("guest g", "qemu:///system").uri == "qemu:///system"
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        LibvirtConnection("guest g", 3)  # type: ignore[arg-type]  # the wrong kind on purpose


def test_a_domain_whose_console_is_out_of_reach_is_not_called_paused(monkeypatch, tmp_path):
    """It is paused until a client connects to its console."""
    domain = SimpleNamespace(state=lambda: (3, 0), destroy=lambda: None)
    connection = SimpleNamespace(createXML=lambda *_: domain, close=lambda: 0)
    states = ("RUNNING", "BLOCKED", "PAUSED", "SHUTOFF", "CRASHED")
    module = SimpleNamespace(
        libvirtError=LibvirtError,
        registerErrorHandler=lambda *_: None,
        open=lambda _: connection,
        VIR_DOMAIN_START_PAUSED=1,
        VIR_DOMAIN_START_AUTODESTROY=2,
        **{f"VIR_DOMAIN_{name}": number for number, name in enumerate(states, 1)},
    )
    monkeypatch.setattr(api, "libvirt_module", lambda: module)
    spec = GuestSpec("g", tmp_path)
    guest = LibvirtGuest(spec, "qemu:///system", LocalHost("here", "no-run"))
    with pytest.raises(
        TestbedError,
        match=r"^guest g: its console: .*/console cannot be reached: No such file",
    ):
        guest.start(lambda *_: "<domain/>")
    guest.stop()
