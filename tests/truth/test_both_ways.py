"""A stream and its reverse at once: each direction is counted to the frame, and independent counters agree."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.model.counts import StreamCounts
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.testbed import rings
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.reference import DropRule
from tests.breakages import load_shipped
from tests.commands import FEW_FRAMES, HELD_UP, REPEATED, netbench, rows, settings, verdict_of
from tests.unit.charts import with_all_views
from tests.unit.inputs import planned_trial

pytestmark = pytest.mark.root
needs_lxc = pytest.mark.skipif(not shutil.which("lxc-start"), reason="needs LXC: apt-get install lxc")
needs_ovs = pytest.mark.skipif(
    not shutil.which("ovs-vswitchd"), reason="needs Open vSwitch: apt-get install openvswitch-switch"
)
SENT = FEW_FRAMES  # they fit in the rings of the links, and in the sockets of UUTs that are processes
ATTEMPTS = 5
IN_UUT = "nb-netns-both-uut"
# What comes in and leaves, of each direction, before any rule that drops and after it.
WITNESS = """add table netdev witness
add counter netdev witness forth-in
add counter netdev witness forth-out
add counter netdev witness back-in
add counter netdev witness back-out
add chain netdev witness a { type filter hook ingress device "nb-in1" priority -300; }
add chain netdev witness b { type filter hook ingress device "nb-out1" priority -300; }
add chain netdev witness c { type filter hook egress device "nb-out1" priority 300; }
add chain netdev witness d { type filter hook egress device "nb-in1" priority 300; }
add rule netdev witness a ip daddr 198.19.1.2 counter name forth-in
add rule netdev witness b ip daddr 198.19.2.2 counter name back-in
add rule netdev witness c ip daddr 198.19.1.2 counter name forth-out
add rule netdev witness d ip daddr 198.19.2.2 counter name back-out
"""
DIFFERENT = {
    "kind": "reference",
    "forward": "bridge",
    "drop": {"k": 7, "n": 100},
    "reverse": {"drop": {"k": 13, "n": 97}},
}
ELSEWHERE = {
    "kind": "reference",
    "forward": "route",
    "drop": {"k": 1, "n": 3, "at": "ingress"},
    "reverse": {"drop": {"k": 2, "n": 5, "at": "egress"}},
}


def profile(**more) -> Profile:
    return Profile.model_validate(
        {
            "name": "both",
            "frame_sizes": [128],
            "loads": ["400fps"],
            "duration": "500ms",
            "repetitions": 1,
            "tolerance": "100%",
            "max_lateness": "1min",
            **more,
        }
    )


def in_uut() -> Host:
    return NamespaceHost(LocalHost("uut", "RUN"), IN_UUT)


@contextmanager
def witness() -> Iterator[None]:
    run_checked(in_uut(), ["nft", "-f", "-"], stdin=WITNESS)
    try:
        yield
    finally:
        run_checked(in_uut(), ["nft", "delete", "table", "netdev", "witness"])


def seen() -> dict[str, int]:
    listed = json.loads(run_checked(in_uut(), ["nft", "-j", "list", "counters", "table", "netdev", "witness"]))
    return {
        entry["counter"]["name"]: int(entry["counter"]["packets"]) for entry in listed["nftables"] if "counter" in entry
    }


def by_link() -> dict[str, int]:
    """The frames that the UUT's NICs have received and sent, by direction."""
    links = json.loads(run_checked(in_uut(), ["ip", "-j", "-s", "link"]))
    stats = {link["ifname"]: link["stats64"] for link in links}
    return {
        "forth-in": stats["nb-in1"]["rx"]["packets"],
        "forth-out": stats["nb-out1"]["tx"]["packets"],
        "back-in": stats["nb-out1"]["rx"]["packets"],
        "back-out": stats["nb-in1"]["tx"]["packets"],
    }


def both_measured(uut: Mapping[str, object], wanted: Profile, scratch, streams=("forth", "back"), count=seen):
    """A trial of a UUT, and the independent counts during it; repeated where the machine stalled."""
    spec = UutSpec.model_validate({"name": "u", **uut})
    lab: Topology = load_shipped("netns-both").model_copy(update={"uuts": (spec,)})
    with open_testbed(resolve(lab, wanted)) as testbed, testbed.uut(spec) as active, witness():
        for attempt in range(1, ATTEMPTS + 1):
            trial = planned_trial(lab, wanted, streams, uut="u", index=attempt)
            before = count()
            result = run_trial(testbed.setup({VICTIM: active}), trial, Recording.as_wanted(wanted, scratch), attempt)
            found = {name: frames - before[name] for name, frames in count().items()}
            if not any(reason.kind.value in REPEATED for reason in result.reasons):
                break
        assert active.uut.read() is not None
    return result, found


def assert_exact(result: TrialResult, lost: dict[str, int], counted: dict[str, int]) -> None:
    """Assert that the frames sent and lost in each direction equal the independent counts, without other frames."""
    streams = {counts.stream: counts for counts in result.streams}
    assert {name: counts.sent.frames for name, counts in streams.items()} == dict.fromkeys(streams, SENT)
    assert {name: counts.lost_frames for name, counts in streams.items()} == lost
    assert {name: counts.received.frames for name, counts in streams.items()} == {
        name: SENT - frames for name, frames in lost.items()
    }
    for name, counts in streams.items():
        assert nothing_else(counts), counts
        assert (counted[f"{name}-in"], counted[f"{name}-out"]) == (SENT, SENT - lost[name])
    assert {reason.kind.value for reason in result.reasons} <= HELD_UP


def nothing_else(one: StreamCounts) -> bool:
    beside = one.foreign_frames, one.unexplained_frames, one.capture_dropped_frames
    return (*beside, one.received.duplicates, one.received.late, one.received.reordered) == (0, 0, 0, 0, 0, 0)


UUTS: dict[str, dict[str, object]] = {
    "bridge": {"kind": "raw"},
    "route": {"kind": "raw", "forward": "route"},
    "forwarder": {"kind": "forwarder"},
    "ovs": {"kind": "ovs"},
}
PROCESSES = ("forwarder", "ovs")


@pytest.mark.parametrize(
    ("uut", "sink"),
    [
        ("bridge", "tcpdump"),
        ("bridge", "bpf"),
        ("route", "bpf"),
        ("forwarder", "tcpdump"),
        pytest.param("ovs", "tcpdump", marks=needs_ovs),
    ],
)
def test_all_that_is_sent_arrives_each_way(uut, sink, tmp_path):
    result, counted = both_measured(UUTS[uut], profile(sink=sink), tmp_path)
    if uut in PROCESSES:  # their frames leave without passing a hook
        counted |= {name.replace("-in", "-out"): frames for name, frames in counted.items() if name.endswith("-in")}
    assert_exact(result, {"forth": 0, "back": 0}, counted)
    assert {counts.stream: counts.reverse_of for counts in result.streams} == {"forth": "", "back": "forth"}


@pytest.mark.parametrize("how", ["tc", "xdp"])
def test_what_is_redirected_both_ways_the_links_count(how, tmp_path):
    """No hook of nftables sees these frames; the sink is not tcpdump, whose flush frames would be redirected too."""
    uut = {"kind": "raw", "forward": how}
    result, counted = both_measured(uut, profile(sink="bpf"), tmp_path, count=by_link)
    assert_exact(result, {"forth": 0, "back": 0}, counted)


def test_flush_frames_that_are_redirected_to_the_other_sink_do_no_harm(tmp_path):
    result, _ = both_measured({"kind": "raw", "forward": "tc"}, profile(sink="tcpdump"), tmp_path)
    for counts in result.streams:
        assert counts.received.frames == SENT
        assert nothing_else(counts), counts
        assert counts.received.control == 0
        assert counts.received.delay is not None


@pytest.mark.parametrize(
    ("uut", "places", "sink"),
    [
        (DIFFERENT, {"forth": "bridge (nft drop rule)", "back": "bridge (nft drop rule)"}, "tcpdump"),
        (ELSEWHERE, {"forth": "ingress NIC (nft drop rule)", "back": "egress NIC (nft drop rule)"}, "bpf"),
    ],
)
def test_each_direction_loses_what_it_is_to_where_it_is_to(uut, places, sink, tmp_path):
    lost = {
        "forth": DropRule.model_validate(uut["drop"]).of(SENT),
        "back": DropRule.model_validate(uut["reverse"]["drop"]).of(SENT),
    }
    assert len(set(lost.values())) == 2
    result, counted = both_measured(uut, profile(sink=sink), tmp_path)
    assert_exact(result, lost, counted)
    placed = {counts.stream: {loss.place: loss.frames for loss in counts.lost_at} for counts in result.streams}
    assert placed == {name: {places[name]: frames} for name, frames in lost.items()}


def test_the_way_back_alone_is_measured_as_well(tmp_path):
    """A campaign measures the way forth alone, below."""
    result, counted = both_measured({"kind": "raw"}, profile(), tmp_path, ("back",))
    assert_exact(result, {"back": 0}, counted)
    assert (counted["forth-in"], counted["forth-out"]) == (0, 0)


@pytest.mark.parametrize(("load", "sink"), [("400fps", "tcpdump"), ("max", "bpf")])
def test_sources_and_sinks_of_the_kernel_share_nics_with_rings_at_both_ends(load, sink, tmp_path, monkeypatch):
    """As with enough CPUs: both NICs of the UUT receive from rings, which live frames of XDP require."""
    monkeypatch.setattr(rings, "receiving_cpus", lambda streams, cpus: [(cpus[-1],)] * streams)
    wanted = profile(loads=[load], generator="xdp", sink=sink, duration="500ms" if load != "max" else "100ms")
    result, counted = both_measured(DIFFERENT, wanted, tmp_path)
    assert {ends.source.kind for ends in result.ends.values()} == {"xdp"}
    if load != "max":
        lost = {"forth": DropRule(k=7, n=100).of(SENT), "back": DropRule(k=13, n=97).of(SENT)}
        assert_exact(result, lost, counted)
        return
    for counts, k, n in zip(result.streams, (7, 13), (100, 97), strict=True):
        placed = {loss.place: loss.frames for loss in counts.lost_at}
        rings_lost = placed.pop("ingress NIC (receive ring full)", 0)
        came_in = counted[f"{counts.stream}-in"]
        assert counts.sent.frames == came_in + rings_lost
        assert placed.pop("bridge (nft drop rule)", 0) == DropRule(k=k, n=n).of(came_in)
        assert counts.unexplained_frames == 0
        assert counts.foreign_frames == 0


@needs_lxc
@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_a_container_has_two_nics_and_forwards_both_ways(forward, tmp_path):
    result, counted = both_measured({"kind": "container", "forward": forward}, profile(), tmp_path)
    assert_exact(result, {"forth": 0, "back": 0}, counted)
    for counts in result.streams:
        passed = {
            point.point: point.grew for point in counts.counters if point.role == "passed" and "veth" in point.point
        }
        assert passed == {"ingress veth": SENT, "egress veth": SENT}


def test_a_campaign_of_one_way_and_both(tmp_path):
    done = netbench(
        "run",
        "netns-both",
        "quick",
        "-o",
        tmp_path / "r",
        *settings(streams="each", frame_sizes=64, loads="400fps", repetitions=1, duration="500ms"),
        *settings(tolerance="100%", max_lateness="1min"),
        "--uut",
        "bridge",
    )
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "r")
    assert sorted((row["streams"], row["stream"], row["reverse_of"]) for row in found) == [
        ("1", "forth", ""),
        ("2", "back", "forth"),
        ("2", "forth", ""),
    ]
    assert all(
        verdict_of(row) == "valid" and row["received_frames"] == row["sent_frames"] == str(SENT) for row in found
    )
    page = (tmp_path / "r" / "report.html").read_text()
    assert "back, reverse of forth" in with_all_views(page)
