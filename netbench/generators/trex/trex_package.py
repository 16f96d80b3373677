"""The parts of TRex on this machine: the packaged client, and a server from a package, started in software.

The client replaces the installed yaml, scapy and zmq by its own. Therefore only the worker imports it.
The server sends on kernel interfaces, by DPDK's af_packet, without hugepages. It is a child of the worker's process, in
its namespace, and dies with it.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.hosts.clock import wait_until

PACKAGE = "lbr-trex-client"
MODULE = "lbr_trex_client"
SERVER = "_t-rex-64"
REMEDY = "pip install 'netbench[trex]', under a Python older than 3.12"
# A server schedules its frames from the start request, whose processing takes up to 20 ms. Frames due by then would be
# sent in one burst. The first frame is therefore due later.
BEGINS_LATER_S = 0.05
MOST_VALUES = 0xFFFF  # in all lists of the field engine together; a single list may have as many
# Slots of the rings of a server that netbench starts; a slot has room for a frame and the packet socket's header
# (TPACKET2_HDRLEN of linux/if_packet.h, rounded up).
_SLOT_BYTES = 2048
LARGEST_FRAME = _SLOT_BYTES - 64
# The client needs the module asyncore, among others, which Python 3.12 has removed.
_TOO_NEW = (3, 12)

_START_S = 40.0
_RETRY_S = 0.2
_REPLY_S = 5.0
# The send ring is small: a frame for which the link has no room stays in it until TRex sends again. The receive ring
# is large: it must have room for frames while TRex is busy. The two rings of an interface have the same size.
_SLOTS, _SLOTS_TO_RECEIVE = 512, 16384
_RING = f"blocksz=65536,framesz={_SLOT_BYTES},qdisc_bypass=1"
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # terminal control sequences
_LOCALHOST = "127.0.0.1"

_PROC = Path("/proc")
_NAME = re.compile(r"netbench@\S+/(?P<machine>[0-9a-f]{8}\.\d+)\.(?P<pid>\d+)\.(?P<started>\d+)")


def no_client(python: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Return why this Python version has no client here, with the remedy, as a phrase; empty when it has one."""
    if too_new := newer(python):
        return f"{too_new}: install netbench under Python 3.11"
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return f"the client of TRex is not installed: {REMEDY}"
    return ""


def newer(python: tuple[int, ...]) -> str:
    """Return a message that a Python is too new for the client; empty where it is not."""
    if python < _TOO_NEW:
        return ""
    return f"the client of TRex ({PACKAGE}) needs a Python older than 3.12, and this is {python[0]}.{python[1]}"


def installed_client(_: str) -> str:
    """Return the version of the installed client; MissingError when there is none."""
    if missing := no_client():
        raise MissingError(missing)
    return version(PACKAGE)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server, and the TCP ports at which it receives requests and publishes."""

    server: str
    sync_port: int
    async_port: int

    def __str__(self) -> str:
        return f"the TRex server {self.server}:{self.sync_port}"


class OwnServer:
    """A server whose ports are interfaces, the first of them port 0; a dummy port completes the last pair.

    `interfaces` has whether each interface also receives.
    """

    def __init__(self, package: Path, interfaces: Mapping[str, bool], cpus: Sequence[int], scratch: str | None) -> None:
        """Start the server of a package on the first of the CPUs.

        Its files are below the directory `scratch`; None: the directory for temporary files.
        """
        self._address = ServerAddress(_LOCALHOST, *_free_ports())
        self._prefix = f"netbench-{os.getpid()}"
        self._directory = Path(tempfile.mkdtemp(prefix="netbench-trex-", dir=scratch))
        self._log = self._directory / "log"
        config = self._directory / "trex_cfg.yaml"
        config.write_text(self._config(interfaces, cpus))
        libraries = f"{package}:{package / 'so' / os.uname().machine}"
        # The server also searches for libraries relative to the current directory.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(package / SERVER), "-i", "--cfg", str(config)],
                cwd=package,
                # The directory of DPDK for data shared with other processes (RuntimeDirectory= of systemd.exec(5)).
                env={**os.environ, "LD_LIBRARY_PATH": libraries, "RUNTIME_DIRECTORY": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def sent_from(self, interface: str) -> int:
        """Return how many frames have ever left an interface, by the kernel's counter.

        Frames for which the ring at the other end of a veth pair has no room (`dropped`) are not included: the kernel
        keeps them in the packet socket's ring until TRex sends again (tpacket_snd in net/packet/af_packet.c).
        """
        command = ["ip", "-json", "-stats", "link", "show", "dev", interface]
        try:
            shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_REPLY_S)
        except subprocess.TimeoutExpired as error:
            raise TestbedError(
                f"the frames sent from {interface} are unknown: ip did not end within {_REPLY_S:g} s"
            ) from error
        if shown.returncode != 0:
            raise TestbedError(f"interface {interface} of the trex source is gone: {shown.stderr.strip()}")
        return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["packets"])

    def address(self) -> ServerAddress:
        """Wait until the server answers and return its address; MissingError when it does not in time."""
        wait_until(lambda: self._is_listening() or self._process.poll() is not None, _START_S, _RETRY_S)
        if self._process.poll() is not None:
            raise MissingError(f"the TRex server {self._death}")
        if not self._is_listening():
            raise MissingError(f"the TRex server does not answer within {_START_S:g} s: {self._last_output}")
        return self._address

    def require_alive(self) -> None:
        """Raise TestbedError when the server has died."""
        if self._process.poll() is not None:
            raise TestbedError(f"the TRex server {self._death}")

    def close(self) -> None:
        """End the server at once, and remove its files."""
        self._process.kill()
        self._process.wait()
        # Files that cannot be removed do not send, and do not affect other servers.
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.rmtree(Path("/run/dpdk") / self._prefix, ignore_errors=True)  # the directory of older versions

    def _config(self, interfaces: Mapping[str, bool], cpus: Sequence[int]) -> str:
        core = f"  low_end_core: {cpus[0]}\n" if cpus else ""
        ports = [
            f"--vdev=net_af_packet{number},iface={interface},"
            f"framecnt={_SLOTS_TO_RECEIVE if receives else _SLOTS},{_RING}"
            for number, (interface, receives) in enumerate(interfaces.items())
        ]
        ports += ["dummy"] * (len(ports) % 2)
        # The server requires addresses here, although frames have their own.
        macs = "".join(
            f"    - {{dest_mac: '{_mac(number ^ 1)}', src_mac: '{_mac(number)}'}}\n" for number in range(len(ports))
        )
        return (
            "- version: 2\n"
            f"  interfaces: {json.dumps(ports)}\n"
            "  low_end: true\n"  # its threads share a CPU, need none exclusively, and use less memory
            f"{core}"
            f"  prefix: {self._prefix}\n"
            f"  zmq_rpc_port: {self._address.sync_port}\n"
            f"  zmq_pub_port: {self._address.async_port}\n"
            f"  port_info:\n{macs}"
        )

    def _is_listening(self) -> bool:
        with socket.socket() as trial:
            trial.settimeout(1.0)
            return trial.connect_ex((_LOCALHOST, self._address.sync_port)) == 0

    @property
    def _death(self) -> str:
        code = self._process.returncode
        # The kernel kills a process that writes to a mapped file on a full disk (mmap(2)).
        room = f"; check the free space of {self._directory}" if code == -signal.SIGBUS else ""
        return f"ended with code {code}: {self._last_output}{room}"

    @property
    def _last_output(self) -> str:
        text = _CONTROL.sub("", self._log.read_text(errors="replace"))
        return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-5:]) or "no output"


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number + 1:02x}"


def _free_ports() -> tuple[int, int]:
    """Return two unused TCP ports of this namespace."""
    with socket.create_server((_LOCALHOST, 0)) as first, socket.create_server((_LOCALHOST, 0)) as second:
        return int(first.getsockname()[1]), int(second.getsockname()[1])


# A server stores only the name of a port's owner, and keeps the port of an owner that died. Only the name distinguishes
# an abandoned port from one in use: it identifies the process, and whether it still runs.


def own_name() -> str:
    """Return `netbench@HOST/BOOT.NAMESPACE.PID.START`, unique to this process within this boot of the machine."""
    return f"netbench@{socket.gethostname()}/{_machine()}.{os.getpid()}.{_started(os.getpid())}"


def is_left_behind(name: str) -> bool:
    """Return whether the name is of a netbench process on this machine that has certainly ended."""
    match = _NAME.fullmatch(name)
    # Processes of another machine or a container are invisible here.
    return match is not None and match["machine"] == _machine() and _started(int(match["pid"])) != int(match["started"])


def _machine() -> str:
    """Return this boot of the machine, and the PID namespace: in another one, the same number is another process."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}.{(_PROC / 'self/ns/pid').stat().st_ino}"


def _started(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot (field 22 of proc(5), stat); None where it is gone."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in ("Z", "X") else int(after_name[19])
