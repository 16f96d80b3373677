"""The tester in results: its sources, its sinks, and the places of hosts."""

import pytest

from netbench.config.plugins import SINKS, origin, plugins
from netbench.model.tester import HostIdentity, Identity
from netbench.testbed.bring_up import usual_ends
from tests.unit.inputs import profile

USUAL = Identity("plain", "example 0.1", {"size": "9"}, 2, (0, 1))


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        (Identity(), USUAL),
        (Identity(version="2", options={}, threads=1, cpus=()), Identity("plain", "2", {}, 1, ())),
        (Identity("other"), Identity("other", cpus=(0, 1))),  # the identity of the chooser is not that of its choice
    ],
)
def test_what_a_source_does_not_say_is_as_usual(reported, found):
    assert reported.completed(USUAL) == found


def test_an_identity_in_words():
    assert str(USUAL) == "plain (example 0.1; size=9; 2 threads; CPUs 0,1)"
    assert Identity("x", cpus=()).details == "any CPU"
    assert Identity("x").details == "", "unknown details are left out"


def test_options_are_those_in_effect():
    ends = usual_ends(profile(generator={"kind": "pktgen", "threads": 2, "burst": 4}), ((1,), ()))
    assert ends.source.options == {
        "pacing": "lattice",
        "xmit_mode": "start_xmit",
        "timestamps": "paced",
        "clone_skb": "0",
        "burst": "4",
    }
    assert (ends.source.kind, ends.source.cpus, ends.sink.kind, ends.sink.cpus) == ("pktgen", (1,), "tcpdump", ())


def test_the_package_of_a_kind():
    assert {origin(SINKS, name).split()[0] for name in plugins(SINKS)} >= {"netbench"}
    assert origin(SINKS, "no-such-kind") == ""


@pytest.mark.parametrize(
    ("host", "where"),
    [
        (HostIdentity("", None, None, "none", "none"), "this machine (bare metal)"),
        (
            HostIdentity("", None, "nb-x", "kvm", "docker"),
            "network namespace nb-x of this machine (virtualised: kvm), in a container (docker)",
        ),
        (
            HostIdentity("", "lab", "nb-x", None, None, {"emulated": "no /dev/kvm", "accelerator": "tcg"}),
            "network namespace nb-x of VM lab (CPU emulated: no /dev/kvm), "
            "on this machine (virtualised or not is unknown)",
        ),
        (
            HostIdentity("", "lab", None, "none", None, {"accelerator": "kvm"}),
            "VM lab (virtualised: kvm), on this machine (bare metal)",
        ),
    ],
)
def test_where_a_host_is(host, where):
    assert host.where == where
