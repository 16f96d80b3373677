"""A private libvirtd: it keeps all files in one directory, and its domains end with it."""

from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import confined
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.vmm.base import GuestSpec

_SCRIPT, _PLACES = (Path(__file__).with_name(f"libvirt_{name}.sh") for name in ("daemon", "places"))
_START_S = 20.0
_LAST_WORDS_S = 1.0


def driver_sign(name: str) -> str:
    """Return the path patterns of libvirt's driver `name` in the common distributions."""
    library = f"libvirt/connection-driver/libvirt_driver_{name}.so"
    return f"/usr/lib/*/{library} /usr/lib*/{library}"


class PrivateDaemon:
    """One libvirtd, from start() to stop()."""

    def __init__(self, spec: GuestSpec) -> None:
        self._spec = spec
        self._script = _SCRIPT  # its path on the host
        self._process: Process | None = None
        self._complaint: Tail | None = None

    @property
    def uri(self) -> str:
        """The URI of its QEMU driver."""
        return f"qemu+unix:///system?socket={self._socket}"

    @property
    def command(self) -> list[str]:
        """The command that runs it, in its own mount and PID namespaces, on the guest's CPUs."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return confined(
            [*apart, "sh", str(self._script), str(self._spec.directory)], self._spec.host_cpus, self._spec.door
        )

    @property
    def _socket(self) -> Path:
        return self._spec.directory / "libvirt-sock"

    def start(self, host: Host) -> None:
        """Start it; TestbedError, with its last output, when it does not listen."""
        self._host = host
        if not host.shares_files:
            self._script = self._spec.directory / _SCRIPT.name
            for script in (_SCRIPT, _PLACES):
                host.write(str(self._spec.directory / script.name), script.read_text())
        self._process = host.spawn(self.command)
        assert self._process.stderr is not None
        self._complaint = Tail(self._process.stderr)
        if not wait_until(lambda: self._listens() or bool(self.death()), _START_S) or self.death():
            raise TestbedError(self.death() or f"{self._spec.title}: its libvirtd does not listen after {_START_S:g} s")

    def _listens(self) -> bool:
        """Return whether it accepts connections; the socket file appears a moment earlier."""
        try:
            connect(self._host, str(self._socket)).close()
        except TestbedError:
            return False
        return True

    def death(self) -> str:
        """Return how it ended, with its last output; empty while it runs."""
        code = self._process.poll() if self._process else None
        if code is None or self._complaint is None:
            return ""
        words = [line for line in self._complaint.text(_LAST_WORDS_S).splitlines() if line]
        return f"{self._spec.title}: its libvirtd ended with exit code {code}" + (f": {words[-1]}" if words else "")

    def stop(self) -> None:
        """End it and its domain; harmless when it has ended."""
        if self._process:
            self._process.kill()
            end(self._process, _START_S)
            self._process = None
