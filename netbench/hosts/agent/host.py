"""A machine reached through the agent inside it: its commands, processes and files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import AgentChannel, Clocks, NoAnswerError
from netbench.hosts.agent.process import GuestProcess
from netbench.hosts.base import Completed, GoneError, Remote, load, save
from netbench.model.foreign_text import decoded, encoded

_FILE_S = 120.0
_LONGEST_FILE = 4 << 30  # a capture, which is in memory for a moment
_SIGN_OF_LIFE_S = 15.0  # a machine with an emulated CPU that runs guests itself may take that long


class AgentHost(Remote):
    """The machine itself, outside any of its namespaces.

    Every method raises TestbedError when the agent does not answer in time, and GoneError when the machine has gone or
    hangs.
    """

    def __init__(self, name: str, channel: AgentChannel) -> None:
        super().__init__(name, channel.machine)
        self._channel = channel

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        self._channel.hello(limit_s, hopeless)

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        with self._sign_of_life():
            return self._channel.run(argv, encoded(stdin), timeout_s)

    def spawn(self, argv: Sequence[str]) -> GuestProcess:
        """Start a command; it ends with the guest at the latest."""
        return GuestProcess(self._channel, argv)

    def read(self, path: str) -> str:
        with self._sign_of_life():
            return decoded(self._channel.get(path))

    def write(self, path: str, text: str) -> None:
        with self._sign_of_life():
            self._channel.put(path, encoded(text))

    def fetch(self, path: str, target: Path) -> None:
        with self._sign_of_life():
            data = self._channel.get(path, _FILE_S, _LONGEST_FILE)
        save(target, data)

    def send(self, source: Path, path: str) -> None:
        data = load(source)
        with self._sign_of_life():
            # Not `put`, which sends one message: a file may exceed the maximum of a message.
            done = self._channel.run(["dd", f"of={path}", "bs=1M", "iflag=fullblock", "status=none"], data, _FILE_S)
        if done.exit_code:
            raise TestbedError(f"{self}: {path} cannot be written: {done.stderr.strip()}")

    def clocks(self) -> Clocks:
        """Return its clocks."""
        return self._channel.clocks(_SIGN_OF_LIFE_S)

    def close(self) -> None:
        self._channel.close()

    @contextmanager
    def _sign_of_life(self) -> Iterator[None]:
        """Distinguish a slow command from a machine that hangs: the latter is given up, so that no one waits again."""
        try:
            yield
        except NoAnswerError as error:
            try:
                self._channel.clocks(_SIGN_OF_LIFE_S)
            except TestbedError:
                why = f"it hangs: no sign of life within {_SIGN_OF_LIFE_S:g} s"
                self._channel.give_up(why)
                raise GoneError(f"{error}, and {why}") from error
            raise
