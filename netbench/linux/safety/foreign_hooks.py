"""Programs of others that see or take frames of interfaces: XDP, tc, nftables, packet sockets, routing rules.

Everything is read in the network namespace of the calling thread. Formats: linux/if_link.h, linux/rtnetlink.h,
linux/pkt_sched.h, linux/netfilter/nf_tables.h, linux/bpf.h, net/packet/af_packet.c.
"""

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from netbench.bpf.libbpf import loaded_here, program_name
from netbench.linux.netlink import attribute_list, attributes, number, request, request_links, route_socket, text
from netbench.linux.nft_rules import FAMILIES, own_tables
from netbench.linux.proc import descendants, lines_of

_RTM_GETRULE, _RTM_GETQDISC, _RTM_GETTFILTER = 34, 38, 46
_TC = struct.Struct("=BxxxiIII")  # tcmsg: family, index, handle, parent, info
_RULE = struct.Struct("=B11x")  # fib_rule_hdr: family, …
_FRA_PRIORITY, _FRA_NAMES = 6, {3: "iif", 17: "oif"}  # FRA_IIFNAME, FRA_OIFNAME
_RULE_COMMANDS = {socket.AF_INET: "ip rule", socket.AF_INET6: "ip -6 rule"}
_IFLA_XDP, _IFLA_XDP_ATTACHED, _IFLA_XDP_PROG_ID = 43, 2, 4
_OWN_NAMES = "nb_"
_XDP_MODES = {1: "native", 2: "generic", 3: "offload"}
_XDP_PROGRAMS = {5: "native", 6: "generic", 7: "offload"}  # IFLA_XDP_DRV_PROG_ID, …: the program of each mode
_XDP_OPTIONS = {"native": "xdpdrv", "generic": "xdpgeneric", "offload": "xdpoffload"}
_TCA_KIND = 1
_TC_DIRECTIONS = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
_HOOKED_IN = {"ingress": ["ingress"], "clsact": ["ingress", "egress"]}
_BPF_PROG_QUERY = 16
_TCX = {"ingress": 46, "egress": 47}  # enum bpf_attach_type
_QUERY = struct.Struct("=IIIIQI36x")  # of union bpf_attr: target, attach type, flags, answer's flags, ids, count
_MOST_PROGRAMS = 64
_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_NETLINK_NETFILTER = 12
_NFT = 10 << 8  # NFNL_SUBSYS_NFTABLES
_GETCHAIN, _GETFLOWTABLE = 4, 23
_ANY_FAMILY = bytes(4)  # nfgenmsg
# Hooks of chains at a device, by family and number: NFPROTO_NETDEV, NFPROTO_INET.
_DEVICE_HOOKS = {(5, 0): "ingress", (5, 1): "egress", (1, 5): "ingress"}
_HOOK_NUMBER, _HOOK_DEVICE, _HOOK_DEVICES = 1, 3, 4
_FLOWTABLE_NAME, _FLOWTABLE_HOOK, _FLOWTABLE_DEVICES = 2, 3, 3
_CHAIN_NAME, _CHAIN_HOOK, _TABLE = 3, 4, 1
# Discovery and session frames of PPPoE (RFC 2516), as /proc/net/packet writes their EtherTypes.
PPPOE = ("8863", "8864")

_Hooks = Iterator[tuple[int, str]]  # the index of an interface, and a noun phrase


def hooks_on(indexes: Mapping[str, int]) -> _Hooks:
    """Yield the hooks of others at interfaces, given by name and index: index and a noun phrase."""
    for read in (_xdp_programs, _tc_filters, _tcx_programs, _nft_hooks, _routing_rules, _packet_sockets):
        with suppress(OSError):  # the kernel lacks the feature, or does not list it for this user
            yield from list(read(indexes))


def unbound_packet_sockets() -> list[str]:
    """Return the programs that have a packet socket for all interfaces, with their PIDs."""
    return [owner for index, owner in _receivers(Path("/proc/thread-self/net")) if index == 0]


def _xdp_programs(indexes: Mapping[str, int]) -> _Hooks:
    names = {index: name for name, index in indexes.items()}
    with route_socket() as netlink:
        for link in request_links(netlink):
            if link.index in names:
                for program, mode in foreign_xdp_programs(link.attributes).items():
                    remedy = f"`ip link set dev {names[link.index]} {_XDP_OPTIONS[mode]} off` removes it"
                    yield link.index, f"the XDP program {program} ({mode}; {remedy})"


def foreign_xdp_programs(link: dict[int, bytes]) -> dict[str, str]:
    """Return the XDP programs of others at an interface, given by its attributes: name with id, and mode of each."""
    xdp = attributes(link.get(_IFLA_XDP, b""))
    programs = {mode: number(xdp[kind]) for kind, mode in _XDP_PROGRAMS.items() if number(xdp.get(kind, b""))}
    if attached := number(xdp.get(_IFLA_XDP_ATTACHED, b"")):
        programs = programs or {_XDP_MODES.get(attached, "native"): number(xdp.get(_IFLA_XDP_PROG_ID, b""))}
    return {_named(program): mode for mode, program in programs.items() if not is_own_program(program)}


def is_own_program(program: int) -> bool:
    """Return whether this process, or a descendant of it, has loaded a program, given by its id."""
    return program in loaded_here or _loaded_by_descendant(program)


@cache
def _loaded_by_descendant(program: int) -> bool:
    # The name is no proof, but it avoids the search for most programs of others.
    return program_name(program).startswith(_OWN_NAMES) and any(_has_open(pid, program) for pid in descendants())


def _has_open(pid: int, program: int) -> bool:
    line = f"prog_id:\t{program}"
    with suppress(OSError):  # it ended meanwhile
        return any(line in lines_of(descriptor) for descriptor in Path(f"/proc/{pid}/fdinfo").iterdir())
    return False


def _named(program: int) -> str:
    return f"{program_name(program)} (id {program})".lstrip()


def _tc_filters(indexes: Mapping[str, int]) -> _Hooks:
    names = {index: name for name, index in indexes.items()}
    with route_socket() as netlink:
        kinds = {
            _TC.unpack_from(message)[1]: text(attributes(message[_TC.size :]).get(_TCA_KIND, b""))
            for message in request(netlink, _RTM_GETQDISC, _TC.pack(0, 0, 0, 0, 0), dump=True)
            if text(attributes(message[_TC.size :]).get(_TCA_KIND, b"")) in _HOOKED_IN
        }
        hooked = [(index, direction) for index in kinds if index in names for direction in _HOOKED_IN[kinds[index]]]
        for index, direction in hooked:
            payload = _TC.pack(0, index, 0, _TC_DIRECTIONS[direction], 0)
            filters = request(netlink, _RTM_GETTFILTER, payload, dump=True)
            for kind in dict.fromkeys(text(attributes(entry[_TC.size :]).get(_TCA_KIND, b"")) for entry in filters):
                remedy = f"`tc filter del dev {names[index]} {direction}` removes it"
                yield index, f"a tc {direction} filter of kind {kind} ({remedy})"


def _routing_rules(indexes: Mapping[str, int]) -> _Hooks:
    with route_socket() as netlink:
        for family, command in _RULE_COMMANDS.items():
            for message in request(netlink, _RTM_GETRULE, _RULE.pack(family), dump=True):
                rule = attributes(message[_RULE.size :])
                for kind, way in _FRA_NAMES.items():
                    name = text(rule.get(kind, b""))
                    if name in indexes and message[0] == family:
                        remedy = f"`{command} del pref {number(rule.get(_FRA_PRIORITY, b''))}` removes it"
                        yield indexes[name], f"the routing rule `{way} {name}` ({remedy})"


def _tcx_programs(indexes: Mapping[str, int]) -> _Hooks:
    for name, index in indexes.items():
        for direction in _TCX:
            for program in foreign_tcx_programs(index, direction):
                yield index, f"the tcx {direction} program {program} (`bpftool net show dev {name}` lists it)"


def foreign_tcx_programs(index: int, direction: str) -> list[str]:
    """Return the programs of others at a tcx hook (ingress or egress) of an interface: names with ids.

    None before Linux 6.6.
    """
    call = _SYS_BPF.get(platform.machine())
    if call is None:
        return []
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    query = ctypes.create_string_buffer(
        _QUERY.pack(index, _TCX[direction], 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS), _QUERY.size
    )
    if ctypes.CDLL(None, use_errno=True).syscall(call, _BPF_PROG_QUERY, query, _QUERY.size) != 0:
        return []
    return [_named(program) for program in ids[: _QUERY.unpack(query.raw)[5]] if not is_own_program(program)]


def _nft_hooks(indexes: Mapping[str, int]) -> _Hooks:
    """Yield chains and flowtables of nftables that name a device."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        chains = list(request(netlink, _NFT | _GETCHAIN, _ANY_FAMILY, dump=True))
        flowtables: list[bytes] = []
        with suppress(OSError):  # a kernel without flowtables
            flowtables += request(netlink, _NFT | _GETFLOWTABLE, _ANY_FAMILY, dump=True)
    devices: list[tuple[str, str]] = []
    for message in chains:
        kind, chain = FAMILIES[message[0]], attributes(message[len(_ANY_FAMILY) :])
        hook, table = attributes(chain.get(_CHAIN_HOOK, b"")), text(chain.get(_TABLE, b""))
        way = _DEVICE_HOOKS.get((message[0], int.from_bytes(hook.get(_HOOK_NUMBER, b""))))
        if way and (kind, table) not in own_tables:
            name = f"{kind} {table} {text(chain.get(_CHAIN_NAME, b''))}"
            single = [text(hook[_HOOK_DEVICE])] if _HOOK_DEVICE in hook else []
            description = f"the nft {way} chain {name} (`nft delete chain {name}` removes it)"
            devices += [(device, description) for device in dict.fromkeys((*single, *_texts(hook, _HOOK_DEVICES)))]
    for message in flowtables:
        flowtable = attributes(message[len(_ANY_FAMILY) :])
        table, hook = text(flowtable.get(_TABLE, b"")), attributes(flowtable.get(_FLOWTABLE_HOOK, b""))
        if (FAMILIES[message[0]], table) not in own_tables:
            description = f"the nft flowtable {text(flowtable.get(_FLOWTABLE_NAME, b''))} of table {table}"
            devices += [(device, description) for device in _texts(hook, _FLOWTABLE_DEVICES)]
    yield from ((indexes[device], description) for device, description in devices if device in indexes)


def _texts(contents: Mapping[int, bytes], kind: int) -> list[str]:
    return [text(content) for _, content in attribute_list(contents.get(kind, b""))]


def _packet_sockets(indexes: Mapping[str, int]) -> _Hooks:
    for index, owner in _receivers(Path("/proc/thread-self/net")):
        if index in indexes.values():
            yield index, f"a packet socket of {owner}, which sees its frames: end that program"


def _receivers(net: Path) -> _Hooks:
    """Yield the interface (0: all) and the program of each packet socket that receives; `net` is a /proc/net."""
    sockets = {}
    for line in lines_of(net / "packet")[1:]:
        _, _, _, protocol, index, _, _, _, inode = line.split()
        if int(protocol, 16) and protocol not in PPPOE:
            sockets[inode] = int(index)
    owners = _owners(sockets) if sockets else {}
    for inode, interface in sockets.items():
        yield interface, owners.get(inode, "an unknown program")


def _owners(inodes: Collection[str]) -> dict[str, str]:
    """Return the program of each socket, with its PID; without sockets of inaccessible processes."""
    owners: dict[str, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or belongs to somebody else
            for descriptor in (process / "fd").iterdir():
                inode = str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]")
                if inode in inodes:
                    name = os.fsdecode((process / "comm").read_bytes()).strip()
                    owners.setdefault(inode, f"{name} (PID {process.name})")
    return owners
