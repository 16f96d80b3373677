"""The sections of a campaign's page: for each its tables, figures and notes, in the order of the page."""

from collections.abc import Callable, Iterator, Sequence

from netbench.model.search import SearchResult
from netbench.model.verdict import WarningKind
from netbench.report import figures
from netbench.report.blocks import Block, Bullets, Choice, Folded, Heading, Note, Option, Section, section, under_titles
from netbench.report.figures.loss_by_place import lossy_outcomes
from netbench.report.flow_sections import FLOW_SECTIONS
from netbench.report.formats import capitalised, count, sentence
from netbench.report.model import ReportModel, View
from netbench.report.neighbour_sections import (
    isolation_section,
    second_guest_computes_section,
    second_guest_forwards_section,
    second_guest_itself,
)
from netbench.report.published import schlosser2011
from netbench.report.section_parts import (
    Sections,
    by_view,
    figure_charts,
    notes_of,
    paper_findings,
    paper_reference,
    plain_section,
    sections_of_other_packages,
    streams_without,
    tables_by_view,
    titled,
)
from netbench.report.tables import tables_of
from netbench.report.tables.delay import judged, software_delays
from netbench.report.tables.losses import finding_sentence, paper_finding_table, waterfalls
from netbench.report.tables.searches import by_streams, methods_text, test_tables, tested
from netbench.report.tester_sections import (
    environment_section,
    tester_section,
    verdicts_section,
    warning_bullets,
    warnings_of,
)
from netbench.statistics.delay_and_order import order_refusals, refusals
from netbench.statistics.groups import grouped
from netbench.statistics.lost_frames import paper_finding
from netbench.statistics.outliers import FEWEST_TO_MARK, outliers_of


def campaign_sections(model: ReportModel) -> list[Section]:
    """All sections with data."""
    searched = bool(model.results.searches)
    parts: list[Callable[[ReportModel], Sections]] = [
        *((_searches,) if searched else ()),
        _rfc2544,
        *(_MEASURED if model.groups else ()),
        *(FLOW_SECTIONS if model.workload_groups else ()),
        *(() if searched else (_searches,)),
        plain_section("platforms", _platforms),
        verdicts_section,
        plain_section(
            "warnings", lambda model: [warning_bullets(warnings)] if (warnings := warnings_of(model)) else []
        ),
        tester_section,
        plain_section("uuts", lambda model: tables_of("facts", model)),
        environment_section,
    ]
    return [section for part in parts for section in part(model)]


def _throughput(model: ReportModel) -> Sections:
    marks = {
        "single_trials": any(group.suspicious or group.invalid for group in model.groups),
        "outliers_marked": any((cell := outliers_of(group)) and cell.marked for group in model.groups),
        "figure_3_of_paper": model.paper is not None,
    }
    blocks = [
        *by_view(model, lambda view: figure_charts("throughput", model, view.name)),
        *notes_of(*(note for note, is_true in marks.items() if is_true)),
        *paper_findings(model, 3),
    ]
    yield section("throughput", blocks, is_open=True)


def _maximum(model: ReportModel) -> Sections:
    left_out = sum(bool(group.valid) and not group.counts_as_maximum for group in model.groups)
    text = sentence("notes.left_out", number=count(left_out, "measurement")) if left_out else ""
    blocks: list[Block] = [*figure_charts("maximum", model), Note(sentence("notes.maximum_counts", left_out=text))]
    blocks += notes_of("figure_4_of_paper") if model.paper else []
    for table in tables_of("lower-bounds", model):
        summary = f"Lower bounds: {count(len(table.rows), 'maximum', 'maxima')} without overload"
        blocks.append(Folded(summary, [*notes_of("lower_bounds"), table]))
    pairs = {(group.scenario, group.sources) for group in model.groups}
    single = 1 < len(pairs) == len({scenario for scenario, _ in pairs})
    by = "scenario" if single else "number of sources"
    yield section("maximum", [*blocks, *paper_findings(model, 4)], is_open=True, by=by)


def _places(model: ReportModel) -> Sections:
    finding = paper_finding(model.trials, list(model.styles), model.guests)
    outside = ", ".join(finding.without_guest)
    without_guest = [Note(sentence("notes.without_guest", uuts=outside))] if outside else []
    blocks = [
        *by_view(model, lambda view: [waterfalls(model, view)]),
        Heading("Loss curve by place"),
        *by_view(model, lambda view: _loss_curves(model, view)),
        *titled("All loads and frame sizes together", tables_of("losses", model), "losses_summed"),
        *(() if finding.by_uut else without_guest),
    ]
    yield section("places", blocks)
    if finding.by_uut:
        text = finding_sentence(finding, model.emulated)
        blocks = [
            paper_reference(schlosser2011(), sentence("notes.paper_statement")),
            Note(text, "strong"),
            paper_finding_table(finding, model),
            *notes_of("before_guest"),
            *without_guest,
        ]
        yield section("paper-finding", blocks)


def _loss_curves(model: ReportModel, view: View) -> list[Block]:
    """The loss curve of each UUT that lost frames; at first the one that lost most is shown."""
    charts = {chart.uut: chart for chart in figures.blocks("split", model) if chart.view == view.name}
    if not charts:
        return notes_of("no_loss")
    outcomes = lossy_outcomes(view.groups, model.guests)
    start = max(charts, key=lambda uut: sum(outcome.lost for outcome in outcomes.get(uut, ())))
    options = [Option(uut, model.styles[uut].label) for uut in charts]
    parts = [[Heading(option.title, 4), charts[option.value]] for option in options]
    return [Choice("Unit under test", options, parts, name=f"split-{view.name}", start=start)]


def _delay(model: ReportModel) -> Sections:
    refused = streams_without("no_delay", refusals(model.trials))
    tables = tables_by_view("delay", model, "measurement", figure="delay")
    if refused or tables:
        yield section("delay", [*refused, *tables, *notes_of("pdv")])


def _software_delay(model: ReportModel) -> Sections:
    if tables := tables_by_view("software-delay", model, "measurement"):
        tools = sorted({delay.measured_by for group in model.groups for delay in software_delays(group)})
        yield section("software-delay", [*tables, *notes_of("jitter")], tools=", ".join(tools))


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
        blocks += [
            *figure_charts("steadiness", model),
            *tables,
            *notes_of("overload_only", "drift_method", "boots_method"),
        ]
        blocks += [Heading("Outliers"), Note(text), *(table.folded("cell") for table in outliers)]
    for table in tables_of("warm-ups", model):
        made = sum(1 for _ in model.results.warm_ups)
        text = sentence("notes.warm_ups", trials=count(made, "trial"), boots=count(len(table.rows), "boot"))
        blocks += [Heading("Warm-up trials"), Note(text), table.folded("boot")]
    if blocks:
        yield section("steadiness", blocks, lead=None if tables else "")


def _captioned(name: str, model: ReportModel, noun: str) -> list[Block]:
    """Folded tables, each under its caption."""
    return [table.folded(noun, f"{table.caption} – ") for table in tables_of(name, model)]


def _stream_fairness(model: ReportModel) -> list[Block]:
    """The fairness between the streams of a guest, and the finding of the paper on it."""
    tables: list[Block] = [table.folded("measurement") for table in tables_of("stream-fairness", model)]
    return [*tables, *paper_findings(model, 4)] if tables else []


def _with_table(figure: str, name: str, model: ReportModel) -> list[Block]:
    """The charts of a figure, and the table of its numbers, folded."""
    return [*figure_charts(figure, model), *(table.folded("measurement") for table in tables_of(name, model))]


def _results(model: ReportModel) -> list[Block]:
    tables = {table.view: table for table in tables_of("results", model)}
    skipped = titled("Skipped, saturated", tables_of("skipped-loads", model))
    return [*by_view(model, lambda view: [tables[view.name]]), *skipped]


def _mixes(model: ReportModel) -> list[Block]:
    sizes = tables_of("mix-sizes", model)
    return [*tables_of("mixes", model), *(notes_of("mix_sizes") if sizes else []), *sizes]


def _platforms(model: ReportModel) -> list[Block]:
    tables = tables_of("platforms", model)
    apart = len({style.setting for style in model.styles.values()}) > 1
    return [*(notes_of("different_cpus") if tables and apart else []), *tables]


# In the order of the page.
_MEASURED = (
    _throughput,
    _maximum,
    plain_section(
        "loss", lambda model: by_view(model, lambda view: figure_charts("loss", model, view.name)), is_open=True
    ),
    plain_section("packet-cost", lambda model: _with_table("packet-cost", "packet-costs", model), is_open=True),
    plain_section("flows", lambda model: _with_table("flows", "flow-scaling", model), is_open=True),
    isolation_section,
    plain_section("curves", lambda model: [*figure_charts("curve", model), *figure_charts("curve-of-loss", model)]),
    second_guest_forwards_section,
    second_guest_computes_section,
    plain_section("second-guest-itself", second_guest_itself),
    plain_section("fairness", lambda model: _captioned("fairness", model, "measurement")),
    plain_section("stream-fairness", _stream_fairness),
    _places,
    plain_section(
        "flow-groups", lambda model: [*tables_of("flow-fairness", model), *_captioned("flow-groups", model, "group")]
    ),
    plain_section("changed-fields", lambda model: tables_of("changed-fields", model)),
    _delay,
    _software_delay,
    plain_section(
        "order",
        lambda model: [*streams_without("no_order", order_refusals(judged(model))), *tables_of("order", model)],
    ),
    plain_section("results", _results),
    _stability,
    plain_section("directions", lambda model: tables_by_view("directions", model, "direction")),
    plain_section("mixes", _mixes),
    plain_section(
        "cpu", lambda model: [*tables_of("cpu-scenarios", model), *tables_by_view("cpu", model, "measurement")]
    ),
    plain_section("counters", lambda model: _captioned("counters", model, "counter")),
    sections_of_other_packages,
)


def _searches(model: ReportModel) -> Sections:
    if tables := tables_of("searches", model):
        rows = (*model.results.searches, *model.results.maxima_searches)
        blocks = [
            *figure_charts("searches", model),
            *tables,
            *_notes_of_searches(rows),
            *titled("Each stream at its highest load", tables_of("search-streams", model), "each_stream"),
            *titled("Delay under load", tables_of("search-delays", model), "search_delays"),
        ]
        yield section("searches", blocks, is_open=bool(model.results.searches))


def _notes_of_searches(rows: Sequence[SearchResult]) -> Iterator[Block]:
    """The meaning of goals, throughput and shares, for searches with frames and for those of workloads."""
    for of_flows, searches in grouped(rows, lambda search: search.of_flows).items():
        for_shares = any(search.for_maxima for search in searches)
        if of_flows:
            yield from notes_of("service_level")
            yield Note(f"{capitalised(methods_text(searches))}.")
            yield from notes_of("shares_of_workloads") if for_shares else ()
            continue
        yield from notes_of("ndr_pdr")
        yield Note(sentence("notes.conditional", methods=methods_text(searches)))
        yield from notes_of("shares_refer") if for_shares else ()


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
            *figure_charts("rfc2544-throughput", model),
            *([Heading("Frame loss rate (section 26.3)", 4)] if any(tests.losses for _, tests in rows) else []),
            *figure_charts("rfc2544-loss", model),
            *under_titles(parts),
            Heading("Deviations from RFC 2544"),
            *([Bullets(deviations)] if deviations else notes_of("rfc2544_nothing")),
        ],
        is_open=True,
    )
