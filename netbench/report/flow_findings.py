"""The findings of a campaign with flows: the best UUT by latency and by rate, the cost of neighbours, and caveats."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.model.units import LoadKind
from netbench.report.caveats import caveats, no_result
from netbench.report.finding import MOST_NAMED, Finding, n_by_uut, shortened, uuts_by_setting
from netbench.report.flow_caveats import conditions_of, flow_caveats
from netbench.report.flow_formats import figure_interval, unit_of
from netbench.report.formats import enumerated, excluded, kfps, limit_excluded, not_measurable, sentence, times_base
from netbench.report.styles import label
from netbench.statistics.flow_costs import FlowCost, flow_costs, leading_figures, missing_baselines, neighbour_fps
from netbench.statistics.flow_figures import FlowFigure
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans, ratio_of_intervals
from netbench.statistics.workload_groups import WorkloadGroup, workload_groups_of

_NUMBERS = {2: "two", 3: "three", 4: "four"}
_ALIKE = 0.01  # of the highest rate: smaller differences between UUTs that keep up with a load are no ranking


def flow_findings(results: CampaignResults, searched: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """The findings, the most important first; a single one where nothing is valid.

    `searched` are those about searches. The loads of their trials were chosen for each UUT, and compare no UUTs.
    """
    groups = workload_groups_of(results)
    known = list(searched)
    if not known and not any(group.valid for group in groups):
        return (Finding("Result", no_result(results), "verdicts"),)
    if not known:
        leading = leading_figures(groups)
        figures = _each_once(leading)
        for figure in figures:
            ranked = [group for group in groups if figure in leading[group.workload.name]]
            known += _ranking(results, ranked, figure, is_first=figure is figures[0])
        known += _neighbours(results, groups)
    if texts := caveats(results, (), flow_caveats(results, groups)):
        (lead, anchor), *others = texts
        known.append(Finding("Caveats", lead, anchor, " ".join(text for text, _ in others)))
    return tuple(known) or (Finding("Result", sentence("flow_findings.no_figure"), "verdicts"),)


def _each_once(leading: Mapping[str, Iterable[FlowFigure]]) -> list[FlowFigure]:
    """The leading figures of all workloads: times before rates."""
    figures = dict.fromkeys(figure for of_workload in leading.values() for figure in of_workload)
    return sorted(figures, key=lambda figure: not figure.kind)


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
    ranks = [
        _Ranking([group_of[uut] for uut in uuts if uut in group_of], figure, results.emulated) for uuts in settings
    ]
    details = [text for ranking in ranks[1:] for text in (ranking.lead, *ranking.details)]
    details = [*ranks[0].details, *details]
    number = _n_by_uut(results, shown, figure)
    if any(ranking.is_tied for ranking in ranks):
        details.append(f"{number}.")
    else:
        details.append(sentence("findings.conditions", conditions=f"{conditions_of(shown[0])}, {number}"))
    topic, anchor = ("Latency", "latency") if figure.kind else ("Rate", "rates")
    yield Finding(topic, ranks[0].lead, anchor, " ".join(details))


def _n_by_uut(results: CampaignResults, groups: Iterable[WorkloadGroup], figure: FlowFigure) -> str:
    by_uut = grouped(groups, lambda group: label(group.uut, results.emulated))
    return n_by_uut({uut: [group.figures[figure.name] for group in same] for uut, same in by_uut.items()})


def _comparable(groups: Sequence[WorkloadGroup], figure: FlowFigure) -> list[WorkloadGroup]:
    """The groups of one cell, of different UUTs: the least disturbed scenario, the cell that most UUTs have.

    Latencies are compared at the highest load that is a number. Rates are compared at `max`, or else at the highest
    load, with the workload that has the highest rate. Shares of maxima come last: they are another rate for each UUT.
    """
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    scenario = next(name for name in (DEDICATED, SHARED_IDLE, *scenarios) if name in scenarios)
    cells = grouped([group for group in groups if group.scenario == scenario], lambda group: group.cell)

    def rank(same: Sequence[WorkloadGroup]) -> tuple[int, bool, int, bool, float, float]:
        load = same[0].load
        is_max = load.kind is LoadKind.MAX
        highest = max(group.figures[figure.name].mean for group in same) if figure.is_better_high else 0.0
        is_share = load.kind is LoadKind.OF_MAXIMUM
        return len(same), not is_share, -same[0].sources, is_max is not bool(figure.kind), load.value, highest

    return max(cells.values(), key=rank)


class _Ranking:
    """The UUTs of a setting by a figure: a sentence about the best one or ones, and those about the others.

    The first group is the baseline. `is_tied`: the conditions are part of the sentence.
    """

    def __init__(self, groups: Sequence[WorkloadGroup], figure: FlowFigure, emulated: Collection[str]) -> None:
        self.figure, self.emulated, self.base = figure, emulated, groups[0]
        self.unit = unit_of(figure, (group.figures[figure.name] for group in groups))
        self.is_tied, self.details = False, list[str]()
        top, *others = sorted(groups, key=lambda group: _badness(group, figure))
        tied = [group for group in others if not self._ratio(group, top).significant]
        if not others:
            self.lead = self._sentence("only", uut=self._name(top), amount=self._interval(top))
        elif figure.is_better_high and _are_alike(group.figures[figure.name].mean for group in groups):
            limit, amount = f"{100 * _ALIKE:g}", self._interval(self.base)
            self.lead = self._sentence("alike", uuts=self._names(groups), limit=limit, amount=amount)
            return
        elif tied:
            self.is_tied = True
            self.lead = self._of_tied([top, *tied], len(groups))
        else:
            to = others[0] if top is self.base else self.base
            relative = times_base(self._ratio(top, to), self._name(to))
            self.lead = self._sentence("best", uut=self._name(top), amount=self._interval(top), relative=relative)
        self._add_others([group for group in others if group not in tied])

    def _of_tied(self, tied: Sequence[WorkloadGroup], of: int) -> str:
        """The sentence about the best UUTs, if no difference between them is significant."""
        amounts = [self._interval(group, with_n=True) for group in tied]
        if len(tied) == of == 2:
            text = enumerated(amounts)
        else:
            named = [f"{self._name(group)} {amount}" for group, amount in zip(tied, amounts, strict=True)]
            text = enumerated(shortened(named, "more_uuts_alike"))
        key = "tied" if len(tied) == of else "tied_of_more"
        number = _NUMBERS.get(len(tied), str(len(tied)))
        where = conditions_of(tied[0])
        return self._sentence(key, uuts=self._names(tied), number=number, of=of, amounts=text, where=where)

    def _add_others(self, rest: Sequence[WorkloadGroup]) -> None:
        """Add the amounts of the other UUTs, each relative to the baseline."""
        texts = []
        for group in rest:
            relative = times_base(self._ratio(group, self.base), self._name(self.base))
            amount = f"{self._name(group)} {self._interval(group)}"
            texts.append(amount if group is self.base else f"{amount}, {relative}")
        if texts:
            self.details.append(f"{'; '.join(shortened(texts, 'more_uuts_worse', MOST_NAMED - 1))}.")

    def _sentence(self, key: str, **values: object) -> str:
        adjective = "highest" if self.figure.is_better_high else "lowest"
        return sentence(f"flow_findings.{key}", figure=self.figure.title, adjective=adjective, **values)

    def _name(self, group: WorkloadGroup) -> str:
        return label(group.uut, self.emulated)

    def _names(self, groups: Iterable[WorkloadGroup]) -> str:
        return enumerated(shortened([self._name(group) for group in groups], "more_uuts_alike"))

    def _interval(self, group: WorkloadGroup, *, with_n: bool = False) -> str:
        return figure_interval(self.figure, group.figures[self.figure.name], self.unit, with_n=with_n)

    def _ratio(self, group: WorkloadGroup, to: WorkloadGroup) -> RatioOfMeans:
        return ratio_of_intervals(group.figures[self.figure.name], to.figures[self.figure.name])


def _are_alike(rates: Iterable[float]) -> bool:
    known = list(rates)
    return max(known) - min(known) <= _ALIKE * max(known)


def _badness(group: WorkloadGroup, figure: FlowFigure) -> float:
    value = group.figures[figure.name].mean
    return -value if figure.is_better_high else value


def _neighbours(results: CampaignResults, groups: Sequence[WorkloadGroup]) -> Iterator[Finding]:
    """The costliest neighbour with its cost for each UUT, or the changes that are excluded."""
    costs = list(flow_costs(groups))
    unknown = [sentence("flow_findings.no_baseline", why=missing) for missing in missing_baselines(groups)]
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
        compared = [group for cost in alike for group in (cost.group, cost.base)]
        number = _n_by_uut(results, compared, worst.figure)
        where = f"{worst.group.workload} at {worst.group.load}, {number}"
        rates = [
            f"{kfps(fps)} kfps beside {label(cost.group.uut, results.emulated)}"
            for cost in alike
            if (fps := neighbour_fps(cost.group)) is not None
        ]
        if rates:
            text = enumerated(shortened(rates, "more_uuts_alike"))
            details.append(sentence("flow_findings.neighbour_rates", scenario=worst.group.scenario, rates=text))
        details.append(sentence("findings.conditions", conditions=where))
        yield Finding("Neighbours", lead, "neighbours", " ".join((*details, *unknown)))
    elif costs:
        figure = min((cost.figure for cost in costs), key=_each_once(leading_figures(groups)).index)
        shown = [cost for cost in costs if cost.figure is figure]
        by_uut = grouped(shown, lambda cost: label(cost.group.uut, results.emulated))
        texts = []
        for uut, of_uut in list(by_uut.items())[:MOST_NAMED]:
            by_scenario = grouped(of_uut, lambda cost: cost.group.scenario)
            ratios = {scenario: [cost.ratio for cost in same] for scenario, same in by_scenario.items()}
            texts.append(f"{figure.title} of {uut}: {excluded(ratios)}")
        is_known = not all(not_measurable(cost.ratio) for cost in shown)
        lead = sentence("findings.no_cost" if is_known else "findings.cost_unknown")
        yield Finding("Neighbours", lead, "neighbours", " ".join((f"{'; '.join(texts)}.", *unknown)))
    elif unknown:
        yield Finding("Neighbours", unknown[0], "verdicts", " ".join(unknown[1:]))


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
