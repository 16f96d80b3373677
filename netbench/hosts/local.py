"""This machine, in netbench's own network namespace, and the processes that a run has started on it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed, refusal
from netbench.hosts.clock import wait_until
from netbench.hosts.trusted_code import search_path
from netbench.model.foreign_text import ENCODING, ERRORS, encoded, read_text
from netbench.signals import STOPPING, shielded

# Every process of a run has the run's id in this environment variable. `clean` recognises processes of a killed run by
# it, and by nothing else.
MARK = "NETBENCH_RUN"
# Restarts of a command that undoes changes. A signal that reaches it before it has left netbench's session is blocked,
# but a shell unblocks it once it has waited for a command.
_RESTARTS = 30


class _SessionLeader(subprocess.Popen[str]):
    """A process that leads its own session: signals reach the whole process group."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to it and to the processes it has started; harmless when it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # another thread has just noticed its end
                os.killpg(self.pid, sig)


class LocalHost:
    """The machine itself. `scratch` is a directory that is removed with the run; empty without one."""

    def __init__(self, name: str, run_id: str, scratch: str = "") -> None:
        self._name = name
        self.scratch = scratch
        self._environment = {**os.environ, "LC_ALL": "C", "PATH": search_path(), MARK: run_id}

    def __str__(self) -> str:
        return f"host {self._name}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def netns(self) -> None:
        return None

    @property
    def shares_files(self) -> bool:
        return True

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command, as every host does; MissingError when the command does not exist."""
        with shielded() as shield:
            is_undo = shield.depth > 1
        done = self._run(argv, stdin, timeout_s, is_undo=is_undo)
        for _ in range(_RESTARTS if is_undo else 0):
            if -done.exit_code not in STOPPING:
                break
            done = self._run(argv, stdin, timeout_s, is_undo=is_undo)
        return done

    def _run(self, argv: Sequence[str], stdin: str, timeout_s: float, *, is_undo: bool) -> Completed:
        # Shielded, because a signal could arrive before there is a process to kill.
        with shielded() as shield, self._started_unnoticed(argv, is_undo=is_undo) as process:
            try:
                with shield.lifted():
                    stdout, stderr = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired as error:
                raise TestbedError(f"{self}: `{' '.join(argv)}` did not end within {timeout_s:g} s") from error
            finally:
                process.kill()
        return Completed(tuple(argv), process.returncode, stdout, stderr)

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command; the kernel kills it when netbench dies, for any reason (PR_SET_PDEATHSIG)."""
        return self._start(["setpriv", "--pdeathsig", "KILL", *argv], argv)

    def _started_unnoticed(self, argv: Sequence[str], *, is_undo: bool) -> _SessionLeader:
        """Start a command that Ctrl-C and Ctrl-\\ do not reach, even before it has left netbench's session.

        A command that undoes changes is protected from all signals that stop netbench. Other commands inherit no
        blocked SIGTERM, because it ends the daemons that they start.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING if is_undo else [signal.SIGINT, signal.SIGQUIT])
        try:
            return self._start(argv, argv)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, command: Sequence[str], argv: Sequence[str]) -> _SessionLeader:
        """Start `command`, which runs `argv`, with pipes."""
        require_tool(command[0])
        require_tool(argv[0])
        try:
            # Its own session: netbench handles Ctrl-C at the terminal, not the child.
            return _SessionLeader(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding=ENCODING,
                errors=ERRORS,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise refusal(f"{self}: `{' '.join(argv)}` cannot start", error.strerror) from error

    def read(self, path: str) -> str:
        try:
            return read_text(Path(path))
        except OSError as error:
            raise refusal(f"{self}: {path} cannot be read", error.strerror) from error

    def write(self, path: str, text: str) -> None:
        try:
            Path(path).write_bytes(encoded(text))
        except OSError as error:
            raise refusal(f"{self}: {path} cannot be written", error.strerror) from error

    def fetch(self, path: str, target: Path) -> None:
        try:
            shutil.copyfile(path, target)
        except shutil.SameFileError:
            return
        except OSError as error:
            raise refusal(f"{self}: {path} cannot be copied to {target}", error.strerror) from error

    def send(self, source: Path, path: str) -> None:
        self.fetch(str(source), Path(path))

    def share(self, source: Path, directory: str) -> str:
        return str(source)


def require_tool(name: str) -> None:
    """Raise MissingError unless the command `name` is on this machine."""
    if shutil.which(name, path=search_path()) is None:
        raise MissingError(f"the command `{name}` is not on this host; `netbench doctor` prints how to install it")


def marked_processes(run_id: str) -> Iterator[tuple[int, str]]:
    """Yield process id and command line of every process that this run started and that still exists."""
    mark = f"{MARK}={run_id}".encode()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                yield int(directory.name), read_text(directory / "cmdline").replace("\0", " ").strip()
        except OSError:
            continue  # ended meanwhile, or not readable


def end_marked_processes(run_id: str, limit_s: float = 2.0) -> list[str]:
    """Kill the processes of a run and wait until they are gone; return the command lines of those ended."""
    ended = []
    for pid, command in list(marked_processes(run_id)):
        try:
            os.kill(pid, signal.SIGKILL)
            ended.append(command)
        except ProcessLookupError:
            continue
    wait_until(lambda: not any(marked_processes(run_id)), limit_s, 0.01)
    return ended
