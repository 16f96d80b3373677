"""The results of a campaign prepared for a report: groups, styles of UUTs, and what several sections need."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from netbench.model.campaign import CampaignResults
from netbench.model.trial import TrialResult
from netbench.model.virtualisation import Setting, Virtualisation
from netbench.report.blocks import Cell, FigureMarkup
from netbench.report.formats import count
from netbench.report.published import PublishedPaper, paper_of_profile
from netbench.report.styles import Style, styles
from netbench.statistics.drift import Steadiness, steadiness_of
from netbench.statistics.groups import Group, group_trials, grouped
from netbench.statistics.interference import Curve, RelativeMaximum, curves, relative_maxima
from netbench.statistics.limits import with_limits
from netbench.statistics.lost_frames import CounterTotals, uuts_with_guest
from netbench.statistics.workload_groups import WorkloadGroup, workload_groups_of

KINDS = list(Virtualisation)


@dataclass(frozen=True, slots=True)
class View:
    """The part of the results shown at a time: one scenario and number of sources."""

    name: str
    title: str
    groups: list[Group]


@dataclass(frozen=True)
class ReportModel:
    """The results without calibration trials; their groups, with their limits, in order of UUTs; their styles.

    Either `groups`, of frames, or `workload_groups` are empty.
    """

    results: CampaignResults
    groups: tuple[Group, ...]
    styles: Mapping[str, Style]
    calibration: tuple[TrialResult, ...] = ()
    workload_groups: tuple[WorkloadGroup, ...] = ()
    counters: CounterTotals = field(default_factory=CounterTotals)
    blocks: dict[str, list[FigureMarkup]] = field(default_factory=dict, compare=False)  # charts, made once
    broken_figures: dict[str, str] = field(default_factory=dict, compare=False)  # errors of other packages, by figure

    @classmethod
    def of(cls, results: CampaignResults, counters: CounterTotals | None = None) -> "ReportModel":
        """Read a campaign once."""
        wanted = tuple(trial.without_counters for trial in results.wanted_trials)
        calibration = tuple(trial for trial in results.trials if trial.spec.finds_maximum)
        shown = replace(results, trials=wanted, planned_trials=results.planned_trials - len(calibration))
        groups = with_limits(group_trials(shown))
        flows = workload_groups_of(shown)
        uuts = uuts_in_order(
            [*shown.uuts, *(group.uut for group in groups), *(group.uut for group in flows)], shown.facts
        )
        groups = tuple(sorted(groups, key=lambda group: uuts.index(group.uut)))
        flows = tuple(sorted(flows, key=lambda group: uuts.index(group.uut)))
        model = cls(shown, groups, styles(uuts, shown.settings), calibration, flows, counters or CounterTotals())
        model.counters.guests |= uuts_with_guest(wanted)
        return model

    @property
    def guests(self) -> Collection[str]:
        """The UUTs with a guest on their path."""
        return self.counters.guests

    @cached_property
    def views(self) -> list[View]:
        """The views of the groups."""
        return views(self.groups)

    @cached_property
    def maxima(self) -> tuple[RelativeMaximum, ...]:
        """The maxima beside neighbours, relative to those without."""
        return relative_maxima(self.groups)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """The results of UUTs by the load of their neighbours."""
        return curves(self.groups)

    @cached_property
    def steadiness(self) -> tuple[Steadiness, ...]:
        """The stability of each UUT; empty for a campaign of searches."""
        return () if self.results.searches else steadiness_of(self.groups)

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """The trials that are no part of a benchmark test after a search."""
        return tuple(trial for trial in self.results.trials if not trial.spec.benchmark)

    @property
    def paper(self) -> PublishedPaper | None:
        """The paper on forwarding that the profile repeats, if it does."""
        paper = paper_of_profile(self.results.profile)
        return paper if paper and paper.tables else None

    @property
    def paper_of_flows(self) -> PublishedPaper | None:
        """The paper on applications that the profile repeats, if it does."""
        paper = paper_of_profile(self.results.profile)
        return paper if paper and paper.figures else None

    @property
    def emulated(self) -> list[str]:
        """The UUTs with an emulated CPU, in topology order."""
        return [uut for uut in self.results.uuts if uut in self.results.emulated]


def uut_cell(uut: str, styles: Mapping[str, Style], more: str = "") -> Cell:
    """The name of a UUT behind a swatch of its colour in the figures."""
    return Cell(styles[uut].label + more, colour=styles[uut].colour)


def baselines(maxima: Iterable[RelativeMaximum]) -> str:
    """The scenarios that these maxima are compared to."""
    return " or ".join(dict.fromkeys(maximum.baseline for maximum in maxima))


def uuts_in_order(uuts: Iterable[str], facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The distinct UUTs by setting, then by kind of virtualisation; equal ones in the given order."""

    def place(uut: str) -> tuple[Setting, int]:
        kind = virtualisation(facts.get(uut, {}))
        return Setting.of(facts.get(uut, {})), len(KINDS) if kind is None else KINDS.index(kind)

    return sorted(dict.fromkeys(uuts), key=place)


def virtualisation(facts: Mapping[str, str]) -> Virtualisation | None:
    """The kind of virtualisation of a UUT with these facts; None where it is unknown."""
    return Virtualisation(facts["virtualisation"]) if "virtualisation" in facts else None


def views(groups: Sequence[Group]) -> list[View]:
    """The views of some groups, scenarios in the order they come, numbers of sources rising."""
    scenarios = list(dict.fromkeys(group.scenario for group in groups))
    parts = grouped(groups, lambda group: (group.scenario, group.sources))
    made: dict[str, View] = {}
    for place, part in enumerate(sorted(parts, key=lambda part: (scenarios.index(part[0]), part[1]))):
        title = _title(*part, parts)
        name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")  # valid in ids and file names
        unique = name if name and name not in made else f"{name}-{place}".strip("-")
        made[unique] = View(unique, title, parts[part])
    return list(made.values())


def _title(scenario: str, sources: int, parts: Collection[tuple[str, int]]) -> str:
    """A title that distinguishes a view from the others."""
    if len({name for name, _ in parts}) == 1:
        return count(sources, "source")
    several = len({number for name, number in parts if name == scenario}) > 1
    return f"{scenario}, {count(sources, 'source')}" if several else scenario
