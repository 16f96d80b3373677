"""The nftables rules that may drop frames, and the number of frames that each has dropped.

They come from nft's JSON output (libnftables-json(5)), and from its text, because nft 1.0 omits the devices of chains
in JSON. Rules of the older ip_tables and ebtables are not included. The kernel itself is queried whether there are any
rules except netbench's own (linux/netfilter/nfnetlink.h, nf_tables.h).
"""

import errno
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from netbench.linux.netlink import attributes, request, text

LIST_RULES = ("nft", "-j", "list", "ruleset")
LIST_CHAINS = ("nft", "list", "chains")

# Statements after which every frame continues to the next statement.
_PASSING = frozenset({"counter", "log", "mangle"})
_DROPPING = frozenset({"drop", "reject"})
_LEAVING = frozenset({"fwd", "queue"})  # unknown whether frames reach their destination from there
_REJECTING_XT = {"xt": {"type": "target", "name": "REJECT"}}  # of iptables-nft(8), whose -j DROP is nft's own
_JUMPS = ("jump", "goto")
# Frames of a stream are UDP in IPv4. They never match a condition on a header that they lack.
_HEADERS_OF_OTHERS = frozenset({"arp", "ip6", "icmp", "icmpv6", "igmp", "tcp", "sctp", "dccp"})
_OF_STREAMS: Mapping[str, tuple[object, ...]] = {
    "ether type": ("ip", 0x0800),
    "meta protocol": ("ip", 0x0800),
    "meta nfproto": ("ipv4", 2),
    "ip protocol": ("udp", 17),
    "meta l4proto": ("udp", 17),
}
# Conditions that distinguish streams: the direction of a frame at an interface, or its address.
_DISTINGUISHING = {"meta iif": "rx ", "meta iifname": "rx ", "meta oif": "tx ", "meta oifname": "tx ", "ip daddr": ""}

_TABLE = re.compile(r"table (\S+) (\S+) \{")
_CHAIN = re.compile(r"\tchain (\S+) \{")
_DEVICES = re.compile(r"\t\ttype .* devices? (.+) priority ")
_DEVICE = re.compile(r'[^\s"{},=]+')

_NETLINK_NETFILTER = 12
_NFT_MSG_GETTABLE, _NFT_MSG_GETGEN = 10 << 8 | 1, 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES
_ANY_FAMILY = bytes(4)  # nfgenmsg
_NFTA_TABLE_NAME, _NFTA_GEN_ID = 1, 1
FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}  # NFPROTO_INET, …
_WITHOUT_NFTABLES = (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL)

own_tables: set[tuple[str, str]] = set()
"""Families and names of the tables that netbench has now, in whichever namespaces."""

_Statement = Mapping[str, Any]
_Named = tuple[str, str, str]  # family and table of a counter or map, and its name


class NftHook(NamedTuple):
    """Where the kernel calls a base chain; `device` is empty where it is called for all devices."""

    family: str
    name: str
    device: str


@dataclass(frozen=True, slots=True)
class Dropper:
    """A rule, or the policy of a chain, that may drop frames, and the hooks from which frames reach it.

    `frames` is None where its drops are not counted: without a counter, or with one in front of a condition, which
    also counts frames that pass. The kernel reuses neither the `handle` of a table nor, within it, that of a rule. Only
    frames reach it that match one entry of each set in `only`. An entry is a destination address, or a direction (`rx`
    or `tx`) and an interface.
    """

    name: str
    hooks: frozenset[NftHook]
    frames: int | None
    table: str = ""
    handle: tuple[str, ...] = ()
    only: tuple[frozenset[str], ...] = ()


class _ChainName(NamedTuple):
    family: str
    table: str
    chain: str


@dataclass(slots=True)
class _Ruleset:
    """The active rules: those of tables that are neither dormant nor netbench's own."""

    bases: dict[_ChainName, _Statement] = field(default_factory=dict)
    rules: dict[_ChainName, list[_Statement]] = field(default_factory=dict)
    counters: dict[_Named, int] = field(default_factory=dict)
    maps: dict[_Named, object] = field(default_factory=dict)
    handles: dict[tuple[str, str], str] = field(default_factory=dict)

    def handle(self, name: _ChainName, rule: _Statement) -> tuple[str, ...]:
        """Return an identifier of a rule that no other rule ever has."""
        return self.handles[name[:2]], str(rule["handle"])


class Tables(NamedTuple):
    """Whether nftables has tables that are not netbench's own (also of iptables-nft), and the number of rule changes.

    The kernel counts every change of tables, chains and rules in `generation`; None if that is unknown.
    """

    has_foreign: bool
    generation: int | None


def read_tables() -> Tables:
    """Return the tables of this thread's namespace."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
            (answer,) = request(netlink, _NFT_MSG_GETGEN, _ANY_FAMILY)
            tables = [
                (FAMILIES.get(table[0], ""), text(attributes(table[len(_ANY_FAMILY) :])[_NFTA_TABLE_NAME]))
                for table in request(netlink, _NFT_MSG_GETTABLE, _ANY_FAMILY, dump=True)
            ]
    except OSError as error:
        # A kernel without nftables has no tables; another error may hide some.
        return Tables(error.errno not in _WITHOUT_NFTABLES, None)
    generation = int.from_bytes(attributes(answer[len(_ANY_FAMILY) :])[_NFTA_GEN_ID])
    return Tables(not own_tables.issuperset(tables), generation)


def parse_droppers(rules: str, chains: str) -> tuple[Dropper, ...] | None:
    """Return all rules that may drop frames of a stream, as `droppers` does; None if the texts are malformed."""
    try:
        return tuple(droppers(rules, chains))
    except (ValueError, LookupError, TypeError, AttributeError):  # in JSON of nft, of which any part may be missing
        return None


def droppers(rules: str, chains: str) -> Iterator[Dropper]:
    """Yield all rules that may drop frames of a stream, from LIST_RULES' and LIST_CHAINS' output, in nft's order.

    ValueError, LookupError or TypeError for other texts.
    """
    ruleset = _parse(rules)
    hooks = _hooks(ruleset, _devices(chains))
    uses = Counter(
        use
        for name, chain_rules in ruleset.rules.items()
        for rule in chain_rules
        for use in _named_counters(name, rule)
    )
    counters = {name: frames for name, frames in ruleset.counters.items() if uses[name] == 1}
    for name, chain_rules in ruleset.rules.items():
        title, table, reached = f"nft {' '.join(name)}", f"{name.family} {name.table}", hooks.get(name, frozenset())
        for rule in chain_rules:
            conditions = [_condition(statement) for statement in rule["expr"]]
            if not any(_spares_streams(*condition) for condition in conditions):
                only = tuple(values for condition in conditions if (values := _distinguishing(*condition)))
                handle = ruleset.handle(name, rule)
                for frames in _dropped(name, rule["expr"], counters, ruleset.maps):
                    yield Dropper(f"{title} rule {rule['handle']}", reached, frames, table, handle, only)
    for name, base in ruleset.bases.items():
        if base.get("policy") == "drop":
            last = ruleset.rules.get(name, [{"expr": [], "handle": 0}])[-1]
            counted = last["expr"] if all(_kind(statement) in _PASSING for statement in last["expr"]) else []
            title, table = f"nft {' '.join(name)} policy", f"{name.family} {name.table}"
            for frames in _dropped(name, [*counted, {"drop": None}], counters, ruleset.maps):
                yield Dropper(title, hooks[name], frames, table, ruleset.handle(name, last))


def _condition(statement: _Statement) -> tuple[str, str, Sequence[object]]:
    """Return the compared field of a frame, the operator and the values; no values unless it is a simple comparison."""
    match = statement.get("match")
    left = match["left"] if isinstance(match, dict) else {}
    if not isinstance(match, dict) or not isinstance(left, dict):
        return "", "", ()
    header, meta = left.get("payload", {}), left.get("meta", {})
    what = f"meta {meta['key']}" if "key" in meta else f"{header.get('protocol')} {header.get('field')}"
    right = match["right"]
    values = right["set"] if isinstance(right, dict) and "set" in right else [right]
    return what, match["op"], values if all(isinstance(value, str | int) for value in values) else ()


def _spares_streams(what: str, op: str, values: Sequence[object]) -> bool:
    if what.split(" ")[0] in _HEADERS_OF_OTHERS:
        return True
    if not values or what not in _OF_STREAMS or op not in ("==", "!=", "in"):
        return False
    among = any(value in _OF_STREAMS[what] for value in values)
    return among if op == "!=" else not among


def _distinguishing(what: str, op: str, values: Sequence[object]) -> frozenset[str]:
    if what not in _DISTINGUISHING or op not in ("==", "in") or any("*" in str(value) for value in values):
        return frozenset()
    return frozenset(f"{_DISTINGUISHING[what]}{value}" for value in values)


def _parse(listing: str) -> _Ruleset:
    ruleset = _Ruleset()
    dormant = set()
    for entry in json.loads(listing)["nftables"]:
        ((kind, body),) = entry.items()
        if kind == "table":
            ruleset.handles[body["family"], body["name"]] = str(body["handle"])
            if _dormant(body):
                dormant.add((body["family"], body["name"]))
        if kind in ("metainfo", "table"):
            continue
        family, table = body["family"], body["table"]
        if (family, table) in dormant | own_tables:
            continue
        if kind == "chain" and "hook" in body:
            ruleset.bases[_ChainName(family, table, body["name"])] = body
        elif kind == "rule":
            ruleset.rules.setdefault(_ChainName(family, table, body["chain"]), []).append(body)
        elif kind == "counter":
            ruleset.counters[family, table, body["name"]] = int(body["packets"])
        elif kind == "map":
            ruleset.maps[family, table, body["name"]] = body.get("elem", [])
    return ruleset


def _dormant(table: _Statement) -> bool:
    flags = table.get("flags", [])
    return any(flag in ("dormant", "d") for flag in ([flags] if isinstance(flags, str) else flags))  # nft 1.0.6: "d"


def _devices(chains: str) -> dict[_ChainName, list[str]]:
    devices = {}
    family = table = chain = ""
    for line in chains.splitlines():
        if match := _TABLE.match(line):
            family, table = match.groups()
        elif match := _CHAIN.match(line):
            chain = match[1]
        elif match := _DEVICES.match(line):
            devices[_ChainName(family, table, chain)] = _DEVICE.findall(match[1])
    return devices


def _hooks(ruleset: _Ruleset, devices: Mapping[_ChainName, Sequence[str]]) -> dict[_ChainName, frozenset[NftHook]]:
    """Return the hooks from which frames reach each chain, also by jumps."""
    hooks: dict[_ChainName, frozenset[NftHook]] = {}
    for name, base in ruleset.bases.items():
        own = frozenset(NftHook(name.family, base["hook"], device) for device in devices.get(name, [""]))
        reached, unvisited = {name}, [name]
        while unvisited:
            caller = unvisited.pop()
            for rule in ruleset.rules.get(caller, []):
                for verdict, target in _verdicts(caller, rule["expr"], ruleset.maps):
                    called = caller._replace(chain=target)
                    if verdict in _JUMPS and called not in reached:
                        reached.add(called)
                        unvisited.append(called)
        for chain in reached:
            hooks[chain] = hooks.get(chain, frozenset()) | own
    return hooks


def _named_counters(name: _ChainName, rule: _Statement) -> Iterator[_Named]:
    for statement in rule["expr"]:
        if _kind(statement) == "counter" and isinstance(statement["counter"], str):
            yield name.family, name.table, statement["counter"]


def _dropped(
    name: _ChainName,
    statements: Sequence[_Statement],
    counters: Mapping[_Named, int],
    maps: Mapping[_Named, object],
) -> Iterator[int | None]:
    """Yield the frames that one rule has dropped, None where uncounted; nothing for a rule that cannot drop."""
    counted = None
    for statement in statements:
        kind = _kind(statement)
        if kind in _DROPPING or statement == _REJECTING_XT:
            yield counted
        elif kind in _LEAVING or (kind == "xt" and statement is statements[-1]):
            yield None  # unknown what userspace, or a target of iptables, does with them
        elif kind == "vmap" and any(verdict in ("drop", "queue") for verdict, _ in _verdicts(name, statement, maps)):
            yield None
        elif kind == "counter":
            own = statement["counter"]
            counted = counters.get((name.family, name.table, own)) if isinstance(own, str) else int(own["packets"])
        elif kind not in _PASSING:
            counted = None  # a condition: fewer frames than were counted come this far


def _verdicts(name: _ChainName, value: object, maps: Mapping[_Named, object]) -> Iterator[tuple[str, str]]:
    """Yield all verdicts within a statement, each with the chain it names, including elements of verdict maps."""
    if isinstance(value, list):
        for element in value:
            yield from _verdicts(name, element, maps)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in ("drop", "queue"):
                yield key, ""
            elif key in _JUMPS:
                yield key, inner["target"]
            elif key == "data" and isinstance(inner, str):
                yield from _verdicts(name, maps.get((name.family, name.table, inner.removeprefix("@"))), maps)
            else:
                yield from _verdicts(name, inner, maps)


def _kind(statement: _Statement) -> str:
    return next(iter(statement))
