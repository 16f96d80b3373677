"""Containers by podman, with crun."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.local import MARK
from netbench.vmm.base import GuestSpec
from netbench.vmm.container.runtime import DIRECTORY, Root, Runtime, host_name, within

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
