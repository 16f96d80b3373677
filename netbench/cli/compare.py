"""`netbench compare`: campaigns side by side, with the differences of their machines first."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import fill

from rich.console import Console
from rich.text import Text

from netbench.cli.console import TerminalTable
from netbench.cli.output import visible
from netbench.errors import ExitCode, UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import size_text
from netbench.model.verdict import CampaignWarning
from netbench.report.comparison import (
    Compared,
    ComparedRow,
    cell_result_words,
    gate_advice,
    gate_words,
    how_searches_compare,
    how_tested,
    loss_row,
    search_row,
    throughput_row,
)
from netbench.report.comparison_exports import Document
from netbench.report.comparison_page import write_comparison
from netbench.report.formats import count, heading_of, mean, sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.styles import LEGEND, label
from netbench.results.atomic import write_atomically
from netbench.results.comparability import (
    ChangedSetting,
    campaign_differences,
    configuration_differences,
    schedule_of,
    split_versions,
)
from netbench.results.directory import ResultDirectory
from netbench.statistics.compared_cells import ALL_CELLS, DISTURBING, Campaign, CellSelection, Comparison, Difference
from netbench.statistics.comparison import compare, why_nothing_compares
from netbench.statistics.drift import steadiness_of
from netbench.statistics.regression_gate import Gate, GateResult, judge, judge_searches, total
from netbench.statistics.search_comparison import SearchComparison, compare_searches

_SHOWN = 12  # at most, of different settings and of regressions
_ROWS = 100  # at most, of a table
_WIDE = 24  # width of a difference in characters
_COMPLETE = "complete"
_SEARCH = "search"  # a kind of schedule
_STYLES = {GateResult.PASSED: "green", GateResult.FAILED: "red", GateResult.INCONCLUSIVE: "yellow"}


@dataclass(frozen=True, slots=True)
class _StoredCampaign:
    """A result directory with its results and its name in the comparison."""

    name: str
    directory: ResultDirectory
    results: CampaignResults

    @property
    def measured(self) -> Iterator[tuple[str, str, str]]:
        """UUT, scenario and frame size of all its measurements."""
        for search in self.results.searches:
            yield search.uut, search.scenario, str(search.frame_size)
        for trial in () if self.results.searches else self.results.trials:
            yield trial.spec.uut, trial.spec.scenario, str(trial.spec.frame_size)

    @property
    def state(self) -> str:
        """`complete`, or what is missing."""
        results = self.results
        if results.searches:
            return _COMPLETE if results.manifest.get("finished") else "unfinished, searches are missing"
        missing = results.planned_trials - len(results.trials) - results.skipped_trials
        return _COMPLETE if missing <= 0 else f"unfinished, {missing:,} of {results.planned_trials:,} trials missing"


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

    @property
    def threshold(self) -> float | None:
        """The threshold of the gate as a ratio."""
        return None if self.fail_on_regression is None else self.fail_on_regression / 100


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
    _reject_unknown(options.selection, [base, *others])
    compared = (
        _compare_searches(base, others, options)
        if base.results.searches
        else _compare_loads(base, others, options, in_turn=in_turn)
    )
    if options.prints_text:
        _print(console, base, others, compared)
    if options.html is not None:
        write_comparison(base.results, compared, options.html)
    _write_document(console, options, base, compared)
    gates = [pair.gate for pair in compared if pair.gate is not None]
    if not gates:
        return ExitCode.DONE
    if options.prints_text:
        for gate in gates:
            _print_gate(console, gate)
    codes = {GateResult.PASSED: ExitCode.DONE, GateResult.FAILED: ExitCode.INVALID_RESULTS}
    return codes.get(total(gate.outcome for gate in gates), ExitCode.INCONCLUSIVE)


def _compare_loads(
    base: _StoredCampaign, others: Sequence[_StoredCampaign], options: CompareOptions, *, in_turn: bool
) -> list[Compared]:
    campaigns = [Campaign.of(campaign.name, campaign.results, options.selection) for campaign in (base, *others)]
    comparisons = compare(campaigns[0], campaigns[1:], accept_disturbed=options.accept_disturbed, in_turn=in_turn)
    compared = []
    for new, comparison in zip(others, comparisons, strict=True):
        maxima = compare_searches(
            base.name,
            base.results,
            new.name,
            new.results,
            selection=options.selection,
            accept_disturbed=options.accept_disturbed,
            of_maxima=True,
        )
        is_dead = any(left_out.dead for left_out in comparison.left_out)
        if not (comparison.differences or maxima.differences or is_dead):
            why = why_nothing_compares(comparison, is_selection=options.selection != ALL_CELLS)
            text = sentence("comparison.cannot_compare", base=base.name, new=new.name, why=why)
            raise UsageError(sentence("comparison.compare_same", text=text))
        gate = None if options.threshold is None else judge(comparison, options.threshold, maxima)
        compared.append(Compared(comparison, new.results, _settings(base, new), maxima, gate))
    return compared


def _compare_searches(
    base: _StoredCampaign, others: Sequence[_StoredCampaign], options: CompareOptions
) -> list[Compared]:
    """Compare campaigns that searched: their limits, and not the trials of the searches."""
    compared = []
    for new in others:
        comparison = compare_searches(
            base.name,
            base.results,
            new.name,
            new.results,
            selection=options.selection,
            accept_disturbed=options.accept_disturbed,
        )
        if not (comparison.differences or any(left_out.dead for left_out in comparison.left_out)):
            nothing = sentence("comparison.nothing_in_common")
            why = next((left_out.why for left_out in comparison.left_out), nothing)
            raise UsageError(sentence("comparison.cannot_compare", base=base.name, new=new.name, why=why))
        gate = None if options.threshold is None else judge_searches(comparison, options.threshold)
        compared.append(Compared(comparison, new.results, _settings(base, new), gate=gate))
    return compared


def _settings(base: _StoredCampaign, new: _StoredCampaign) -> tuple[ChangedSetting, ...]:
    """The settings that differ; an incomplete campaign is one."""
    states = (base.state, new.state)
    unfinished = () if states == (_COMPLETE, _COMPLETE) else (ChangedSetting("campaign", *states, matters=True),)
    return (
        *unfinished,
        *campaign_differences(base.results, new.results),
        *configuration_differences(base.directory, new.directory),
    )


def _reject_unknown(selection: CellSelection, campaigns: Sequence[_StoredCampaign]) -> None:
    """UsageError for a name or pattern that matches no measurement of any campaign."""
    if selection == ALL_CELLS:
        return  # no trials need to be read for all cells
    specs = [spec for campaign in campaigns for spec in campaign.measured]
    for option, patterns, values in (
        ("--uut", selection.uuts, [spec[0] for spec in specs]),
        ("--scenario", selection.scenarios, [spec[1] for spec in specs]),
        ("--size", selection.sizes, [spec[2] for spec in specs]),
    ):
        known = list(dict.fromkeys(values))
        for pattern in patterns:
            if not any(fnmatchcase(value, pattern) for value in known):
                raise UsageError(f"{option} {pattern}: no campaign has it; there are {', '.join(known)}")


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
        if not campaign.results.searches and schedule_of(campaign.directory) == _SEARCH:
            text = sentence("comparison.no_search_yet", name=campaign.name, path=campaign.directory.path)
            raise UsageError(text)
    kinds = {bool(campaign.results.searches) for campaign in campaigns}
    if len(kinds) > 1:
        searched, other = (
            next(campaign for campaign in campaigns if bool(campaign.results.searches) is kind)
            for kind in (True, False)
        )
        raise UsageError(sentence("comparison.searches_only", searched=searched.name, other=other.name))
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
            _print_line(console, f"written: {options.output}", soft_wrap=True)
    if options.html is not None and options.prints_text:
        _print_line(console, f"page: {options.html}", soft_wrap=True)


def _print_line(console: Console, text: str, style: str = "", *, soft_wrap: bool = False) -> None:
    """Print a text that may quote foreign text."""
    console.print(Text(visible(text), style=style), soft_wrap=soft_wrap)


def _print_gate(console: Console, gate: Gate) -> None:
    console.print()
    for outcome, lead in ((GateResult.FAILED, "regression"), (GateResult.INCONCLUSIVE, "inconclusive")):
        cells = gate.with_outcome(outcome)
        for cell in cells[:_SHOWN]:
            _print_line(console, f"{lead}: {gate.name}: {cell_result_words(cell)}", _STYLES[outcome])
        if len(cells) > _SHOWN:
            _print_line(console, f"{lead}: {len(cells) - _SHOWN:,} more", _STYLES[outcome])
    if left := gate.with_outcome(GateResult.NOT_JUDGED):
        _print_line(console, f"not judged: {count(len(left), 'cell')}, see above", "yellow")
    for line in gate_advice(gate):
        _print_line(console, line)
    _print_line(console, f"gate, {gate.name}: {gate_words(gate)}", f"bold {_STYLES[gate.outcome]}")


def _print(
    console: Console, base: _StoredCampaign, others: Sequence[_StoredCampaign], compared: Sequence[Compared]
) -> None:
    for role, campaign in (("base", base), *(("new", new) for new in others)):
        started = str(campaign.results.manifest.get("started") or "unknown")
        what = f"{campaign.results.topology} × {campaign.results.profile}, started {started}"
        _print_line(console, f"{role:4}  {campaign.name}: {what}")
    for pair in compared:
        _print_settings(console, f"{pair.base} → {pair.name}", pair.differs)
    for campaign in (base, *others):
        warnings = (warning for warning in campaign.results.warnings if warning.kind in DISTURBING)
        _print_warnings(console, f"disturbed, {campaign.name}", warnings)
    comparisons = [pair.comparison for pair in compared if isinstance(pair.comparison, Comparison)]
    for side in [comparisons[0].base, *(comparison.new for comparison in comparisons)] if comparisons else []:
        _print_warnings(console, f"not steady, {side.name}", steadiness_warnings(steadiness_of(side.groups)))
    for pair in compared:
        _print_pair(console, pair, base.results.emulated | pair.results.emulated)
    console.print()
    searched = not comparisons
    for line in [how_searches_compare()] if searched else how_tested(comparisons):
        _print_line(console, line)
    if searched and any(search.tests is not None for side in (base, *others) for search in side.results.searches):
        _print_line(console, sentence("comparison.tests_not_compared"))
    if comparisons and any(campaign.results.emulated for campaign in (base, *others)):
        _print_line(console, LEGEND)


def _print_settings(console: Console, names: str, differs: Sequence[ChangedSetting]) -> None:
    """Print the differences apart from the numbers, in detail for those that matter, in one line for the others."""
    matters = [difference for difference in differs if difference.matters]
    others = [difference.setting for difference in differs if not difference.matters]
    if not differs:
        return
    console.print()
    if matters:
        _print_line(console, f"warning: not only numbers differ, {names}:", "yellow")
        for difference in matters[:_SHOWN]:
            _print_line(console, f"  {difference}")
        others = [difference.setting for difference in matters[_SHOWN:]] + others
    if others:
        more = f", and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        lead = "  likewise" if matters else f"these differ too, {names}"
        _print_line(console, f"{lead}: {', '.join(others[:_SHOWN])}{more}")


def _print_warnings(console: Console, lead: str, warnings: Iterable[CampaignWarning]) -> None:
    for warning in warnings:
        console.print()
        _print_line(console, f"warning: {lead} ({warning.kind.value}): {warning.text}", "yellow")


def _print_pair(console: Console, pair: Compared, emulated: Collection[str]) -> None:
    """Print the cells of a comparison in tables."""
    console.print()
    _print_line(console, f"{pair.name} against {pair.base}: {pair.verdict}", "bold")
    comparison = pair.comparison
    if isinstance(comparison, SearchComparison):
        _print_searches(console, "Highest loads, kfps of each stream", comparison, emulated)
    else:
        with_loss = [cell for cell in comparison.by_load if cell.loss is not None and _has_loss(cell)]
        for title, cells, row_of in (
            ("Highest throughput at any load, Mbit/s (L1)", comparison.maxima, throughput_row),
            ("Throughput by load, Mbit/s (L1)", comparison.by_load, throughput_row),
            ("Loss by load, % of the frames offered", with_loss, loss_row),
        ):
            _print_rows(console, title, "Load", [row_of(cell) for cell in cells], emulated)
    for text in pair.left_out:
        _print_line(console, f"not compared: {text}")
    if pair.maxima is not None and pair.maxima.differences:
        title, _ = heading_of("maxima-searched")
        _print_searches(console, f"{title}, kfps of each stream", pair.maxima, emulated)


def _has_loss(difference: Difference) -> bool:
    return any(mean(group.loss_ratio) for group in (difference.base, difference.new))


def _print_searches(console: Console, title: str, comparison: SearchComparison, emulated: Collection[str]) -> None:
    _print_rows(console, title, "Goal", list(map(search_row, comparison.differences)), emulated)


def _print_rows(
    console: Console, title: str, load_heading: str, rows: Sequence[ComparedRow], emulated: Collection[str]
) -> None:
    """Print the rows; of too many, those that differ, or else the first ones."""
    if not rows:
        return
    shown = rows
    if len(rows) > _ROWS:
        shown = ([row for row in rows if row.change is not None] or rows)[:_ROWS]
    several = len({row.place.scenario for row in rows}) > 1, len({row.place.sources for row in rows}) > 1
    has_p = any(row.p for row in rows)
    table = TerminalTable()
    table.add_columns_of(texts=("UUT",), numbers=("Frame\nsize",))
    table.add_columns_of(texts=(load_heading,), numbers=("Base", "New"))
    table.add_columns_of(texts=("Difference",), numbers=("p",) if has_p else ())
    heading = ""
    for row in shown:
        previous, heading = heading, _heading(row, emulated, *several)
        if heading != previous:
            table.add_section()
        table.add_cells(
            heading if heading != previous else "",
            size_text(row.place.frame_size),
            row.load.replace(" → ", "\n→ "),
            *(text.removesuffix(" %") for text in (row.base, row.new)),
            _coloured(row),
            *([row.p] if has_p else []),
        )
    _print_line(console, title, "italic")
    console.print(table)
    if len(shown) < len(rows):
        more = f"and {count(len(rows) - len(shown), 'cell')} more, all of them with --html or --format json"
        _print_line(console, more)


def _coloured(row: ComparedRow) -> Text:
    """The difference, red where the new campaign is worse and green where it is better."""
    style = "" if row.change is None else "red" if row.change < 0 else "green"
    text = f"{row.difference} ({row.note})" if row.note else row.difference
    return Text(fill(text, _WIDE), style=style)


def _heading(row: ComparedRow, emulated: Collection[str], scenarios: bool, sources: bool) -> str:
    """The UUT of a row, with scenario and number of sources where there are several."""
    parts = [label(row.place.uut, emulated)]
    parts += [row.place.scenario] if scenarios else []
    parts += [count(row.place.sources, "source")] if sources else []
    return visible(", ".join(parts))
