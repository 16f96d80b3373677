"""Inconsistent topologies, and the properties of consistent ones."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.config.document import yaml_text, yaml_value
from netbench.model.host_spec import PortSpec, VmSpec
from netbench.model.paths import split_endpoint
from netbench.model.topology import MAX_STREAMS, Topology
from tests.unit.fakes import fake_ports
from tests.unit.inputs import topology, topology_in_vm


def changed(lab: Topology, **changes) -> Topology:
    """A topology with some of it replaced: `a__0__b` is the key b of the first of a."""
    data = lab.model_dump(mode="json", exclude_none=True)
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


ONE, VM = topology(), topology_in_vm()
NOT_APART = "its ends are on different machines; only ports are cabled from one to another"


NOT_OF_OTHERS = {"image": "x", "cpus": 1, "memory": "256M", "accelerator": "tcg", "boot_limit": "9s"}


def made_of(**fields) -> dict[str, object]:
    """The changes to VM that give its VM these fields."""
    return {"hosts__lab": {"kind": "vm", **fields}}


@pytest.mark.parametrize(
    ("lab", "changes", "message"),
    [
        (
            ONE,
            {"streams__0__ingress": "uut/out1", "streams__0__egress": "uut/in1"},
            "stream s1: there is no link between source/tx1 and uut/out1",
        ),
        (
            ONE,
            {"streams__0__source": "sink/rx1", "streams__0__sink": "source/tx1"},
            "stream s1: there is no link between sink/rx1 and uut/in1",
        ),
        (
            ONE,
            {"links__1__ends": ["source/out1", "sink/rx1"], "streams__0__egress": "source/out1"},
            "stream s1: ingress and egress must be NICs of the same host, the UUT",
        ),
        (ONE, {"links__0__ends": ["source/tx1", "uut/ä1"]}, "link end uut/ä1: a NIC name is a-z, 0-9 and -"),
        (ONE, {"links__0__ends": ["source/tx1", "uut/1in"]}, "link end uut/1in: a NIC name is a-z, 0-9 and -"),
        (ONE, {"links__0__ends": []}, "at least 1"),
        (ONE, {"links__0__ends": ["source/tx1", "uut/in1", "uut/in2"]}, "at most 2"),
        (ONE, {"links__0__ends": ["source/tx1", "uut/in/1"]}, "not a NIC of a host"),
        (ONE, {"hosts": {}}, "at least 1"),
        (ONE, {"uuts": []}, "at least 1"),
        (ONE, {"streams__0__name": "much-too-long"}, "streams.0.name"),
        (ONE, {"name": "-x"}, "name"),
        (ONE, {"colour": "red"}, "colour"),
        # Its frames would count twice, and it cannot be moved twice.
        (fake_ports("netns"), {"hosts__t__ports__rx": "eth1"}, "eth1"),
        (fake_ports("local"), {"hosts__t__ports__rx": "eth1"}, "eth1"),
        (ONE, {"links__0__receive": "irq"}, "links.0.receive"),
        # Hosts of kind `local` are one and the same machine.
        (
            ONE,
            {
                "hosts": {"source": {"kind": "local"}, "uut": {"kind": "local"}, "sink": {}},
                "links__0__ends": ["source/tx1", "uut/tx1"],
                "streams__0__ingress": "uut/tx1",
            },
            "nb-tx1",
        ),
        (
            VM,
            {"hosts__uut": {"on": "source"}},
            "host uut: on: 'source' is not a host of kind vm or ssh; VMs and SSH hosts are lab",
        ),
        (VM, {"hosts__uut": {"kind": "local", "on": "lab"}}, "on: only a host of kind netns is on another, not one of"),
        (VM, {"hosts__other": {"kind": "vm", "on": "lab"}}, "on: only a host of kind netns is on another, not one of"),
        (
            VM,
            {"hosts__other": {"kind": "vm", "ports": {"x": "eth1"}}},
            "ports: a VM has no ports of this machine; its own NICs a",
        ),
        (
            VM,
            {"hosts__uut": {"on": "lab", "ports": {"in1": "eth1"}}},
            "ports: VM lab has no NIC eth1; name it under its nics",
        ),
        (VM, made_of(cpus=0), "hosts.lab.cpus"),
        (VM, made_of(cpus=True), "hosts.lab.cpus"),
        (VM, made_of(cpus=1.0), "hosts.lab.cpus"),
        (VM, made_of(memory=512), "an amount of memory needs a unit; write for example 256M or 1G"),
        (VM, made_of(memory="8M"), "greater than or equal to 16"),
        (VM, made_of(memory=True), "not an amount of memory"),
        (VM, made_of(accelerator="hvf"), "'auto', 'kvm' or 'tcg'"),
        (VM, made_of(boot_limit=0), "hosts.lab.boot_limit"),
        (VM, made_of(boot_limit="2h"), "hosts.lab.boot_limit"),
        (VM, made_of(image="../x"), "hosts.lab.image"),
        (
            VM,
            {"hosts__lab": {"kind": "netns"}},
            "host source: on: 'lab' is not a host of kind vm or ssh; there",
        ),
        (VM, {"hosts__uut": {}}, f"link source/tx1 – uut/in1: {NOT_APART}"),
        (VM, {"hosts__sink": {}}, f"link uut/out1 – sink/rx1: {NOT_APART}"),
        (
            VM,
            {"hosts__other": {"kind": "vm"}, "hosts__sink": {"on": "other"}},
            f"link uut/out1 – sink/rx1: {NOT_APART}",
        ),
        *(
            (
                ONE,
                {"hosts__sink": {"kind": kind, field: value}},
                f"{field}: only a host of kind vm has this, not one of kind {kind}",
            )
            for kind in ("netns", "local")
            for field, value in NOT_OF_OTHERS.items()
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(lab, changes, message):
    with pytest.raises(ValidationError) as refused:
        changed(lab, **changes)
    assert message in str(refused.value)


def test_there_are_as_many_streams_as_addresses():
    assert len(topology(MAX_STREAMS).streams) == MAX_STREAMS
    with pytest.raises(ValidationError, match=f"at most {MAX_STREAMS}"):
        topology(MAX_STREAMS + 1)


def test_ends_and_what_they_are_called():
    assert (ONE.is_port("uut/in1"), ONE.interface("uut/in1"), ONE.netns("uut")) == (False, "nb-in1", "nb-lab-uut")
    lent = fake_ports()
    assert (lent.is_port("t/rx"), lent.interface("t/rx"), lent.netns("t")) == (True, "eth2", "nb-ports-t")
    assert fake_ports("local").netns("t") is None
    assert (ONE.ports(), lent.ports()) == ([], [PortSpec(nic="eth1"), PortSpec(nic="eth2", addresses=("192.0.2.7",))])
    ends = {"source": {"tx1": "eth1"}, "uut": {"in1": "eth2", "out1": "eth3"}, "sink": {"rx1": "eth4"}}
    cabled = changed(ONE, hosts={name: {"ports": ports} for name, ports in ends.items()})
    assert [port.nic for port in cabled.ports()] == ["eth1", "eth2", "eth3", "eth4"]


def test_a_stream_knows_its_nics_and_its_link():
    (stream,) = ONE.streams
    assert stream.nics == ("source/tx1", "uut/in1", "uut/out1", "sink/rx1")
    assert ONE.stream_link(stream).ends == ("source/tx1", "uut/in1")
    (outside,) = fake_ports().streams
    assert outside.nics == ("t/tx", "t/rx")


@pytest.mark.parametrize("text", ["", "a", "a/", "/b", "a/b/c"])
def test_an_endpoint_is_a_host_and_a_nic(text):
    with pytest.raises(ValueError, match="host/nic"):
        split_endpoint(text)
    assert split_endpoint("a/b") == ("a", "b")


def test_hosts_that_are_vms_and_hosts_inside_them():
    assert {VM.machine(host) for host in VM.hosts} == {"lab"}
    inside = {host: f"nb-lab-{host}" for host in ("source", "uut", "sink")}
    assert {host: VM.netns(host) for host in VM.hosts} == {"lab": None, **inside}
    assert (VM.vms, VM.uut_machine) == ({"lab": VmSpec()}, "lab")
    assert (ONE.vms, ONE.uut_machine, ONE.machine("uut"), fake_ports().uut_machine) == ({}, None, None, None)
    given = {"image": "new", "cpus": 4, "memory": "1G", "accelerator": "kvm", "boot_limit": "2min"}
    assert topology_in_vm(vm=given).vms == {"lab": VmSpec("new", 4, 1024, "kvm", 120.0)}
    assert topology_in_vm(vm={"memory": "64M"}).vms == {"lab": VmSpec(memory=64)}


def several_machines(places) -> Topology:
    """A stream on each of these machines: a VM by name, or here for None."""
    hosts: dict[str, dict[str, str]] = {}
    links, streams = [], []
    for n, place in enumerate(places, start=1):
        if place:
            hosts[place] = {"kind": "vm"}
        on = {"on": place} if place else {}
        hosts |= {f"{role}{n}": {"kind": "netns", **on} for role in ("source", "uut", "sink")}
        ends = (f"source{n}/tx{n}", f"uut{n}/in{n}", f"uut{n}/out{n}", f"sink{n}/rx{n}")
        links += [{"ends": pair, "rate": "1Gbit/s"} for pair in (ends[:2], ends[2:])]
        streams.append({"name": f"s{n}", **dict(zip(("source", "ingress", "egress", "sink"), ends, strict=True))})
    lab = topology().model_dump(mode="json", exclude_none=True)
    return Topology.model_validate({**lab, "hosts": hosts, "links": links, "streams": streams})


@pytest.mark.parametrize("places", [(None, "a"), (None, "a", "b")])
def test_a_uut_is_on_one_machine(places):
    with pytest.raises(ValidationError, match="streams: the UUT's NICs are all on one machine"):
        several_machines(places)
    for place in (None, "a"):
        assert several_machines([place] * 3).uut_machine == place


def test_a_nic_of_a_vm_and_one_of_this_machine_may_have_the_same_name():
    """They never meet."""
    links = [link.model_dump(mode="json") for link in ONE.links]
    links += [{"ends": [f"{host}/x", f"{host}/y"], "rate": "1Gbit/s"} for host in ("a", "here")]
    both = changed(ONE, hosts__a={"kind": "vm"}, hosts__here={"kind": "local"}, links=links)
    assert both.interface("a/x") == both.interface("here/x") == "nb-x"


VMS = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["micro", "1.5", "6", "true", "null", "0x1", "2001-01-01", "x_y"]),
        "cpus": st.integers(1, 255),
        "memory": st.integers(16, 1 << 20).map("{}M".format) | st.integers(1, 999).map("{} GiB".format),
        "accelerator": st.sampled_from(["auto", "kvm", "tcg"]),
        "boot_limit": st.floats(0.001, 3600) | st.sampled_from(["500ms", "10s", "2min", "1h"]),
    },
)


@settings(deadline=None)
@given(VMS)
def test_a_vm_reads_back_as_results_keep_it(vm):
    lab = topology_in_vm(vm=vm)
    text = yaml_text(lab.model_dump(mode="json", exclude_none=True))
    again = Topology.model_validate(yaml_value(text))
    assert (again, again.vms) == (lab, lab.vms)


LABS = {
    "lab": {"kind": "vm"},
    "other": {"kind": "vm"},
    **{name: {"kind": "netns"} for name in ("source", "uut", "sink")},
}
APART = ({"name": "here", "kind": "raw"}, {"name": "there", "kind": "raw", "on": "lab"})


def test_a_uut_on_a_vm_has_all_namespaces_there_and_others_have_no_vm():
    both = topology(1, APART, hosts=LABS | {"other": {"kind": "netns"}})
    assert both.places == (None, "lab")
    here, there = both.on(None), both.on("lab")
    assert ([uut.name for uut in here.uuts], [uut.name for uut in there.uuts]) == (["here"], ["there"])
    assert (here.uut_machine, there.uut_machine) == (None, "lab")
    assert (list(here.vms), list(there.vms)) == ([], ["lab"])
    assert {there.machine(host) for host in ("source", "uut", "sink")} == {"lab"}
    assert there.on("lab") == there, "which is the testbed of that place already"


def test_hosts_that_are_on_a_vm_anyway_stay_there():
    inside = topology_in_vm()
    assert (inside.places, inside.on(None)) == ((None,), inside)


@pytest.mark.parametrize(
    ("hosts", "on", "message"),
    [
        (LABS, "nowhere", "UUT bridge: on: 'nowhere' is not a host of kind vm; did you mean other? VMs are lab, other"),
        (
            LABS | {"sink": {"kind": "local"}},
            "lab",
            "UUT bridge: on: host sink cannot be in a VM; it is a machine, or",
        ),
        (
            LABS | {"sink": {"kind": "netns", "on": "other"}},
            "lab",
            "on: link uut/out1 – sink/rx1: its ends",
        ),
    ],
)
def test_a_uut_that_cannot_be_on_a_vm_is_refused(hosts, on, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        topology(1, ({"name": "bridge", "kind": "raw", "on": on},), hosts=hosts)
