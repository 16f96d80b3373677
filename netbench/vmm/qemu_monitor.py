"""QEMU's monitor: the state of a guest and its vCPU threads."""

from pathlib import Path

from netbench.hosts.qmp import QmpConnection


class Monitor:
    """A connection to the monitor of one guest. Every method raises TestbedError when QEMU does not answer."""

    def __init__(self, guest: str, path: Path) -> None:
        self._connection = QmpConnection(f"{guest}: QEMU's monitor", path, greets=True)

    def status(self) -> str:
        """The run state: `running`, `paused`, `internal-error`, …"""
        return str(self._connection.command("query-status")["status"])

    def vcpu_threads(self) -> list[int]:
        """The thread ids of the vCPUs, in order."""
        return [int(cpu["thread-id"]) for cpu in self._connection.command("query-cpus-fast")]

    def close(self) -> None:
        """End the connection; harmless when QEMU has gone."""
        self._connection.close()
