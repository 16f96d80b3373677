"""A guest under QEMU: its process, its monitor, and the sockets of both."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress

from netbench.errors import TestbedError
from netbench.hosts.base import Connection, Host, Process, exists, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.pipes import Tail, end
from netbench.hosts.relay import connect
from netbench.model.virtualisation import Virtualisation
from netbench.vmm.base import GuestSpec
from netbench.vmm.connected_guest import LAST_WORDS_S, ConnectedGuest, pid_in
from netbench.vmm.qemu.command import RunFiles, VirtualMachine, qemu_command
from netbench.vmm.qemu.passt import Passt
from netbench.vmm.qemu.qmp import QmpConnection

_EMULATED_QUIET_TIME_S = 0.2  # a tap's queue holds 1000 frames, and an emulated guest is slow
_SOCKETS_S = 20.0
_END_S = 5.0
# Kills QEMU when netbench ends without cleaning up.
_KEEP = 'read -r word || kill -KILL "$0"'


class QemuVm(ConnectedGuest):
    """A guest that QEMU runs, started by netbench itself or by libvirt; `files` are its sockets."""

    virtualisation: Virtualisation | None = Virtualisation.HARDWARE

    def __init__(self, spec: GuestSpec, host: Host) -> None:
        super().__init__(spec, host)
        self.files = RunFiles(spec.directory)

    def connect_by(self, connection: Connection, facts: Mapping[str, str]) -> None:
        super().connect_by(connection, facts)
        if "emulated" in facts:
            self.virtualisation = Virtualisation.FULL
            self.quiet_time_s = _EMULATED_QUIET_TIME_S

    def clocks(self) -> tuple[int, int]:
        return self._connection.clocks() if isinstance(self._connection, AgentHost) else super().clocks()

    def channel(self) -> socket.socket:
        """Return a connection to the socket behind the guest's agent port; TestbedError when that fails."""
        return self._connected("channel")

    def _connected(self, name: str) -> socket.socket:
        """Return a connection to the socket in `files` of this name."""
        try:
            return connect(self._host, str(getattr(self.files, name)))
        except TestbedError as error:
            raise TestbedError(self.end_of_vmm() or f"{self.spec.title}: its {name}: {error}") from error


class QemuGuest(QemuVm):
    """A guest under a QEMU of netbench, from start() to stop()."""

    def __init__(self, spec: GuestSpec, machine: VirtualMachine, host: Host, passts: Sequence[Passt] = ()) -> None:
        """`passts` are the processes of its user networking."""
        super().__init__(spec, host)
        self._description = machine
        self._passts = passts
        self._monitor: QmpConnection | None = None
        self._complaint: Tail | None = None
        self._keeper: Process | None = None

    def start(self) -> None:
        """Start QEMU and connect to its monitor; TestbedError, with QEMU's output, when it ends instead."""
        for number, passt in enumerate(self._passts):
            passt.start(self.files.passt(number))
        self.process = self._host.spawn(qemu_command(self._description, self.files, self._host))
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._console, self._complaint = Tail(self.process.stdout), Tail(self.process.stderr)
        if not wait_until(lambda: self._has_sockets() or bool(self.end_of_vmm()), _SOCKETS_S):
            raise TestbedError(f"{self.spec.title}: QEMU made no sockets within {_SOCKETS_S:g} s")
        try:
            whose = f"{self.spec.title}: QEMU's monitor"
            self._monitor = QmpConnection(whose, self._connected("monitor"), greets=True)
        except TestbedError as error:
            raise TestbedError(self.end_just_now() or str(error)) from error
        if self._description.confinement.user:
            # Changing the user clears the signal that kills QEMU when netbench dies: prctl(2), PR_SET_PDEATHSIG.
            outlive = ["setpriv", "--pdeathsig", "clear"]
            self._keeper = self._host.spawn([*outlive, "sh", "-c", _KEEP, str(self._pid)])

    def end_of_vmm(self) -> str:
        code = self.process.poll() if self.process else None
        if code is None:
            return ""
        complaint = self._words_of_qemu()
        if code < 0:
            return f"{self.spec.title}: QEMU was killed by signal {-code}" + (f": {complaint}" if complaint else "")
        words = complaint or self._last_words() or "the guest wrote nothing, as happens with too little memory"
        return f"{self.spec.title}: QEMU ended with exit code {code}: {words}"

    def death(self) -> str:
        """Return why the guest does not run: QEMU ended, or the guest is paused or crashed; empty if it runs."""
        ended = self.end_of_vmm() or next(filter(None, (passt.death() for passt in self._passts)), "")
        if ended or self._monitor is None:
            return ended
        try:
            status = self._monitor.command("query-status")["status"]
        except TestbedError as error:
            return self.end_just_now() or str(error)
        return "" if status == "running" else f"{self.spec.title} is not running: QEMU reports {status!r}"

    def cpu_s(self) -> float | None:
        """Return the CPU time of QEMU and of its user networking, in seconds."""
        own_s = super().cpu_s()
        return None if own_s is None else own_s + sum(passt.cpu_s() for passt in self._passts)

    def memory_bytes(self) -> int | None:
        """Return the memory of QEMU and of its user networking."""
        own = super().memory_bytes()
        return None if own is None else own + sum(passt.memory_bytes() for passt in self._passts)

    def pin(self, vcpus: Sequence[Sequence[int]], io: Sequence[int]) -> None:
        """Bind vCPU n to the CPUs vcpus[n], and all other threads to `io`; empty: anywhere.

        TestbedError when a CPU does not exist.
        """
        assert self._monitor is not None, "start() comes first"
        tasks = f"/proc/{self._pid}/task"
        threads = [str(cpu["thread-id"]) for cpu in self._monitor.command("query-cpus-fast")]
        bound = [(thread, cpus) for thread, cpus in zip(threads, vcpus, strict=False) if cpus]
        if io:
            others = [thread for thread in run_checked(self._host, ["ls", tasks]).split() if thread not in threads]
            bound = [*((thread, io) for thread in others), *bound]
        for thread, cpus in bound:
            cpu_list = ",".join(map(str, cpus))
            done = self._host.run(["taskset", "-pc", cpu_list, thread])
            # Worker threads of QEMU may have ended by now.
            if done.exit_code and exists(self._host, f"{tasks}/{thread}"):
                raise TestbedError(f"{self.spec.title} cannot be pinned to CPUs {cpu_list}: {done.stderr.strip()}")

    def set_link(self, interface: str, *, up: bool) -> None:
        assert self._monitor is not None, "start() comes first"
        number = [cable.interface for cable in self.spec.cables].index(interface)
        self._monitor.command("set_link", {"name": f"nic{number}", "up": up})

    def stop(self) -> None:
        """Close the connections, and end QEMU at once; harmless when it has ended or was never started."""
        try:
            super().stop()
        finally:
            if self._monitor:
                self._monitor.close()
                self._monitor = None
            if self._keeper:
                assert self._keeper.stdin is not None
                with suppress(OSError):  # it has ended
                    self._keeper.stdin.write("done\n")
                    self._keeper.stdin.flush()
                end(self._keeper, _END_S)
                self._keeper = None
            if self.process:
                self.process.kill()
                self.console()  # to its end
                end(self.process, _END_S)
            for passt in self._passts:
                passt.stop()

    @property
    def _pid(self) -> int:
        return pid_in(self._machine, self.files.pid)

    def _has_sockets(self) -> bool:
        sockets = (str(self.files.monitor), str(self.files.channel))
        return all(exists(self._host, path) for path in sockets) and self._pid != 0

    def _words_of_qemu(self) -> str:
        assert self._complaint is not None
        lines = self._complaint.text(LAST_WORDS_S).splitlines()
        return next((line for line in reversed(lines) if "terminating on signal" not in line), "")
