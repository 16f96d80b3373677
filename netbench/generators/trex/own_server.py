"""A TRex server of netbench's own, in software: on kernel interfaces, by DPDK's af_packet, without hugepages.

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
# A frame for which the link has no room stays in the ring until TRex sends again: as few as possible are to. What
# arrives while TRex does other things is to find room, and the two rings of an interface are of one size.
_SLOTS, _SLOTS_TO_RECEIVE = 512, 16384
_RING = f"blocksz=65536,framesz={SLOT_BYTES},qdisc_bypass=1"
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # of a terminal


class OwnServer:
    """A server whose ports are interfaces, the first of them port 0; the last may be none, as TRex has them in pairs.

    `interfaces` says of each whether it receives, too.
    """

    def __init__(
        self, package: Path, interfaces: Mapping[str, bool], cpus: Sequence[int], scratch: str | None = None
    ) -> None:
        """Start it, on the first of the CPUs; MissingError where there is no such package or it does not start.

        What it writes is below the directory `scratch`; None: where temporary files are.
        """
        program = server_program(package)
        self._sync_port, self._async_port = _free_ports()
        self._prefix = f"netbench-{os.getpid()}"
        self._directory = Path(tempfile.mkdtemp(prefix="netbench-trex-", dir=scratch))
        self._log = self._directory / "log"
        config = self._directory / "trex_cfg.yaml"
        config.write_text(self._config(interfaces, cpus))
        libraries = f"{package}:{package / 'so' / os.uname().machine}"
        # It looks for libraries beside the current directory, too.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(program), "-i", "--cfg", str(config)],
                cwd=package,
                # Where DPDK keeps what it shares with other processes (RuntimeDirectory= of systemd.exec(5)).
                env={**os.environ, "LD_LIBRARY_PATH": libraries, "RUNTIME_DIRECTORY": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def out_of(self, interface: str) -> int:
        """How many frames have ever gone out of an interface, as the kernel counts them.

        What the ring at the other end of a veth pair has no room for (`dropped`) has not: the kernel leaves it in the
        packet socket's ring, and sends it when TRex sends again (tpacket_snd in net/packet/af_packet.c).
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
        """Where it is, once it answers; MissingError when it does not in time."""
        give_up = time.monotonic() + _START_S
        while not _answers(self._sync_port):
            if self._process.poll() is not None:
                raise MissingError(f"the TRex server {self._death}")
            if time.monotonic() > give_up:
                raise MissingError(f"the TRex server does not answer within {_START_S:g} s: {self._last_words}")
            time.sleep(_ASK_S)
        return ServerAddress("127.0.0.1", self._sync_port, self._async_port)

    def require_life(self) -> None:
        """TestbedError when it has died."""
        if self._process.poll() is not None:
            raise TestbedError(f"the TRex server {self._death}")

    def close(self) -> None:
        """End it at once, and leave nothing behind."""
        self._process.kill()
        self._process.wait()
        # What cannot be removed is empty of what sends, and in the way of no other server.
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.rmtree(Path("/run/dpdk") / self._prefix, ignore_errors=True)  # where an older one keeps it

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
            "  low_end: true\n"  # its threads share a CPU: it needs none of its own, and less memory
            f"{core}"
            f"  prefix: {self._prefix}\n"
            f"  zmq_rpc_port: {self._sync_port}\n"
            f"  zmq_pub_port: {self._async_port}\n"
            "  port_info:\n"
            # It wants some, and frames have addresses of their own.
            + "".join(
                f"    - {{dest_mac: '{_mac(number ^ 1)}', src_mac: '{_mac(number)}'}}\n" for number in range(len(ports))
            )
        )

    @property
    def _death(self) -> str:
        code = self._process.returncode
        # The kernel kills what writes to a mapped file for which the disk has no room (mmap(2)).
        room = f"; is there room in {self._directory}?" if code == -signal.SIGBUS else ""
        return f"ended with code {code}: {self._last_words}{room}"

    @property
    def _last_words(self) -> str:
        text = _CONTROL.sub("", self._log.read_text(errors="replace"))
        return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-5:]) or "it wrote nothing"


def _mac(number: int) -> str:
    return f"02:00:00:00:00:{number + 1:02x}"


def _free_ports() -> tuple[int, int]:
    """Two TCP ports that nobody listens at in this namespace."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(1.0)
        return trial.connect_ex(("127.0.0.1", port)) == 0
