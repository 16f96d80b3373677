"""Paths of flows: the changes that each needs, the refusals of UUTs, and the CPU time of guests per operation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.capture.distribution import Distribution
from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS as UUTS_GROUP
from netbench.config.plugins import option_models
from netbench.config.shipped import TOPOLOGIES, find
from netbench.errors import UsageError
from netbench.model.flow_result import FlowResult
from netbench.model.scenario import SHARED_IDLE, VICTIM, Idle, Serve
from netbench.model.units import Load
from netbench.model.workload import FlowPath, workload_of
from netbench.statistics.flow_cpu import guests_cpu, per_operation_ms
from netbench.statistics.workload_groups import workload_groups
from netbench.testbed.bring_up import flow_changes
from netbench.testbed.doctor.ssh_checks import needed_in_run
from netbench.testbed.resolved import Resolved, resolve
from netbench.tools.tcp_client import times
from tests.unit.flows_factory import flow, flow_trial
from tests.unit.inputs import profile, shared_topology, topology

CONTAINER = {"name": "container", "kind": "container", "forward": "route"}
IMAGE = {**CONTAINER, "name": "image", "root": "image"}
RAW = {"name": "raw", "kind": "raw", "forward": "route"}
BRIDGE = {"name": "bridge", "kind": "raw", "forward": "bridge"}
NAT = {"name": "nat", "kind": "raw", "forward": "route", "nat": "source"}
PRIVATE = {"name": "private", "kind": "container", "attachment": "nat"}
UUTS = (RAW, CONTAINER, IMAGE, BRIDGE, NAT, PRIVATE)
WITHOUT_LINK = {"raw": "no guest", "bridge": "no guest", "nat": "no guest", "private": "has no link to a second guest"}
LAN = [
    "ip link add nb-li-s2 netns nb-lab-uut address 02:6e:6c:00:02:01 type veth peer nb-li-s1 netns nb-lab-uut address "
    "02:6e:6c:00:01:02",
    "ip -n nb-lab-uut link set dev nb-li-s2 master nb-bi-s2",
    "ip -n nb-lab-uut link set dev nb-li-s2 up",
    "ip -n nb-lab-uut link set dev nb-li-s1 master nb-bi-s1",
    "ip -n nb-lab-uut link set dev nb-li-s1 up",
]
ROUTES = {
    VICTIM: "guest: ip -4 route add 198.18.2.0/24 via 198.18.2.1 dev INGRESS-s1 onlink table 254",
    "second": "guest: ip -4 route add 198.18.1.0/24 via 198.18.1.1 dev INGRESS-s2 onlink table 254",
}


def resolved(tool: object, *uuts: dict[str, str], **more: object) -> Resolved:
    lab = shared_topology(uuts=list(uuts) or [CONTAINER])
    keys = {"scenarios": [SHARED_IDLE], "loads": ["10/s"], "frame_sizes": (), **more}
    return resolve(lab, profile(tool=tool, **keys))


def steps(found: Resolved, uut: str, guest: str) -> list[str]:
    return [step.command for step in found.guests[uut][guest].plan.steps]


@pytest.mark.parametrize(
    ("tool", "host", "expected"),
    [
        ({"kind": "sockperf"}, "source1", {"sockperf", "tcpdump"}),
        ({"kind": "sockperf"}, "sink1", set()),
        ({"kind": "sockperf"}, "uut", {"sockperf", "tcpdump"}),
        ({"kind": "iperf3", "path": "through"}, "sink1", {"iperf3", "tcpdump"}),
        ({"kind": "iperf3", "path": "through"}, "uut", {"tcpdump"}),
        ({"kind": "iperf3", "path": "loopback"}, "uut", {"iperf3"}),
    ],
)
def test_hosts_over_ssh_need_the_programs_of_their_part(tool, host, expected):
    lab = load_topology(find(TOPOLOGIES, "netns-ssh"), option_models(UUTS_GROUP))
    found = resolve(lab, profile(tool=tool, loads=["max"], frame_sizes=(), duration=5.0), uuts=["router"])
    names = {requirement.name for requirement in needed_in_run(found, host)}
    assert names & {"iperf3", "sockperf", "nginx", "tcpdump"} == expected | ({"tcpdump"} if host == "sink1" else set())


def reasons(kind: str, path: str) -> dict[str, str]:
    """The reasons of UUTs against a path, beside a workload that some of them serve."""
    tools = [{"kind": kind, "name": "other", "path": path}, {"kind": "http", "path": "loopback"}]
    refused = resolved(tools, *UUTS, loads=["max"]).unsupported
    name = "other" if path == "to-guest" else f"other path={path}"
    return {uut: of_uut[name] for uut, of_uut in refused.items() if name in of_uut}


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("http", "to-guest", {"bridge": "no IP address"}),
        ("http", "loopback", {}),
        ("iperf3", "loopback", {}),
        (
            "http",
            "through",
            {"bridge": "it does not route", "nat": "leave out nat", "private": "no frames pass"},
        ),
        ("http", "between-guests", WITHOUT_LINK),
        ("iperf3", "between-guests", WITHOUT_LINK),
        ("two-tier", "to-guest", {**WITHOUT_LINK, "bridge": "no IP address"}),
    ],
)
def test_uuts_without_a_path_are_left_out_with_the_reason(kind, path, expected):
    found = reasons(kind, path)
    assert found.keys() == expected.keys()
    assert [uut for uut, words in expected.items() if words not in found[uut]] == []


def test_a_link_between_guests_is_made_where_flows_need_it():
    usual = resolved({"kind": "http", "path": ["to-guest", "through"]})
    for guest in (VICTIM, "second"):
        assert not [step for step in steps(usual, "container", guest) if "nb-li" in step or "route add" in step]
    for tool in ({"kind": "http", "path": "between-guests"}, {"kind": "two-tier"}):
        found = resolved(tool)
        assert [step for step in steps(found, "container", "second") if "nb-li" in step] == LAN
        assert not [step for step in steps(found, "container", VICTIM) if "nb-li" in step]
        for guest, route in ROUTES.items():
            assert steps(found, "container", guest)[-1] == route
        assert "veth" in found.needs


def test_a_guest_beside_a_uut_without_bridges_is_not_linked():
    lab = shared_topology([{**CONTAINER, "name": "second", "streams": ["s2"]}], uuts=[RAW, CONTAINER])
    tools = [{"kind": "iperf3", "path": ["to-guest", "between-guests"]}]
    found = resolve(lab, profile(tool=tools, scenarios=[SHARED_IDLE], loads=["max"], frame_sizes=()))
    assert not [step for step in steps(found, "raw", "second") if "nb-li" in step]
    assert [step for step in steps(found, "container", "second") if "nb-li" in step] == LAN


@pytest.mark.parametrize(("uut", "command"), [(RAW, "ip -n nb-lab-uut link"), (CONTAINER, "guest: ip link")])
def test_the_loopback_interface_is_up_where_flows_need_it(uut, command):
    name, command = uut["name"], f"{command} set dev lo up"
    assert command in steps(resolved({"kind": "iperf3", "path": "loopback"}, uut, loads=["max"]), name, VICTIM)
    assert command not in steps(resolved({"kind": "iperf3"}, uut, loads=["max"]), name, VICTIM)


def test_flows_through_a_uut_have_addresses_and_routes_on_both_sides():
    to_guest, through = (resolved({"kind": "http", "path": path}, RAW) for path in ("to-guest", "through"))
    assert [change.command for change in flow_changes(to_guest.in_use, to_guest.streams_through, None)] == [
        "ip -n nb-lab-source address add 198.18.1.2/24 dev nb-tx1"
    ]
    assert [change.command for change in flow_changes(through.in_use, through.streams_through, None)] == [
        "ip -n nb-lab-source address add 198.18.1.2/24 dev nb-tx1",
        "ip -4 -n nb-lab-source route add 198.19.1.0/24 via 198.18.1.1 dev nb-tx1 onlink table 254",
        "ip -n nb-lab-sink address add 198.19.1.3/24 dev nb-rx1",
        "ip -4 -n nb-lab-sink route add 198.18.1.0/24 via 198.19.1.1 dev nb-rx1 onlink table 254",
    ]
    assert to_guest.ends_of_flows == {"source/tx1", "uut/in1"}
    assert through.ends_of_flows == {"source/tx1", "uut/in1", "uut/out1", "sink/rx1"}


REFUSED = {
    "several streams": (
        shared_topology(streams=3, uuts=[CONTAINER]),
        {"kind": "http", "path": "between-guests"},
        "flows between guests run over one stream",
    ),
    "no neighbour": (topology(uuts=[CONTAINER]), {"kind": "two-tier"}, "topology lab has no neighbour"),
    "a neighbour without streams": (
        topology(uuts=[CONTAINER], neighbours=[{"name": "second"}]),
        {"kind": "two-tier"},
        "neighbour second of topology lab has no stream",
    ),
    "no UUT": (shared_topology(uuts=[BRIDGE]), {"kind": "http", "path": "through"}, "no UUT can serve"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_paths_are_refused(name):
    lab, tool, words = REFUSED[name]
    scenarios = [SHARED_IDLE] if lab.neighbours else ["dedicated"]
    with pytest.raises(UsageError, match=words):
        resolve(lab, profile(tool=tool, scenarios=scenarios, loads=["10/s"], frame_sizes=()))


def test_two_paths_are_two_workloads():
    found = resolved({"kind": "http", "path": ["to-guest", "loopback"]}, RAW).profile.tool
    assert [(workload.name, workload.path) for workload in found] == [
        ("http", FlowPath.TO_GUEST),
        ("http path=loopback", FlowPath.LOOPBACK),
    ]
    assert [workload.written.get("path") for workload in found] == [None, "loopback"]


def with_cpu(cpu_s: dict[str, dict[str, float]], *flows: FlowResult, activity=None):
    trial = flow_trial(*flows, activity=activity or Idle())
    return replace(trial, guests=tuple(replace(guest, cpu_s=cpu_s.get(guest.name, {})) for guest in trial.guests))


SERVES = Serve(workload_of("http"), Load.parse("10/s"))
BY_BYTES = flow(completed=100, to_client_bytes=1000, run_to_client_bytes=1250)  # 125 operations in the whole run


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (with_cpu({VICTIM: {"host": 0.5}, "second": {"guest": 0.25, "host": 1.0}}, BY_BYTES), (4.0, 8.0)),
        (with_cpu({VICTIM: {"host": 0.5}}, flow(completed=100), flow("s2", completed=400)), (1.0, None)),
        (with_cpu({VICTIM: {"host": 0.5}}, flow(completed=100, duration_s=0.5)), (2.5, None)),
        (with_cpu({VICTIM: {"host": 0.5}, "second": {"host": 1.0}}, BY_BYTES, activity=SERVES), (4.0, None)),
        (with_cpu({VICTIM: {"host": 0.5}, "second": {"host": 2.0, "load": 1.5}}, BY_BYTES), (4.0, 4.0)),
        (with_cpu({VICTIM: {"host": 0.5}}, flow(completed=None)), (None, None)),
        (with_cpu({VICTIM: {"host": 0.5}}, flow(completed=0)), (None, None)),
        (with_cpu({}, BY_BYTES), (None, None)),
    ],
)
def test_the_cpu_time_per_operation_is_that_of_the_whole_run(trial, expected):
    found = per_operation_ms(trial)
    assert tuple(found.get(guest, {}).get("host") for guest in (VICTIM, "second")) == expected
    (group,) = workload_groups([trial])
    shown = {cpu.guest: cpu.per_operation_ms["host"].mean for cpu in guests_cpu([group])}
    assert (shown.get(VICTIM), shown.get("second")) == expected


@given(st.lists(st.integers(-(2**40), 2**50) | st.integers(-3000, 3000), max_size=50))
def test_clients_count_times_as_the_analysis_of_captures_does(values):
    found = Distribution()
    found.add(np.array(values, np.int64))
    extremes = found.smallest, found.largest
    assert times(values) == {
        "steps": found.steps(),
        "total_ns": found.total,
        "smallest_ns": extremes[0],
        "largest_ns": extremes[1],
    }
