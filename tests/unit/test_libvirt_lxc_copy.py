"""Copies of containers that users defined in libvirt: what they keep, and containers that cannot be copied."""
# Required XML elements are used unchecked: where one is missing, the test fails (`union-attr`).

from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from netbench.errors import TestbedError
from netbench.hosts.local import LocalHost
from netbench.vmm.base import GuestSpec
from netbench.vmm.container import libvirt_lxc
from netbench.vmm.container.container import Container, ContainerOptions
from netbench.vmm.container.libvirt_lxc import ContainerCopy, copy_of_container

SPEC = GuestSpec("box", Path("/run/netbench/vm/r-uut-box"))
FIRST = ["/bin/sh", "-c", "echo up", "sh"]
# A container with all manual additions, as `virsh dumpxml --inactive` prints it.
FULL = """
<domain type='lxc' xmlns:lxc='http://libvirt.org/schemas/domain/lxc/1.0'>
  <name>web</name>
  <uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>
  <title>The web</title>
  <memory unit='KiB'>524288</memory>
  <currentMemory unit='KiB'>524288</currentMemory>
  <vcpu placement='static' cpuset='0-1'>2</vcpu>
  <cputune><shares>512</shares></cputune>
  <resource><partition>/machine/web</partition></resource>
  <os>
    <type arch='x86_64'>exe</type>
    <init>/usr/sbin/webd</init><initarg>--port</initarg><initarg>80</initarg>
    <initenv name='HOME'>/root</initenv><initdir>/srv</initdir>
  </os>
  <features>
    <privnet/><capabilities policy='deny'><net_admin state='on'/><sys_admin state='off'/></capabilities>
  </features>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/lib/libvirt/libvirt_lxc</emulator>
    <filesystem type='mount' accessmode='passthrough'><source dir='/srv/web root'/><target dir='/'/></filesystem>
    <filesystem><source dir='/usr'/><target dir='/usr'/><readonly/></filesystem>
    <filesystem type='ram'><source usage='1024' units='KiB'/><target dir='/tmp'/></filesystem>
    <filesystem type='bind'><source dir='/srv'/><target dir='/var/srv'/></filesystem>
    <filesystem type='mount'><source dir='/var/web'/><target dir='/data'/></filesystem>
    <interface type='network'><source network='default'/></interface>
    <console type='pty'><target type='lxc' port='0'/></console>
    <console type='pty'><target type='lxc' port='1'/></console>
  </devices>
  <seclabel type='none'/>
  <lxc:namespace><lxc:sharenet type='netns' value='red'/></lxc:namespace>
</domain>
"""


def copied(xml: str = FULL, spec: GuestSpec = SPEC) -> tuple[ContainerCopy, ElementTree.Element]:
    copy = copy_of_container(xml, spec, FIRST)
    return copy, ElementTree.fromstring(copy.xml)


def test_what_makes_it_is_kept_and_what_connects_it_is_not():
    copy, domain = copied()
    assert (domain.findtext("name"), copy.memory_mib) == ("box", 512)
    assert domain.find("vcpu").attrib == {"placement": "static", "cpuset": "0-1"}  # type: ignore[union-attr]  # it is there, or the test fails
    assert domain.findtext("cputune/shares") == "512"
    assert domain.findtext("os/initdir") == "/srv"
    gone = ("title", "resource", "features/privnet", "devices/interface")
    assert [tag for tag in gone if domain.find(tag) is not None] == []
    assert not [child for child in domain if "namespace" in child.tag]
    assert [element.attrib for element in domain.findall("devices/console")] == [{"type": "pty"}]
    allowed = {element.tag: element.get("state") for element in domain.findall("features/capabilities/*")}
    assert allowed == {"net_admin": "on", "sys_admin": "on"}, "its first process makes settings writable"
    assert domain.findtext("on_reboot") == "destroy"


def test_its_first_process_is_its_own_and_bears_the_mark():
    _, domain = copied()
    words = [element.text for element in domain.findall("os/initarg")]
    assert (domain.findtext("os/init"), words[0]) == ("/bin/sh", "-c")
    assert words[-7:] == [*FIRST, "/usr/sbin/webd", "--port", "80"]
    assert {element.get("name"): element.text for element in domain.findall("os/initenv")} == {
        "HOME": "/root",
        "NETBENCH_RUN": "@RUN@",
    }
    _, without = copied("<domain type='lxc'><os><type>exe</type></os></domain>")
    assert [element.text for element in without.findall("os/initarg")][-1] == "/sbin/init", "which libvirt would start"


def test_nothing_that_it_may_write_to_is_a_directory_of_this_machine():
    copy, domain = copied()
    assert copy.directories == ("/srv/web root", "/var/web")
    sources = {
        filesystem.find("target").get("dir"): filesystem.find("source").get("dir")  # type: ignore[union-attr]  # it is there, or the test fails
        for filesystem in domain.findall("devices/filesystem")
    }
    assert sources == {
        "/": "/run/libvirt-own/copies/0/merged",
        "/usr": "/run/libvirt-own/machine/usr",
        "/tmp": None,
        "/var/srv": "/srv",
        "/data": "/run/libvirt-own/copies/1/merged",
    }


def test_one_that_reports_nothing_of_its_root_has_a_copy_of_this_machines():
    copy, domain = copied("<domain type='lxc'/>")
    assert copy.directories == ("/",)
    (root,) = domain.findall("devices/filesystem")
    assert root.find("target").get("dir") == "/"  # type: ignore[union-attr]  # it is there, or the test fails


def test_cpus_of_the_uut_come_before_its_own():
    _, domain = copied(spec=GuestSpec("box", SPEC.directory, host_cpus=(3, 5)))
    assert domain.find("vcpu").attrib == {"cpuset": "3,5"}  # type: ignore[union-attr]  # it is there, or the test fails


FILESYSTEM = "<filesystem type='{}'><source dir='{}'/><target dir='/x'/></filesystem>"
MOUNTED = f"<domain type='lxc'><devices>{FILESYSTEM}</devices></domain>"


@pytest.mark.parametrize(
    ("xml", "why"),
    [
        ("<domain", "its XML cannot be read"),
        ("<network/>", "its XML is a <network>"),
        ("<domain type='kvm'/>", "it is of type 'kvm', not a container (`lxc`): use kind: libvirt"),
        ("<domain type='lxc'><idmap/></domain>", "it has an <idmap>"),
        ("<domain type='lxc'><os><inituser>web</inituser></os></domain>", "its <inituser> is web"),
        ("<domain type='lxc'><devices><hostdev/></devices></domain>", "it has a <hostdev>, a device"),
        ("<domain type='lxc'><devices><disk/></devices></domain>", "it has a <disk>, a device"),
        (MOUNTED.format("file", "/x.img"), "its <filesystem> at /x is of type 'file'"),
        (MOUNTED.format("mount", "/a,b"), "its <filesystem> at /x is '/a,b': use an absolute path without commas"),
        (MOUNTED.format("mount", "web"), "its <filesystem> at /x is 'web'"),
    ],
)
def test_what_cannot_be_copied_is_refused(xml, why):
    with pytest.raises(TestbedError) as caught:
        copied(xml)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"domain": "web"}, "domain: set runtime: libvirt"),
        ({"runtime": "libvirt", "uri": "lxc:///system"}, "uri: it is for `domain`"),
        ({"runtime": "libvirt", "domain": "web", "uri": "qemu:///system"}, "uri"),
        ({"runtime": "libvirt", "domain": "web", "uri": "lxc+ssh://other/system"}, "uri"),
        ({"runtime": "libvirt", "domain": "web", "root": "host"}, "root: leave it out; with `domain`"),
        ({"runtime": "libvirt", "domain": "web", "image": "micro"}, "image: leave it out; with `domain`"),
        ({"runtime": "libvirt", "domain": "web", "memory": "64M"}, "memory: leave it out; with `domain`"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, why):
    with pytest.raises(ValidationError, match=why):
        ContainerOptions.model_validate(options)


def test_for_a_plan_no_one_is_asked(monkeypatch):
    monkeypatch.setattr(libvirt_lxc, "LibvirtConnection", None)
    vmm = Container(ContainerOptions(runtime="libvirt", domain="web"))
    assert "`virsh -c lxc:///system dumpxml --inactive web`" in vmm.command(SPEC)
    assert {"libvirt-lxc", "libvirt-python"} <= vmm.needs()
    assert vmm.load_needs() == frozenset()


def test_a_directory_that_is_not_there_or_that_its_libvirtd_does_not_see_is_named(monkeypatch, tmp_path):
    def prepared(directory: str) -> None:
        shown = MOUNTED.format("mount", directory)
        libvirt = SimpleNamespace(defined=lambda name: shown, close=lambda: None)
        monkeypatch.setattr(libvirt_lxc, "LibvirtConnection", lambda *_: libvirt)
        libvirt_lxc.ExistingLxc("web", None).prepare(GuestSpec("box", tmp_path), LocalHost("here", "run-1"), "run-1")

    with pytest.raises(TestbedError, match=f"^guest box: domain web cannot be copied: its directory {tmp_path}/x"):
        prepared(f"{tmp_path}/x")
    with pytest.raises(TestbedError, match="/run is below /run"):
        prepared("/run")
    prepared(str(tmp_path))
    assert (tmp_path / "overlaid").read_text() == f"{tmp_path}\n/\n"
