"""Requirements that are checked before anything is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

from netbench.errors import MissingError
from netbench.images.library import Image
from netbench.linux.requirements import Command
from netbench.testbed import requirements
from netbench.testbed.requirements import all_of, require
from netbench.vmm.qemu import acceleration, qemu
from netbench.vmm.qemu.acceleration import Acceleration
from netbench.vmm.qemu.command import qemu_program

BUILT = Image("a", Path(), Path(), Path(), Path(), "6.1", "amd64", "ab", {})


def test_tools_and_facilities_are_asked_for_and_the_kernel_is_not(monkeypatch, tmp_path):
    asked: list[str] = []

    def found(name):
        asked.append(f"image {name}")
        return BUILT

    def tried(wanted, host, directory, image):
        asked.append(f"kvm {image}")
        return Acceleration("kvm")

    monkeypatch.setattr(requirements, "require_tool", asked.append)
    monkeypatch.setattr(requirements, "find_image", found)
    monkeypatch.setattr(qemu, "VHOST_DEVICE", tmp_path)
    monkeypatch.setattr(acceleration, "choose", tried)
    require(())
    assert asked == []
    require({"root", "netns", "veth", "kvm", "tun", "port:eth1", "vhost", "ip", "nft", "ssh", "image:a", "image:b"})
    assert set(asked[:3]) == {"ip", "nft", "ssh"}
    assert asked[3:] == ["image a", "image b", "kvm a"]


@pytest.mark.parametrize(
    ("need", "message"),
    [
        ("image:micro", "the guest image 'micro' is not built .*: run `netbench image build`"),
        (qemu_program(), f"^the command `{qemu_program()}` is not on this host; `netbench doctor`"),
        ("vhost", "^vhost: on is not possible: this host has no .*: modprobe vhost_net"),
        ("kvm", "^accelerator: kvm is not possible: no guest boots under it; use auto or tcg"),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_do(monkeypatch, tmp_path, need, message):
    monkeypatch.setenv("NETBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("netbench.hosts.local.search_path", lambda: "/no/such/directory")
    monkeypatch.setattr(qemu, "VHOST_DEVICE", tmp_path / "vhost-net")
    monkeypatch.setattr(acceleration, "choose", lambda *tried: Acceleration("tcg", "no guest boots under it"))
    with pytest.raises(MissingError, match=message):
        require({need})


@pytest.mark.parametrize(("whose", "some"), [("run", "tcpdump:tcpdump"), ("guest", "stress-ng:stress-ng")])
def test_the_makefile_is_reported_what_to_install(whose, some):
    argv = [sys.executable, "-m", "netbench.testbed.requirements", whose]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert some in output
    names = {tool.name for tool in all_of(Command) if tool.optional == (whose == "guest")}
    assert {pair.partition(":")[0] for pair in output} == names
