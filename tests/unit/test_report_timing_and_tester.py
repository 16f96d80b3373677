"""Delay, reordering and the tester itself in the report."""

from dataclasses import asdict, replace
from typing import Any

from netbench.model.distributions import ClockOffset, LossRuns, Spread
from netbench.model.selftest_record import SelftestRecord
from netbench.model.tester import Disturbance, HostIdentity, Identities, Identity, StreamEnds, ThreadDelay
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.selftest_page import selftest_page
from netbench.statistics.delay_and_order import (
    FrameOrder,
    delay_of,
    greatest_time,
    least_time,
    mean_time,
    order_of,
    refusals,
)
from netbench.statistics.groups import group_trials
from tests.unit.report_page import Page, page_of
from tests.unit.results_factory import MANIFEST, campaign, changed, spread, stream_counts, trial

INVALID = (Reason(ReasonKind.LINK_DOWN, "", "down"),)
DUPLICATES = (Reason(ReasonKind.DUPLICATE_FRAMES, "s1", "2 frames"),)
LIMITED = (Reason(ReasonKind.TESTER_LIMITED, "s1", "above the ceiling"),)
RECORD: dict[str, Any] = {
    "passed": True,
    "when_ns": 1_741_072_500_000_000_000,  # two hours before MANIFEST's campaign
    "topology": "netns-3",
    "generator": "afpacket",
    "fingerprint": "ab12",
    "checks": [
        {"name": "drop", "uut": "7-of-100", "truth": "70", "measured": "70", "error": "0", "passed": True},
        {"name": "delay", "passed": None, "detail": "no netem here"},
    ],
    "ceilings": [{"sources": 1, "frame_size": 64, "fps": 800_000.0}],
}
WRONG = {"name": "<sink>", "truth": "0", "measured": "9", "error": "9", "passed": False, "detail": "nft drops"}


def test_percentiles_of_valid_trials_are_averaged_and_extremes_kept() -> None:
    trials = [
        trial(
            stream_counts("s1", delay=spread(10_000, 20_000, 50_000)),
            stream_counts("s2", delay=spread(12_000, 40_000, 90_000)),
            repetition=1,
        ),
        trial(
            stream_counts("s1", delay=spread(11_000, 50_000, 60_000)),
            stream_counts("s2", delay=spread(11_000, 50_000, 60_000)),
            repetition=2,
        ),
        trial(stream_counts("s1", delay=spread(1, 2, 10**9)), stream_counts("s2"), repetition=3, reasons=INVALID),
    ]
    (group,) = group_trials(campaign(trials))
    median = mean_time(group, lambda counts: counts.received.delay, lambda delay: delay.median_ns)
    assert median is not None
    assert (median.mean, median.n) == (40_000, 2)
    assert least_time(group, lambda counts: counts.received.delay, lambda delay: delay.smallest_ns) == 10_000
    assert greatest_time(group, lambda counts: counts.received.delay, lambda delay: delay.largest_ns) == 90_000
    text = page_of(campaign(trials)).text
    assert "raw 1000fps 1.3 10.0 40.0 40.0" in text


def test_the_bound_of_the_clocks_stands_beside_the_delay() -> None:
    known = stream_counts("s1", delay=spread(10_000, 20_000, 50_000), clock_offset=ClockOffset(-1_000, 2_500))
    worse = changed(known, stream="s2", clock_offset=ClockOffset(-7_300, 1_000))
    assert "Clocks ± PDV" in (text := page_of(campaign([trial(known, worse)])).text)
    assert "50.0 7.3" in text
    unknown = changed(worse, clock_offset=None)
    assert "50.0 –" in page_of(campaign([trial(known, unknown)])).text


def test_a_time_that_is_asked_for_again_is_not_computed_again() -> None:
    (group,) = group_trials(campaign([trial(stream_counts(delay=spread(1, 2, 3)), repetition=n) for n in (1, 2)]))
    read = []

    def median(delay: Spread) -> int | None:
        read.append(delay)
        return delay.median_ns

    found = [mean_time(group, delay_of, median) for _ in range(2)]
    assert (found[0], len(read)) == (found[1], 2)


def test_a_stream_without_delay_makes_that_of_its_trial_unknown() -> None:
    one = trial(stream_counts("s1", delay=spread(1, 2, 3)), stream_counts("s2"))
    (group,) = group_trials(campaign([one]))
    assert mean_time(group, lambda counts: counts.received.delay, lambda delay: delay.median_ns) is None
    page = page_of(campaign([one]))
    assert "raw 1000fps 1.3 0.00100 – –" in page.text


def test_refused_delays_say_why_and_of_how_many_streams() -> None:
    why = "source and sink are on different machines"
    trials = [trial(stream_counts(delay_refused=why), repetition=number) for number in (1, 2)]
    assert refusals(trials) == {why: 2}
    page = page_of(campaign(trials))
    assert f"No delay of 2 streams of trials: {why}." in page.text
    assert "figure-delay-view-0" not in page.ids


def test_order_is_summed_over_trials_and_keeps_the_extremes() -> None:
    trials = [
        trial(
            stream_counts(
                received=900,
                reordered_frames=3,
                reordering_extent_max_frames=7,
                loss_runs=41,
                longest_loss_run_frames=40,
                loss_run_lengths=(LossRuns(1, 40), LossRuns(32, 1)),
            ),
            repetition=1,
        ),
        trial(
            stream_counts(
                received=900,
                duplicate_frames=2,
                loss_runs=25,
                longest_loss_run_frames=5,
                loss_run_lengths=(LossRuns(4, 25),),
            ),
            repetition=2,
            reasons=DUPLICATES,
        ),
        trial(stream_counts(reordered_frames=500), repetition=3, reasons=INVALID),
    ]
    assert order_of(trials[:2]) == FrameOrder(1800, 2, 3, 3 / 1800, 7, 66, 40, ((1, 40), (4, 25), (32, 1)))
    assert "raw 64 1,800 2 3 0.2 % 7 66 40 1: 40 · 4–7: 25 · 32–63: 1" in page_of(campaign(trials)).text
    assert order_of([trial(stream_counts(duplicate_frames=None))]) is None


def test_the_page_reports_what_sent_and_where_and_what_it_was_after_a_change() -> None:
    def tester(since: str, kernel: str) -> dict[str, object]:
        ends = StreamEnds(Identity("pktgen", kernel, {"burst": "1"}, 1, (0,)), Identity("tcpdump", "4.99.3"))
        hosts = {"source": HostIdentity(kernel, "lab", None, "none", "none", {"emulated": "no /dev/kvm"})}
        return asdict(Identities(since, hosts, {"s1": ends}))

    one, other = tester("2026-01-01T00:00:00+00:00", "Linux 6.1"), tester("2026-02-02T00:00:00+00:00", "Linux 6.12")
    text = page_of(campaign([trial(stream_counts())], manifest={**MANIFEST, "tester": [one]})).text
    assert "Sources, sinks and hosts Stream End" in text
    assert "s1 source pktgen Linux 6.1; burst=1; 1 thread; CPU 0 s1 sink tcpdump 4.99.3" in text
    assert "source Linux 6.1 VM lab (CPU emulated: no /dev/kvm), on this machine (bare metal)" in text
    text = page_of(campaign([trial(stream_counts())], manifest={**MANIFEST, "tester": [one, other]})).text
    assert "Sources, sinks and hosts from 2026-02-02T00:00:00+00:00 on Stream End" in text
    page_of(campaign([trial(stream_counts())], manifest={**MANIFEST, "tester": [{"damaged": 1}]}))


def test_an_order_that_is_not_known_is_not_in_order() -> None:
    why = "the source sends by several threads"
    refused = stream_counts("s2", received=500, reordered_frames=None, order_refused=why)
    order = order_of([trial(stream_counts("s1", received=900, reordered_frames=3), refused)])
    assert order is not None
    assert (order.received, order.reordered, order.reordered_ratio) == (1400, 3, 3 / 900)
    page = page_of(campaign([trial(refused)]))
    assert f"No order of 1 stream of trials: {why}." in page.text
    assert "raw 64 500 0 – – –" in page.text


def test_how_far_the_tester_was_held_up_is_summed_up_for_each_uut() -> None:
    held_up = [
        replace(
            trial(stream_counts()),
            disturbance=Disturbance(1.0, (ThreadDelay("source", "xdp", 0.0, stalled_s, "s1"),), steal_s=0.25),
        )
        for stalled_s in (0.01, 0.02, 0.5)
    ]
    page = page_of(campaign(held_up))
    assert "Stalls of the tester" in page.text
    assert "raw 3 2.000 % 50.000 % 0.75 0.00" in page.text


def test_the_head_of_the_page_reports_whether_the_tester_was_tested() -> None:
    results = campaign([trial(stream_counts(), reasons=LIMITED)], manifest={**MANIFEST, "selftest": RECORD})
    page = page_of(results)
    assert "Self-test passed 2 hours before this campaign (2025-03-04 07:15:00 UTC)." in page.text
    assert "Passed: 1 check; the tester can be trusted here. 1 check could not be made." in page.text
    assert "drop 7-of-100 70 70 0 pass" in page.text
    assert "delay skipped no netem here" in page.text
    assert "marked tester-limited. In this campaign: 1 trial." in page.text
    assert "1 64 800.0 537.6" in page.text


def test_a_failed_selftest_colours_the_verdict_and_lists_failed_checks_first() -> None:
    record = {**RECORD, "passed": False, "checks": [*RECORD["checks"], WRONG], "ceilings": []}
    page = Page(source := selftest_page(SelftestRecord.model_validate(record)))
    assert "FAILED: 1 of 2 checks; do not trust this tester here." in page.text
    assert "<sink> 0 9 9 FAIL nft drops drop 7-of-100" in page.text
    assert "The tester's own ceiling is unknown" in page.text
    assert 'class="verdict invalid"' in source
    campaign_page = page_of(campaign([trial(stream_counts())], manifest={**MANIFEST, "selftest": record}))
    assert "Self-test FAILED 2 hours before" in campaign_page.text


def test_a_selftest_that_could_check_nothing_has_not_passed() -> None:
    nothing = SelftestRecord.model_validate({**RECORD, "passed": False, "checks": [RECORD["checks"][1]]})
    assert "FAILED: no check could be made here. 1 check could not be made." in Page(selftest_page(nothing)).text


def test_a_damaged_record_is_unknown_to_a_report() -> None:
    page = page_of(campaign([trial(stream_counts())], manifest={**MANIFEST, "selftest": 3}))
    assert "accuracy not verified" in page.text
