import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.intervals import ratio_of_means
from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, Maximum
from netbench.model.frame_size import FrameSize
from netbench.model.trial import TrialResult
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.report import formats
from netbench.report.page import write_report
from netbench.report.published import schlosser2011
from netbench.statistics.intervals import Interval
from tests.unit.points import count
from tests.unit.report_page import OF_SHARED_HOSTS, Page, page_of, printed, report_page
from tests.unit.results_factory import MANIFEST, campaign, comparison, guests, neighbour, stream_counts, trial

SUSPICIOUS = (Reason(ReasonKind.FOREIGN_FRAMES, "s1", "3 frames of others"),)
INVALID = (Reason(ReasonKind.LINK_DOWN, "", "egress NIC was down"),)
NOTE = "CPU emulated – these numbers describe the emulator, not the VMM"


def test_the_verdict_is_readable_at_a_glance() -> None:
    trials = [
        trial(stream_counts(), repetition=1),
        trial(stream_counts(), repetition=2),
        trial(stream_counts(), repetition=3, reasons=SUSPICIOUS),
        trial(stream_counts(), repetition=4, reasons=INVALID),
    ]
    warning = CampaignWarning(WarningKind.FEW_REPETITIONS, "Only 2 repetitions: the intervals are wide.")
    page = page_of(campaign(trials, planned=6, warnings=(warning,)))
    assert "2 of 4 trials valid, 1 suspicious, 1 invalid; 2 of 6 planned missing" in page.text
    assert {"#verdicts", "#warnings"} <= set(page.links)
    for text in ("foreign-frames – 1 time", "3 frames of others", "link-down – 1 time", "egress NIC was down"):
        assert text in page.text
    assert "few-repetitions : Only 2 repetitions: the intervals are wide." in page.text


def test_what_is_saturated_is_valid_and_marked_and_what_is_skipped_is_not_missing() -> None:
    held = (Reason(ReasonKind.SATURATED, "s1", "backpressure by its link for 0.600 s of 1.000 s"),)
    trials = [
        trial(stream_counts()),
        trial(stream_counts(sent=1500, received=1500), load="2000fps", reasons=held),
        trial(stream_counts(sent=1480, received=1480), load="2000fps", reasons=held, repetition=2),
    ]
    ended = EndedSweep("raw", "dedicated", ("s1",), FrameSize.of(64), ("2000fps",), ("4000fps", "max"), 4)
    results = replace(campaign(trials, planned=7), ended_sweeps=(ended,))
    page = page_of(results)
    assert "3 of 3 trials valid, 0 suspicious, 0 invalid; 0 of 7 planned missing; 4 skipped, saturated" in page.text
    assert "2 valid trials saturated" in page.text
    assert "netbench resume" not in page.text
    assert "saturated – 2 times" in page.text
    assert "raw dedicated 1 64 B 2000fps 4000fps, max 4" in page.text
    text = printed(results)
    assert "2 saturated" in text
    assert "saturated, which counts for the load that was offered: 2 trials" in text
    assert "skipped above saturated loads (stop_when_saturated): 4 trials of 1 sweep" in text


def test_every_link_leads_to_a_place_on_the_page_and_nothing_is_loaded() -> None:
    page = page_of(comparison(sizes=(64,), repetitions=1))
    assert not ({"uuts", "cpu", "counters"} | OF_SHARED_HOSTS) & set(page.ids)  # there are no guests
    assert "(emulated)" not in page.text
    elsewhere = {link for link in page.links if not link.startswith("#")}
    assert elsewhere == {f"https://doi.org/{schlosser2011().doi}"}
    assert {link.removeprefix("#") for link in page.links} - elsewhere <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.loaded == ["data:,"]


def test_sections_of_what_a_campaign_does_not_have_are_left_out() -> None:
    plain = page_of(campaign([trial(stream_counts())]))
    assert not {"delay", "rfc2544"} & set(plain.ids)
    sections = ("Discarded attempts Invalid", "generator's clock", "Stability", "Stalls of the tester", "Highest loads")
    assert [section for section in sections if section in plain.text] == []
    assert "accuracy not verified here, run netbench selftest netns-3" in plain.text


def test_a_long_list_of_reasons_starts_folded_and_a_short_one_open() -> None:
    many = [trial(stream_counts(), repetition=number, reasons=SUSPICIOUS) for number in range(1, 14)]
    assert "<details><summary>" in report_page(campaign(many))
    assert '<details open="open"><summary>' in report_page(campaign(many[:2]))


def test_text_of_users_is_escaped_everywhere() -> None:
    name = '</script><img src=x onerror="alert(1)">'
    manifest = {**MANIFEST, "command": ["netbench", name], "before": {name: name}, "after": {name: "other"}}
    reasons = (Reason(ReasonKind.LINK_DOWN, name, name),)
    trials = [
        trial(stream_counts(name), uut=name, reasons=reasons),
        trial(stream_counts(name), uut=name, repetition=2),
        trial(stream_counts(name), uut=name, scenario=name, neighbours=(neighbour(stream_counts("n1"), name=name),)),
    ]
    warnings = (CampaignWarning(WarningKind.SHARED_CPUS, name),)
    maxima = (Maximum(name, FrameSize.of(64), 1.0, name, 1),)
    source = report_page(campaign(trials, uuts=(name,), manifest=manifest, warnings=warnings, maxima=maxima))
    assert "<img" not in source
    page = Page(source)
    assert page.text.count(name) >= 8


def test_an_unfinished_campaign_without_trials_reports_so() -> None:
    manifest = {**MANIFEST, "finished": None, "after": None}
    page = page_of(campaign(planned=12, manifest=manifest))
    assert "No trial was measured yet; 12 are planned" in page.text
    assert "not finished" in page.text
    assert "throughput" not in page.ids
    assert "Stability" not in page.text


def test_a_campaign_of_invalid_trials_shows_them_and_averages_nothing() -> None:
    bad = trial(stream_counts(sent=1000, received=900), reasons=INVALID)
    results = campaign([bad, trial(streams=("s1",), repetition=2, reasons=INVALID)])
    assert "0 of 2 trials valid, 0 suspicious, 2 invalid" in page_of(results).text


def test_attempts_thrown_away_are_reported_and_what_they_leave_is_no_maximum() -> None:
    luckily = replace(trial(stream_counts()), attempt=3, thrown_away=(INVALID, INVALID))
    results = campaign([luckily, trial(stream_counts(), repetition=2)])
    text = page_of(results).text
    assert "2 invalid attempts discarded , and the trials repeated." in text
    assert "Discarded attempts Invalid attempts" in text
    assert "raw 64 B 1000fps 1 1 2 all egress NIC was down" in text
    assert "at the first attempt; excluded: 1 measurement with valid trials." in text


def test_a_manifest_that_knows_nothing_still_gives_a_page() -> None:
    text = page_of(campaign([trial(stream_counts())], manifest={})).text
    assert "1 of 1 trial valid" in text
    assert "seed unknown" in text


def test_differences_of_the_environment_are_named() -> None:
    source = report_page(campaign([trial(stream_counts())]))
    assert "2 settings changed during the campaign: cpu.governor, sysctls.net.core.rmem_max." in source
    assert len(re.findall(r'<tr class="changed">', source)) == 2
    assert source.count("6.1.0-31-amd64") == 1, "what is the same before and after"
    unchanged = page_of(campaign(manifest={**MANIFEST, "after": MANIFEST["before"]})).text
    assert "No setting changed during the campaign." in unchanged
    unfinished = page_of(campaign(manifest={**MANIFEST, "after": None})).text
    assert "The settings after the campaign are not yet known." in unfinished


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.0, "0 %"),
        (0.07, "7.000 %"),
        (1e-7, "1.0e-05 %"),
        (0.9999999, "99.999 %"),
        (1, "100 %"),
        (-0.01, "-1.000 %"),
    ],
)
def test_only_no_loss_reads_as_zero_and_only_total_loss_as_all(ratio: float | None, text: str) -> None:
    assert formats.percent(ratio) == text


def test_numbers_have_separators_units_and_honest_unknowns() -> None:
    assert [formats.mbps(value) for value in (1234.56, 0.000672, None)] == ["1,234.6", "0.000672", "–"]
    assert formats.kfps(1_488_095.2) == "1,488.1"
    assert formats.mbps_interval(Interval(400.04, 0.31, 9)) == "400.0 ± 0.3"
    assert formats.mbps_interval(Interval(400.04, None, 1)) == "400.0"
    assert formats.mbps_interval(Interval(400.04, 0.002, 9)) == "400.0 ± 0.00200"
    assert formats.percent_interval(Interval(0.07, 0.01, 9)) == "7.000 % ± 1.000"
    assert formats.percent_interval(Interval(0.0, 0.000101, 9)) == "0 % < 0.011"
    # The interval of a value between nothing and all stays between these.
    assert formats.percent_interval(Interval(0.07, 0.1, 2)) == "7.000 % (0 … 17.000)"
    assert formats.percent_interval(Interval(0.9, 0.2, 2)) == "90.000 % (70.000 … 100)"
    assert formats.mbps_interval(Interval(15.3, 20.0, 2)) == "15.3 (0.0 … 35.3)"
    assert formats.index_spread(Interval(0.9, 0.2, 2)) == "0.700 … 1.000"
    assert formats.cpu_spread(Interval(0.1, 0.2, 2)) == "0.0 … 30.0"
    assert [formats.percent_limit(ratio) for ratio in (1e-8, 0.0099, 0.0100001, 1.5)] == ["1e-06", "0.99", "1.1", "100"]
    assert [formats.count(number, "trial") for number in (1, 1000)] == ["1 trial", "1,000 trials"]
    assert [formats.change(change) for change in (-0.182, None)] == ["−18.2 %", "–"]


def test_limits_of_a_significant_change_never_hide_it() -> None:
    tiny, same = (ratio_of_means([new, new], [100.0, 100.0]) for new in (100.01, 100.0))
    assert formats.change(tiny.change) == "0.0 %"
    assert [formats.change_limits(ratio) for ratio in (tiny, same)] == ["+0.01 … +0.01", "0.0 … 0.0"]
    assert [formats.index_limits(ratio) for ratio in (tiny, same)] == ["1.0001 … 1.0001", "1.000 … 1.000"]


def test_where_frames_were_lost_is_summed_per_uut() -> None:
    trials = [
        trial(stream_counts(sent=1000, received=900), uut="kvm", repetition=1),
        trial(stream_counts(sent=1000, received=800), uut="kvm", repetition=2),
        trial(stream_counts(sent=1000, received=990), uut="kvm", repetition=3, reasons=SUSPICIOUS),
        trial(stream_counts(), uut="raw"),
    ]
    text = page_of(campaign(trials, uuts=("raw", "kvm"))).text
    assert "raw nowhere: no frame was lost 0" in text
    assert "kvm uut 300 100.0 % 15.000 % 10" in text


def test_a_page_about_guests_marks_them_everywhere_and_reports_their_facts() -> None:
    results = guests()
    page = page_of(results)
    assert f"virtio, e1000, vmxnet3: {NOTE}" in page.text
    assert {"uuts", "cpu", "counters"} <= set(page.ids)
    assert "Fact raw virtio (emulated) e1000 (emulated) vmxnet3 (emulated)" in page.text
    alike = {"raw": {"kernel": "6.1", "cpus": "1"}, "kvm": {"kernel": "6.1", "cpus": "2"}}
    output = page_of(campaign([trial(stream_counts())], uuts=("raw", "kvm"), facts=alike)).text
    assert "Fact All 2 UUTs kernel 6.1 Fact raw kvm cpus 1 2" in output
    assert "guest kernel – 6.1.0-56-amd64 6.1.0-56-amd64 6.1.0-56-amd64" in page.text
    assert "vhost – off: no /dev/vhost-net – –" in page.text
    assert "vmxnet3 (emulated) 1,518 B 32000fps 1 3 all the guest did not come up within 60 s" in page.text


def test_cpu_time_is_reported_in_percent_of_one_cpu() -> None:
    trials = [
        replace(trial(stream_counts(), uut="kvm", repetition=n, cpu_s=used), steps_s={"send": 1.0, "drain": 1.0})
        for n, used in ((1, {"guest": 0.5, "host": 3.0}), (2, {"guest": 0.7, "host": 3.0}))
    ]
    trials.append(trial(stream_counts(), uut="raw"))
    text = page_of(campaign(trials, uuts=("raw", "kvm"))).text
    assert "1 measurement UUT Load per source" in text
    # t(0.975; 1) = 12.7062 times s / √2 = 5 percentage points, of which a share of 30 % has but 30 to lose.
    assert "kvm 1000fps 0.672 30.0 % 0.0 … 93.5 150.0 % ± 0.0 2" in text


def test_counters_inside_a_uut_are_summed_over_its_valid_trials() -> None:
    def one(tap: int, repetition: int, reasons: tuple[Reason, ...] = ()) -> TrialResult:
        counters = (count("ingress tap", "tx_dropped", "dropped", tap),)
        shared = (count("guest softnet", "dropped", "repeated", 1000),)
        return trial(
            stream_counts(counters=counters), uut="kvm", repetition=repetition, reasons=reasons, counters=shared
        )

    trials = [one(700, 1), one(800, 2), one(5, 3, SUSPICIOUS), trial(stream_counts(), uut="raw")]
    text = page_of(campaign(trials, uuts=("raw", "kvm"))).text
    assert "kvm – 2 counters" in text
    assert "ingress tap tx_dropped dropped 1,500 2 of 2" in text
    assert "guest softnet dropped dropped (in another counter too) 2,000 2 of 2" in text
    assert "raw – " not in text


def test_a_uut_that_never_came_up_is_shown_beside_the_others() -> None:
    gone = (Reason(ReasonKind.UUT_FAILED, "", "the guest did not come up within 60 s"),)
    trials = [trial(stream_counts(), uut="raw"), trial(streams=("s1",), uut="kvm", reasons=gone)]
    results = campaign(trials, uuts=("raw", "kvm"))
    text = page_of(results).text
    assert "1 of 2 trials valid, 0 suspicious, 1 invalid" in text
    assert "kvm no valid or suspicious trial" in text
    lines = [line.split() for line in printed(results).splitlines()]
    assert ["kvm", "64", "1000fps", "–", "–", "–", "–", "1", "invalid"] in lines


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_report(campaign([trial(stream_counts())]), out)
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UsageError, match="no directory"):
        write_report(campaign(), tmp_path / "missing" / "report.html")
