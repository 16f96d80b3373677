"""Guest images from real packages: built twice alike, killed while they are built, booted with another kernel."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.images.library import cache_directory, find_image
from netbench.vmm.base import GuestSpec
from netbench.vmm.qemu.command import KernelBoot, VirtualMachine
from netbench.vmm.qemu.process import QemuGuest
from tests.commands import netbench, start
from tests.vm.lab import UnmarkedHost

pytestmark = pytest.mark.vm

# A kernel that is not Debian's default.
CLOUD = ("--kernel", "linux-image-cloud-amd64")


def build(cache, *arguments, **more):
    done = netbench("image", "build", "--cache", cache, *arguments, **more)
    if done.returncode == 3:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with an image of that kernel; packages that were downloaded before are not downloaded again."""
    directory = tmp_path_factory.mktemp("cache")
    if (packages := cache_directory() / "packages").is_dir():
        shutil.copytree(packages, directory / "packages")
    build(directory, *CLOUD)
    return directory


@pytest.fixture(scope="module")
def cloud(cache):
    return find_image("micro", cache)


def unfinished(cache):
    return set((cache / "images").glob(".building-*"))


def identity(cache):
    status = find_image("micro", cache).initrd.stat()
    return status.st_ino, status.st_mtime_ns


def test_what_is_up_to_date_is_left_alone(cache):
    before = identity(cache)
    assert "up to date" in build(cache, *CLOUD)
    assert identity(cache) == before


def test_builds_elsewhere_that_are_killed_and_one_that_others_wait_for(cache, tmp_path):
    """Killed ones leave the image of before; the last one gives the same bytes."""
    there = tmp_path / "cache"
    shutil.copytree(cache, there)
    before = identity(there)
    _is_killed(there, signal.SIGTERM, 143)
    assert (identity(there), unfinished(there)) == (before, set())
    _is_killed(there, signal.SIGKILL, -signal.SIGKILL)
    left = unfinished(there)
    assert (identity(there), len(left)) == (before, 1)
    environment = {**os.environ, "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "PYTHONHASHSEED": "7"}
    process = _begun(there, env=environment, umask=0o077)
    second = build(there, *CLOUD, timeout_s=240)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "waiting for its end" not in output
    assert "waiting for its end" in second
    assert "up to date" in second, "it has nothing to do"
    assert find_image("micro", there).digest in output
    assert identity(there) != before
    assert unfinished(there) == set()
    _have_the_same_bytes(find_image("micro", cache), find_image("micro", there))


def _is_killed(cache, signum, exit_code):
    process = _begun(cache)
    process.send_signal(signum)
    process.communicate(timeout=60)
    assert process.returncode == exit_code


def _begun(cache, **more):
    """Start a forced build of an image that is up to date, and wait for its first file."""
    left = unfinished(cache)
    process = start("image", "build", "--cache", cache, *CLOUD, "--force", **more)
    deadline = time.monotonic() + 60
    while not unfinished(cache) - left and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def _have_the_same_bytes(here, there):
    names = sorted(path.name for path in here.directory.iterdir())
    assert names == sorted(path.name for path in there.directory.iterdir())
    for name in names:
        assert (here.directory / name).read_bytes() == (there.directory / name).read_bytes(), name
    assert there.initrd.stat().st_mode & 0o777 == 0o644


def test_init_can_tell_that_an_archive_was_cut_short(cache):
    """By a directory that it looks for, which must be the last entry but the archive's end."""
    *_, last, end = find_image("micro", cache).initrd.read_bytes().split(b"070701")
    assert (last[104:].rstrip(b"\0"), b"TRAILER!!!" in end) == (b"var/log", True)


def test_what_cannot_be_in_a_guest_is_refused(cache):
    for arguments, complaint in [
        (("--kernel", "busybox"), "busybox is no kernel"),
        (("--kernel", "linux-image-nosuch"), "apt has no such package"),
        (("--package", "netbench-nosuch"), "apt has no such package"),
        (("--modules", "/lib/modules"), "name that by --kernel"),
        (("--name", "../outside"), "is no name of an image"),
    ]:
        done = netbench("image", "build", "--cache", cache, *arguments)
        assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


def test_another_kernel_from_a_package_and_from_files_is_the_same_guest(cache, cloud, tmp_path):
    (deb,) = (cache / "packages").glob(f"linux-image-{cloud.kernel_release}_*.deb")
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True)
    kernel, modules = (tmp_path / place / cloud.kernel_release for place in ("boot", "lib/modules"))
    build(cache, "--name", "files", "--kernel", kernel.with_name(f"vmlinuz-{kernel.name}"), "--modules", modules)
    assert find_image("files", cache).digest == cloud.digest
    assert cloud.kernel_release.endswith("-cloud-amd64")
    assert "e1000" in cloud.manifest["modules"]["absent"]
    listed = netbench("image", "list", "--cache", cache).stdout
    assert [line.split(":")[0] for line in listed.splitlines()] == ["files", "micro"]


@contextmanager
def booted(image, memory_mib):
    """A host for commands in a guest that was just started."""
    with tempfile.TemporaryDirectory(prefix="nbt-") as name:
        machine = VirtualMachine("image", KernelBoot(image.kernel, image.initrd), "tcg", 2, memory_mib)
        guest = QemuGuest(GuestSpec("image", Path(name)), machine, UnmarkedHost("here", "nbt-image"))
        try:
            guest.start()
            guest.connect_by(AgentHost("image", AgentChannel(guest.spec.title, guest.channel())), {})
            guest.await_answer(60)
            yield guest.host()
        finally:
            guest.stop()


# Commands that must work in a guest, with their output.
ABILITIES = {
    "ip link add v0 type veth peer name v1 && ip link add b0 type bridge && ip link set v0 master b0": "",
    "ip -br link show master b0 | cut -d' ' -f1": "v0@v1",
    "for dev in v0 v1 b0; do ip link set $dev up; done; cat /sys/class/net/v0/operstate": "up",
    "tc qdisc add dev v1 root netem delay 5ms 1ms distribution normal && tc qdisc show dev v1 | cut -d' ' -f2": "netem",
    "tc qdisc add dev v0 root tbf rate 10mbit burst 10k latency 10ms": "",
    "nft add table netdev n && nft 'add chain netdev n c { type filter hook ingress device v0 priority 0; }'": "",
    "nft add rule netdev n c numgen inc mod 100 '<' 7 drop && nft list ruleset | grep -c numgen": "1",
    "nft add table bridge n && nft 'add chain bridge n c { type filter hook forward priority 0; }'": "",
    "nft add rule bridge n c meta ibrname b0 counter drop": "",
    "modprobe pktgen && ls /proc/net/pktgen": "kpktgend_0\nkpktgend_1\npgctrl",
    "ip tuntap add t0 mode tap && ls -d /sys/class/net/t0": "/sys/class/net/t0",
    "tcpdump -i v0 -c 1 -w /tmp/x arp 2>/tmp/log & sleep 2; "
    'python3 -I -S -c \'import socket as s; x = s.socket(s.AF_PACKET, s.SOCK_RAW); x.bind(("v1", 0)); '
    'x.send(bytes(12) + b"\\x08\\x06" + bytes(46))\'; wait; grep captured /tmp/log': "1 packet captured",
    "for number in 1 2 3; do stress-ng --version | cut -d, -f1 & done; wait": "stress-ng\nstress-ng\nstress-ng",
    "stress-ng --quiet --cpu 1 --timeout 1 && ls /usr/lib/netbench/*stress*": "/usr/lib/netbench/stress-ng.cpio.gz",
    # Some of them need the same libraries; nginx is in another directory than the others.
    "(for number in 1 2; do iperf3 --version & nginx -v & sockperf --version & done; wait) 2>&1 | "
    "grep -oE '^(iperf 3|nginx version|sockperf, version)' | sort | uniq": "iperf 3\nnginx version\nsockperf, version",
    "ethtool -i v0 | head -n 1": "driver: veth",
    "stat -c %a /tmp; hostname; cat /sys/fs/cgroup/cgroup.controllers | grep -o cpuset": "1777\nnetbench-guest\ncpuset",
}


def test_a_guest_with_another_kernel_does_all_that_a_guest_is_for(cloud):
    with booted(cloud, 256) as channel:
        assert channel.run(["uname", "-r"]).stdout.strip() == cloud.kernel_release
        for command, output in ABILITIES.items():
            ended = channel.run(["sh", "-c", command], timeout_s=60)
            assert ended.exit_code == 0, (command, ended)
            assert (command, ended.stdout.strip(), ended.stderr) == (command, output, "")


def test_a_guest_with_too_little_memory_reports_so(cloud):
    with pytest.raises(TestbedError, match="too little memory for its initrd|unpacking failed"), booted(cloud, 160):
        pass
