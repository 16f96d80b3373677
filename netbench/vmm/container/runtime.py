"""Container runtimes: LXC, podman with crun, and the seam between a container and its runtime."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import MARK
from netbench.images.library import SHELF
from netbench.linux.changes import Change
from netbench.linux.proc import processes_of
from netbench.vmm.base import GuestSpec

# Directories of programs and of the files they read; symbolic links among them stay links.
_SHARED = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr")
_WHERE_USR_IS_MERGED = ("etc", "opt", "usr")
_OWN = ("dev", "proc", "root", "run", "sys", "tmp", "var/log", "var/tmp")
# Prints the type of each of the named paths that exists in a directory.
_LOOK = """
cd "$0" 2>/dev/null || exit 0
for name; do
    if [ -L "$name" ]; then
        echo "link $name $(readlink "$name")"
    elif [ -d "$name" ]; then
        echo "directory $name -"
    fi
done
"""
# Packed commands of a guest image unpack themselves at their first use. A container cannot do that, because it mounts
# them read-only: they are unpacked before.
_UNPACK = """
for packed in "/$0"/*.cpio.gz; do
    [ ! -e "$packed" ] || "$(basename "$packed" .cpio.gz)" --version >/dev/null || exit
done
"""


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system at `source` on a host: a container sees its programs, but neither its homes nor its /var.

    `shared` are the directories mounted from it; until detected, the usual ones. `links` are symbolic links, as pairs
    of name and target.
    """

    source: Path
    shared: tuple[str, ...] = _WHERE_USR_IS_MERGED
    links: tuple[tuple[str, str], ...] = ()

    @classmethod
    def found(cls, host: Host, source: Path) -> Self:
        """Return the root with its detected directories; with the usual ones if it has none."""
        listing = run_checked(host, ["sh", "-c", _LOOK, str(source), *_SHARED])
        seen = [line.split(" ", 2) for line in listing.splitlines()]
        shared = tuple(name for what, name, _ in seen if what == "directory")
        links = tuple((name, where) for what, name, where in seen if what == "link")
        return cls(source, shared or _WHERE_USR_IS_MERGED, links)

    def lay_out(self, host: Host, target: Path) -> None:
        """Make all mount points below `target` on a host, and the links; TestbedError.

        Shared commands that are still packed are unpacked.
        """
        if self.source == Path("/"):
            run_checked(host, ["sh", "-c", _UNPACK, SHELF])
        run_checked(host, ["mkdir", "-p", *(str(target / name) for name in (*_OWN, *self.shared))])
        for name, where in self.links:
            run_checked(host, ["ln", "-s", where, str(target / name)])


DIRECTORY = "/run"  # private to the guest and its runtime: the files of the runtime are removed with the guest
_LONGEST_HOST_NAME = 64  # sethostname(2); a neighbour's name is UUT.NEIGHBOUR


class Runtime(Protocol):
    """Runs one container by a foreground command in the container's network namespace, on any machine."""

    needs: ClassVar[frozenset[str]]  # requirements, as `netbench doctor` names them
    version: ClassVar[tuple[str, ...]]  # a command; the last word of its output is the version
    applies_cpu_shares: ClassVar[bool] = False  # as in a Vmm

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Return the changes it needs on the machine, apart from a directory and a network namespace."""
        return iter(())

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Write its configuration files below the guest's directory; TestbedError where that fails.

        `run_id` marks the processes of a run on that machine; empty where the machine ends with the run anyway.
        """

    def facts(self) -> dict[str, str]:
        """Return further facts for RunningGuest.facts(), known once it is prepared."""
        return {}

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], cgroups: Sequence[str]) -> list[str]:
        """Return the command that runs a container with the first process `init`.

        Its root is laid out in `root` of the guest's directory. The command runs on the guest's CPUs, and in its
        control groups, whose cgroup.procs files are `cgroups`.
        """

    def cgroup_procs(self, spec: GuestSpec) -> str:
        """Return the cgroup.procs file of the control group with the guest's CPU shares; empty: none."""
        return spec.cgroup_procs

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        """Return the container's first process, given the runtime's process; none before its start or after its end."""


def within(command: Sequence[str], spec: GuestSpec, cgroups: Sequence[str]) -> list[str]:
    """Return a command that runs another one on the guest's CPUs and in these control groups."""
    command = confined(command, spec.host_cpus, "")
    for procs in cgroups:
        command = confined(command, (), procs)
    return list(command)


def host_name(spec: GuestSpec) -> str:
    """Return the host name inside a container."""
    return spec.name[:_LONGEST_HOST_NAME]


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


# The defaults are /dev/shm for locks and /etc for networks. If podman is killed, conmon and the container stay:
# `netbench clean` finds conmon by the mark.
_CONFIGURATION = """\
[engine]
lock_type = "file"
conmon_env_vars = ["{mark}={run_id}"]
[network]
network_config_dir = "{directory}/networks"
"""
# conmon starts podman to clean up when the container ends. /bin/true replaces it, because everything is removed anyway.
_RUN = (
    'podman=$(command -v podman) && exec 9<"$podman" && mount --bind /bin/true "$podman" && exec /proc/self/fd/9 "$@"'
)
# The defaults may exceed the limits of the machine.
_LIMITS = "--ulimit nofile=1024:1024 --ulimit nproc=1000:1000"
_STORAGE = (
    f"--root {DIRECTORY}/storage --runroot {DIRECTORY}/runroot --tmpdir {DIRECTORY}/tmp --storage-driver vfs "
    "--cgroup-manager cgroupfs --runtime crun --events-backend none"
)
_NAMESPACES = "--cgroups disabled --network host --uts private"
_PLAIN = "--privileged --read-only --no-hosts --dns none --systemd false --log-driver none"
_CONFIGURATION_FILE, _PID_FILE = "containers.conf", "pid"


class Podman(Runtime):
    """`podman run` with separate storage, without an image, a registry, or a separate control group.

    Only crun works without a control group; runc would make one beside those of other software.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"podman", "crun"})
    version: ClassVar[tuple[str, ...]] = ("podman", "--version")

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        text = _CONFIGURATION.format(mark=MARK, run_id=run_id, directory=DIRECTORY)
        machine.write(str(spec.directory / _CONFIGURATION_FILE), text)

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], cgroups: Sequence[str]) -> list[str]:
        mounts = (f"--mount type=bind,src={root.source / path},dst=/{path},ro".split(" ", 1) for path in root.shared)
        configured = f"CONTAINERS_CONF={DIRECTORY}/{_CONFIGURATION_FILE}"
        command = [
            *("env", configured, "sh", "-c", _RUN, "podman", *_STORAGE.split(), "run", "--name", spec.own_netns),
            *(*_NAMESPACES.split(), "--hostname", host_name(spec), *_LIMITS.split(), *_PLAIN.split()),
            *("--pidfile", f"{DIRECTORY}/{_PID_FILE}", "--env", MARK, *(word for mount in mounts for word in mount)),
            *("--rootfs", f"{DIRECTORY}/root", *init),
        ]
        return within(command, spec, cgroups)

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        with suppress(TestbedError, ValueError):  # not written yet, or incomplete
            return [int(machine.read(str(directory / _PID_FILE)))]
        return []
