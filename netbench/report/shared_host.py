"""The sections about guests that share a host: the effects of neighbours on the UUT, and of the UUT on them.

They follow the order of Schlosser et al. 2011: Figure 5, then Tables 1 to 3, the paper's beside the measured ones.
Sections without a counterpart in the paper come last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from netbench.model.campaign import CampaignResults
from netbench.model.scenario import Network, Stress
from netbench.report.figures import baselines_named, curves_of_loss, curves_of_throughput, relative_maximum
from netbench.report.formats import count
from netbench.report.markup import Html, element, join
from netbench.report.published import PublishedPaper, PublishedTable
from netbench.report.sections import Section, by_title, drawn_apart, note, reference, section
from netbench.report.shared_host_tables import (
    background_table,
    change_table,
    fairness_table,
    matrix_table,
    maxima_table,
    published_table,
    worst_table,
)
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.interference import (
    Curve,
    RelativeMaximum,
    curves,
    matrix,
    relative_maxima,
    worst_isolation,
)
from netbench.statistics.sharing import Background, background, fairness

_COMPUTES = str(Stress())

OfVictim = TypeVar("OfVictim", RelativeMaximum, Background, Curve)


def shared_host_sections(
    groups: Sequence[Group], looks: Mapping[str, Style], results: CampaignResults, paper: PublishedPaper | None
) -> Iterable[Section]:
    """The sections with data; none where no UUT had a neighbour. The figures of a `paper` are added where given."""
    maxima = relative_maxima(groups)
    if maxima:
        yield section(
            "isolation",
            "Interference: what neighbours leave to a UUT",
            note(
                f"The highest throughput beside a neighbour, in percent of that without ({baselines_named(maxima)}):"
                " bars that end at the dotted line are undisturbed, and one with a ? is of too few repetitions to tell."
            ),
            _by_sources(maxima, lambda part, sources: _relative(part, looks, f"isolation-{sources}")),
            element("h3", "Where each UUT was disturbed most"),
            note(
                "The isolation index is the same ratio: 1 is undisturbed, 0 is nothing left. Below each index its 95 %"
                " interval; “not significant” where that holds 1."
            ),
            worst_table(worst_isolation(maxima), looks),
            element("h3", "Victim × neighbour"),
            matrix_table(matrix(groups), looks),
            link="Interference",
            is_open=True,
        )
    if all_curves := curves(groups):
        yield _curves(all_curves, looks)
    if paper and (forwarding := [maximum for maximum in maxima if maximum.best.forwarding]):
        yield _figure_5(forwarding, looks, paper)
    if paper and (computing := [maximum for maximum in maxima if _computes(maximum.best)]):
        yield _table_1(computing, looks, paper)
    if backgrounds := background(groups):
        yield _second_guest_itself(backgrounds, looks, paper, results)
    if fair := fairness(groups):
        yield section(
            "fairness",
            "Fairness",
            note(
                "Jain's index over the shares of its offered frames that each guest got through: 1 when all got the"
                " same share, 1/n when one of n guests got everything. Means of the valid trials ± 95 % interval."
            ),
            fairness_table(fair, looks),
        )


def _figure_5(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style], paper: PublishedPaper) -> Section:
    return section(
        "second-guest-forwards",
        "A second guest forwarding small packets",
        note(
            "As Figure 5 of the paper: the highest throughput while a neighbour forwards, relative to the most in"
            f" {baselines_named(maxima)}, from valid trials only. Bars that end at the dotted line are undisturbed."
        ),
        _by_sources(maxima, lambda part, sources: _relative(part, looks, f"relative-maximum-{sources}")),
        note("What the paper found: ", paper.on_figure(5)),
        link="Second guest forwarding",
    )


def _relative(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style], name: str) -> Html:
    return drawn_apart(maxima, _victim, looks, relative_maximum, name)


def _table_1(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style], paper: PublishedPaper) -> Section:
    columns = {maximum.scenario: maximum.scenario.removeprefix("cpu-") for maximum in maxima}

    def measured(own: Sequence[RelativeMaximum], sources: int) -> Html:
        return _beside(change_table(own, columns, looks, "Measured here, %"), paper, paper.tables[1], sources)

    return section(
        "second-guest-computes",
        "Relative change of throughput beside a guest that computes",
        note(
            "As Table 1 of the paper: the change of the highest throughput relative to"
            f" {baselines_named(maxima)}, positive where it rose. Bold: a significant change; grey: none. The limits of"
            " the 95 % interval are below each number; pointing at it tells what may be said."
        ),
        _by_sources(maxima, measured),
        reference("The paper: ", paper),
        link="Second guest computing",
    )


def _second_guest_itself(
    backgrounds: Sequence[Background],
    looks: Mapping[str, Style],
    paper: PublishedPaper | None,
    results: CampaignResults,
) -> Section:
    def of_sources(own: Sequence[Background], sources: int) -> Html:
        parts = []
        for scenario, members in grouped(own, lambda entry: entry.scenario).items():
            doing = ", ".join(dict.fromkeys(activity for entry in members for activity in entry.activities))
            table = background_table(members, looks, "Measured here, Mbit/s (L1)")
            beside = _beside(table, paper, _published(members, paper), sources) if paper else table
            parts.append((f"{scenario}: {doing}", beside))
        return by_title(parts)

    refer = (element("h3", "What the shares refer to"), maxima_table(results.maxima, looks)) if results.maxima else ()
    return section(
        "second-guest-itself",
        "The second guest itself",
        note(
            f"{'As Tables 2 and 3 of the paper: what' if paper else 'What'} the neighbours were offered (in) and what"
            " they forwarded (out), averaged over all loads of the UUT, ± 95 % interval. Rows are its frame sizes."
        ),
        _by_sources(backgrounds, of_sources),
        *((reference("The paper: ", paper),) if paper else ()),
        *refer,
    )


def _curves(found: Sequence[Curve], looks: Mapping[str, Style]) -> Section:
    def of_sources(own: Sequence[Curve], sources: int) -> Html:
        parts = []
        for place, (disturbance, alike) in enumerate(grouped(own, lambda curve: curve.disturbance).items()):
            throughput = drawn_apart(alike, _victim, looks, curves_of_throughput, f"curve-{sources}-{place}")
            loss = drawn_apart(alike, _victim, looks, curves_of_loss, f"curve-of-loss-{sources}-{place}")
            parts.append((f"Throughput; neighbours: {disturbance}", throughput))
            parts.append((f"Loss; neighbours: {disturbance}", loss))
        return by_title(parts)

    return section(
        "curves",
        "Interference curves",
        note(
            "What is left to the UUT as its neighbours are offered more. Each line is at the load at which the UUT"
            " had its highest throughput without them. A level line is perfect isolation."
        ),
        _by_sources(found, of_sources),
    )


def _victim(one: RelativeMaximum | Curve) -> str:
    return one.victim.uut


def _by_sources(items: Sequence[OfVictim], content: Callable[[Sequence[OfVictim], int], Html]) -> Html:
    """The content for each number of sources, which is the second argument of `content`."""
    by_number = sorted(grouped(items, lambda item: item.victim.sources).items())
    if len(by_number) == 1:
        return content(items, by_number[0][0])
    return by_title([(count(sources, "source"), content(members, sources)) for sources, members in by_number])


def _beside(measured: Html, paper: PublishedPaper, published: PublishedTable | None, sources: int) -> Html:
    """The measured table, beside the paper's for the same number of sources and its notes."""
    if published is None or published.sources != sources:
        return measured
    columns = "; ".join(f"{name}: {meaning}" for name, meaning in published.columns.items())
    words = note(f"Columns of the paper: {columns}. {paper.on_table(published.number)}")
    return join((element("div", measured, published_table(published), css="beside"), words))


def _published(backgrounds: Iterable[Background], paper: PublishedPaper) -> PublishedTable | None:
    """The paper's table about neighbours with the same activities."""
    doing = {entry.activities for entry in backgrounds}
    shares = (table for table in paper.tables.values() if table.share is not None)
    return next((table for table in shares if doing == {(str(Network(None, table.share)),)}), None)


def _computes(group: Group) -> bool:
    return not group.forwarding and any(neighbour.activity.startswith(_COMPUTES) for neighbour in group.neighbours)
