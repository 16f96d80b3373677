import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest

from netbench.errors import UsageError
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind, Warning, WarningKind
from netbench.report import formats
from netbench.report.axes import LossScale
from netbench.report.figures import loss_against_offered, most_throughput, offered_against_throughput
from netbench.report.page import report_page, write_report
from netbench.report.published import schlosser2011
from netbench.report.styles import Style, styles
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.intervals import Interval
from tests.unit.points import count
from tests.unit.report_page import Page, page_of, printed
from tests.unit.results_factory import GUESTS, MANIFEST, campaign, comparison, guests, stream_counts, trial

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
    page = page_of(campaign(trials, planned=6))
    assert "2 of 4 trials valid, 1 suspicious, 1 invalid; 2 of 6 planned missing" in page.text
    assert "#verdicts" in page.links


def test_every_link_leads_to_a_place_on_the_page_and_nothing_is_loaded_from_elsewhere() -> None:
    page = page_of(comparison(sizes=(64,), repetitions=1))
    elsewhere = {link for link in page.links if not link.startswith("#")}
    assert elsewhere == {f"https://doi.org/{schlosser2011().doi}"}
    assert {link.removeprefix("#") for link in page.links} - elsewhere <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.loaded == ["data:,"]


def test_suspicious_and_invalid_trials_are_listed_with_kind_and_detail() -> None:
    bad = [trial(stream_counts(), reasons=SUSPICIOUS), trial(stream_counts(), repetition=2, reasons=INVALID)]
    text = page_of(campaign(bad)).text
    assert "foreign-frames – 1 time" in text
    assert "3 frames of others" in text
    assert "link-down – 1 time" in text
    assert "egress NIC was down" in text


def test_a_long_list_of_reasons_starts_folded_and_a_short_one_open() -> None:
    many = [trial(stream_counts(), repetition=number, reasons=SUSPICIOUS) for number in range(1, 14)]
    assert "<details><summary>" in report_page(campaign(many))
    assert '<details open="open"><summary>' in report_page(campaign(many[:2]))


def test_warnings_are_shown_with_their_kind() -> None:
    warning = Warning(WarningKind.FEW_REPETITIONS, "Only 2 repetitions: the intervals are wide.")
    text = page_of(campaign([trial(stream_counts())], warnings=(warning,))).text
    assert "few-repetitions : Only 2 repetitions: the intervals are wide." in text


def test_text_of_users_is_escaped_everywhere() -> None:
    name = '</script><img src=x onerror="alert(1)">'
    manifest = {**MANIFEST, "command": ["netbench", name], "before": {name: name}, "after": {name: "other"}}
    reasons = (Reason(ReasonKind.LINK_DOWN, name, name),)
    trials = [
        trial(stream_counts(name), uut=name, reasons=reasons),
        trial(stream_counts(name), uut=name, repetition=2),
    ]
    warnings = (Warning(WarningKind.SHARED_CPUS, name),)
    source = report_page(campaign(trials, uuts=(name,), manifest=manifest, warnings=warnings))
    assert "<img" not in source
    page = Page(source)
    assert page.text.count(name) >= 8


def test_an_unfinished_campaign_without_trials_says_so() -> None:
    manifest = {**MANIFEST, "finished": None, "after": None}
    page = page_of(campaign(planned=12, manifest=manifest))
    assert "No trial has been measured yet; 12 are planned" in page.text
    assert "not finished" in page.text
    assert "throughput" not in page.ids


def test_a_campaign_of_invalid_trials_shows_them_and_averages_nothing() -> None:
    bad = trial(stream_counts(sent=1000, received=900), reasons=INVALID)
    results = campaign([bad, trial(streams=("s1",), repetition=2, reasons=INVALID)])
    assert "0 of 2 trials valid, 0 suspicious, 2 invalid" in page_of(results).text
    groups = group_trials(results)
    figure = offered_against_throughput(groups, styles(["raw"]))
    (marks,) = [trace for trace in figure.data if trace.mode == "markers" and trace.x[0] is not None]
    assert list(marks.x) == [pytest.approx(1000 * 84 * 8 / 1e6)]
    assert list(marks.y) == [pytest.approx(900 * 84 * 8 / 1e6)]
    (bar,) = most_throughput(groups, styles(["raw"])).data
    assert bar.text == ("no valid trial",)


def test_a_manifest_that_knows_nothing_still_gives_a_page() -> None:
    text = page_of(campaign([trial(stream_counts())], manifest={})).text
    assert "1 of 1 trial valid" in text
    assert "seed unknown" in text


def test_differences_of_the_environment_are_named() -> None:
    source = report_page(campaign([trial(stream_counts())]))
    assert "2 settings changed during the campaign: cpu.governor, sysctls.net.core.rmem_max." in source
    assert len(re.findall(r'<tr class="changed">', source)) == 2
    unchanged = page_of(campaign(manifest={**MANIFEST, "after": MANIFEST["before"]})).text
    assert "No setting changed during the campaign." in unchanged
    unfinished = page_of(campaign(manifest={**MANIFEST, "after": None})).text
    assert "What holds after the campaign is not known yet." in unfinished


def test_a_line_is_made_of_valid_trials_and_the_others_are_marked() -> None:
    trials = [
        trial(stream_counts(sent=1000, received=1000), repetition=1),
        trial(stream_counts(sent=1000, received=980), repetition=2),
        trial(stream_counts(sent=1000, received=500), repetition=3, reasons=SUSPICIOUS),
    ]
    figure = offered_against_throughput(group_trials(campaign(trials)), styles(["raw"]))
    unit = 84 * 8 / 1e6
    (line,) = [trace for trace in figure.data if trace.hovertext and "lines" in trace.mode]
    assert list(line.y) == [pytest.approx(990 * unit)]
    assert list(line.error_y.array) == [pytest.approx(12.7062 * 10 * unit, rel=1e-4)]
    (marks,) = [trace for trace in figure.data if trace.hovertext and trace.mode == "markers"]
    assert list(marks.y) == [pytest.approx(500 * unit)]
    assert marks.marker.symbol == "circle-open"
    assert "foreign-frames: 3 frames of others" in marks.hovertext[0]


def test_an_unknown_interval_draws_no_error_bar() -> None:
    groups = group_trials(campaign([trial(stream_counts(sent=1000, received=900))]))
    for draw in (offered_against_throughput, loss_against_offered):
        (line,) = [trace for trace in draw(groups, styles(["raw"])).data if trace.hovertext]
        assert list(line.error_y.array) == ["none"]


def test_a_uut_keeps_its_colour_in_every_figure() -> None:
    groups = group_trials(comparison(sizes=(64,), sources=(1,), repetitions=1))
    looks = styles(["raw", "kvm", "openvz", "xen"])
    for draw in (offered_against_throughput, loss_against_offered):
        colours = {trace.legendgroup: trace.line.color for trace in draw(groups, looks).data if trace.hovertext}
        assert {name: look.colour for name, look in looks.items()}.items() >= {
            name: colour for name, colour in colours.items() if colour
        }.items()
    bars = {trace.legendgroup: trace.marker.color for trace in most_throughput(groups, looks).data}
    assert bars == {name: look.colour for name, look in looks.items()}


def test_more_uuts_than_colours_still_look_different() -> None:
    looks = styles([f"uut{number}" for number in range(20)])
    assert len({(look.colour, look.dash) for look in looks.values()}) == 20
    assert len({(look.colour, look.pattern) for look in looks.values()}) == 20


def test_panels_have_the_largest_frames_first_and_equal_axes() -> None:
    groups = group_trials(comparison(uuts=("raw",), sources=(1,), repetitions=1))
    figure = offered_against_throughput(groups, styles(["raw"]))
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert titles == [
        "(a) 1,500-byte frames",
        "(b) 1,000-byte frames",
        "(c) 500-byte frames",
        "(d) 64-byte frames",
    ]
    for number in ("", "2", "3", "4"):
        assert figure.layout[f"xaxis{number}"].range == figure.layout[f"yaxis{number}"].range


def test_loss_of_zero_has_a_place_of_its_own_below_every_other_loss() -> None:
    scale = LossScale.over([0.0, 0.00002, 0.5])
    heights, labels = scale.ticks()
    assert labels == ["0", "0.001", "0.01", "0.1", "1", "10", "100"]
    assert scale.height(0.0, 0.5) == pytest.approx(heights[0])
    assert scale.bottom < scale.height(0.0, 0.5) < scale.border
    assert scale.border < scale.height(0.00002, 0.5) < scale.height(0.5, 0.5) < scale.height(1.0, 0.5) == 0
    assert scale.height(0.0, 0.25) < scale.height(0.0, 0.75)


def test_error_bars_of_loss_stay_between_zero_and_everything() -> None:
    scale = LossScale.over([0.5])
    reach = scale.reach(Interval(0.5, 2.0, 2), row=0.5)
    assert reach is not None
    up, down = reach
    assert 0.5 * 10**up == pytest.approx(1.0)
    assert scale.height(0.5, 0.5) - down == pytest.approx(scale.height(0.0, 0.5))
    assert scale.reach(Interval(0.5, None, 1), row=0.5) is None


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
    assert formats.mbps(1234.56) == "1,234.6"
    assert formats.mbps(0.000672) == "0.000672"
    assert formats.mbps(None) == "–"
    assert formats.kfps(1_488_095.2) == "1,488.1"
    assert formats.mbps_interval(Interval(400.04, 0.31, 9)) == "400.0 ± 0.3"
    assert formats.mbps_interval(Interval(400.04, None, 1)) == "400.0"
    assert formats.percent_interval(Interval(0.07, 0.0, 9)) == "7.000 % ± 0"
    assert formats.count(1, "trial") == "1 trial"
    assert formats.count(1000, "trial") == "1,000 trials"


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


FIGURES = (offered_against_throughput, most_throughput, loss_against_offered)


def notes_in(figure: go.Figure) -> list[str]:
    texts = [annotation.text.replace("<br>", " ") for annotation in figure.layout.annotations]
    return [text for text in texts if "emulat" in text]


@pytest.mark.parametrize("draw", FIGURES)
def test_every_figure_with_an_emulated_uut_says_so_and_names_it(
    draw: Callable[[Sequence[Group], Mapping[str, Style]], go.Figure],
) -> None:
    results = guests()
    groups, looks = group_trials(results), styles(results.uuts, results.emulated)
    figure = draw(groups, looks)
    assert notes_in(figure) == [f"virtio, e1000, vmxnet3: {NOTE}"]
    legend = [trace for trace in figure.data if trace.showlegend is not False]
    named = {trace.legendgroup: trace.name for trace in legend if trace.legendgroup in results.uuts}
    assert named == {"raw": "raw", **{uut: f"{uut} (emulated)" for uut in GUESTS}}
    with_one = draw([group for group in groups if group.uut in ("raw", "e1000")], looks)
    assert notes_in(with_one) == [f"e1000: {NOTE}"]
    bare = draw([group for group in groups if group.uut == "raw"], looks)
    assert notes_in(bare) == []
    assert figure.layout.margin.b > bare.layout.margin.b  # the note has room of its own


def test_a_page_about_guests_marks_them_everywhere_and_tells_their_facts() -> None:
    results = guests()
    page = page_of(results)
    assert f"virtio, e1000, vmxnet3: {NOTE}" in page.text
    assert {"uuts", "cpu", "counters"} <= set(page.ids)
    assert "Fact raw virtio (emulated) e1000 (emulated) vmxnet3 (emulated)" in page.text
    assert "guest kernel – 6.1.0-56-amd64 6.1.0-56-amd64 6.1.0-56-amd64" in page.text
    assert "vhost – off: no /dev/vhost-net – –" in page.text
    assert "vmxnet3 (emulated) 1,518 B 32000fps 1 3 all the guest did not come up within 60 s" in page.text


def test_a_page_without_guests_says_nothing_of_them() -> None:
    page = page_of(comparison(sizes=(64,), repetitions=1))
    assert not {"uuts", "cpu", "counters"} & set(page.ids)
    assert "(emulated)" not in page.text


def test_cpu_time_is_told_in_percent_of_one_cpu() -> None:
    trials = [
        replace(trial(stream_counts(), uut="kvm", repetition=n, cpu_s=used), steps_s={"send": 1.0, "drain": 1.0})
        for n, used in ((1, {"guest": 0.5, "host": 3.0}), (2, {"guest": 0.7, "host": 3.0}))
    ]
    trials.append(trial(stream_counts(), uut="raw"))
    text = page_of(campaign(trials, uuts=("raw", "kvm"))).text
    assert "1 measurement UUT Load per source" in text
    # t(0.975; 1) = 12.7062 times s / √2 = 5 percentage points.
    assert "kvm 1000fps 0.672 30.0 % ± 63.5 150.0 % ± 0.0 2" in text


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


def test_the_summary_shows_loads_loss_and_verdicts() -> None:
    trials = [
        trial(
            stream_counts(sent=100_000, received=93_000, intended_fps=100_000.0),
            load="100000fps",
            repetition=1,
        ),
        trial(stream_counts(), load="100000fps", repetition=2, reasons=SUSPICIOUS),
        trial(stream_counts(), load="100000fps", repetition=3, reasons=INVALID),
    ]
    lines = printed(campaign(trials)).splitlines()
    (first,) = [line.split() for line in lines if line.strip().startswith("raw")]
    assert first == ["raw", "64", "67.2", "67.2", "62.5", "93.0", "7.000", "1", "valid"]
    assert any("1 suspicious" in line for line in lines)
    assert any("link-down" in line for line in lines)


def test_the_summary_of_a_group_without_valid_trials_has_no_numbers() -> None:
    text = printed(campaign([trial(stream_counts(), reasons=INVALID)]))
    (line,) = [line.split() for line in text.splitlines() if line.strip().startswith("raw")]
    assert line[:7] == ["raw", "64", "0.672", "–", "–", "–", "–"]


def test_the_summary_marks_emulated_uuts_and_says_what_that_means() -> None:
    text = printed(guests(), width=100)
    assert text.count("virtio (emulated)") == 12
    assert "raw (emulated)" not in text
    assert "(emulated): the CPU is emulated; these numbers describe the emulator, not the VMM" in text
    assert "emulated" not in printed(campaign([trial(stream_counts())]))


def test_the_summary_takes_names_as_text_and_tells_sources_apart() -> None:
    trials = [
        trial(stream_counts("s1"), uut="[red]kvm"),
        trial(stream_counts("s1"), stream_counts("s2"), uut="[red]kvm"),
    ]
    text = printed(campaign(trials, uuts=("[red]kvm",)), width=100)
    assert text.count("[red]kvm") == 2
    assert "Sources" in text
    assert "Sources" not in printed(campaign(trials[:1]))
