"""What a Linux guest counts: its NICs, queueing disciplines, softnet and IP layer, and its CPU time."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from netbench.errors import TestbedError
from netbench.linux.ip_layer import FORWARDED, ip_counters
from netbench.linux.proc import busy_s
from netbench.model.points import CounterReading, CountingPoint, Where

_MARK = "--netbench--"
_NIC_MARK = "--nic--"
_SCRIPT = (
    f'for nic; do echo "{_NIC_MARK}$nic"; ethtool -S "$nic"; done 2>/dev/null; echo {_MARK}; '
    f"cd /proc/net && cat dev && echo {_MARK} && cat snmp netstat && echo {_MARK} && cat softnet_stat && "
    f"echo {_MARK} && tc -s -j qdisc show; echo {_MARK} && cat /proc/stat"
)
INGRESS_NIC = CountingPoint("guest ingress NIC", Where.INSIDE, direction="rx", passing=True)
EGRESS_NIC = CountingPoint("guest egress NIC", Where.INSIDE, direction="tx", passing=True)
# On the way of every stream; the virtual NIC's own drops come before, though a guest's driver may tell of them.
GUEST_POINTS = (
    INGRESS_NIC,
    CountingPoint("guest softnet", Where.INSIDE),
    CountingPoint("guest IP layer", Where.INSIDE),
    CountingPoint("guest", Where.INSIDE, names_segment=True),
    CountingPoint("guest egress queue", Where.INSIDE),
    EGRESS_NIC,
)
VIRTUAL_NIC = CountingPoint("VMM ingress", Where.BEFORE, names_segment=True)
# What vmxnet3 calls frames for which it had no buffer; no other counter tells of them.
_OUT_OF_BUFFERS = re.compile(r"^ *pkts rx OOB: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GuestNics:
    """The names of one stream's NICs, as the guest calls them."""

    ingress: str
    egress: str


@dataclass(frozen=True, slots=True)
class GuestCounters:
    """Counters of a guest since it was started, in frames; `cpu_s` in seconds."""

    nics: Mapping[str, Mapping[str, int]]  # by name: rx, rx_errors, rx_dropped, tx, tx_errors, tx_dropped
    ip: tuple[tuple[str, str, int], ...]  # name, role and frames, as ip_counters has them
    softnet_dropped: int
    qdisc_dropped: Mapping[str, int]  # by NIC; empty when the guest cannot tell
    cpu_s: float
    out_of_buffers: Mapping[str, int]  # by NIC: frames that came when it had no room, where its driver tells


def read_command(nics: Iterable[str]) -> tuple[str, ...]:
    """One command, and so nearly one moment, for all counters of a guest and these NICs of it.

    ethtool comes first: it makes drivers that only look at their NIC every other second (e1000) look now.
    """
    return "sh", "-c", _SCRIPT, "sh", *nics


def parse_counters(text: str, guest: str) -> GuestCounters:
    """What `read_command` printed; TestbedError when that makes no sense."""
    try:
        drivers, dev, ip, softnet, qdiscs, stat = text.split(f"{_MARK}\n")
        return GuestCounters(
            nics=dict(_nic(line) for line in dev.splitlines()[2:]),
            ip=_ip(ip),
            softnet_dropped=sum(int(line.split()[1], 16) for line in softnet.splitlines()),
            qdisc_dropped={one["dev"]: int(one["drops"]) for one in json.loads(qdiscs or "[]") if one.get("root")},
            cpu_s=busy_s(stat),
            out_of_buffers={
                name: sum(counted) for name, counted in map(_out_of_buffers, drivers.split(_NIC_MARK)[1:]) if counted
            },
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TestbedError(f"{guest}: its counters make no sense: {error}") from error


def readings(
    counters: GuestCounters, nics: Mapping[str, GuestNics], *, own_kernel: bool = True
) -> Iterator[CounterReading]:
    """What is counted in the guest, for each stream, then for all of them together; what is unknown is left out.

    softnet's drops are in the `rx_dropped` of their NIC too (net/core/dev.c, enqueue_to_backlog), so they
    are not added up.
    """
    for stream, own in nics.items():
        for point, nic in ((INGRESS_NIC, own.ingress), (EGRESS_NIC, own.egress)):
            name, direction = point.name, point.direction
            counted = counters.nics.get(nic)
            if counted is None:
                raise TestbedError(f"NIC {nic} of the guest is gone")
            if direction == "rx" and nic in counters.out_of_buffers:
                # Told by the guest's driver, but dropped by the virtual NIC: the guest's kernel never had them.
                yield CounterReading(
                    stream, VIRTUAL_NIC.name, "rx_out_of_buffers", "dropped", counters.out_of_buffers[nic]
                )
            if direction == "tx" and nic in counters.qdisc_dropped:
                queue = counters.qdisc_dropped[nic]
                yield CounterReading(stream, "guest egress queue", "dropped", "dropped", queue)
            yield CounterReading(stream, name, direction, "passed", counted[direction])
            yield CounterReading(stream, name, f"{direction}_dropped", "dropped", counted[f"{direction}_dropped"])
            yield CounterReading(stream, name, f"{direction}_errors", "errors", counted[f"{direction}_errors"])
    if own_kernel:  # else they are those of its machine, counted there
        yield CounterReading("", "guest softnet", "dropped", "repeated", counters.softnet_dropped)
    for name, role, frames in counters.ip:
        yield CounterReading("", "guest IP layer", name, role, frames)


def _out_of_buffers(block: str) -> tuple[str, list[int]]:
    name, _, statistics = block.partition("\n")
    return name, list(map(int, _OUT_OF_BUFFERS.findall(statistics)))


def _nic(line: str) -> tuple[str, dict[str, int]]:
    name, _, numbers = line.partition(":")
    words = [int(word) for word in numbers.split()]
    columns = {"rx": 1, "rx_errors": 2, "rx_dropped": 3, "tx": 9, "tx_errors": 10, "tx_dropped": 11}
    return name.strip(), {column: words[place] for column, place in columns.items()}


def _ip(text: str) -> tuple[tuple[str, str, int], ...]:
    counters = tuple(ip_counters(text))
    if not counters or counters[0][0] != FORWARDED:
        raise ValueError("nothing is said of forwarding")
    return counters
