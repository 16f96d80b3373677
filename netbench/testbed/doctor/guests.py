"""What guests need beside QEMU: an image to boot, and a CPU that is not emulated where there is one."""

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from netbench.errors import MissingError, NetbenchError
from netbench.hosts.local import LocalHost
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.cgroups import find_controller
from netbench.testbed.doctor.checks import Check, Status
from netbench.vmm.acceleration import choose
from netbench.vmm.qemu_command import VHOST_DEVICE

GUEST_NEEDS = ("kvm", "vhost", "cgroup-cpu")
_BUILD = "netbench image build"


def check_guests(needs: Collection[str] | None, euid: int) -> Iterator[Check]:
    """The guest images among the needs, KVM, vhost and CPU groups; all of it, and netbench's own image, for None."""
    images = [f"image:{DEFAULT_IMAGE}"] if needs is None else needs
    for name in sorted(need.removeprefix("image:") for need in images if need.startswith("image:")):
        yield _image(name, needed=needs is not None)
    if needs is None or "kvm" in needs:
        yield _kvm(euid, needed=needs is not None)
    if needs is None or "vhost" in needs:
        yield _vhost(needed=needs is not None)
    if needs is None or "cgroup-cpu" in needs:
        yield _groups(needed=needs is not None)


def _image(name: str, *, needed: bool) -> Check:
    needed_for = "guests and hosts that are VMs"
    try:
        image = find_image(name)
    except MissingError as error:
        status = Status.MISSING if needed else Status.ABSENT
        own = "" if name == DEFAULT_IMAGE else f" --name {name}"
        return Check(f"image:{name}", status, str(error), _BUILD + own, needed_for)
    found = f"kernel {image.kernel_release}, digest {image.digest[:12]}, in {image.directory}"
    return Check(f"image:{name}", Status.OK, found, "", needed_for)


def _kvm(euid: int, *, needed: bool) -> Check:
    """Only a guest that boots shows it, so one is booted, once for each boot of this machine."""
    needed_for = "guests whose CPU is not emulated"
    if euid != 0:
        return Check("kvm", Status.WARNING, "not tried: only root may start guests here", "", needed_for)
    try:
        with tempfile.TemporaryDirectory(prefix="netbench-doctor-") as directory:
            found = choose("auto", LocalHost("local", "doctor"), Path(directory))
    except NetbenchError as error:
        return Check("kvm", Status.WARNING, f"not tried: {error}", "", needed_for)
    if found.emulated:
        status = Status.MISSING if needed else Status.ABSENT
        remedy = "use a machine, or an outer VM, with hardware virtualisation; until then guests are emulated"
        return Check("kvm", status, found.why, remedy, needed_for)
    return Check("kvm", Status.OK, "a guest boots under it", "", needed_for)


def _vhost(*, needed: bool) -> Check:
    needed_for = "virtio NICs that the kernel serves, instead of QEMU"
    if VHOST_DEVICE.exists():
        return Check("vhost", Status.OK, str(VHOST_DEVICE), "", needed_for)
    status = Status.MISSING if needed else Status.ABSENT
    return Check("vhost", status, f"no {VHOST_DEVICE}", "modprobe vhost_net", needed_for)


def _groups(*, needed: bool) -> Check:
    needed_for = "guests with a weight or a limit of CPU time"
    try:
        found = find_controller(LocalHost("local", "doctor"))
    except NetbenchError as error:
        status = Status.MISSING if needed else Status.ABSENT
        return Check("cgroup-cpu", status, str(error), "mount -t cgroup2 cgroup2 /sys/fs/cgroup", needed_for)
    return Check("cgroup-cpu", Status.OK, f"version {found.version}, in {found.directory}", "", needed_for)
