"""The tester's own ceilings: interpolation between measured points, and warnings about higher loads."""

from dataclasses import replace

import pytest

from netbench.errors import MissingError
from netbench.model.frame_size import FrameSize
from netbench.model.profile import GeneratorSpec, SinkSpec
from netbench.model.selftest_record import Ceiling, Ceilings, SelftestCheck, SelftestRecord
from netbench.model.stream_paths import stream_paths
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.plan.schedule import CampaignPlan
from netbench.plan.warnings import selftest_warnings
from netbench.results.selftests import fingerprint, keep_record, latest_record
from netbench.selftest.loopback import CeilingSearch, loopback
from netbench.trial.segments import RING_FULL
from netbench.trial.verdict_rules import beyond_ceiling
from tests.unit.fakes import fake_ports
from tests.unit.inputs import profile, topology, topology_in_vm
from tests.unit.points import loss
from tests.unit.results_factory import changed, stream_counts, trial

SIZE = FrameSize.of(64)
CEILINGS = Ceilings(
    [
        Ceiling(1, 64, 1_000_000),
        Ceiling(1, 1518, 250_000),
        Ceiling(3, 64, 400_000),
        Ceiling(3, 1518, 100_000),
    ]
)
RECORD = SelftestRecord(
    passed=True,
    when_ns=1,
    topology="lab",
    generator="afpacket",
    fingerprint="0123456789abcdef",
    checks=(SelftestCheck(name="exact drop", passed=True), SelftestCheck(name="pace", passed=True)),
    ceilings=(Ceiling(sources=1, frame_size=64, fps=1e6),),
)


@pytest.mark.parametrize(
    ("sources", "size", "fps"),
    [
        (1, 64, 1_000_000),
        (1, 791, 400_000),  # 1 µs and 4 µs a frame: 2.5 µs half-way
        (2, 64, 700_000),
        (3, 1518, 100_000),
        (9, 2000, 100_000),  # beyond what was measured: the nearest
    ],
)
def test_a_ceiling_between_those_measured(sources, size, fps):
    assert CEILINGS.fps(sources, FrameSize.of(size)) == pytest.approx(fps)


def test_a_load_above_the_ceiling_is_reported_with_both_numbers_and_what_to_do():
    counts = replace(stream_counts(), intended_fps=1_200_000.0)
    (reason,) = beyond_ceiling(counts, 1, SIZE, CEILINGS)
    assert (reason.kind, reason.kind.verdict) == (ReasonKind.TESTER_LIMITED, Verdict.SUSPICIOUS)
    assert "1,200,000 frames/s is above the tester's ceiling of 1,000,000 frames/s" in reason.detail
    assert "request a lower load" in reason.detail


def test_what_a_ring_had_no_room_for_is_no_load_of_the_sink():
    counts = replace(stream_counts(), intended_fps=1_200_000.0)
    reached = changed(counts, sent_frames=1_200_000, received_frames=900_000)
    assert beyond_ceiling(reached, 1, SIZE, CEILINGS)
    full = loss(f"ingress NIC ({RING_FULL})", 300_000)
    assert beyond_ceiling(replace(reached, lost_at=(full,)), 1, SIZE, CEILINGS) == [], "the sink had to take no more"
    short = changed(reached, sent_frames=1_100_000, lost_at=(full,))
    assert beyond_ceiling(short, 1, SIZE, CEILINGS), "the source did not reach what was intended"


@pytest.mark.parametrize(("offered", "output"), [(900_000, False), (900_001, True)])
def test_what_a_saturated_source_offered_must_stay_clear_of_the_ceiling(offered, output):
    counts = stream_counts(sent=offered, intended_fps=4_000_000.0)
    found = beyond_ceiling(counts, 1, SIZE, CEILINGS, saturated=True)
    assert ["near the tester's ceiling of 1,000,000 frames/s" in reason.detail for reason in found] == [True] * output
    assert beyond_ceiling(replace(counts, intended_fps=1_000_000.0), 1, SIZE, CEILINGS) == []
    assert beyond_ceiling(replace(counts, intended_fps=500_000.0), 3, SIZE, CEILINGS), "three sources manage less each"
    assert Ceilings().fps(1, SIZE) is None
    assert beyond_ceiling(counts, 1, SIZE, Ceilings()) == [], "nothing was measured, so nothing is reported"


def test_the_latest_record_of_a_testbed_is_kept_and_a_damaged_one_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("NETBENCH_STATE", str(tmp_path))
    assert latest_record(RECORD.fingerprint) is None
    keep_record(RECORD)
    later = RECORD.model_copy(update={"passed": False})
    path = keep_record(later)
    assert latest_record(RECORD.fingerprint) == later
    path.write_text(path.read_text()[:-30])
    assert latest_record(RECORD.fingerprint) is None


def test_a_testbed_is_what_its_tester_consists_of():
    auto, paced = GeneratorSpec(kind="auto"), GeneratorSpec.model_validate({"kind": "pktgen", "pacing": "exact"})
    lab = topology()
    same = topology(name="other", uuts=[{"name": "x", "kind": "external"}])
    tcpdump, other = SinkSpec(), SinkSpec(kind="other")
    own = fingerprint(lab, auto, "afpacket", "napi", tcpdump)
    assert own == fingerprint(same, GeneratorSpec(), "afpacket", "napi", tcpdump), "whatever chose the sources"
    others = [
        (topology(2), auto, "afpacket", "napi", tcpdump),
        (topology_in_vm(), auto, "afpacket", "napi", tcpdump),
        (lab, auto, "pktgen", "napi", tcpdump),
        (lab, paced, "pktgen", "napi", tcpdump),
        (lab, auto, "afpacket", "napi", other),
        (lab, auto, "afpacket", "inline", tcpdump),
    ]
    assert len({own, *(fingerprint(*arguments) for arguments in others)}) == 7


def test_what_is_not_known_of_the_tester_or_speaks_against_it_is_a_warning():
    assert selftest_warnings(RECORD, "lab", profile()) == []
    (unknown,) = selftest_warnings(None, "my topology.yaml", profile())
    assert unknown.kind is WarningKind.CEILING_UNKNOWN
    assert unknown.text.endswith(" with: netbench selftest 'my topology.yaml' --generator afpacket")
    (unknown,) = selftest_warnings(None, "lab", profile(generator={"kind": "afpacket", "threads": 2}))
    assert """netbench selftest lab --generator '{"kind": "afpacket", "threads": 2}'""" in unknown.text
    (unknown,) = selftest_warnings(None, "lab", profile(sink="other"))
    assert "netbench selftest lab --generator afpacket --sink other" in unknown.text
    wrong = RECORD.model_copy(update={"passed": False, "checks": (SelftestCheck(name="exact drop", passed=False),)})
    (failed,) = selftest_warnings(wrong, "lab", profile())
    assert failed.kind is WarningKind.SELFTEST_FAILED
    assert "exact drop" in failed.text


def with_limit(limit_fps, offered_fps):
    """Return a testbed without a UUT that loses frames above `limit_fps` and offers at most `offered_fps`."""
    tried = []

    def measure(load):
        fps = min(load.value or offered_fps, offered_fps)
        tried.append(load.value)
        lost = max(0, round(fps - limit_fps))
        counts = stream_counts(sent=round(fps), received=round(fps) - lost, duration_s=1.0)
        return trial(replace(counts, lost_at=(loss("sink NIC", lost),) if lost else ()))

    return measure, tried


def find_ceiling(measure):
    lab, wanted = topology(), profile()
    search = CeilingSearch(CampaignPlan(lab, wanted, ("bridge",), wanted.scenarios), 1)
    results: dict[str, TrialResult] = {}
    while (spec := search.next(results)) is not None:
        results[spec.key] = replace(measure(spec.load), spec=spec)
    return search.found(results)


def test_the_ceiling_is_the_first_rate_without_loss_from_the_highest_on():
    measure, tried = with_limit(limit_fps=650_000, offered_fps=1_000_000)
    assert find_ceiling(measure) == (608_000, "")
    assert tried == [0, 950_000, 760_000, 608_000]
    measure, _ = with_limit(limit_fps=0, offered_fps=1_000_000)
    fps, why = find_ceiling(measure)
    assert fps is None
    assert "frames were lost" in why


def test_what_a_ring_lets_pass_is_where_the_search_for_the_ceiling_begins():
    tried = []

    def measure(load):
        tried.append(load.value)
        full = (loss(f"sink NIC ({RING_FULL})", 6_000_000),) if load.kind is LoadKind.MAX else ()
        counts = stream_counts(sent=8_000_000 if full else 1_900_000, duration_s=1.0)
        return trial(changed(counts, received_frames=2_000_000 if full else 1_900_000, lost_at=full))

    assert find_ceiling(measure) == (1_900_000, "")
    assert tried == [0, 1_900_000]


def test_a_loopback_joins_each_source_to_its_sink_with_the_rate_of_its_link():
    joined = loopback(topology(2), cabled=False)
    assert [link.ends for link in joined.links] == [("source/tx1", "sink/rx1"), ("source/tx2", "sink/rx2")]
    assert {(link.rate, link.receive) for link in joined.links} == {(1e9, "inline")}
    assert list(joined.hosts) == ["source", "sink"]
    assert [uut.kind for uut in joined.uuts] == ["external"]
    of_rings = topology(links=[{**link.model_dump(mode="json"), "receive": "napi"} for link in topology().links])
    assert [(path.receive, path.receiver[0]) for path in stream_paths(loopback(of_rings, cabled=False))] == [
        ("napi", "sink")
    ]
    assert list(loopback(topology_in_vm(), cabled=False).hosts) == ["lab", "source", "sink"]


def test_ports_are_joined_only_when_the_user_reports_that_cables_are():
    with pytest.raises(MissingError, match="--cabled"):
        loopback(fake_ports("local"), cabled=False)
    assert [link.ends for link in loopback(fake_ports("local"), cabled=True).links] == [("t/tx",), ("t/rx",)]
