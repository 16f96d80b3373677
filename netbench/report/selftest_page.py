"""The page about one self-test: truth beside measurement, error, right or wrong."""

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from string import Template

from netbench.model.selftest import SelftestRecord
from netbench.report.markup import Html, element, html
from netbench.report.sections import section
from netbench.report.tester import ceilings, checks_table, moment, selftest_sentence


def selftest_page(record: Mapping[str, object]) -> str:
    """One self-contained HTML page about a self-test; ValueError where `record` is none."""
    told = SelftestRecord.model_validate(record)
    checks = section("checks", "Truth and measurement", checks_table(told.checks), *ceilings(told))
    template = Template(files("netbench.report").joinpath("template.html").read_text(encoding="utf-8"))
    css = "verdict" if told.passed else "verdict invalid"
    return template.substitute(
        title=html(f"Self-test of {told.topology}"),
        version=html(version("netbench")),
        byline=html(f"Measured {moment(told)}; source {told.generator}; testbed {told.fingerprint}"),
        verdict=element("div", element("strong", selftest_sentence(told)), css=css),
        contents=Html(),
        plotly_js=Html(),
        sections=checks.html,
    )
