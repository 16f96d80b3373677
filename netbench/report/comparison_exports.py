"""A comparison for other programs: JSON with a schema, JUnit XML for CI, Markdown for a comment.

Each format covers campaigns with loads and campaigns of searches: a row per cell.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from xml.etree import ElementTree

from netbench.model.campaign import CampaignResults
from netbench.model.counts import l1_mbps
from netbench.model.frame_mix import size_text
from netbench.report.comparison import Compared, gate_advice, gate_words, search_row, throughput_row
from netbench.report.formats import mean
from netbench.statistics.compared_cells import DISTURBING, ComparedCell, Comparison, Difference, half_width_of
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval
from netbench.statistics.regression_gate import CellResult, GateResult, total
from netbench.statistics.search_comparison import Range, SearchDifference, Searched

SCHEMA, SCHEMA_VERSION = "netbench-comparison", 1
Document = Callable[[str, CampaignResults, Sequence[Compared]], str]
"""The text of a comparison, from the name of the base, its results, and the others."""

_MAXIMUM = "maximum"
_MARKDOWN_CELLS = 50  # rows of a table that fit into a comment


def json_document(base: str, results: CampaignResults, compared: Sequence[Compared]) -> str:
    """The comparison as JSON; `docs/results.md` has the schema."""
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
    root = ElementTree.Element("testsuites", name=_xml(f"netbench compare, base {base}"))
    for new in compared:
        rows = list(_rows(new))
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(f"{new.name} against {base}"), tests=str(len(rows)))
        for attribute, outcome in (("failures", GateResult.FAILED), ("errors", GateResult.INCONCLUSIVE)):
            suite.set(attribute, str(sum(row.outcome is outcome for row in rows)))
        suite.set("skipped", str(sum(row.outcome in (None, GateResult.NOT_JUDGED) for row in rows)))
        for row in rows:
            place = row.place
            case = ElementTree.SubElement(
                suite, "testcase", classname=_xml(f"{place.uut}.{place.scenario}"), name=_xml(str(place))
            )
            message = _xml("; ".join(text for text in (row.words, row.why) if text))
            if row.outcome is GateResult.FAILED:
                ElementTree.SubElement(case, "failure", message=message, type="regression")
            elif row.outcome is GateResult.INCONCLUSIVE:
                ElementTree.SubElement(case, "error", message=message, type="inconclusive")
            elif row.outcome is not GateResult.PASSED:
                ElementTree.SubElement(case, "skipped", message=message)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def markdown_document(base: str, results: CampaignResults, compared: Sequence[Compared]) -> str:
    """The result of the gate, warnings, and a table of the cells, those of the highest throughput first."""
    lines = []
    for new in compared:
        lines.append(f"## {_markdown(new.name)} against {_markdown(base)}")
        lines += ["", _markdown(new.verdict), ""]
        if new.gate is not None:
            lines += [f"**Gate: {_markdown(gate_words(new.gate))}**", ""]
            lines += [f"- {_markdown(line)}" for line in gate_advice(new.gate)]
        for name, side in ((base, results), (new.name, new.results)):
            lines += [
                f"- Warning: {_markdown(name)} ({warning.kind.value}): {_markdown(warning.text)}"
                for warning in side.warnings
                if warning.kind in DISTURBING
            ]
        rows = list(_rows(new))
        lines += ["", "| cell | base | new | change | result |", "|---|---|---|---|---|"]
        for row in rows[:_MARKDOWN_CELLS]:
            result = "" if row.outcome is None else row.outcome.value
            texts = (str(row.place), row.base, row.new, row.words or row.why, result)
            lines.append(f"| {' | '.join(map(_markdown, texts))} |")
        if len(rows) > _MARKDOWN_CELLS:
            lines.append(f"\n{len(rows) - _MARKDOWN_CELLS:,} more cells: see `--format json`.")
        lines.append("")
    return "\n".join(lines)


DOCUMENTS: dict[str, Document] = {"json": json_document, "junit": junit_document, "markdown": markdown_document}


@dataclass(frozen=True, slots=True)
class _JudgedRow:
    """A cell in words: both sides, the change, and the outcome of the gate."""

    place: ComparedCell | Searched
    base: str
    new: str
    words: str
    outcome: GateResult | None
    why: str


def _rows(compared: Compared) -> Iterator[_JudgedRow]:
    results = _results(compared)
    for difference in compared.differences:
        row, unit = (
            (throughput_row(difference), "Mbit/s")
            if isinstance(difference, Difference)
            else (search_row(difference), "kfps")
        )
        result = results.pop(row.place, None)
        outcome, why = (result.outcome, result.why) if result else (None, "")
        yield _JudgedRow(row.place, f"{row.base} {unit}", f"{row.new} {unit}", row.difference, outcome, why)
    for result in results.values():
        yield _JudgedRow(result.place, "", "", "", result.outcome, result.why)


def _results(compared: Compared) -> dict[ComparedCell | Searched, CellResult]:
    return {} if compared.gate is None else {cell.place: cell for cell in compared.gate.cells}


def _campaign(name: str, results: CampaignResults) -> dict[str, object]:
    floor = half_width_of(results.noise_floor)
    return {
        "name": name,
        "topology": results.topology,
        "profile": results.profile,
        "started": results.manifest.get("started"),
        "finished": results.manifest.get("finished"),
        "noise_floor_percent": None if floor is None else 100 * floor,
        "warnings": [{"kind": warning.kind.value, "text": warning.text} for warning in results.warnings],
    }


def _gate(compared: Sequence[Compared]) -> dict[str, object] | None:
    gates = [new.gate for new in compared if new.gate is not None]
    if not gates:
        return None
    return {
        "threshold_percent": 100 * gates[0].threshold,
        "result": total(gate.outcome for gate in gates).value,
        "cells": {outcome.value: sum(len(gate.with_outcome(outcome)) for gate in gates) for outcome in GateResult},
    }


def _cells(compared: Compared) -> Iterator[dict[str, object]]:
    results = _results(compared)
    for difference in compared.differences:
        cell = _of_difference(difference) if isinstance(difference, Difference) else _of_search(difference)
        place = difference.place if isinstance(difference, Difference) else difference.what
        yield {**cell, **_result(results.pop(place, None))}
    comparison = compared.comparison
    left_out: dict[ComparedCell | Searched, str] = (
        {cell.place: cell.why for cell in comparison.left_out}
        if isinstance(comparison, Comparison)
        else {limit.what: limit.why for limit in comparison.left_out}
    )
    for place in dict.fromkeys((*left_out, *results)):
        yield {**_place(place), "not_compared": left_out.get(place), **_result(results.get(place))}


def _result(result: CellResult | None) -> dict[str, object]:
    if result is None:
        return {"result": None, "reason": None}
    return {
        "result": result.outcome.value,
        "reason": result.why,
        "smallest_detectable_change_percent": _percent(result.detectable),
        "repetitions_needed": result.repetitions,
    }


def _place(place: ComparedCell | Searched) -> dict[str, object]:
    if isinstance(place, ComparedCell):
        what: dict[str, object] = {"load": _MAXIMUM if place.load is None else str(place.load), "goal": None}
    else:
        what = {"load": None, "goal": place.goal}
    size = size_text(place.frame_size)
    return {"uut": place.uut, "scenario": place.scenario, "sources": place.sources, "frame_size": size, **what}


def _of_difference(difference: Difference) -> dict[str, object]:
    ratio, test = difference.throughput, difference.throughput_test
    return {
        **_place(difference.place),
        "base": _side(difference.base),
        "new": _side(difference.new),
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
        "loss_change_percentage_points": None if difference.loss is None else 100 * difference.loss.difference,
        "loss_change_half_width_percentage_points": None
        if difference.loss is None
        else _percent(difference.loss.half_width),
    }


def _side(group: Group) -> dict[str, object]:
    return {
        "load": str(group.load),
        "offered_fps": mean(group.offered_fps),
        "throughput_fps": mean(group.throughput_fps),
        "throughput_mbps": mean(group.throughput_mbps),
        "throughput_mbps_ci95": _half_width(group.throughput_mbps),
        "loss_ratio": mean(group.loss_ratio),
        "valid_trials": len(group.valid),
        "trials": len(group.everything),
        "limited_by": group.limited_by or ("the UUT" if group.limited_by == "" else None),
    }


def _of_search(difference: SearchDifference) -> dict[str, object]:
    return {
        **_place(difference.what),
        "base": _limit(difference.base, difference.what),
        "new": _limit(difference.new, difference.what),
        "change_percent": _percent(difference.change),
        "change_low_percent": _percent(_finite(difference.least - 1)),
        "change_high_percent": _percent(_finite(difference.greatest - 1)),
        "is_difference": difference.change is not None,
        "unstable": difference.unstable,
        "doubt": difference.doubt or None,
    }


def _limit(found: Range, what: Searched) -> dict[str, object]:
    upper = _finite(found.high)
    return {
        "lower_fps": found.low,
        "upper_fps": upper,
        "lower_mbps": l1_mbps(found.low, what.frame_size),
        "upper_mbps": l1_mbps(upper, what.frame_size),
        "searches": found.searches,
    }


def _half_width(interval: Interval | None) -> float | None:
    return None if interval is None else interval.half_width


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _finite(number: float) -> float | None:
    return None if number in (inf, -inf) else number


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 excludes."""
    return "".join(char if char in "\t\n\r" or char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _markdown(text: str) -> str:
    """Text that is no markup in a table cell, on difference line."""
    for special in "\\`*_[]<>|":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())
