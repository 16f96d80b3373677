"""Every reason to leave an interface alone, from made-up snapshots and a made-up /proc."""

import ipaddress

import pytest

from netbench.errors import UsageError
from netbench.linux.locks import OtherMeasurement
from netbench.linux.safety.ports import (
    KernelLink,
    NamespaceSnapshot,
    pppoe_sessions,
    read_ports,
    refuse_unsafe_port,
    ssh_sessions,
    uses,
)
from netbench.testbed.preconditions import port_warnings
from tests.unit.fakes import fake_ports


def reasons(link, *, others=(), addresses=(), routes=(), carried=(), ssh=(), wireless=(), allowed=()):
    snapshot = NamespaceSnapshot(
        links=(link, *others),
        addresses={2: tuple(addresses)},
        routes={2: tuple(routes)},
        carried={2: tuple(carried)},
        ssh=frozenset(ssh),
        wireless=frozenset(wireless),
    )
    return list(uses(link, snapshot, [ipaddress.ip_address(text) for text in allowed]))


BRIDGE = KernelLink(index=7, name="br0", kind="bridge")
VLAN = KernelLink(index=9, name="eth1.5", kind="vlan", lower=frozenset({2}))
UNRELATED = KernelLink(index=10, name="eth2.5", kind="vlan", lower=frozenset({3}))
HELD = ["192.0.2.1/24", "2001:db8::1/64"]


@pytest.mark.parametrize(
    ("link", "around", "expected"),
    [
        *(({"kind": kind}, {}, []) for kind in (None, "veth", "tun")),
        ({"loopback": True, "ethernet": False}, {}, ["is the loopback interface"]),
        ({"ethernet": False}, {}, ["is not an Ethernet interface"]),
        *(({"kind": kind}, {}, [f"is of kind {kind}, not a NIC"]) for kind in ("bridge", "bond", "vlan", "dummy")),
        ({"master": 7}, {"others": [BRIDGE]}, ["is a member of br0"]),
        ({"master": 7}, {}, ["is a member of interface 7"]),  # in another namespace
        ({}, {"others": [VLAN, UNRELATED]}, ["carries the vlan eth1.5"]),
        ({}, {"wireless": [2]}, ["is wireless"]),
        ({}, {"wireless": [3], "ssh": [3]}, []),
        (
            {},
            {"routes": ["default route (IPv4, table main)", "route to 0.0.0.0/1 (IPv4, table 100)"]},
            ["carries the default route (IPv4, table main)", "carries the route to 0.0.0.0/1 (IPv4, table 100)"],
        ),
        (
            {},
            {"routes": [f"route to 10.{n}.0.0/16" for n in range(900_000)]},
            [*(f"carries the route to 10.{n}.0.0/16" for n in range(3)), "carries 899997 more such routes"],
        ),
        (
            {},
            {"carried": ["the macvlan mv0 in the network namespace of process 7"]},
            ["carries the macvlan mv0 in the network namespace of process 7"],
        ),
        ({}, {"addresses": HELD, "allowed": ["192.0.2.1"]}, ["carries the address 2001:db8::1/64"]),
        ({}, {"addresses": HELD, "allowed": ["192.0.2.1", "2001:db8:0::1"]}, []),
        ({}, {"addresses": HELD, "allowed": ["192.0.2.2"]}, [f"carries the address {text}" for text in HELD]),
        # The kernel gives every interface a link-local IPv6 address; a user has chosen one of IPv4.
        ({}, {"addresses": ["fe80::1/64", "169.254.1.1/16"]}, ["carries the address 169.254.1.1/16"]),
        # A named address excuses nothing else.
        (
            {},
            {"addresses": HELD[:1], "allowed": ["192.0.2.1"], "routes": ["default route (x)"], "ssh": [2]},
            ["carries the default route (x)", "carries an SSH session to this host"],
        ),
    ],
)
def test_reasons_to_leave_an_interface_alone(link, around, expected):
    assert reasons(KernelLink(**{"index": 2, "name": "eth1", **link}), **around) == expected


@pytest.mark.parametrize(
    ("others", "which"),
    [
        ([], ""),
        (
            [OtherMeasurement(7, "lab", "2026")],
            r"\. But netbench with PID 7 measures here \(topology lab\): if it has .*",
        ),
    ],
    ids=["alone", "another measures"],
)
@pytest.mark.parametrize("name", ["no-such-nic", "", "../lo", "lo "])
def test_an_interface_that_is_not_there_names_those_that_are(monkeypatch, name, others, which):
    monkeypatch.setattr("netbench.linux.safety.ports.other_measurements", lambda: others)
    there = ", ".join(sorted(port.name for port in read_ports()))

    with pytest.raises(UsageError, match=f"no interface of that name; its interfaces: {there}{which}$"):
        refuse_unsafe_port(name)


def test_the_loopback_of_this_machine_is_refused_and_an_mtu_that_is_too_small_is_not_set():
    (mtu,) = [port.mtu for port in read_ports() if port.name == "lo"]
    with pytest.raises(UsageError, match=f"port lo: its MTU is {mtu}, .* `ip link set dev lo mtu {mtu + 1}`"):
        refuse_unsafe_port("lo", mtu=mtu + 1)
    with pytest.raises(UsageError, match="port lo is in use .* it is the loopback interface"):
        refuse_unsafe_port("lo", ["127.0.0.1", "::1"], mtu=mtu)


def test_what_is_not_there_is_refused_by_name():
    with pytest.raises(UsageError, match="'192.0.2' under `addresses` of a port is not an IP address"):
        refuse_unsafe_port("lo", ["192.0.2"])
    with pytest.raises(UsageError, match="there is no network namespace 'no-such-netns'"):
        read_ports("no-such-netns")


def test_what_pppoe_runs_over(tmp_path):
    assert list(pppoe_sessions(tmp_path, {"eth1": 2})) == []  # a kernel without
    (tmp_path / "pppoe").write_text(
        "Id       Address              Device\n"
        "0A000000 02:00:00:00:00:01     eth1\n"
        "0B000000 02:00:00:00:00:01     gone\n"
    )
    (tmp_path / "packet").write_text(
        "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"
        "00000000aa2e0a00 3      3    8863   4     1 0      0      31337 \n"
        "00000000aa2e0a01 3      3    0003   5     1 0      0      31338 \n"
    )
    assert list(pppoe_sessions(tmp_path, {"eth1": 2})) == [
        (2, "the PPPoE session 0A000000"),
        (4, "PPPoE of some program"),
    ]


# SSH sessions. Addresses in /proc/net/tcp are 32-bit words of a little-endian machine.

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
ESTABLISHED, LISTENING = "01", "0A"
HOST = "0A0200C0"  # 192.0.2.10
CLIENT = "016433C6"  # 198.51.100.1


def socket_line(local, state, inode, remote=f"{CLIENT}:D431"):
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 20"


@pytest.fixture
def proc(tmp_path):
    """A /proc with an SSH server on a port of its own choice (socket 111) and a web server (socket 222)."""
    (tmp_path / "net").mkdir()
    for pid, name, inode in ((10, "sshd-session", 111), (20, "nginx", 222)):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
        (tmp_path / str(pid) / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (tmp_path / str(pid) / "fd" / "4").symlink_to("/dev/null")
    return tmp_path


def sessions(environment, proc):
    return {tuple(map(str, session)) for session in ssh_sessions(environment, proc)}


def tables(proc, tcp=(), tcp6=()):
    (proc / "net" / "tcp").write_text("\n".join([HEADER, *tcp]) + "\n")
    (proc / "net" / "tcp6").write_text("\n".join([HEADER, *tcp6]) + "\n")


def test_the_session_netbench_was_started_from(proc):
    assert sessions({"SSH_CONNECTION": "198.51.100.1 54321 192.0.2.10 22"}, proc) == {("192.0.2.10", "198.51.100.1")}
    assert sessions({"SSH_CONNECTION": "fe80::1%eth0 54321 fe80::2%eth0 22"}, proc) == {("fe80::2", "fe80::1")}


@pytest.mark.parametrize("text", ["", "garbage", "a b c d"])
def test_a_broken_ssh_connection_variable_is_ignored(proc, text):
    assert sessions({"SSH_CONNECTION": text}, proc) == set()


@pytest.mark.parametrize(
    ("local", "state", "inode", "found"),
    [
        (f"{HOST}:0016", ESTABLISHED, 5, {("192.0.2.10", "198.51.100.1")}),
        (f"{HOST}:08AE", ESTABLISHED, 111, {("192.0.2.10", "198.51.100.1")}),  # an SSH server on any port
        (f"{HOST}:0050", ESTABLISHED, 222, set()),
        ("00000000:0016", LISTENING, 111, set()),
    ],
)
def test_connections_that_are_ssh_sessions(proc, local, state, inode, found):
    tables(proc, tcp=[socket_line(local, state, inode)])
    assert sessions({}, proc) == found


def test_ipv6_and_ipv4_mapped_sessions(proc):
    mapped = f"0000000000000000FFFF0000{HOST}:0016"
    real = "B80D0120000000000000000001000000:0016"  # 2001:db8::1
    remote = "B80D0120000000000000000002000000:D431"
    tables(
        proc,
        tcp6=[
            socket_line(mapped, ESTABLISHED, 5, f"0000000000000000FFFF0000{CLIENT}:D431"),
            socket_line(real, ESTABLISHED, 6, remote),
        ],
    )

    assert sessions({}, proc) == {("192.0.2.10", "198.51.100.1"), ("2001:db8::1", "2001:db8::2")}


@pytest.mark.parametrize(("kind", "programs", "warned"), [("local", 1, 1), ("local", 0, 0), ("netns", 1, 0)])
def test_programs_that_see_every_interface_are_named(monkeypatch, kind, programs, warned):
    found = ["tcpdump (PID 7)"] * programs
    monkeypatch.setattr("netbench.testbed.preconditions.unbound_packet_sockets", lambda: found)
    texts = port_warnings(fake_ports(kind))
    assert ["eth1, eth2" in text and "tcpdump (PID 7)" in text for text in texts] == [True] * warned
