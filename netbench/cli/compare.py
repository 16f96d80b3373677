"""`netbench compare`: campaigns side by side, with the differences of their machines first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from errno import EPIPE
from fnmatch import fnmatchcase
from os import strerror
from pathlib import Path
from textwrap import fill

from rich.console import Console
from rich.text import Text

from netbench.cli.fitted_table import FittedTable, Row, TerminalColumn
from netbench.cli.output import visible
from netbench.errors import ExitCode, UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import size_text
from netbench.report.comparison_exports import Document
from netbench.report.comparison_page import (
    REFERRED_TO,
    Compared,
    ComparedSearches,
    write_comparison,
    write_searches_comparison,
)
from netbench.report.comparison_words import (
    HOW_SEARCHES_COMPARE,
    TESTS_NOT_COMPARED,
    cell_result_words,
    change_words,
    gate_advice,
    gate_words,
    how_tested,
    left_out_words,
    loss_words,
    p_words,
    range_words,
    search_words,
    searches_verdict,
    verdict_words,
)
from netbench.report.formats import at_least, count, mbps, mean, percent
from netbench.report.steadiness_words import steadiness_warnings
from netbench.report.styles import LEGEND, label
from netbench.results.atomic import write_atomically
from netbench.results.comparability import Differs, schedule_of, split_versions, what_differs, what_was_asked_differs
from netbench.results.directory import ResultDirectory
from netbench.statistics.comparison import (
    ALL_CELLS,
    DISTURBING,
    Campaign,
    CellSelection,
    ComparedCell,
    Comparison,
    Difference,
    compare,
    why_nothing_compares,
)
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group
from netbench.statistics.regression_gate import Gate, GateResult, judge, judge_searches, total
from netbench.statistics.search_comparison import SearchComparison, compare_maxima, compare_searches

_SHOWN = 12  # at most, of different settings and of regressions
_ROWS = 100  # at most, of a table
_WIDE = 24  # width of a difference in characters
_COMPLETE = "complete"
_SEARCH = "search"  # a kind of schedule


class PrintingConsole(Console):
    """A console that leaves the handling of a closed output to the caller."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError: Rich would exit with 1, the exit code of a regression."""
        raise BrokenPipeError(EPIPE, strerror(EPIPE))


@dataclass(frozen=True, slots=True)
class _Read:
    """A result directory that was read, with its name in the comparison."""

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
    if len(directories) == 1:
        base, *others = _read_versions(directories[0])
        options = replace(options, accept_disturbed=True)  # a disturbance of the host affected both versions
    else:
        base, *others = _read(directories)
    _refuse_unknown(options.selection, [base, *others])
    if base.results.searches:
        return _compare_searches(console, base, others, options)
    campaigns = [Campaign.of(campaign.name, campaign.results, options.selection) for campaign in (base, *others)]
    in_turn = len(directories) == 1
    comparisons = compare(campaigns[0], campaigns[1:], accept_disturbed=options.accept_disturbed, in_turn=in_turn)
    searched = [
        compare_maxima(
            base.name,
            base.results,
            new.name,
            new.results,
            selection=options.selection,
            accept_disturbed=options.accept_disturbed,
        )
        for new in others
    ]
    for comparison, maxima in zip(comparisons, searched, strict=True):
        is_dead = any(left_out.dead for left_out in comparison.left_out)
        if not (comparison.differences or maxima.differences or is_dead):
            why = why_nothing_compares(comparison, is_selection=options.selection != ALL_CELLS)
            raise UsageError(
                f"{comparison.base.name} and {comparison.new.name} cannot be compared: {why}; "
                "compare campaigns that measured the same"
            )
    everything = [
        Compared(
            comparison,
            new.results,
            (*_ends(base, new), *what_differs(base.results, new.results), *_asked(base, new)),
            maxima,
            _gate(comparison, maxima, options),
        )
        for comparison, maxima, new in zip(comparisons, searched, others, strict=True)
    ]
    if options.prints_text:
        _show(console, base, others, everything)
    if options.html is not None:
        write_comparison(base.results, everything, options.html)
    _write_document(console, options, base, everything)
    return _concluded(console, options, [pair.gate for pair in everything if pair.gate is not None])


def _gate(comparison: Comparison, maxima: SearchComparison, options: CompareOptions) -> Gate | None:
    if options.fail_on_regression is None:
        return None
    return judge(comparison, options.fail_on_regression / 100, maxima)


def _refuse_unknown(selection: CellSelection, found: Sequence[_Read]) -> None:
    """UsageError for a name or pattern that matches no measurement of any campaign."""
    if selection == ALL_CELLS:
        return  # no trials need to be read for all cells
    specs = [spec for campaign in found for spec in campaign.measured]
    for option, patterns, values in (
        ("--uut", selection.uuts, [spec[0] for spec in specs]),
        ("--scenario", selection.scenarios, [spec[1] for spec in specs]),
        ("--size", selection.sizes, [spec[2] for spec in specs]),
    ):
        known = list(dict.fromkeys(values))
        for pattern in patterns:
            if not any(fnmatchcase(value, pattern) for value in known):
                raise UsageError(f"{option} {pattern}: no campaign has it; there are {', '.join(known)}")


def _write_document(
    console: Console,
    options: CompareOptions,
    base: _Read,
    compared: Sequence[Compared] | Sequence[ComparedSearches],
) -> None:
    """Write the comparison as a document, and print the names of the written files."""
    if options.document is not None:
        text = options.document(base.name, base.results, compared)
        if options.output is None:
            console.file.write(text)
        else:
            write_atomically(options.output, text.encode(errors="backslashreplace"))
            console.print(Text(f"written: {visible(str(options.output))}"), soft_wrap=True)
    if options.html is not None and options.prints_text:
        console.print(Text(f"page: {visible(str(options.html))}"), soft_wrap=True)


def _concluded(console: Console, options: CompareOptions, gates: Sequence[Gate]) -> ExitCode:
    """Print the cells of the gate and return its exit code."""
    if not gates:
        return ExitCode.DONE
    if options.prints_text:
        for gate in gates:
            _show_gate(console, gate)
    codes = {GateResult.PASSED: ExitCode.DONE, GateResult.FAILED: ExitCode.INVALID_RESULTS}
    return codes.get(total(gate.outcome for gate in gates), ExitCode.INCONCLUSIVE)


_STYLES = {GateResult.PASSED: "green", GateResult.FAILED: "red", GateResult.INCONCLUSIVE: "yellow"}


def _show_gate(console: Console, gate: Gate) -> None:
    console.print()
    for outcome, lead in ((GateResult.FAILED, "regression"), (GateResult.INCONCLUSIVE, "inconclusive")):
        cells = gate.with_outcome(outcome)
        for cell in cells[:_SHOWN]:
            console.print(Text(visible(f"{lead}: {gate.name}: {cell_result_words(cell)}"), style=_STYLES[outcome]))
        if len(cells) > _SHOWN:
            console.print(Text(f"{lead}: {len(cells) - _SHOWN:,} more", style=_STYLES[outcome]))
    if left := gate.with_outcome(GateResult.NOT_JUDGED):
        console.print(Text(f"not judged: {count(len(left), 'cell')}, see above", style="yellow"))
    for line in gate_advice(gate):
        console.print(Text(line))
    console.print(Text(visible(f"gate, {gate.name}: {gate_words(gate)}"), style=f"bold {_STYLES[gate.outcome]}"))


def _read_versions(path: Path) -> tuple[_Read, _Read]:
    """Return the two versions of the UUTs of one campaign."""
    directory = ResultDirectory(path)
    versions = split_versions(directory.results(counters=False))
    if versions is None:
        raise UsageError(
            f"{path}: holds one version of each UUT, so there is nothing to compare it to; name a second result "
            "directory, or measure two versions in turn with `netbench run --against`"
        )
    name = visible(path.resolve().name)
    base, new = versions
    return _Read(f"{name} (base)", directory, base), _Read(f"{name} (new)", directory, new)


def _read(directories: Sequence[Path]) -> list[_Read]:
    seen: dict[Path, Path] = {}
    for path in directories:
        if (same := seen.setdefault(path.resolve(), path)) is not path:
            raise UsageError(f"{path}: is the same directory as {same}; name campaigns that were measured apart")
    names = [path.resolve().name for path in directories]
    unique = len(set(names)) == len(names)
    found = []
    for path, name in zip(directories, names, strict=True):
        directory = ResultDirectory(path)
        found.append(_Read(visible(name if unique else str(path)), directory, directory.results(counters=False)))
    for campaign in found:
        if not campaign.results.searches and schedule_of(campaign.directory) == _SEARCH:
            raise UsageError(
                f"{campaign.name} was stopped before its first search was over, so that there is nothing to compare "
                f"yet; go on with `netbench resume {campaign.directory.path}`"
            )
    kinds = {bool(campaign.results.searches) for campaign in found}
    if len(kinds) > 1:
        searched, other = (
            next(campaign for campaign in found if bool(campaign.results.searches) is kind) for kind in (True, False)
        )
        raise UsageError(
            f"{searched.name} searched for the highest loads, {other.name} did not; compare searches to searches"
        )
    return found


def _compare_searches(console: Console, base: _Read, others: Sequence[_Read], options: CompareOptions) -> ExitCode:
    """Compare campaigns that searched, like run_compare: their limits, and not the trials of the searches."""
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
            why = next((left_out.why for left_out in comparison.left_out), "they have searched for nothing in common")
            raise UsageError(f"{base.name} and {new.name} cannot be compared: {why}")
        differs = (*_unfinished(base, new), *what_differs(base.results, new.results), *_asked(base, new))
        threshold = options.fail_on_regression
        gate = None if threshold is None else judge_searches(comparison, threshold / 100)
        compared.append(ComparedSearches(comparison, new.results, differs, gate))
    if options.prints_text:
        _show_searches(console, base, others, compared)
    if options.html is not None:
        write_searches_comparison(base.results, compared, options.html)
    _write_document(console, options, base, compared)
    return _concluded(console, options, [pair.gate for pair in compared if pair.gate is not None])


def _show_searches(
    console: Console, base: _Read, others: Sequence[_Read], compared: Sequence[ComparedSearches]
) -> None:
    _show_what(console, base, others)
    for pair in compared:
        _show_differing(console, f"{base.name} → {pair.name}", pair.differs)
    _show_disturbed(console, [base, *others])
    for pair in compared:
        console.print()
        console.print(Text(f"{pair.name} against {base.name}: {searches_verdict(pair.comparison)}", style="bold"))
        console.print(_searches_table(pair.comparison, base.results.emulated | pair.results.emulated))
        for left_out in pair.comparison.left_out:
            console.print(Text(visible(f"not compared: {left_out}")))
    console.print()
    console.print(Text(HOW_SEARCHES_COMPARE))
    if any(search.tests is not None for campaign in (base, *others) for search in campaign.results.searches):
        console.print(Text(TESTS_NOT_COMPARED))


def _unfinished(base: _Read, new: _Read) -> Iterator[Differs]:
    before, after = (
        _COMPLETE if campaign.results.manifest.get("finished") else "unfinished, searches are missing"
        for campaign in (base, new)
    )
    if (before, after) != (_COMPLETE, _COMPLETE):
        yield Differs("campaign", before, after, matters=True)


def _searches_table(
    comparison: SearchComparison, emulated: Collection[str], title: str = "Highest loads, kfps of each stream"
) -> FittedTable:
    several = len({difference.what.scenario for difference in comparison.differences}) > 1
    sources = len({difference.what.sources for difference in comparison.differences}) > 1
    columns = [
        TerminalColumn("UUT", is_number=False, wraps=True),
        TerminalColumn("Frame\nsize"),
        TerminalColumn("Goal", is_number=False, wraps=True),
        *(TerminalColumn(heading, wraps=True) for heading in ("Base", "New", "Difference")),
    ]
    rows = []
    for difference in comparison.differences:
        what, changed = difference.what, difference.change
        parts = [label(what.uut, emulated), *([what.scenario] if several else [])]
        parts += [count(what.sources, "source")] if sources else []
        style = "" if changed is None else "red" if changed < 0 else "green"
        text = Text(search_words(difference) + (" (unstable)" if difference.unstable else ""), style=style)
        cells = (visible(", ".join(parts)), size_text(what.frame_size), what.goal)
        rows.append(Row((*cells, range_words(difference.base), range_words(difference.new), text)))
    return FittedTable(columns, rows, title)


def _ends(base: _Read, new: _Read) -> Iterator[Differs]:
    """Yield a difference unless both campaigns are complete."""
    before, after = (_state(campaign.results) for campaign in (base, new))
    if (before, after) != (_COMPLETE, _COMPLETE):
        yield Differs("campaign", before, after, matters=True)


def _state(results: CampaignResults) -> str:
    missing = results.planned_trials - len(results.trials) - results.skipped_trials
    return _COMPLETE if missing <= 0 else f"unfinished, {missing:,} of {results.planned_trials:,} trials missing"


def _asked(base: _Read, new: _Read) -> tuple[Differs, ...]:
    return what_was_asked_differs(base.directory, new.directory)


def _show(console: Console, base: _Read, others: Sequence[_Read], everything: Sequence[Compared]) -> None:
    _show_what(console, base, others)
    for pair in everything:
        _show_differing(console, f"{pair.comparison.base.name} → {pair.comparison.new.name}", pair.differs)
    _show_disturbed(console, [base, *others])
    _show_unsteady(console, [everything[0].comparison.base, *(pair.comparison.new for pair in everything)])
    for pair in everything:
        emulated = base.results.emulated | pair.results.emulated
        _show_cells(console, pair, emulated)
        if pair.maxima is not None and pair.maxima.differences:
            console.print(_searches_table(pair.maxima, emulated, f"{REFERRED_TO}, kfps of each stream"))
    console.print()
    for line in how_tested([pair.comparison for pair in everything]):
        console.print(Text(line))
    if any(campaign.results.emulated for campaign in (base, *others)):
        console.print(Text(LEGEND))


def _show_what(console: Console, base: _Read, others: Sequence[_Read]) -> None:
    for role, campaign in (("base", base), *(("new", new) for new in others)):
        started = str(campaign.results.manifest.get("started") or "unknown")
        what = f"{campaign.results.topology} × {campaign.results.profile}, started {started}"
        console.print(Text(visible(f"{role:4}  {campaign.name}: {what}")))


def _show_differing(console: Console, names: str, differs: Sequence[Differs]) -> None:
    """Print the differences apart from the numbers, in detail for those that matter, in one line for the others."""
    matters = [difference for difference in differs if difference.matters]
    others = [difference.setting for difference in differs if not difference.matters]
    if not differs:
        return
    console.print()
    if matters:
        console.print(Text(f"warning: not only numbers differ, {names}:", style="yellow"))
        for difference in matters[:_SHOWN]:
            console.print(Text(visible(f"  {difference}")))
        others = [difference.setting for difference in matters[_SHOWN:]] + others
    if others:
        more = f", and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        lead = "  likewise" if matters else f"these differ too, {names}"
        console.print(Text(visible(f"{lead}: {', '.join(others[:_SHOWN])}{more}")))


def _show_disturbed(console: Console, campaigns: Sequence[_Read]) -> None:
    """Print the warnings of each campaign about other work on its host."""
    for campaign in campaigns:
        for warning in (warning for warning in campaign.results.warnings if warning.kind in DISTURBING):
            console.print()
            text = f"warning: disturbed, {campaign.name} ({warning.kind.value}): {warning.text}"
            console.print(Text(visible(text), style="yellow"))


def _show_unsteady(console: Console, campaigns: Sequence[Campaign]) -> None:
    """Print the changes within a campaign: they make its cells depend on when they were measured."""
    for campaign in campaigns:
        for warning in steadiness_warnings(steadiness_of(campaign.groups)):
            console.print()
            text = f"warning: not steady, {campaign.name} ({warning.kind.value}): {warning.text}"
            console.print(Text(visible(text), style="yellow"))


def _show_cells(console: Console, one: Compared, emulated: Collection[str]) -> None:
    comparison = one.comparison
    console.print()
    console.print(
        Text(f"{comparison.new.name} against {comparison.base.name}: {verdict_words(comparison)}", style="bold")
    )
    with_loss = [cell for cell in comparison.by_load if cell.loss is not None and _lost(cell)]
    for title, cells, columns in (
        ("Highest throughput at any load, Mbit/s (L1)", comparison.maxima, _THROUGHPUT),
        ("Throughput by load, Mbit/s (L1)", comparison.by_load, _THROUGHPUT),
        ("Loss by load, % of the frames offered", with_loss, _LOSS),
    ):
        if cells:
            shown = _shown_of(cells, columns)
            console.print(_table(title, shown, emulated, columns))
            if len(shown) < len(cells):
                more = f"and {count(len(cells) - len(shown), 'cell')} more, all of them with --html or --format json"
                console.print(Text(more))
    for line in left_out_words(comparison.left_out):
        console.print(Text(visible(f"not compared: {line}")))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The texts of a table for each side, for the difference, and for its p."""

    side: Callable[[Group], str]
    difference: Callable[[Difference], str]
    p: Callable[[Difference], str]
    changed: Callable[[Difference], float | None]


def _shown_of(cells: Sequence[Difference], columns: _Columns) -> Sequence[Difference]:
    """Return all cells. If there are too many, return those that differ, or else the first ones."""
    if len(cells) <= _ROWS:
        return cells
    differing = [cell for cell in cells if columns.changed(cell) is not None]
    return (differing or cells)[:_ROWS]


def _lost(one: Difference) -> bool:
    return any(mean(group.loss_ratio) for group in (one.base, one.new))


_THROUGHPUT = _Columns(
    lambda group: at_least(mbps(mean(group.throughput_mbps)), group.limited_by),
    change_words,
    lambda cell: p_words(cell.throughput_test),
    lambda cell: cell.change,
)
_LOSS = _Columns(
    lambda group: percent(mean(group.loss_ratio)).removesuffix(" %"),
    loss_words,
    lambda cell: p_words(cell.loss_test),
    lambda cell: None if cell.change_of_loss is None else -cell.change_of_loss,
)


def _table(title: str, cells: Sequence[Difference], emulated: Collection[str], columns: _Columns) -> FittedTable:
    several = len({cell.place.scenario for cell in cells}) > 1, len({cell.place.sources for cell in cells}) > 1
    heads = [
        TerminalColumn("UUT", is_number=False, wraps=True),
        TerminalColumn("Frame\nsize"),
        TerminalColumn("Load", is_number=False),
        TerminalColumn("Base"),
        TerminalColumn("New"),
        TerminalColumn("Difference", is_number=False, wraps=True),
        TerminalColumn("p"),
    ]
    rows, heading = [], ""
    for cell in cells:
        before, heading = heading, _heading(cell.place, emulated, *several)
        place, changed = cell.place, columns.changed(cell)
        load = _loads(cell) if place.load is None else str(place.load)
        texts = (heading if before != heading else "", size_text(place.frame_size), load)
        style = "" if changed is None else "red" if changed < 0 else "green"
        difference = Text(fill(columns.difference(cell), _WIDE), style=style)
        sides = columns.side(cell.base), columns.side(cell.new)
        rows.append(Row((*texts, *sides, difference, columns.p(cell)), begins_section=before != heading))
    return FittedTable(heads, rows, title)


def _heading(place: ComparedCell, emulated: Collection[str], scenarios: bool, sources: bool) -> str:
    """Return the UUT of these cells, with scenario and number of sources where there are several."""
    parts = [label(place.uut, emulated)]
    parts += [place.scenario] if scenarios else []
    parts += [count(place.sources, "source")] if sources else []
    return visible(", ".join(parts))


def _loads(one: Difference) -> str:
    """Return the load with the highest throughput on each side."""
    base, new = str(one.base.load), str(one.new.load)
    return base if base == new else f"{base}\n→ {new}"
