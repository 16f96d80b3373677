"""A running guest: QEMU's process, its monitor, and the connection to its channel."""

import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process, exists, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import outside
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.linux.proc import parse_process, parse_pss
from netbench.vmm.qemu.command import RunFiles, VirtualMachine, qemu_command
from netbench.vmm.qemu.guest_agent import QmpConnection

LAST_WORDS_S = 1.0
# Messages of a kernel that gives up, and of /init about an agent that does not run. If the agent uses the same console,
# its own message may be in the line before.
_TROUBLE = re.compile(r"(\[ *[0-9.]+\] )?(Kernel panic|netbench-guest: error: (the agent|this guest)).*")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x20-\x7e\t]")


def plain(console: str) -> str:
    """Return a guest's console output without colours, cursor movements and empty lines."""
    return "".join(f"{line}\n" for line in (_NOISE.sub("", line).rstrip() for line in console.splitlines()) if line)


def trouble_in(console: str) -> str:
    """Return the first line that explains why a guest will never answer; empty without such a line."""
    return next((match[0] for line in console.splitlines() if (match := _TROUBLE.search(line))), "")


class QemuMachine:
    """One guest under QEMU, from its start to stop()."""

    def __init__(self, name: str, files: RunFiles) -> None:
        self._name = name
        self._files = files
        self._console: Tail | None = None
        self._host: Host | None = None  # where it was started

    @property
    def guest(self) -> str:
        """Its name in messages."""
        return f"guest {self._name}"

    def death(self) -> str:
        """Return how it ended, with its last output; empty while it runs."""
        raise NotImplementedError

    def death_just_now(self) -> str:
        """Return `death` after a sign of it was seen: waits a moment for QEMU to end."""
        raise NotImplementedError

    def trouble(self) -> str:
        """Return why the guest does not run: it has ended, is paused or has crashed; empty if it runs."""
        raise NotImplementedError

    def set_link(self, number: int, *, up: bool) -> None:
        """Switch the carrier of its NIC `number`, from 0, on or off; TestbedError where that is not supported."""
        raise TestbedError(f"{self.guest}: the carrier of its NICs cannot be switched")

    def cpu_s(self) -> float:
        """Return the CPU time it has used on this machine, in seconds, kernel and user."""
        raise NotImplementedError

    def memory_bytes(self) -> int | None:
        """Return the memory of QEMU on this machine, including the guest memory that was ever used."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it at once; harmless when it has ended or was never started."""
        raise NotImplementedError

    def connect(self) -> socket.socket:
        """Return a connection to the socket behind the guest's agent port."""
        return self.connected(self._files.channel, "channel")

    def connected(self, path: Path, what: str) -> socket.socket:
        """Return a connection to one of its sockets; TestbedError when that fails."""
        assert self._host is not None, "start() comes first"
        try:
            return connect(self._host, str(path))
        except TestbedError as error:
            self.require_alive()
            raise TestbedError(f"{self.guest}: its {what}: {error}") from error

    def hopeless(self) -> str:
        """Return why the guest will never answer: how QEMU ended, or the guest's failure; empty while it still may."""
        trouble = trouble_in(self.console())
        return self.death() or (f"{self.guest}: {trouble}" if trouble else "")

    def require_alive(self) -> None:
        """Raise TestbedError when it has ended."""
        death = self.death()
        if death:
            raise TestbedError(death)

    def read_console(self, source: IO[str] | socket.socket) -> None:
        """Start reading the guest's console output."""
        self._console = Tail(source)

    def console(self) -> str:
        """Return the guest's console output without colours and cursor movements."""
        if self._console is None:
            return ""
        return plain(self._console.text(LAST_WORDS_S if self._console_ends() else 0.0))

    def words_of_guest(self) -> str:
        """Return the last failure message on its console, else the last line."""
        console = self.console().splitlines()
        trouble = [match[0] for line in console if (match := _TROUBLE.search(line))]
        return next((lines[-1] for lines in (trouble, console) if lines), "")

    def _console_ends(self) -> bool:
        """Return whether the console has no writer any more."""
        return False


_SOCKETS_S = 20.0
_END_S = 5.0
# Kills QEMU when netbench ends without cleaning up.
_KEEP = 'read -r word || kill -KILL "$0"'


class QemuProcess(QemuMachine):
    """One guest under QEMU, from start() to stop()."""

    def __init__(self, machine: VirtualMachine, files: RunFiles) -> None:
        super().__init__(machine.name, files)
        self._machine = machine
        self._process: Process | None = None
        self._monitor: QmpConnection | None = None
        self._complaint: Tail | None = None
        self._keeper: Process | None = None

    def start(self, host: Host) -> None:
        """Start QEMU and connect to its monitor; TestbedError, with QEMU's output, when it ends instead."""
        self._host = host
        self._process = host.spawn(qemu_command(self._machine, self._files, is_here=host.shares_files))
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.read_console(self._process.stdout)
        self._complaint = Tail(self._process.stderr)
        if not wait_until(self._has_sockets, _SOCKETS_S):
            raise TestbedError(f"{self.guest}: QEMU made no sockets within {_SOCKETS_S:g} s")
        try:
            monitor = self.connected(self._files.monitor, "monitor")
            self._monitor = QmpConnection(f"{self.guest}: QEMU's monitor", monitor, greets=True)
        except TestbedError:
            death = self.death_just_now()
            if death:
                raise TestbedError(death) from None
            raise
        if self._machine.confinement.user:
            # Changing the user clears the signal that kills QEMU when netbench dies: prctl(2), PR_SET_PDEATHSIG.
            outlive = ["setpriv", "--pdeathsig", "clear"]
            self._keeper = host.spawn([*outlive, "sh", "-c", _KEEP, str(self._pid())])

    def death_just_now(self) -> str:
        """Return `death` after a sign of it was seen: waits a moment for QEMU to end."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):  # it is alive
                self._process.wait(LAST_WORDS_S)
        return self.death()

    def death(self) -> str:
        """Return how QEMU ended, with its last output and the guest's; empty while it runs."""
        if self._process is None:
            return f"{self.guest} is not started"
        code = self._process.poll()
        if code is None:
            return ""
        complaint = self._words_of_qemu()
        if code < 0:
            return f"{self.guest}: QEMU was killed by signal {-code}" + (f": {complaint}" if complaint else "")
        words = complaint or self.words_of_guest() or "the guest wrote nothing, as happens with too little memory"
        return f"{self.guest}: QEMU ended with exit code {code}: {words}"

    def trouble(self) -> str:
        """Return why the guest does not run: QEMU ended, or the guest is paused or crashed; empty if it runs."""
        death = self.death()
        if death or self._monitor is None:
            return death
        try:
            status = self._monitor.command("query-status")["status"]
        except TestbedError as error:
            return self.death_just_now() or str(error)
        return "" if status == "running" else f"{self.guest} is not running: QEMU reports {status!r}"

    def pin(self, vcpus: Sequence[Sequence[int]], io: Sequence[int]) -> None:
        """Bind vCPU n to the CPUs vcpus[n], and all other threads to `io`; empty: anywhere.

        TestbedError when a CPU does not exist.
        """
        assert self._monitor is not None, "start() comes first"
        assert self._host is not None
        threads = [str(cpu["thread-id"]) for cpu in self._monitor.command("query-cpus-fast")]
        wanted = [(thread, cpus) for thread, cpus in zip(threads, vcpus, strict=False) if cpus]
        if io:
            everything = run_checked(self._host, ["ls", f"/proc/{self._pid()}/task"]).split()
            wanted = [*((thread, io) for thread in everything if thread not in threads), *wanted]
        for thread, cpus in wanted:
            cpu_list = ",".join(map(str, cpus))
            done = self._host.run(["taskset", "-pc", cpu_list, thread])
            # Worker threads of QEMU may have ended by now.
            if done.exit_code and exists(self._host, f"/proc/{self._pid()}/task/{thread}"):
                raise TestbedError(f"{self.guest} cannot be pinned to CPUs {cpu_list}: {done.stderr.strip()}")

    def set_link(self, number: int, *, up: bool) -> None:
        assert self._monitor is not None, "start() comes first"
        self._monitor.command("set_link", {"name": f"nic{number}", "up": up})

    def cpu_s(self) -> float:
        """Return the CPU time of its process on its machine, in seconds, kernel and user (proc_pid_stat(5))."""
        try:
            return parse_process(self._of_process("stat")).cpu_s
        except TestbedError as error:
            self.require_alive()
            raise TestbedError(f"{self.guest}: QEMU's CPU time cannot be read: {error}") from error

    def memory_bytes(self) -> int | None:
        try:
            return parse_pss(self._of_process("smaps_rollup"))
        except (TestbedError, ValueError):
            return None

    def stop(self) -> None:
        """End QEMU at once; harmless when it has ended or was never started."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            with suppress(OSError):  # it has ended
                self._keeper.stdin.write("done\n")
                self._keeper.stdin.flush()
            end(self._keeper, _END_S)
            self._keeper = None
        if self._process is not None:
            self._process.kill()
            self.console()  # to its end
            end(self._process, _END_S)
            self._process = None

    def _has_sockets(self) -> bool:
        assert self._host is not None
        sockets = (str(self._files.monitor), str(self._files.channel))
        existing = all(exists(self._host, path) for path in sockets) and self._pid() != 0
        if not existing:
            self.require_alive()
        return existing

    def _pid(self) -> int:
        assert self._host is not None
        with suppress(TestbedError, ValueError):  # not written yet
            return int(outside(self._host).read(str(self._files.pid)))
        return 0

    def _of_process(self, file: str) -> str:
        """Return the content of a file in QEMU's /proc directory on its machine."""
        assert self._host is not None
        return outside(self._host).read(f"/proc/{self._pid()}/{file}")

    def _words_of_qemu(self) -> str:
        assert self._complaint is not None
        lines = [
            line for line in self._complaint.text(LAST_WORDS_S).splitlines() if "terminating on signal" not in line
        ]
        return lines[-1] if lines else ""

    def _console_ends(self) -> bool:
        return self._process is not None and self._process.poll() is not None
