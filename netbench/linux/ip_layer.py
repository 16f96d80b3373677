"""What the IPv4 layer of a network namespace counts (/proc/net/snmp and /proc/net/netstat; net/ipv4/proc.c).

RFC 4293's ipSystemStatsTable, and what Linux counts beyond it. `InNoRoutes`: no route at all. Routes of the types
blackhole, unreachable and prohibit, and multicast that nobody routes, are counted nowhere. `NoPorts` of UDP: frames for
this machine itself, for which nobody waits.
"""

from collections.abc import Iterator

FORWARDED = "ForwDatagrams"

_DROPS = {
    "Ip": (
        *("InHdrErrors", "InAddrErrors", "InUnknownProtos", "InDiscards"),
        *("OutDiscards", "OutNoRoutes", "ReasmFails", "FragFails"),
    ),
    "IpExt": ("InNoRoutes", "InTruncatedPkts"),
    "TcpExt": ("IPReversePathFilter",),
    "Udp": ("NoPorts",),
}


def ip_counters(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, role (`passed` or `dropped`) and frames of each counter in both files, one after the other.

    One that this kernel does not have is left out. ValueError for what are no such files.
    """
    counted: dict[tuple[str, str], int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group, *columns = names.split()
        for name, value in zip(columns, values.split()[1:], strict=True):
            counted[group.removesuffix(":"), name] = int(value)
    if ("Ip", FORWARDED) in counted:
        yield FORWARDED, "passed", counted["Ip", FORWARDED]
    for group, drops in _DROPS.items():
        for name in drops:
            if (group, name) in counted:
                yield f"UDP {name}" if group == "Udp" else name, "dropped", counted[group, name]
