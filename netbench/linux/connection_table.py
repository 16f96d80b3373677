"""Empties the connection table (conntrack) of a network namespace, by netlink: ctnetlink_flush_conntrack in the kernel.

It also runs as a program on hosts without netbench, and imports only the standard library.
"""

import errno
import os
import socket
import struct

_NETLINK_NETFILTER = 12  # linux/netlink.h
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_DELETE = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE: all connections, if none is given
_REQUEST_ACK = 0x5
_ANY_FAMILY = bytes(4)  # nfgenmsg: AF_UNSPEC, version 0, resource 0
_ERROR = struct.Struct("=i")  # nlmsgerr: errno, negated
_LIMIT_S = 10.0
# A kernel without the subsystem: it may have a connection table nevertheless, which stays as it is.
_UNSUPPORTED = (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL)


def flush() -> None:
    """Remove all connections of this thread's namespace, where the kernel supports it; OSError if it refuses."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
            netlink.settimeout(_LIMIT_S)
            length = _HEADER.size + len(_ANY_FAMILY)
            netlink.send(_HEADER.pack(length, _DELETE, _REQUEST_ACK, 1, 0) + _ANY_FAMILY)
            (code,) = _ERROR.unpack_from(netlink.recv(4096), _HEADER.size)
        if code:
            raise OSError(-code, os.strerror(-code))
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


if __name__ == "__main__":
    flush()
