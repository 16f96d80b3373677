"""A comparison for other programs: JSON with a schema, JUnit XML for CI, Markdown for a comment.

Each format covers campaigns with loads and campaigns of searches, with a row per cell, and campaigns with flows, with a
row per figure of a cell.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from math import isfinite
from typing import NamedTuple

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import CampaignWarning
from netbench.report.comparison import Compared, ComparedRow, gate_advice, gate_words, search_row, throughput_row
from netbench.report.flow_comparison import FlowRow, flow_row
from netbench.report.formats import SHOWN_UNITS, mean
from netbench.report.renderer import template
from netbench.report.summary_json import identity, mean_and_width, rate_columns
from netbench.statistics.compared_cells import DISTURBING, AnyCell, ComparedCell, Difference, FlowCell, Searched
from netbench.statistics.flow_comparison import FlowDifference
from netbench.statistics.flow_figures import FlowFigure
from netbench.statistics.groups import Group
from netbench.statistics.regression_gate import CellResult, GateResult, total
from netbench.statistics.search_comparison import Range, SearchDifference
from netbench.statistics.workload_groups import WorkloadGroup

SCHEMA, SCHEMA_VERSION = "netbench-comparison", 1
Document = Callable[[str, CampaignResults, Sequence[Compared]], str]
"""The text of a comparison, from the name of the base, its results, and the others."""

_MARKDOWN_CELLS = 50  # rows of a table that fit into a comment
# The element of a test case by the outcome of its cell, and its type.
_JUNIT: dict[GateResult | None, tuple[str, str]] = {
    GateResult.FAILED: ("failure", "regression"),
    GateResult.INCONCLUSIVE: ("error", "inconclusive"),
    GateResult.PASSED: ("", ""),
}

JsonObject = dict[str, object]


def json_document(base: str, results: CampaignResults, compared: Sequence[Compared]) -> str:
    """The comparison as JSON; `docs/compare-in-ci.md` has the schema."""
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "netbench": version("netbench"),
        "base": _campaign(base, results),
        "gate": _gate(compared),
        "comparisons": [
            {
                "new": _campaign(new.name, new.results),
                "summary": new.verdict,
                "gate": None if new.gate is None else new.gate.outcome.value,
                "settings_that_differ": [
                    {"setting": setting.setting, "base": setting.base, "new": setting.new, "matters": setting.matters}
                    for setting in new.differs
                ],
                "cells": list(_cells(new)),
            }
            for new in compared
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def junit_document(base: str, results: CampaignResults, compared: Sequence[Compared]) -> str:
    """A test suite for each comparison, a test case for each cell: regressions are failures, inconclusive ones errors.

    Cells that are not judged are skipped. Without a gate all of them are.
    """
    suites = []
    for new in compared:
        cases = [
            (row.place, *_JUNIT.get(row.outcome, ("skipped", "")), "; ".join(filter(None, (row.words, row.why))))
            for row in _rows(new)
        ]
        suites.append((f"{new.name} against {base}", cases, Counter(case[1] for case in cases)))
    text = template("junit.xml").render(base=base, suites=suites)
    # XML 1.0 excludes the other characters.
    return "".join(c if c in "\t\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text) + "\n"


def markdown_document(base: str, results: CampaignResults, compared: Sequence[Compared]) -> str:
    """The result of the gate, warnings, and a table of the cells, those of the highest throughput first."""

    def warnings(new: Compared) -> Iterator[tuple[str, CampaignWarning]]:
        for name, side in ((base, results), (new.name, new.results)):
            yield from ((name, warning) for warning in side.warnings if warning.kind in DISTURBING)

    return template("comparison.md").render(
        base=base,
        compared=compared,
        warnings=warnings,
        rows=lambda new: list(_rows(new)),
        gate_words=gate_words,
        gate_advice=gate_advice,
        text=_markdown,
        most=_MARKDOWN_CELLS,
    )


DOCUMENTS: dict[str, Document] = {"json": json_document, "junit": junit_document, "markdown": markdown_document}


class _JudgedRow(NamedTuple):
    """A cell in words: both sides, the change, and the outcome of the gate."""

    place: AnyCell
    base: str
    new: str
    words: str
    outcome: GateResult | None
    why: str


def _rows(compared: Compared) -> Iterator[_JudgedRow]:
    results = _results(compared)
    for difference in compared.differences:
        row: ComparedRow | FlowRow
        match difference:
            case Difference():
                row, unit = throughput_row(difference), "Mbit/s"
            case SearchDifference():
                row, unit = search_row(difference), SHOWN_UNITS[difference.place.unit]
            case FlowDifference():
                row, unit = flow_row(difference), difference.figure.shown_unit
        result = results.pop(row.place, None)
        outcome, why = (result.outcome, result.why) if result else (None, "")
        after = unit if unit.startswith("/") or not unit else f" {unit.strip()}"
        base, new = (f"{text}{after}" for text in (row.base, row.new))
        yield _JudgedRow(row.place, base, new, row.difference, outcome, why)
    for result in results.values():
        yield _JudgedRow(result.place, "", "", "", result.outcome, result.why)


def _results(compared: Compared) -> dict[AnyCell, CellResult]:
    return {} if compared.gate is None else {cell.place: cell for cell in compared.gate.cells}


def _campaign(name: str, results: CampaignResults) -> JsonObject:
    return {
        "name": name,
        "topology": results.topology,
        "profile": results.profile,
        "started": results.manifest.get("started"),
        "finished": results.manifest.get("finished"),
        "noise_floor_percent": _percent(results.noise_floor.half_width if results.noise_floor else None),
        "warnings": [{"kind": warning.kind.value, "text": warning.text} for warning in results.warnings],
    }


def _gate(compared: Sequence[Compared]) -> JsonObject | None:
    gates = [new.gate for new in compared if new.gate is not None]
    if not gates:
        return None
    return {
        "threshold_percent": 100 * gates[0].threshold,
        "result": total(gate.outcome for gate in gates).value,
        "cells": {outcome.value: sum(len(gate.with_outcome(outcome)) for gate in gates) for outcome in GateResult},
    }


def _cells(compared: Compared) -> Iterator[JsonObject]:
    results, comparison = _results(compared), compared.comparison
    for difference in compared.differences:
        match difference:
            case Difference():
                cell = _of_difference(difference)
            case SearchDifference():
                cell = _of_search(difference)
            case FlowDifference():
                cell = _of_flows(difference)
        yield {**_place(difference.place), **cell, **_result(results.pop(difference.place, None))}
    left_out = {cell.place: cell.why for cell in comparison.left_out}
    for place in dict.fromkeys((*left_out, *results)):
        yield {**_place(place), "not_compared": left_out.get(place), **_result(results.get(place))}


def _result(result: CellResult | None) -> JsonObject:
    if result is None:
        return {"result": None, "reason": None}
    return {
        "result": result.outcome.value,
        "reason": result.why,
        "smallest_detectable_change_percent": _percent(result.detectable),
        "repetitions_needed": result.repetitions,
    }


def _place(place: AnyCell) -> JsonObject:
    if isinstance(place, FlowCell):
        which: JsonObject = {"uut": place.uut, "scenario": place.scenario, "sources": place.sources}
        return {**which, "workload": place.workload, "load": str(place.load), "figure": place.figure or None}
    if isinstance(place, ComparedCell):
        return {**identity(place), "load": "maximum" if place.load is None else str(place.load), "goal": None}
    return {**identity(place), "load": None, "goal": place.goal}


def _of_difference(difference: Difference) -> JsonObject:
    ratio, test, loss = difference.throughput, difference.throughput_test, difference.loss
    return {
        "base": _side(difference.base, difference.place),
        "new": _side(difference.new, difference.place),
        "change_percent": _percent(ratio.change),
        "change_low_percent": _percent(ratio.change_low),
        "change_high_percent": _percent(ratio.change_high),
        "change_bound": ratio.bound,
        "change_unknown": ratio.why_unknown or None,
        "is_difference": difference.change is not None,
        "doubt": difference.doubt or None,
        "p": test.p,
        "p_corrected": test.corrected,
        "test": test.test.value,
        "loss_change_percentage_points": _percent(loss.difference if loss else None),
        "loss_change_half_width_percentage_points": _percent(loss.half_width if loss else None),
    }


def _side(group: Group, place: ComparedCell) -> JsonObject:
    is_maximum = place.load is None
    return {
        "load": str(group.load),
        "offered_fps": mean(group.offered_fps),
        "throughput_fps": mean(group.maximum_of_run_fps if is_maximum else group.throughput_fps),
        **mean_and_width("throughput_mbps", group.maximum_of_run_mbps if is_maximum else group.throughput_mbps),
        "loss_ratio": mean(group.loss_ratio),
        "valid_trials": len(group.valid),
        "trials": len(group.everything),
        "limited_by": None if group.limited_by is None else str(group.limited_by),
    }


def _of_search(difference: SearchDifference) -> JsonObject:
    return {
        "base": _limit(difference.base, difference.place),
        "new": _limit(difference.new, difference.place),
        "change_percent": _percent(difference.change),
        "change_low_percent": _percent(_finite(difference.least - 1)),
        "change_high_percent": _percent(_finite(difference.greatest - 1)),
        "is_difference": difference.change is not None,
        "unstable": difference.unstable,
        "doubt": difference.doubt or None,
    }


def _of_flows(difference: FlowDifference) -> JsonObject:
    ratio, test = difference.ratio, difference.test
    return {
        "base": _flow_side(difference.base, difference.figure),
        "new": _flow_side(difference.new, difference.figure),
        "change_percent": _percent(ratio.change),
        "change_low_percent": _percent(ratio.change_low),
        "change_high_percent": _percent(ratio.change_high),
        "change_unknown": ratio.why_unknown or None,
        "is_difference": difference.change is not None,
        "is_worse": difference.benefit is not None and difference.benefit < 0,
        "doubt": difference.doubt or None,
        "p": test.p,
        "p_corrected": test.corrected,
        "test": test.test.value,
    }


def _flow_side(group: WorkloadGroup, figure: FlowFigure) -> JsonObject:
    return {
        **mean_and_width("value", group.figures.get(figure.name)),
        "unit": figure.unit,
        "valid_trials": len(group.valid),
        "trials": len(group.trials),
    }


def _limit(bounds: Range, what: Searched) -> JsonObject:
    upper = _finite(bounds.high)
    rates = rate_columns({"lower": bounds.low, "upper": upper}, what.traffic, what.unit)
    return {**rates, "searches": bounds.searches}


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def _markdown(text: str) -> str:
    """Text that is no markup in a table cell, on one line."""
    for special in "\\`*_[]<>|":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())
