"""Netlink requests to the kernel, encoded by hand: fast, and in any network namespace. Formats: linux/netlink.h."""

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Self

from netbench.linux.netns import within_each
from netbench.model.foreign_text import decoded, encoded

_RTM_GETLINK, _IFLA_IFNAME = 18, 3
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_UP = 0x1 | 0x10000  # IFF_UP, IFF_LOWER_UP
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_REQUEST, _DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NETLINK_GENERIC = 16
_GENERIC = struct.Struct("=BBH")  # genlmsghdr of linux/genetlink.h: command, version, reserved
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
_TYPE = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_ROOM = 1 << 16


class Netlink(ExitStack):
    """The netlink sockets of one run, by namespace name (None: the one netbench runs in); closed with its block."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: dict[str | None, socket.socket] = {}

    def socket(self, netns: str | None) -> socket.socket:
        """Return the NETLINK_ROUTE socket of a namespace; MachineGoneError when the namespace is gone."""
        if netns not in self._sockets:
            self._sockets |= within_each([netns], lambda _: route_socket())
            self.enter_context(self._sockets[netns])
        return self._sockets[netns]

    def forget(self, netns: str | None) -> None:
        """Close the socket of a namespace, before the namespace itself goes."""
        if opened := self._sockets.pop(netns, None):
            opened.close()


def route_socket() -> socket.socket:
    """Return a socket for requests about interfaces, in the namespace of this thread (rtnetlink(7))."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)


@dataclass(frozen=True, slots=True)
class Link:
    """An interface of the kernel; `attributes` by type (IFLA_…)."""

    index: int
    flags: int
    attributes: dict[int, bytes]

    @property
    def is_up(self) -> bool:
        """Whether it and its link are up."""
        return self.flags & _UP == _UP

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the interface that a message describes."""
        _, _, index, flags, _ = _LINK.unpack_from(message)
        return cls(index, flags, attributes(message[_LINK.size :]))


def request_links(netlink: socket.socket, index: int = 0, name: str = "") -> Iterator[Link]:
    """Yield the interface with this index or name, or all; OSError (ENODEV) where it does not exist."""
    wanted = attribute(_IFLA_IFNAME, encoded(name) + b"\0") if name else b""
    payload = _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0) + wanted
    return map(Link.parse, request(netlink, _RTM_GETLINK, payload, dump=not (index or name)))


def request(netlink: socket.socket, kind: int, payload: bytes, *, dump: bool = False) -> Iterator[bytes]:
    """Yield the payload of the answer to a request, or of all to a dump; OSError when the kernel rejects it."""
    flags = _REQUEST | (_DUMP if dump else 0)
    number = time.monotonic_ns() & 0xFFFFFFFF  # distinguishes the answers from those to an earlier, aborted request
    netlink.send(_HEADER.pack(_HEADER.size + len(payload), kind, flags, number, 0) + payload)
    while True:
        answers = [(answer, content) for answer, seq, content in _messages(netlink.recv(_ROOM)) if seq == number]
        for answer, content in answers:
            if answer == _NLMSG_DONE:
                return
            if answer == _NLMSG_ERROR:
                (error,) = struct.unpack_from("=i", content)
                raise OSError(-error, os.strerror(-error))
            yield content
        if answers and not dump:
            return


@contextmanager
def generic_netlink(family: str) -> Iterator[Callable[[int, bytes], dict[int, bytes]]]:
    """Yield a function for requests to a family of generic netlink, in the namespace of the calling thread.

    It takes a command and its attributes, and returns the attributes of the answer. OSError where the kernel lacks the
    family, or rejects a request.
    """
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)) as netlink:

        def send(kind: int, command: int, payload: bytes) -> dict[int, bytes]:
            (answer,) = request(netlink, kind, _GENERIC.pack(command, 1, 0) + payload)
            return attributes(answer[_GENERIC.size :])

        name = attribute(_CTRL_ATTR_FAMILY_NAME, family.encode() + b"\0")
        number_of_family = number(send(_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, name)[_CTRL_ATTR_FAMILY_ID])
        yield lambda command, payload: send(number_of_family, command, payload)


def attribute(kind: int, content: bytes) -> bytes:
    """Return one attribute, padded."""
    length = _ATTRIBUTE.size + len(content)
    return (_ATTRIBUTE.pack(length, kind) + content).ljust(_aligned(length), b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the content of attributes by type."""
    return dict(attribute_list(data))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of attributes, of which several may have one type."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind & _TYPE, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def nested(contents: dict[int, bytes], *path: int) -> bytes:
    """Return the content of a nested attribute; empty when one on the path is missing."""
    content = contents.get(path[0], b"")
    for kind in path[1:]:
        content = attributes(content).get(kind, b"")
    return content


def text(content: bytes) -> str:
    """Return an attribute's content as text."""
    return decoded(content.rstrip(b"\0"))


def number(content: bytes) -> int:
    """Return an attribute's content of any width as an integer; 0 for a missing one."""
    return int.from_bytes(content, sys.byteorder)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, sequence number and payload of each message."""
    while data:
        length, kind, _, sequence, _ = _HEADER.unpack_from(data)
        yield kind, sequence, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
