"""A VM as a host: commands, processes and files of the guest, and of network namespaces inside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.agent.channel import AgentChannel, ChannelGoneError, NoAnswerError
from netbench.hosts.agent.process import GuestProcess
from netbench.hosts.base import Completed, run_checked

_FILE_S = 120.0
_SIGN_OF_LIFE_S = 5.0


class VmHost:
    """The guest itself, outside any namespace of its own.

    Every method raises TestbedError when the guest does not answer in time, and MachineGoneError, which says how it
    ended, when it has died or hangs.
    """

    def __init__(self, name: str, channel: AgentChannel, death: Callable[[], str]) -> None:
        """`death` says how the guest ended, waiting a moment for its end; empty when it still runs."""
        self._name = name
        self._channel = channel
        self._death = death

    @property
    def name(self) -> str:
        """The name the topology gives it."""
        return self._name

    @property
    def netns(self) -> str | None:
        """None: outside any namespace."""
        return None

    @property
    def shares_files(self) -> bool:
        """Its files are its own."""
        return False

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it cannot start or takes too long."""
        with self._explained():
            ended = self._channel.run(self._command(argv), stdin.encode(), timeout_s)
        words = (written.decode(errors="replace") for written in (ended.stdout, ended.stderr))
        return Completed(tuple(argv), ended.exit_code, *words)

    def spawn(self, argv: Sequence[str]) -> GuestProcess:
        """Start a command; it ends with the guest at the latest."""
        with self._explained():
            return GuestProcess(self._channel, self._command(argv))

    def read(self, path: str) -> str:
        """The text of a file; TestbedError when it cannot be read."""
        with self._explained():
            return self._channel.get(path).decode(errors="replace")

    def write(self, path: str, text: str) -> None:
        """Write a file; TestbedError when it cannot be written."""
        with self._explained():
            self._channel.put(path, text.encode())

    def fetch(self, path: str, target: Path) -> None:
        """Bring a file of the guest to this machine; TestbedError when that fails."""
        with self._explained():
            data = self._channel.get(path, _FILE_S)
        try:
            target.write_bytes(data)
        except OSError as error:
            raise TestbedError(f"{target} cannot be written: {error.strerror}") from error

    def _command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except NoAnswerError as error:
            try:
                self._channel.clocks(_SIGN_OF_LIFE_S)
            except TestbedError:
                why = f"it hangs: no sign of life within {_SIGN_OF_LIFE_S:g} s"
                self._channel.give_up(why)
                raise MachineGoneError(self._death() or f"{error}, and {why}") from error
            raise
        except ChannelGoneError as error:
            raise MachineGoneError(self._death() or str(error)) from error


class VmNamespaceHost(VmHost):
    """A network namespace inside a guest; files and CPUs are the guest's own."""

    def __init__(self, name: str, channel: AgentChannel, death: Callable[[], str], netns: str) -> None:
        super().__init__(name, channel, death)
        self._netns = netns

    @property
    def netns(self) -> str | None:
        """The name of the namespace inside the guest."""
        return self._netns

    def read(self, path: str) -> str:
        """The text of a file as seen from inside the namespace; TestbedError when it cannot be read."""
        return run_checked(self, ["cat", path])

    def write(self, path: str, text: str) -> None:
        """Write a file as seen from inside the namespace; TestbedError when it cannot be written."""
        # Not tee: that of busybox calls every errno an I/O error.
        run_checked(self, ["dd", f"of={path}", "bs=1M", "iflag=fullblock", "status=none"], stdin=text)

    def _command(self, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._netns, *argv]
