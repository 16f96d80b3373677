"""The SSH sessions to this host, whose interfaces must not be touched."""

import ipaddress
import re
import struct
from collections.abc import Mapping
from pathlib import Path

from netbench.linux.proc import lines_of
from netbench.model.foreign_text import read_text

_TCP_ESTABLISHED = "01"
_SSH_PORT = 22
_SSH_SERVERS = ("sshd", "sshd-session", "sshd-auth", "dropbear")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Session = tuple[Address, Address]  # local, remote


def ssh_sessions(environment: Mapping[str, str], proc: Path = Path("/proc")) -> set[Session]:
    """Return the SSH sessions to this host.

    They come from SSH_CONNECTION (sshd(8)), which sudo drops, and from established TCP connections
    (/proc/net/tcp, /proc/net/tcp6: proc(5)) at port 22 or owned by an SSH server.
    """
    sessions = set()
    fields = environment.get("SSH_CONNECTION", "").split()
    if len(fields) == 4:
        local, remote = _plain_address(fields[2]), _plain_address(fields[0])
        if local and remote:
            sessions.add((local, remote))
    servers = _ssh_server_sockets(proc)
    for table in ("tcp", "tcp6"):
        for line in lines_of(proc / "net" / table)[1:]:
            columns = line.split()
            local_text, remote_text, state, inode = columns[1], columns[2], columns[3], columns[9]
            local_address, local_port = _socket_address(local_text)
            if state == _TCP_ESTABLISHED and (local_port == _SSH_PORT or inode in servers):
                sessions.add((local_address, _socket_address(remote_text)[0]))
    return sessions


def _ssh_server_sockets(proc: Path) -> set[str]:
    inodes = set()
    for comm in proc.glob("[0-9]*/comm"):
        try:
            if read_text(comm).strip() not in _SSH_SERVERS:
                continue
            targets = [str(fd.readlink()) for fd in (comm.parent / "fd").iterdir()]
        except OSError:
            continue  # ended meanwhile, or access denied
        inodes |= {match[1] for target in targets if (match := re.fullmatch(r"socket:\[(\d+)\]", target))}
    return inodes


def _socket_address(text: str) -> tuple[Address, int]:
    """Return address and port: `0100007F:0016` → 127.0.0.1, 22; 32-bit words in the byte order of the machine."""
    address, port = text.split(":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    return _unmapped(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _plain_address(text: str) -> Address | None:
    try:
        return _unmapped(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def _unmapped(address: Address) -> Address:
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
