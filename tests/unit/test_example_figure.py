"""The example of a figure that comes from outside."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from math import nan
from typing import Any

import pytest
from netbench_example.unsent import FIGURE

from netbench.cli.export import Publication, publish
from netbench.config import plugins
from netbench.errors import NetbenchError
from netbench.report import figures
from netbench.report.figures.files import FigureFormat, write_figures
from netbench.report.figures.registry import Figure, NamedChart, requires_trials
from netbench.report.model import ReportModel
from tests.unit.charts import figures_on
from tests.unit.report_page import report_page
from tests.unit.results_factory import campaign, comparison


@pytest.fixture
def install(monkeypatch):
    """Add a figure of another package to the installed ones."""
    known = plugins.installed

    def add(figure: Figure) -> None:
        monkeypatch.setattr(
            plugins, "installed", lambda group: replace(known(group), kinds=known(group).kinds | {"unsent": figure})
        )

    return add


def test_it_is_on_the_page_and_a_file(tmp_path, install):
    install(FIGURE)
    results = comparison(sizes=(64,), sources=(1,), repetitions=2)
    model = ReportModel.of(results)
    ((figure, (chart,)),) = figures.extra(model)
    assert (figure.title, 'id="figure-unsent"' in chart.html) == ("Unsent frames", True)
    assert "unsent" in {path.stem for path in write_figures(model, [FigureFormat.CSV], tmp_path)}
    (shown,) = [shown for shown in figures_on(report_page(results)) if shown.name == "unsent"]
    assert shown.uuts == set(results.uuts)
    assert figures.extra(ReportModel.of(campaign(planned=1))) == []


def failing(error: BaseException) -> Callable[[ReportModel], list[NamedChart]]:
    def fail(model: ReportModel) -> list[NamedChart]:
        raise error

    return fail


def altered(**changes: Any) -> Callable[[ReportModel], list[NamedChart]]:
    """Its charts with another name, or other numbers in all their marks."""

    def build(model: ReportModel) -> list[NamedChart]:
        (named,) = FIGURE.build(model)
        if "y" not in changes:
            return [replace(named, **changes)]
        for panel in named.chart.panels:
            for place, series in enumerate(panel.series):
                marks = tuple(replace(mark, **changes) for mark in series.marks)
                panel.series[place] = replace(series, marks=marks)
        return [named]

    return build


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (failing(AttributeError("no such number")), "AttributeError: no such number"),
        (failing(SystemExit(0)), "SystemExit: 0"),
        (lambda _: ["a chart"], "TypeError: build() returned 'a chart' instead of a NamedChart"),
        (altered(name="../escaped"), "ValueError: the name '../escaped' of a chart is no file name"),
        (altered(y=nan), "a number that is not finite"),
        (lambda model: 2 * list(FIGURE.build(model)), "ValueError: two charts have the name unsent"),
    ],
)
def test_one_that_fails_is_left_out_and_its_error_is_on_the_page(tmp_path, install, build, error):
    install(Figure("unsent", "Unsent frames", requires_trials, build))
    results = comparison(sizes=(64,), sources=(1,), repetitions=2)
    page = unescape(report_page(results))
    assert "This figure is missing" in page
    assert error in page
    assert "throughput" in {shown.name.partition("-")[0] for shown in figures_on(page)}
    with pytest.raises(NetbenchError, match=f"are missing in .*unsent .*{re.escape(error)}"):
        publish(results, Publication(figures="csv"), tmp_path)
    assert {path.stem.partition("-")[0] for path in tmp_path.iterdir()} >= {"throughput", "maximum"}
