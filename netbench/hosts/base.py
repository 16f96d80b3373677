"""The seam between commands and the place where they run."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from netbench.errors import Fault, NetbenchError, TestbedError

_FILE_S = 120.0
# Messages of the kernel, iproute2 and ethtool: the exit codes of commands do not distinguish these errors.
_FAULTS = {
    Fault.GONE: (
        "Cannot find device",
        "Cannot find bridge device",
        "no device matches name",
        "does not exist",
        "No such device",
        "No such file or directory",
        "No such process",
        "Cannot assign requested address",
        "Cannot delete qdisc with handle of zero",
        "Invalid handle",
        '" failed: Invalid argument',  # the file of a network namespace that was removed, or made, only in part
    ),
    Fault.EXISTS: ("File exists",),
    Fault.DENIED: ("Operation not permitted", "Permission denied", "Read-only file system"),
}


class GoneError(TestbedError):
    """The other end of a connection has gone: most likely the machine has died."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


class Process(Protocol):
    """A running command: the part in use of `subprocess.Popen` (text mode, pipes with file descriptors for select(2)).

    `returncode` is -N when signal N ended it, and None until poll() or wait() notices its end. wait() and communicate()
    raise subprocess.TimeoutExpired when the command takes longer. Signals also reach the processes that it has started,
    and are harmless when it has ended.
    """

    @property
    def stdin(self) -> IO[str] | None: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    @property
    def stderr(self) -> IO[str] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Host(Protocol):
    """A place where commands run and files are read and written: this machine, a guest, a namespace of either."""

    def __str__(self) -> str:
        """Its name in messages: `host source`, `guest vm1`."""

    @property
    def name(self) -> str:
        """Its name in the topology."""

    @property
    def netns(self) -> str | None:
        """Its named network namespace on its machine; None outside all."""

    @property
    def shares_files(self) -> bool:
        """Whether it sees the files and programs of this machine, as its namespaces do."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it cannot start or takes too long.

        The caller checks the exit code, or uses `run_checked`.
        """

    def spawn(self, argv: Sequence[str]) -> Process:
        """Start a command with pipes to its stdin, stdout and stderr; it dies when netbench dies."""

    def read(self, path: str) -> str:
        """Return the text of a file of this host; TestbedError when it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file of this host; TestbedError when it cannot be written."""

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file of this host, with any content, to `target` on this machine; TestbedError when that fails.

        It does nothing when they are the same file.
        """

    def send(self, source: Path, path: str) -> None:
        """Copy a file of this machine, with any content, to `path` on the host; TestbedError when that fails.

        It does nothing when they are the same file.
        """

    def share(self, source: Path, directory: str) -> str:
        """Return the path on the host of a file of this machine: its own path where the host sees the same files.

        Elsewhere it is copied into `directory`, once, and only as a whole; TestbedError when that fails.
        """


class Connection(Host, Protocol):
    """A host behind a connection that must be awaited and closed. GoneError when the other end has gone."""

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        """Return once it answers; TestbedError when it does not, or as soon as `hopeless` returns the cause."""

    def close(self) -> None:
        """Close the connection; harmless when called twice."""


def fault_in(words: str) -> Fault:
    """Return what a message of the kernel or of a tool means; the only place that reads it."""
    found = Fault.NONE
    for fault, signs in _FAULTS.items():
        if any(sign in words for sign in signs):
            found |= fault
    return found


def refusal(what: str, words: str | None) -> TestbedError:
    """Return the error for a request that the kernel or a tool refused with the message `words`."""
    return TestbedError(f"{what}: {words}", words=str(words), fault=fault_in(str(words)))


def run_checked(host: Host, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> str:
    """Return the output of a command that must succeed; TestbedError with its message when it does not."""
    done = host.run(argv, stdin=stdin, timeout_s=timeout_s)
    if done.exit_code != 0:
        message = done.stderr.strip() or done.stdout.strip() or "no message"
        raise refusal(f"{host}: `{' '.join(argv)}` failed with exit code {done.exit_code}", message)
    return done.stdout


def exists(host: Host, path: str) -> bool:
    """Return whether a file of any kind exists at `path` on a host."""
    return Path(path).exists() if host.shares_files else host.run(["test", "-e", path]).exit_code == 0


def machine_name(host: Host) -> str:
    """Return the name of a host on another machine, for keys and messages; empty for this machine."""
    return "" if host.shares_files else host.name


def kernel_of(host: Host) -> str:
    """Return the kernel release and architecture of a host; empty without an answer."""
    try:
        return " ".join(run_checked(host, ["uname", "-s", "-r", "-m"]).split())
    except NetbenchError:
        return ""


class Remote:
    """A machine behind a connection, outside any namespace; messages name it `title`."""

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

    def share(self: Host, source: Path, directory: str) -> str:
        path = f"{directory}/{source.name}"
        if not exists(self, path):
            run_checked(self, ["mkdir", "-p", directory])
            self.send(source, f"{path}.part")
            run_checked(self, ["mv", f"{path}.part", path])
        return path


class FilesByCommand:
    """File access for hosts that only run commands."""

    def read(self: Host, path: str) -> str:
        return run_checked(self, ["cat", path])

    def write(self: Host, path: str, text: str) -> None:
        # Not tee: busybox's reports every errno as an I/O error.
        run_checked(self, ["dd", f"of={path}", "bs=1M", "iflag=fullblock", "status=none"], stdin=text)


class RemoteByCommand(FilesByCommand, Remote):
    """A remote machine that only runs commands; files are copied by commands as well."""

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
        raise refusal(f"{target} cannot be written", error.strerror) from error


def load(source: Path) -> bytes:
    """Return the content of a file of this machine; TestbedError when it cannot be read."""
    try:
        return source.read_bytes()
    except OSError as error:
        raise refusal(f"{source} cannot be read", error.strerror) from error
