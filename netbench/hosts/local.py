"""This machine, in the network namespace netbench itself runs in or in one of its named ones."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.hosts.base import Completed, run_checked

# Every process a run starts carries the run's id in this environment variable: that is how `clean`
# recognises what a killed run left, and nothing else.
MARK = "NETBENCH_RUN"


class LocalHost:
    """The machine itself."""

    def __init__(self, name: str, run_id: str) -> None:
        self._name = name
        self._environment = {**os.environ, "LC_ALL": "C", "PATH": search_path(), MARK: run_id}

    @property
    def name(self) -> str:
        """The name the topology gives it."""
        return self._name

    @property
    def netns(self) -> str | None:
        """None: the network namespace netbench itself runs in."""
        return None

    @property
    def shares_files(self) -> bool:
        """It is this machine."""
        return True

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it takes too long, MissingError when it is not there."""
        command = self._command(argv)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=self._environment
            )
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"host {self.name}: `{' '.join(argv)}` did not end within {timeout_s:g} s") from error
        except OSError as error:
            raise TestbedError(f"host {self.name}: `{' '.join(argv)}` cannot start: {error.strerror}") from error
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command; the kernel kills it when netbench dies, however it dies (PR_SET_PDEATHSIG)."""
        command = ["setpriv", "--pdeathsig", "KILL", *self._command(argv)]
        require_tool(command[0])
        try:
            # A session of its own: Ctrl-C at the terminal is netbench's to handle, not the child's.
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise TestbedError(f"host {self.name}: `{' '.join(argv)}` cannot start: {error.strerror}") from error

    def read(self, path: str) -> str:
        """The text of a file; TestbedError when it cannot be read."""
        try:
            return Path(path).read_text()
        except OSError as error:
            raise TestbedError(f"host {self.name}: {path} cannot be read: {error.strerror}") from error

    def write(self, path: str, text: str) -> None:
        """Write a file; TestbedError when it cannot be written."""
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise TestbedError(f"host {self.name}: {path} cannot be written: {error.strerror}") from error

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file, unless it is at `target` already; TestbedError when that fails."""
        try:
            shutil.copyfile(path, target)
        except shutil.SameFileError:
            return
        except OSError as error:
            raise TestbedError(f"host {self.name}: {path} cannot be copied to {target}: {error.strerror}") from error

    def _command(self, argv: Sequence[str]) -> list[str]:
        require_tool(argv[0])
        return list(argv)


class NamespaceHost(LocalHost):
    """A named network namespace of this machine; files and CPUs are the machine's own.

    `ip netns exec` also gives each command the namespace's own /sys, so that /sys/class/net and
    /proc/sys/net tell of the namespace and not of the machine. MachineGoneError where there is none of that name.
    """

    def __init__(self, name: str, run_id: str, netns: str) -> None:
        super().__init__(name, run_id)
        self._netns = netns

    @property
    def netns(self) -> str | None:
        """The name of the namespace."""
        return self._netns

    def read(self, path: str) -> str:
        """The text of a file as seen from inside the namespace; TestbedError when it cannot be read."""
        return run_checked(self, ["cat", path])

    def write(self, path: str, text: str) -> None:
        """Write a file as seen from inside the namespace; TestbedError when it cannot be written."""
        run_checked(self, ["tee", path], stdin=text)

    def _command(self, argv: Sequence[str]) -> list[str]:
        require_tool("ip")
        if not Path("/run/netns", self._netns).exists():
            raise MachineGoneError(f"host {self.name}: its namespace {self._netns} is gone: somebody deleted it")
        return ["ip", "netns", "exec", self._netns, *super()._command(argv)]


def search_path() -> str:
    """PATH with the directories where root's tools live, which a shell opened with plain `su` lacks."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def require_tool(name: str) -> None:
    """MissingError unless the command `name` is on this machine."""
    if shutil.which(name, path=search_path()) is None:
        raise MissingError(f"the command `{name}` is not on this host; `netbench doctor` says how to add it")
