"""The command line of a guest, and the guests that a topology may request."""

import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.errors import UsageError
from netbench.hosts.base import Completed
from netbench.model.paths import PREFIX
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.uut.base import Assignment
from netbench.uut.guest import Guest
from netbench.uut.guest_links import guest_mac
from netbench.vmm.base import guest_directory
from netbench.vmm.qemu import qemu
from netbench.vmm.qemu.command import DiskBoot, KernelBoot, RunFiles, VirtualMachine, VirtualNic, qemu_command
from netbench.vmm.qemu.options import QemuOptions
from tests.unit.fakes import FakeHost, planned_commands
from tests.unit.inputs import topology, topology_in_vm

BOOT = KernelBoot(Path("/images/micro/vmlinux"), Path("/images/micro/initrd"))
FILES = RunFiles(Path("/run/x"))
MODELS = ["virtio-net-pci", "e1000", "vmxnet3", "rtl8139"]


@pytest.fixture(autouse=True)
def on_a_pc(monkeypatch):
    """Make this host a PC."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def options(guest: VirtualMachine) -> list[tuple[str, str]]:
    """The options of its command with their values; empty for those that have none."""
    _, *words = qemu_command(guest, FILES)
    return [
        (word, "" if after.startswith("-") else after)
        for word, after in pairwise([*words, "-"])
        if word.startswith("-")
    ]


def values(guest: VirtualMachine, option: str) -> list[str]:
    return [value for name, value in options(guest) if name == option]


def test_a_guest_of_netbenchs_own():
    guest = VirtualMachine("lab", BOOT, "tcg", 2, 512)
    assert qemu_command(guest, FILES)[0] == "qemu-system-x86_64"
    assert options(guest) == [
        ("-name", "lab,debug-threads=on"),
        ("-nodefaults", ""),
        ("-no-user-config", ""),
        ("-no-reboot", ""),
        ("-display", "none"),
        ("-M", "q35"),
        ("-accel", "tcg,thread=multi"),
        ("-cpu", "max"),
        ("-smp", "2"),
        ("-m", "512M"),
        ("-pidfile", "/run/x/pid"),
        ("-chardev", "socket,id=qmp,path=/run/x/qmp,server=on,wait=off"),
        ("-mon", "chardev=qmp,mode=control"),
        ("-chardev", "stdio,id=console,signal=off"),
        ("-serial", "chardev:console"),
        ("-kernel", "/images/micro/vmlinux"),
        ("-initrd", "/images/micro/initrd"),
        ("-append", "console=ttyS0 quiet panic=-1 no_timer_check netbench.channel=virtio:netbench.agent"),
        ("-device", "virtio-serial-pci"),
        ("-chardev", "socket,id=agent,path=/run/x/agent,server=on,wait=off"),
        ("-device", "virtserialport,chardev=agent,name=netbench.agent"),
    ]


@pytest.mark.parametrize(
    ("accelerator", "output"),
    [("kvm", ["kvm", "host"]), ("auto", ["ACCELERATOR", "CPU"])],
    ids=["the CPU of the host", "not known yet"],
)
def test_how_its_cpu_is_run(accelerator, output):
    guest = VirtualMachine("lab", BOOT, accelerator)
    assert [*values(guest, "-accel"), *values(guest, "-cpu")] == output


def test_on_arm_it_has_another_board_and_another_console(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    guest = VirtualMachine("lab", BOOT, "tcg")
    assert qemu_command(guest, FILES)[0] == "qemu-system-aarch64"
    assert values(guest, "-M") == ["virt"]
    assert values(guest, "-append")[0].startswith("console=ttyAMA0 ")


@given(st.integers(2, 64), st.booleans())
def test_queues_and_vhost(queues, vhost):
    """There are two vectors per queue, and two more."""
    nic = VirtualNic("nb-ti-s1", "02:6e:67:00:01:01", "virtio-net-pci", queues, vhost)
    guest = VirtualMachine("g", BOOT, "tcg", queues, nics=(nic,))
    (backend,) = values(guest, "-netdev")
    assert f",queues={queues}" in backend
    assert backend.endswith(",vhost=on") == vhost
    device = values(guest, "-device")[-1]
    assert device.endswith(f",mq=on,vectors={2 * queues + 2}")


@pytest.mark.parametrize("is_here", [True, False])
def test_macvtaps_are_opened_for_qemu_outside_its_directory(is_here):
    """That directory is below /run, where no device can be opened if that is mounted `nodev`."""
    nics = tuple(VirtualNic(name, "02:6e:67:00:01:01", "e1000", macvtap=True) for name in ("nb-mi-s1", "nb-me-s1"))
    guest = VirtualMachine("g", BOOT, "tcg", nics=nics)
    command = qemu_command(guest, FILES, FakeHost(is_here=is_here))
    opened = command.index("macvtap:nb-mi-s1")
    assert command[opened : opened + 4] == ["macvtap:nb-mi-s1", "macvtap:nb-me-s1", "--", "qemu-system-x86_64"]
    assert ("import os" in " ".join(command[:opened])) != is_here, "a host without netbench is given the program"
    assert [backend.split(",")[2] for backend in values(guest, "-netdev")] == ["fd=10", "fd=11"]


@given(st.lists(st.sampled_from(MODELS), max_size=9))
def test_every_nic_has_a_backend_of_its_own(models):
    nics = tuple(VirtualNic(f"nb-t{n}", f"02:6e:67:00:00:{n:02x}", model) for n, model in enumerate(models))
    guest = VirtualMachine("g", BOOT, "tcg", nics=nics)
    backends = values(guest, "-netdev")
    devices = [text for text in values(guest, "-device") if "netdev=" in text]
    for number, (nic, backend, device) in enumerate(zip(nics, backends, devices, strict=True)):
        assert backend == f"tap,id=nic{number},ifname={nic.tap},script=no,downscript=no"
        assert device == f"{nic.model},netdev=nic{number},mac={nic.mac}"


def test_a_disk_boots_by_itself_and_is_never_written():
    """A comma in its path is not the end of a value."""
    guest = VirtualMachine("g", DiskBoot(Path("/my/a,if=none,b.img"), "raw"), "tcg")
    assert values(guest, "-drive") == ["file=/my/a,,if=none,,b.img,format=raw,if=virtio,snapshot=on"]
    assert values(guest, "-kernel") == values(guest, "-append") == values(guest, "-netdev") == []
    assert values(guest, "-device")[-1] == "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"


def test_ssh_comes_in_by_a_nic_of_its_own_that_reaches_nothing_else():
    nic = VirtualNic("nb-ti-s1", guest_mac(stream_paths(topology())[0], "ingress"), "e1000")
    guest = VirtualMachine("g", DiskBoot(Path("/my/disk"), "raw", 40022), "tcg", nics=(nic,))
    user, _ = values(guest, "-netdev")
    assert user == "user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:40022-:22"
    macs = re.findall(r"mac=([0-9a-f:]+)", " ".join(values(guest, "-device")))
    assert len(set(macs)) == len(macs) == 2


def test_sockets_of_a_guest_have_paths_that_a_socket_can_have():
    """At most 107 bytes (unix(7)); ssh adds a dot and 16 characters to that of its control socket."""
    directory = guest_directory("x" * 60, f"uut-{'u' * 40}.{'n' * 12}")
    for path in (RunFiles(directory / "kvm-probe").channel, directory / f"s.{'x' * 16}"):
        assert len(str(path)) <= 107
    assert guest_directory("lab-20250101-000001", "a") != guest_directory("lab-20250101-000002", "a")


def read(**given) -> QemuOptions:
    return QemuOptions.model_validate(given)


DISK = {"image": "/my/disk.qcow2", "channel": "guest-agent"}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"nic": "ne2k_pci"}, "'virtio-net-pci', 'e1000', 'vmxnet3' or 'rtl8139'"),
        ({"nic": "e1000", "queues": 2, "cpus": 2}, "queues: e1000 over a tap has one queue; only virtio-net-pci has"),
        ({"nic": "vmxnet3", "queues": 2, "cpus": 2}, "queues: vmxnet3 over a tap has one queue"),
        ({"queues": 2}, "queues: 2 need as many vCPUs to serve them; cpus is 1"),
        ({"queues": 0}, "queues"),
        ({"queues": True}, "queues"),
        ({"nic": "rtl8139", "vhost": "on"}, "vhost: only virtio-net-pci can use it, not rtl8139"),
        ({"vhost": "perhaps"}, "'auto', 'on' or 'off'"),
        ({"cpus": 0}, "cpus"),
        ({"cpus": 256}, "cpus"),
        ({"cpus": "2"}, "cpus"),
        ({"memory": 256}, "needs a unit"),
        ({"memory": "15M"}, "memory"),
        ({"boot_limit": "0s"}, "boot_limit"),
        ({"boot_limit": "61min"}, "boot_limit"),
        ({"pin": {"vcpus": [[0], [1]]}}, "pin: vcpus names CPUs for 2 vCPUs; the guest has 1"),
        ({"pin": {"vcpus": [[-1]]}}, "pin.vcpus"),
        ({"pin": {"vcpu": [[0]]}}, "pin.vcpu"),
        ({"image": "/my/disk.qcow2"}, "channel: a disk image needs one: guest-agent, or {kind: ssh"),
        ({"channel": "guest-agent"}, "channel: netbench's own guest images have theirs"),
        ({**DISK, "channel": "telnet"}, "channel"),
        ({**DISK, "channel": "ssh"}, "channel.ssh.key"),
        ({**DISK, "channel": {"kind": "ssh", "key": "/k"}}, "channel.ssh.host_key"),
        ({**DISK, "channel": {"kind": "guest-agent", "key": "/k"}}, "channel.guest-agent.key"),
        ({**DISK, "disk_format": "exe"}, "disk_format"),
        ({"forward": "nat"}, "'bridge', 'route', 'flowtable' or 'tc'"),
        ({"accelerator": "xen"}, "'auto', 'kvm' or 'tcg'"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_no_guest_can_be_is_refused(given_, message):
    with pytest.raises(ValidationError) as refused:
        read(**given_)
    assert message in str(refused.value)


def test_what_a_guest_is_unless_reported_otherwise():
    plain = read()
    assert (plain.nic, plain.queues, plain.cpus, plain.memory) == ("virtio-net-pci", 1, 1, 256)
    assert (plain.image, plain.is_disk, plain.channel, plain.accelerator) == ("micro", False, None, "auto")


@pytest.mark.parametrize(("image", "is_disk"), [("micro", False), ("a.img", False), ("./a.img", True), ("/a", True)])
def test_an_image_with_a_slash_is_a_disk(image, is_disk):
    assert read(image=image, **({"channel": "guest-agent"} if is_disk else {})).is_disk is is_disk


PATHS = stream_paths(topology(2))
ENTER = 'echo 0 >"$0" && exec "$@"'


def made(options: QemuOptions) -> Guest:
    return Guest(qemu.Qemu(options))


def planned(**given) -> list[str]:
    return planned_commands(made(read(**given)), Assignment(paths=PATHS))


@pytest.fixture(params=[True, False], ids=["vhost", "no vhost"])
def vhost(request, monkeypatch, tmp_path):
    """Whether this host has vhost."""
    device = tmp_path / "vhost-net"
    if request.param:
        device.touch()
    monkeypatch.setattr(qemu, "VHOST_DEVICE", device)
    return request.param


@pytest.mark.parametrize("nic", MODELS)
@pytest.mark.parametrize("wanted", ["auto", "off"])
def test_vhost_is_taken_where_it_is_and_can_be(vhost, nic, wanted):
    (started,) = [line for line in planned(nic=nic, vhost=wanted) if line.startswith("qemu-system-")]
    assert started.count(f"-device {nic},netdev=") == 4
    assert started.count("vhost=on") == (4 if vhost and wanted == "auto" and nic == "virtio-net-pci" else 0)


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_each_nic_of_the_host_is_bridged_to_the_guest_by_a_tap(forward):
    """Static entries keep frames from being flooded: towards the guest on one side, the sink on the other."""
    lines = planned(forward=forward)
    for path in PATHS:
        towards = path.sink.mac if forward == "bridge" else guest_mac(path, "ingress")
        for role, nic, first in (("i", path.ingress, towards), ("e", path.egress, path.sink.mac)):
            tap, bridge = f"{PREFIX}t{role}-{path.name}", f"{PREFIX}b{role}-{path.name}"
            assert nic is not None
            in_order = [
                f"ip -n nb-lab-uut tuntap add dev {tap} mode tap vnet_hdr",
                f"ip -n nb-lab-uut link add {bridge} type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
                f"ip -n nb-lab-uut link set dev {nic.interface} master {bridge}",
                f"ip -n nb-lab-uut link set dev {tap} master {bridge}",
                f"ip -n nb-lab-uut link set dev {bridge} up",
            ]
            places = [lines.index(line) for line in in_order]
            assert places == sorted(places)
            entry = tap if role == "i" else nic.interface
            assert f"bridge -n nb-lab-uut fdb replace {first} dev {entry} master static" in lines
    assert max(len(name) for name in re.findall(r"nb-[a-z0-9-]+-s\d", " ".join(lines))) <= 15


def test_several_queues_are_those_of_tap_and_nic_alike():
    lines = planned(queues=4, cpus=4, vhost="off")
    assert sum(" tuntap add " in line and line.endswith(" multi_queue") for line in lines) == 4
    (started,) = [line for line in lines if line.startswith("qemu-system-")]
    assert started.count(",queues=4") == started.count(",mq=on,vectors=10") == 4


def test_nics_of_the_machine_itself_do_not_speak_up():
    """IPv6 of a bridge and of a tap would send frames of its own."""
    lab = topology(hosts={"source": {}, "uut": {"kind": "local"}, "sink": {}})
    lines = planned_commands(made(read()), Assignment(paths=stream_paths(lab)))
    quiet = [line for line in lines if line.startswith("sysctl -w net.ipv6.conf.nb-")]
    assert Counter(quiet) == Counter(
        f"sysctl -w net.ipv6.conf.nb-{kind}{role}-s1.disable_ipv6=1" for role in "ie" for kind in "bt"
    )


def test_loopback_is_brought_up_for_ssh_alone():
    ssh = {"kind": "ssh", "key": "/k", "host_key": "ssh-ed25519 AAAA"}
    assert "ip -n nb-lab-uut link set dev lo up" in planned(image="/my/disk", channel=ssh)
    assert "ip -n nb-lab-uut link set dev lo up" not in planned(**DISK)


def test_what_a_guest_may_take_of_the_cpus_is_part_of_its_command():
    lines = planned_commands(made(read()), Assignment("u.second", PATHS, CpuShares((1,), 50, 0.2)))
    group = "/sys/fs/cgroup/nb-RUN-u.second"
    assert f"mkdir {group} && echo 50 >{group}/cpu.weight && echo 20000 100000 >{group}/cpu.max" in lines
    (started,) = [line for line in lines if "qemu-system-x86_64" in line]
    words = shlex.split(started)
    assert words[:8] == ["sh", "-c", ENTER, f"{group}/cgroup.procs", "taskset", "-c", "1", "qemu-system-x86_64"]
    assert "mkdir -p -m 700 /run/netbench/vm/RUN-uut-u.second" in lines


def test_a_guest_without_streams_has_no_nics_and_is_reported_nothing():
    directory, started = planned_commands(made(read()), Assignment())
    assert directory == "mkdir -p -m 700 /run/netbench/vm/RUN-uut-NAME"
    assert started.startswith("qemu-system-x86_64 ")
    assert "netdev" not in started


def test_a_dry_run_needs_neither_the_image_nor_the_disk():
    (started,) = [line for line in planned(image="not-built") if line.startswith("qemu-system-")]
    assert "-kernel not-built/vmlinuz -initrd not-built/initrd" in started
    (started,) = [line for line in planned(**DISK) if line.startswith("qemu-system-")]
    assert "file=/my/disk.qcow2,format=qcow2" in started


def test_what_it_cannot_forward_on_is_refused(tmp_path):
    in_vm = stream_paths(topology_in_vm())
    made(read()).check(in_vm)
    with pytest.raises(UsageError, match="image: a VM that is a host has no disk images"):
        made(read(image="/a/disk", channel="guest-agent")).check(in_vm)
    made(read()).check(PATHS)
    disk, key = tmp_path / "disk", tmp_path / "key"
    ssh = {"kind": "ssh", "key": str(key), "host_key": "ssh-ed25519 AAAA"}
    guest = made(read(image=str(disk), channel=ssh))
    with pytest.raises(UsageError, match=f"image: there is no disk image {disk}"):
        guest.check(PATHS)
    disk.touch()
    with pytest.raises(UsageError, match=f"channel: there is no key {key}"):
        guest.check(PATHS)
    key.touch()
    guest.check(PATHS)


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ([], "-sandbox -run-with"),
        (["-run-with"], "-sandbox -runas"),
        (["-run-with", "-runas"], "-sandbox"),
        (["setpriv"], "-sandbox"),  # no such user
        (["-sandbox", "-run-with"], "-runas"),
        (["-sandbox", "-run-with", "-runas"], ""),
    ],
)
def test_qemu_gives_up_what_it_can(lacks, expected):
    class Host(FakeHost):
        def run(self, argv, *, stdin="", timeout_s=30.0):
            return Completed(tuple(argv), int(any(tool in argv for tool in lacks)), "", "")

    found = qemu.confinement(Host())
    assert " ".join(word for word in found.options if word.startswith("-")) == expected
    assert ("elevateprivileges=deny" in str(found.options)) is (expected == "-sandbox"), "who stays root gets no more"
    command = qemu_command(VirtualMachine("g", BOOT, "tcg", confinement=found), FILES)
    assert set(found.options) <= set(command)


def test_a_domain_0_boots_after_its_hypervisor_and_leaves_a_cpu_to_its_guests():
    boot = KernelBoot(Path("/i/vmlinux"), Path("/i/initrd"), Path("/i/hypervisor"))
    guest = VirtualMachine("lab", boot, "tcg", 2, 1536)
    assert values(guest, "-kernel") == ["/i/hypervisor"]
    (modules,) = values(guest, "-initrd")
    assert re.fullmatch(r"/i/vmlinux console=hvc0 .* netbench\.channel=virtio:netbench\.agent,/i/initrd", modules)
    assert (values(guest, "-M"), values(guest, "-cpu"), values(guest, "-smp")) == (
        ["pc"],
        ["max,-smap,-avx,-avx2"],
        ["3"],
    )
    (words,) = values(guest, "-append")
    assert {"dom0_mem=640M,max:640M", "dom0_max_vcpus=2", "dom0_vcpus_pin"} <= set(words.split())
