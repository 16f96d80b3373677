"""Netlink without a library, for the few questions that must be asked from inside a namespace, and fast.

Formats: linux/netlink.h.
"""

import os
import socket
import struct
from collections.abc import Iterator

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_ERROR = struct.Struct("=i")
_REQUEST, _DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_TYPE = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_ROOM = 1 << 16


def ask(asked: socket.socket, kind: int, payload: bytes, *, all_of_them: bool = False) -> Iterator[bytes]:
    """The payload of each message that answers a request, one or (a dump) all; OSError when the kernel refuses."""
    flags = _REQUEST | (_DUMP if all_of_them else 0)
    asked.send(_HEADER.pack(_HEADER.size + len(payload), kind, flags, 1, 0) + payload)
    while True:
        for answer, content in _messages(asked.recv(_ROOM)):
            if answer == _NLMSG_DONE:
                return
            if answer == _NLMSG_ERROR:
                (number,) = _ERROR.unpack_from(content)
                raise OSError(-number, os.strerror(-number))
            yield content
        if not all_of_them:
            return


def attribute(kind: int, content: bytes) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(content)
    return (_ATTRIBUTE.pack(length, kind) + content).ljust(_aligned(length), b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """Attributes by type."""
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & _TYPE] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
