"""Described packets in plans: all frames of a profile, their trials, calibrations, searches, and refused ones."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.packet_description import parse_packet
from netbench.model.packet_notation import parse_layers
from netbench.model.profile import MaximaSpec, Profile
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.plan.calibration import calibration_plan
from netbench.plan.noise_trial import noise_trial
from netbench.plan.selection import choose
from netbench.plan.trial_order import StaticPlan
from netbench.plan.warnings import left_out, unsupported_packets
from netbench.search.rfc2544_tests import deviations, is_smallest
from netbench.search.search_options import SearchOptions
from netbench.search.search_schedule import Search
from netbench.testbed.packet_checks import refuse_packets
from netbench.testbed.resolved import resolve
from tests.unit.inputs import profile, shared_topology, topology, topology_both_ways

UUTS = ({"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw"})
TAGGED = "Ether()/Dot1Q(vlan=7)/IP()/UDP()"
NAMED = {"name": "tagged", "headers": TAGGED}


def described(*packets: object, **more: object) -> Profile:
    return profile(**{"frame_sizes": [64, 512], "packet": list(packets), **more})


def sizes_of(trials) -> list[str]:
    return list(dict.fromkeys(str(trial.frame_size) for trial in trials))


@pytest.mark.parametrize(
    ("packets", "sizes"),
    [
        (["plain"], ["64", "512"]),
        (["plain", "vlan"], ["64", "512", "64 vlan", "512 vlan"]),
        ([NAMED], ["64 tagged", "512 tagged"]),
        (["ipv6", NAMED, "plain"], ["64 ipv6", "512 ipv6", "64 tagged", "512 tagged", "64", "512"]),
    ],
)
def test_each_size_is_measured_with_each_packet(packets, sizes):
    wanted = described(*packets)
    assert list(map(str, wanted.all_frame_sizes)) == sizes
    assert sorted(sizes_of(StaticPlan(choose(topology(), wanted)).trials)) == sorted(sizes)


def test_a_profile_without_packets_has_the_trials_of_before():
    plain = StaticPlan(choose(topology(), profile(frame_sizes=[64, 512]))).trials
    assert [trial.key for trial in plain] == [
        trial.key for trial in StaticPlan(choose(topology(), described("plain"))).trials
    ]


def test_the_stored_profile_reproduces_the_packets():
    wanted = described("plain", "vlan", {**NAMED, "vary": {"UDP.sport": {"from": 1024, "count": 10}}})
    again = Profile.model_validate(wanted.model_dump(mode="json"))
    assert (again.packets, again.packet_names) == (wanted.packets, wanted.packet_names)
    assert again.all_frame_sizes == wanted.all_frame_sizes


def test_maxima_are_searched_for_with_each_packet_once():
    wanted = described("plain", "vlan", frame_sizes=[64], loads=["50% of maximum"])
    plan = calibration_plan(choose(topology(), wanted), MaximaSpec())
    assert list(map(str, plan.profile.all_frame_sizes)) == ["64", "64 vlan"]


def test_maxima_for_neighbours_are_those_of_plain_frames_beside_those_of_the_packets():
    plan = choose(topology(), described("vlan", frame_sizes=[64], loads=["50% of maximum"]))
    profile_of_maxima = calibration_plan(plan, MaximaSpec()).profile
    both = profile_of_maxima.model_copy(update={"frame_sizes": (FrameSize.of(64), FrameSize.of(64, "vlan"))})
    assert list(map(str, both.all_frame_sizes)) == ["64", "64 vlan"]


TAGS = f"Ether()/{'/'.join(12 * ['Dot1Q()'])}/IP()/UDP()"
VLANS = ["Dot1Q.vlan", *(f"Dot1Q:{number}.vlan" for number in range(2, 13))]


@pytest.mark.parametrize(
    ("headers", "varying", "sizes", "fault"),
    [
        (TAGS, VLANS, [300], ""),
        (TAGS, [*VLANS, "UDP.sport"], [300], "packet many: vary: fields that vary take 13 words of 4 bytes"),
        (TAGS, [], [100], "set frame_sizes to 110 or more"),
        ("Ether()/IP()/UDP()", ["IP.id", "IP.ttl", "IP.tos"], [64, "imix"], ""),
        ("Ether()/IP()/TCP()", ["TCP.urgptr"], ["imix-v6"], ""),
    ],
)
def test_more_than_sources_can_vary_is_refused_before_anything_is_touched(headers, varying, sizes, fault):
    vary = {field: {"from": 1, "count": 9} for field in varying}
    packet = {"name": "many", "headers": headers, **({"vary": vary} if vary else {})}
    wanted = described(packet, frame_sizes=sizes, generator="afpacket")
    with pytest.raises(UsageError, match=fault) if fault else nullcontext():
        paths = tuple(stream_paths(topology()))
        refuse_packets(wanted, paths, {path.name: wanted.frame_sizes for path in paths})


REFUSED = {"route": {"vlan": "Dot1Q: it routes; add an interface for the VLAN", "": "it has no address"}}


def test_a_uut_has_no_trials_with_a_packet_that_it_refuses():
    plan = replace(choose(topology(uuts=UUTS), described("plain", "vlan", "ipv6")), unsupported=REFUSED)
    trials = StaticPlan(plan).trials
    by_uut = {uut: sorted(sizes_of(trial for trial in trials if trial.uut == uut)) for uut in ("bridge", "route")}
    assert by_uut == {
        "bridge": ["512", "512 ipv6", "512 vlan", "64", "64 ipv6", "64 vlan"],
        "route": ["512 ipv6", "64 ipv6"],
    }
    assert [trial.index for trial in trials] == list(range(len(trials)))
    assert [trial.boot for trial in trials] == sorted(trial.boot for trial in trials)


def test_a_search_and_its_ceilings_leave_refused_packets_out():
    wanted = described("plain", "vlan", frame_sizes=[64], loads=[], schedule="search")
    plan = replace(choose(topology(uuts=UUTS[1:]), wanted), unsupported={"route": {"vlan": "it cannot"}})
    assert [str(size) for _, size in Search(plan, SearchOptions()).needed_ceilings] == ["64"]


def test_warnings_name_the_packet_and_the_reason():
    texts = [warning.text for warning in unsupported_packets(REFUSED)]
    assert texts[0] == (
        "UUT route is not measured with the packet vlan: Dot1Q: it routes; add an interface for the VLAN"
    )
    assert texts[1].startswith("UUT route is not measured with plain frames: ")


@pytest.mark.parametrize(
    ("refused", "text", "line"),
    [
        ({"vlan": "why"}, "the packet vlan: why", "vlan: why"),
        ({"vlan": "why", "dscp6": "why"}, "the packets vlan, dscp6: why", "vlan, dscp6: why"),
        ({"": "why", "vlan": "why"}, "plain frames and the packet vlan: why", "plain, vlan: why"),
        ({"64 vlan": "why", "imix vlan": "why"}, "frames 64 vlan, imix vlan: why", "64 vlan, imix vlan: why"),
    ],
)
def test_packets_that_a_uut_refuses_for_one_reason_share_a_warning(refused, text, line):
    (warning,) = unsupported_packets({"route": refused})
    assert warning.text == f"UUT route is not measured with {text}"
    assert left_out({"route": refused}) == [f"route × {line}"]


def test_the_noise_trial_has_a_packet_that_its_uut_forwards():
    plan = replace(choose(topology(uuts=UUTS[1:]), described("plain", "vlan")), unsupported={"route": {"": "no"}})
    first = StaticPlan(plan).trials[0]
    assert str(noise_trial(first, plan.profile).frame_size) == "64 vlan"


@pytest.mark.parametrize(
    ("size", "smallest"),
    [(FrameSize.of(64), True), (FrameSize.of(64, "vlan"), True), (FrameSize.of(512, "vlan"), False)],
)
def test_resets_are_measured_with_the_smallest_frames_of_each_packet(size, smallest):
    assert is_smallest(size, described("plain", "vlan")) is smallest


def test_other_packets_are_a_deviation_from_rfc_2544():
    texts = list(deviations(SearchOptions(), described("plain", "vlan", NAMED)))
    assert "packets vlan, tagged instead of the frame formats of section 8 (appendix C)" in texts


MIRRORED = [
    ("Ether()/IP()/UDP()", None, "Ether()/IP()/UDP()", []),
    (
        'Ether(src="02:00:00:00:00:01")/IP(src="10.0.0.1",ttl=9)/UDP(sport=5)',
        {"IP.dst": {"from": "10.0.1.1", "count": 9}, "IP.ttl": {"list": [8, 9]}, "UDP.sport": {"list": [5, 6]}},
        'Ether(dst="02:00:00:00:00:01")/IP(dst="10.0.0.1",ttl=9)/UDP(dport=5)',
        ["IP.src", "IP.ttl", "UDP.dport"],
    ),
    (
        'Ether()/IP()/UDP(sport=49152,dport=4789)/VXLAN(vni=1)/Ether()/IPv6(dst="2001:2::9")/TCP(dport=80)',
        {"UDP.sport": {"list": [7, 8]}, "IPv6.dst": {"from": "2001:2::9", "count": 2}},
        'Ether()/IP()/UDP(sport=49152,dport=4789)/VXLAN(vni=1)/Ether()/IPv6(src="2001:2::9")/TCP(sport=80)',
        ["UDP.sport", "IPv6.src"],
    ),
]


@pytest.mark.parametrize(("headers", "vary", "answer", "varying"), MIRRORED)
def test_a_reverse_stream_exchanges_source_and_destination(headers, vary, answer, varying):
    sent = parse_packet({"headers": headers, **({"vary": vary} if vary else {})})
    assert sent is not None
    assert sent.mirrored.layers == parse_layers(answer)
    assert [str(field.ref) for field in sent.mirrored.vary] == varying
    assert sent.mirrored.mirrored == sent


def test_headers_at_the_sink_are_exchanged_too_but_not_those_of_a_streams_own_packet():
    sent = parse_packet({"headers": "Ether()/IP()/UDP()", "expect": "Ether()/IP(src=any)/UDP()"})
    forth, back = stream_paths(topology_both_ways())
    assert forth.packet_of(sent) == sent
    answer = back.packet_of(sent)
    assert answer is not None
    assert answer.expect == parse_layers("Ether()/IP(dst=any)/UDP()", expected=True)
    assert replace(back, packet=sent).packet_of(None) == sent


def neighbour_sends(frame_size: int, packet: str) -> tuple[Topology, Profile]:
    lab = shared_topology()
    first, second = ({"name": stream.name, **stream.nics_by_role} for stream in lab.streams)
    plain = lab.model_dump(exclude_defaults=True)
    lab = Topology.model_validate({**plain, "streams": [first, {**second, "packet": packet}]})
    return lab, profile(scenarios=[{"network": "1000fps", "frame_size": frame_size}])


def test_a_packet_of_a_neighbour_needs_room_in_the_frames_of_its_scenario_and_not_in_those_of_the_victim():
    resolve(*neighbour_sends(128, "ipv6"))
    with pytest.raises(
        UsageError, match="stream s2: packet ipv6: frames of 64 bytes have no room .*its frame size to 84"
    ):
        resolve(*neighbour_sends(64, "ipv6"))
