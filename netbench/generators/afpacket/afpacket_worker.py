"""The process of an `afpacket` source: `python -m netbench.generators.afpacket.afpacket_worker IFACE THREADS [CPU…]`.

It imports only numpy and the standard library, so that it starts quickly.
"""

import os
import socket

from netbench.generators.afpacket.io_submit import Context
from netbench.generators.afpacket.pacing import MAX_BLOCK_FRAMES
from netbench.generators.afpacket.sending import AfPacketTrial
from netbench.generators.worker_process import Worker, serve
from netbench.model.traffic import Sent, Traffic

# linux/if_packet.h; the socket module does not name them.
_SOL_PACKET = 263
_PACKET_QDISC_BYPASS = 20
_SO_SNDBUFFORCE = 32  # asm-generic/socket.h; x86 and Arm have it
# Frames that wait in a ring use up the socket's send buffer: a full buffer would make sending wait for the ring.
_SEND_BUFFER_BYTES = 1 << 28


class AfPacketWorker(Worker):
    """One interface's sockets, kept open across trials, and the current trial."""

    def __init__(self, interface: str, threads: str, *cpus: str) -> None:
        self._interface = interface
        self._cpus = [int(cpu) for cpu in cpus]
        if cpus:
            os.sched_setaffinity(0, self._cpus)
        self._sockets = [_open_socket() for _ in range(int(threads))]
        self._rings: list[Context] = []
        self._bind()

    def prepare(self, traffic: Traffic) -> None:
        self._bind()
        if traffic.receive == "napi":
            for packet_socket in self._sockets:
                packet_socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
            self._rings = self._rings or [Context(MAX_BLOCK_FRAMES) for _ in self._sockets]
        rings = self._rings if traffic.receive == "napi" else ()
        sockets = [packet_socket.fileno() for packet_socket in self._sockets]
        self._trial = AfPacketTrial(traffic, sockets, self._cpus, self.halt, rings, self.realtime)

    def send(self, at_monotonic_ns: int) -> Sent:
        return self._trial.run(at_monotonic_ns)

    def _bind(self) -> None:
        # Again for each trial: an interface of the same name may have taken the place of the first.
        for packet_socket in self._sockets:
            packet_socket.bind((self._interface, 0))


def _open_socket() -> socket.socket:
    """Return a socket that receives nothing (protocol 0, see packet(7)) and bypasses the queueing disciplines."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    return opened


if __name__ == "__main__":
    serve(AfPacketWorker)
