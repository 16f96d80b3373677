"""Containers by LXC."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from netbench.hosts.base import Host, run_checked
from netbench.hosts.local import MARK
from netbench.linux.proc import processes_of
from netbench.vmm.base import GuestSpec
from netbench.vmm.container.runtime import DIRECTORY, Root, Runtime, host_name, within

# Blanks separate the fields of a mount (fstab(5)).
_ESCAPED = str.maketrans({" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134"})


class Lxc(Runtime):
    """Plain `lxc-start`, whose container ends with it (PR_SET_PDEATHSIG).

    It sees no control groups and so makes none: the container stays in the group that it is started in.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"lxc-start"})
    version: ClassVar[tuple[str, ...]] = ("lxc-start", "--version")

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        run_checked(machine, ["mkdir", str(spec.directory / "mount")])

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], cgroups: Sequence[str]) -> list[str]:
        words = [word for key, value in _settings(host_name(spec), root) for word in ("--define", f"lxc.{key}={value}")]
        where = ("--name", spec.own_netns, "--lxcpath", DIRECTORY, "--rcfile", "/dev/null")
        return within(["lxc-start", "--foreground", *where, *words, "--", *init], spec, cgroups)

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        return [process.pid for process in processes_of(machine) if process.parent == runtime]


def _settings(called: str, root: Root) -> Iterator[tuple[str, str]]:
    """Yield the settings of a container (lxc.container.conf(5))."""
    yield "uts.name", called
    yield "rootfs.path", f"dir:{DIRECTORY}/root"
    yield "rootfs.mount", f"{DIRECTORY}/mount"  # by default below /usr, which is mounted in it
    yield "rootfs.options", "ro"
    yield "net.0.type", "none"  # the network namespace exists already
    yield "apparmor.profile", "unconfined"
    yield "mount.auto", "proc:rw sys:rw"  # their files configure how its kernel forwards
    yield "autodev", "1"
    yield "pty.max", "0"
    yield "console.path", "none"
    yield "environment", MARK  # for `netbench clean` to find its processes
    for name in root.shared:
        yield "mount.entry", f"{str(root.source / name).translate(_ESCAPED)} {name} none rbind,ro 0 0"
    for name, mode in (("run", "755"), ("tmp", "1777"), ("var/tmp", "1777")):
        yield "mount.entry", f"tmpfs {name} tmpfs rw,nosuid,nodev,mode={mode} 0 0"
