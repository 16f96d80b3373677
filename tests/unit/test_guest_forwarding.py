"""What a guest is told so that it forwards."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.model.paths import PREFIX_LENGTH, stream_paths
from netbench.model.topology import MAX_STREAMS
from netbench.uut.guest_forwarding import GuestNics, forwarding_commands, guest_mac
from tests.unit.inputs import topology

(PATH,) = stream_paths(topology())
NICS = {"s1": GuestNics("eth0", "eth1")}


def told(forward, paths=(PATH,), nics=NICS):
    commands = forwarding_commands(paths, nics, forward)
    return [(" ".join(command.argv), command.stdin.splitlines()) for command in commands]


def test_a_bridge():
    quiet = "sysctl -e -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
    assert told("bridge") == [
        (quiet, []),
        (
            "ip -batch -",
            [
                "link set eth0 up",
                "link set eth1 up",
                "link add nb-br-s1 type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
                "link set eth0 master nb-br-s1",
                "link set eth1 master nb-br-s1",
                "link set nb-br-s1 up",
            ],
        ),
        ("bridge -batch -", [f"fdb replace {PATH.sink.mac} dev eth1 master static"]),
    ]


def test_a_router():
    settings, batch = told("route")
    assert set(settings[0].split()[3:]) == {
        "net.ipv6.conf.all.disable_ipv6=1",
        "net.ipv6.conf.default.disable_ipv6=1",
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.rp_filter=0",
        "net.ipv4.conf.all.send_redirects=0",
    }
    assert batch == (
        "ip -batch -",
        [
            "link set eth0 up",
            "link set eth1 up",
            f"address add {PATH.ingress_ip}/{PREFIX_LENGTH} dev eth0",
            f"address add {PATH.egress_ip}/{PREFIX_LENGTH} dev eth1",
            f"neigh replace {PATH.dst_ip} lladdr {PATH.sink.mac} dev eth1 nud permanent",
        ],
    )


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_nics_are_called_what_the_guest_calls_them(forward):
    """Which need not be in the order of the command line."""
    paths = stream_paths(topology(3))
    nics = {"s1": GuestNics("ens5", "ens3"), "s2": GuestNics("eth0", "enp0s9"), "s3": GuestNics("a", "b")}
    words = [word for _, lines in told(forward, paths, nics) for line in lines for word in line.split()]
    for own in nics.values():
        assert {own.ingress, own.egress} <= set(words)
    known = [line for _, lines in told(forward, paths, nics) for line in lines if line.startswith(("neigh", "fdb"))]
    for line, path in zip(known, paths, strict=True):
        assert f" {path.sink.mac} dev {nics[path.name].egress} " in line


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30))
def test_no_two_streams_of_a_guest_meet(streams):
    paths = stream_paths(topology(streams))
    nics = {path.name: GuestNics(f"in{path.number}", f"out{path.number}") for path in paths}
    for forward in ("bridge", "route"):
        lines = [line for _, given_ in told(forward, paths, nics) for line in given_]
        assert len(set(lines)) == len(lines)
        for path in paths:
            mine = [line for line in lines if re.search(rf"\b(?:in|out){path.number}\b", line)]
            others = {int(found) for line in mine for found in re.findall(r"\b(?:in|out)(\d+)\b", line)}
            assert others == {path.number}


def test_the_macs_of_all_guests_nics():
    """Locally administered, no two alike, and none that a NIC of the testbed has."""
    paths = stream_paths(topology(MAX_STREAMS))
    macs = [guest_mac(path, role) for path in paths for role in ("ingress", "egress")]
    assert len(set(macs)) == 2 * MAX_STREAMS
    assert all(re.fullmatch(r"02(:[0-9a-f]{2}){5}", mac) for mac in macs)
    assert not set(macs) & {nic.mac for path in paths for nic in path.nics.values()}
