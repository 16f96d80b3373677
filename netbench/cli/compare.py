"""`netbench compare`: campaigns side by side, what differs between their machines first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from errno import EPIPE
from fnmatch import fnmatchcase
from os import strerror
from pathlib import Path
from textwrap import fill

from rich.console import Console
from rich.text import Text

from netbench.cli.fitted_table import Column, FittedTable, Row
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
from netbench.results.comparability import Differs, schedule_of, what_differs, what_was_asked_differs
from netbench.results.directory import ResultDirectory
from netbench.results.versions import split_versions
from netbench.statistics.comparison import (
    ALL_CELLS,
    DISTURBING,
    Campaign,
    Comparison,
    Difference,
    Place,
    Selection,
    compare,
    why_nothing_compares,
)
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group
from netbench.statistics.regression_gate import Gate, Outcome, judge, judge_searches, total
from netbench.statistics.search_comparison import SearchComparison, compare_maxima, compare_searches

_SHOWN = 12  # settings that differ, and regressions
_ROWS = 100  # of a table
_WIDE = 24  # characters of a difference
_COMPLETE = "complete"
_SEARCH = "search"  # a kind of schedule


class PrintingConsole(Console):
    """A console that leaves it to whoever wrote the command what becomes of output that nobody reads any more."""

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which says that there is a regression."""
        raise BrokenPipeError(EPIPE, strerror(EPIPE))


@dataclass(frozen=True, slots=True)
class _Read:
    """A result directory that was read, under the name that it has here."""

    name: str
    directory: ResultDirectory
    results: CampaignResults

    @property
    def measured(self) -> Iterator[tuple[str, str, str]]:
        """UUT, scenario and frame size of everything in it."""
        for search in self.results.searches:
            yield search.uut, search.scenario, str(search.frame_size)
        for trial in () if self.results.searches else self.results.trials:
            yield trial.spec.uut, trial.spec.scenario, str(trial.spec.frame_size)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What of campaigns is compared, how it is judged, and where it is written.

    `fail_on_regression` is the threshold of the gate in percent; None: no gate. With `accept_disturbed` the cells of
    disturbed campaigns are judged like others. A `document` is written to `output`, or printed in place of the text.
    """

    selection: Selection = ALL_CELLS
    fail_on_regression: float | None = None
    accept_disturbed: bool = False
    html: Path | None = None
    document: Document | None = None
    output: Path | None = None

    @property
    def prints_text(self) -> bool:
        """Whether the comparison is printed for people."""
        return self.document is None or self.output is not None


def run_compare(directories: Sequence[Path], console: Console, options: CompareOptions) -> ExitCode:
    """Compare campaigns to the first, print what was found, and write what the options name.

    The exit code is that of the gate: 0 passed, 1 failed, 5 inconclusive; 0 without a gate. UsageError for what is no
    result directory or cannot be compared at all.
    """
    if len(directories) == 1:
        base, *others = _read_versions(directories[0])
        options = replace(options, accept_disturbed=True)  # what disturbed the host disturbed both versions
    else:
        base, *others = _read(directories)
    _refuse_unknown(options.selection, [base, *others])
    if base.results.searches:
        return _compare_searches(console, base, others, options)
    campaigns = [Campaign.of(one.name, one.results, options.selection) for one in (base, *others)]
    in_turn = len(directories) == 1
    comparisons = compare(campaigns[0], campaigns[1:], accept_disturbed=options.accept_disturbed, in_turn=in_turn)
    searched = [
        compare_maxima(
            base.name,
            base.results,
            one.name,
            one.results,
            selection=options.selection,
            accept_disturbed=options.accept_disturbed,
        )
        for one in others
    ]
    for comparison, maxima in zip(comparisons, searched, strict=True):
        is_dead = any(one.dead for one in comparison.left_out)
        if not (comparison.differences or maxima.differences or is_dead):
            why = why_nothing_compares(comparison, is_selection=options.selection != ALL_CELLS)
            raise UsageError(
                f"{comparison.base.name} and {comparison.new.name} cannot be compared: {why}; "
                "compare campaigns that measured the same"
            )
    everything = [
        Compared(
            comparison,
            one.results,
            (*_ends(base, one), *what_differs(base.results, one.results), *_asked(base, one)),
            maxima,
            _gate(comparison, maxima, options),
        )
        for comparison, maxima, one in zip(comparisons, searched, others, strict=True)
    ]
    if options.prints_text:
        _show(console, base, others, everything)
    if options.html is not None:
        write_comparison(base.results, everything, options.html)
    _write_document(console, options, base, everything)
    return _concluded(console, options, [one.gate for one in everything if one.gate is not None])


def _gate(comparison: Comparison, maxima: SearchComparison, options: CompareOptions) -> Gate | None:
    if options.fail_on_regression is None:
        return None
    return judge(comparison, options.fail_on_regression / 100, maxima)


def _refuse_unknown(selection: Selection, found: Sequence[_Read]) -> None:
    """UsageError for a name or pattern that no measurement of any campaign has."""
    if selection == ALL_CELLS:
        return  # trials need not be read for that
    specs = [spec for one in found for spec in one.measured]
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
    """Write the comparison as a document, and name the files that were written."""
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
    """The exit code of the gate, after its cells are printed."""
    if not gates:
        return ExitCode.DONE
    if options.prints_text:
        for gate in gates:
            _show_gate(console, gate)
    codes = {Outcome.PASSED: ExitCode.DONE, Outcome.FAILED: ExitCode.INVALID_RESULTS}
    return codes.get(total(gate.outcome for gate in gates), ExitCode.INCONCLUSIVE)


_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.INCONCLUSIVE: "yellow"}


def _show_gate(console: Console, gate: Gate) -> None:
    console.print()
    for outcome, lead in ((Outcome.FAILED, "regression"), (Outcome.INCONCLUSIVE, "inconclusive")):
        cells = gate.with_outcome(outcome)
        for one in cells[:_SHOWN]:
            console.print(Text(visible(f"{lead}: {gate.name}: {cell_result_words(one)}"), style=_STYLES[outcome]))
        if len(cells) > _SHOWN:
            console.print(Text(f"{lead}: {len(cells) - _SHOWN:,} more", style=_STYLES[outcome]))
    if left := gate.with_outcome(Outcome.NOT_JUDGED):
        console.print(Text(f"not judged: {count(len(left), 'cell')}, see above", style="yellow"))
    for line in gate_advice(gate):
        console.print(Text(line))
    console.print(Text(visible(f"gate, {gate.name}: {gate_words(gate)}"), style=f"bold {_STYLES[gate.outcome]}"))


def _read_versions(path: Path) -> tuple[_Read, _Read]:
    """The two versions of the UUTs of one campaign."""
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
    for one in found:
        if not one.results.searches and schedule_of(one.directory) == _SEARCH:
            raise UsageError(
                f"{one.name} was stopped before its first search was over, so that there is nothing to compare yet; go "
                f"on with `netbench resume {one.directory.path}`"
            )
    kinds = {bool(one.results.searches) for one in found}
    if len(kinds) > 1:
        searched, other = (next(one for one in found if bool(one.results.searches) is kind) for kind in (True, False))
        raise UsageError(
            f"{searched.name} searched for the highest loads, {other.name} did not; compare searches to searches"
        )
    return found


def _compare_searches(console: Console, base: _Read, others: Sequence[_Read], options: CompareOptions) -> ExitCode:
    """As run_compare, of campaigns that searched: their limits, and not the trials by which these were found."""
    compared = []
    for one in others:
        comparison = compare_searches(
            base.name,
            base.results,
            one.name,
            one.results,
            selection=options.selection,
            accept_disturbed=options.accept_disturbed,
        )
        if not (comparison.differences or any(each.dead for each in comparison.left_out)):
            why = next((each.why for each in comparison.left_out), "they have searched for nothing in common")
            raise UsageError(f"{base.name} and {one.name} cannot be compared: {why}")
        differs = (*_unfinished(base, one), *what_differs(base.results, one.results), *_asked(base, one))
        threshold = options.fail_on_regression
        gate = None if threshold is None else judge_searches(comparison, threshold / 100)
        compared.append(ComparedSearches(comparison, one.results, differs, gate))
    if options.prints_text:
        _show_searches(console, base, others, compared)
    if options.html is not None:
        write_searches_comparison(base.results, compared, options.html)
    _write_document(console, options, base, compared)
    return _concluded(console, options, [one.gate for one in compared if one.gate is not None])


def _show_searches(
    console: Console, base: _Read, others: Sequence[_Read], compared: Sequence[ComparedSearches]
) -> None:
    _show_what(console, base, others)
    for each in compared:
        _show_differing(console, f"{base.name} → {each.name}", each.differs)
    _show_disturbed(console, [base, *others])
    for each in compared:
        console.print()
        console.print(Text(f"{each.name} against {base.name}: {searches_verdict(each.comparison)}", style="bold"))
        console.print(_searches_table(each.comparison, base.results.emulated | each.results.emulated))
        for left_out in each.comparison.left_out:
            console.print(Text(visible(f"not compared: {left_out}")))
    console.print()
    console.print(Text(HOW_SEARCHES_COMPARE))
    if any(search.tests is not None for one in (base, *others) for search in one.results.searches):
        console.print(Text(TESTS_NOT_COMPARED))


def _unfinished(base: _Read, new: _Read) -> Iterator[Differs]:
    before, after = (
        _COMPLETE if one.results.manifest.get("finished") else "unfinished, searches are missing" for one in (base, new)
    )
    if (before, after) != (_COMPLETE, _COMPLETE):
        yield Differs("campaign", before, after, matters=True)


def _searches_table(
    comparison: SearchComparison, emulated: Collection[str], title: str = "Highest loads, kfps of each stream"
) -> FittedTable:
    several = len({one.what.scenario for one in comparison.differences}) > 1
    sources = len({one.what.sources for one in comparison.differences}) > 1
    columns = [
        Column("UUT", is_number=False, wraps=True),
        Column("Frame\nsize"),
        Column("Goal", is_number=False, wraps=True),
        *(Column(heading, wraps=True) for heading in ("Base", "New", "Difference")),
    ]
    rows = []
    for one in comparison.differences:
        what, changed = one.what, one.change
        parts = [label(what.uut, emulated), *([what.scenario] if several else [])]
        parts += [count(what.sources, "source")] if sources else []
        style = "" if changed is None else "red" if changed < 0 else "green"
        difference = Text(search_words(one) + (" (unstable)" if one.unstable else ""), style=style)
        cells = (visible(", ".join(parts)), size_text(what.frame_size), what.goal)
        rows.append(Row((*cells, range_words(one.base), range_words(one.new), difference)))
    return FittedTable(columns, rows, title)


def _ends(base: _Read, new: _Read) -> Iterator[Differs]:
    """Whether they are complete."""
    before, after = (_state(one.results) for one in (base, new))
    if (before, after) != (_COMPLETE, _COMPLETE):
        yield Differs("campaign", before, after, matters=True)


def _state(results: CampaignResults) -> str:
    missing = results.planned_trials - len(results.trials) - results.skipped_trials
    return _COMPLETE if missing <= 0 else f"unfinished, {missing:,} of {results.planned_trials:,} trials missing"


def _asked(base: _Read, new: _Read) -> tuple[Differs, ...]:
    return what_was_asked_differs(base.directory, new.directory)


def _show(console: Console, base: _Read, others: Sequence[_Read], everything: Sequence[Compared]) -> None:
    _show_what(console, base, others)
    for each in everything:
        _show_differing(console, f"{each.comparison.base.name} → {each.comparison.new.name}", each.differs)
    _show_disturbed(console, [base, *others])
    _show_unsteady(console, [everything[0].comparison.base, *(each.comparison.new for each in everything)])
    for each in everything:
        emulated = base.results.emulated | each.results.emulated
        _show_cells(console, each, emulated)
        if each.maxima is not None and each.maxima.differences:
            console.print(_searches_table(each.maxima, emulated, f"{REFERRED_TO}, kfps of each stream"))
    console.print()
    for line in how_tested([one.comparison for one in everything]):
        console.print(Text(line))
    if any(one.results.emulated for one in (base, *others)):
        console.print(Text(LEGEND))


def _show_what(console: Console, base: _Read, others: Sequence[_Read]) -> None:
    for role, one in (("base", base), *(("new", other) for other in others)):
        started = str(one.results.manifest.get("started") or "unknown")
        what = f"{one.results.topology} × {one.results.profile}, started {started}"
        console.print(Text(visible(f"{role:4}  {one.name}: {what}")))


def _show_differing(console: Console, names: str, differs: Sequence[Differs]) -> None:
    """What differs besides the numbers, the rest of it in one line."""
    matters = [each for each in differs if each.matters]
    others = [each.setting for each in differs if not each.matters]
    if not differs:
        return
    console.print()
    if matters:
        console.print(Text(f"warning: not only numbers differ, {names}:", style="yellow"))
        for each in matters[:_SHOWN]:
            console.print(Text(visible(f"  {each}")))
        others = [each.setting for each in matters[_SHOWN:]] + others
    if others:
        more = f", and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        lead = "  likewise" if matters else f"these differ too, {names}"
        console.print(Text(visible(f"{lead}: {', '.join(others[:_SHOWN])}{more}")))


def _show_disturbed(console: Console, campaigns: Sequence[_Read]) -> None:
    """The warnings of each campaign that its host had other work."""
    for one in campaigns:
        for warning in (each for each in one.results.warnings if each.kind in DISTURBING):
            console.print()
            text = f"warning: disturbed, {one.name} ({warning.kind.value}): {warning.text}"
            console.print(Text(visible(text), style="yellow"))


def _show_unsteady(console: Console, campaigns: Sequence[Campaign]) -> None:
    """What changed within a campaign: what is compared is then when each cell was measured, too."""
    for one in campaigns:
        for warning in steadiness_warnings(steadiness_of(one.groups)):
            console.print()
            text = f"warning: not steady, {one.name} ({warning.kind.value}): {warning.text}"
            console.print(Text(visible(text), style="yellow"))


def _show_cells(console: Console, one: Compared, emulated: Collection[str]) -> None:
    comparison = one.comparison
    console.print()
    console.print(
        Text(f"{comparison.new.name} against {comparison.base.name}: {verdict_words(comparison)}", style="bold")
    )
    with_loss = [each for each in comparison.by_load if each.loss is not None and _lost(each)]
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
    """What a table says of each side, of the difference, and of its p."""

    side: Callable[[Group], str]
    difference: Callable[[Difference], str]
    p: Callable[[Difference], str]
    changed: Callable[[Difference], float | None]


def _shown_of(cells: Sequence[Difference], columns: _Columns) -> Sequence[Difference]:
    """All cells, or of very many those that differ, or else the first."""
    if len(cells) <= _ROWS:
        return cells
    differing = [one for one in cells if columns.changed(one) is not None]
    return (differing or cells)[:_ROWS]


def _lost(one: Difference) -> bool:
    return any(mean(group.loss_ratio) for group in (one.base, one.new))


_THROUGHPUT = _Columns(
    lambda group: at_least(mbps(mean(group.throughput_mbps)), group.limited_by),
    change_words,
    lambda one: p_words(one.throughput_test),
    lambda one: one.change,
)
_LOSS = _Columns(
    lambda group: percent(mean(group.loss_ratio)).removesuffix(" %"),
    loss_words,
    lambda one: p_words(one.loss_test),
    lambda one: None if one.change_of_loss is None else -one.change_of_loss,
)


def _table(title: str, cells: Sequence[Difference], emulated: Collection[str], columns: _Columns) -> FittedTable:
    several = len({one.place.scenario for one in cells}) > 1, len({one.place.sources for one in cells}) > 1
    heads = [
        Column("UUT", is_number=False, wraps=True),
        Column("Frame\nsize"),
        Column("Load", is_number=False),
        Column("Base"),
        Column("New"),
        Column("Difference", is_number=False, wraps=True),
        Column("p"),
    ]
    rows, heading = [], ""
    for one in cells:
        before, heading = heading, _heading(one.place, emulated, *several)
        place, changed = one.place, columns.changed(one)
        load = _loads(one) if place.load is None else str(place.load)
        texts = (heading if before != heading else "", size_text(place.frame_size), load)
        style = "" if changed is None else "red" if changed < 0 else "green"
        difference = Text(fill(columns.difference(one), _WIDE), style=style)
        sides = columns.side(one.base), columns.side(one.new)
        rows.append(Row((*texts, *sides, difference, columns.p(one)), begins_section=before != heading))
    return FittedTable(heads, rows, title)


def _heading(place: Place, emulated: Collection[str], scenarios: bool, sources: bool) -> str:
    """Whose cells these are, with what tells them from others of the same UUT."""
    parts = [label(place.uut, emulated)]
    parts += [place.scenario] if scenarios else []
    parts += [count(place.sources, "source")] if sources else []
    return visible(", ".join(parts))


def _loads(one: Difference) -> str:
    """At what load the most was reached, on either side."""
    base, new = str(one.base.load), str(one.new.load)
    return base if base == new else f"{base}\n→ {new}"
