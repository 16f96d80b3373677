"""The findings of a campaign with flows: the best UUT by latency and by rate, the cost of neighbours, and caveats."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.model.units import LoadKind
from netbench.report.caveats import caveats, no_result
from netbench.report.finding import MOST_NAMED, Finding, n_text, shortened, uuts_by_setting
from netbench.report.flow_formats import figure_interval
from netbench.report.formats import (
    count,
    enumerated,
    excluded,
    limit_excluded,
    not_measurable,
    rough_percent,
    sentence,
    times_base,
)
from netbench.report.styles import label
from netbench.statistics.flow_costs import FlowCost, flow_costs, leading_figures
from netbench.statistics.flow_figures import FlowFigure, WorkloadGroup, workload_groups_of
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans, ratio_of_intervals

_MANY_ERRORS = 0.01  # of the operations: from here on, percentiles of the completed ones are too good
_ALIKE = 0.01  # of the highest rate: smaller differences between UUTs that keep up with a load are no ranking
_BUSY = 0.9  # of one CPU: from here on, the client may be the limit
_REACHED = 0.99  # of the intended operations: below, the client did not keep up


def flow_findings(results: CampaignResults) -> tuple[Finding, ...]:
    """The findings, the most important first; a single one where nothing is valid."""
    groups = workload_groups_of(results)
    if not any(group.valid for group in groups):
        return (Finding("Result", no_result(results), "verdicts"),)
    figures = leading_figures(groups)
    known = [
        finding for figure in figures for finding in _ranking(results, groups, figure, is_first=figure is figures[0])
    ]
    known += _neighbours(results, groups)
    if texts := caveats(results, (), _caveats(results, groups)):
        (lead, anchor), *others = texts
        known.append(Finding("Caveats", lead, anchor, " ".join(text for text, _ in others)))
    return tuple(known) or (Finding("Result", sentence("flow_findings.no_figure"), "verdicts"),)


def _ranking(
    results: CampaignResults, groups: Sequence[WorkloadGroup], figure: FlowFigure, *, is_first: bool
) -> Iterator[Finding]:
    """The best UUT of each setting by a figure, in the cell that most UUTs have, and the others relative to it.

    Rates that are alike, because all UUTs keep up with the load, rank nothing: they are no finding beside another one.
    """
    shown = _comparable([group for group in groups if figure.name in group.figures], figure)
    if not is_first and figure.is_better_high and _are_alike(group.figures[figure.name].mean for group in shown):
        return
    group_of = {group.uut: group for group in shown}
    settings = uuts_by_setting(results, group_of)
    leads, details = list[str](), list[str]()
    for uuts in settings:
        of_setting = [group_of[uut] for uut in uuts if uut in group_of]
        lead, more = _of_setting(of_setting, figure, lambda uut: label(uut, results.emulated))
        leads.append(lead)
        details += more
    first = shown[0]
    intervals = [group.figures[figure.name] for group in shown]
    conditions = f"{_where(first)}, {n_text(intervals)}"
    details.append(sentence("findings.conditions", conditions=conditions))
    topic, anchor = ("Latency", "latency") if figure.kind else ("Rate", "rates")
    yield Finding(topic, leads[0], anchor, " ".join((*leads[1:], *details)))


def _where(group: WorkloadGroup) -> str:
    clients = f", {count(group.sources, 'client')}" if group.sources > 1 else ""
    scenario = "no neighbour" if group.scenario == DEDICATED else group.scenario
    return f"{group.workload} at {group.load}{clients}, {scenario}"


def _comparable(groups: Sequence[WorkloadGroup], figure: FlowFigure) -> list[WorkloadGroup]:
    """The groups of one cell, of different UUTs: the least disturbed scenario, the cell that most UUTs have.

    Latencies are compared at the highest load that is a number, rates at `max`, or else at the highest load.
    """
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    scenario = next(name for name in (DEDICATED, SHARED_IDLE, *scenarios) if name in scenarios)
    cells = grouped([group for group in groups if group.scenario == scenario], lambda group: group.cell)

    def rank(same: Sequence[WorkloadGroup]) -> tuple[int, int, bool, float]:
        load = same[0].load
        is_max = load.kind is LoadKind.MAX
        return len(same), -same[0].sources, is_max is not bool(figure.kind), load.value

    return max(cells.values(), key=rank)


def _of_setting(
    groups: Sequence[WorkloadGroup], figure: FlowFigure, name: Callable[[str], str]
) -> tuple[str, list[str]]:
    """The sentence about the best UUT of a setting, and those about the others; the first group is the baseline."""
    base = groups[0]
    top, *others = sorted(groups, key=lambda group: _badness(group, figure))

    def amount(group: WorkloadGroup) -> str:
        return f"{name(group.uut)} {figure_interval(figure, group.figures[figure.name])}"

    def ratio(group: WorkloadGroup, to: WorkloadGroup) -> RatioOfMeans:
        return ratio_of_intervals(group.figures[figure.name], to.figures[figure.name])

    if not others:
        of_top = figure_interval(figure, top.figures[figure.name])
        return sentence("flow_findings.only", uut=name(top.uut), figure=figure.title, amount=of_top), []
    if figure.is_better_high and _are_alike(group.figures[figure.name].mean for group in groups):
        names = enumerated(shortened([name(group.uut) for group in groups], "more_uuts_alike"))
        of_base = figure_interval(figure, base.figures[figure.name])
        limit = f"{100 * _ALIKE:g}"
        return sentence("flow_findings.alike", uuts=names, figure=figure.title, limit=limit, amount=of_base), []
    adjective = "highest" if figure.is_better_high else "lowest"
    tied = [group for group in others if not ratio(group, top).significant]
    if tied:
        same = [name(group.uut) for group in (top, *tied)]
        lead = sentence(
            "flow_findings.tied",
            uuts=enumerated(shortened(same, "more_uuts_alike")),
            adjective=adjective,
            figure=figure.title,
        )
        details = [f"{'; '.join(map(amount, (top, *tied[: MOST_NAMED - 1])))}."]
    else:
        to = others[0] if top is base else base
        relative = times_base(ratio(top, to), name(to.uut))
        of_top = figure_interval(figure, top.figures[figure.name])
        lead = sentence(
            "flow_findings.best",
            uut=name(top.uut),
            adjective=adjective,
            figure=figure.title,
            amount=of_top,
            relative=relative,
        )
        details = []
    rest = [group for group in others if group not in tied]
    texts = [
        amount(group) + ("" if group is base else f", {times_base(ratio(group, base), name(base.uut))}")
        for group in rest
    ]
    if texts:
        details.append(f"{'; '.join(shortened(texts, 'more_uuts_worse', MOST_NAMED - 1))}.")
    return lead, details


def _are_alike(rates: Iterable[float]) -> bool:
    known = list(rates)
    return max(known) - min(known) <= _ALIKE * max(known)


def _badness(group: WorkloadGroup, figure: FlowFigure) -> float:
    value = group.figures[figure.name].mean
    return -value if figure.is_better_high else value


def _neighbours(results: CampaignResults, groups: Sequence[WorkloadGroup]) -> Iterator[Finding]:
    """The costliest neighbour with its cost for each UUT, or the changes that are excluded."""
    costs = list(flow_costs(groups))
    worst = max((cost for cost in costs if cost.is_cost), key=lambda cost: cost.size, default=None)
    if worst is not None:
        alike = [cost for cost in costs if _key(cost) == _key(worst)]
        several = len({cost.group.scenario for cost in costs}) > 1
        hit = [cost for cost in alike if cost.is_cost]
        cuts = [f"of {label(cost.group.uut, results.emulated)} by {_by(cost)}" for cost in hit]
        lead = sentence(
            "flow_findings.costs_most" if several else "flow_findings.costs",
            scenario=worst.group.scenario,
            verb="cuts" if worst.figure.is_better_high else "raises",
            figure=worst.figure.title,
            cuts=enumerated(shortened(cuts, "more_cuts")),
            alone="" if worst.base.scenario == DEDICATED else f" compared with {worst.base.scenario}",
        )
        others = [_other(results, cost) for cost in alike if not cost.is_cost]
        details = [f"{'; '.join(others[:MOST_NAMED])}."] if others else []
        compared = [group.figures[worst.figure.name] for cost in alike for group in (cost.group, cost.base)]
        where = f"{worst.group.workload} at {worst.group.load}, {n_text(compared)}"
        details.append(sentence("findings.conditions", conditions=where))
        yield Finding("Neighbours", lead, "neighbours", " ".join(details))
    elif costs:
        by_uut = grouped(costs, lambda cost: label(cost.group.uut, results.emulated))
        texts = []
        for uut, of_uut in list(by_uut.items())[:MOST_NAMED]:
            by_scenario = grouped(of_uut, lambda cost: cost.group.scenario)
            ratios = {scenario: [cost.ratio for cost in same] for scenario, same in by_scenario.items()}
            texts.append(f"{uut}: {excluded(ratios)}")
        is_known = not all(not_measurable(cost.ratio) for cost in costs)
        lead = sentence("findings.no_cost" if is_known else "findings.cost_unknown")
        yield Finding("Neighbours", lead, "neighbours", f"{'; '.join(texts)}.")


def _key(cost: FlowCost) -> tuple[object, ...]:
    return cost.group.scenario, cost.group.cell, cost.figure.name, cost.base.scenario


def _by(cost: FlowCost) -> str:
    """`210 % (180 … 240 %)`: the change of a figure that is significantly worse."""
    ratio, sign = cost.ratio, -1 if cost.figure.is_better_high else 1
    limits = sorted(sign * 100 * (limit - 1) for limit in (ratio.low, ratio.high) if limit is not None)
    inside = f" ({' … '.join(f'{limit:,.0f}' for limit in limits)} %)" if limits else ""
    return f"{sign * 100 * ((ratio.ratio or 0.0) - 1):,.0f} %{inside}"


def _other(results: CampaignResults, cost: FlowCost) -> str:
    """The clause about a UUT that the costliest neighbour does not harm."""
    uut = label(cost.group.uut, results.emulated)
    if why := not_measurable(cost.ratio):
        return f"{uut} {why}"
    if cost.ratio.significant:
        return f"{uut} {times_base(cost.ratio, cost.base.scenario)}"
    return f"no significant change for {uut} (changes above {limit_excluded([cost.ratio])} % are excluded)"


def _caveats(results: CampaignResults, groups: Sequence[WorkloadGroup]) -> Iterator[tuple[str, str]]:
    """The limits of the figures: scatter unknown, failed operations, clients that did not keep up."""
    valid = [len(group.valid) for group in groups if group.valid]
    if max(valid) == 1:
        yield sentence("caveats.one_repetition"), "results"
    failing = [group for group in groups if (of := group.figures.get("error_ratio")) and of.mean > _MANY_ERRORS]
    if failing:
        worst = max(failing, key=lambda group: group.figures["error_ratio"].mean)
        yield (
            sentence(
                "flow_findings.failed",
                uuts=_named(results, failing),
                worst=rough_percent(worst.figures["error_ratio"].mean),
                where=_where(worst),
                times=sentence("flow_findings.of_completed") if any(group.kind_of_times for group in failing) else "",
            ),
            "rates",
        )
    if busy := [group for group in groups if (share := _client_share(group)) is not None and share > _BUSY]:
        worst = max(busy, key=lambda group: _client_share(group) or 0.0)
        most = rough_percent(_client_share(worst))
        text = sentence("flow_findings.busy_client", uuts=_named(results, busy), share=most, where=_where(worst))
        yield text, "rates"
    slow = [group for group in groups if (reached := _reached(group)) is not None and reached < _REACHED]
    if slow:
        worst = min(slow, key=lambda group: _reached(group) or 0.0)
        yield (
            sentence(
                "flow_findings.not_started",
                uuts=_named(results, slow),
                part=rough_percent(_reached(worst)),
                where=_where(worst),
            ),
            "rates",
        )


def _reached(group: WorkloadGroup) -> float | None:
    """The started operations ÷ the intended ones over the valid trials; None where they are unknown."""
    flows = [flow for trial in group.valid for flow in trial.victim.flows]
    known = [(flow.started, flow.intended) for flow in flows if flow.started is not None and flow.intended]
    return sum(started for started, _ in known) / sum(intended for _, intended in known) if known else None


def _client_share(group: WorkloadGroup) -> float | None:
    """The largest share of one CPU that a client used in a valid trial; None where it is unknown."""
    shares = (flow.client_cpu_share for trial in group.valid for flow in trial.victim.flows)
    return max((share for share in shares if share is not None), default=None)


def _named(results: CampaignResults, groups: Iterable[WorkloadGroup]) -> str:
    names = [label(uut, results.emulated) for uut in dict.fromkeys(group.uut for group in groups)]
    return enumerated(names[:MOST_NAMED])
