"""The page about a comparison: one file, offline, with its figures."""

from dataclasses import replace

from netbench.report.comparison import Compared
from netbench.report.comparison_page import comparison_page
from netbench.report.styles import MARK
from netbench.results.comparability import ChangedSetting
from netbench.statistics.compared_cells import Campaign
from netbench.statistics.comparison import compare
from tests.unit.charts import figures_on
from tests.unit.comparison_factory import made_up
from tests.unit.report_page import Page
from tests.unit.results_factory import MANIFEST


def page(*campaigns, differs=(), names=("old <one>", "new", "newer", "newest")):
    """Return the page of these campaigns; the first one is the base."""
    own = [Campaign.of(name, results) for name, results in zip(names, campaigns, strict=False)]
    compared = [
        Compared(comparison, results, tuple(differs))
        for comparison, results in zip(compare(own[0], own[1:]), campaigns[1:], strict=True)
    ]
    return Page(comparison_page(campaigns[0], compared))


def at(day, results):
    return replace(results, manifest={**MANIFEST, "started": f"2025-03-0{day}T01:00:00+00:00"})


def test_two_campaigns_and_what_else_differs():
    kernel = ChangedSetting("kernel", "6.1", "6.<12>", matters=True)
    made = page(made_up(seed=1), made_up(77_600, seed=2), differs=[kernel])
    assert made.text.startswith("new against old <one>")
    assert "new: slower in 3, by up to 3.0 %; 4 cells in all" in made.text
    assert "Settings differ, too: 1 setting" in made.text
    assert "kernel 6.1 6.<12>" in made.text
    assert "Trend" not in made.text
    assert made.loaded == ["data:,"]
    assert {link.removeprefix("#") for link in made.links} <= set(made.ids)
    (bars,) = figures_on(made.source)
    assert [(row["campaign"], row["uut"]) for row in bars.rows] == [("old <one>", "raw"), ("new", "raw")]


def test_more_than_two_have_a_trend_along_the_starts_of_the_campaigns_in_the_order_of_these():
    made = page(
        at(3, made_up(77_000, seed=3)), at(1, made_up(80_000, seed=1)), at(2, made_up(79_000, seed=2)), names="cab"
    )
    assert "Trend" in made.text
    _, most, *by_load = figures_on(made.source)
    assert len(by_load) == 3
    assert [row["started"] for row in most.rows] == [f"2025-03-0{day}T01:00:00Z" for day in (1, 2, 3)]
    throughputs = [row["throughput_mbps"] for row in most.rows]
    assert throughputs == sorted(throughputs, reverse=True)
    assert all(row["throughput_mbps_ci95"] for row in most.rows)


def test_emulated_uuts_are_marked_and_in_no_figure_with_others():
    facts = {"raw": {"kernel": "6.1"}, "kvm": {"emulated": "no KVM"}}
    both = [replace(made_up(seed=seed, uuts=("raw", "kvm")), facts=facts) for seed in (1, 2)]
    made = page(*both)
    own, imitated = figures_on(made.source)
    assert (own.uuts, imitated.uuts) == ({"raw"}, {"kvm"})
    assert f"kvm {MARK}" in str(imitated.plotly)
    assert "CPU emulated" in imitated.markup


def test_campaigns_without_a_known_start_are_reported_to_have_none():
    unknown = replace(made_up(seed=4), manifest={**MANIFEST, "started": None})
    made = page(at(1, made_up(seed=1)), at(2, made_up(seed=2)), unknown)
    assert "The start of these campaigns is unknown: newer" in made.text
