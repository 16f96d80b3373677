"""The changes that make a Linux kernel forward between the NICs of each stream, in one of several ways, as data.

A stream and its reverse stream share one pair of NICs, for which each change is made once.

`bridge` and `route` are the usual paths through the kernel's layers 2 and 3. `flowtable` routes the first frames of
each flow; the rest goes from the ingress hook of nftables straight to the egress NIC (nf_flowtable.rst). `tc` redirects
all frames received by one NIC to the other before any layer sees them (tc-mirred(8)). `xdp` does so in the driver, and
is not made of changes: its programs exist as long as a process (`xdp_process`).

A process of netbench that forwards on the host of its NICs answers each line on its stdin, and once before the first,
with one JSON object. It ends when its stdin does.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host, machine_name
from netbench.hosts.clock import wait_until
from netbench.hosts.pipes import end
from netbench.hosts.remote_code import module_command_on
from netbench.hosts.trusted_code import module_command
from netbench.hosts.worker_client import WorkerProcess
from netbench.linux.changes import (
    AddBridge,
    AddForwardingEntry,
    AddIngress,
    AddVlan,
    Change,
    Enslave,
    ForgetConnections,
    Redirect,
    SetPromiscuous,
    SetSysctl,
    SetUp,
    of_nic,
)
from netbench.linux.counters.counting_points import NicCounters
from netbench.linux.machine import Machine
from netbench.model.packet_options import PacketOptions
from netbench.model.paths import PREFIX, InterfaceRef, StreamPath, each_nic_once, inside_nics
from netbench.uut.packet_interfaces import (
    NO_HANDLING,
    PacketHandling,
    entries_of,
    exit_of,
    interface_changes,
    learned_addresses,
)
from netbench.uut.routing import (
    addresses,
    flow_tables,
    forwarding_switches,
    ipv6_switches,
    nat_tables,
    reverse_path_filters_off,
    routes,
)

Forward = Literal["bridge", "route", "flowtable", "tc", "xdp"]
# Ways in which the kernel is a router: frames are addressed to it, and not to the sink.
ROUTING = ("route", "flowtable")


def unserved_reason(how: str) -> str:
    """Return why a guest that forwards in this way has no address to serve at; empty if it has one."""
    return "" if how in ROUTING else f"it has no IP address with `forward: {how}`; use `forward: route`"


def through_reason(how: str, options: PacketOptions) -> str:
    """Return why flows cannot run through a kernel that forwards in this way, with these options; empty if they can."""
    if how not in ROUTING:
        return f"flows through it run between two networks, and it does not route with `forward: {how}`; use route"
    changed = [name for name in ("nat", "terminate", "originate") if getattr(options, name)]
    if changed:
        return f"flows through it have plain headers, and it changes them: leave out {' and '.join(changed)}"
    return ""


def server_addresses(paths: Iterable[StreamPath], how: str) -> dict[str, str]:
    """Return the address towards the source of a guest that routes, by stream; none if it does not route."""
    return {path.name: path.ingress_ip for path in paths} if how in ROUTING else {}


_CARRIER_S = 30.0
_GUEST_CARRIER_S = 30.0  # with an emulated CPU it may take ten seconds for one answer
_POLL_S = 0.01
_ANSWER_S = 10.0
_ELSEWHERE_S = 60.0  # Python is slow to start on an emulated CPU
_END_S = 1.0


def require_way_back(key: str, given: object, paths: Sequence[StreamPath]) -> None:
    """Raise UsageError if an option for reverse streams is given, and none of these paths is one."""
    if given is not None and paths and not any(path.reverse_of for path in paths):
        names = ", ".join(path.name for path in paths)
        raise UsageError(
            f"{key}: it is about the way back of a stream, and none of {names} is one; "
            "leave it out, or give the topology one (`{name: back, reverse: " + paths[0].name + "}` under streams)"
        )


def await_forwarding(machine: Machine, places: Sequence[InterfaceRef], guest: str = "") -> None:
    """Return once all these NICs have a carrier and forward; TestbedError lists those that do not in time.

    `guest` is the name, in messages, of the guest with these NICs; empty for NICs of a machine, which have cables.
    """
    waiting = list(places)

    def all_forward() -> bool:
        counters = machine.read_nics(places)
        waiting[:] = [place for place in places if not (place in counters and forwards(counters[place]))]
        return not waiting

    limit_s = _GUEST_CARRIER_S if guest else _CARRIER_S
    if not wait_until(all_forward, limit_s, _POLL_S):
        if guest:
            raise TestbedError(f"{guest}: its NICs have no carrier after {limit_s:g} s")
        names = ", ".join(place.interface for place in waiting)
        raise TestbedError(f"{names}: no carrier after {limit_s:g} s; check the cable")


def forwards(nic: NicCounters) -> bool:
    """Return whether a NIC forwards yet: a kernel takes up to a second after its link has come up."""
    return nic.up and nic.forwards


def forwarding_changes(
    paths: Sequence[StreamPath], how: Forward, name: str = "NAME", handling: PacketHandling = NO_HANDLING
) -> list[Change]:
    """Return the changes that make a kernel forward for the UUT `name`; changes by the same tool are adjacent."""
    if how in ROUTING:
        switches = forwarding_switches(paths, handling, all_ours=False)
        return [*switches, *_forgotten(paths, how, handling), *_routing(paths, how, name, handling)]
    if how == "tc":
        return [*take_all(paths), *_redirects(paths)]
    if how == "xdp":
        return list(take_all(paths))
    bridges = _bridges(paths, handling)
    # In our namespaces IPv6 is off for all interfaces; elsewhere the bridge itself would send frames among ours.
    return [
        *no_bridge_netfilter(paths),
        *bridges,
        *no_ipv6(bridge.interface for bridge in bridges if bridge.netns is None),
        *_ports(paths, handling),
    ]


def changes_in_guest(paths: Sequence[StreamPath], how: Forward, handling: PacketHandling = NO_HANDLING) -> list[Change]:
    """Return the same for a guest's kernel: its NICs are still down, and IPv6 must be off to send no frames."""
    if not paths:
        return []
    up = [SetUp(nic.netns, nic.interface) for path in each_nic_once(paths) for nic in inside_nics(path)]
    quiet = no_ipv6(("all", "default"))
    if how in ROUTING:
        switches = forwarding_switches(paths, handling, all_ours=True)
        return [*quiet, *switches, *up, *_routing(paths, how, "guest", handling)]
    if how == "tc":
        return [*quiet, *up, *take_all(paths), *_redirects(paths)]
    return [*quiet, *no_bridge_netfilter(paths), *up, *_bridges(paths, handling), *_ports(paths, handling)]


def no_bridge_netfilter(paths: Sequence[StreamPath]) -> Iterator[Change]:
    """Yield the changes that disable netfilter for IP in all bridges of these paths' UUT."""
    for netns in _namespaces(paths):
        for family in ("iptables", "ip6tables", "arptables"):
            # The files exist only with br_netfilter; without it nothing needs to be switched off.
            yield SetSysctl(netns, f"net.bridge.bridge-nf-call-{family}", "0", optional=True)


def no_ipv6(interfaces: Iterable[str]) -> Iterator[Change]:
    """Yield the changes that disable IPv6 on interfaces outside namespaces; `all`: existing, `default`: new ones."""
    for interface in interfaces:
        yield SetSysctl(None, of_nic(6, interface, "disable_ipv6"), "1", optional=True)


def take_all(paths: Sequence[StreamPath]) -> list[Change]:
    """Return the changes that make NICs receive frames to other addresses, as they do in a bridge."""
    return [SetPromiscuous(nic.netns, nic.interface) for path in each_nic_once(paths) for nic in inside_nics(path)]


def _routing(paths: Sequence[StreamPath], how: Forward, name: str, handling: PacketHandling) -> Iterator[Change]:
    """Yield the changes that make a kernel route which forwards already."""
    yield from interface_changes(paths, handling, routes=True)
    yield from reverse_path_filters_off(paths, handling)
    yield from ipv6_switches(paths, handling)
    yield from addresses(paths, handling)
    yield from routes(paths, handling)
    yield from flow_tables(paths, handling, name) if how == "flowtable" else ()
    yield from nat_tables(paths, handling, name)


def _forgotten(paths: Sequence[StreamPath], how: Forward, handling: PacketHandling) -> Iterator[Change]:
    """Yield the changes that remove connections of former UUTs, whose addresses may be translated otherwise."""
    if handling.options.nat or how == "flowtable":
        yield from (ForgetConnections(netns) for netns in _namespaces(paths) if netns)


def _bridges(paths: Sequence[StreamPath], handling: PacketHandling) -> list[AddBridge]:
    """Return one bridge for each stream and its reverse stream."""
    filters = bool(handling.options.vlans)
    return [
        AddBridge(inside_nics(path)[0].netns, f"{PREFIX}br-{path.name}", filters=filters)
        for path in each_nic_once(paths)
    ]


def _ports(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the changes that make the NICs of each stream ports of its bridge, with the sink in its FDB."""
    vlans = handling.options.vlans
    yield from interface_changes(paths, handling, routes=False)
    for bridge, path in zip(_bridges(paths, handling), each_nic_once(paths), strict=True):
        for interface in _bridged(path, handling):
            yield Enslave(bridge.netns, interface, bridge.interface)
        yield SetUp(bridge.netns, bridge.interface)
    for path in each_nic_once(paths):
        netns = inside_nics(path)[0].netns
        yield from (AddVlan(netns, interface, vlan) for interface in _bridged(path, handling) for vlan in vlans)
    for path in paths:
        _, egress = inside_nics(path)
        for vlan in vlans or (None,):
            yield AddForwardingEntry(egress.netns, exit_of(path, handling), path.sink.mac, vlan)
    yield from learned_addresses(paths, handling)


def _bridged(path: StreamPath, handling: PacketHandling) -> list[str]:
    """Return the interfaces that a bridge joins for a stream."""
    return [*entries_of(path, handling, routes=False), exit_of(path, handling)]


def _redirects(paths: Sequence[StreamPath]) -> Iterator[Change]:
    """Yield redirects in both directions, so that a switch in front of the UUT learns where the sink is."""
    ways = [way for path in each_nic_once(paths) for nics in [inside_nics(path)] for way in (nics, nics[::-1])]
    yield from (AddIngress(nic.netns, nic.interface) for nic, _ in ways)
    yield from (Redirect(nic.netns, nic.interface, peer.interface) for nic, peer in ways)


def _namespaces(paths: Sequence[StreamPath]) -> list[str | None]:
    return list(dict.fromkeys(inside_nics(path)[0].netns for path in paths))


@dataclass(frozen=True, slots=True)
class StartProcess:
    """The process of one stream, or of a whole UUT: its name, its host, and the module that it runs."""

    name: str
    host: str
    module: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(module_command(self.module, *self.arguments))


class ForwardingProcess:
    """One process; MissingError on a host without netbench."""

    def __init__(self, host: Host, start: StartProcess) -> None:
        self._process = host.spawn(module_command_on(host, start.module, *start.arguments))
        self._conversation = WorkerProcess(f"the forwarder of host {host.name}", self._process)
        self._limit_s = _ELSEWHERE_S if machine_name(host) else _ANSWER_S

    def ask(self, request: str) -> Mapping[str, Any]:
        """Return the answer to `reset` or `read`; TestbedError without one."""
        self._conversation.write(request)
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """Return the next answer."""
        try:
            return self._conversation.any_reply(self._limit_s)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error

    def require_alive(self) -> None:
        """Raise TestbedError when it has ended."""
        if self._process.poll() is not None:
            raise TestbedError(self._conversation.failure("died"))

    def end(self) -> None:
        """End it: by closing its stdin, then by SIGKILL."""
        end(self._process, _END_S)
