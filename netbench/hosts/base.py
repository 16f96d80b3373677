"""The seam between what is to be done and where it is done."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from netbench.errors import NetbenchError, TestbedError

_FILE_S = 120.0


class GoneError(TestbedError):
    """Nobody is at the other end any more: most likely the machine has died."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


class Process(Protocol):
    """A command that runs: what `subprocess.Popen` (text mode, pipes) offers, of which this is the part in use.

    The pipes have file descriptors that can be waited for with select(2).
    """

    @property
    def stdin(self) -> IO[str] | None:
        """What it reads; None when it has none."""

    @property
    def stdout(self) -> IO[str] | None:
        """What it writes."""

    @property
    def stderr(self) -> IO[str] | None:
        """What it complains."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, -N when signal N ended it; None as long as nobody asked since it ended."""

    def poll(self) -> int | None:
        """As returncode, asking now."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; subprocess.TimeoutExpired when that takes longer."""

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """All it still writes, once it has ended; subprocess.TimeoutExpired when that takes longer."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal; harmless when it has ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


class Host(Protocol):
    """A place where commands run and files are read and written: this machine, a guest, a namespace of either."""

    def __str__(self) -> str:
        """How messages call it: `host source`, `guest vm1`."""

    @property
    def name(self) -> str:
        """The name the topology gives it."""

    @property
    def netns(self) -> str | None:
        """Its named network namespace on its machine; None outside all."""

    @property
    def shares_files(self) -> bool:
        """Whether it sees the files and programs of this machine, as its namespaces do."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it cannot start or takes too long.

        The exit code is the caller's to judge; `run_checked` does it.
        """

    def spawn(self, argv: Sequence[str]) -> Process:
        """Start a command with pipes to its stdin, stdout and stderr; it dies when netbench dies."""

    def read(self, path: str) -> str:
        """The text of a file as this host sees it; TestbedError when it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file as this host sees it; TestbedError when it cannot be written."""

    def fetch(self, path: str, target: Path) -> None:
        """Bring a file of this host, of any content, to `target` on this machine; TestbedError when that fails.

        Does nothing when they are the same file.
        """

    def send(self, source: Path, path: str) -> None:
        """Bring a file of this machine, of any content, to `path` on the host; TestbedError when that fails.

        Does nothing when they are the same file.
        """


class Connection(Host, Protocol):
    """A host at the other end of something that must be waited for and closed. GoneError where nobody is there."""

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        """Return once it answers; TestbedError when it does not, or as soon as `hopeless` says why it cannot."""

    def close(self) -> None:
        """End the conversation; harmless when called twice."""


def run_checked(host: Host, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> str:
    """The output of a command that must succeed; TestbedError with its own words when it does not."""
    done = host.run(argv, stdin=stdin, timeout_s=timeout_s)
    if done.exit_code != 0:
        words = done.stderr.strip() or done.stdout.strip() or "no message"
        raise TestbedError(f"{host}: `{' '.join(argv)}` failed with exit code {done.exit_code}: {words}")
    return done.stdout


def exists(host: Host, path: str) -> bool:
    """Whether there is a file of any kind at `path` on a host."""
    return Path(path).exists() if host.shares_files else host.run(["test", "-e", path]).exit_code == 0


def kernel_of(host: Host) -> str:
    """The kernel of a host, its release and architecture; empty where it cannot be asked."""
    try:
        return " ".join(run_checked(host, ["uname", "-s", "-r", "-m"]).split())
    except NetbenchError:
        return ""


class Remote:
    """A machine of its own at the other end of something, outside any namespace; messages call it `title`."""

    def __init__(self, name: str, title: str) -> None:
        self._name = name
        self._title = title

    def __str__(self) -> str:
        return self._title

    @property
    def name(self) -> str:
        return self._name

    @property
    def netns(self) -> None:
        return None

    @property
    def shares_files(self) -> bool:
        return False


class FilesByCommand:
    """Files of hosts that only run commands."""

    def read(self: Host, path: str) -> str:
        return run_checked(self, ["cat", path])

    def write(self: Host, path: str, text: str) -> None:
        # Not tee: that of busybox calls every errno an I/O error.
        run_checked(self, ["dd", f"of={path}", "bs=1M", "iflag=fullblock", "status=none"], stdin=text)


class RemoteByCommand(FilesByCommand, Remote):
    """A remote machine that only runs commands: files are fetched by one as well."""

    def fetch(self: Host, path: str, target: Path) -> None:
        save(target, b64decode(run_checked(self, ["base64", path], timeout_s=_FILE_S)))

    def send(self: Host, source: Path, path: str) -> None:
        text = b64encode(load(source)).decode()
        run_checked(self, ["sh", "-c", 'base64 -d >"$0"', path], stdin=text, timeout_s=_FILE_S)


def save(target: Path, data: bytes) -> None:
    """Write a file of this machine; TestbedError when it cannot be written."""
    try:
        target.write_bytes(data)
    except OSError as error:
        raise TestbedError(f"{target} cannot be written: {error.strerror}") from error


def load(source: Path) -> bytes:
    """What a file of this machine holds; TestbedError when it cannot be read."""
    try:
        return source.read_bytes()
    except OSError as error:
        raise TestbedError(f"{source} cannot be read: {error.strerror}") from error
