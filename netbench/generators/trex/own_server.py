"""A TRex server started by netbench, in software: on kernel interfaces, by DPDK's af_packet, without hugepages.

It is a child of the worker's process, in its namespace, and dies with it.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.generators.trex.client_package import SLOT_BYTES, server_program
from netbench.generators.trex.trex_session import ServerAddress

_START_S = 40.0
_ASK_S = 0.2
_ANSWER_S = 5.0
# The send ring is small: a frame for which the link has no room stays in it until TRex sends again. The receive ring
# is large: it must have room for frames while TRex is busy. The two rings of an interface have the same size.
_SLOTS, _SLOTS_TO_RECEIVE = 512, 16384
_RING = f"blocksz=65536,framesz={SLOT_BYTES},qdisc_bypass=1"
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # terminal control sequences


class OwnServer:
    """A server whose ports are interfaces, the first of them port 0; a dummy port completes the last pair.

    `interfaces` has whether each interface also receives.
    """

    def __init__(
        self, package: Path, interfaces: Mapping[str, bool], cpus: Sequence[int], scratch: str | None = None
    ) -> None:
        """Start the server on the first of the CPUs; MissingError without such a package or where it does not start.

        Its files are below the directory `scratch`; None: the directory for temporary files.
        """
        program = server_program(package)
        self._sync_port, self._async_port = _free_ports()
        self._prefix = f"netbench-{os.getpid()}"
        self._directory = Path(tempfile.mkdtemp(prefix="netbench-trex-", dir=scratch))
        self._log = self._directory / "log"
        config = self._directory / "trex_cfg.yaml"
        config.write_text(self._config(interfaces, cpus))
        libraries = f"{package}:{package / 'so' / os.uname().machine}"
        # The server also searches for libraries relative to the current directory.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(program), "-i", "--cfg", str(config)],
                cwd=package,
                # The directory of DPDK for data shared with other processes (RuntimeDirectory= of systemd.exec(5)).
                env={**os.environ, "LD_LIBRARY_PATH": libraries, "RUNTIME_DIRECTORY": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def out_of(self, interface: str) -> int:
        """Return how many frames have ever left an interface, by the kernel's counter.

        Frames for which the ring at the other end of a veth pair has no room (`dropped`) are not included: the kernel
        keeps them in the packet socket's ring until TRex sends again (tpacket_snd in net/packet/af_packet.c).
        """
        command = ["ip", "-json", "-stats", "link", "show", "dev", interface]
        try:
            shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
        except subprocess.TimeoutExpired as error:
            raise TestbedError(
                f"interface {interface} of the trex source: ip did not end in {_ANSWER_S:g} s"
            ) from error
        if shown.returncode != 0:
            raise TestbedError(f"interface {interface} of the trex source is gone: {shown.stderr.strip()}")
        return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["packets"])

    def address(self) -> ServerAddress:
        """Wait until the server answers and return its address; MissingError when it does not in time."""
        give_up = time.monotonic() + _START_S
        while not _answers(self._sync_port):
            if self._process.poll() is not None:
                raise MissingError(f"the TRex server {self._death}")
            if time.monotonic() > give_up:
                raise MissingError(f"the TRex server does not answer within {_START_S:g} s: {self._last_words}")
            time.sleep(_ASK_S)
        return ServerAddress("127.0.0.1", self._sync_port, self._async_port)

    def require_life(self) -> None:
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
        return (
            "- version: 2\n"
            f"  interfaces: {json.dumps(ports)}\n"
            "  low_end: true\n"  # its threads share a CPU, need none exclusively, and use less memory
            f"{core}"
            f"  prefix: {self._prefix}\n"
            f"  zmq_rpc_port: {self._sync_port}\n"
            f"  zmq_pub_port: {self._async_port}\n"
            "  port_info:\n"
            # The server requires addresses here, although frames have their own.
            + "".join(
                f"    - {{dest_mac: '{_mac(number ^ 1)}', src_mac: '{_mac(number)}'}}\n" for number in range(len(ports))
            )
        )

    @property
    def _death(self) -> str:
        code = self._process.returncode
        # The kernel kills a process that writes to a mapped file on a full disk (mmap(2)).
        room = f"; is there room in {self._directory}?" if code == -signal.SIGBUS else ""
        return f"ended with code {code}: {self._last_words}{room}"

    @property
    def _last_words(self) -> str:
        text = _CONTROL.sub("", self._log.read_text(errors="replace"))
        return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-5:]) or "it wrote nothing"


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number + 1:02x}"


def _free_ports() -> tuple[int, int]:
    """Return two unused TCP ports of this namespace."""
    with socket.socket() as first, socket.socket() as second:
        for tcp_socket in (first, second):
            tcp_socket.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(1.0)
        return trial.connect_ex(("127.0.0.1", port)) == 0
