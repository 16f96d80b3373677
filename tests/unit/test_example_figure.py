"""The example of a figure that comes from outside."""

from dataclasses import replace

from netbench_example.unsent import FIGURE

from netbench.config import plugins
from netbench.report import figures
from netbench.report.figures.files import FigureFormat, write_figures
from netbench.report.model import ReportModel
from netbench.report.page import report_page
from tests.unit.charts import figures_on
from tests.unit.results_factory import campaign, comparison


def test_it_is_on_the_page_and_a_file(tmp_path, monkeypatch):
    known = plugins.installed

    def with_example(group):
        found = known(group)
        return replace(found, kinds=found.kinds | {"unsent": FIGURE})

    monkeypatch.setattr(plugins, "installed", with_example)
    results = comparison(sizes=(64,), sources=(1,), repetitions=2)
    model = ReportModel.of(results)
    ((figure, (chart,)),) = figures.extra(model)
    assert (figure.title, 'id="figure-unsent"' in chart.html) == ("Unsent frames", True)
    assert "unsent" in {path.stem for path in write_figures(model, [FigureFormat.CSV], tmp_path)}
    (shown,) = [shown for shown in figures_on(report_page(results)) if shown.name == "unsent"]
    assert shown.uuts == set(results.uuts)
    assert figures.extra(ReportModel.of(campaign(planned=1))) == []
