"""Control groups."""

import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.linux.cgroups import USUAL_DIRECTORY, CpuController, find_controller
from netbench.linux.changes.base import InNamespace, Look, not_ours
from netbench.model.names import PREFIX

_EMPTY_S = 5.0

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class AddCgroup(InNamespace):
    """A control group of netbench's own for the processes of one guest: a weight and a limit of CPU time, None: usual.

    Until they are found, `directory` and `version` are those of most machines. `switched_on` says that groups of
    version 2 had no cpu controller there before.
    """

    name: str
    weight: int | None = None
    limit: float | None = None
    directory: str = USUAL_DIRECTORY
    version: int = 2
    switched_on: bool = False

    @property
    def path(self) -> str:
        """Its own directory."""
        return f"{self.directory}/{self.name}"

    @property
    def command(self) -> str:
        told = [f"echo {text} >{self.path}/{file}" for file, text in self._settings]
        return " && ".join([shlex.join(("mkdir", self.path)), *told])

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(CpuController(self.directory, self.version).settings(self.weight, self.limit))

    @property
    def _switch(self) -> str:
        return f"{self.directory}/cgroup.subtree_control"

    def found(self, look: Look) -> Self:
        host = look.host
        controller = find_controller(host)
        change = replace(self, directory=controller.directory, version=controller.version)
        if host.run(["test", "-e", change.path]).exit_code == 0:
            raise not_ours(f"the control group {change.path}")
        return replace(change, switched_on=change.version == 2 and "cpu" not in host.read(change._switch).split())

    def make(self, host: Host) -> None:
        if self.switched_on:
            try:
                host.write(self._switch, "+cpu")
            except TestbedError as error:
                raise TestbedError(
                    f"the cpu controller cannot be switched on for control groups in {self.directory} ({error}): "
                    "switch it on yourself, or leave cpu_weight and cpu_limit out of the topology"
                ) from error
        run_checked(host, ["mkdir", self.path])
        for file, text in self._settings:
            host.write(f"{self.path}/{file}", text)

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name:
            return

        def removed() -> bool:
            there = host.run(["test", "-d", self.path]).exit_code == 0
            return not there or host.run(["rmdir", self.path]).exit_code == 0

        if not wait_until(removed, _EMPTY_S, _POLL_S):
            inside = ", ".join(host.read(f"{self.path}/cgroup.procs").split())
            raise TestbedError(f"the control group {self.path} is still used by the processes {inside or 'unknown'}")
        if self.switched_on:
            others = [name for name in host.run(["ls", self.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # refused where somebody else has come to use it
                if not others:
                    host.write(self._switch, "-cpu")
