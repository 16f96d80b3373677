"""Check which interfaces of this machine a testbed may take over, with the reasons against the others.

netbench takes a port over completely: it changes offloads, adds the port to a bridge and loads it to its limit. So an
interface that anything else depends on is rejected before it is touched. Interfaces that carry an SSH session to this
host are rejected too.
"""

import ipaddress
import json
import os
import re
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.linux.locks import other_measurements
from netbench.linux.netns import every_namespace, namespace_path, within
from netbench.linux.proc import driver_of, lines_of, speed_mbps_of
from netbench.linux.safety.foreign_hooks import PPPOE, hooks_on
from netbench.model.foreign_text import decoded, read_text
from netbench.model.frame_size import USUAL_MTU

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


_PROC_NET = Path("/proc/thread-self/net")
_ARPHRD_ETHER = 1
_IFF_LOOPBACK = 0x8
_TABLES = {253: "default", 254: "main", 255: "local"}
_TO_SOMEBODY = (1, 2)  # RTN_UNICAST, RTN_LOCAL of linux/rtnetlink.h: broadcast and multicast routes every port has
_MOST_ROUTES = 3  # listed for one interface
# A NIC has no kind. The far end of a veth pair or of a tap belongs to its creator. Every other kind (bridge, bond,
# vlan, macvlan, tunnels, …) passes its frames on to interfaces that the user did not name.
_PORT_KINDS = (None, "veth", "tun")

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Message = Any  # pyroute2's messages have no types


@dataclass(frozen=True, slots=True)
class CandidatePort:
    """An interface, and why it cannot be used as a port of a testbed (`in_use` empty: it can).

    `only_addresses`: addresses are the only reason.

    `kind` is the kernel's link kind (`veth`, `bridge`, …), None for a NIC. `driver` and `speed_mbps` come
    from /sys/class/net and are None where that is not visible or has no value. `carrier` is None while the
    interface is down. `addresses` are written with their prefix length.
    """

    name: str
    mac: str
    driver: str | None
    speed_mbps: int | None
    mtu: int
    carrier: bool | None
    kind: str | None
    addresses: tuple[str, ...]
    in_use: tuple[str, ...]
    only_addresses: bool = False


@dataclass(frozen=True, slots=True)
class KernelLink:
    """One interface of the kernel's link dump. `lower` are the indexes of the interfaces it sends through."""

    index: int
    name: str
    mac: str = ""
    mtu: int = 1500
    kind: str | None = None
    ethernet: bool = True
    loopback: bool = False
    carrier: bool | None = None
    master: int | None = None
    lower: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """The facts that decide about the interfaces of one namespace, read in one pass; keys are interface indexes.

    `routes` lead beyond the subnets of the interface. `carried` are users of the interface that are not among `links`.
    Both are descriptions (`default route (IPv4, table main)`). `ssh` and `wireless` are sets of indexes.
    """

    links: tuple[KernelLink, ...]
    addresses: Mapping[int, tuple[str, ...]]
    routes: Mapping[int, tuple[str, ...]]
    carried: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ssh: frozenset[int] = frozenset()
    wireless: frozenset[int] = frozenset()


def refuse_unsafe_port(
    name: str, allowed_addresses: Collection[str] = (), netns: str | None = None, mtu: int = USUAL_MTU
) -> None:
    """Return when the interface `name` is free to be a port of a testbed, and takes frames of the required size.

    `allowed_addresses` are those the user expects on it, with or without a prefix length. `mtu` is never set, as a
    driver may restart its NIC for that; an MTU of 1500 is taken for granted. UsageError with every reason against it,
    MissingError when access to the namespace is denied.
    """
    ports = {port.name: port for port in read_ports(netns, allowed_addresses)}
    if name not in ports:
        existing = ", ".join(sorted(ports)) or "none"
        others = "; ".join(
            f"netbench with PID {other.pid} measures here (topology {other.topology})" for other in other_measurements()
        )
        raise UsageError(
            f"port {name}: this host has no interface of that name; its interfaces: {existing}"
            + (f". But {others}: if it has taken the port, wait until it ends" if others else "")
        )
    port = ports[name]
    if port.mtu < mtu > USUAL_MTU:
        raise UsageError(
            f"port {name}: its MTU is {port.mtu}, but the link's `mtu` in the topology is {mtu}: set it with "
            f"`ip link set dev {name} mtu {mtu}`, or remove `mtu`"
        )
    if port.in_use:
        free = sorted(port.name for port in ports.values() if not port.in_use)
        remedy = (
            f"Use a port that nothing else uses, here: {', '.join(free)}"
            if free
            else "No interface here is free: add a NIC, or use a topology of veth pairs such as `netns`"
        )
        if port.only_addresses:
            remedy += "; if the address belongs to the test, list it under `addresses` of this port"
        raise UsageError(
            f"port {name} is in use and netbench would take it over: it {'; '.join(port.in_use)}. {remedy}"
        )


def read_ports(netns: str | None = None, allowed_addresses: Collection[str] = ()) -> list[CandidatePort]:
    """Return all interfaces of a named namespace (None: netbench's own), in the kernel's order.

    Addresses in `allowed_addresses` do not count as a use. Wireless interfaces and SSH sessions are only
    recognised in netbench's own namespace. UsageError when there is no such namespace, MissingError when
    access is denied.
    """
    allowed = frozenset(_allowed_address(text) for text in allowed_addresses)
    snapshot = _read_snapshot(netns)
    return [
        CandidatePort(
            name=link.name,
            mac=link.mac,
            driver=driver_of(link.name) if netns is None else None,
            speed_mbps=speed_mbps_of(link.name) if netns is None else None,
            mtu=link.mtu,
            carrier=link.carrier,
            kind=link.kind,
            addresses=snapshot.addresses.get(link.index, ()),
            in_use=tuple(uses(link, snapshot, allowed)),
            only_addresses=not any(_other_uses(link, snapshot)),
        )
        for link in snapshot.links
    ]


def uses(link: KernelLink, snapshot: NamespaceSnapshot, allowed: Collection[Address] = ()) -> Iterator[str]:
    """Yield every reason why `link` must be left alone, worded to follow "it".

    IPv6 link-local addresses are no reason: the kernel assigns one to every interface that is up.
    """
    yield from _other_uses(link, snapshot)
    yield from _addresses(link, snapshot, allowed)


def _other_uses(link: KernelLink, snapshot: NamespaceSnapshot) -> Iterator[str]:
    """Yield the reasons that are no addresses."""
    names = {other.index: other.name for other in snapshot.links}
    if link.loopback:
        yield "is the loopback interface"
    elif not link.ethernet:
        yield "is not an Ethernet interface"
    if link.kind not in _PORT_KINDS:
        yield f"is of kind {link.kind}, not a NIC"
    if link.index in snapshot.wireless:
        yield "is wireless"
    if link.master is not None:
        yield f"is a member of {names.get(link.master, f'interface {link.master}')}"
    for other in snapshot.links:
        if link.index in other.lower:
            yield f"carries the {other.kind or 'interface'} {other.name}"
    for carried in snapshot.carried.get(link.index, ()):
        yield f"carries {carried}"
    routes = snapshot.routes.get(link.index, ())
    for route in routes[:_MOST_ROUTES]:
        yield f"carries the {route}"
    if len(routes) > _MOST_ROUTES:
        yield f"carries {len(routes) - _MOST_ROUTES} more such routes"
    if link.index in snapshot.ssh:
        yield "carries an SSH session to this host"


def _addresses(link: KernelLink, snapshot: NamespaceSnapshot, allowed: Collection[Address]) -> Iterator[str]:
    """Yield the addresses that are a reason."""
    for text in snapshot.addresses.get(link.index, ()):
        address = ipaddress.ip_interface(text).ip
        if address not in allowed and not (address.version == 6 and address.is_link_local):
            yield f"carries the address {text}"


def _allowed_address(text: str) -> Address:
    try:
        return ipaddress.ip_interface(text).ip
    except ValueError:
        raise UsageError(
            f"{text!r} under `addresses` of a port is not an IP address; write for example 192.0.2.1"
        ) from None


def read_links(netns: str | None = None) -> tuple[KernelLink, ...]:
    """Return the interfaces of `read_ports` without their uses, whose reading takes long; raises the same errors."""
    with _opened(netns) as iproute:
        return tuple(_link(message) for message in iproute.get_links())


def _opened(netns: str | None) -> IPRoute:
    try:
        # Without flags=0 pyroute2 would create a missing namespace.
        return IPRoute(netns=netns, flags=0) if netns else IPRoute()
    except FileNotFoundError:
        raise UsageError(f"there is no network namespace {netns!r}; see `ip netns`") from None
    except PermissionError:
        raise MissingError(f"reading the network namespace {netns!r} needs root: use sudo") from None


def _read_snapshot(netns: str | None) -> NamespaceSnapshot:
    with _opened(netns) as iproute:
        links = tuple(_link(message) for message in iproute.get_links())
        addresses: dict[int, list[str]] = defaultdict(list)
        subnets: dict[int, list[_Network]] = defaultdict(list)
        for message in iproute.get_addr():
            # On a point-to-point link IFA_ADDRESS is the peer's; IFA_LOCAL, where it exists, is ours.
            both = {message.get_attr("IFA_LOCAL"), message.get_attr("IFA_ADDRESS")} - {None}
            own = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            addresses[message["index"]].append(f"{own}/{message['prefixlen']}")
            subnets[message["index"]] += [
                ipaddress.ip_network(f"{address}/{message['prefixlen']}", strict=False) for address in both
            ]
        routes: dict[int, list[str]] = defaultdict(list)
        for family in (socket.AF_INET, socket.AF_INET6):
            for message in iproute.get_routes(family=family):
                for index in _interfaces_of_route(message):
                    if text := _beyond(message, subnets[index]):
                        routes[index].append(text)
        by_index = {index: tuple(texts) for index, texts in addresses.items()}
        here = netns is None
        return NamespaceSnapshot(
            links=links,
            addresses=by_index,
            routes={index: tuple(dict.fromkeys(texts)) for index, texts in routes.items()},
            carried=_carried(netns, {link.name: link.index for link in links}),
            ssh=frozenset(_ssh_interfaces(iproute, by_index)) if here else frozenset(),
            wireless=frozenset(link.index for link in links if here and _is_wireless(link.name)),
        )


def _link(message: _Message) -> KernelLink:
    carrier = message.get_attr("IFLA_CARRIER")
    # The index of a lower interface in another namespace is meaningless here.
    lower = _lower(message) if message.get_attr("IFLA_LINK_NETNSID") is None else set()
    return KernelLink(
        index=message["index"],
        name=_name(message),
        mac=message.get_attr("IFLA_ADDRESS") or "",
        mtu=message.get_attr("IFLA_MTU"),
        kind=_kind(message),
        ethernet=message["ifi_type"] == _ARPHRD_ETHER,
        loopback=bool(message["flags"] & _IFF_LOOPBACK),
        carrier=None if carrier is None else bool(carrier),
        master=message.get_attr("IFLA_MASTER"),
        lower=frozenset(index for index in lower if index != message["index"]),
    )


def _name(message: _Message) -> str:
    name: str | bytes = message.get_attr("IFLA_IFNAME")  # bytes where it is not UTF-8
    return decoded(name) if isinstance(name, bytes) else name


def _kind(message: _Message) -> str | None:
    info = message.get_attr("IFLA_LINKINFO")
    return info.get_attr("IFLA_INFO_KIND") if info else None


def _lower(message: _Message) -> set[int]:
    """Return the indexes, in their own namespace, of the interfaces that a link sends through."""
    info = message.get_attr("IFLA_LINKINFO")
    data = info.get_attr("IFLA_INFO_DATA") if info else None
    lower = set()
    if _kind(message) not in ("veth", "netkit"):  # their IFLA_LINK is the peer
        lower.add(message.get_attr("IFLA_LINK"))
    # Tunnels name the interface below them in their own attributes: IFLA_VXLAN_LINK, IFLA_GRE_LINK, …
    # pyroute2 does not decode the data of kinds it does not support.
    if isinstance(data, Mapping):
        lower |= {value for name, value in data["attrs"] if name.endswith("_LINK")}
    return {index for index in lower if index}


def _interfaces_of_route(message: _Message) -> set[int]:
    if message["type"] not in _TO_SOMEBODY:
        return set()
    hops = message.get_attr("RTA_MULTIPATH") or ()
    return {index for index in (message.get_attr("RTA_OIF"), *(hop["oif"] for hop in hops)) if index}


def _beyond(message: _Message, subnets: Collection[_Network]) -> str:
    """Return a description of a route beyond these subnets and beyond IPv6 neighbours; empty for other routes."""
    table = message.get_attr("RTA_TABLE") or message["table"]
    label = f"{'IPv4' if message['family'] == socket.AF_INET else 'IPv6'}, table {_TABLES.get(table, table)}"
    if message["dst_len"] == 0:
        return f"default route ({label})"
    to = ipaddress.ip_network(f"{message.get_attr('RTA_DST')}/{message['dst_len']}", strict=False)
    neighbours = to.version == 6 and to.is_link_local
    if neighbours or any(to.version == subnet.version and to.subnet_of(subnet) for subnet in subnets):  # type: ignore[arg-type]  # of one version
        return ""
    return f"route to {to} ({label})"


def _carried(netns: str | None, indexes: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Return the users of a namespace's interfaces that are not links there; `indexes` are the interfaces by name.

    Namespaces that this process may not access are left out.
    """
    carried: dict[int, list[str]] = defaultdict(list)
    home = namespace_path(netns)
    for path, namespace in every_namespace(excluded=home).items():
        with suppress(TestbedError, OSError):  # it ended meanwhile, or access is denied
            for index, text in within(path, lambda: _links_on(home)):
                carried[index].append(f"the {text} in {namespace}")
    with suppress(TestbedError, OSError):  # the same
        for index, text in within(home, lambda: [*pppoe_sessions(_PROC_NET, indexes), *hooks_on(indexes)]):
            carried[index].append(text)
    return {index: tuple(dict.fromkeys(texts)) for index, texts in carried.items()}


def _links_on(home: str) -> list[tuple[int, str]]:
    """Return the links of this thread's namespace on interfaces in `home`: index in `home`, and description."""
    with Path(home).open("rb", buffering=0) as namespace, IPRoute() as iproute:
        links = [link for link in iproute.get_links() if link.get_attr("IFLA_LINK_NETNSID") is not None]
        number = iproute.get_netnsid(fd=namespace.fileno())["nsid"] if links else None
    return [
        (index, f"{_kind(link) or 'interface'} {_name(link)}")
        for link in links
        if link.get_attr("IFLA_LINK_NETNSID") == number
        for index in _lower(link)
    ]


def pppoe_sessions(net: Path, indexes: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """Yield the interfaces of a namespace that PPPoE runs over, by index, with a description.

    `net` is its /proc/net: the kernel's sessions are in `pppoe` (seq_show of its drivers/net/ppp/pppoe.c); those of
    programs have packet sockets (`packet`: net/packet/af_packet.c).
    """
    for line in lines_of(net / "pppoe")[1:]:
        session, _, device = line.split(None, 2)  # a name may contain a Unicode space
        if device in indexes:
            yield indexes[device], f"the PPPoE session {session}"
    for line in lines_of(net / "packet")[1:]:
        columns = line.split()
        if columns[3] in PPPOE:
            yield int(columns[4]), "PPPoE of some program"


def _ssh_interfaces(iproute: IPRoute, addresses: Mapping[int, tuple[str, ...]]) -> Iterator[int]:
    """Yield the interfaces with a session's local address, and those through which answers to it leave."""
    for local, remote in ssh_sessions(os.environ):
        for index, texts in addresses.items():
            if local in {ipaddress.ip_interface(text).ip for text in texts}:
                yield index
        try:
            for route in iproute.route("get", dst=str(remote)):
                if index := route.get_attr("RTA_OIF"):
                    yield index
        except NetlinkError:
            continue  # no route to the client, so there is none to protect


def _is_wireless(name: str) -> bool:
    interface = Path("/sys/class/net", name)
    return (interface / "wireless").exists() or (interface / "phy80211").exists()


def main() -> None:
    """`python -m netbench.linux.safety.ports '[[PORT, MTU, ADDRESS…]…]'`: print why a port here is rejected."""
    _, wanted = sys.argv
    try:
        for name, mtu, *addresses in json.loads(wanted):
            refuse_unsafe_port(name, addresses, mtu=mtu)
    except (UsageError, MissingError) as error:
        print(json.dumps(str(error)))


if __name__ == "__main__":
    main()
