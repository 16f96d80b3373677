"""Ways of attaching guests: options that go with a kind, plans, and refusals before anything is touched."""

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from netbench.errors import UsageError
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.testbed.guest_specs import make_uut
from netbench.testbed.resolved import resolve
from netbench.uut.base import Assignment, TapPoint
from tests.unit.inputs import profile, shared_topology, topology, topology_both_ways

NAT = {"name": "nat", "kind": "container", "attachment": "nat"}
USER = {"name": "user", "kind": "qemu", "attachment": "user"}
PASST = {"name": "passt", "kind": "qemu", "attachment": "passt"}
ROUTER = {"name": "route", "kind": "raw", "forward": "route"}
MACVLAN = {"name": "macvlan", "kind": "container", "attachment": "macvlan", "forward": "route"}
SERVED = {"frame_sizes": [], "tool": "http", "loads": ["100/s"]}

REFUSED_OPTIONS: dict[str, tuple[dict[str, object], str]] = {
    "a container's macvtap": (
        {"kind": "container", "attachment": "macvtap"},
        "macvtap needs a guest with its own kernel; for a container use macvlan",
    ),
    "a container's user networking": (
        {"kind": "container", "attachment": "user"},
        "user networking needs a guest of kind qemu",
    ),
    "a container's passt": ({"kind": "container", "attachment": "passt"}, "for a container use bridge or nat"),
    "a macvlan that bridges": (
        {"kind": "container", "attachment": "macvlan"},
        "a macvlan receives only frames to its own MAC address; use forward: route",
    ),
    "NAT that forwards": (
        {"kind": "container", "attachment": "nat", "forward": "route"},
        "forward: a guest with `attachment: nat` forwards no frames; leave it out",
    ),
    "NAT that changes packets": (
        {"kind": "qemu", "attachment": "nat", "nat": "source", "forward": "route"},
        "a guest with `attachment: nat` forwards no frames",
    ),
    "user networking that forwards": ({"kind": "qemu", "attachment": "user", "forward": "route"}, "forwards no frames"),
    "QEMU's macvlan": (
        {"kind": "qemu", "attachment": "macvlan"},
        "macvlan needs a container; for a guest under QEMU use macvtap",
    ),
    "queues of passt": (
        {"kind": "qemu", "attachment": "passt", "queues": 2, "cpus": 2},
        "with `attachment: passt` a guest has one queue; use bridge or nat",
    ),
    "vhost of SLIRP": ({"kind": "qemu", "attachment": "user", "vhost": "on"}, "a process moves the frames"),
    "libvirt's passt": ({"kind": "libvirt", "attachment": "passt"}, "for passt use kind qemu"),
}


@pytest.mark.parametrize("name", REFUSED_OPTIONS)
def test_options_that_do_not_go_together(name):
    options, words = REFUSED_OPTIONS[name]
    with pytest.raises((ValidationError, ValueError)) as caught:
        make_uut(topology(uuts=[{"name": "g", **options}]).uuts[0])
    assert words in str(caught.value)


REFUSED_CAMPAIGNS: dict[str, tuple[Topology, Mapping[str, object], str]] = {
    "frames through NAT": (topology(uuts=[NAT]), {}, "no frames pass: NAT forwards connections only"),
    "frames through SLIRP": (topology(uuts=[USER]), {}, "no frames pass: user networking (SLIRP) forwards"),
    "a neighbour that forwards": (
        shared_topology(uuts=[NAT]),
        {**SERVED, "scenarios": [{"name": "n", "activity": {"network": "20000fps"}}]},
        "no UUT can serve: UUT nat: neighbour second forwards 64-byte frames at 20000fps: with "
        "`attachment: nat` no frames pass",
    ),
    "the neighbour's share of a maximum that does not exist": (
        shared_topology([{"name": "second", "streams": ["s2"], "kind": "raw", "forward": "route"}], uuts=[USER]),
        {**SERVED, "scenarios": [{"name": "n", "activity": {"network": "50%"}}]},
        "the UUT has no such maximum: with `attachment: user` no frames pass",
    ),
    "a reverse stream": (topology_both_ways(uuts=[PASST]), SERVED, "stream back: a guest with `attachment: passt`"),
    "a search of the time to connect to a host": (
        topology(uuts=[USER, PASST]),
        {"tool": "connect", "frame_sizes": (), "loads": (), "schedule": {"kind": "slo", "below": "10ms"}},
        "the time to connect would be that of the host",
    ),
    "the time to connect to a host": (
        topology(uuts=[USER, PASST]),
        {**SERVED, "tool": "connect"},
        "no UUT can serve: UUT user, passt: its host accepts the connections of clients: the time to connect would be "
        "that of the host; use `attachment: bridge` or `nat`",
    ),
}


@pytest.mark.parametrize("name", REFUSED_CAMPAIGNS)
def test_campaigns_that_cannot_be_measured(name):
    refused, more, words = REFUSED_CAMPAIGNS[name]
    with pytest.raises(UsageError) as caught:
        resolve(refused, profile(**more))
    assert words in str(caught.value)


def test_others_are_measured_without_it():
    """Frames through the router only; times to connect to it only."""
    both = topology(uuts=[ROUTER, USER])
    assert list(resolve(both, profile()).unsupported) == ["user"]
    served = resolve(both, profile(**{**SERVED, "tool": ["connect", "http"]})).unsupported
    assert {uut: list(reasons) for uut, reasons in served.items()} == {"user": ["connect"]}


def test_a_uut_whose_neighbour_cannot_forward_is_skipped():
    scenarios = [{"name": "n", "activity": {"network": "50%"}}]
    both = shared_topology(uuts=[ROUTER, NAT])
    reasons = resolve(both, profile(**{**SERVED, "scenarios": scenarios})).unsupported
    assert list(reasons) == ["nat"]
    assert "no frames pass" in reasons["nat"]["http"]


def plan_of(uut):
    (spec,) = (made := topology(uuts=[uut])).uuts
    return make_uut(spec).plan(Assignment("g", stream_paths(made)))


# Commands of the plan by UUT; and the interface of the tap, the server's address there, and its own.
PLANS = {
    "NAT": (
        NAT,
        (
            "address add 198.18.1.1/24 dev nb-in1",
            "address add 10.118.1.1/24 dev nb-bi-s1",
            "net.ipv4.ip_forward=1",
            'iifname "nb-in1" ip daddr 198.18.1.1 meta l4proto { tcp, udp } th dport 5201 dnat to 10.118.1.2',
            'ip saddr 10.118.1.0/24 oifname "nb-in1" masquerade',
            "guest: ip -4 route add 198.18.1.0/24 via 10.118.1.1",
        ),
        TapPoint("nb-vi-s1", "10.118.1.2"),
    ),
    "SLIRP": (
        USER,
        ("address add 198.18.1.1/24 dev nb-in1", "hostfwd=tcp:198.18.1.1:5201-10.118.1.2:5201,hostfwd=udp:198.18.1.1"),
        TapPoint("nb-in1", "198.18.1.1", ends_connections=True),
    ),
    "passt": (
        PASST,
        ("passt --foreground", "--tcp-ports 198.18.1.1/5201", "-netdev stream,id=nic0"),
        TapPoint("nb-in1", "198.18.1.1", ends_connections=True),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_private_networks(name):
    uut, expected, tap = PLANS[name]
    plan = plan_of(uut)
    commands = "\n".join(step.command for step in plan.steps)
    assert [words for words in expected if words not in commands] == []
    assert (plan.taps, plan.listening) == ({"s1": tap}, {"s1": "10.118.1.2"})
    assert "master nb-bi-s1" not in commands or "nb-in1 master" not in commands, "the ingress NIC is no bridge's port"


def test_each_stream_has_its_own_network_and_port():
    made = topology(2, uuts=[USER])
    commands = "\n".join(
        step.command for step in make_uut(made.uuts[0]).plan(Assignment("g", stream_paths(made))).steps
    )
    for words in ("tcp:198.18.1.1:5201-10.118.1.2:5201", "tcp:198.18.2.1:5202-10.118.2.2:5202"):
        assert words in commands


def test_a_macvlan_needs_no_bridge():
    plan = plan_of(MACVLAN)
    commands = "\n".join(step.command for step in plan.steps)
    assert "link add link nb-in1 name nb-mi-s1 netns" in commands
    assert "type bridge" not in commands
    assert {"macvlan"} <= plan.needs
    assert not {"bridge", "bridge-nf"} & plan.needs


def test_requirements_are_named():
    assert {"masquerade", "nft", "forwarding", "bridge"} <= plan_of(NAT).needs
    assert "passt" in plan_of(PASST).needs
    assert "passt" not in plan_of(USER).needs
