"""passt: user networking of a guest's NIC by a process beside QEMU (passt(1))."""

from contextlib import suppress
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import confined, outside
from netbench.hosts.pipes import Tail, end
from netbench.hosts.remote_code import program_command
from netbench.linux.proc import parse_process, parse_pss
from netbench.vmm.attachment import PrivateNetwork
from netbench.vmm.base import GuestNic, GuestSpec
from netbench.vmm.connected_guest import LAST_WORDS_S, pid_in
from netbench.vmm.qemu import run_passt

_SOCKET_S = 20.0
_NETMASK = "255.255.255.0"  # of PREFIX_LENGTH
_NOISE = ("to syslog", "run as root")  # of an intact passt


def passt_command(network: PrivateNetwork) -> list[str]:
    """Return the command that connects a guest's NIC, the file CONNECTION, with sockets of the machine."""
    port = f"{network.machine_address}/{network.port}"
    command = ["passt", "--foreground", "--quiet", "--stderr", "--fd", str(run_passt.CONNECTION), "--ipv4-only"]
    command += ["--interface", network.nic, "--address", network.address, "--netmask", _NETMASK]
    command += ["--gateway", network.gateway, "--no-map-gw", "--no-dhcp", "--dns", "none"]
    return [*command, "--tcp-ports", port, "--udp-ports", port]


class Passt:
    """The passt of one NIC. It ends with QEMU, whose connection it has."""

    def __init__(self, spec: GuestSpec, host: Host, nic: GuestNic) -> None:
        self.nic = nic
        self._spec = spec
        self._host = host
        self._process: Process | None = None
        self._socket = Path()
        self._complaint: Tail | None = None

    def start(self, path: Path) -> None:
        """Start it on the guest's CPUs; returns once QEMU can connect to `path`, TestbedError if it never can."""
        assert self.nic.network is not None, "only NICs in private networks have a passt"
        self._socket = path
        program = program_command(self._host, run_passt, str(path), "--", *passt_command(self.nic.network))
        self._process = self._host.spawn(confined(program, self._spec.host_cpus, self._spec.cgroup_procs))
        assert self._process.stderr is not None, "processes of hosts have pipes"
        self._complaint = Tail(self._process.stderr)
        if not wait_until(lambda: self._pid != 0 or bool(self.death()), _SOCKET_S) or self.death():
            raise TestbedError(self.death() or f"{self._title}: it made no socket within {_SOCKET_S:g} s")

    def death(self) -> str:
        """Return why it does not run any more; empty while it runs."""
        code = self._process.poll() if self._process else None
        if code is None or self._complaint is None:
            return ""
        lines = [
            line
            for line in self._complaint.text(LAST_WORDS_S).splitlines()
            if not any(noise in line for noise in _NOISE)
        ]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{self._title} {how}" + (f": {lines[-1].strip()}" if lines else "")

    def cpu_s(self) -> float:
        """Return its CPU time, in seconds; 0 once it has ended."""
        with suppress(TestbedError, ValueError):
            return parse_process(self._of_process("stat")).cpu_s
        return 0.0

    def memory_bytes(self) -> int:
        """Return the memory that it uses; 0 once it has ended."""
        with suppress(TestbedError, ValueError):
            return parse_pss(self._of_process("smaps_rollup"))
        return 0

    def stop(self) -> None:
        """End it; harmless when it has ended, or was never started."""
        process, self._process = self._process, None
        if process:
            end(process)

    def _of_process(self, file: str) -> str:
        return outside(self._host).read(f"/proc/{self._pid}/{file}")

    @property
    def _title(self) -> str:
        return f"{self._spec.title}: passt of {self.nic.stream}"

    @property
    def _pid(self) -> int:
        return pid_in(outside(self._host), Path(f"{self._socket}.pid"))
