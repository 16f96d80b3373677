"""A disk image like one of a user, made for tests.

It boots by itself (GRUB, a kernel, an initramfs with an SSH server and qemu-ga): nothing of netbench runs in it.
"""

import shutil
import subprocess
from pathlib import Path

from netbench.images.build import ImageOrder, build
from netbench.images.initramfs import archive
from netbench.images.library import Image, cache_directory

NEEDED = ("grub-mkrescue", "xorriso", "mformat", "dropbearkey", "ssh-keygen")
LACKING = [tool for tool in NEEDED if shutil.which(tool) is None]
LACKING += [] if Path("/usr/lib/grub/i386-pc").is_dir() else ["grub-pc-bin"]

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


def its_image() -> Image:
    """The kernel and the programs of the disk, built if missing: `make test-platforms` builds them first."""
    # coreutils for its env: that of busybox runs busybox's own `ip` instead of iproute2's.
    order = ImageOrder("test-disk", cache_directory(), packages=("coreutils", "dropbear-bin", "qemu-guest-agent"))
    return build(order, print)


def make_disk(directory: Path) -> None:
    """Write disk.img there, the private key `key` that gives access to it, and its host key `host_key.pub`."""
    image = its_image()
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
    more = directory / "more"
    for path, content in {
        "disk-init": INIT.encode(),
        "udhcpc": DHCP.encode(),
        "host_key": (directory / "host_key").read_bytes(),
        "root/.ssh/authorized_keys": (directory / "key.pub").read_bytes(),
        "etc/shells": b"/bin/sh\n",
    }.items():
        (more / path).parent.mkdir(parents=True, exist_ok=True)
        (more / path).write_bytes(content)
        (more / path).chmod(0o755)
    (boot / "initrd").write_bytes(image.initrd.read_bytes() + archive(more))
    made = subprocess.run(
        ["grub-mkrescue", "-o", str(directory / "disk.img"), str(directory / "tree")],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr


if __name__ == "__main__":
    its_image()
