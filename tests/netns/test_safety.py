"""Interfaces really in use: each reason is set up in a separate namespace."""

import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager

import pytest
from pyroute2 import IPRoute, netns

from netbench.bpf.libbpf import attach_tc_ingress, attach_xdp, libbpf
from netbench.errors import UsageError
from netbench.linux.netns import within
from netbench.linux.safety.foreign_hooks import unbound_packet_sockets
from netbench.linux.safety.ports import read_ports, refuse_unsafe_port

pytestmark = pytest.mark.root


@pytest.fixture
def lab():
    """A namespace with the veth pair nbt-a – nbt-b, both up."""
    name = f"nbt-safety-{os.getpid()}"
    netns.create(name)
    try:
        ip(name, "link", "add", "nbt-a", "type", "veth", "peer", "name", "nbt-b")
        for end in ("nbt-a", "nbt-b"):
            ip(name, "link", "set", end, "up")
        yield name
    finally:
        netns.remove(name)


def ip(name, *words):
    subprocess.run(["ip", "-n", name, *words], check=True, capture_output=True, text=True)


def refusal(lab, port, allowed=()):
    with pytest.raises(UsageError) as refused:
        refuse_unsafe_port(port, allowed, netns=lab)
    return str(refused.value)


def test_a_veth_that_nothing_uses_is_free(lab):
    refuse_unsafe_port("nbt-a", netns=lab)

    ports = {port.name: port for port in read_ports(lab)}
    assert set(ports) == {"lo", "nbt-a", "nbt-b"}
    port = ports["nbt-a"]
    assert (port.kind, port.mtu, port.carrier, port.in_use) == ("veth", 1500, True, ())
    assert (port.driver, port.speed_mbps) == (None, None)
    assert len(port.mac.split(":")) == 6
    assert all(address.startswith("fe80:") for address in port.addresses)


def test_an_address_is_refused_unless_named(lab):
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")
    ip(lab, "address", "add", "2001:db8::1/64", "dev", "nbt-a", "nodad")

    message = refusal(lab, "nbt-a", ["198.18.0.1"])

    assert "carries the address 2001:db8::1/64" in message
    assert "198.18.0.1" not in message
    assert "Use a port that nothing else uses, here: nbt-b" in message
    assert "list it under `addresses` of this port" in message
    refuse_unsafe_port("nbt-a", ["198.18.0.1/24", "2001:db8::1"], netns=lab)


def test_the_own_address_of_a_point_to_point_link_counts(lab):
    ip(lab, "address", "add", "198.18.0.1", "peer", "198.18.0.2/32", "dev", "nbt-a")

    assert "carries the address 198.18.0.1/32" in refusal(lab, "nbt-a", ["198.18.0.2"])
    refuse_unsafe_port("nbt-a", ["198.18.0.1"], netns=lab)


@pytest.mark.parametrize(
    ("route", "described"),
    [
        (["default", "via", "198.18.0.2"], "IPv4, table main"),
        (["default", "dev", "nbt-a", "table", "100"], "IPv4, table 100"),
        (["default", "nexthop", "via", "198.18.0.2", "nexthop", "via", "198.18.0.3"], "IPv4, table main"),
        (["-6", "default", "via", "2001:db8::2"], "IPv6, table main"),
        (["-6", "default", "dev", "nbt-a", "table", "100"], "IPv6, table 100"),
    ],
)
def test_a_default_route(lab, route, described):
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")
    ip(lab, "address", "add", "2001:db8::1/64", "dev", "nbt-a", "nodad")
    family, route = (["-6"], route[1:]) if route[0] == "-6" else ([], route)
    ip(lab, *family, "route", "add", *route)

    message = refusal(lab, "nbt-a", ["198.18.0.1", "2001:db8::1"])

    assert f"it carries the default route ({described}). " in message
    refuse_unsafe_port("nbt-b", netns=lab)


def test_any_route_beyond_the_subnet_of_the_port(lab):
    """Two routes to half of all addresses each are equivalent to a default route."""
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")
    ip(lab, "address", "add", "2001:db8::1/64", "dev", "nbt-a", "nodad")
    ip(lab, "route", "add", "198.18.0.64/26", "via", "198.18.0.2")
    ip(lab, "route", "add", "unreachable", "default")
    refuse_unsafe_port("nbt-a", ["198.18.0.1", "2001:db8::1"], netns=lab)

    ip(lab, "route", "add", "0.0.0.0/1", "via", "198.18.0.2")
    ip(lab, "route", "add", "198.18.0.0/23", "dev", "nbt-a", "table", "7")
    ip(lab, "-6", "route", "add", "2000::/3", "nexthop", "via", "2001:db8::2", "nexthop", "via", "2001:db8::3")

    message = refusal(lab, "nbt-a", ["198.18.0.1", "2001:db8::1"])
    for route in ("0.0.0.0/1 (IPv4, table main)", "198.18.0.0/23 (IPv4, table 7)", "2000::/3 (IPv6, table main)"):
        assert f"carries the route to {route}" in message


def test_what_rests_on_a_port_from_another_namespace(lab):
    ip(lab, "link", "add", "nbt-mv", "link", "nbt-a", "type", "macvlan", "mode", "bridge")
    ip(lab, "link", "add", "nbt-mw", "link", "nbt-b", "type", "macvtap", "mode", "bridge")
    with second_namespace() as other, container() as pid:
        ip(lab, "link", "set", "nbt-mv", "netns", other)
        ip(lab, "link", "set", "nbt-mw", "netns", pid)

        assert f"it carries the macvlan nbt-mv in the network namespace {other}. " in refusal(lab, "nbt-a")
        message = f"it carries the macvtap nbt-mw in the network namespace of process {pid}. "
        assert message in refusal(lab, "nbt-b")


@contextmanager
def container():
    """The id of a process in a network namespace without a name."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(["unshare", "-n", sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    try:
        assert process.stdout
        process.stdout.readline()
        yield str(process.pid)
    finally:
        process.communicate()


def test_a_program_that_speaks_pppoe_on_a_port(lab):
    ask = """
import socket
discovery = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
discovery.bind(("nbt-a", 0x8863))
"""

    assert "nbt-a|carries PPPoE of some program" in inside(lab, ask + ASK).splitlines()


U32 = "protocol all u32 match u32 0 0 action mirred egress redirect dev nbt-b"
INGRESS = "type filter hook ingress device nbt-a priority 0;"
EGRESS = 'type filter hook egress devices = { "nbt-b", "nbt-a" } priority 0;'


@pytest.mark.parametrize(
    ("commands", "described"),
    [
        (
            ["tc qdisc add dev nbt-a ingress", f"tc filter add dev nbt-a ingress {U32}"],
            "a tc ingress filter of kind u32 (`tc filter del dev nbt-a ingress` removes it)",
        ),
        (
            ["tc qdisc add dev nbt-a clsact", f"tc filter add dev nbt-a egress {U32}"],
            "a tc egress filter of kind u32 (`tc filter del dev nbt-a egress` removes it)",
        ),
        (
            ["nft add table netdev nb-t", f"nft add chain netdev nb-t c {{ {INGRESS} }}"],
            "the nft ingress chain netdev nb-t c (`nft delete chain netdev nb-t c` removes it)",
        ),
        (["nft add table netdev t", f"nft add chain netdev t c {{ {EGRESS} }}"], "the nft egress chain netdev t c"),
        (["nft add table inet t", f"nft add chain inet t c {{ {INGRESS} }}"], "the nft ingress chain inet t c"),
        (
            ["ip rule add iif nbt-a table 100 pref 77"],
            "the routing rule `iif nbt-a` (`ip rule del pref 77` removes it)",
        ),
        (["ip -6 rule add oif nbt-a table 100"], "the routing rule `oif nbt-a` (`ip -6 rule del pref "),
    ],
)
def test_what_takes_frames_of_a_port(lab, commands, described):
    for command in commands:
        subprocess.run(["ip", "netns", "exec", lab, *command.split()], check=True)
    message = refusal(lab, "nbt-a")
    assert f"it carries {described}" in message
    assert message.count("carries") == 1


# r0 = 1; exit: XDP_DROP of XDP.
_DROP = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 1, 0x95, 0, 0, 0)
_TC, _XDP = 3, 6  # enum bpf_prog_type


@contextmanager
def program(lab, interface, kind, attach):
    """A foreign program at an interface; `attach` is called in the namespace with the program and the index."""
    fd = libbpf()("bpf_prog_load", kind, b"nb_drop_all", b"GPL", _DROP, ctypes.c_size_t(2), None)
    link = within(f"/run/netns/{lab}", lambda: attach(fd, socket.if_nametoindex(interface)))
    try:
        yield
    finally:
        link.close()
        os.close(fd)


@pytest.mark.parametrize(
    ("kind", "attach", "described"),
    [
        (_XDP, lambda fd, index: attach_xdp(fd, index, "generic"), ("XDP program", "generic", "xdpgeneric off")),
        (_XDP, lambda fd, index: attach_xdp(fd, index, "native"), ("XDP program", "native", "xdpdrv off")),
        (_TC, attach_tc_ingress, ("tcx ingress program", "bpftool net show dev nbt-a", "")),
    ],
)
def test_a_program_in_the_kernel(lab, kind, attach, described):
    with program(lab, "nbt-a", kind, attach):
        message = refusal(lab, "nbt-a")
    what, how, remedy = described
    assert re.search(rf"it carries the {what} nb_drop_all \(id \d+\) \(", message), message
    assert how in message
    assert remedy in message
    refuse_unsafe_port("nbt-a", netns=lab)


LISTENS = """
import socket, sys
opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
if sys.argv[1]: opened.bind((sys.argv[1], 3))
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("interface", ["nbt-a", ""])
def test_a_packet_socket_is_refused_where_it_is_bound_to_the_port(lab, interface):
    command = ["ip", "netns", "exec", lab, sys.executable, "-c", LISTENS, interface]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        listener.stdout.readline()
        owner = re.compile(rf"python[\d.]* \(PID {listener.pid}\)")
        if interface:
            message = refusal(lab, "nbt-a")
            assert re.search(f"carries a packet socket of {owner.pattern}", message), message
        else:
            refuse_unsafe_port("nbt-a", netns=lab)
        unbound = within(f"/run/netns/{lab}", unbound_packet_sockets)
        assert [bool(owner.fullmatch(command)) for command in unbound] == [True] * (not interface)
        listener.stdin.close()


def test_a_bridge_and_its_member(lab):
    ip(lab, "link", "add", "nbt-br", "type", "bridge")
    ip(lab, "link", "set", "nbt-a", "master", "nbt-br")

    assert "it is a member of nbt-br. " in refusal(lab, "nbt-a")
    assert "it is of kind bridge, not a NIC. " in refusal(lab, "nbt-br")
    refuse_unsafe_port("nbt-b", netns=lab)


def test_what_a_macvlan_and_a_tunnel_rest_on(lab):
    ip(lab, "link", "add", "nbt-mv", "link", "nbt-a", "type", "macvlan", "mode", "bridge")
    ip(lab, "link", "add", "nbt-vx", "type", "vxlan", "id", "7", "group", "239.1.1.1", "dev", "nbt-b", "dstport", "0")

    assert "it carries the macvlan nbt-mv. " in refusal(lab, "nbt-a")
    assert "it carries the vxlan nbt-vx. " in refusal(lab, "nbt-b")
    assert "it is of kind macvlan, not a NIC. " in refusal(lab, "nbt-mv")
    assert "it is of kind vxlan, not a NIC. " in refusal(lab, "nbt-vx")


def test_a_tap_may_be_used_and_a_tun_not(lab):
    ip(lab, "tuntap", "add", "nbt-tap", "mode", "tap")
    ip(lab, "tuntap", "add", "nbt-tun", "mode", "tun")

    refuse_unsafe_port("nbt-tap", netns=lab)
    assert "it is not an Ethernet interface. " in refusal(lab, "nbt-tun")


def test_loopback(lab):
    assert "it is the loopback interface" in refusal(lab, "lo")


def test_an_interface_that_is_elsewhere(lab):
    assert "its interfaces: lo, nbt-a, nbt-b" in refusal(lab, "nbt-c")


def test_what_lies_below_in_another_namespace_is_not_looked_for_here(lab):
    """Indexes repeat between namespaces: that of a macvlan's parent is meaningless in another namespace."""
    with IPRoute(netns=lab, flags=0) as iproute:
        (below,) = iproute.link_lookup(ifname="nbt-a")
    with second_namespace() as other:
        ip(other, "link", "add", "nbt-c", "index", str(below), "type", "veth", "peer", "name", "nbt-d")
        ip(lab, "link", "add", "nbt-mv", "link", "nbt-a", "type", "macvlan", "mode", "bridge")
        ip(lab, "link", "set", "nbt-mv", "netns", other)

        assert "nbt-mv" in {port.name for port in read_ports(other)}
        refuse_unsafe_port("nbt-c", netns=other)


@contextmanager
def second_namespace():
    name = f"nbt-safety2-{os.getpid()}"
    netns.create(name)
    try:
        yield name
    finally:
        netns.remove(name)


def inside(lab, program, **environment):
    """The output of a Python program that runs in the namespace."""
    command = ["ip", "netns", "exec", lab, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


ASK = """
from netbench.linux.safety.ports import read_ports
for port in read_ports(None, ["198.18.0.1"]):
    print(port.name, *port.in_use, sep="|")
"""
SESSION = "carries an SSH session to this host"


def test_the_nic_that_holds_the_address_of_the_ssh_session(lab):
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")

    shown = inside(lab, ASK, SSH_CONNECTION="203.0.113.9 50000 198.18.0.1 22").splitlines()

    assert f"nbt-a|{SESSION}" in shown
    assert "nbt-b" in shown


def test_the_nic_that_leads_to_the_ssh_client(lab):
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")
    ip(lab, "route", "add", "203.0.113.9/32", "dev", "nbt-b")

    shown = inside(lab, ASK, SSH_CONNECTION="203.0.113.9 50000 198.18.0.1 22").splitlines()

    assert f"nbt-a|{SESSION}" in shown
    assert f"nbt-b|carries the route to 203.0.113.9/32 (IPv4, table main)|{SESSION}" in shown


def test_an_established_connection_to_the_ssh_port_without_its_variable(lab):
    ip(lab, "address", "add", "198.18.0.1/24", "dev", "nbt-a")
    ip(lab, "link", "set", "lo", "up")
    connect = """
import socket
server = socket.create_server(("198.18.0.1", 22))
client = socket.create_connection(("198.18.0.1", 22))
"""

    assert SESSION not in inside(lab, ASK, SSH_CONNECTION="")
    assert f"nbt-a|{SESSION}" in inside(lab, connect + ASK, SSH_CONNECTION="").splitlines()
