"""Asking the kernel by netlink: by one socket of pyroute2 a network namespace, and by hand.

By hand are the few questions that must be asked from inside a namespace, and fast. Formats: linux/netlink.h.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError
from netbench.hosts.signals import shielded

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_ERROR = struct.Struct("=i")
_REQUEST, _DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NETLINK_GENERIC = 16
_GENERIC = struct.Struct("=BBH")  # genlmsghdr of linux/genetlink.h: command, version, reserved
_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
_TYPE = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_ROOM = 1 << 16


class Netlink:
    """The netlink sockets of one run, by namespace name (None: the one netbench runs in)."""

    def __init__(self) -> None:
        self._sockets: dict[str | None, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def socket(self, netns: str | None) -> Any:  # noqa: ANN401 - pyroute2 is untyped
        """The IPRoute of a namespace; TestbedError when the namespace is gone."""
        if netns not in self._sockets:
            try:
                with shielded():  # pyroute2 forks to enter a namespace, and a signal handler must not unwind the fork
                    self._sockets[netns] = IPRoute(netns=netns, flags=0) if netns else IPRoute()
            except (OSError, NetlinkError) as error:
                raise TestbedError(f"network namespace {netns} cannot be entered: {error}") from error
        return self._sockets[netns]

    def forget(self, netns: str | None) -> None:
        """Close the socket of a namespace, before the namespace itself goes."""
        opened = self._sockets.pop(netns, None)
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Close all of them."""
        for netns in list(self._sockets):
            self.forget(netns)


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


class Generic:
    """A family of generic netlink, in the namespace of the calling thread; OSError where the kernel has none such."""

    def __init__(self, family: str) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        try:
            self._family = _GENL_ID_CTRL
            answer = self.ask(_CTRL_CMD_GETFAMILY, attribute(_CTRL_ATTR_FAMILY_NAME, family.encode() + b"\0"))
            self._family = int.from_bytes(answer[_CTRL_ATTR_FAMILY_ID], sys.byteorder)
        except BaseException:
            self._socket.close()
            raise

    def ask(self, command: int, request: bytes) -> dict[int, bytes]:
        """The attributes of the one answer to a command with these attributes; OSError when the kernel refuses."""
        (answer,) = ask(self._socket, self._family, _GENERIC.pack(command, 1, 0) + request)
        return attributes(answer[_GENERIC.size :])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


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
