"""Breakages put at places of our choosing: in a whole trial, the right hop is named with the right count."""

import shlex
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from netbench.config.loading import load_topology
from netbench.config.shipped import TOPOLOGIES, find
from netbench.model.counts import StreamCounts
from netbench.model.profile import Profile
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import ReasonKind
from netbench.plugins import UUTS, option_models
from netbench.testbed import open_testbed
from netbench.trial import run_trial

pytestmark = pytest.mark.root

SENT = 1000
PROFILE = Profile.model_validate(
    {
        "name": "places",
        "frame_sizes": [300],
        "loads": ["5000fps"],
        "duration": f"{SENT // 5}ms",
        "repetitions": 1,
        "tolerance": "100%",
        "max_lateness": "1min",
        "settle": {"before": "0s", "after": "0s"},
    }
)


@dataclass(frozen=True)
class Broken:
    """One breakage: commands in a namespace that make and undo it, and what must be said of it."""

    name: str
    host: str
    make: str
    undo: str
    lost: dict[str, int]
    kinds: tuple[ReasonKind, ...] = ()


def ruled(name: str, host: str, chain: str, rule: str, lost: dict[str, int], *kinds: ReasonKind) -> Broken:
    """A rule of nftables: `chain` is family, hook and, where it needs one, device."""
    family, hook, *device = chain.split()
    where = f"device {device[0]} " if device else ""
    table = f"{family} x {{ chain c {{ type filter hook {hook} {where}priority 0; {rule}; }} ; }}"
    return Broken(name, host, f"nft 'table {table}'", f"nft delete table {family} x", lost, kinds)


BETWEEN = "(between ingress NIC and egress NIC)"
SEVEN = "numgen inc mod 100 < 7"
ON_A_BRIDGE = [
    ruled(
        "ingress", "uut", "netdev ingress nb-in1", f"{SEVEN} counter drop", {"ingress NIC (nft netdev x c rule 2)": 70}
    ),
    ruled(
        "ingress, uncounted",
        "uut",
        "netdev ingress nb-in1",
        f"{SEVEN} drop",
        {"ingress NIC (nft netdev x c rule 2, which does not count)": 70},
    ),
    ruled("bridge", "uut", "bridge forward", f"{SEVEN} counter drop", {"bridge (nft bridge x c rule 2)": 70}),
    ruled(
        "egress", "uut", "netdev egress nb-out1", f"{SEVEN} counter drop", {"egress NIC (nft netdev x c rule 2)": 70}
    ),
    Broken(
        "a port that is blocked",
        "uut",
        "bridge link set dev nb-out1 state 0",
        "bridge link set dev nb-out1 state 3",
        {f"bridge {BETWEEN}": SENT},
    ),
    ruled(
        "sink, behind the capture",
        "sink",
        "netdev ingress nb-rx1",
        f"{SEVEN} counter drop",
        {},
        ReasonKind.TESTER_DROPPED,
    ),
]
AT_A_ROUTER = [
    ruled("forward", "uut", "ip forward", f"{SEVEN} counter drop", {"IP layer (nft ip x c rule 2)": 70}),
    ruled("ttl", "uut", "ip prerouting", f"{SEVEN} ip ttl set 1", {"IP layer (InHdrErrors)": 70}),
    Broken(
        "no route",
        "uut",
        "ip route del 198.19.1.0/24",
        "ip route add 198.19.1.0/24 dev nb-out1",
        {"IP layer (InNoRoutes)": SENT},
    ),
    Broken(
        "not for us",
        "uut",
        "sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv4.ip_forward=1",
        {"IP layer (InAddrErrors)": SENT},
    ),
]


@contextmanager
def broken(breakage: Broken):
    inside = ["ip", "netns", "exec", f"nb-netns-{breakage.host}"]
    subprocess.run([*inside, *shlex.split(breakage.make)], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, *shlex.split(breakage.undo)], check=True)


@pytest.mark.parametrize(("forward", "breakages"), [("bridge", ON_A_BRIDGE), ("route", AT_A_ROUTER)])
def test_the_right_hop_is_named_with_the_right_count(forward, breakages, tmp_path):
    topology = load_topology(find(TOPOLOGIES, "netns"), option_models(UUTS))
    spec = next(uut for uut in topology.uuts if uut.name == forward)
    said = {}
    with open_testbed(topology, PROFILE) as testbed, testbed.uut(spec) as uut:

        def measure(index: int) -> TrialResult:
            trial = TrialSpec(index, spec.name, "dedicated", ("s1",), 300, PROFILE.loads[0], 1)
            return run_trial(testbed.bench(uut), trial, PROFILE, 1, tmp_path)

        for index, breakage in enumerate(breakages):
            with broken(breakage):
                said[breakage.name] = summary(measure(index))
        whole = summary(measure(len(breakages)))
    assert said == {one.name: (SENT, one.lost, 0, one.kinds) for one in breakages}
    assert whole == (SENT, {}, 0, ()), "once they are gone, nothing is left of them"


def summary(result: TrialResult) -> tuple[int, dict[str, int], int | None, tuple[ReasonKind, ...]]:
    """Frames sent, lost by place, and unexplained; and what is said against the trial."""
    counts: StreamCounts
    (counts,) = result.streams
    assert counts.lost_frames == sum(loss.frames for loss in counts.lost_at) + (counts.unexplained_frames or 0)
    places = {loss.hop: loss.frames for loss in counts.lost_at}
    return counts.sent_frames, places, counts.unexplained_frames, tuple(reason.kind for reason in result.reasons)
