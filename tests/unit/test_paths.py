"""The paths of streams: names, addresses and numbers, all derived from the topology."""

import ipaddress
from dataclasses import replace

import pytest

from netbench.model.paths import InterfaceRef, Nic
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import MAX_STREAMS, Topology
from netbench.model.traffic import PREFIX_LENGTH
from tests.unit.fakes import fake_ports
from tests.unit.inputs import topology, topology_in_vm


def test_a_path_from_source_to_sink():
    (path,) = stream_paths(topology())
    assert path.nics == {
        "source": Nic("source", None, "nb-lab-source", "nb-tx1", "02:6e:62:00:01:01", False),
        "ingress": Nic("uut", None, "nb-lab-uut", "nb-in1", "02:6e:62:00:01:02", False),
        "egress": Nic("uut", None, "nb-lab-uut", "nb-out1", "02:6e:62:00:02:01", False),
        "sink": Nic("sink", None, "nb-lab-sink", "nb-rx1", "02:6e:62:00:02:02", False),
    }
    assert list(path.nics) == ["source", "ingress", "egress", "sink"]
    assert (path.name, path.number, path.link_bps) == ("s1", 1, 1e9)
    assert (path.src_ip, path.ingress_ip) == ("198.18.1.2", "198.18.1.1")
    assert (path.dst_ip, path.egress_ip) == ("198.19.1.2", "198.19.1.1")
    assert path.source.place == InterfaceRef(None, "nb-lab-source", "nb-tx1")


def test_the_rate_is_that_of_the_link_the_source_sends_on():
    data = topology(2).model_dump(mode="json")
    for number, rate in enumerate(("1Gbit/s", "2Gbit/s", "10Gbit/s", "25Gbit/s")):
        data["links"][number]["rate"] = rate
    assert [path.link_bps for path in stream_paths(Topology.model_validate(data))] == [1e9, 1e10]


@pytest.mark.parametrize(("kind", "netns"), [("netns", "nb-ports-t"), ("local", None)])
def test_ports_keep_their_names_and_their_macs_are_yet_unknown(kind, netns):
    (path,) = stream_paths(fake_ports(kind))
    assert path.nics == {
        "source": Nic("t", None, netns, "eth1", "", True),
        "sink": Nic("t", None, netns, "eth2", "", True),
    }
    assert (path.ingress, path.egress) == (None, None)


def test_no_two_of_the_most_streams_share_an_address_a_network_or_a_name():
    paths = stream_paths(topology(MAX_STREAMS))
    assert len(paths) == MAX_STREAMS
    nics = [nic for path in paths for nic in path.nics.values()]
    assert len({nic.mac for nic in nics}) == len({nic.place for nic in nics}) == 4 * MAX_STREAMS
    assert all(len(nic.interface) <= 15 for nic in nics)
    assert {int(nic.mac[:2], 16) & 3 for nic in nics} == {2}, "locally administered, and no group address"
    # A router has one network on each side of a stream.
    sides = [ends for path in paths for ends in ((path.src_ip, path.ingress_ip), (path.dst_ip, path.egress_ip))]
    assert len({ip for ends in sides for ip in ends}) == 4 * MAX_STREAMS
    networks = {ipaddress.IPv4Interface(f"{ip}/{PREFIX_LENGTH}").network for ends in sides for ip in ends}
    assert len(networks) == len(sides)
    for ends in sides:
        assert len({ipaddress.IPv4Interface(f"{ip}/{PREFIX_LENGTH}").network for ip in ends}) == 1
    assert all(network.subnet_of(ipaddress.IPv4Network("198.18.0.0/15")) for network in networks)


def test_a_path_inside_a_vm_differs_from_one_here_by_its_machine_alone():
    (here,), (inside,) = stream_paths(topology()), stream_paths(topology_in_vm())
    assert {nic.machine for nic in here.nics.values()} == {None}
    assert {nic.machine for nic in inside.nics.values()} == {"lab"}
    assert {role: replace(nic, machine=None) for role, nic in inside.nics.items()} == here.nics
    assert not {nic.place for nic in inside.nics.values()} & {nic.place for nic in here.nics.values()}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (InterfaceRef("lab", "nb-lab-uut", "nb-in1"), "lab/nb-lab-uut/nb-in1"),
        (InterfaceRef("lab", None, "nb-in1"), "lab/nb-in1"),
        (InterfaceRef(None, "nb-lab-uut", "nb-in1"), "nb-lab-uut/nb-in1"),
        (InterfaceRef(None, None, "eth1"), "eth1"),
    ],
)
def test_a_place_as_text(place, text):
    assert str(place) == text
