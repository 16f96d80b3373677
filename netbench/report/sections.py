"""The sections of a campaign's page: for each its tables, figures and notes, in the order of the page."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from netbench.model.scenario import Network, Stress
from netbench.model.verdict import CampaignWarning, ReasonKind, WarningKind
from netbench.report import figures
from netbench.report.blocks import (
    Block,
    Bullets,
    Choice,
    Definitions,
    FigureMarkup,
    Folded,
    Grid,
    Heading,
    Note,
    Option,
    Section,
    Table,
    section,
    under_titles,
)
from netbench.report.figures.loss_by_place import lossy_outcomes
from netbench.report.formats import count
from netbench.report.model import ReportModel, View
from netbench.report.published import PublishedTable, schlosser2011
from netbench.report.selftest_page import selftest_before, selftest_blocks, selftest_sentence
from netbench.report.sentences import sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.tables import tables_of
from netbench.report.tables.delay import judged, software_delays
from netbench.report.tables.environment import UNKNOWN_SETTING, Environment, text_of
from netbench.report.tables.interference import background_table, baselines, change_table, published_table
from netbench.report.tables.losses import finding_sentence, paper_finding_table, waterfalls
from netbench.report.tables.searches import by_streams, methods_text, test_tables, tested
from netbench.report.tables.tester import identity_tables
from netbench.report.tables.verdicts import reasons_against, reasons_by_kind, reasons_of_discarded
from netbench.results.manifest import IDENTITIES, SELFTEST
from netbench.statistics.delay_percentiles import refusals
from netbench.statistics.frame_order import order_refusals
from netbench.statistics.groups import Group, grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.lost_frames import paper_finding
from netbench.statistics.outliers import FEWEST, outliers_of
from netbench.statistics.sharing import Background, background

Item = TypeVar("Item")

_COMPUTES = str(Stress())


def campaign_sections(model: ReportModel) -> list[Section]:
    """All sections with data."""
    sections: list[Section] = []
    searched = bool(model.results.searches)
    parts: list[Callable[[ReportModel], Iterable[Section]]] = [
        *((_searches,) if searched else ()),
        _rfc2544,
        *((*_MEASURED,) if model.groups else ()),
        *(() if searched else (_searches,)),
        _platforms,
        _verdicts,
        _warnings,
        _tester,
        _facts,
        _environment,
    ]
    for part in parts:
        sections += part(model)
    return sections


def main_chart(model: ReportModel) -> figures.ChartBlock | None:
    """The chart of the first screen: the highest throughput, or the highest loads of searches."""
    charts = figures.blocks("searches" if model.results.searches else "maximum", model)
    return charts[0] if charts else None


def figure_blocks(name: str, model: ReportModel, view: str = "") -> list[Block]:
    """The charts of the figure of this name, without the one of the first screen."""
    main = main_chart(model)
    return [
        FigureMarkup(chart.html) for chart in figures.blocks(name, model) if chart.view == view and chart is not main
    ]


def by_view(model: ReportModel, content: Callable[[View], Sequence[Block]]) -> list[Block]:
    """The content of each view that has some behind buttons that choose one; a single view has no buttons."""
    parts = [(view, blocks) for view in model.views if (blocks := content(view))]
    if len(model.views) == 1:
        return list(parts[0][1]) if parts else []
    options = [Option(view.name, view.title) for view, _ in parts]
    return [Choice("Scenario and number of sources", options, [blocks for _, blocks in parts])] if parts else []


def _tables_by_view(name: str, model: ReportModel, show: Callable[[Table], Block]) -> dict[str, Block]:
    return {table.view: show(table) for table in tables_of(name, model)}


def _notes(*names: str) -> list[Block]:
    return [Note(sentence(f"notes.{name}")) for name in names]


def _titled(title: str, tables: Sequence[Table], *notes: str) -> list[Block]:
    """Tables under a title and notes; nothing without tables."""
    return [Heading(title), *(Note(note) for note in notes), *tables] if tables else []


def _found_by_paper(model: ReportModel, figure: int) -> list[Block]:
    """The findings of the paper on its figure, folded; nothing without a paper."""
    paper = model.paper
    return [Folded("What the paper found", [Note(paper.on_figure(figure))])] if paper else []


def _as_figure(model: ReportModel, number: int) -> list[Block]:
    return [Note(sentence("notes.figure_of_paper", number=number))] if model.paper else []


def _throughput(model: ReportModel) -> Iterator[Section]:
    marks = []
    if any(group.suspicious or group.invalid for group in model.groups):
        marks.append("single_trials")
    if any((outliers := outliers_of(group)) and outliers.marked for group in model.groups):
        marks.append("outliers_marked")
    yield section(
        "throughput",
        [
            *by_view(model, lambda view: figure_blocks("throughput", model, view.name)),
            *_notes(*marks),
            *_as_figure(model, 3),
            *_found_by_paper(model, 3),
        ],
        is_open=True,
    )


def _maximum(model: ReportModel) -> Iterator[Section]:
    left_out = sum(bool(group.valid) and not group.counts_as_maximum for group in model.groups)
    text = sentence("notes.left_out", number=count(left_out, "measurement")) if left_out else ""
    blocks: list[Block] = [
        *figure_blocks("maximum", model),
        Note(sentence("notes.maximum_counts", left_out=text)),
        *_as_figure(model, 4),
    ]
    for table in tables_of("lower-bounds", model):
        summary = f"Lower bounds: {count(len(table.rows), 'maximum', 'maxima')} not saturated"
        blocks.append(Folded(summary, [*_notes("lower_bounds"), table]))
    pairs = {(group.scenario, group.sources) for group in model.groups}
    single = 1 < len(pairs) == len({scenario for scenario, _ in pairs})
    by = "scenario" if single else "number of sources"
    yield section("maximum", [*blocks, *_found_by_paper(model, 4)], is_open=True, by=by)


def _loss(model: ReportModel) -> Iterator[Section]:
    yield section("loss", by_view(model, lambda view: figure_blocks("loss", model, view.name)), is_open=True)


def _isolation(model: ReportModel) -> Iterator[Section]:
    if model.maxima:
        yield section(
            "isolation",
            [
                *figure_blocks("isolation", model),
                *_titled(
                    "Lowest isolation index of each UUT",
                    tables_of("worst-isolation", model),
                    sentence("notes.isolation_index"),
                ),
                *_titled("Victim × neighbour", tables_of("matrix", model)),
            ],
            is_open=True,
            baselines=baselines(model.maxima),
        )


def _curves(model: ReportModel) -> Iterator[Section]:
    if blocks := [*figure_blocks("curve", model), *figure_blocks("curve-of-loss", model)]:
        yield section("curves", blocks)


def _second_guest_forwards(model: ReportModel) -> Iterator[Section]:
    forwarding = [maximum for maximum in model.maxima if maximum.best.forwarding]
    if model.paper and forwarding:
        yield section(
            "second-guest-forwards",
            [*figure_blocks("relative-maximum", model), *_found_by_paper(model, 5)],
            baselines=baselines(forwarding),
        )


def _second_guest_computes(model: ReportModel) -> Iterator[Section]:
    paper = model.paper
    computing = [maximum for maximum in model.maxima if _computes(maximum.best)]
    if not (paper and computing):
        return
    columns = {maximum.scenario: maximum.scenario.removeprefix("cpu-") for maximum in computing}

    def of_sources(maxima: Sequence[RelativeMaximum], sources: int) -> list[Block]:
        published = paper.tables[1] if paper else None
        return _beside(change_table(maxima, columns, model.styles), model, published, sources)

    yield section(
        "second-guest-computes",
        [*_by_sources(computing, lambda maximum: maximum.victim.sources, of_sources), _reference(model, "The paper: ")],
        baselines=baselines(computing),
    )


def _second_guest_itself(model: ReportModel) -> Iterator[Section]:
    backgrounds = background(model.groups)
    if not backgrounds:
        return

    def of_sources(members: Sequence[Background], sources: int) -> list[Block]:
        parts = []
        for scenario, rows in grouped(members, lambda row: row.scenario).items():
            activities = ", ".join(dict.fromkeys(activity for row in rows for activity in row.activities))
            published = _published(rows, model)
            blocks = _beside(background_table(rows, model.styles), model, published, sources)
            parts += [Heading(f"{scenario}: {activities}"), *blocks]
        return parts

    yield section(
        "second-guest-itself",
        [
            *_by_sources(backgrounds, lambda row: row.victim.sources, of_sources),
            *([_reference(model, "The paper: ")] if model.paper else []),
            *_titled("Maxima that the shares refer to", tables_of("load-maxima", model)),
        ],
    )


def _fairness(model: ReportModel) -> Iterator[Section]:
    if tables := tables_of("fairness", model):
        yield section("fairness", [table.folded("measurement", f"{table.caption} – ") for table in tables])


def _by_sources(
    items: Sequence[Item], sources_of: Callable[[Item], int], content: Callable[[Sequence[Item], int], list[Block]]
) -> list[Block]:
    """The content for each number of sources, which is the second argument of `content`."""
    by_number = sorted(grouped(items, sources_of).items())
    return under_titles([(count(sources, "source"), content(members, sources)) for sources, members in by_number])


def _beside(measured: Table, model: ReportModel, published: PublishedTable | None, sources: int) -> list[Block]:
    """The measured table, beside the paper's for the same number of sources, and the notes of the paper."""
    paper = model.paper
    if paper is None or published is None or published.sources != sources:
        return [measured]
    columns = "; ".join(f"{name}: {meaning}" for name, meaning in published.columns.items())
    text = sentence("notes.columns_of_paper", columns=columns, notes=paper.on_table(published.number))
    return [Grid([[measured], [published_table(published)]], "beside"), Note(text)]


def _published(backgrounds: Iterable[Background], model: ReportModel) -> PublishedTable | None:
    """The paper's table about neighbours with the same activities."""
    activities = {row.activities for row in backgrounds}
    shares = (table for table in (model.paper.tables.values() if model.paper else ()) if table.share is not None)
    return next((table for table in shares if activities == {(str(Network(None, table.share)),)}), None)


def _computes(group: Group) -> bool:
    return not group.forwarding and any(neighbour.activity.startswith(_COMPUTES) for neighbour in group.neighbours)


def _reference(model: ReportModel, text: str) -> Note:
    """A note about the paper, with its citation and DOI."""
    paper = model.paper or schlosser2011()
    return Note(sentence("notes.paper_reference", text=text, citation=paper.citation, doi=paper.doi))


def _places(model: ReportModel) -> Iterator[Section]:
    finding = paper_finding(model.trials, list(model.styles), model.guests)
    outside = ", ".join(finding.without_guest)
    without_guest = [Note(sentence("notes.without_guest", uuts=outside))] if outside else []
    yield section(
        "places",
        [
            *by_view(model, lambda view: [waterfalls(model, view)]),
            Heading("Loss curve by place"),
            *by_view(model, lambda view: _loss_curves(model, view)),
            *_titled("All loads and frame sizes together", tables_of("losses", model), sentence("notes.losses_summed")),
            *(() if finding.by_uut else without_guest),
        ],
    )
    if finding.by_uut:
        yield section(
            "paper-finding",
            [
                _reference(model, sentence("notes.paper_statement")),
                Note(
                    finding_sentence(finding, {uut for uut, style in model.styles.items() if style.emulated}), "strong"
                ),
                paper_finding_table(finding, model),
                *_notes("before_guest"),
                *without_guest,
            ],
        )


def _loss_curves(model: ReportModel, view: View) -> list[Block]:
    """The loss curve of each UUT that lost frames; at first the one that lost most is shown."""
    parts = [part for part in figures.blocks("split", model) if part.view == view.name]
    if not parts:
        return _notes("no_loss")
    outcomes = lossy_outcomes(view.groups, model.guests)
    lost = {uut: sum(outcome.lost for outcome in of_uut) for uut, of_uut in outcomes.items()}
    options = [Option(part.uut, model.styles[part.uut].label) for part in parts]
    start = max(options, key=lambda option: lost.get(option.value, 0)).value
    content: list[list[Block]] = [
        [Heading(option.title, 4), FigureMarkup(part.html)] for option, part in zip(options, parts, strict=True)
    ]
    return [Choice("Unit under test", options, content, name=f"split-{view.name}", start=start)]


def _delay(model: ReportModel) -> Iterator[Section]:
    refused = refusals(model.trials)
    tables = _tables_by_view("delay", model, lambda table: table.folded("measurement"))
    if not (refused or tables):
        return
    notes = [
        Note(sentence("notes.no_delay", streams=f"{count(number, 'stream')} of trials", why=why))
        for why, number in refused.items()
    ]
    views = by_view(
        model,
        lambda view: [*figure_blocks("delay", model, view.name), tables[view.name]] if view.name in tables else [],
    )
    yield section("delay", [*notes, *views, *_notes("pdv")])


def _software_delay(model: ReportModel) -> Iterator[Section]:
    tables = _tables_by_view("software-delay", model, lambda table: table.folded("measurement"))
    if tables:
        tools = sorted({delay.measured_by for group in model.groups for delay in software_delays(group)})
        views = by_view(model, lambda view: [tables[view.name]] if view.name in tables else [])
        yield section("software-delay", [*views, *_notes("jitter")], tools=", ".join(tools))


def _order(model: ReportModel) -> Iterator[Section]:
    tables, refused = tables_of("order", model), order_refusals(judged(model))
    if tables or refused:
        notes = [
            Note(sentence("notes.no_order", streams=f"{count(number, 'stream')} of trials", why=why))
            for why, number in refused.items()
        ]
        yield section("order", [*notes, *tables])


def _results(model: ReportModel) -> Iterator[Section]:
    tables = _tables_by_view("results", model, lambda table: table)
    skipped = _titled("Skipped, saturated", tables_of("skipped-loads", model))
    yield section("results", [*by_view(model, lambda view: [tables[view.name]]), *skipped])


def _stability(model: ReportModel) -> Iterator[Section]:
    tables, warm_ups = tables_of("stability", model), tables_of("warm-ups", model)
    blocks: list[Block] = []
    if tables:
        outliers = tables_of("outliers", model)
        large = sum(len(group.valid) >= FEWEST for group in model.groups)
        marked = sum(len(cell.marked) for group in model.groups if (cell := outliers_of(group)))
        cells = count(len(outliers[0].rows) if outliers else 0, "cell")
        text = sentence("notes.no_outlier_test", fewest=FEWEST)
        if large:
            trials = count(marked, "valid trial")
            text = sentence("notes.outliers", trials=trials, cells=cells, large=f"{large:,}", fewest=FEWEST)
        blocks += [
            *figure_blocks("steadiness", model),
            *tables,
            *_notes("overload_only", "drift_method", "boots_method"),
            Heading("Outliers"),
            Note(text),
            *(table.folded("cell") for table in outliers),
        ]
    for table in warm_ups:
        made = sum(1 for _ in model.results.warm_ups)
        text = sentence("notes.warm_ups", trials=count(made, "trial"), boots=count(len(table.rows), "boot"))
        blocks += [Heading("Warm-up trials"), Note(text), table.folded("boot")]
    if blocks:
        yield section("steadiness", blocks, lead=None if tables else "")


def _directions(model: ReportModel) -> Iterator[Section]:
    if tables := _tables_by_view("directions", model, lambda table: table.folded("direction")):
        yield section("directions", by_view(model, lambda view: [tables[view.name]] if view.name in tables else []))


def _mixes(model: ReportModel) -> Iterator[Section]:
    if mixes := tables_of("mixes", model):
        sizes = tables_of("mix-sizes", model)
        yield section("mixes", [*mixes, *(_notes("mix_sizes") if sizes else []), *sizes])


def _cpu(model: ReportModel) -> Iterator[Section]:
    tables = _tables_by_view("cpu", model, lambda table: table.folded("measurement"))
    views = by_view(model, lambda view: [tables[view.name]] if view.name in tables else [])
    if blocks := [*tables_of("cpu-scenarios", model), *views]:
        yield section("cpu", blocks)


def _counters(model: ReportModel) -> Iterator[Section]:
    if tables := tables_of("counters", model):
        yield section("counters", [table.folded("counter", f"{table.caption} – ") for table in tables])


_MEASURED: tuple[Callable[[ReportModel], Iterable[Section]], ...] = (
    _throughput,
    _maximum,
    _loss,
    _isolation,
    _curves,
    _second_guest_forwards,
    _second_guest_computes,
    _second_guest_itself,
    _fairness,
    _places,
    _delay,
    _software_delay,
    _order,
    _results,
    _stability,
    _directions,
    _mixes,
    _cpu,
    _counters,
    lambda model: (
        Section(figure.name, figure.title, figure.title, "", [FigureMarkup(html)])
        for figure, html in figures.extra(model)
    ),
)


def _searches(model: ReportModel) -> Iterator[Section]:
    tables = tables_of("searches", model)
    if tables:
        rows = (*model.results.searches, *model.results.maxima_searches)
        yield section(
            "searches",
            [
                *figure_blocks("searches", model),
                *tables,
                *_notes("ndr_pdr"),
                Note(sentence("notes.conditional", methods=methods_text(rows))),
                *(_notes("shares_refer") if model.results.maxima_searches else []),
                *_titled(
                    "Each stream at its highest load",
                    tables_of("search-streams", model),
                    sentence("notes.each_stream"),
                ),
                *_titled("Delay under load", tables_of("search-delays", model), sentence("notes.search_delays")),
            ],
            is_open=bool(model.results.searches),
        )


def _rfc2544(model: ReportModel) -> Iterator[Section]:
    rows = tested(model.results.searches)
    if not rows:
        return
    parts = []
    for (scenario, sources), members in by_streams(rows).items():
        blocks = [part for title, table in test_tables(members, model) for part in (Heading(title, 4), table)]
        parts.append((f"{scenario}, {count(sources, 'source')}", blocks))
    deviations = [
        ("", warning.text) for warning in model.results.warnings if warning.kind is WarningKind.NOT_AS_RFC_2544
    ]
    yield section(
        "rfc2544",
        [
            Heading("Throughput (section 26.1)", 4),
            *figure_blocks("rfc2544-throughput", model),
            *([Heading("Frame loss rate (section 26.3)", 4)] if any(tests.losses for _, tests in rows) else []),
            *figure_blocks("rfc2544-loss", model),
            *under_titles(parts),
            Heading("Deviations from RFC 2544"),
            *([Bullets(deviations)] if deviations else _notes("rfc2544_nothing")),
        ],
        is_open=True,
    )


def _platforms(model: ReportModel) -> Iterator[Section]:
    if tables := tables_of("platforms", model):
        apart = len({style.setting for style in model.styles.values()}) > 1
        yield section("platforms", [*(_notes("different_cpus") if apart else []), *tables])


def _verdicts(model: ReportModel) -> Iterator[Section]:
    trials = model.results.trials
    lead: str | None = None
    blocks: list[Block] = []
    if not any(trial.reasons for trial in trials):
        lead = sentence("notes.all_valid" if trials else "notes.no_trial")
    blocks += reasons_by_kind(model, reasons_against(trials))
    if discarded := reasons_of_discarded(trials):
        blocks += [Heading("Discarded attempts"), *_notes("discarded"), *reasons_by_kind(model, discarded)]
    if calibration := reasons_against(model.calibration):
        blocks += [Heading("Calibration trials"), *_notes("calibration"), *reasons_by_kind(model, calibration)]
    yield section("verdicts", blocks, lead=lead)


def warnings_of(model: ReportModel) -> tuple[CampaignWarning, ...]:
    """The warnings of the campaign, and those about its stability."""
    return (*model.results.warnings, *steadiness_warnings(model.steadiness))


def warning_bullets(warnings: Iterable[CampaignWarning]) -> Bullets:
    """The warnings, each with its kind and text."""
    return Bullets([(warning.kind.value, warning.text) for warning in warnings])


def _warnings(model: ReportModel) -> Iterator[Section]:
    if warnings := warnings_of(model):
        yield section("warnings", [warning_bullets(warnings)])


def _tester(model: ReportModel) -> Iterator[Section]:
    manifest = model.results.manifest
    record = SELFTEST.of(manifest)
    blocks: list[Block] = []
    if record is None:
        blocks += [Note(sentence("notes.selftest_unknown", topology=model.results.topology))]
    testers = IDENTITIES.of(manifest)
    for tester in testers:
        since = f" from {tester.since} on" if len(testers) > 1 else ""
        blocks += [Heading(f"Sources, sinks and hosts{since}"), *identity_tables(tester)]
    blocks += _titled("Stalls of the tester", tables_of("stalls", model), sentence("notes.stalls"))
    blocks += _titled(
        "Highest rate of the sources", tables_of("source-ceilings", model), sentence("notes.source_ceiling")
    )
    if record is not None:
        limited = sum(
            any(reason.kind is ReasonKind.TESTER_LIMITED for reason in trial.reasons) for trial in model.results.trials
        )
        blocks += [
            Note(sentence("notes.selftest_when", when=selftest_before(record.when_ns, manifest)) + "."),
            Note(selftest_sentence(record), "strong"),
            *selftest_blocks(record, sentence("notes.ceiling_limited", trials=count(limited, "trial"))),
        ]
    yield section("tester", blocks)


def _facts(model: ReportModel) -> Iterator[Section]:
    if tables := tables_of("facts", model):
        yield section("uuts", tables)


def _environment(model: ReportModel) -> Iterator[Section]:
    manifest = model.results.manifest
    state = Environment.of(manifest)
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    if state.changed:
        names = ", ".join(map(".".join, state.changed))
        text = sentence("notes.settings_changed", settings=count(len(state.changed), "setting"), names=names)
    else:
        text = sentence("notes.no_setting_changed" if state.after else "notes.no_after")
    run = {"command": shlex.join(words) or UNKNOWN_SETTING, "seed": text_of(manifest.get("seed"))}
    yield section("environment", [Definitions(run), Note(text), *tables_of("environment", model)])
