"""Guests from a user's own disk image, reached by SSH or through QEMU's guest agent.

The disk boots by itself (GRUB, a kernel, an initramfs with an SSH server and qemu-ga): nothing of netbench runs in it.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from netbench.images.build import Order, build
from netbench.images.library import cache_directory
from netbench.images.tree import File, archive
from tests.commands import netbench, rows, verdict_of
from tests.vm.test_guests import ONE, RAW, TOPOLOGY, reasons

NEEDED = ("grub-mkrescue", "xorriso", "mformat", "dropbearkey", "ssh-keygen")
LACKING = [tool for tool in NEEDED if shutil.which(tool) is None]
LACKING += [] if Path("/usr/lib/grub/i386-pc").is_dir() else ["grub-pc-bin"]
pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}: make test installs them"),
]

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
mkdir -p /dev/pts /etc/dropbear /var/run /run /root/.ssh
mount -t devpts devpts /dev/pts
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
modprobe -a virtio_pci virtio_net virtio_console
ip link set lo up
for nic in /sys/class/net/eth*; do
    nic=${nic##*/}
    [ "$(cat /sys/class/net/$nic/address)" = 02:6e:62:ff:ff:fe ] || continue
    ip link set $nic up
    udhcpc -i $nic -n -q -s /udhcpc
done
chmod 700 /root /root/.ssh
dropbear -R -E -s -r /host_key
for port in /sys/class/virtio-ports/*; do
    [ "$(cat $port/name)" = org.qemu.guest_agent.0 ] && agent=/dev/${port##*/}  # for want of udev
done
while :; do
    qemu-ga -m virtio-serial -p $agent -t /run -f /run/qga.pid || sleep 1
done
"""
DHCP = """#!/bin/sh
[ "$1" = bound ] && ip address add $ip/24 dev $interface
exit 0
"""
GRUB = """
set timeout=0
linux /boot/vmlinuz console=ttyS0 quiet panic=-1 no_timer_check rdinit=/disk-init
initrd /boot/initrd
boot
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A directory with disk.img, the private key `key` that it lets in, and its host key `host_key.pub`."""
    directory = tmp_path_factory.mktemp("disk")
    # coreutils for its env: that of busybox takes busybox's own `ip` for iproute2's.
    order = Order("test-disk", cache_directory(), packages=("coreutils", "dropbear-bin", "qemu-guest-agent"))
    image = build(order, lambda line: None)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
    for name in ("key", "other"):
        subprocess.run([*keygen, str(directory / name)], check=True)
    subprocess.run(["dropbearkey", "-t", "ed25519", "-f", str(directory / "host_key")], check=True, capture_output=True)
    public = subprocess.run(["dropbearkey", "-y", "-f", str(directory / "host_key")], capture_output=True, check=True)
    keys = [line for line in public.stdout.splitlines() if line.startswith(b"ssh-")]
    (directory / "host_key.pub").write_bytes(keys[0])
    boot = directory / "tree/boot"
    (boot / "grub").mkdir(parents=True)
    (boot / "grub/grub.cfg").write_text(GRUB)
    shutil.copyfile(image.vmlinuz, boot / "vmlinuz")
    more = archive(
        {
            "disk-init": File(INIT.encode(), executable=True),
            "udhcpc": File(DHCP.encode(), executable=True),
            "host_key": File((directory / "host_key").read_bytes()),
            "root/.ssh/authorized_keys": File((directory / "key.pub").read_bytes()),
            "etc/shells": File(b"/bin/sh\n"),
        }
    )
    (boot / "initrd").write_bytes(image.initrd.read_bytes() + more)
    made = subprocess.run(
        ["grub-mkrescue", "-o", str(directory / "disk.img"), str(directory / "tree")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    yield directory
    shutil.rmtree(image.directory)


def run(tmp_path, results, *uuts: str, **more):
    path = tmp_path / "guests.yaml"
    path.write_text(TOPOLOGY + "".join(f"  - {{{uut}}}\n" for uut in uuts))
    return netbench("run", path, "quick", "-o", results, *ONE, timeout_s=200, **more)


def described(disk: Path, channel: str) -> str:
    image = f"image: {disk / 'disk.img'}, disk_format: raw, memory: 512M"
    return f"name: guest, kind: qemu, forward: route, {image}, channel: {channel}"


def test_a_disk_image_is_reached_in_either_way_and_stays_what_it_was(disk, tmp_path):
    before = (disk / "disk.img").read_bytes()
    host_key = (disk / "host_key.pub").read_text().strip()
    channels = {
        "agent": "guest-agent",
        "ssh": f"{{kind: ssh, key: {disk / 'key'}, host_key: '{host_key}'}}",
    }
    uuts = [described(disk, channel).replace("name: guest", f"name: {name}") for name, channel in channels.items()]
    done = run(tmp_path, tmp_path / "results", *uuts)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(tmp_path / "results")
    for row in rows(tmp_path / "results"):
        assert (row["sent_frames"], row["received_frames"], verdict_of(row)) == ("500", "500", "valid"), row
        assert row["unexplained_frames"] == "0"
        assert float(row["cpu_guest_s"]) > 0
    assert [row["uut"] for row in rows(tmp_path / "results")] == ["agent", "ssh"]
    assert (disk / "disk.img").read_bytes() == before


def test_a_guest_whose_host_key_is_another_is_not_trusted(disk, tmp_path):
    foreign = " ".join((disk / "other.pub").read_text().split()[:2])
    channel = f"{{kind: ssh, key: {disk / 'key'}, host_key: '{foreign}'}}"
    done = run(tmp_path, tmp_path / "results", described(disk, channel), RAW)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [(row["uut"], verdict_of(row)) for row in rows(tmp_path / "results")] == [
        ("guest", "invalid"),
        ("raw", "valid"),
    ]
    assert "no way in by SSH" in reasons(tmp_path / "results")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("image: /no/such.qcow2, channel: guest-agent", "there is no disk image /no/such.qcow2"),
        ("image: ./x.img", "a disk image needs one"),
        ("channel: guest-agent", "it is for a disk image"),
        ("image: /etc/hostname, channel: {kind: ssh, key: /no/key, host_key: 'ssh-ed25519 AAAA'}", "no key /no/key"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(tmp_path, line, words):
    done = run(tmp_path, tmp_path / "results", f"name: guest, kind: qemu, {line}", env=dict(os.environ))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "results").exists()
