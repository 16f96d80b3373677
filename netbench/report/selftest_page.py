"""The page about one self-test: truth beside measurement, error, pass or fail."""

from importlib.metadata import version
from importlib.resources import files
from string import Template

from netbench.model.selftest import SelftestRecord
from netbench.report.markup import Html, element, html
from netbench.report.sections import section
from netbench.report.tester import ceilings, checks_table, moment, selftest_sentence


def selftest_page(record: SelftestRecord) -> str:
    """One self-contained HTML page about a self-test."""
    checks = section("checks", "Truth and measurement", checks_table(record.checks), *ceilings(record))
    template = Template(files("netbench.report").joinpath("template.html").read_text(encoding="utf-8"))
    css = "verdict" if record.passed else "verdict invalid"
    return template.substitute(
        title=html(f"Self-test of {record.topology}"),
        version=html(version("netbench")),
        byline=html(f"Measured {moment(record)}; source {record.generator}; testbed {record.fingerprint}"),
        verdict=element("div", element("strong", selftest_sentence(record)), css=css),
        contents=Html(),
        plotly_js=Html(),
        sections=checks.html,
    )
