"""Pause frames, from the answers of a kernel whose NICs count them; no virtual NIC does."""

import socket
import struct

from netbench.linux.counters.counting_points import PauseFrames
from netbench.linux.counters.netlink_counters import read_pause_frames
from netbench.linux.netlink import attribute, attributes

FAMILY = 21


class Kernel:
    """A socket that answers as Linux 6.1 does for NICs that count (eth0), only pause (eth1), or do neither."""

    def __init__(self, *_: object) -> None:
        self._answer = b""

    def close(self) -> None:
        pass

    def send(self, request: bytes) -> None:
        _, kind, _, self._number, _ = struct.unpack_from("=IHHII", request)
        asked = attributes(request[20:])
        if kind == 16:
            assert asked[2] == b"ethtool\0"
            self._answer = self._message(kind, bytes(4) + attribute(1, struct.pack("=H", FAMILY)))
            return
        assert (kind, request[16]) == (FAMILY, 21)
        about = attributes(asked[1])
        assert about[3] == struct.pack("=I", 4), "it is asked for statistics"
        counted = attribute(5 | 0x8000, attribute(2, struct.pack("=Q", 1 << 40)) + attribute(3, struct.pack("=Q", 7)))
        known = bytes(4) + attribute(1, b"") + attribute(3, b"\1")
        self._answer = {
            b"eth0\0": self._message(kind, known + counted),
            b"eth1\0": self._message(kind, known + attribute(5 | 0x8000, b"")),
            b"veth0\0": self._message(2, struct.pack("=i", -95) + bytes(16)),
        }[about[2]]

    def recv(self, room: int) -> bytes:
        return self._answer

    def _message(self, kind: int, payload: bytes) -> bytes:
        return struct.pack("=IHHII", 16 + len(payload), kind, 0, self._number, 0) + payload


def test_nics_that_count_pause_frames(monkeypatch):
    monkeypatch.setattr("netbench.linux.netlink.socket.socket", Kernel)
    assert read_pause_frames(["eth0", "eth1", "veth0"]) == {"eth0": PauseFrames(rx=7, tx=1 << 40)}


def test_loopback_counts_none_on_any_kernel():
    assert read_pause_frames([name for _, name in socket.if_nameindex() if name == "lo"]) == {}
