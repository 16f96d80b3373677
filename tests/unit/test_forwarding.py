"""What makes a kernel forward: streams do not meet, and a guest's own NICs are what its changes name."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.model.paths import stream_paths
from netbench.model.topology import MAX_STREAMS
from netbench.uut.forwarding import changes_in_guest, forwarding_changes
from netbench.uut.guest_links import guest_mac
from tests.unit.inputs import topology

PATHS = stream_paths(topology(2))


@pytest.mark.parametrize("how", ["bridge", "route"])
def test_a_guest_does_as_a_machine_does_once_its_nics_are_up_and_ipv6_is_silent(how):
    quiet = [f"sysctl -w net.ipv6.conf.{part}.disable_ipv6=1" for part in ("all", "default")]
    up = [f"ip -n nb-lab-uut link set nb-{end} up" for end in ("in1", "out1", "in2", "out2")]
    own = [change.command for change in forwarding_changes(PATHS, how)]
    assert [change.command for change in changes_in_guest(PATHS, how)] == [*quiet, *up, *own]
    assert changes_in_guest((), how) == []


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30))
def test_no_two_streams_meet(streams):
    for how in ("bridge", "route"):
        commands = [change.command for change in forwarding_changes(stream_paths(topology(streams)), how)]
        assert len(set(commands)) == len(commands)
        for number in range(1, streams + 1):
            mine = [command for command in commands if re.search(rf"\bnb-(?:in|out){number}\b", command)]
            found = {int(other) for command in mine for other in re.findall(r"\bnb-(?:in|out)(\d+)\b", command)}
            assert found == {number}


def test_the_macs_of_all_guests_nics():
    """Locally administered, no two alike, and none that a NIC of the testbed has."""
    paths = stream_paths(topology(MAX_STREAMS))
    macs = [guest_mac(path, role) for path in paths for role in ("ingress", "egress")]
    assert len(set(macs)) == 2 * MAX_STREAMS
    assert all(re.fullmatch(r"02(:[0-9a-f]{2}){5}", mac) for mac in macs)
    assert not set(macs) & {nic.mac for path in paths for nic in path.nics.values()}
