"""Described packets in results: texts and stored forms of frame sizes, exports, and conservation by size and group."""

import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from netbench.model.counts import SizeCounts
from netbench.model.fields import FrameSizeField
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.packet import ANY, FieldRef, Layer, ListedValues, Packet, SteppedValues, VaryingField
from netbench.model.packet_counts import ChangedField, FieldGroups, FlowGroup, PacketCounts, SentPacket
from netbench.model.scenario import VICTIM, Off
from netbench.model.stored_counts import CountsField
from netbench.model.stream_paths import stream_paths
from netbench.model.trial import GuestTask, TrialFrames
from netbench.model.units import Load
from netbench.model.verdict import Verdict
from netbench.results.export_files import export
from netbench.results.export_rows import group_rows, stream_rows
from netbench.trial.conservation import imbalances
from netbench.trial.setup import guests_of
from netbench.trial.verdict_rules import judge
from tests.unit.accounts import account
from tests.unit.fakes import FakeSetup
from tests.unit.inputs import stream_traffic, topology_sending, trial_spec
from tests.unit.received import received
from tests.unit.results_factory import campaign, changed, neighbour, stream_counts, trial
from tests.unit.test_judging import arriving

VLAN = Packet("vlan", (Layer("Ether"), Layer("Dot1Q", (("vlan", 100),)), Layer("IP"), Layer("UDP")))
VARYING_IDS = (VaryingField(FieldRef("Dot1Q", "vlan"), ListedValues((10, 20))),)
VARYING_PORTS = (VaryingField(FieldRef("UDP", "sport"), SteppedValues(1024, 1, 1000)),)
STORED = TypeAdapter(FrameSize)


@pytest.mark.parametrize(
    ("size", "plain", "with_unit", "frames", "in_bytes", "long_as"),
    [
        (FrameSize.of(64), "64", "64 B", "64-byte frames", "64 bytes", "64-byte"),
        (FrameSize.of(64, "vlan"), "64 vlan", "64 B vlan", "64-byte vlan frames", "64 bytes (vlan)", "64-byte vlan"),
        (
            FrameSize.of(1518, "vlan"),
            "1518 vlan",
            "1,518 B vlan",
            "1,518-byte vlan frames",
            "1518 bytes (vlan)",
            "1518-byte vlan",
        ),
        (
            IMIX.with_packet("1k-flows"),
            "imix 1k-flows",
            "imix 1k-flows",
            "imix 1k-flows frames",
            "imix (1k-flows)",
            "imix 1k-flows",
        ),
    ],
)
def test_texts_name_the_packet(size, plain, with_unit, frames, in_bytes, long_as):
    assert (str(size), size.text(" B"), size.frames_text, size.in_bytes, size.long_as) == (
        plain,
        with_unit,
        frames,
        in_bytes,
        long_as,
    )


def test_a_single_size_with_a_packet_is_no_mix_and_keeps_its_number():
    size = FrameSize.of(1518).with_packet("vlan")
    assert (size.is_mix, size.only_size, size.mean_bytes, f"{size:,}") == (False, 1518, 1518, "1,518 vlan")
    assert size == FrameSize.of(1518, "vlan") != FrameSize.of(1518) == size.without_packet


def test_sizes_sort_by_size_and_then_with_the_plain_packet_first():
    sizes = [IMIX, FrameSize.of(64, "vlan"), FrameSize.of(1518), FrameSize.of(64, "gre"), FrameSize.of(64)]
    assert list(map(str, sorted(sizes))) == ["64", "64 gre", "64 vlan", "imix", "1518"]


@pytest.mark.parametrize(
    ("size", "stored"),
    [
        (FrameSize.of(64), 64),
        (FrameSize.of(64, "vlan"), {"size": 64, "packet": "vlan"}),
        (FrameSize("mine", (64, 128)), {"name": "mine", "genome": [64, 128]}),
        (FrameSize("mine", (64, 128), "vlan"), {"name": "mine", "genome": [64, 128], "packet": "vlan"}),
        (IMIX.with_packet("nat44"), {"name": "imix", "genome": [*IMIX.genome], "packet": "nat44"}),
    ],
)
def test_results_read_back_with_and_without_a_packet(size, stored):
    assert json.loads(STORED.dump_json(size)) == stored
    assert STORED.validate_json(json.dumps(stored)) == size


def test_a_profile_has_packets_under_their_own_key_only():
    with pytest.raises(ValueError, match="no packet"):
        TypeAdapter(FrameSizeField).validate_python({"size": 64, "packet": "vlan"})
    assert TypeAdapter(FrameSizeField).dump_python(IMIX.with_packet("vlan")) == "imix"


@pytest.mark.parametrize(
    ("packet", "key"), [("", "raw/dedicated/s1/64/1000fps/1"), ("vlan", "raw/dedicated/s1/64 vlan/1000fps/1")]
)
def test_keys_of_plain_trials_stay_and_those_of_others_name_the_packet(packet, key):
    assert trial(stream_counts(), frame_size=FrameSize.of(64, packet)).spec.key == key


@pytest.mark.parametrize(
    ("packet", "ids"),
    [
        (Packet("udp", (Layer("Ether"), Layer("IP"))), ""),
        (VLAN, "100"),
        (replace(VLAN, layers=(Layer("Ether"), Layer("Dot1AD", (("vlan", 200),)), *VLAN.layers[1:])), "200.100"),
        (replace(VLAN, layers=(Layer("Ether"), Layer("Dot1Q"))), "1"),
        (replace(VLAN, vary=VARYING_IDS), ""),
        (replace(VLAN, layers=(Layer("Ether"), Layer("Dot1Q", (("vlan", ANY),)))), ""),
    ],
)
def test_vlan_ids_are_the_outermost_first_and_empty_if_they_vary(packet, ids):
    assert SentPacket.of(packet).vlan == ids


# 1,000 sent, 990 received: VLAN 10 lost 4 frames and VLAN 20 lost 6 of them.
COUNTS = PacketCounts(
    flows=1000,
    lossy_flows=7,
    changed_frames=990,
    changed=(ChangedField("IP.ttl", 990, "64", "63", "64"), ChangedField("IP.dst", 3)),
    reordered_in_flows=5,
    groups=(
        FieldGroups("Dot1Q.vlan", 2, (FlowGroup("10", 500, 496), FlowGroup("20", 500, 494))),
        FieldGroups("UDP.sport", 1000, tuple(FlowGroup(str(port), 1, 0) for port in range(10))),
    ),
)
LOSSY = stream_counts(received=990, packet=SentPacket.of(replace(VLAN, vary=VARYING_PORTS)), packet_counts=COUNTS)
DESCRIBED = trial(LOSSY, frame_size=FrameSize.of(64, "vlan"))


def test_counts_of_packets_read_back_and_are_unknown_in_results_of_earlier_versions():
    counts = TypeAdapter(CountsField)
    stored = json.loads(counts.dump_json(LOSSY))
    assert counts.validate_python(stored) == LOSSY
    earlier = {name: value for name, value in stored.items() if name not in ("packet", "packet_counts")}
    assert counts.validate_python(earlier) == changed(LOSSY, packet=None, packet_counts=None)
    stored["packet_counts"]["changed"] = [["IP.ttl", 990], ["IP.dst", 3]]  # without values
    without = tuple(ChangedField(*field[:2]) for field in COUNTS.changed)
    assert counts.validate_python(stored) == changed(LOSSY, packet_counts=replace(COUNTS, changed=without))


def test_exports_name_the_packet_and_have_its_counts():
    (row,) = stream_rows([DESCRIBED])
    names = ("frame_size", "packet", "vlan", "flows", "trial_packet")
    assert [row[name] for name in names] == [64, "vlan", "100", 1000, "vlan"]
    assert [row[name] for name in ("changed_frames", "reordered_in_flows_frames", "lossy_flows")] == [990, 5, 7]
    assert "changed_fields" not in row
    (group,) = group_rows(campaign([DESCRIBED]))
    assert [group[name] for name in ("frame_size", "packet", "flows")] == [64, "vlan", 1000]


def test_a_stream_that_was_not_counted_has_the_packet_of_its_trial_and_unknown_flows():
    described, plain = trial(streams=("s1",), frame_size=FrameSize.of(64, "vlan")), trial(streams=("s1",))
    rows = list(stream_rows([described, plain]))
    assert [(row["packet"], row["vlan"], row["flows"]) for row in rows] == [("vlan", None, None), ("", None, 1)]


def test_a_neighbour_and_a_stream_with_its_own_packet_are_labelled_with_what_they_send():
    own = stream_counts(packet=SentPacket("mine", "7", 3))
    rows = list(
        stream_rows([trial(own, neighbours=(neighbour(stream_counts("n1")),), frame_size=FrameSize.of(64, "gre"))])
    )
    assert [(row["packet"], row["flows"], row["trial_packet"]) for row in rows] == [("mine", 3, "gre"), ("", 1, "gre")]


def test_json_lists_changed_fields_and_groups_that_lost_frames(tmp_path):
    export(campaign([DESCRIBED]), "json", False, tmp_path / "rows.json")
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["changed_fields"] == [
        {"field": "IP.ttl", "frames": 990, "sent": "64", "expected": "63", "arrived": "64"},
        {"field": "IP.dst", "frames": 3, "sent": None, "expected": None, "arrived": None},
    ]
    assert row["lossy_groups"][:2] == [
        {"field": "Dot1Q.vlan", "values": "10", "sent_frames": 500, "lost_frames": 4},
        {"field": "Dot1Q.vlan", "values": "20", "sent_frames": 500, "lost_frames": 6},
    ]
    assert len(row["lossy_groups"]) == 12


def by_size(*received: int | None) -> tuple[SizeCounts, ...]:
    sent = (600, 400)
    return tuple(
        SizeCounts(size, frames, arrived, None, None)
        for size, frames, arrived in zip((64, 128), sent, received, strict=True)
    )


def groups(*lost: int) -> tuple[FieldGroups, ...]:
    return (FieldGroups("IP.src", 4, tuple(FlowGroup(str(n), 250, 250 - frames) for n, frames in enumerate(lost))),)


@pytest.mark.parametrize(
    ("received", "stored", "counts", "found"),
    [
        (990, {}, COUNTS, []),
        (1000, {}, PacketCounts(4, lossy_flows=0, groups=groups()), []),
        # Frames that the capture dropped are missing in their groups, too.
        (990, {"capture_dropped_frames": 10}, PacketCounts(4, lossy_flows=2, groups=groups(4, 6)), []),
        (990, {}, PacketCounts(4, groups=groups(4, 5)), ["groups of flows by IP.src together miss 9 frames"]),
        (990, {}, PacketCounts(4, groups=groups(4, 7)), ["groups of flows by IP.src together miss 11 frames"]),
        (
            990,
            {},
            PacketCounts(4, groups=(*groups(10), *groups())),
            ["groups of flows by IP.src together miss 0 frames"],
        ),
        (990, {}, PacketCounts(4, lossy_flows=0), ["0 flows lost frames, and 10 frames"]),
        (990, {}, PacketCounts(40, lossy_flows=11), ["11 flows lost frames, and 10 frames"]),
        (1000, {}, PacketCounts(4, lossy_flows=1), ["1 flows lost frames, and 0 frames"]),
        (None, {}, PacketCounts(4, groups=groups(4)), []),
        (990, {"by_size": by_size(595, 395)}, None, []),
        (990, {"by_size": by_size(595, 390)}, None, ["frame sizes together miss 15 frames"]),
        (990, {"by_size": by_size(595, None)}, None, []),
    ],
)
def test_the_parts_of_a_stream_add_up_or_make_the_trial_suspicious(received, stored, counts, found):
    texts = list(imbalances(stream_counts(received=received, packet_counts=counts, **stored)))
    assert len(texts) == len(found)
    assert all(part in text for part, text in zip(found, texts, strict=True))


@pytest.mark.parametrize(
    ("lost_of_groups", "verdicts"),
    [
        ((4, 6), []),
        ((4, 5), [Verdict.SUSPICIOUS]),
        ((10, 6), [Verdict.SUSPICIOUS]),
    ],
)
def test_groups_that_do_not_add_up_make_a_trial_suspicious_and_changed_fields_do_not(lost_of_groups, verdicts):
    counts = replace(COUNTS, groups=groups(*lost_of_groups), lossy_flows=None)
    evidence = arriving(990, received=received(990, packet=counts), traffic=stream_traffic(packet=VLAN))
    found = [
        reason
        for reason in judge(evidence, account(evidence), 0.01, max_lateness_s=0.05)
        if "groups of flows" in reason.detail or "IP.ttl" in reason.detail
    ]
    assert [reason.kind.verdict for reason in found] == verdicts
    assert account(evidence).packet == SentPacket("vlan", "100", 1, "Ether/Dot1Q/IP/UDP")


STREAM_PACKET = {"name": "own", "headers": "Ether()/Dot1AD(vlan=7)/IP()/UDP()"}


@pytest.mark.parametrize(
    ("own", "size", "sent"),
    [
        (None, FrameSize.of(64), None),
        (None, FrameSize.of(64, "vlan"), "vlan"),
        (STREAM_PACKET, FrameSize.of(64), "own"),
        (STREAM_PACKET, FrameSize.of(64, "vlan"), "own"),
    ],
)
def test_a_stream_sends_its_own_packet_or_else_that_of_the_trial(own, size, sent):
    fake = FakeSetup.on(stream_paths(topology_sending(own)))
    setup = replace(fake.setup, packets={"vlan": VLAN})
    task = GuestTask(VICTIM, Off(), ("s1",), TrialFrames(size, Load.parse("1000fps")), 1.0)
    spec = replace(trial_spec("raw", "dedicated", ("s1",), 64, "1000fps"), guests=(task,))
    (guest,) = guests_of(setup, spec)
    packet = guest.traffic["s1"].packet
    assert (packet.name if packet else None) == sent
