"""Figures and tables of a campaign as files for a paper, each from exactly the numbers that its page shows."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from netbench.errors import MissingError, UsageError
from netbench.model.campaign import CampaignResults
from netbench.report import figures, rfc2544_section, searches, steadiness_section
from netbench.report.chart import Chart
from netbench.report.delay_and_order import delay_against_offered, has_delay
from netbench.report.formats import count, mbps, mbps_spread, mean
from netbench.report.loss_by_place import loss_by_place
from netbench.report.markup import TableColumn
from netbench.report.page import OF_PAPER
from netbench.report.palette import resolved
from netbench.report.panels import groups_by_uut
from netbench.report.sections import apart, views
from netbench.report.shared_host_tables import isolation_columns
from netbench.report.shown import Shown
from netbench.report.styles import Style
from netbench.report.svg import chart_svg
from netbench.report.tables import mean_column, results_columns, size_column, uut_label
from netbench.report.text_tables import TableFormat, text_table
from netbench.results.atomic import write_atomically
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import curves, relative_maxima
from netbench.statistics.lost_frames import group_outcome, uuts_with_guest

Item = TypeVar("Item")


class FigureFormat(StrEnum):
    """The formats of figures; the value is also the suffix of their files."""

    SVG = "svg"
    PDF = "pdf"
    PNG = "png"
    CSV = "csv"


def write_publication(
    results: CampaignResults, figure_formats: Sequence[FigureFormat], tables: Sequence[TableFormat], out: Path
) -> list[Path]:
    """Write each figure in each format, and each table, into the directory `out`, which is made if missing.

    Returns the files written, in order. MissingError where PDF or PNG is requested and CairoSVG cannot be used,
    UsageError where the directory cannot be made.
    """
    encode = {form: _encoder(form) for form in figure_formats}
    shown = Shown.of(results)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out}: cannot be made: {error.strerror}; name another directory with -o DIR") from None
    written = []
    for name, chart in charts_of(shown):
        for form in figure_formats:
            written.append(out / f"{name}.{form.value}")
            write_atomically(written[-1], encode[form](chart))
    for table_form in tables:
        for name, text in tables_of(shown, table_form):
            written.append(out / f"{name}{table_form.suffix}")
            write_atomically(written[-1], text.encode())
    return written


def charts_of(shown: Shown) -> Iterator[tuple[str, Chart]]:
    """The figures of the page, with their names there; only the first of several scales."""
    yield from _of_searches(shown)
    yield from _of_groups(shown)
    if not shown.results.searches:
        steady = steadiness_section.with_figures(steadiness_of(shown.groups))
        yield from _drawn(steady, lambda item: item.uut, steadiness_section.residuals_in_time, "steadiness", shown)


def _drawn(
    items: Sequence[Item],
    uut_of: Callable[[Item], str],
    draw: Callable[[Sequence[Item], Mapping[str, Style]], Chart],
    name: str,
    shown: Shown,
) -> Iterator[tuple[str, Chart]]:
    """A figure for each setting of UUTs, as on the page."""
    for part in apart(items, uut_of, shown.looks, name):
        if part.items:
            yield part.name, draw(part.items, shown.looks)


def _of_searches(shown: Shown) -> Iterator[tuple[str, Chart]]:
    results = shown.results
    for place, members in enumerate(searches.with_figures((*results.searches, *results.maxima_searches)).values()):
        yield from _drawn(members, lambda search: search.uut, searches.highest_loads, f"searches-{place}", shown)
    tested = rfc2544_section.tested(results.searches)
    for place, rows in enumerate(rfc2544_section.with_figures(tested).values()):
        draw = rfc2544_section.throughput_graph
        yield from _drawn(rows, lambda row: row[0].uut, draw, f"rfc2544-throughput-{place}", shown)
        if rfc2544_section.has_losses(rows):
            draw = rfc2544_section.loss_graph
            yield from _drawn(rows, lambda row: row[0].uut, draw, f"rfc2544-loss-{place}", shown)


def _of_groups(shown: Shown) -> Iterator[tuple[str, Chart]]:
    groups, looks = shown.groups, shown.looks
    choice = views(groups)
    drawn = partial(_drawn, shown=shown)
    for view in choice:
        yield from drawn(view.groups, _uut, figures.offered_against_throughput, f"throughput-{view.name}")
        yield from drawn(view.groups, _uut, figures.loss_against_offered, f"loss-{view.name}")
        known = [group for group in view.groups if has_delay(group)]
        yield from drawn(known, _uut, delay_against_offered, f"delay-{view.name}")
    scenarios = {group.scenario for group in groups}
    fewest = min((group.sources for group in groups), default=1)
    if len(scenarios) > 1:
        beside = [group for group in groups if group.sources == fewest]
        yield from drawn(beside, _uut, partial(figures.most_throughput, by_scenario=True), "maximum-scenarios")
    for place, of_scenario in enumerate(grouped(groups, lambda group: group.scenario).values()):
        if len(scenarios) == 1 or len({group.sources for group in of_scenario}) > 1:
            name = "maximum" if len(scenarios) == 1 else f"maximum-{place}"
            yield from drawn(of_scenario, _uut, figures.most_throughput, name)
    maxima = relative_maxima(groups)
    beside_forwarding = [maximum for maximum in maxima if maximum.best.forwarding]
    as_figure_5 = beside_forwarding if shown.results.profile.startswith(OF_PAPER) else []
    for name, which in (("isolation", maxima), ("relative-maximum", as_figure_5)):
        for sources, own_maxima in sorted(grouped(which, lambda maximum: maximum.victim.sources).items()):
            yield from drawn(
                own_maxima, lambda maximum: maximum.victim.uut, figures.relative_maximum, f"{name}-{sources}"
            )
    for sources, own_curves in sorted(grouped(curves(groups), lambda curve: curve.victim.sources).items()):
        for place, alike in enumerate(grouped(own_curves, lambda curve: curve.disturbance).values()):
            name = f"{sources}-{place}"
            yield from drawn(alike, lambda curve: curve.victim.uut, figures.curves_of_throughput, f"curve-{name}")
            yield from drawn(alike, lambda curve: curve.victim.uut, figures.curves_of_loss, f"curve-of-loss-{name}")
    guests = uuts_with_guest(shown.results.trials)
    for view in choice:
        outcomes = [
            [outcome for group in members if (outcome := group_outcome(group, guest=uut in guests))]
            for uut, members in groups_by_uut(view.groups).items()
        ]
        lossy = [of_uut for of_uut in outcomes if any(outcome.drops for outcome in of_uut)]
        for place, own_outcomes in enumerate(lossy):
            yield f"split-{place}-{view.name}", loss_by_place(own_outcomes, looks)


def tables_of(shown: Shown, form: TableFormat) -> Iterator[tuple[str, str]]:
    """The tables of the page for a paper, with the names of their files."""
    looks = shown.looks
    for view in views(shown.groups):
        columns = (size_column(), *results_columns(looks))
        caption = f"Means of the valid trials with 95 % intervals, {view.title}; Mbit/s on the wire (L1)"
        yield f"results-{view.name}", text_table(form, columns, view.groups, caption)
    most: tuple[TableColumn[Group], ...] = (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Scenario", lambda group: group.scenario),
        TableColumn("Sources", lambda group: str(group.sources), "number"),
        size_column(),
        TableColumn("≥", lambda group: "≥" if group.limited_by else ""),
        mean_column("Highest throughput Mbit/s", lambda group: group.maximum_mbps, mbps, mbps_spread),
        TableColumn("At load", lambda group: ", ".join(map(str, group.maximum_loads))),
        TableColumn("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps)), "number"),
        TableColumn("n", lambda group: str(group.maximum_fps.n if group.maximum_fps else 0), "number"),
        TableColumn("Limited by", lambda group: group.limited_by or "the UUT"),
    )
    caption = "The highest throughput, over all loads at which it is the same, with 95 % intervals; ≥: not saturated"
    yield "maximum", text_table(form, most, best_groups(shown.groups), caption)
    if maxima := relative_maxima(shown.groups):
        caption = f"What neighbours leave: {count(len(maxima), 'ratio')} to {figures.baselines_named(maxima)}"
        yield "isolation", text_table(form, isolation_columns(looks), maxima, caption)


def _encoder(form: FigureFormat) -> Callable[[Chart], bytes]:
    if form is FigureFormat.CSV:
        return _csv
    if form is FigureFormat.SVG:
        return lambda chart: resolved(chart_svg(chart)).encode()
    try:
        import cairosvg  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingError(
            f"figures as {form.value.upper()} need CairoSVG; add it with: pip install 'netbench[figures]'"
        ) from None
    except OSError:  # CairoSVG is installed, the library that it loads is not
        raise MissingError(
            f"figures as {form.value.upper()} need the library libcairo2; add it with: apt-get install libcairo2"
        ) from None
    if form is FigureFormat.PDF:
        return lambda chart: bytes(cairosvg.svg2pdf(resolved(chart_svg(chart)).encode()))
    return lambda chart: bytes(cairosvg.svg2png(resolved(chart_svg(chart)).encode(), scale=2))


def _csv(chart: Chart) -> bytes:
    text = io.StringIO()
    names, rows = chart.table
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue().encode()


def _uut(group: Group) -> str:
    return group.uut
