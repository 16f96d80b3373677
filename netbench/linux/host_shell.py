"""The way into a UUT that is a host's own kernel: commands on that host."""

from collections.abc import Callable, Sequence

from netbench.hosts.agent.channel import Ended
from netbench.hosts.base import Host
from netbench.linux.cgroups import confined


class HostShell:
    """Commands on a host, bound to CPUs (empty: any) and in a control group, which `door` is the file to enter by."""

    def __init__(self, host: Host, cpus: Sequence[int] = (), door: str = "") -> None:
        self._host = host
        self._cpus = tuple(cpus)
        self._door = door

    def hello(self, timeout_s: float, hopeless: Callable[[], str]) -> None:
        """It is there."""

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 20.0) -> Ended:
        """Run a command to its end; TestbedError when it cannot start or takes too long."""
        done = self._host.run(confined(argv, self._cpus, self._door), stdin=stdin.decode(), timeout_s=timeout_s)
        return Ended(done.exit_code, done.stdout.encode(), done.stderr.encode())

    def close(self) -> None:
        """Nothing to end."""
