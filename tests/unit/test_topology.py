"""What makes a topology inconsistent, and what it says of itself when it is not."""

from typing import Any

import pytest
from pydantic import ValidationError

from netbench.model.topology import MAX_STREAMS, Topology, split_endpoint
from tests.unit.fakes import fake_ports
from tests.unit.inputs import topology


def changed(**changes) -> Topology:
    """The topology of one stream with some of it replaced: `a__0__b` is the key b of the first of a."""
    data = topology().model_dump(mode="json", exclude_none=True)
    for key, value in changes.items():
        place: Any = data
        *steps, last = [int(step) if step.isdecimal() else step for step in key.split("__")]
        for step in steps:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return Topology.model_validate(data)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"links__1__ends": ["uut/in1", "sink/rx1"]},
            "NIC uut/in1 is an end of more than one link",
        ),
        (
            {"hosts__uut": {"ports": {"in1": "eth1"}}},
            "link source/tx1 – uut/in1: one end is a port and the other is not; cable two ports or none",
        ),
        ({"streams__0__ingress": None}, "stream s1: give both ingress and egress, or neither"),
        ({"streams__0__egress": None}, "stream s1: give both ingress and egress, or neither"),
        (
            {"streams__0__ingress": "uut/out1", "streams__0__egress": "uut/in1"},
            "stream s1: there is no link between source/tx1 and uut/out1",
        ),
        (
            {"streams__0__source": "sink/rx1", "streams__0__sink": "source/tx1"},
            "stream s1: there is no link between sink/rx1 and uut/in1",
        ),
        (
            {"links__1__ends": ["source/out1", "sink/rx1"], "streams__0__egress": "source/out1"},
            "stream s1: ingress and egress must be NICs of the same host, the UUT",
        ),
        ({"links__0__ends": ["source/tx1", "uut/In1"]}, "link end uut/In1: a NIC name is a-z, 0-9 and -"),
        ({"links__0__ends": ["source/tx1", "uut/1in"]}, "link end uut/1in: a NIC name is a-z, 0-9 and -"),
        ({"links__0__ends": []}, "at least 1"),
        ({"links__0__ends": ["source/tx1", "uut/in1", "uut/in2"]}, "at most 2"),
        ({"links__0__ends": ["source/tx1", "uut/in/1"]}, "not a NIC of a host"),
        ({"hosts": {}}, "at least 1"),
        ({"uuts": []}, "at least 1"),
        ({"streams__0__name": "much-too-long"}, "streams.0.name"),
        ({"name": "-x"}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, says):
    with pytest.raises(ValidationError) as refused:
        changed(**changes)
    assert says in str(refused.value)


def test_stream_names_are_distinct():
    data = topology(2).model_dump(mode="json", exclude_none=True)
    data["streams"][1]["name"] = "s1"
    with pytest.raises(ValidationError, match="stream 's1' is there twice"):
        Topology.model_validate(data)


def test_a_nic_belongs_to_one_stream_whatever_its_role():
    data = topology(2).model_dump(mode="json", exclude_none=True)
    data["streams"][1] = {"name": "s2", "source": "source/tx2", "sink": "sink/rx1"}
    with pytest.raises(ValidationError, match="NIC sink/rx1 is used by more than one stream"):
        Topology.model_validate(data)


def test_there_are_as_many_streams_as_addresses():
    assert len(topology(MAX_STREAMS).streams) == MAX_STREAMS
    with pytest.raises(ValidationError, match=f"at most {MAX_STREAMS}"):
        topology(MAX_STREAMS + 1)


def test_ends_and_what_they_are_called():
    lab = topology()
    assert (lab.is_port("uut/in1"), lab.interface("uut/in1"), lab.netns("uut")) == (False, "nb-in1", "nb-lab-uut")
    lent = fake_ports()
    assert (lent.is_port("t/rx"), lent.interface("t/rx"), lent.netns("t")) == (True, "eth2", "nb-ports-t")
    assert fake_ports("local").netns("t") is None
    assert lent.port_addresses == {"eth1": (), "eth2": ("192.0.2.7",)}
    assert lab.port_addresses == {}


def test_two_ports_may_be_a_cable():
    lab = changed(
        hosts={
            "source": {"ports": {"tx1": "eth1"}},
            "uut": {"ports": {"in1": "eth2", "out1": "eth3"}},
            "sink": {"ports": {"rx1": "eth4"}},
        }
    )
    assert list(lab.port_addresses) == ["eth1", "eth2", "eth3", "eth4"]


def test_a_stream_knows_its_nics_and_its_link():
    (stream,) = topology().streams
    assert stream.nics == ("source/tx1", "uut/in1", "uut/out1", "sink/rx1")
    assert topology().stream_link(stream).ends == ("source/tx1", "uut/in1")
    (outside,) = fake_ports().streams
    assert outside.nics == ("t/tx", "t/rx")


@pytest.mark.parametrize("kind", ["netns", "local"])
def test_a_port_cannot_be_lent_twice(kind):
    """Its frames would count twice, and it cannot be moved twice."""
    data = fake_ports(kind).model_dump(mode="json")
    data["hosts"]["t"]["ports"]["rx"] = data["hosts"]["t"]["ports"]["tx"]
    with pytest.raises(ValidationError, match="eth1"):
        Topology.model_validate(data)


def test_two_nics_of_the_machine_itself_cannot_have_the_same_name():
    """Hosts of kind `local` are one and the same machine."""
    with pytest.raises(ValidationError, match="nb-tx1"):
        changed(
            hosts={"source": {"kind": "local"}, "uut": {"kind": "local"}, "sink": {}},
            links__0__ends=["source/tx1", "uut/tx1"],
            streams__0__ingress="uut/tx1",
        )


@pytest.mark.parametrize("text", ["", "a", "a/", "/b", "a/b/c"])
def test_an_endpoint_is_a_host_and_a_nic(text):
    with pytest.raises(ValueError, match="host/nic"):
        split_endpoint(text)
    assert split_endpoint("a/b") == ("a", "b")
