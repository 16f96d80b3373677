"""A machine over SSH as one that netbench changes and counts, whose changes are on record there."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.composed import Explained, Named
from netbench.hosts.ssh import Connecting, SshHost
from netbench.linux import guard
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.journal import Record, to_json
from netbench.linux.machine import Machine
from netbench.model.distributions import ClockDifference
from netbench.model.host_spec import SshSpec


class RemoteRecord(Record):
    """The record of changes on another machine, kept in a journal there by its guard, which undoes what is left."""

    def __init__(self, host: SshHost) -> None:
        super().__init__()
        self._host = host

    def record(self, change: Change) -> int:
        """As Record; TestbedError when it cannot be kept there."""
        kept = int(self._host.ask(b"J", json.dumps(to_json(change)).encode()))
        number = super().record(change)
        assert kept == number, "both count the changes of one run"
        return number

    def undone(self, number: int) -> None:
        """As Record."""
        with suppress(TestbedError):  # nobody is there: the guard undoes it, once more
            self._host.ask(b"J", json.dumps(number).encode())
        super().undone(number)


class RemoteMachine(Machine):
    """A machine over SSH; `close` ends the connection, and with it whatever was left there."""

    def __init__(self, name: str, address: str, connecting: Connecting) -> None:
        """MissingError when there is no way in."""
        self.ssh = connecting.host()
        self._connecting = connecting
        told = self.ssh.told
        host = Named(Explained(self.ssh, self.death, MachineGoneError), name)
        facts = {"ssh_address": address, "python": str(told["python"]), "clock": str(told["clock"])}
        super().__init__(name, host, record=RemoteRecord(self.ssh), cpus=tuple(told["cpus"]), facts=facts)
        self.make([AddRunDirectory(self.ssh.scratch)])

    def death(self) -> str:
        """Why it is lost; empty while it is not."""
        return self.ssh.given_up or self._connecting.death()

    @property
    def monotonic(self) -> ClockDifference:
        """As of every machine, by what it answers all the time."""
        return self.ssh.monotonic

    @property
    def realtime(self) -> ClockDifference:
        """Likewise."""
        return self.ssh.realtime

    def close(self) -> None:
        """Harmless when it is gone."""
        self.ssh.close()


def begin_connection(
    name: str, spec: SshSpec, here: Host, run: str, resources: Iterable[str], askpass: Path | None = None
) -> Connecting:
    """Begin to connect to a machine: ssh runs on `here`, `run` names the journal there, `resources` are locked."""
    directory = f"{guard.CODE_DIRECTORY}/{uuid4().hex[:12]}"
    arguments = [run, directory, f"{spec.silence_limit:g}", *resources]
    return Connecting(name, spec, here, directory, guard.__name__, arguments, askpass)
