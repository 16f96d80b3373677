"""Datagrams that a kernel dropped because the sockets of receivers were full."""

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked

_COUNTER = "RcvbufErrors"


def read_socket_drops(host: Host) -> int | None:
    """Return the UDP datagrams that a host dropped so far at full sockets (proc(5), RFC 4113); None if unknown."""
    try:
        return parse_socket_drops(run_checked(host, ["cat", "/proc/net/snmp"]))
    except (TestbedError, ValueError):
        return None


def parse_socket_drops(snmp: str) -> int:
    """Return the counter in the text of /proc/net/snmp; ValueError without it."""
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Udp:")]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if _COUNTER in names:
            return int(values[names.index(_COUNTER)])
    raise ValueError(f"/proc/net/snmp has no {_COUNTER}")
