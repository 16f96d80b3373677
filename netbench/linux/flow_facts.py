"""Facts about a kernel on which the throughput of many flows depends: receive queues, RSS, RPS, and conntrack."""

import re
from collections.abc import Sequence

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host

# Prints the RPS mask of each receive queue as `PATH:MASK`; with /dev/null, grep prints the path of a single file, too.
_MASKS = 'exec grep -s "" /dev/null /sys/class/net/"$0"/queues/rx-*/rps_cpus'
_RINGS = re.compile(r"with (\d+) RX ring")  # of `ethtool -x`
_CONNTRACK = "/proc/sys/net/netfilter/nf_conntrack_"
_UNKNOWN = "unknown"


def flow_facts(host: Host, interfaces: Sequence[str]) -> dict[str, str]:
    """Return the facts about the interfaces of a UUT and its kernel; a value that cannot be read is `unknown`.

    `receive_queues` and `rss` are by interface, if these differ. `receive_queues` include those whose frames the kernel
    spreads over CPUs (RPS). `rss` is the number of rings over which the NIC spreads flows, `none` if it does not.
    `conntrack` are the limits of the connection table.
    """
    return {
        "receive_queues": _listed({interface: _queues(host, interface) for interface in interfaces}),
        "rss": _listed({interface: _rss(host, interface) for interface in interfaces}),
        "conntrack": _conntrack(host),
    }


def _listed(values: dict[str, str]) -> str:
    """Return `in1 1, out1 4`, or the value alone if all are equal."""
    distinct = dict.fromkeys(values.values())
    return next(iter(distinct)) if len(distinct) == 1 else ", ".join(f"{name} {of}" for name, of in values.items())


def _queues(host: Host, interface: str) -> str:
    try:
        lines = host.run(["sh", "-c", _MASKS, interface]).stdout.splitlines()
    except (TestbedError, MissingError):
        return _UNKNOWN
    masks = [line.rpartition(":")[2] for line in lines if line]
    spread = sum(any(digit not in "0," for digit in mask) for mask in masks)
    return f"{len(masks) or _UNKNOWN}" + (f" (RPS on {spread})" if spread else "")


def _rss(host: Host, interface: str) -> str:
    try:
        shown = host.run(["ethtool", "-x", interface])
    except (TestbedError, MissingError):
        return _UNKNOWN
    rings = _RINGS.search(shown.stdout)
    if rings is None:
        return "none"
    return f"{rings[1]} rings" if int(rings[1]) > 1 else "none"


def _conntrack(host: Host) -> str:
    """Return the limit and the buckets of the connection table; it is empty unless a rule refers to connections."""
    try:
        most, buckets = (int(host.read(_CONNTRACK + name)) for name in ("max", "buckets"))
    except (TestbedError, ValueError):
        return "not in this kernel"
    return f"up to {most:,} connections, {buckets:,} buckets"
