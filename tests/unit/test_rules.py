"""Dropping rules, read from the output of nft 1.0.6 and later."""

import json
from dataclasses import replace

import pytest

from netbench.linux.nft_rules import Dropper, NftHook, droppers

COUNTED = {"counter": {"packets": 7, "bytes": 420}}
DROP = {"drop": None}
IFNAME = {"key": {"meta": {"key": "iifname"}}}
LIMIT = {"limit": {"rate": 5, "burst": 5, "per": "second", "inv": True}}
MATCH = {"match": {"op": "<", "left": {"numgen": {"mode": "inc", "mod": 100, "offset": 0}}, "right": 7}}
LOG = {"log": {"prefix": "drop"}}
JUMP = {"jump": {"target": "sub"}}
FORWARD = NftHook("inet", "forward", "")


def table(flags=None, name="x"):
    return {"table": {"family": "inet", "name": name, "handle": 1, **({"flags": flags} if flags else {})}}


def chain(name="c", hook="forward", policy="accept", table="x"):
    base = {"type": "filter", "hook": hook, "prio": 0, "policy": policy} if hook else {}
    return {"chain": {"family": "inet", "table": table, "name": name, "handle": 2, **base}}


def rule(*expr, chain="c", handle=3, table="x"):
    return {"rule": {"family": "inet", "table": table, "chain": chain, "handle": handle, "expr": list(expr)}}


def listed(*entries, chains=""):
    return list(droppers(json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *entries]}), chains))


def found(*entries, chains=""):
    """Return what may drop, without the fields that tell rules of one name apart."""
    return [replace(dropper, table="", handle=()) for dropper in listed(*entries, chains=chains)]


@pytest.mark.parametrize(
    ("statements", "frames"),
    [
        ([COUNTED, DROP], 7),
        ([MATCH, COUNTED, LOG, DROP], 7),
        ([LIMIT, COUNTED, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 4}}, {"reject": {}}], 7),
        ([COUNTED, {"fwd": {"dev": "eth7"}}], None),
        ([COUNTED, {"xt": {"type": "target", "name": "REJECT"}}], 7),
        ([DROP], None),
        ([MATCH, DROP], None),
        ([COUNTED, LIMIT, DROP], None),
        ([COUNTED, MATCH, DROP], None),
        ([COUNTED, {"queue": {"num": 3}}], None),
        ([COUNTED, {"xt": {"type": "target", "name": "TEE"}}], None),
        ([COUNTED, {"xt": None}], None),
        (
            [{"vmap": {**IFNAME, "data": {"set": [["a", {"accept": None}], ["b", DROP]]}}}],
            None,
        ),
        ([{"vmap": {**IFNAME, "data": "@fates"}}], None),
        ([{"counter": "only"}, DROP], 9),
        ([{"counter": "shared"}, DROP], None),
    ],
)
def test_only_a_counter_behind_the_last_condition_counts_what_is_dropped(statements, frames):
    entries = [
        table(),
        {"counter": {"family": "inet", "name": "only", "table": "x", "handle": 8, "packets": 9, "bytes": 9}},
        {"counter": {"family": "inet", "name": "shared", "table": "x", "handle": 9, "packets": 9, "bytes": 9}},
        {"map": {"family": "inet", "name": "fates", "table": "x", "map": "verdict", "elem": [["a", DROP]]}},
        chain(),
        rule(*statements, handle=4),
        rule({"counter": "shared"}, {"accept": None}, handle=5),
    ]
    assert found(*entries) == [Dropper("nft inet x c rule 4", frozenset({FORWARD}), frames)]


@pytest.mark.parametrize(
    "statements", [[COUNTED], [COUNTED, {"accept": None}], [MATCH, {"return": None}], [JUMP], [LOG]]
)
def test_other_rules_drop_nothing(statements):
    assert found(table(), chain(), chain("sub", hook=""), rule(*statements)) == []


def test_a_rule_of_the_same_name_in_a_table_made_anew_is_another():
    again = {"table": {**table()["table"], "handle": 2}}
    old, new = (listed(entry, chain(), rule(DROP))[0] for entry in (table(), again))
    assert old.name == new.name
    assert (old.table, old.handle, new.handle) == ("inet x", ("1", "3"), ("2", "3"))


def match(left, right, op="=="):
    kind, name = left.split(" ")
    field = {"meta": {"key": name}} if kind == "meta" else {"payload": {"protocol": kind, "field": name}}
    return {"match": {"op": op, "left": field, "right": right}}


@pytest.mark.parametrize(
    ("condition", "spared"),
    [
        (match("ether type", "arp"), True),
        (match("ether type", 0x88CC), True),
        (match("ether type", "ip"), False),
        (match("ether type", "ip", "!="), True),
        (match("meta l4proto", {"set": ["icmp", "tcp"]}), True),
        (match("meta l4proto", {"set": ["icmp", 17]}), False),
        (match("ip protocol", "icmp", "!="), False),
        (match("icmp type", "echo-request"), True),
        (match("ip6 nexthdr", "udp"), True),
        (match("udp dport", 4711), False),
        (match("ip protocol", {"range": [1, 5]}), False),
        (match("ip daddr", "198.19.1.2"), False),
        ({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}}, False),
    ],
)
def test_a_rule_for_what_is_not_udp_in_ipv4_drops_no_frame_of_a_stream(condition, spared):
    assert (found(table(), chain(), rule(condition, COUNTED, DROP)) == []) is spared


@pytest.mark.parametrize(
    ("condition", "only"),
    [
        (match("meta iifname", "in1"), [{"rx in1"}]),
        (match("meta oif", {"set": ["out1", "out2"]}), [{"tx out1", "tx out2"}]),
        (match("ip daddr", {"set": ["198.19.1.2", "198.19.2.2"]}), [{"198.19.1.2", "198.19.2.2"}]),
        (match("meta iifname", "in*"), []),
        (match("meta iifname", "in1", "!="), []),
        (match("ip daddr", {"prefix": {"addr": "198.19.0.0", "len": 16}}), []),
    ],
)
def test_what_reports_streams_apart_is_known_of_a_rule(condition, only):
    (dropper,) = listed(table(), chain(), rule(condition, COUNTED, DROP))
    assert list(dropper.only) == only


def test_frames_come_to_a_chain_by_jumps():
    by_map = {"vmap": {**IFNAME, "data": {"set": [["a", {"goto": {"target": "deep"}}]]}}}
    entries = [
        table(),
        *(chain(), chain("early", "prerouting"), chain("sub", ""), chain("deep", ""), chain("alone", "")),
        *(rule(JUMP), rule(JUMP, chain="early"), rule(by_map, chain="sub"), rule(JUMP, chain="deep")),
        *(rule(COUNTED, DROP, chain="deep", handle=6), rule(COUNTED, DROP, chain="alone", handle=7)),
    ]
    assert found(*entries) == [
        Dropper("nft inet x deep rule 6", frozenset({FORWARD, NftHook("inet", "prerouting", "")}), 7),
        Dropper("nft inet x alone rule 7", frozenset(), 7),
    ]


@pytest.mark.parametrize(
    ("rules", "frames"),
    [([], None), ([rule(MATCH, COUNTED)], None), ([rule(MATCH, {"accept": None})], None), ([rule(COUNTED, LOG)], 7)],
)
def test_a_policy_drops_what_its_last_rule_counts(rules, frames):
    assert found(table(), chain(policy="drop"), *rules) == [
        Dropper("nft inet x c policy", frozenset({FORWARD}), frames)
    ]


@pytest.mark.parametrize(
    ("flags", "name", "left_out"),
    [
        ("d", "x", True),
        ("dormant", "x", True),
        (["dormant", "owner"], "x", True),
        (None, "nb-reference", True),
        (None, "nb-of-others", False),
    ],
)
def test_tables_that_sleep_or_are_ours_are_left_out(monkeypatch, flags, name, left_out):
    monkeypatch.setattr("netbench.linux.nft_rules.own_tables", {("inet", "nb-reference")})
    droppers = found(table(flags, name), chain(policy="drop", table=name), rule(COUNTED, DROP, table=name))
    assert (droppers == []) is left_out


def test_devices_of_chains_are_in_the_text_only():
    chains = """table inet x {
	chain one {
		type filter hook ingress device "eth0" priority filter; policy accept;
	}
	chain two {
		type filter hook egress devices = { eth1, "veth-2" } priority filter + 5; policy accept;
	}
}
"""
    entries = [table(), chain("one", "ingress"), chain("two", "egress")]
    droppers = found(*entries, rule(DROP, chain="one"), rule(DROP, chain="two"), chains=chains)
    assert [dropper.hooks for dropper in droppers] == [
        frozenset({NftHook("inet", "ingress", "eth0")}),
        frozenset({NftHook("inet", "egress", "eth1"), NftHook("inet", "egress", "veth-2")}),
    ]
