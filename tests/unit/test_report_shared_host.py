"""Guests that share a host in the report: the paper's Figure 5 and Tables 1 to 3, and further results."""

import re
from dataclasses import replace

import pytest

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.model import views
from netbench.report.published import schlosser2011
from netbench.statistics.groups import group_trials
from tests.unit.interference_factory import computing, forwarding, paper_campaign, small_campaign, twice
from tests.unit.points import count, loss
from tests.unit.report_page import OF_SHARED_HOSTS, Page, page_of, printed, report_page
from tests.unit.results_factory import beside, campaign, comparison, neighbour, stream_counts, trial


@pytest.fixture(scope="module")
def whole() -> CampaignResults:
    return paper_campaign(emulated=("kvm",), mishaps=False)


@pytest.fixture(scope="module")
def whole_page(whole: CampaignResults) -> Page:
    return page_of(whole)


@pytest.fixture(scope="module")
def small_page() -> Page:
    return page_of(small_campaign())


def test_every_section_is_there_in_the_order_of_the_paper(whole_page: Page) -> None:
    page = whole_page
    of_paper = ["throughput", "maximum", "second-guest-forwards", "second-guest-computes", "second-guest-itself"]
    assert [name for name in page.ids if name in of_paper] == of_paper
    assert set(page.ids) >= OF_SHARED_HOSTS
    assert len(page.ids) == len(set(page.ids))
    assert {link for link in page.links if not link.startswith("#")} == {f"https://doi.org/{schlosser2011().doi}"}
    for number in (3, 4, 5):
        assert f"As Figure {number} of the paper" in page.text


def test_the_published_tables_appear_as_printed_below_the_measured_ones(whole_page: Page) -> None:
    text = whole_page.text
    assert text.count("Measured here, %") == text.count("Table 1 of the paper, %") == 1
    assert text.index("Measured here, %") < text.index("Table 1 of the paper,")
    assert "packet size KVM OpenVZ VM-E1000 VM-VMXNET3 Xen VirtualBox light heavy light heavy" in text
    assert "64 +4.2 % −0.4 % +1.0 % −18.2 % −2.7 % −4.5 % −0.5 % −0.6 % +6.8 % +7.9 % +2.1 % +2.0 % 500 +5.5 %" in text
    assert "packet size raw KVM OpenVZ VM-E1000 VM-VMXNET3 Xen VirtualBox in out in out" in text
    assert "64 274.9 269.3 72.1 64.6 124.4 62.7 126.6 126.6 274.4 268.4 72.0 47.2 72.1 42.4" in text
    paper = schlosser2011()
    for number in (1, 2, 3):
        assert text.count(paper.on_table(number)) == 1
    for number in (3, 4, 5):
        assert paper.on_figure(number) in text
    assert "Columns of the paper: light: a second guest runs stress --cpu 1; heavy: a second guest runs" in text


def test_a_published_table_stands_beside_the_measurement_of_its_share_only(whole_page: Page) -> None:
    text = whole_page.text
    places = [
        text.index(f"network-{share}: forwards 64-byte frames at {share}% of the maximum") for share in (25, 50, 95)
    ]
    tables = [text.index(f"Table {number} of the paper, Mbit/s") for number in (2, 3)]
    assert places[0] < places[1] < tables[0] < places[2] < tables[1]


@pytest.mark.parametrize(
    "text",
    [
        # Table 1. Errors of 1 in 901: t(0.975; 1) = 12.706 times √2 ÷ 901 around 0, √1.61 ÷ 901 around 701 ÷ 901 − 1.
        "packet size kvm light heavy 64 0.0 % −2.0 … +2.0 −22.2 % −24.0 … −20.4 Table 1",
        # Table 2. 50,000 and (40,000 + 42,000) ÷ 2 frames/s of 84 bytes on the wire; t(0.975; 1) = 12.7062 times 1,000.
        # None unsent of 100,000: 3.00 ÷ 100,000 of 33.6.
        "packet size kvm in out 64 33.6 ± 0.00101 27.6 ± 8.5 Table 2",
        "Maxima that the shares refer to UUT Frame size Sources Maximum, kfps a stream Mbit/s Limited by"
        " Reached at a load of Found by kvm 64 B 1 100.0 67.2 the UUT 200Mbit/s the loads of the profile,"
        " 2 repetitions",
        "kvm 0.501 0.485 … 0.516 network-50 64 B −49.9 % (−51.5 … −48.4 %)",  # the worst isolation
        # Fairness. Shares 0.45 and 0.80, and 0.452 and 0.84: 1.25² ÷ (2 · 0.8425) and 1.292² ÷ (2 · 0.909904).
        "network-50 – 1 measurement",
        "kvm 64 B 1000fps 0.922 ± 0.064 45.100 % second: 82.000 %",
        # CPU time.
        "kvm dedicated itself 50.0 % ± 0.0 – 60.0 % ± 0.0 200.0 % ± 0.0",
        "kvm cpu-heavy itself 50.0 % ± 0.0 – 60.0 % ± 0.0 200.0 % ± 0.0"
        " second stress-ng --cpu 8 --vm 4 100.0 % ± 0.0 50.0 % ± 0.0 150.0 % ± 0.0",
    ],
)
def test_tables_tell_what_guests_did_to_each_other(small_page: Page, text: str) -> None:
    assert text in small_page.text


def test_relative_changes_say_whether_they_are_significant(small_page: Page) -> None:
    cells = re.findall(r'<td class="number ((?:no-)?change)" title="([^"]*)"', small_page.source)
    assert [css for css, _ in cells] == ["no-change", "change"]
    assert cells[0][1].startswith("no significant change; more than 2.1 % is excluded")
    assert cells[1][1].startswith("−22.2 % (−24.0 … −20.4 %)")
    single = page_of(paper_campaign(uuts=("kvm",), sizes=(64,), repetitions=1, mishaps=False))
    assert "one repetition" in single.text
    assert "unknown: one repetition" in single.source


def test_the_matrix_has_a_colour_the_stronger_the_more_was_lost(small_page: Page) -> None:
    source = small_page.source
    matrix = source[source.index('<table class="matrix">') :]
    shade = r"background:color-mix\(in srgb, var\(--ink\) ([0-9.]+)%, transparent\)"
    cells = re.findall(rf'<td title="[^"]*" style="{shade}">([^<]*)<small>([^<]*)</small>', matrix)
    assert [(index, words) for _, index, words in cells] == [
        ("1.000", "not significant"),
        ("0.778", "0.760 … 0.796"),
        ("0.501", "0.485 … 0.516"),
    ]
    assert [float(percent) for percent, _, _ in cells] == [0, 10.0, 22.5], "45 % of what was lost"


def test_losses_and_counters_are_reported_of_the_guest_they_belong_to() -> None:
    lost = stream_counts("n1", sent=1000, received=930, lost_at=(loss("ingress tap (tx_dropped)", 70),))
    counters = (count("guest IP layer", "InDiscards", "dropped", 7),)
    second = neighbour(lost, activity={"network": "50%"}, counters=counters)
    text = page_of(campaign(twice("network-50", (1000, 1000), second), uuts=("kvm",))).text
    assert "kvm nowhere: no frame was lost 0" in text
    assert "kvm, second ingress tap (tx_dropped) 140 100.0 % 7.000 % –" in text
    assert "kvm, second – 1 counter" in text
    assert "guest IP layer InDiscards dropped 14 2 of 2" in text


def test_reasons_name_scenario_and_the_neighbour_whose_stream_they_are_about() -> None:
    died = Reason(ReasonKind.NEIGHBOUR_FAILED, "", "second: went away")
    foreign = Reason(ReasonKind.FOREIGN_FRAMES, "n1", "12 frames of others")
    trials = twice("dedicated", (900, 902)) + twice("network-50", (450, 452), forwarding(40_000))
    trials[2] = replace(trials[2], reasons=(died, foreign))
    text = page_of(campaign(trials, uuts=("kvm",))).text
    assert "kvm network-50 64 B 1000fps 1 1 all second: went away" in text
    assert "kvm network-50 64 B 1000fps 1 1 n1 (of second) 12 frames of others" in text


def test_a_maximum_that_could_not_be_found_leaves_a_page_of_the_rest() -> None:
    unknown = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", "no valid trial in shared-idle")
    missing = [
        replace(result, guests=(), reasons=(unknown,), steps_s={}, machine_cpu_s=None)
        for result in twice("network-50", (0, 0))
    ]
    results = campaign(twice("dedicated", (900, 902)) + missing, uuts=("kvm",))
    page = page_of(results)
    assert "maximum-unknown – 2 times" in page.text
    assert not OF_SHARED_HOSTS & set(page.ids)
    assert "– 2 invalid" in " ".join(printed(results).split())


def test_views_are_named_by_what_reports_them_apart(whole: CampaignResults) -> None:
    both = replace(whole, trials=(*whole.trials, *comparison(sizes=(64,), sources=(2,), repetitions=1).trials))
    names = [view.title for view in views(group_trials(both))]
    assert names[:3] == ["dedicated, 1 source", "dedicated, 2 sources", "shared-idle"]
    assert len(names) == 8
    assert [view.title for view in views(group_trials(whole))][:2] == ["dedicated", "shared-idle"]


def test_several_numbers_of_sources_are_kept_apart() -> None:
    two = [
        trial(
            stream_counts("s1", received=got), stream_counts("s2", received=got), scenario=scenario, repetition=number
        )
        for scenario, received in (("dedicated", (1000, 1000)), ("cpu-heavy", (500, 502)))
        for number, got in enumerate(received, start=1)
    ]
    busy = [beside(result, computing(8)) if result.spec.scenario == "cpu-heavy" else result for result in two]
    one = twice("dedicated", (900, 902), uut="raw") + twice("cpu-heavy", (700, 702), computing(8), uut="raw")
    text = page_of(campaign([*one, *busy])).text
    assert re.search(r"1 source Measured here, % packet size raw heavy 64 −22\.2 %", text)
    assert re.search(r"2 sources Measured here, % packet size raw heavy 64 ≤ −49\.9 % of a lower bound", text)
    assert text.index("1 source Measured") < text.index("Table 1 of the paper,") < text.index("2 sources Measured")
    assert text.count("Table 1 of the paper,") == 1
    assert "Table 1 of the paper," not in page_of(campaign(busy + two[:2])).text


def test_the_whole_paper_makes_a_page_of_less_than_1500_kilobytes(whole: CampaignResults, whole_page: Page) -> None:
    assert len(whole.trials) == 4 * 4 * 7 * 4 * 3
    assert len(report_page(whole).encode()) < 1_500_000
