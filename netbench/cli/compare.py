"""`netbench compare`: campaigns side by side, with the differences of their machines first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from netbench.cli.comparison_tables import print_line, print_pair
from netbench.cli.output import visible
from netbench.errors import ExitCode, UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.verdict import CampaignWarning
from netbench.model.workload import Workload
from netbench.report.comparison import (
    Compared,
    cell_result_words,
    gate_advice,
    gate_words,
    how_flows_tested,
    how_searches_compare,
    how_tested,
)
from netbench.report.comparison_exports import Document
from netbench.report.comparison_page import write_comparison
from netbench.report.flow_comparison import flow_comparisons
from netbench.report.formats import count, sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.styles import LEGEND
from netbench.results.atomic import write_atomically
from netbench.results.comparability import (
    ChangedSetting,
    campaign_differences,
    configuration_differences,
    schedule_of,
    split_versions,
)
from netbench.results.directory import ResultDirectory
from netbench.statistics.compared_cells import (
    ALL_CELLS,
    DISTURBING,
    Absence,
    AnyCell,
    Campaign,
    CellSelection,
    Comparison,
    Searched,
    reject_unknown,
)
from netbench.statistics.comparison import compare, why_nothing_compares
from netbench.statistics.drift import steadiness_of
from netbench.statistics.flow_comparison import FlowCampaign, compare_flows
from netbench.statistics.flow_gate import judge_flows
from netbench.statistics.regression_gate import Gate, GateResult, judge, judge_searches, total
from netbench.statistics.search_comparison import SearchComparison, compare_searches

_SHOWN = 12  # at most, of different settings and of regressions
_COMPLETE = "complete"
_SEARCHES = ("search", "slo")  # kinds of schedules
_STYLES = {GateResult.PASSED: "green", GateResult.FAILED: "red", GateResult.INCONCLUSIVE: "yellow"}
_EXIT_CODES = {
    GateResult.PASSED: ExitCode.DONE,
    GateResult.FAILED: ExitCode.INVALID_RESULTS,
    GateResult.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class _StoredCampaign:
    """A result directory with its results and its name in the comparison."""

    name: str
    directory: ResultDirectory
    results: CampaignResults


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The cells of campaigns to compare, how they are judged, and where the result is written.

    `fail_on_regression` is the threshold of the gate in percent; None: no gate. With `accept_disturbed` the cells of
    disturbed campaigns are judged like others. A `document` is written to `output`, or printed instead of the text.
    """

    selection: CellSelection = ALL_CELLS
    fail_on_regression: float | None = None
    accept_disturbed: bool = False
    html: Path | None = None
    document: Document | None = None
    output: Path | None = None

    @property
    def prints_text(self) -> bool:
        """Whether the comparison is printed as text."""
        return self.document is None or self.output is not None


def run_compare(directories: Sequence[Path], console: Console, options: CompareOptions) -> ExitCode:
    """Compare campaigns to the first, print the result, and write the files that the options name.

    The exit code is that of the gate: 0 passed, 1 failed, 5 inconclusive; 0 without a gate. UsageError for a path that
    is no result directory, and for campaigns that cannot be compared at all.
    """
    in_turn = len(directories) == 1
    if in_turn:
        base, *others = _versions_of(directories[0])
        options = replace(options, accept_disturbed=True)  # a disturbance of the host affected both versions
    else:
        base, *others = _campaigns_in(directories)
    reject_unknown(options.selection, [campaign.results for campaign in (base, *others)])
    compared = _compared(base, others, options, in_turn=in_turn)
    if options.prints_text:
        _print(console, base, others, compared)
    if options.html is not None:
        write_comparison(base.results, compared, options.html)
    _write_document(console, options, base, compared)
    gates = [pair.gate for pair in compared if pair.gate is not None]
    if options.prints_text:
        for gate in gates:
            _print_gate(console, gate)
    return _EXIT_CODES[total(gate.outcome for gate in gates)] if gates else ExitCode.DONE


def _compared(
    base: _StoredCampaign, others: Sequence[_StoredCampaign], options: CompareOptions, *, in_turn: bool
) -> list[Compared]:
    """Compare campaigns with loads or flows, or the limits of those that searched; UsageError without a common cell."""
    is_search = bool(base.results.searches)
    if base.results.has_flows and not is_search:
        return _compared_flows(base, others, options, in_turn=in_turn)
    selection, accept_disturbed = options.selection, options.accept_disturbed
    limits = [
        compare_searches(
            base.name,
            base.results,
            new.name,
            new.results,
            selection=selection,
            accept_disturbed=accept_disturbed,
            of_maxima=not is_search,
        )
        for new in others
    ]
    comparisons: Sequence[Comparison | SearchComparison] = limits
    if not is_search:
        campaigns = [Campaign.of(campaign.name, campaign.results, selection) for campaign in (base, *others)]
        comparisons = compare(campaigns[0], campaigns[1:], accept_disturbed=accept_disturbed, in_turn=in_turn)
    compared = []
    for new, comparison, of_limits in zip(others, comparisons, limits, strict=True):
        is_dead = any(left_out.dead for left_out in comparison.left_out)
        if not (comparison.differences or of_limits.differences or is_dead):
            raise UsageError(_why_not_compared(base.name, new.name, comparison, selection))
        gate = None
        if options.fail_on_regression is not None:
            threshold = options.fail_on_regression / 100
            if isinstance(comparison, SearchComparison):
                gate = judge_searches(comparison, threshold)
            else:
                gate = judge(comparison, threshold, of_limits)
        maxima = None if is_search else of_limits
        compared.append(Compared(comparison, new.results, _settings(base, new), maxima, gate))
    return compared


def _compared_flows(
    base: _StoredCampaign, others: Sequence[_StoredCampaign], options: CompareOptions, *, in_turn: bool
) -> list[Compared]:
    """Compare campaigns with flows; UsageError for those with no cell in common."""
    campaigns = [FlowCampaign.of(campaign.name, campaign.results, options.selection) for campaign in (base, *others)]
    comparisons = compare_flows(campaigns[0], campaigns[1:], accept_disturbed=options.accept_disturbed, in_turn=in_turn)
    compared = []
    for new, comparison in zip(others, comparisons, strict=True):
        if not comparison.differences and not any(left_out.dead for left_out in comparison.left_out):
            is_in_both = (
                cell for cell in comparison.left_out if cell.kind not in (Absence.ONE_SIDE, Absence.UNFINISHED)
            )
            why, in_common = next((str(cell) for cell in is_in_both), ""), sentence("comparison.same_flows")
            text = sentence("comparison.cannot_compare", base=base.name, new=new.name, why=why or in_common)
            raise UsageError(text if why else sentence("comparison.compare_same", text=text))
        limit, maxima = options.fail_on_regression, _maxima_of_workloads(base, new, options)
        gate = None if limit is None else judge_flows(comparison, limit / 100, maxima)
        compared.append(Compared(comparison, new.results, _settings(base, new), maxima, gate))
    return compared


def _maxima_of_workloads(
    base: _StoredCampaign, new: _StoredCampaign, options: CompareOptions
) -> SearchComparison | None:
    """Return the searches for the maxima that loads of tools are shares of; None without any.

    Those of the frames that neighbours forward are left out.
    """
    found = compare_searches(
        base.name,
        base.results,
        new.name,
        new.results,
        selection=options.selection,
        accept_disturbed=options.accept_disturbed,
        of_maxima=True,
    )
    differences = tuple(change for change in found.differences if isinstance(change.place.traffic, Workload))
    left_out = tuple(cell for cell in found.left_out if isinstance(_traffic_of(cell.place), Workload))
    return replace(found, differences=differences, left_out=left_out) if differences or left_out else None


def _traffic_of(place: AnyCell) -> object:
    return place.traffic if isinstance(place, Searched) else None


def _why_not_compared(base: str, new: str, comparison: Comparison | SearchComparison, selection: CellSelection) -> str:
    if isinstance(comparison, SearchComparison):
        nothing = sentence("comparison.nothing_in_common")
        why = next((left_out.why for left_out in comparison.left_out), nothing)
        return sentence("comparison.cannot_compare", base=base, new=new, why=why)
    why = why_nothing_compares(comparison, is_selection=selection != ALL_CELLS)
    return sentence("comparison.compare_same", text=sentence("comparison.cannot_compare", base=base, new=new, why=why))


def _state(results: CampaignResults) -> str:
    """`complete`, or what is missing."""
    if results.searches:
        return _COMPLETE if results.manifest.get("finished") else "unfinished, searches are missing"
    missing = results.missing_trials
    return _COMPLETE if missing <= 0 else f"unfinished, {missing:,} of {results.planned_trials:,} trials missing"


def _settings(base: _StoredCampaign, new: _StoredCampaign) -> tuple[ChangedSetting, ...]:
    """The settings that differ; an incomplete campaign is one."""
    states = (_state(base.results), _state(new.results))
    unfinished = () if states == (_COMPLETE, _COMPLETE) else (ChangedSetting("campaign", *states, matters=True),)
    return (
        *unfinished,
        *campaign_differences(base.results, new.results),
        *configuration_differences(base.directory, new.directory),
    )


def _versions_of(path: Path) -> tuple[_StoredCampaign, _StoredCampaign]:
    """Return the two versions of the UUTs of one campaign."""
    directory = ResultDirectory(path)
    versions = split_versions(directory.results(counters=False))
    if versions is None:
        raise UsageError(sentence("comparison.one_version", path=path))
    name = visible(path.resolve().name)
    base, new = versions
    return _StoredCampaign(f"{name} (base)", directory, base), _StoredCampaign(f"{name} (new)", directory, new)


def _campaigns_in(directories: Sequence[Path]) -> list[_StoredCampaign]:
    seen: dict[Path, Path] = {}
    for path in directories:
        if (same := seen.setdefault(path.resolve(), path)) is not path:
            raise UsageError(sentence("comparison.same_directory", path=path, same=same))
    names = [path.resolve().name for path in directories]
    unique = len(set(names)) == len(names)
    campaigns = []
    for path, name in zip(directories, names, strict=True):
        directory = ResultDirectory(path)
        results = directory.results(counters=False)
        campaigns.append(_StoredCampaign(visible(name if unique else str(path)), directory, results))
    for campaign in campaigns:
        if not campaign.results.searches and schedule_of(campaign.directory) in _SEARCHES:
            path = campaign.directory.path
            raise UsageError(sentence("comparison.no_search_yet", name=campaign.name, path=path))
    flows, frames = (
        [campaign.name for campaign in campaigns if campaign.results.has_flows is kind] for kind in (True, False)
    )
    if flows and frames:
        raise UsageError(sentence("comparison.one_traffic", flows=flows[0], frames=frames[0]))
    searched, other = (
        [campaign.name for campaign in campaigns if bool(campaign.results.searches) is kind] for kind in (True, False)
    )
    if searched and other:
        raise UsageError(sentence("comparison.searches_only", searched=searched[0], other=other[0]))
    return campaigns


def _write_document(
    console: Console, options: CompareOptions, base: _StoredCampaign, compared: Sequence[Compared]
) -> None:
    """Write the comparison as a document, and print the names of the written files."""
    if options.document is not None:
        text = options.document(base.name, base.results, compared)
        if options.output is None:
            console.file.write(text)
        else:
            write_atomically(options.output, text.encode(errors="backslashreplace"))
            print_line(console, f"written: {options.output}", soft_wrap=True)
    if options.html is not None and options.prints_text:
        print_line(console, f"page: {options.html}", soft_wrap=True)


def _print_gate(console: Console, gate: Gate) -> None:
    console.print()
    for outcome, lead in ((GateResult.FAILED, "regression"), (GateResult.INCONCLUSIVE, "inconclusive")):
        cells = gate.with_outcome(outcome)
        for cell in cells[:_SHOWN]:
            print_line(console, f"{lead}: {gate.name}: {cell_result_words(cell)}", _STYLES[outcome])
        if len(cells) > _SHOWN:
            print_line(console, f"{lead}: {len(cells) - _SHOWN:,} more", _STYLES[outcome])
    if left := gate.with_outcome(GateResult.NOT_JUDGED):
        print_line(console, f"not judged: {count(len(left), 'cell')}, see above", "yellow")
    for line in gate_advice(gate):
        print_line(console, line)
    print_line(console, f"gate, {gate.name}: {gate_words(gate)}", f"bold {_STYLES[gate.outcome]}")


def _print(
    console: Console, base: _StoredCampaign, others: Sequence[_StoredCampaign], compared: Sequence[Compared]
) -> None:
    for role, campaign in (("base", base), *(("new", new) for new in others)):
        started = str(campaign.results.manifest.get("started") or "unknown")
        what = f"{campaign.results.topology} × {campaign.results.profile}, started {started}"
        print_line(console, f"{role:4}  {campaign.name}: {what}")
    for pair in compared:
        _print_settings(console, f"{pair.base} → {pair.name}", pair.differs)
    for campaign in (base, *others):
        warnings = (warning for warning in campaign.results.warnings if warning.kind in DISTURBING)
        _print_warnings(console, f"disturbed, {campaign.name}", warnings)
    comparisons = [pair.comparison for pair in compared if isinstance(pair.comparison, Comparison)]
    for side in [comparisons[0].base, *(comparison.new for comparison in comparisons)] if comparisons else []:
        _print_warnings(console, f"not steady, {side.name}", steadiness_warnings(steadiness_of(side.groups)))
    for pair in compared:
        print_pair(console, pair, base.results.emulated | pair.results.emulated)
    console.print()
    flows = [comparison for _, comparison in flow_comparisons(compared)]
    searched = not comparisons and not flows
    for line in how_flows_tested(flows) if flows else [how_searches_compare()] if searched else how_tested(comparisons):
        print_line(console, line)
    if searched and any(search.tests is not None for side in (base, *others) for search in side.results.searches):
        print_line(console, sentence("comparison.tests_not_compared"))
    if not searched and any(campaign.results.emulated for campaign in (base, *others)):
        print_line(console, LEGEND)


def _print_settings(console: Console, names: str, differs: Sequence[ChangedSetting]) -> None:
    """Print the differences apart from the numbers, in detail for those that matter, in one line for the others."""
    if not differs:
        return
    console.print()
    matters = [difference for difference in differs if difference.matters]
    if matters:
        print_line(console, f"warning: settings differ, {names}:", "yellow")
    for difference in matters[:_SHOWN]:
        print_line(console, f"  {difference}")
    others = matters[_SHOWN:] + [difference for difference in differs if not difference.matters]
    if others:
        more = f", and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        lead = "  likewise" if matters else f"these differ too, {names}"
        print_line(console, f"{lead}: {', '.join(other.setting for other in others[:_SHOWN])}{more}")


def _print_warnings(console: Console, lead: str, warnings: Iterable[CampaignWarning]) -> None:
    for warning in warnings:
        console.print()
        print_line(console, f"warning: {lead} ({warning.kind.value}): {warning.text}", "yellow")
