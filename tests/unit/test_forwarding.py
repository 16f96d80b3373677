"""Changes that make a kernel forward: streams do not meet, and a guest's changes name its own NICs."""

import re
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.errors import ChangeError, MissingError, TestbedError, UsageError
from netbench.linux.changes import AddAddress, AddTable, Change, ForgetConnections, KernelRequest, Redirect, SetSysctl
from netbench.model.paths import inside_nics
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import MAX_STREAMS
from netbench.uut.base import Assignment, Site
from netbench.uut.forwarding import changes_in_guest, forwarding_changes
from netbench.uut.guest_links import attaching_changes, guest_mac
from netbench.uut.ovs import Ovs, OvsOptions
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.raw import Raw, RawOptions
from netbench.vmm.attachment import tap
from netbench.vmm.base import GuestOptions
from tests.unit.inputs import topology

PATHS = stream_paths(topology(2))
OUTSIDE = [
    replace(path, ingress=replace(ingress, netns=None), egress=replace(egress, netns=None))
    for path in PATHS
    for ingress, egress in [inside_nics(path)]
]


def commands(changes):
    return [change.command for change in changes]


@pytest.mark.parametrize("how", ["bridge", "route", "flowtable"])
def test_a_guest_does_as_a_machine_does_once_its_nics_are_up_and_ipv6_is_silent(how):
    quiet = [f"sysctl -w net.ipv6.conf.{part}.disable_ipv6=1" for part in ("all", "default")]
    up = [f"ip -n nb-lab-uut link set dev nb-{end} up" for end in ("in1", "out1", "in2", "out2")]
    changes = [
        change
        for change in forwarding_changes(PATHS, how, "guest")
        if not isinstance(change, ForgetConnections)  # a new kernel has none
    ]
    settings_, *output = (list(group) for _, group in groupby(changes, lambda change: isinstance(change, SetSysctl)))
    expected = [*quiet, *commands(settings_), *up, *commands(chain.from_iterable(output))]
    assert commands(changes_in_guest(PATHS, how)) == expected
    assert changes_in_guest((), how) == []


@pytest.mark.parametrize(
    ("paths", "options", "namespaces"),
    [
        (PATHS, {"forward": "route"}, []),
        (PATHS, {"forward": "bridge"}, []),
        (PATHS, {"forward": "flowtable"}, ["nb-lab-uut"]),
        (PATHS, {"forward": "route", "nat": "source"}, ["nb-lab-uut"]),
        (PATHS, {"forward": "route", "nat": "destination"}, ["nb-lab-uut"]),
        (OUTSIDE, {"forward": "flowtable"}, []),
    ],
)
def test_connections_are_forgotten_where_they_translate_and_only_in_our_own_namespaces(paths, options, namespaces):
    handling = PacketHandling(RawOptions.model_validate(options))
    changes = forwarding_changes(paths, options["forward"], "u", handling)
    kinds = [type(change) for change in changes]
    assert [change.netns for change in changes if isinstance(change, ForgetConnections)] == namespaces
    assert not namespaces or kinds.index(ForgetConnections) < kinds.index(AddTable)


@pytest.mark.parametrize("paths", [PATHS, OUTSIDE], ids=["in a namespace", "outside all"])
def test_what_one_tool_is_reported_stands_together(paths):
    """Each command takes milliseconds, in an emulated guest tens of them."""
    towards = {path.name: path.sink.mac for path in paths}
    for changes in (forwarding_changes(paths, "bridge"), attaching_changes(paths, tap(), towards)):
        output = [change.tool for change in changes if isinstance(change, KernelRequest)]
        assert len([tool for tool, _ in groupby(output)]) == 2, "ip, then bridge"


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30))
def test_no_two_streams_meet(streams):
    for how in ("bridge", "route", "tc"):
        commands = [change.command for change in forwarding_changes(stream_paths(topology(streams)), how)]
        assert len(set(commands)) == len(commands)
        for number in range(1, streams + 1):
            mine = [command for command in commands if re.search(rf"\bnb-(?:in|out){number}\b", command)]
            found = {int(named) for command in mine for named in re.findall(r"\bnb-(?:in|out)(\d+)\b", command)}
            assert found == {number}


def test_the_macs_of_all_guests_nics():
    """Locally administered, no two alike, and none that a NIC of the testbed has."""
    paths = stream_paths(topology(MAX_STREAMS))
    macs = [guest_mac(path, role) for path in paths for role in ("ingress", "egress")]
    assert len(set(macs)) == 2 * MAX_STREAMS
    assert all(re.fullmatch(r"02(:[0-9a-f]{2}){5}", mac) for mac in macs)
    assert not set(macs) & {nic.mac for path in paths for nic in path.nics.values()}


class RejectingMachine:
    """A machine whose kernel rejects all changes of one kind."""

    def __init__(self, kind: type[Change], reason: str) -> None:
        self.kind, self.reason = kind, reason

    def make(self, changes):
        for change in changes:
            if isinstance(change, self.kind):
                raise ChangeError(f"`{change.command}` failed: {self.reason}", change, self.reason)


@pytest.mark.parametrize(
    ("forward", "kind", "error", "message"),
    [
        ("flowtable", AddTable, MissingError, "CONFIG_NF_FLOW_TABLE .*: Could not process rule; `forward: route`"),
        ("flowtable", AddAddress, TestbedError, "failed: /dev/stdin:1:1-9: Error"),
        ("tc", Redirect, MissingError, "CONFIG_NET_CLS_U32, .*`forward: bridge`"),
    ],
)
def test_a_missing_kernel_feature_is_named(forward, kind, error, message):
    machine: Any = RejectingMachine(kind, "/dev/stdin:1:1-9: Error: Could not process rule\nadd …\n^^^")
    with pytest.raises(error, match=message):
        Raw(RawOptions.model_validate({"forward": forward})).provision(Site(Assignment(paths=PATHS), machine, {}))


def test_a_guest_is_not_asked_for_what_only_this_machine_can_do():
    with pytest.raises(ValidationError, match="a guest cannot run netbench's XDP programs: use tc"):
        GuestOptions.model_validate({"forward": "xdp"})


def test_in_a_way_of_the_machine_itself_open_vswitch_takes_only_its_own_datapath():
    Ovs(OvsOptions()).check(OUTSIDE)
    Ovs(OvsOptions(datapath="system")).check(PATHS)
    with pytest.raises(UsageError, match="another Open vSwitch may use that of the machine"):
        Ovs(OvsOptions(datapath="system")).check(OUTSIDE)
