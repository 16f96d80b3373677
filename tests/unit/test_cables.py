"""Cables between NICs of VMs: valid topologies, QEMU's arguments, and the setup of a device under test."""

import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from netbench.hosts.remote_code import source_command
from netbench.hosts.trusted_code import module_command
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Cable, Topology, VmNic, cables, devices
from netbench.testbed.bring_up import base_changes, cable_ends
from netbench.testbed.virtual_machines import planned_vm
from netbench.vmm.base import CableEnd
from netbench.vmm.qemu import open_nics

LENT = {"kind": "netns", "on": "box", "ports": {"tx": "eth1", "rx": "eth2"}}
HOSTS = {
    "box": {"kind": "vm", "image": "tester", "nics": {"eth1": "virtio", "eth2": "e1000e"}},
    "tester": LENT,
    "dut": {"kind": "vm", "nics": {"p1": "virtio", "p2": "vmxnet3"}, "forward": "bridge"},
}
LINKS = [{"ends": ["tester/tx", "dut/p1"], "rate": "1Gbit/s"}, {"ends": ["dut/p2", "tester/rx"], "rate": "1Gbit/s"}]
DIRECTORIES = {"box": Path("/run/box"), "dut": Path("/run/dut")}


def topology(**more: object) -> Topology:
    return Topology.model_validate(
        {
            "name": "cabled",
            "hosts": HOSTS,
            "links": LINKS,
            "streams": [{"name": "s1", "source": "tester/tx", "sink": "tester/rx"}],
            "uuts": [{"name": "switch", "kind": "external"}],
            **more,
        }
    )


def with_dut(**more: object) -> dict[str, object]:
    return {**HOSTS, "dut": {**HOSTS["dut"], **more}}


def test_a_port_that_is_lent_to_a_namespace_and_a_nic_of_a_vm_itself_are_ends_of_a_cable():
    lent = topology()
    assert cables(lent) == [Cable(1, ("tester/tx", "dut/p1")), Cable(2, ("dut/p2", "tester/rx"))]
    assert (lent.vm_nic("tester/rx"), lent.vm_nic("dut/p2")) == (VmNic("box", "eth2"), VmNic("dut", "p2"))
    assert (lent.interface("tester/rx"), lent.interface("dut/p2")) == ("eth2", "p2")
    assert all(lent.is_port(end) for link in lent.links for end in link.ends)
    assert lent.uut_machine is None, "as of every device that netbench does not control"
    direct = topology(
        hosts={name: host for name, host in HOSTS.items() if name != "tester"},
        links=[
            {"ends": ["box/eth1", "dut/p1"], "rate": "1Gbit/s"},
            {"ends": ["box/eth2", "dut/p2"], "rate": "1Gbit/s"},
        ],
        streams=[{"name": "s1", "source": "box/eth1", "sink": "box/eth2"}],
    )
    assert [(path.source.interface, path.source.machine, path.source.netns) for path in stream_paths(direct)] == [
        ("eth1", "box", None)
    ]


def test_the_ways_through_a_device_are_those_whose_source_and_sink_are_cabled_to_it():
    both = topology(
        streams=[{"name": "s1", "source": "tester/tx", "sink": "tester/rx"}, {"name": "back", "reverse": "s1"}]
    )
    assert {name: [way[1:] for way in ways] for name, ways in devices(both).items()} == {
        "dut": [("dut/p1", "dut/p2"), ("dut/p2", "dut/p1")]
    }


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hosts": with_dut(stp="1s")}, "greater than or equal to 2"),
        ({"hosts": with_dut(stp=True, forward="route")}, "stp: only bridges have a spanning tree"),
        ({"hosts": with_dut(nics={"p1": "virtio", "p2": "tulip"})}, "Input should be 'virtio', 'e1000', 'e1000e' or"),
        ({"hosts": {**HOSTS, "other": {"kind": "netns", "nics": {"x": "virtio"}}}}, "nics: only a host of kind vm has"),
        (
            {"hosts": {**HOSTS, "other": {"kind": "vm", "forward": "tc"}}},
            "forward: a VM that is a device under test has",
        ),
        (
            {"hosts": with_dut(nics={"p1": "virtio", "p2": "e1000", "p3": "e1000"})},
            "host dut: nics: p3 is the end of no",
        ),
        (
            {"hosts": {**HOSTS, "tester": {**LENT, "ports": {"tx": "eth1", "rx": "eth7"}}}},
            "ports: VM box has no NIC eth7",
        ),
        ({"links": [{"ends": ["tester/tx"], "rate": "1Gbit/s"}, LINKS[1]]}, "netbench cables NICs of two VMs"),
        ({"links": [{**LINKS[0], "mtu": 9000}, LINKS[1]]}, "mtu: a cable between VMs is for frames of the usual size"),
        (
            {
                "hosts": {**HOSTS, "third": {"kind": "vm", "nics": {"a": "e1000"}}},
                "links": [*LINKS, {"ends": ["box/eth1", "third/a"], "rate": "1Gbit/s"}],
            },
            "link end box/eth1: NIC eth1 of VM box is tester/tx already",
        ),
        (
            {
                "hosts": {**HOSTS, "third": {"kind": "vm", "nics": {"a": "e1000"}, "forward": "bridge"}},
                "links": [LINKS[0], {"ends": ["third/a", "tester/rx"], "rate": "1Gbit/s"}],
            },
            "host dut: nics: p2 is the end of no link",
        ),
    ],
)
def test_what_cannot_be_cabled_is_refused_in_words(changed, why):
    with pytest.raises(ValidationError) as caught:
        topology(**changed)
    assert why in str(caught.value)


def test_a_device_that_no_stream_goes_through_is_refused():
    hosts = {**HOSTS, "dut": {"kind": "vm", "nics": {"p1": "virtio"}, "forward": "bridge"}}
    hosts["third"] = {"kind": "vm", "nics": {"a": "e1000"}}
    with pytest.raises(ValidationError, match="host dut: forward: no stream has both its source and its sink cabled"):
        topology(hosts=hosts, links=[LINKS[0], {"ends": ["third/a", "tester/rx"], "rate": "1Gbit/s"}])


def test_the_vm_that_is_started_first_makes_the_sockets():
    ends = cable_ends(topology(), DIRECTORIES)
    one, two = Path("/run/box/cable-1"), Path("/run/box/cable-2")
    assert ends == {
        "box": [
            CableEnd("eth1", "02:6e:62:00:01:01", "virtio", one, listens=True),
            CableEnd("eth2", "02:6e:62:00:02:02", "e1000e", two, listens=True),
        ],
        "dut": [
            CableEnd("p1", "02:6e:62:00:01:02", "virtio", one, listens=False),
            CableEnd("p2", "02:6e:62:00:02:01", "vmxnet3", two, listens=False),
        ],
    }
    # The source needs no address resolution for its sink.
    (path,) = stream_paths(topology())
    assert (path.source.mac, path.sink.mac) == ("02:6e:62:00:01:01", "02:6e:62:00:02:02")


def test_qemu_is_given_the_cables_opened(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    wanted = topology()
    for vm, how, server, nics in (
        ("box", "listen", "on", ["virtio-net-pci,netdev=nic0", "e1000e,netdev=nic1"]),
        ("dut", "connect", "off", ["virtio-net-pci,netdev=nic0", "vmxnet3,netdev=nic1"]),
    ):
        _, command = planned_vm(vm, wanted.vms[vm], cable_ends(wanted, DIRECTORIES)[vm])
        words = command.split()
        first = words.index(f"{how}:/run/box/cable-1")
        assert words[first - 1] == "netbench.vmm.qemu.open_nics"
        assert words[first : first + 4] == [
            f"{how}:/run/box/cable-1",
            f"{how}:/run/box/cable-2",
            "--",
            "qemu-system-x86_64",
        ]
        backends = [words[place + 1] for place, word in enumerate(words) if word == "-netdev"]
        assert backends == [f"stream,id=nic{n},server={server},addr.type=fd,addr.str={10 + n}" for n in (0, 1)]
        devices_ = [words[place + 1] for place, word in enumerate(words) if word == "-device"]
        assert [device.rpartition(",mac=")[0] for device in devices_ if "netdev=" in device] == nics


@pytest.mark.parametrize("command", [module_command(open_nics.__name__), source_command(open_nics)])
def test_a_program_finds_the_ends_of_its_cables_open(tmp_path, command):
    """The program that is started first listens; it writes to its file, and the other reads from its own."""
    path = tmp_path / "cable"
    listens = "import socket; one = socket.socket(fileno=10); one.accept()[0].sendall(b'frame')"
    reads = "import socket; print(socket.socket(fileno=10).recv(9).decode())"
    python = ["python3", "-c"]
    with subprocess.Popen([*command, f"listen:{path}", "--", *python, listens]) as first:
        while not path.exists() or not _listens(path):
            assert first.poll() is None
        other = subprocess.run(
            [*command, f"connect:{path}", "--", *python, reads], check=True, capture_output=True, text=True
        )
    assert other.stdout == "frame\n"


def _listens(path: Path) -> bool:
    """Return whether a socket listens there (the flag SO_ACCEPTCON of /proc/net/unix)."""
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return any(words[-1] == str(path) and words[3] == "00010000" for words in lines)


def test_a_device_is_set_up_as_one_and_its_ports_are_not_kept_or_changed_as_those_of_a_tester():
    commands = [change.command for change in base_changes(topology(hosts=with_dut(stp=True)), "dut")]
    assert "ip link add nb-br-s1 type bridge stp_state 1 mcast_snooping 0 forward_delay 1500" in commands
    assert not [command for command in commands if "ethtool" in command or "netns" in command]
    assert "bridge fdb replace 02:6e:62:00:02:02 dev p2 master static" in commands
    plain = [change.command for change in base_changes(topology(), "dut")]
    assert "ip link add nb-br-s1 type bridge stp_state 0 mcast_snooping 0 forward_delay 0" in plain


def test_a_router_has_the_addresses_and_knows_its_sink():
    commands = [change.command for change in base_changes(topology(hosts=with_dut(forward="route")), "dut")]
    assert commands[-3:] == [
        "ip address add 198.18.1.1/24 dev p1",
        "ip address add 198.19.1.1/24 dev p2",
        "ip neigh replace 198.19.1.2 lladdr 02:6e:62:00:02:02 dev p2 nud permanent",
    ]
    assert "sysctl -w net.ipv4.ip_forward=1" in commands


def test_ports_of_a_vm_are_lent_as_those_of_a_machine():
    commands = [change.command for change in base_changes(topology(), "box")]
    assert commands[:2] == ["ip address show dev eth1", "ip address show dev eth2"]
    assert "ip link set dev eth1 netns nb-cabled-tester" in commands
    assert base_changes(topology()) == [], "nothing of it is on this machine"
