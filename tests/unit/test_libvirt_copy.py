"""Copies of domains that users defined: the settings they keep and get, and domains that cannot be copied."""

from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.local import LocalHost
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.libvirt.api import LibvirtConnection, libvirt_module, own_uuid
from netbench.vmm.libvirt.domain import LibvirtGuest
from netbench.vmm.libvirt.domain_copy import CopySettings, DomainCopy, ExistingDomain, LibvirtAgent, copy_of
from netbench.vmm.libvirt.libvirt import Libvirt, LibvirtOptions
from netbench.vmm.qemu.command import RunFiles, VirtualNic
from netbench.vmm.qemu.options import Pinning

HERE = LocalHost("here", "no-run")
URI = "qemu:///system"
FILES = RunFiles(Path("/run/netbench/vm/r-uut-g"))
NICS = (
    VirtualNic("nb-ti-s1", "02:6e:67:00:01:01", "virtio-net-pci", queues=2, vhost=True),
    VirtualNic("nb-te-s1", "02:6e:67:00:01:02", "e1000"),
)
OWN = CopySettings("nb-r-uut-g", NICS, FILES)
SPEC = GuestSpec("g", FILES.directory, (GuestNic("nb-ti-s1", "02:6e:67:00:01:01"),))

# A domain of virt-manager with all manual additions, as `virsh dumpxml --inactive` prints it.
FULL = """
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web</name>
  <uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>
  <title>The web &amp; more</title>
  <metadata><info:more xmlns:info='http://example.org/info'><info:x/></info:more></metadata>
  <memory unit='KiB'>2097152</memory>
  <currentMemory unit='KiB'>1048576</currentMemory>
  <vcpu placement='static' cpuset='0-3' current='2'>4</vcpu>
  <iothreads>1</iothreads>
  <cputune>
    <shares>512</shares>
    <vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='3' cpuset='3'/><emulatorpin cpuset='0'/>
    <iothreadpin iothread='1' cpuset='0'/>
  </cputune>
  <sysinfo type='smbios'><system><entry name='uuid'>6695eb01-f6a4-8304-79aa-97f2502e193f</entry>
    <entry name='product'>web</entry></system></sysinfo>
  <os>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <boot dev='network'/><boot dev='hd'/>
    <bootmenu enable='yes' timeout='60000'/>
    <smbios mode='sysinfo'/>
  </os>
  <features><acpi/><apic/></features>
  <cpu mode='host-passthrough'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>preserve</on_crash>
  <devices>
    <emulator>/opt/qemu/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' io='native' iothread='1'/><source file='/images/web.qcow2'/>
      <target dev='vda' bus='virtio'/><boot order='1'/><alias name='ua-root'/>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='/images/data.img'/><target dev='sdb' bus='sata'/><shareable/>
    </disk>
    <disk type='file' device='disk'><source file='/images/t'/><target dev='sdc' bus='scsi'/><transient/></disk>
    <disk type='block' device='disk'><source dev='/dev/vg/base'/><target dev='vdb' bus='virtio'/><readonly/></disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <disk type='file' device='floppy'><source file='/images/f.img'/><target dev='fda' bus='fdc'/></disk>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='virtio-serial' index='0'/>
    <filesystem type='mount'><source dir='/srv'/><target dir='srv'/><readonly/></filesystem>
    <interface type='network'>
      <mac address='52:54:00:00:00:01'/><source network='default'/><model type='virtio'/><boot order='2'/>
      <alias name='ua-nic'/><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </interface>
    <interface type='hostdev' managed='yes'><source/></interface>
    <serial type='file'><source path='/var/log/web'/><target type='isa-serial' port='0'/></serial>
    <console type='file'><source path='/var/log/web'/><target type='serial' port='0'/></console>
    <channel type='unix'><source mode='bind' path='/x/y'/>
      <target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>
    <input type='tablet' bus='usb'/>
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
    <graphics type='spice' autoport='yes'/>
    <video><model type='virtio'><acceleration accel3d='yes'/></model></video>
    <redirdev bus='usb' type='spicevmc'/>
    <memballoon model='virtio'/>
  </devices>
  <seclabel type='dynamic' model='apparmor' relabel='yes'/>
  <seclabel type='none' model='dac'/>
  <qemu:commandline><qemu:env name='LANG' value='C'/></qemu:commandline>
</domain>
"""


def copied(defined: str, own: CopySettings = OWN) -> tuple[Element, DomainCopy]:
    copy = copy_of(defined, own, "run-1")
    return ElementTree.fromstring(copy.xml), copy


def with_devices(devices: str) -> str:
    return f"<domain type='qemu'><devices>{devices}</devices></domain>"


@pytest.fixture
def full():
    return copied(FULL)


def test_a_copy_has_a_name_of_its_own_and_all_that_makes_the_machine(full):
    domain, copy = full
    assert [element.text for element in domain.findall("name")] == ["nb-r-uut-g"]
    assert not [tag for tag in ("title", "metadata") if domain.find(tag) is not None]
    assert domain.findtext("uuid") == own_uuid("nb-r-uut-g") != "6695eb01-f6a4-8304-79aa-97f2502e193f"
    assert [element.text for element in domain.findall("sysinfo/system/entry")] == ["web"], "its uuid is another"
    assert domain.get("type") == "kvm"
    for tag in ("currentMemory", "features/apic", "devices/memballoon", "devices/input", "iothreads", "os/smbios"):
        assert len(domain.findall(tag)) == 1, tag
    assert [domain.findtext(f"on_{event}") for event in ("poweroff", "reboot", "crash")] == ["destroy"] * 3
    assert len(domain.findall("on_reboot")) == 1
    assert (copy.accelerator, copy.cpus, copy.memory_mib) == ("kvm", 2, 2048)
    assert (copy.emulator, copy.nvram) == ("/opt/qemu/bin/qemu-system-x86_64", None)
    assert "emulated" not in copy.facts()
    assert [element.attrib for element in domain.findall("seclabel")] == [{"type": "none", "model": "dac"}]
    env = [element.attrib for element in domain.iter() if element.tag.endswith("}env")]
    assert env == [{"name": "LANG", "value": "C"}, {"name": "NETBENCH_RUN", "value": "run-1"}]


def test_what_its_guest_writes_goes_elsewhere(full):
    disks = {disk.find("target").get("dev"): disk for disk in full[0].findall("devices/disk")}
    kept = {
        name: [(child.tag, child.attrib) for child in disk if child.tag in ("transient", "readonly", "shareable")]
        for name, disk in disks.items()
    }
    assert kept == {
        "vda": [("transient", {"shareBacking": "yes"})],
        "sdb": [("transient", {})],
        "sdc": [("transient", {"shareBacking": "yes"})],
        "vdb": [("readonly", {})],
        "sda": [("readonly", {})],
        "fda": [("readonly", {})],
    }
    assert disks["vda"].find("boot").get("order") == "1"
    assert disks["vda"].find("address").get("bus") == "0x04"
    assert disks["vda"].find("driver").get("iothread") == "1"


def test_its_nics_and_its_ways_in_are_those_of_netbench(full):
    domain, _ = full
    nics = domain.findall("devices/interface")
    assert [nic.find("target").attrib for nic in nics] == [
        {"dev": "nb-ti-s1", "managed": "no"},
        {"dev": "nb-te-s1", "managed": "no"},
    ]
    assert [nic.find("model").get("type") for nic in nics] == ["virtio", "e1000"]
    assert nics[0].find("driver").attrib == {"name": "vhost", "queues": "2"}
    assert [nic.find("rom").get("enabled") for nic in nics] == ["no", "no"]
    assert not [child for nic in nics for child in nic if child.tag in ("boot", "address", "alias")]
    (serial,) = domain.findall("devices/serial")
    assert (serial.get("type"), serial.find("source").get("path")) == ("unix", str(FILES.console))
    (channel,) = domain.findall("devices/channel")
    assert channel.find("target").get("name") == "org.qemu.guest_agent.0"
    assert channel.find("source") is None, "libvirt makes the socket, and alone talks with the agent"
    for tag in ("console", "graphics", "redirdev", "tpm", "video/model/acceleration"):
        assert domain.find(f"devices/{tag}") is None, tag
    assert [element.get("dev") for element in domain.findall("os/boot")] == ["hd"], "no network boot"
    assert domain.find("os/bootmenu") is None


def test_its_threads_run_where_the_domain_reports_unless_netbench_does(full):
    assert [element.tag for element in full[0].findall("cputune/*")] == [
        "shares",
        *["vcpupin"] * 2,
        "emulatorpin",
        "iothreadpin",
    ]
    assert full[0].find("vcpu").get("cpuset") == "0-3"
    pinned, _ = copied(FULL, CopySettings("nb", NICS, FILES, (6, 7), Pinning(vcpus=((5,),))))
    assert [(element.tag, element.get("vcpu"), element.get("cpuset")) for element in pinned.findall("cputune/*")] == [
        ("shares", None, None),
        ("vcpupin", "0", "5"),
        ("vcpupin", "1", "6,7"),
        ("emulatorpin", None, "6,7"),
    ]
    (vcpu,) = pinned.findall("vcpu")
    assert vcpu.attrib == {"cpuset": "6,7", "current": "2"}, "its threads for disks too"
    with pytest.raises(TestbedError, match="names CPUs for 3 vCPUs, and it has 2"):
        copied(FULL, CopySettings("nb", NICS, FILES, pin=Pinning(vcpus=((0,), (0,), (0,)))))


def test_a_domain_that_reports_next_to_nothing_gets_what_it_needs():
    domain, copy = copied("<domain type='qemu'/>")
    assert [element.tag for element in domain.findall("devices/*")] == ["interface", "interface", "serial", "channel"]
    assert (copy.cpus, copy.emulator) == (1, "")
    assert copy.facts()["emulated"] == "the domain asks for emulation"


@pytest.mark.parametrize(
    ("memory", "mib"), [("<memory>524288</memory>", 512), ("<memory unit='GiB'>2</memory>", 2048), ("", 0)]
)
def test_its_memory_is_reported_in_mib(memory, mib):
    assert copied(f"<domain type='qemu'>{memory}</domain>")[1].memory_mib == mib


@pytest.mark.parametrize(
    ("system", "kept", "attributes"),
    [
        (
            "<loader readonly='yes' type='pflash'>/CODE.fd</loader><nvram template='/VARS.fd'>/nvram/web.fd</nvram>",
            "/nvram/web.fd",
            {"template": "/VARS.fd"},
        ),
        ("<loader type='pflash'>/CODE.fd</loader>", None, {}),
        (
            "<nvram type='file' format='qcow2'><source file='/nvram/w.qcow2'/></nvram>",
            "/nvram/w.qcow2",
            {"format": "qcow2"},
        ),
    ],
)
def test_its_uefi_variables_are_in_a_copy(system, kept, attributes):
    domain, copy = copied(f"<domain type='qemu'><os firmware='efi'>{system}</os></domain>")
    (nvram,) = domain.findall("os/nvram")
    assert (nvram.text, nvram.attrib, list(nvram)) == (str(FILES.nvram), attributes, [])
    assert copy.nvram == (Path(kept) if kept else None)


def test_firmware_that_keeps_nothing_gets_no_place_to():
    stateless = "<os firmware='efi'><loader type='pflash' stateless='yes'/></os>"
    domain, copy = copied(f"<domain type='qemu'>{stateless}</domain>")
    assert (domain.find("os/nvram"), copy.nvram) == (None, None)
    assert copied("<domain type='qemu'><os><loader type='rom'>/bios</loader></os></domain>")[0].find("os/nvram") is None


@pytest.mark.parametrize(
    ("defined", "why"),
    [
        ("<domain", "its XML cannot be read"),
        ("<domain type='lxc'/>", "it is of type 'lxc', but only those of QEMU"),
        ("<network/>", "its XML is a <network>"),
        (with_devices("<hostdev mode='subsystem' type='pci'/>"), "it takes a device of this host"),
        (with_devices("<filesystem type='mount'/>"), "its guest could write to the host's directory"),
        (with_devices("<memory model='nvdimm'/>"), "persistent memory that its guest could write to"),
        (with_devices("<disk type='block'><target dev='vdb'/></disk>"), "its disk vdb is no file but block"),
        (
            with_devices("<disk type='file'><driver type='qcow2'/><target dev='sda' bus='sata'/></disk>"),
            "its disk sda is a qcow2 image on bus sata, where QEMU would open it for writing: .* virtio, scsi or usb",
        ),
        (with_devices("<disk type='file' device='lun'/>"), "its disk [?] is no file but file lun"),
        ("<domain type='qemu'><os><nvram type='network'/></os></domain>", "its <nvram> is of type 'network'"),
        (
            "<domain type='kvm' xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><q:commandline>"
            "<q:arg value='-drive'/></q:commandline></domain>",
            "has options .-drive. by which QEMU may write",
        ),
    ],
)
def test_what_could_write_or_cannot_be_started_is_refused(defined, why):
    with pytest.raises(TestbedError, match=why):
        copied(defined)


def test_what_would_be_done_is_reported_and_no_one_asked():
    """There is no such daemon."""
    driver = Libvirt(LibvirtOptions(uri=URI, domain="my web"))
    output = driver.command(SPEC)
    assert output.startswith(
        "virsh -c qemu:///system dumpxml --inactive 'my web' >/run/netbench/vm/r-uut-g/domain.xml\n"
    )
    assert "virsh -c qemu:///system create /dev/stdin <<'END'\n<domain" in output
    assert 'type="AS DEFINED"' in output
    assert '<target dev="nb-ti-s1" managed="no" />' in output
    assert driver.needs() == {"libvirt-python"}
    assert "vhost" in Libvirt(LibvirtOptions(uri=URI, domain="web", vhost="on")).needs()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"domain": "web"}, "uri: name the libvirtd of the domain"),
        ({"domain": "web", "uri": URI, "cpus": 2}, "cpus: leave it out; with `domain` it is as the domain has it"),
        ({"domain": "web", "uri": URI, "channel": "guest-agent"}, "channel: leave it out; .* guest agent"),
        ({"domain": "", "uri": URI}, "domain"),
        (
            {"domain": "web", "uri": URI, "attachment": "macvtap"},
            "libvirt attaches its guests by bridge or nat; for macvtap use kind qemu",
        ),
    ],
)
def test_what_the_domain_reports_is_not_reported_again(options, why):
    with pytest.raises(ValidationError, match=why):
        LibvirtOptions.model_validate(options)


def test_how_many_cpus_it_has_is_not_known_before():
    LibvirtOptions.model_validate({"domain": "web", "uri": URI, "queues": 4, "pin": {"vcpus": [[0], [1]]}})


@pytest.fixture
def libvirt():
    """A connection to libvirt's test driver: domains in this process, of which one runs."""
    try:
        libvirt_module()
    except MissingError as error:
        pytest.skip(str(error))
    connection = LibvirtConnection("guest g", "test:///default")
    yield connection
    connection.close()


def test_libvirt_reports_of_a_domain_that_is_shut_off(libvirt):
    with pytest.raises(TestbedError, match=r"^guest g: domain test is running, .*\(virsh -c test:///default shutdown"):
        libvirt.defined("test")
    with pytest.raises(TestbedError, match=r"^guest g: there is no domain web at test:///default, which has: test$"):
        libvirt.defined("web")
    domain = libvirt_module().open("test:///default").lookupByName("test")  # the same one, in this process
    domain.destroy()
    existing = ExistingDomain("test", OWN, HERE)
    with pytest.raises(TestbedError, match="^guest g: domain test cannot be copied: it is of type 'test'"):
        existing.define(libvirt, "run-1")
    domain.create()


def test_an_agent_that_is_not_there_is_an_error_that_names_the_guest(libvirt):
    guest = LibvirtGuest(SPEC, "test:///default", HERE)
    guest._libvirt = libvirt
    guest._domain = libvirt_module().open("test:///default").lookupByName("test")
    with pytest.raises(TestbedError, match="^guest g: its guest agent: "):
        guest.query_agent('{"execute": "guest-ping"}', 2.0)


def test_a_copy_of_variables_is_made_and_only_where_there_are_some(tmp_path):
    xml = "<domain type='qemu'><os><loader type='pflash'>/C.fd</loader><nvram>{}</nvram></os></domain>"
    (tmp_path / "web.fd").write_bytes(b"boots this")
    files = RunFiles(tmp_path / "run")
    files.directory.mkdir(mode=0o700)
    for path in ("none.fd", "web.fd"):
        libvirt = SimpleNamespace(whose="guest g", defined=lambda _: xml.format(tmp_path / path))  # noqa: B023 - asked at once
        existing = ExistingDomain("web", CopySettings("nb-g", NICS, files), HERE)
        existing.define(libvirt, "run-1")  # type: ignore[arg-type]  # the part of it that is used
        assert files.nvram.exists() == (path == "web.fd")
    assert files.nvram.read_bytes() == b"boots this"
    assert files.directory.stat().st_mode & 0o777 == 0o711, "QEMU need not be root"


def test_the_agent_is_asked_through_libvirt():
    asked: list[str] = []

    def ask(command: str, timeout_s: float) -> str:
        asked.append(command)
        return '{"return": {"pid": 7}}'

    agent = LibvirtAgent(SimpleNamespace(query_agent=ask))  # type: ignore[arg-type]  # the part of it that is used
    assert agent.command("guest-exec", {"path": "ls"}) == {"pid": 7}
    agent.command("guest-ping", timeout_s=2.0)
    agent.close()
    assert asked == ['{"execute": "guest-exec", "arguments": {"path": "ls"}}', '{"execute": "guest-ping"}']
