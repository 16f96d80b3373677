"""Checks of a self-test: the truth beside the results of trials, and the faults reported."""

import subprocess
import time
from dataclasses import replace

import pytest

from netbench.hosts.clock import wait_until
from netbench.linux.proc import read_process
from netbench.model.distributions import ClockOffset
from netbench.model.verdict import Reason, ReasonKind
from netbench.selftest.forwarders import forwarder_cases, judge_forwarder
from netbench.selftest.loopback import Seen, Watch, judge_capture, judge_left_alone, this_process
from netbench.selftest.loss_checks import ForeignFilter, judge_attached, judge_drops, references
from netbench.selftest.recount import judge_recount
from netbench.selftest.time_checks import CpuTimes, judge_cpus, judge_own_delay, parse_stat
from netbench.trial.segments import RING_FULL
from netbench.uut.forwarder import ForwarderDelays
from netbench.uut.reference import DROP_RULE, ReferenceOptions
from tests.unit.capture_files import Frame, cut, ethernet, pcap, stream_frame
from tests.unit.inputs import topology
from tests.unit.points import at, count, loss
from tests.unit.results_factory import spread, stream_counts, trial


def options(**more):
    return ReferenceOptions.model_validate({"forward": "bridge", **more})


SEVEN = options(drop={"k": 7, "n": 100, "at": "egress"})
RANDOM = options(drop={"k": 1, "n": 10, "random": True})
LIMIT = options(limit={"fps": 500, "burst": 10})


def dropped(of, lost, counted=None, **more):
    """A stream of 1,000 frames that lost some at the point of a reference, and the count of the rule there."""
    counters = (count(of.point, DROP_RULE, "dropped", lost if counted is None else counted),)
    lost_at = (loss(f"{of.point} ({DROP_RULE})", lost),)
    return stream_counts(received=1000 - lost, lost_at=lost_at, counters=counters, **more)


@pytest.mark.parametrize(("of", "lost"), [(SEVEN, 70), (RANDOM, 103), (LIMIT, 495)])
def test_the_truth_at_its_place_passes(of, lost):
    check = judge_drops(of, "r", trial(dropped(of, lost), dropped(of, lost, stream="s2")))
    assert (check.passed, check.error, check.detail) == (True, "0 frames", "")
    assert check.truth == f"{2 * lost} lost at {of.point}"


@pytest.mark.parametrize(
    ("of", "counts", "message"),
    [
        (SEVEN, dropped(SEVEN, 71), "71 at egress NIC"),
        (
            SEVEN,
            replace(dropped(SEVEN, 70), lost_at=(loss("bridge", 70),)),
            "70 at bridge; expected: all at egress NIC",
        ),
        (RANDOM, dropped(RANDOM, 103, counted=102), "103 at bridge"),
        (RANDOM, dropped(RANDOM, 300), "of 1,000 frames 100 ± 47 should have been dropped"),
        (LIMIT, dropped(LIMIT, 480), "520 frames passed a limit that lets at most 510 pass in 1.000 s"),
        (LIMIT, replace(dropped(LIMIT, 495), counters=()), "could not be read"),
    ],
)
def test_another_number_or_place_fails_and_is_reported(of, counts, message):
    check = judge_drops(of, "r", trial(counts))
    assert check.passed is False
    assert message in check.detail


def test_errors_of_streams_do_not_cancel_out_and_a_trial_that_is_not_valid_fails_though_its_numbers_are_right():
    check = judge_drops(SEVEN, "r", trial(dropped(SEVEN, 69), dropped(SEVEN, 71, stream="s2")))
    assert (check.passed, check.error) == (False, "2 frames")
    reasons = (Reason(ReasonKind.CAPTURE_DROPPED, "s1", "tcpdump dropped 3 frames"),)
    check = judge_drops(SEVEN, "r", trial(dropped(SEVEN, 70), reasons=reasons))
    assert (check.passed, "tcpdump dropped 3 frames" in check.detail) == (False, True)


def test_references_have_names_of_their_own_and_every_place():
    found = references(1000)
    assert len({reference.name for reference in found}) == len(found)
    assert {reference.options.truth.at for reference in found} == {"ingress", "forward", "egress"}


def misbehaved(name, *kinds, held=None, **counts):
    (case,) = (case for case in forwarder_cases() if case.name == name)
    stream = stream_counts(**counts)
    result = trial(stream, reasons=tuple(Reason(kind, "s1", kind.value) for kind in kinds))
    return judge_forwarder(case, result, stream, held)


HELD = ForwarderDelays(2_000_000, 2_004_000, 2_100_000)


def test_known_impairment_passes_with_the_reasons_it_gives():
    assert misbehaved("duplicates-every-10th", ReasonKind.DUPLICATE_FRAMES, duplicate_frames=100).passed
    assert misbehaved("adds-foreign-frames", ReasonKind.FOREIGN_FRAMES, foreign_frames=10).passed
    assert misbehaved("reorders-every-50th-by-7", reordered_frames=19, reordering_extent_max_frames=7).passed
    assert misbehaved("delays-by-2ms", held=HELD, delay=spread(2_001_000, 2_010_000, 2_200_000)).passed


def test_other_impairment_than_the_known_one_fails():
    silent = misbehaved("duplicates-every-10th", duplicate_frames=100)
    assert (silent.passed, silent.detail) == (False, "no word of duplicate-frames")
    assert misbehaved("adds-foreign-frames", ReasonKind.FOREIGN_FRAMES, foreign_frames=11).error == "1 frames"
    assert not misbehaved("reorders-every-50th-by-7", reordered_frames=19, reordering_extent_max_frames=6).passed
    lost = misbehaved("adds-foreign-frames", ReasonKind.FOREIGN_FRAMES, foreign_frames=10, received=999)
    assert "nothing was lost, but the tester counted 1 lost" in lost.detail


@pytest.mark.parametrize(
    ("counts", "passed", "message"),
    [
        ({}, True, ""),
        ({"received": 19}, False, "disagree"),
        ({"duplicate_frames": 2}, False, "disagree"),
        ({"reordered_frames": 0}, False, "disagree"),
        ({"reordered_frames": None, "duplicate_frames": None}, True, ""),
        ({"stream": "s2"}, None, "skipped: this kind of sink stores no captures"),
    ],
)
def test_a_capture_is_counted_again_by_dpkt(tmp_path, counts, passed, message):
    arrived = [*range(10), 11, 12, 10, 10, *range(13, 20)]  # of these, 10 is late, and arrives twice
    others = [stream_frame(3, src="198.18.0.9"), Frame(ethernet(b"", ether_type=0x88CC)), Frame(b"\0" * 8)]
    frames = [cut(stream_frame(number, size=1518), 64) for number in arrived]
    (tmp_path / "trial-000001-s1.pcap").write_bytes(pcap([*frames, *others], snap=64))
    (tmp_path / "trial-000001-a-s1.pcap").write_bytes(pcap([]))
    counted = {"received": 20, "duplicate_frames": 1, "reordered_frames": 1, **counts}
    check = judge_recount(trial(stream_counts(sent=20, **counted)), tmp_path)
    assert (check.passed, message in check.detail) == (passed, True)
    assert check.truth == ("" if passed is None else "20 received, 1 duplicates, 1 reordered")


def test_without_a_readable_capture_the_recount_fails(tmp_path):
    (tmp_path / "trial-000001-s1.pcap").write_bytes(b"")
    assert "dpkt cannot read the capture" in judge_recount(trial(stream_counts()), tmp_path).detail
    reasons = (Reason(ReasonKind.CAPTURE_FAILED, "s1", "tcpdump died"),)
    check = judge_recount(trial(stream_counts(), reasons=reasons), tmp_path)
    assert (check.passed, "tcpdump died" in check.detail) == (False, True)


@pytest.mark.parametrize("median_ns", [1_990_000, 2_600_000])
def test_a_delay_below_or_far_above_the_time_held_fails(median_ns):
    check = misbehaved("delays-by-2ms", held=HELD, delay=spread(1_900_000, median_ns, 3_000_000))
    assert (check.passed, check.truth) == (False, "held 2,004 µs")


def test_a_delay_that_is_refused_fails_with_the_reason():
    check = misbehaved("delays-by-2ms", held=HELD, delay_refused="the clock was set")
    assert (check.passed, check.detail) == (False, "the clock was set")


@pytest.mark.parametrize(
    ("counts", "passed", "message"),
    [
        ({"delay": spread(1, 9_000, 90_000), "clock_offset": ClockOffset(-2_000, 1_000)}, True, ""),
        (
            {"clock_offset": ClockOffset(299_000, 301_000), "delay_refused": "about +300 µs later"},
            False,
            "about +300 µs later",
        ),
        ({"clock_offset": ClockOffset(-1, 1), "delay_refused": "no common clock"}, None, "skipped: no common clock"),
        ({"delay": spread(1, 9_000, 90_000)}, None, "skipped: the sink does not report which clock it uses"),
    ],
)
def test_the_testers_own_delay_and_its_clocks(counts, passed, message):
    check = judge_own_delay(trial(stream_counts(**counts)))
    assert (check.passed, check.detail) == (passed, message)
    assert check.measured == {True: "median 9 µs, clocks ± 2.0 µs", False: "another", None: ""}[passed]


def burst(drain_s, **counts):
    return replace(trial(stream_counts(**counts)), steps_s={"drain": drain_s})


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (burst(1.6), ""),
        (burst(1.7), "1.60 s more to read what arrived in 1.00 s"),
        (burst(0.1, received=999, lost_at=()), ""),
    ],
)
def test_sinks_see_everything_and_in_time(after, message):
    check = judge_capture("tcpdump", burst(0.1), after)
    assert check.passed is (not message and after.streams[0].received.frames == 1000)
    assert message in check.detail


@pytest.mark.parametrize(("by_ring", "passed"), [(300, True), (299, False)])
def test_what_a_ring_had_no_room_for_no_sink_had_to_see(by_ring, passed):
    why = Reason(ReasonKind.TESTER_DROPPED, "s1", "lost at the sink NIC")
    after = burst(0.1, received=700, lost_at=(loss(f"sink NIC ({RING_FULL})", by_ring),))
    check = judge_capture("tcpdump", burst(0.1), replace(after, reasons=(why,)))
    assert check.passed is passed
    assert check.truth == f"1,000 sent, {by_ring} of them without room in the rings before"


USUAL = Seen("S", 0, "0::/user")


def test_a_tcpdump_that_is_left_alone_passes():
    assert judge_left_alone("tcpdump", [USUAL, Seen("R", -5, "0::/user")], USUAL).passed
    assert judge_left_alone("tcpdump", [], USUAL).passed is False, "not looked at is not left alone"


def test_a_program_is_looked_at_until_it_ends():
    """One that is ending may be out of its control group already."""
    watch = Watch("sleep")
    with subprocess.Popen(["sleep", "60"]) as runs:
        with watch.watching():
            assert wait_until(lambda: len(watch.seen) > 2, 10)
        runs.kill()
        assert wait_until(lambda: read_process(runs.pid).state == "Z", 10)
        gone = Watch("sleep")
        with gone.watching():
            time.sleep(0.05)
    assert {process.cgroup for process in watch.seen} == {this_process().cgroup}
    assert gone.seen == []


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (Seen("T", 0, "0::/user"), "stopped 50% of the time"),
        (Seen("t", 0, "0::/user"), "stopped 50% of the time"),
        (Seen("R", 19, "0::/user"), "runs at nice 19, and netbench at nice 0"),
        (Seen("S", 0, "0::/limited"), "another control group"),
    ],
)
def test_who_holds_tcpdump_back_is_reported(seen, message):
    check = judge_left_alone("tcpdump", [USUAL, seen], USUAL)
    assert check.passed is False
    assert message in check.detail


@pytest.mark.parametrize(
    ("others_s", "stolen_s", "message"),
    [(3.9, 0.0, ""), (16.0, 0.0, "other processes used 1.6 of 2 CPUs"), (0.0, 5.0, "gave 0.5 of 2 CPUs to others")],
)
def test_cpus_that_others_took_are_reported(others_s, stolen_s, message):
    before = CpuTimes(100.0, 50.0, 1.0, 2.0)
    after = CpuTimes(110.0, 50.0 + 6.0 + others_s, 1.0 + stolen_s, 2.0 + 6.0)
    check = judge_cpus(before, after, 2)
    assert check.passed is (not message)
    assert message in check.detail


def test_kernel_threads_are_no_processes():
    assert parse_stat("cpu  100 20 300 4000 50 6 70 80 0 0\ncpu0 1 2 3\n", 120) == (3.0, 0.8)


def test_what_stands_in_the_way_is_named_once_with_its_place():
    rule = ForeignFilter("s1", at("sink NIC"), "nft netdev evil c rule 2")
    bridge = ForeignFilter("", at("bridge"), "nft bridge filter forward policy")
    check = judge_attached([rule, bridge, rule], topology())
    assert (check.passed, check.measured) == (False, "2 found")
    assert check.detail.startswith(
        "nft bridge filter forward policy at the bridge; nft netdev evil c rule 2 at the sink NIC sink/rx1"
    )
    assert judge_attached([], topology()).passed
