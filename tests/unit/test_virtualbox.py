"""Guests of VirtualBox, without it: the command that makes one, the options in a topology, and missing tools."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.images.library import Image
from netbench.linux.requirements import Facility
from netbench.model.stream_paths import stream_paths
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.boot_disc import LOADER, disc_of
from netbench.vmm.virtualbox import virtualbox
from netbench.vmm.virtualbox.virtualbox import (
    KERNEL_WORDS,
    VirtualBox,
    VirtualBoxGuest,
    VirtualBoxOptions,
    box_command,
)
from tests.unit.fakes import FakeHost, NetbenchCopied, planned_commands
from tests.unit.inputs import topology_in_vm

OWN = Path("/run/x")
NICS = (GuestNic("nb-vi-s1", "02:6e:67:00:01:01"), GuestNic("nb-ve-s1", "02:6e:67:00:01:02"))
EMULATED = "model name\t: QEMU TCG CPU version 2.5+\n"


def options(**given) -> dict[str, str]:
    """Return the options that its VM is made with."""
    words = box_command(GuestSpec("g", OWN, NICS), VirtualBoxOptions.model_validate(given), "/d.iso")
    return {word: value for word, value in pairwise(words) if word.startswith("--") and not value.startswith("--")}


def guest(**more) -> VirtualBox:
    return VirtualBox(VirtualBoxOptions.model_validate(more))


class Lab(FakeHost):
    """A machine that records its commands, all of which succeed; `there` are its files."""

    def __init__(self, *there: str, cpuinfo: str = "", lacks: str = "") -> None:
        super().__init__(files={"/proc/cpuinfo": cpuinfo})
        self.there = set(there)
        self.sent: dict[str, bytes] = {}
        self.spawned: list[list[str]] = []
        self._lacks = lacks
        self.does = "echo 'VBoxManage: error: no such interface' >&2; exit 1"  # the command that starts a guest

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        self.commands.append(tuple(argv))
        if argv[0] == "mv":
            self.there.add(argv[2])
        fails = (argv[0] == "test" and argv[-1] not in self.there) or argv[0] == self._lacks
        return Completed(tuple(argv), int(fails), "7.2.22\n" if argv[0] == "VBoxManage" else "", "")

    def write(self, path: str, text: str) -> None:
        self.files[path] = text

    def send(self, source: Path, path: str) -> None:
        self.sent[path] = source.read_bytes()

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        self.spawned.append(list(argv))
        pipe = subprocess.PIPE
        return subprocess.Popen(["sh", "-c", self.does], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


class LabOverSsh(NetbenchCopied, Lab):
    """Such a machine to which netbench was brought."""


@pytest.fixture
def image(tmp_path) -> Image:
    for name in ("vmlinux", "vmlinuz", "initrd"):
        (tmp_path / name).write_bytes(name.encode())
    files = tmp_path / "vmlinux", tmp_path / "vmlinuz", tmp_path / "initrd"
    return Image("micro", tmp_path, *files, "6.1", "amd64", "0" * 64, {"files": {}})


def test_a_guest_is_what_its_options_say():
    wanted = {"--memory": "512", "--cpus": "2", "--cpu-execution-cap": "50", "--nested-paging": "off"}
    nics = {"--nic-type1": "virtio", "--mac-address2": "026e67000102", "--bridge-adapter1": "nb-vi-s1"}
    found = options(cpus=2, memory="512M", cpu_cap=50, nested_paging="off", paravirt_provider="none")
    assert {name: found[name] for name in (*wanted, *nics)} == {**wanted, **nics}
    assert found["--paravirt-provider"] == "none"
    assert found["--nic-promisc1"] == "allow-all", "or it would take no frames that are addressed to others"
    assert "--nic3" not in found


def test_all_that_serves_a_guest_ends_with_it_and_runs_where_it_may():
    spec = GuestSpec("g", OWN, host_cpus=(1, 3), cgroup_procs="/sys/fs/cgroup/nb/cgroup.procs")
    words = box_command(spec, VirtualBoxOptions(), "/d.iso")
    assert words[3] == "/run/x/pid"
    assert {"--pid", "--mount", "--kill-child"} <= set(words)
    assert words.index("taskset") < words.index("unshare")
    assert "1,3" in words
    assert "/sys/fs/cgroup/nb/cgroup.procs" in words


def test_the_script_gets_what_it_takes(tmp_path):
    """The programs print their arguments."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("VBoxManage", "VBoxHeadless", "mount"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/output\n')
        (tools / name).chmod(0o755)
    script = Path(virtualbox.__file__).with_name("guest.sh")
    argv = ["sh", str(script), str(tmp_path / "own"), "g", "/d.iso", "500", "--memory", "256"]
    subprocess.run(argv, check=True, env={"PATH": f"{tools}:/usr/bin:/bin"})
    output = (tmp_path / "output").read_text().splitlines()
    assert output[0].startswith("mount -t tmpfs")
    assert [line.split()[1] for line in output[1:]] == [
        "createvm",
        "modifyvm",
        "setextradata",
        "storagectl",
        "storageattach",
        "--startvm",
    ]
    assert output[2] == "VBoxManage modifyvm g --memory 256"
    assert output[3] == "VBoxManage setextradata g VBoxInternal/TM/HostHzMax 500"
    assert output[5].endswith("--medium /d.iso")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nic": "e1000"}, "virtio"),
        ({"cpu_cap": 0}, "greater than or equal to 1"),
        ({"nested_paging": "maybe"}, "'auto', 'on' or 'off'"),
        ({"image": "./disk.vdi"}, "pattern"),
        ({"accelerator": "kvm"}, "Extra inputs"),
        ({"forward": "xdp"}, "a guest cannot run"),
    ],
)
def test_what_it_cannot_be_is_refused(wrong, why):
    with pytest.raises(ValidationError, match=why):
        VirtualBoxOptions.model_validate(wrong)


def test_yaml_may_write_a_bare_off():
    assert VirtualBoxOptions.model_validate({"nested_paging": False}).nested_paging == "off"


def test_a_plan_names_the_pairs_its_namespace_and_the_vm():
    (path,) = stream_paths(topology_in_vm())
    planned = planned_commands(Guest(guest(nic="82540EM", cpu_cap=60)), Assignment("g", (path,)))
    (made,) = [command for command in planned if command.startswith("VBoxManage modifyvm g")]
    assert "--nic-type1 82540EM" in made
    assert "--cpu-execution-cap 60" in made
    own = next(command.split()[-1] for command in planned if command.startswith("ip netns add"))
    pairs = [shlex.split(command) for command in planned if "type veth" in command]
    assert [pair[pair.index("peer") + 3] for pair in pairs] == [own, own]
    addresses = [word for pair in pairs for word in pair if word.startswith("02:6e:")]
    assert len(set(addresses)) == 4, "no two interfaces share an address, and none has the guest's"
    assert not [address for address in addresses if address.startswith("02:6e:67")]


@pytest.mark.parametrize(
    ("cpuinfo", "paging", "provider", "timer_hz"), [(EMULATED, "off", "none", "500"), ("", "on", "default", "20000")]
)
def test_on_an_emulated_cpu_it_does_without_what_hangs_there(image, monkeypatch, cpuinfo, paging, provider, timer_hz):
    monkeypatch.setattr(virtualbox, "find_image", lambda name: image)
    lab = Lab(*LOADER, cpuinfo=cpuinfo)
    facts = guest().start(GuestSpec("g", Path("/run/x")), lab).facts()
    assert (facts["nested_paging"], facts["paravirt_provider"]) == (paging, provider)
    assert facts["max_timer_hz"] == timer_hz
    words = lab.spawned[0]
    assert words[words.index("--nested-paging") + 1] == paging
    assert words[words.index("g") + 2] == timer_hz
    chosen = guest(nested_paging="on").start(GuestSpec("g", Path("/run/x")), lab).facts()
    assert chosen["nested_paging"] == "on"


def test_a_vm_without_virtualbox_reports_which_image_has_it():
    with pytest.raises(MissingError, match="image build --name virtualbox"):
        guest().start(GuestSpec("g", Path("/run/x")), Lab(lacks="which"))


@pytest.mark.parametrize(("kind", "loads"), [(Lab, True), (LabOverSsh, False)])
def test_modules_are_loaded_in_vms_alone(image, monkeypatch, kind, loads):
    """A host over SSH belongs to a user, who gets a list of what it lacks before anything is measured."""
    monkeypatch.setattr(virtualbox, "find_image", lambda name: image)
    lab = kind(*LOADER)
    guest().start(GuestSpec("g", Path("/run/x")), lab)
    assert (("modprobe", "vboxnetflt") in lab.commands) == loads
    needs = [need for need in VirtualBox.may_need if need.name in guest().needs()]
    signs = {sign for need in needs if isinstance(need, Facility) for sign in need.signs}
    assert {"VBoxHeadless", "/dev/vboxdrv", "/sys/module/vboxnetflt", *LOADER} <= signs


def test_a_disc_is_made_once_for_an_image_and_its_words(image):
    lab = Lab(*LOADER)
    disc = disc_of(image, KERNEL_WORDS, lab, OWN)
    assert disc_of(image, KERNEL_WORDS, lab, OWN) == disc
    assert len([command for command in lab.commands if command[0] == "xorriso"]) == 1
    assert KERNEL_WORDS in lab.files[f"{disc}.tree/isolinux.cfg"]
    assert lab.sent[f"{disc}.tree/vmlinuz"] == b"vmlinuz"
    assert disc_of(image, "other words", lab, OWN) != disc
    assert disc_of(replace(image, digest="1" * 64), KERNEL_WORDS, lab, OWN) != disc


def test_a_disc_that_cannot_be_made_leaves_nothing(image):
    with pytest.raises(MissingError, match="isolinux"):
        disc_of(image, KERNEL_WORDS, Lab(), OWN)
    lab = Lab(*LOADER, lacks="xorriso")
    with pytest.raises(TestbedError, match="xorriso"):
        disc_of(image, KERNEL_WORDS, lab, OWN)
    assert lab.commands[-1][:2] == ("rm", "-rf")


def test_one_that_virtualbox_refuses_reports_why_and_can_be_ended_twice():
    nic = GuestNic("nb-vi-s1", "02:6e:67:00:01:01")
    lab = Lab()
    running = VirtualBoxGuest(GuestSpec("g", Path("/run/x"), (nic,)), lab, VirtualBoxOptions(), "/d.iso", {})
    with pytest.raises(TestbedError, match=r"guest g: VirtualBox ended with exit code 1: VBoxManage: error: no such"):
        running.await_answer(10.0)
    running.stop()
    running.stop()
    assert running.console() == ""


def test_one_that_virtualbox_does_not_start_in_time_is_given_up_and_ended():
    lab = Lab()
    lab.does = "exec sleep 100"
    running = VirtualBoxGuest(GuestSpec("g", OWN), lab, VirtualBoxOptions(), "/d.iso", {})
    with pytest.raises(TestbedError, match=r"guest g: VirtualBox did not start it within 0.1 s"):
        running.await_answer(0.1)
    assert running.death() == ""
    running.stop()
    assert "exit code -9" in running.death()
