"""summary.json: the results of a campaign or a self-test, for other programs; schema: docs/read-the-report.md."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from netbench.model.campaign import CampaignResults
from netbench.model.counts import l1_mbps
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT
from netbench.model.search import SearchResult
from netbench.model.selftest_record import SelftestRecord
from netbench.model.units import LoadKind
from netbench.model.verdict import Verdict
from netbench.model.workload import Workload
from netbench.report.findings import findings
from netbench.report.formats import mean, shown_rate
from netbench.report.stability import steadiness_warnings
from netbench.results.atomic import write_atomically
from netbench.statistics.compared_cells import ComparedCell, Searched
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, best_groups, group_trials
from netbench.statistics.intervals import Interval
from netbench.statistics.limits import with_limits
from netbench.statistics.workload_groups import WorkloadGroup, workload_groups_of

SCHEMA, SCHEMA_VERSION = "netbench-summary", 1


def write_summary(results: CampaignResults, path: Path) -> None:
    """Write the summary of a campaign, whole or not at all; UsageError or TestbedError where that is not possible."""
    _write(campaign_summary(results), path)


def write_selftest_summary(record: SelftestRecord, path: Path) -> None:
    """Write the summary of a self-test likewise."""
    _write(selftest_summary(record), path)


def campaign_summary(results: CampaignResults) -> dict[str, Any]:
    """The summary of a campaign, finished or not."""
    groups = with_limits(group_trials(results))
    trials = list(results.wanted_trials)
    verdicts = Counter(trial.verdict for trial in trials)
    reasons = Counter(kind.value for trial in trials for kind in {reason.kind for reason in trial.reasons})
    warnings = [*results.warnings, *(() if results.searches else steadiness_warnings(steadiness_of(groups)))]
    floor = results.noise_floor
    return {
        **_head("search" if results.searches else "run"),
        "topology": results.topology,
        "profile": results.profile,
        "started": results.manifest.get("started"),
        "finished": results.manifest.get("finished"),
        "complete": results.manifest.get("finished") is not None,
        "trials": {
            **{verdict.value: verdicts[verdict] for verdict in Verdict},
            "planned": results.planned_trials,
            "skipped": results.skipped_trials,
            "calibration": len(results.trials) - len(trials),
            "discarded_attempts": sum(len(trial.thrown_away) for trial in trials),
            "reasons": dict(sorted(reasons.items())),
        },
        "findings": [{"topic": finding.topic, "text": finding.text} for finding in findings(results, groups)],
        "warnings": [{"kind": warning.kind.value, "text": warning.text} for warning in warnings],
        "noise_floor_percent": None if floor is None else 100 * floor.half_width,
        "maxima": [_maximum(group) for group in best_groups(groups)],
        "loads": [_load(group) for group in groups],
        "flows": [_flows(group) for group in workload_groups_of(results)],
        "searches": [_search(search) for search in (*results.maxima_searches, *results.searches)],
    }


def selftest_summary(record: SelftestRecord) -> dict[str, Any]:
    """The summary of a self-test."""
    outcomes = {True: "passed", False: "failed", None: "skipped"}
    return {
        **_head("selftest"),
        "topology": record.topology,
        "generator": record.generator,
        "verdict": "passed" if record.passed else "failed",
        "checks": [
            {"name": check.name, "uut": check.uut, "verdict": outcomes[check.passed], "detail": check.detail}
            for check in record.checks
        ],
        "ceilings": [asdict(ceiling) for ceiling in record.ceilings],
    }


def mean_and_width(name: str, interval: Interval | None) -> dict[str, float | None]:
    """A mean and the half width of its 95 % interval."""
    return {name: mean(interval), f"{name}_ci95": None if interval is None else interval.half_width}


def _head(kind: str) -> dict[str, object]:
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "netbench": version("netbench"), "kind": kind}


def identity(cell: Group | ComparedCell | Searched) -> dict[str, object]:
    """The UUT, scenario, number of sources, frame size and packet of a result; an empty packet is the plain one."""
    return {
        "uut": cell.uut,
        "scenario": cell.scenario,
        "sources": cell.sources,
        **traffic_identity(cell.traffic if isinstance(cell, Searched) else cell.frame_size),
    }


def traffic_identity(traffic: FrameSize | Workload) -> dict[str, object]:
    """The frame size and packet of a result, or its workload; an empty packet is the plain one."""
    if isinstance(traffic, Workload):
        return {"workload": traffic.name}
    return {"frame_size": f"{traffic.without_packet:,}", "packet": traffic.packet}


def rate_columns(
    rates: Mapping[str, float | None], traffic: FrameSize | Workload, unit: LoadKind
) -> dict[str, float | None]:
    """Rates by name: of frames in frames/s and in Mbit/s (L1), of a workload in operations/s or Mbit/s of payload."""
    columns: dict[str, float | None] = {}
    for name, rate in rates.items():
        if isinstance(traffic, FrameSize):
            columns |= {f"{name}_fps": rate, f"{name}_mbps": l1_mbps(rate, traffic.mean_bytes)}
        else:
            key = "per_s" if unit is LoadKind.OPERATION_RATE else "mbps"
            columns[f"{name}_{key}"] = None if rate is None else shown_rate(rate, unit)
    return columns


def _maximum(group: Group) -> dict[str, object]:
    return {
        **identity(group),
        "load": str(group.load),
        "loads": [str(load) for load in group.maximum_loads],
        **mean_and_width("throughput_fps", group.maximum_fps),
        **mean_and_width("throughput_mbps", group.maximum_mbps),
        "limited_by": str(group.limited_by or LIMITED_BY_UUT),
        "is_lower_bound": group.is_lower_bound,
    }


def _load(group: Group) -> dict[str, object]:
    return {
        **identity(group),
        "load": str(group.load),
        "intended_fps": group.intended_fps,
        "offered_fps": mean(group.offered_fps),
        **mean_and_width("throughput_fps", group.throughput_fps),
        "throughput_mbps": mean(group.throughput_mbps),
        "loss_ratio": mean(group.loss_ratio),
        "valid": len(group.valid),
        "suspicious": len(group.suspicious),
        "invalid": len(group.invalid),
    }


def _flows(group: WorkloadGroup) -> dict[str, object]:
    """A cell of flows with its known figures, in the units of their names."""
    figures: dict[str, float | None] = {}
    for name, interval in group.figures.items():
        figures |= mean_and_width(name, interval)
    return {
        "uut": group.uut,
        "scenario": group.scenario,
        "sources": group.sources,
        "workload": group.workload.name,
        "tool": group.tool or None,
        "load": str(group.load),
        "figures": figures,
        "valid": len(group.valid),
        "suspicious": len(group.suspicious),
        "invalid": len(group.invalid),
    }


def _search(search: SearchResult) -> dict[str, object]:
    """A search with its bounds of each stream: of frames in frames/s and Mbit/s (L1), of flows in the unit."""
    rates = {"lower": search.lower, "upper": search.upper, "throughput": search.throughput}
    return {
        "uut": search.uut,
        "scenario": search.scenario,
        "sources": len(search.streams),
        **traffic_identity(search.kind_of_traffic),
        "repetition": search.repetition,
        "method": search.method,
        "goal": search.goal,
        "for_maxima": search.for_maxima,
        "verdict": search.state.value,
        **rate_columns(rates, search.kind_of_traffic, search.unit),
        "limited_by": search.limited_by.stored or None,
        "unstable": search.unstable or None,
        "why": search.why or None,
        "trials": search.trials,
    }


def _write(document: dict[str, object], path: Path) -> None:
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
