"""A machine over SSH that netbench changes and reads counters of; its changes are recorded there."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import MonitoredHost, NamedHost
from netbench.hosts.ssh import Connecting, SshHost
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.changes.base import ChangeRecord
from netbench.linux.machine import Machine
from netbench.linux.recovery_journal import to_json
from netbench.linux.watchdog import program
from netbench.model.distributions import ClockDifference
from netbench.model.host_spec import SshSpec


class RemoteRecord(ChangeRecord):
    """The record of changes on another machine, kept in a journal there by the watchdog, which undoes those left."""

    def __init__(self, host: SshHost) -> None:
        super().__init__()
        self._host = host

    def record(self, change: Change) -> int:
        """Record a change, as ChangeRecord does; TestbedError when it cannot be recorded there."""
        remote_number = int(self._host.channel.request(b"J", json.dumps(to_json(change)).encode()))
        number = super().record(change)
        assert remote_number == number, "both count the changes of one run"
        return number

    def undone(self, number: int) -> None:
        """Note that a change was undone, as ChangeRecord does."""
        with suppress(TestbedError):  # no connection: the watchdog undoes the change a second time
            self._host.channel.request(b"J", json.dumps(number).encode())
        super().undone(number)


class RemoteMachine(Machine):
    """A machine over SSH; `close` ends the connection, after which the watchdog undoes the remaining changes there."""

    def __init__(self, name: str, address: str, connecting: Connecting) -> None:
        """Raise MissingError when the connection fails."""
        self.ssh = connecting.host()
        self._connecting = connecting
        description = self.ssh.description
        host = NamedHost(MonitoredHost(self.ssh, self.death, MachineGoneError), name)
        facts = {"ssh_address": address, "python": str(description["python"]), "clock": str(description["clock"])}
        super().__init__(name, host, record=RemoteRecord(self.ssh), cpus=tuple(description["cpus"]), facts=facts)
        self.make([AddRunDirectory(self.ssh.scratch)])

    def death(self) -> str:
        """Return why it is lost; empty while it is not."""
        return self.ssh.channel.given_up or self._connecting.death()

    @property
    def monotonic(self) -> ClockDifference:
        """CLOCK_MONOTONIC there minus that of this machine, from its continual answers."""
        return self.ssh.clocks_compared.monotonic

    @property
    def realtime(self) -> ClockDifference:
        """CLOCK_REALTIME there minus that of this machine, likewise."""
        return self.ssh.clocks_compared.realtime

    def close(self) -> None:
        """Close the connection; harmless when the machine is gone."""
        self.ssh.close()


def begin_connection(
    name: str, spec: SshSpec, here: Host, run: str, resources: Iterable[str], askpass: Path | None = None
) -> Connecting:
    """Begin to connect to a machine: ssh runs on `here`, `run` names the journal there, `resources` are locked."""
    directory = f"{program.CODE_DIRECTORY}/{uuid4().hex[:12]}"
    arguments = [run, directory, f"{spec.silence_limit:g}", *resources]
    return Connecting(name, spec, here, directory, program.__name__, arguments, askpass)
