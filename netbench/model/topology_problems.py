"""Contradictions within a topology: unknown names, NICs used twice, impossible links."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from netbench.model.cables import cable_problems
from netbench.model.interfaces import PREFIX, host_of, split_endpoint
from netbench.model.names import NIC_NAME
from netbench.model.scenario import VICTIM
from netbench.model.units import format_bit_rate

if TYPE_CHECKING:
    from netbench.model.topology import StreamSpec, Topology


def topology_problems(topology: "Topology") -> Iterator[str]:
    """Yield the contradictions and impossible parts of a topology as text; nothing if it is valid."""
    ends = [end for link in topology.links for end in link.ends]
    yield from (f"NIC {nic} is an end of more than one link" for nic, n in Counter(ends).items() if n > 1)
    for end in ends:
        host, nic = split_endpoint(end)
        if host not in topology.hosts:
            yield f"link end {end}: there is no host {host!r}; hosts are {', '.join(topology.hosts)}"
        elif nic not in topology.hosts[host].ports and not re.fullmatch(NIC_NAME, nic):
            yield f"link end {end}: a NIC name is a-z, 0-9 and -, starts with a letter, at most 12 long"
        elif owner := _stream_of_own(topology, topology.interface(end)):
            yield (
                f"link end {end}: {topology.interface(end)} is what netbench calls an interface that it makes for "
                f"stream {owner}; choose another name"
            )
    yield from _host_problems(topology)
    outside = [
        (topology.machine(host_of(end)), topology.interface(end)) for end in ends if not topology.netns(host_of(end))
    ]
    for (machine, name), n in Counter(outside).items():
        if n > 1:
            yield f"interface {name} would be on {machine or 'this machine'} twice"
    ports = [
        (topology.machine(name), port.nic) for name, host in topology.hosts.items() for port in host.ports.values()
    ]
    yield from (f"port {nic} is given to more than one NIC" for (_, nic), n in Counter(ports).items() if n > 1)
    for link in topology.links:
        kinds = {topology.is_port(end) for end in link.ends}
        if len(kinds) == 2:
            yield f"link {' – '.join(link.ends)}: one end is a port and the other is not; cable two ports or none"
        if link.receive == "napi" and True in kinds:
            yield f"link {' – '.join(link.ends)}: receive: a port takes frames in as its driver does; leave it out"
        if len(link.ends) == 1 and kinds == {False}:
            yield f"link {link.ends[0]}: a link with one end needs a port; name it under hosts"
    yield from _link_problems(topology)
    used = Counter(nic for stream in topology.streams if not stream.reverse for nic in stream.nics)
    yield from (
        f"NIC {nic} is used by more than one stream; only a stream and its way back (`reverse`) share NICs"
        for nic, n in used.items()
        if n > 1
    )
    yield from (f"NIC {nic} is used by a stream but is the end of no link" for nic in used if nic not in ends)
    for stream in topology.streams:
        yield from _stream_problems(topology, stream)
    if len({topology.machine(host_of(stream.ingress)) for stream in topology.streams if stream.ingress}) > 1:
        yield "streams: the UUT's NICs are all on one machine; here they are on several"
    yield from _twice("stream", [stream.name for stream in topology.streams])
    yield from _twice("UUT", [uut.name for uut in topology.uuts])
    yield from _neighbour_problems(topology)


def _stream_of_own(topology: "Topology", interface: str) -> str:
    """Return the stream for which netbench may make an interface of this name beside its NICs; empty for none.

    That is its bridge, or the attachment of a guest: the first letters of a kind and of `ingress` or `egress`.
    """
    return next((s.name for s in topology.streams if re.fullmatch(f"{PREFIX}(br|[a-z][ie])-{s.name}", interface)), "")


def _neighbour_problems(topology: "Topology") -> Iterator[str]:
    yield from _twice("neighbour", [neighbour.name for neighbour in topology.neighbours])
    known = [stream.name for stream in topology.streams]
    for neighbour in topology.neighbours:
        for name in neighbour.streams:
            if name not in known:
                yield (f"neighbour {neighbour.name}: there is no stream {name!r}; streams are {', '.join(known)}")
        yield from _twice(f"neighbour {neighbour.name}: stream", list(neighbour.streams))
    taken = Counter(stream for neighbour in topology.neighbours for stream in set(neighbour.streams))
    yield from (f"stream {name} runs through more than one neighbour" for name, n in taken.items() if n > 1)
    through = {stream: neighbour.name for neighbour in topology.neighbours for stream in neighbour.streams}
    for stream in topology.streams:
        if stream.reverse and through.get(stream.name) != through.get(stream.reverse):
            yield (
                f"neighbours: stream {stream.name} is the way back of {stream.reverse}: have both run through the "
                "same one"
            )
    if known and not topology.own_streams:
        yield "neighbours: every stream runs through one of them; leave at least one to the UUT"
    names = [neighbour.name for neighbour in topology.neighbours]
    if VICTIM in names:
        yield f"neighbours: {VICTIM} is what the guest beside them is called; choose another name"
    for uut in topology.uuts:
        for name, changes in uut.neighbours.items():
            if name not in names:
                choices = f"neighbours are {', '.join(names)}" if names else "the topology has none"
                yield f"UUT {uut.name}: neighbours: there is no {name!r}; {choices}"
            for key in sorted({"name", "streams"} & set(changes)):
                yield f"UUT {uut.name}: neighbours: {name}: {key} is the same beside every UUT; change it above"


def _host_problems(topology: "Topology") -> Iterator[str]:
    for name, host in topology.hosts.items():
        if host.on is not None and host.on not in topology.vms | topology.ssh_hosts:
            choices = f"; hosts of kind ssh are {', '.join(topology.ssh_hosts)}" if topology.ssh_hosts else ""
            yield f"host {name}: on: {host.on!r} is not a host of kind vm or ssh; {_known_vms(topology)}{choices}"
        if vm := topology.vms.get(host.on or ""):
            yield from (
                f"host {name}: ports: VM {host.on} has no NIC {port.nic}; name it under its nics"
                for port in host.ports.values()
                if port.nic not in vm.nics
            )
    yield from _one_machine_problems(topology)
    yield from cable_problems(topology)
    yield from _place_problems(topology)


def _one_machine_problems(topology: "Topology") -> Iterator[str]:
    at: dict[tuple[str, int | None], list[str]] = {}
    for name, spec in topology.ssh_hosts.items():
        at.setdefault((spec.address, spec.ssh_port), []).append(name)
    for (address, _), names in at.items():
        if len(names) > 1:
            yield f"hosts {', '.join(names)}: {address} is one machine; let it be one host, with all of its ports"


def _place_problems(topology: "Topology") -> Iterator[str]:
    """Yield the problems of the VMs that UUTs are on."""
    fixed = [name for name, host in topology.hosts.items() if host.kind in ("local", "ssh") or host.ports or host.nics]
    for uut in topology.uuts:
        if uut.on is None:
            continue
        if uut.on not in topology.vms:
            yield f"UUT {uut.name}: on: {uut.on!r} is not a host of kind vm; {_known_vms(topology)}"
        elif fixed:
            yield f"UUT {uut.name}: on: host {fixed[0]} cannot be in a VM; it is a machine, or has ports of one"
        else:
            yield from (f"UUT {uut.name}: on: {problem}" for problem in _link_problems(topology.on(uut.on)))


def _link_problems(topology: "Topology") -> Iterator[str]:
    for link in topology.links:
        apart = len({topology.machine(host_of(end)) for end in link.ends}) == 2
        if apart and not topology.is_port(link.ends[0]):
            yield (
                f"link {' – '.join(link.ends)}: its ends are on different machines; only ports are cabled from one "
                "to another"
            )


def _stream_problems(topology: "Topology", stream: "StreamSpec") -> Iterator[str]:
    if (stream.ingress is None) != (stream.egress is None):
        yield f"stream {stream.name}: give both ingress and egress, or neither"
    for outer, inner in ((stream.source, stream.ingress), (stream.sink, stream.egress)):
        if inner is not None and not any(set(link.ends) == {outer, inner} for link in topology.links):
            yield f"stream {stream.name}: there is no link between {outer} and {inner}"
    if stream.ingress and stream.egress and host_of(stream.ingress) != host_of(stream.egress):
        yield f"stream {stream.name}: ingress and egress must be NICs of the same host, the UUT"
    yield from _way_back_problems(topology, stream)


def _way_back_problems(topology: "Topology", stream: "StreamSpec") -> Iterator[str]:
    rates = {link.rate for link in topology.links if {stream.source, stream.sink} & set(link.ends)}
    if stream.reverse and len(rates) > 1:
        listed = " and ".join(map(format_bit_rate, sorted(rates)))
        yield (
            f"stream {stream.name}: both ways are sent at the same rate, and the links of {stream.reverse} have "
            f"{listed}; give both the lower one"
        )


def _known_vms(topology: "Topology") -> str:
    return f"VMs are {', '.join(topology.vms)}" if topology.vms else "there is none"


def _twice(what: str, names: list[str]) -> Iterator[str]:
    yield from (f"{what} {name!r} is there twice" for name, n in Counter(names).items() if n > 1)
