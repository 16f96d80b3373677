"""`netbench compare`: campaigns side by side, what differs between their machines first."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from errno import EPIPE
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
    change_words,
    how_tested,
    left_out_words,
    loss_words,
    p_words,
    range_words,
    search_words,
    searches_verdict,
    verdict_words,
)
from netbench.report.formats import at_least, change, count, mbps, mean, percent
from netbench.report.steadiness_words import steadiness_warnings
from netbench.report.styles import LEGEND, label
from netbench.results.comparability import Differs, schedule_of, what_differs, what_was_asked_differs
from netbench.results.directory import ResultDirectory
from netbench.statistics.comparison import (
    Campaign,
    Comparison,
    Difference,
    LeftOut,
    Place,
    compare,
    why_nothing_compares,
)
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group
from netbench.statistics.search_comparison import (
    LeftOutSearch,
    SearchComparison,
    compare_maxima,
    compare_searches,
)

_SHOWN = 12  # settings that differ, and regressions
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


def run_compare(
    directories: Sequence[Path], console: Console, *, html: Path | None = None, fail_on_regression: float | None = None
) -> ExitCode:
    """Compare campaigns to the first, print what was found, and write the page where one is wanted.

    `fail_on_regression` is in percent: where a cell is slower by more than that, significantly, the code says so.
    UsageError for what is no result directory or cannot be compared at all.
    """
    base, *others = _read(directories)
    if base.results.searches:
        return _compare_searches(console, base, others, html, fail_on_regression)
    campaigns = [Campaign.of(one.name, one.results) for one in (base, *others)]
    comparisons = compare(campaigns[0], campaigns[1:])
    for comparison in comparisons:
        if not (comparison.differences or any(one.dead for one in comparison.left_out)):
            raise UsageError(
                f"{comparison.base.name} and {comparison.new.name} cannot be compared: "
                f"{why_nothing_compares(comparison)}; compare campaigns that measured the same"
            )
    everything = [
        Compared(
            comparison, one.results, (*_ends(base, one), *what_differs(base.results, one.results), *_asked(base, one))
        )
        for comparison, one in zip(comparisons, others, strict=True)
    ]
    _show(console, base, others, everything)
    if html is not None:
        write_comparison(base.results, everything, html)
        console.print(Text(f"page: {visible(str(html))}"), soft_wrap=True)
    if fail_on_regression is None:
        return ExitCode.DONE
    return _judged(console, comparisons, fail_on_regression)


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


def _compare_searches(
    console: Console, base: _Read, others: Sequence[_Read], html: Path | None, fail_on_regression: float | None
) -> ExitCode:
    """As run_compare, of campaigns that searched: their limits, and not the trials by which these were found."""
    compared = [
        ComparedSearches(
            compare_searches(base.name, base.results, one.name, one.results),
            one.results,
            (*_unfinished(base, one), *what_differs(base.results, one.results), *_asked(base, one)),
        )
        for one in others
    ]
    for each in compared:
        if not (each.comparison.differences or any(one.dead for one in each.comparison.left_out)):
            why = next((one.why for one in each.comparison.left_out), "they have searched for nothing in common")
            raise UsageError(f"{base.name} and {each.name} cannot be compared: {why}")
    _show_what(console, base, others)
    for each in compared:
        _show_differing(console, f"{base.name} → {each.name}", each.differs)
    for each in compared:
        console.print()
        console.print(Text(f"{each.name} against {base.name}: {searches_verdict(each.comparison)}", style="bold"))
        console.print(_searches_table(each.comparison, base.results.emulated | each.results.emulated))
        for one in each.comparison.left_out:
            console.print(Text(visible(f"not compared: {one}")))
    console.print()
    console.print(Text(HOW_SEARCHES_COMPARE))
    if any(search.tests is not None for one in (base, *others) for search in one.results.searches):
        console.print(Text(TESTS_NOT_COMPARED))
    if html is not None:
        write_searches_comparison(base.results, compared, html)
        console.print(Text(f"page: {visible(str(html))}"), soft_wrap=True)
    if fail_on_regression is None:
        return ExitCode.DONE
    slower = [
        f"{each.name}: {one.what}: {search_words(one)}"
        for each in compared
        for one in each.comparison.differences
        if one.is_regression(fail_on_regression / 100)
    ]
    left_out = [(each.name, one) for each in compared for one in each.comparison.left_out]
    dead = _dead(left_out)
    every = [one for each in compared for one in each.comparison.differences]
    untold = sum(not one.is_judged(fail_on_regression / 100) for one in every)
    if untold == len(every) and not dead:
        raise UsageError(
            f"--fail-on-regression: no limit is known well enough to tell {fail_on_regression:g} %; search with a "
            "smaller width, or up to higher loads"
        )
    unjudged = sum(not one.dead for _, one in left_out)
    if untold or unjudged:
        words = f"not judged: {count(untold, 'limit')} not known well enough, {unjudged:,} that cannot be compared"
        console.print(Text(words, style="yellow"))
    return _passed(console, [*slower, *dead], fail_on_regression)


def _dead(left_out: Iterable[tuple[str, LeftOut | LeftOutSearch]]) -> list[str]:
    """What a UUT forwarded once and, as it fails, does not any more: less than any percentage allows."""
    return [f"{name}: {one}" for name, one in left_out if one.dead]


def _passed(console: Console, slower: Sequence[str], percent_: float) -> ExitCode:
    """The exit code, and the regressions that it is about."""
    for one in slower[:_SHOWN]:
        console.print(Text(visible(f"regression: {one}"), style="red"))
    if len(slower) > _SHOWN:
        console.print(Text(f"and {count(len(slower) - _SHOWN, 'regression')} more", style="red"))
    if not slower:
        console.print(Text(f"no regression by more than {percent_:g} %"))
    return ExitCode.INVALID_RESULTS if slower else ExitCode.DONE


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
    _show_unsteady(console, [everything[0].comparison.base, *(each.comparison.new for each in everything)])
    for each in everything:
        _show_cells(console, each, base.results.emulated | each.results.emulated)
        _show_maxima(console, base, each)
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
            console.print(_table(title, cells, emulated, columns))
    for line in left_out_words(comparison.left_out):
        console.print(Text(visible(f"not compared: {line}")))


def _show_maxima(console: Console, base: _Read, new: Compared) -> None:
    """What loads that are a share refer to, where either searched for that."""
    comparison = compare_maxima(base.name, base.results, new.name, new.results)
    if comparison.differences:
        emulated = base.results.emulated | new.results.emulated
        console.print(_searches_table(comparison, emulated, f"{REFERRED_TO}, kfps of each stream"))


def _lost(one: Difference) -> bool:
    return any(mean(group.loss_ratio) for group in (one.base, one.new))


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a table says of each side, of the difference, and of its p."""

    side: Callable[[Group], str]
    difference: Callable[[Difference], str]
    p: Callable[[Difference], str]
    changed: Callable[[Difference], float | None]


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


def _judged(console: Console, comparisons: Sequence[Comparison], percent_: float) -> ExitCode:
    """The exit code, and the cells that it is about."""
    differences = [(each, one) for each in comparisons for one in each.differences]
    left_out = [(each.new.name, one) for each in comparisons for one in each.left_out]
    dead = _dead(left_out)
    if all(one.throughput_test.p is None for _, one in differences) and not dead:
        raise UsageError(
            "--fail-on-regression: no cell has three valid repetitions on either side, without which nothing can be "
            "told from chance; measure more of them"
        )
    untold = sum(one.throughput_test.p is None for _, one in differences)
    unjudged = sum(not one.dead for _, one in left_out)
    if untold or unjudged:
        words = f"not judged: {count(untold, 'cell')} that cannot be tested, {unjudged:,} that cannot be compared"
        console.print(Text(words, style="yellow"))
    slower = [
        f"{each.new.name}: {one.place}: {change(one.change)}, {p_text(one)}"
        for each, one in differences
        if one.is_regression(percent_ / 100)
    ]
    return _passed(console, [*slower, *dead], percent_)


def p_text(one: Difference) -> str:
    """The corrected p of a throughput, named."""
    words = p_words(one.throughput_test)
    return f"p {words}" if words.startswith("<") else f"p = {words}"
