"""What is asked for before anything is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

from netbench.errors import MissingError
from netbench.images.library import Image
from netbench.testbed import requirements
from netbench.testbed.requirements import TOOLS, require
from netbench.vmm.acceleration import Acceleration
from netbench.vmm.qemu_command import qemu_program

BUILT = Image("a", Path(), Path(), Path(), Path(), "6.1", "amd64", "ab", {})


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The tools and images that were asked for, none of which is missing."""
    asked: list[str] = []

    def found(name):
        asked.append(f"image {name}")
        return BUILT

    def tried(wanted, host, directory, image):
        asked.append(f"kvm {image}")
        return Acceleration("kvm")

    monkeypatch.setattr(requirements, "require_tool", asked.append)
    monkeypatch.setattr(requirements, "find_image", found)
    monkeypatch.setattr(requirements, "VHOST_DEVICE", tmp_path)
    monkeypatch.setattr(requirements, "choose", tried)
    return asked


def test_tools_and_images_are_asked_for_and_the_kernel_is_not(asked):
    require({"root", "netns", "veth", "kvm", "tun", "port:eth1", "vhost", "ip", "nft", "ssh", "image:a", "image:b"})
    assert asked == ["ip", "nft", "ssh", "image a", "image b", "kvm a"]
    require({qemu_program()})
    assert asked[-1] == qemu_program()


def test_nothing_is_asked_for_nothing(asked):
    require(())
    assert asked == []


def test_an_image_that_is_not_built_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setenv("NETBENCH_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match="the guest image 'micro' is not built .*: run `netbench image build`"):
        require({"image:micro"})
    with pytest.raises(MissingError, match="run `netbench image build --name new`"):
        require({"image:new"})


def test_a_qemu_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("netbench.hosts.local.search_path", lambda: "/no/such/directory")
    with pytest.raises(MissingError, match=f"the command `{qemu_program()}` is not on this host; `netbench doctor`"):
        require({qemu_program()})


def test_vhost_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(requirements, "VHOST_DEVICE", tmp_path / "vhost-net")
    with pytest.raises(MissingError, match="vhost: on is asked for, but this host has no .*: modprobe vhost_net"):
        require({"vhost"})


def test_kvm_that_does_not_work(monkeypatch):
    monkeypatch.setattr(requirements, "choose", lambda *tried: Acceleration("tcg", "no guest boots under it"))
    with pytest.raises(MissingError, match="^accelerator: kvm is wanted, but no guest boots under it; use auto or tcg"):
        require({"kvm"})


@pytest.mark.parametrize(("whose", "some"), [("run", "tcpdump:tcpdump"), ("guest", "stress-ng:stress-ng")])
def test_the_makefile_is_told_what_to_install(whose, some):
    argv = [sys.executable, "-m", "netbench.testbed.requirements", whose]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert some in told
    names = {tool.name for tool in TOOLS if tool.optional == (whose == "guest")}
    assert {pair.partition(":")[0] for pair in told} == names
