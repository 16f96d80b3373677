"""The sections of a campaign's page: for each its tables, figures and notes, in the order of the page."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from netbench.report.formats import count, sentence
from netbench.report.model import PublishedPaper, PublishedTable, ReportModel, View, baselines, schlosser2011
from netbench.report.selftest_page import selftest_before, selftest_blocks, selftest_sentence
from netbench.report.stability import steadiness_warnings
from netbench.report.tables import tables_of
from netbench.report.tables.delay import judged, software_delays
from netbench.report.tables.interference import background_table, change_table, published_table
from netbench.report.tables.losses import finding_sentence, paper_finding_table, waterfalls
from netbench.report.tables.searches import by_streams, methods_text, test_tables, tested
from netbench.report.tables.tester import UNKNOWN_SETTING, Environment, identity_tables, text_of
from netbench.report.tables.verdicts import reasons_against, reasons_by_kind, reasons_of_discarded
from netbench.results.manifest import IDENTITIES, SELFTEST
from netbench.statistics.delay_and_order import order_refusals, refusals
from netbench.statistics.drift import FEWEST_TO_MARK, outliers_of
from netbench.statistics.groups import grouped
from netbench.statistics.interference import RelativeMaximum
from netbench.statistics.lost_frames import paper_finding
from netbench.statistics.sharing import Background, background

Item = TypeVar("Item", RelativeMaximum, Background)
Sections = Iterator[Section]
_PLAIN = "Ether()/IP()/UDP()"  # the headers of plain frames


def campaign_sections(model: ReportModel) -> list[Section]:
    """All sections with data."""
    searched = bool(model.results.searches)
    parts: list[Callable[[ReportModel], Sections]] = [
        *((_searches,) if searched else ()),
        _rfc2544,
        *(_MEASURED if model.groups else ()),
        *(() if searched else (_searches,)),
        _plain("platforms", _platforms),
        _verdicts,
        _plain("warnings", lambda model: [warning_bullets(warnings)] if (warnings := warnings_of(model)) else []),
        _tester,
        _plain("uuts", lambda model: tables_of("facts", model)),
        _environment,
    ]
    return [section for part in parts for section in part(model)]


def main_chart(model: ReportModel) -> FigureMarkup | None:
    """The chart of the first screen: the highest loads of searches, the comparison of packets, or the throughput."""
    names = ("searches",) if model.results.searches else (*_packet_figures(model), "maximum")
    return next((charts[0] for name in names if (charts := figures.blocks(name, model))), None)


def _packet_figures(model: ReportModel) -> tuple[str, ...]:
    """The figures that compare packets, the one that fits the profile first; none with a single packet."""
    packets = model.results.packets
    if len(packets) < 2:
        return ()
    described = [packet for packet in packets.values() if isinstance(packet, Mapping)]
    only_flows = all(packet.get("headers") == _PLAIN for packet in described)
    return ("flows", "packet-cost") if only_flows else ("packet-cost", "flows")


def _figure(name: str, model: ReportModel, view: str = "") -> list[Block]:
    """The charts of the figure of this name, without the one of the first screen."""
    main = main_chart(model)
    return [chart for chart in figures.blocks(name, model) if chart.view == view and chart is not main]


def _by_view(model: ReportModel, content: Callable[[View], Sequence[Block]]) -> list[Block]:
    """The content of each view that has some behind buttons that choose one; a single view has no buttons."""
    parts = [(Option(view.name, view.title), blocks) for view in model.views if (blocks := content(view))]
    if len(model.views) == 1 or not parts:
        return [block for _, blocks in parts for block in blocks]
    options, contents = zip(*parts, strict=True)
    return [Choice("Scenario and number of sources", options, contents)]


def _tables_by_view(name: str, model: ReportModel, noun: str, figure: str = "") -> list[Block]:
    """The table of each view, folded, below the figure of this name."""
    tables = {table.view: table.folded(noun) for table in tables_of(name, model)}

    def of_view(view: View) -> list[Block]:
        charts = _figure(figure, model, view.name) if figure else []
        return [*charts, tables[view.name]] if view.name in tables else []

    return _by_view(model, of_view)


def _notes(*names: str) -> list[Block]:
    return [Note(sentence(f"notes.{name}")) for name in names]


def _titled(title: str, tables: Sequence[Table], *notes: str) -> list[Block]:
    """Tables under a title and notes from the data file; nothing without tables."""
    return [Heading(title), *_notes(*notes), *tables] if tables else []


def _streams_without(note: str, refused: dict[str, int]) -> list[Block]:
    """A note for each reason why something of some streams is unknown."""
    return [
        Note(sentence(f"notes.{note}", streams=f"{count(number, 'stream')} of trials", why=why))
        for why, number in refused.items()
    ]


def _found_by_paper(model: ReportModel, figure: int) -> list[Block]:
    """The findings of the paper on its figure, folded; nothing without a paper."""
    return [Folded("What the paper found", [Note(model.paper.on_figure(figure))])] if model.paper else []


def _throughput(model: ReportModel) -> Sections:
    marks = {
        "single_trials": any(group.suspicious or group.invalid for group in model.groups),
        "outliers_marked": any((cell := outliers_of(group)) and cell.marked for group in model.groups),
        "figure_3_of_paper": model.paper is not None,
    }
    blocks = [
        *_by_view(model, lambda view: _figure("throughput", model, view.name)),
        *_notes(*(note for note, is_true in marks.items() if is_true)),
        *_found_by_paper(model, 3),
    ]
    yield section("throughput", blocks, is_open=True)


def _maximum(model: ReportModel) -> Sections:
    left_out = sum(bool(group.valid) and not group.counts_as_maximum for group in model.groups)
    text = sentence("notes.left_out", number=count(left_out, "measurement")) if left_out else ""
    blocks: list[Block] = [*_figure("maximum", model), Note(sentence("notes.maximum_counts", left_out=text))]
    blocks += _notes("figure_4_of_paper") if model.paper else []
    for table in tables_of("lower-bounds", model):
        summary = f"Lower bounds: {count(len(table.rows), 'maximum', 'maxima')} without overload"
        blocks.append(Folded(summary, [*_notes("lower_bounds"), table]))
    pairs = {(group.scenario, group.sources) for group in model.groups}
    single = 1 < len(pairs) == len({scenario for scenario, _ in pairs})
    by = "scenario" if single else "number of sources"
    yield section("maximum", [*blocks, *_found_by_paper(model, 4)], is_open=True, by=by)


def _isolation(model: ReportModel) -> Sections:
    if model.maxima:
        lowest = tables_of("worst-isolation", model)
        blocks = [
            *_figure("isolation", model),
            *_titled("Lowest isolation index of each UUT", lowest, "isolation_index"),
            *_titled("Victim × neighbour", tables_of("matrix", model)),
        ]
        yield section("isolation", blocks, is_open=True, baselines=baselines(model.maxima))


def _second_guest_forwards(model: ReportModel) -> Sections:
    forwarding = [maximum for maximum in model.maxima if maximum.best.forwarding]
    if model.paper and forwarding:
        blocks = [*_figure("relative-maximum", model), *_found_by_paper(model, 5)]
        yield section("second-guest-forwards", blocks, baselines=baselines(forwarding))


def _second_guest_computes(model: ReportModel) -> Sections:
    computing = [
        maximum
        for maximum in model.maxima
        if not maximum.best.forwarding
        and any(isinstance(neighbour.activity, Stress) for neighbour in maximum.best.neighbours)
    ]
    if (paper := model.paper) and computing:
        columns = {maximum.scenario: maximum.scenario.removeprefix("cpu-") for maximum in computing}

        def of_sources(maxima: Sequence[RelativeMaximum], sources: int) -> list[Block]:
            return _beside(change_table(maxima, columns, model.styles), paper, paper.tables[1], sources)

        blocks = [*_by_sources(computing, of_sources), _reference(paper, "The paper: ")]
        yield section("second-guest-computes", blocks, baselines=baselines(computing))


def _second_guest_itself(model: ReportModel) -> list[Block]:
    def of_sources(members: Sequence[Background], sources: int) -> list[Block]:
        parts: list[Block] = []
        for scenario, rows in grouped(members, lambda row: row.scenario).items():
            activities = ", ".join(dict.fromkeys(activity for row in rows for activity in row.activities))
            parts.append(Heading(f"{scenario}: {activities}"))
            parts += _beside(background_table(rows, model.styles), model.paper, _published(rows, model.paper), sources)
        return parts

    backgrounds = background(model.groups)
    return [
        *_by_sources(backgrounds, of_sources),
        *([_reference(model.paper, "The paper: ")] if model.paper and backgrounds else []),
        *_titled("Maxima that the shares refer to", tables_of("load-maxima", model) if backgrounds else []),
    ]


def _by_sources(items: Sequence[Item], content: Callable[[Sequence[Item], int], list[Block]]) -> list[Block]:
    """The content for each number of sources, which is the second argument of `content`."""
    by_number = sorted(grouped(items, lambda item: item.victim.sources).items())
    return under_titles([(count(sources, "source"), content(members, sources)) for sources, members in by_number])


def _beside(
    measured: Table, paper: PublishedPaper | None, published: PublishedTable | None, sources: int
) -> list[Block]:
    """The measured table, beside the paper's for the same number of sources, and the notes of the paper."""
    if paper is None or published is None or published.sources != sources:
        return [measured]
    columns = "; ".join(f"{name}: {meaning}" for name, meaning in published.columns.items())
    text = sentence("notes.columns_of_paper", columns=columns, notes=paper.on_table(published.number))
    return [Grid([[measured], [published_table(published)]], "beside"), Note(text)]


def _published(backgrounds: Iterable[Background], paper: PublishedPaper | None) -> PublishedTable | None:
    """The paper's table about neighbours with the same activities."""
    activities = {row.activities for row in backgrounds}
    shares = (table for table in (paper.tables.values() if paper else ()) if table.share is not None)
    return next((table for table in shares if activities == {(str(Network(None, table.share)),)}), None)


def _reference(paper: PublishedPaper, text: str) -> Note:
    """A note about the paper, with its citation and DOI."""
    return Note(sentence("notes.paper_reference", text=text, citation=paper.citation, doi=paper.doi))


def _places(model: ReportModel) -> Sections:
    finding = paper_finding(model.trials, list(model.styles), model.guests)
    outside = ", ".join(finding.without_guest)
    without_guest = [Note(sentence("notes.without_guest", uuts=outside))] if outside else []
    blocks = [
        *_by_view(model, lambda view: [waterfalls(model, view)]),
        Heading("Loss curve by place"),
        *_by_view(model, lambda view: _loss_curves(model, view)),
        *_titled("All loads and frame sizes together", tables_of("losses", model), "losses_summed"),
        *(() if finding.by_uut else without_guest),
    ]
    yield section("places", blocks)
    if finding.by_uut:
        text = finding_sentence(finding, model.emulated)
        blocks = [
            _reference(schlosser2011(), sentence("notes.paper_statement")),
            Note(text, "strong"),
            paper_finding_table(finding, model),
            *_notes("before_guest"),
            *without_guest,
        ]
        yield section("paper-finding", blocks)


def _loss_curves(model: ReportModel, view: View) -> list[Block]:
    """The loss curve of each UUT that lost frames; at first the one that lost most is shown."""
    charts = {chart.uut: chart for chart in figures.blocks("split", model) if chart.view == view.name}
    if not charts:
        return _notes("no_loss")
    outcomes = lossy_outcomes(view.groups, model.guests)
    start = max(charts, key=lambda uut: sum(outcome.lost for outcome in outcomes.get(uut, ())))
    options = [Option(uut, model.styles[uut].label) for uut in charts]
    parts = [[Heading(option.title, 4), charts[option.value]] for option in options]
    return [Choice("Unit under test", options, parts, name=f"split-{view.name}", start=start)]


def _delay(model: ReportModel) -> Sections:
    refused = _streams_without("no_delay", refusals(model.trials))
    tables = _tables_by_view("delay", model, "measurement", figure="delay")
    if refused or tables:
        yield section("delay", [*refused, *tables, *_notes("pdv")])


def _software_delay(model: ReportModel) -> Sections:
    if tables := _tables_by_view("software-delay", model, "measurement"):
        tools = sorted({delay.measured_by for group in model.groups for delay in software_delays(group)})
        yield section("software-delay", [*tables, *_notes("jitter")], tools=", ".join(tools))


def _stability(model: ReportModel) -> Sections:
    tables, outliers = tables_of("stability", model), tables_of("outliers", model)
    blocks: list[Block] = []
    if tables:
        large = sum(len(group.valid) >= FEWEST_TO_MARK for group in model.groups)
        marked = sum(len(cell.marked) for group in model.groups if (cell := outliers_of(group)))
        text = sentence(
            "notes.outliers" if large else "notes.no_outlier_test",
            trials=count(marked, "valid trial"),
            cells=count(sum(len(table.rows) for table in outliers), "cell"),
            large=f"{large:,}",
            fewest=FEWEST_TO_MARK,
        )
        blocks += [*_figure("steadiness", model), *tables, *_notes("overload_only", "drift_method", "boots_method")]
        blocks += [Heading("Outliers"), Note(text), *(table.folded("cell") for table in outliers)]
    for table in tables_of("warm-ups", model):
        made = sum(1 for _ in model.results.warm_ups)
        text = sentence("notes.warm_ups", trials=count(made, "trial"), boots=count(len(table.rows), "boot"))
        blocks += [Heading("Warm-up trials"), Note(text), table.folded("boot")]
    if blocks:
        yield section("steadiness", blocks, lead=None if tables else "")


def _plain(
    anchor: str, content: Callable[[ReportModel], Iterable[Block]], *, is_open: bool = False
) -> Callable[[ReportModel], Sections]:
    """A section of these blocks; none without any."""

    def part(model: ReportModel) -> Sections:
        if blocks := list(content(model)):
            yield section(anchor, blocks, is_open=is_open)

    return part


def _captioned(name: str, model: ReportModel, noun: str) -> list[Block]:
    """Folded tables, each under its caption."""
    return [table.folded(noun, f"{table.caption} – ") for table in tables_of(name, model)]


def _with_table(figure: str, name: str, model: ReportModel) -> list[Block]:
    """The charts of a figure, and the table of its numbers, folded."""
    return [*_figure(figure, model), *(table.folded("measurement") for table in tables_of(name, model))]


def _results(model: ReportModel) -> list[Block]:
    tables = {table.view: table for table in tables_of("results", model)}
    skipped = _titled("Skipped, saturated", tables_of("skipped-loads", model))
    return [*_by_view(model, lambda view: [tables[view.name]]), *skipped]


def _mixes(model: ReportModel) -> list[Block]:
    sizes = tables_of("mix-sizes", model)
    return [*tables_of("mixes", model), *(_notes("mix_sizes") if sizes else []), *sizes]


def _platforms(model: ReportModel) -> list[Block]:
    tables = tables_of("platforms", model)
    apart = len({style.setting for style in model.styles.values()}) > 1
    return [*(_notes("different_cpus") if tables and apart else []), *tables]


def _of_other_packages(model: ReportModel) -> Sections:
    for figure, charts in figures.extra(model):
        yield Section(figure.name, figure.title, figure.title, "", charts)
    for name, error in model.broken_figures.items():
        yield Section(name, name, name, "", [Note(sentence("notes.broken_figure", error=error))])


# In the order of the page.
_MEASURED = (
    _throughput,
    _maximum,
    _plain("loss", lambda model: _by_view(model, lambda view: _figure("loss", model, view.name)), is_open=True),
    _plain("packet-cost", lambda model: _with_table("packet-cost", "packet-costs", model), is_open=True),
    _plain("flows", lambda model: _with_table("flows", "flow-scaling", model), is_open=True),
    _isolation,
    _plain("curves", lambda model: [*_figure("curve", model), *_figure("curve-of-loss", model)]),
    _second_guest_forwards,
    _second_guest_computes,
    _plain("second-guest-itself", _second_guest_itself),
    _plain("fairness", lambda model: _captioned("fairness", model, "measurement")),
    _places,
    _plain(
        "flow-groups", lambda model: [*tables_of("flow-fairness", model), *_captioned("flow-groups", model, "group")]
    ),
    _plain("changed-fields", lambda model: tables_of("changed-fields", model)),
    _delay,
    _software_delay,
    _plain(
        "order",
        lambda model: [*_streams_without("no_order", order_refusals(judged(model))), *tables_of("order", model)],
    ),
    _plain("results", _results),
    _stability,
    _plain("directions", lambda model: _tables_by_view("directions", model, "direction")),
    _plain("mixes", _mixes),
    _plain("cpu", lambda model: [*tables_of("cpu-scenarios", model), *_tables_by_view("cpu", model, "measurement")]),
    _plain("counters", lambda model: _captioned("counters", model, "counter")),
    _of_other_packages,
)


def _searches(model: ReportModel) -> Sections:
    if tables := tables_of("searches", model):
        rows = (*model.results.searches, *model.results.maxima_searches)
        blocks = [
            *_figure("searches", model),
            *tables,
            *_notes("ndr_pdr"),
            Note(sentence("notes.conditional", methods=methods_text(rows))),
            *(_notes("shares_refer") if model.results.maxima_searches else []),
            *_titled("Each stream at its highest load", tables_of("search-streams", model), "each_stream"),
            *_titled("Delay under load", tables_of("search-delays", model), "search_delays"),
        ]
        yield section("searches", blocks, is_open=bool(model.results.searches))


def _rfc2544(model: ReportModel) -> Sections:
    rows = tested(model.results.searches)
    if not rows:
        return
    parts = []
    for heading, members in by_streams(rows).items():
        blocks = [part for title, table in test_tables(members, model) for part in (Heading(title, 4), table)]
        parts.append((heading, blocks))
    warnings = (warning for warning in model.results.warnings if warning.kind is WarningKind.NOT_AS_RFC_2544)
    deviations = [("", warning.text) for warning in warnings]
    yield section(
        "rfc2544",
        [
            Heading("Throughput (section 26.1)", 4),
            *_figure("rfc2544-throughput", model),
            *([Heading("Frame loss rate (section 26.3)", 4)] if any(tests.losses for _, tests in rows) else []),
            *_figure("rfc2544-loss", model),
            *under_titles(parts),
            Heading("Deviations from RFC 2544"),
            *([Bullets(deviations)] if deviations else _notes("rfc2544_nothing")),
        ],
        is_open=True,
    )


def _verdicts(model: ReportModel) -> Sections:
    trials = model.results.trials
    lead = None
    if not any(trial.reasons for trial in trials):
        lead = sentence("notes.all_valid" if trials else "notes.no_trial")
    blocks: list[Block] = [*reasons_by_kind(model, reasons_against(trials))]
    for title, note, reasons in (
        ("Discarded attempts", "discarded", reasons_of_discarded(trials)),
        ("Calibration trials", "calibration", reasons_against(model.calibration)),
    ):
        if reasons:
            blocks += [Heading(title), *_notes(note), *reasons_by_kind(model, reasons)]
    yield section("verdicts", blocks, lead=lead)


def warnings_of(model: ReportModel) -> tuple[CampaignWarning, ...]:
    """The warnings of the campaign, and those about its stability."""
    return (*model.results.warnings, *steadiness_warnings(model.steadiness))


def warning_bullets(warnings: Iterable[CampaignWarning]) -> Bullets:
    """The warnings, each with its kind and text."""
    return Bullets([(warning.kind.value, warning.text) for warning in warnings])


def _tester(model: ReportModel) -> Sections:
    manifest = model.results.manifest
    record, testers = SELFTEST.of(manifest), IDENTITIES.of(manifest)
    blocks: list[Block] = []
    if record is None:
        blocks += [Note(sentence("notes.selftest_unknown", topology=model.results.topology))]
    for tester in testers:
        since = f" from {tester.since} on" if len(testers) > 1 else ""
        blocks += [Heading(f"Sources, sinks and hosts{since}"), *identity_tables(tester)]
    blocks += _titled("Stalls of the tester", tables_of("stalls", model), "stalls")
    blocks += _titled("Highest rate of the sources", tables_of("source-ceilings", model), "source_ceiling")
    if record is not None:
        kinds = ({reason.kind for reason in trial.reasons} for trial in model.results.trials)
        limited = sum(ReasonKind.TESTER_LIMITED in of_trial for of_trial in kinds)
        blocks += [
            Note(sentence("notes.selftest_when", when=selftest_before(record.when_ns, manifest)) + "."),
            Note(selftest_sentence(record), "strong"),
            *selftest_blocks(record, sentence("notes.ceiling_limited", trials=count(limited, "trial"))),
        ]
    yield section("tester", blocks)


def _environment(model: ReportModel) -> Sections:
    manifest = model.results.manifest
    state = Environment.of(manifest)
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    text = sentence("notes.no_setting_changed" if state.is_finished else "notes.no_after")
    if changed := state.changed:
        names = ", ".join(map(".".join, changed))
        text = sentence("notes.settings_changed", settings=count(len(changed), "setting"), names=names)
    run = {"command": shlex.join(words) or UNKNOWN_SETTING, "seed": text_of(manifest.get("seed"))}
    yield section("environment", [Definitions(run), Note(text), *tables_of("environment", model)])
