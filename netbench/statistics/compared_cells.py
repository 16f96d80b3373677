"""The model of a comparison: cells of two campaigns, their differences, and the cells that are left out.

A cell is a measurement that both campaigns contain, or the highest throughput of a UUT, scenario, number of sources and
frame size over their common loads.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase

from netbench.errors import UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.frame_size import FrameSize
from netbench.model.search import SearchResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.model.virtualisation import Setting
from netbench.model.workload import Workload, traffic_text
from netbench.statistics.change_interval import SideMean
from netbench.statistics.flow_figures import FIGURES_BY_NAME
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.intervals import DifferenceOfMeans, RatioOfMeans
from netbench.statistics.significance import CorrectedResult, Test
from netbench.statistics.workload_groups import WorkloadGroup

# Smaller differences are never reported: they are within the tester's own error.
LEAST_CHANGE = 0.001  # of the throughput
LEAST_DIFFERENCE = 0.0001  # of the frames offered
# Warnings that the host had other work while a campaign was measured.
DISTURBING = (WarningKind.HOST_WAS_BUSY, WarningKind.OTHER_CAMPAIGN)


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """The key of a cell; without a `load` it is the highest throughput at any load."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize  # bytes with FCS
    load: Load | None

    @property
    def traffic(self) -> FrameSize:
        """The kind of traffic, as of Searched."""
        return self.frame_size

    @property
    def of_maximum(self) -> "ComparedCell":
        """The cell of the highest throughput over the loads that include this one."""
        return replace(self, load=None)

    def __str__(self) -> str:
        sources = f"{self.sources} source{'s' * (self.sources > 1)}"
        what = "highest throughput" if self.load is None else str(self.load)
        return f"{self.uut}, {self.scenario}, {sources}, {self.frame_size.text(' bytes')}, {what}"


@dataclass(frozen=True, slots=True)
class Searched:
    """The key of one goal of a search."""

    uut: str
    scenario: str
    sources: int
    traffic: FrameSize | Workload
    goal: str
    unit: LoadKind = LoadKind.FRAME_RATE

    @classmethod
    def of(cls, found: SearchResult) -> "Searched":
        """Return the key of a search result."""
        return cls(found.uut, found.scenario, len(found.streams), found.kind_of_traffic, found.goal, found.unit)

    @property
    def frame_size(self) -> FrameSize:
        """The size of the frames, in bytes with FCS, of a search that is not about a workload."""
        assert isinstance(self.traffic, FrameSize), "a search for a rate of frames"
        return self.traffic

    @property
    def packet(self) -> str:
        """The name of the packet of its frames; empty for the plain one, and for a workload."""
        return self.traffic.packet if isinstance(self.traffic, FrameSize) else ""

    def __str__(self) -> str:
        noun = "client" if isinstance(self.traffic, Workload) else "source"
        sources = f"{self.sources} {noun}{'s' * (self.sources > 1)}"
        return f"{self.uut}, {self.scenario}, {sources}, {traffic_text(self.traffic, ' bytes')}, {self.goal}"


@dataclass(frozen=True, slots=True)
class FlowCell:
    """The key of a figure of a cell, by its name in exports; without a `figure` it is the whole cell."""

    uut: str
    scenario: str
    sources: int
    workload: str
    load: Load
    figure: str = ""

    @classmethod
    def of(cls, group: WorkloadGroup, figure: str = "") -> "FlowCell":
        """Return the key of a group, or of one of its figures."""
        return cls(group.uut, group.scenario, group.sources, group.workload.name, group.load.as_requested, figure)

    def __str__(self) -> str:
        clients = f", {self.sources} clients" if self.sources > 1 else ""
        figure = f", {FIGURES_BY_NAME[self.figure].title}" if self.figure else ""
        return f"{self.uut}, {self.scenario}, {self.workload} at {self.load}{clients}{figure}"


AnyCell = ComparedCell | Searched | FlowCell


@dataclass(frozen=True, slots=True)
class CellSelection:
    """Which cells are compared, by names or patterns with *; empty ones select all.

    `sizes` are frame sizes, or workloads and tools.
    """

    uuts: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    def includes(self, uut: str, scenario: str, traffic: FrameSize | Workload) -> bool:
        """Return whether a measurement is selected."""
        named = (self.uuts, (uut,)), (self.scenarios, (scenario,)), (self.sizes, traffic.names)
        return all(
            not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
            for patterns, names in named
        )


ALL_CELLS = CellSelection()


def reject_unknown(
    selection: CellSelection, campaigns: Sequence[CampaignResults], *, uut_option: str = "--uut"
) -> None:
    """Raise UsageError for a name or pattern that matches no measurement of any campaign; `uut_option` is of UUTs."""
    if selection == ALL_CELLS:
        return  # no trials need to be read for all cells
    measured: set[tuple[tuple[str, ...], ...]] = set()  # the names by which each measurement is selected
    for results in campaigns:
        of_searches: list[tuple[str, str, FrameSize | Workload]]
        of_searches = [(search.uut, search.scenario, search.kind_of_traffic) for search in results.searches]
        specs = (trial.spec for trial in (() if results.searches else results.trials))
        cells = of_searches or [(spec.uut, spec.scenario, spec.kind_of_traffic) for spec in specs]
        measured |= {((uut,), (scenario,), traffic.names) for uut, scenario, traffic in cells}
    options = {uut_option: selection.uuts, "--scenario": selection.scenarios, "--size": selection.sizes}
    for place, (option, patterns) in enumerate(options.items()):
        known = list(dict.fromkeys(name for names in sorted(measured) for name in names[place]))
        for pattern in patterns:
            if not any(fnmatchcase(value, pattern) for value in known):
                raise UsageError(f"{option} {pattern}: no campaign has it; there are {', '.join(known)}")


@dataclass(frozen=True)
class Campaign:
    """A campaign for a comparison: its groups, as in reports, and the loads that were skipped as saturated.

    `disturbances` are the warnings that the host had other work meanwhile. `noise_floor` is the half width, as a ratio,
    by which repeats of one fixed trial vary on its host; None if it was not measured. `packets` are those of its
    profile by name, as a user would write them.
    """

    name: str
    groups: tuple[Group, ...]
    skipped: frozenset[ComparedCell]
    settings: Mapping[str, Setting]
    disturbances: tuple[CampaignWarning, ...] = ()
    noise_floor: float | None = None
    complete: bool = True
    packets: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, results: CampaignResults, selection: CellSelection = ALL_CELLS) -> "Campaign":
        """Return the selected cells of the results of a campaign, with the name that messages use."""
        skipped = set()
        for sweep in results.ended_sweeps:
            key = sweep.uut, sweep.scenario, len(sweep.streams), sweep.frame_size
            with suppress(ValueError):  # edited manifest: an unreadable load was not skipped
                skipped |= {ComparedCell(*key, load) for load in map(Load.parse, sweep.skipped_loads)}
        return cls(
            name,
            tuple(
                group
                for group in group_trials(results)
                if selection.includes(group.uut, group.scenario, group.frame_size)
            ),
            frozenset(place for place in skipped if selection.includes(place.uut, place.scenario, place.frame_size)),
            results.settings,
            tuple(warning for warning in results.warnings if warning.kind in DISTURBING),
            results.noise_floor.half_width if results.noise_floor else None,
            complete=results.missing_trials <= 0,
            packets=results.packets,
        )


@dataclass(frozen=True, slots=True)
class Tested(CorrectedResult):
    """The p of a difference, raw and corrected for the number of tests; None if it cannot be tested."""

    test: Test
    p: float | None
    corrected: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The change of a cell. A maximum has no `loss`, because the two may be at different loads.

    The interval of `throughput` covers the variation between runs and is corrected for `tests` cells. It was computed
    from `sides`, the base first. `doubt` is the reason why a difference would not be due to the UUT; usually empty.
    """

    place: ComparedCell
    base: Group
    new: Group
    throughput: RatioOfMeans
    throughput_test: Tested
    loss: DifferenceOfMeans | None
    loss_test: Tested | None
    doubt: str = ""
    sides: tuple[SideMean, SideMean] | None = None
    tests: int = 1
    samples: tuple[Group, Group] | None = None  # the trials that are averaged, if these are of several loads

    @property
    def change(self) -> float | None:
        """Relative change of the throughput; None unless it is significant and at least LEAST_CHANGE.

        It is significant if the corrected p is, the interval excludes "no change", and no campaign was disturbed.
        """
        change = self.throughput.change
        if self.doubt or change is None or abs(change) < LEAST_CHANGE or not self.throughput.significant:
            return None
        return change if self.throughput_test.significant else None

    @property
    def change_of_loss(self) -> float | None:
        """Change of the loss ratio; None unless it is significant and at least LEAST_DIFFERENCE."""
        if self.doubt or self.loss is None or self.loss_test is None or not self.loss_test.significant:
            return None
        least = max(self.loss.half_width or 0.0, LEAST_DIFFERENCE)
        return self.loss.difference if abs(self.loss.difference) >= least else None

    @property
    def largest_change(self) -> float | None:
        """The largest relative change that the interval still allows; None if the interval is unknown."""
        low, high = self.throughput.change_low, self.throughput.change_high
        return None if low is None or high is None else max(abs(low), abs(high))

    @property
    def is_on_one_boot(self) -> bool:
        """Whether all trials of either campaign were on one boot, so that the variation between boots is unknown."""
        return any(map(is_on_one_boot, self.samples or (self.base, self.new)))


class Absence(Enum):
    """Why a cell is not compared. Exports contain the value."""

    ONE_SIDE = "one-side"  # only one of the campaigns measured it
    UNFINISHED = "unfinished"  # only one measured it, and the other one is not finished
    OTHER_LOAD = "other-load"  # its load has another rate in each campaign, or only the source was the limit
    INVALID = "invalid"  # too few of its trials are valid on one side
    EMULATION = "emulation"  # the CPU of its UUT is emulated on one side
    OTHER_PACKET = "other-packet"  # its packet has another description in each campaign
    DEAD = "uut-failed"  # its UUT failed in every trial of the new campaign, but not in the base
    NO_BOUNDS = "no-bounds"  # its search does not bound the limit


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell, or a goal of a search, that is not compared, with the reason as text and as a kind."""

    place: AnyCell
    why: str
    kind: Absence = Absence.OTHER_LOAD

    @property
    def dead(self) -> bool:
        """Whether its UUT failed in the new campaign alone."""
        return self.kind is Absence.DEAD

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True)
class Comparison:
    """A campaign against the base; the cells of the highest throughput come first."""

    base: Campaign
    new: Campaign
    differences: tuple[Difference, ...]
    left_out: tuple[LeftOut, ...]
    doubt: str = ""  # which campaign was disturbed, as text

    @property
    def maxima(self) -> tuple[Difference, ...]:
        """The cells of the highest throughput."""
        return tuple(cell for cell in self.differences if cell.place.load is None)

    @property
    def by_load(self) -> tuple[Difference, ...]:
        """The other cells."""
        return tuple(cell for cell in self.differences if cell.place.load is not None)

    @property
    def slower(self) -> tuple[Difference, ...]:
        """Cells with significantly less throughput."""
        return tuple(cell for cell in self.differences if cell.change is not None and cell.change < 0)

    @property
    def faster(self) -> tuple[Difference, ...]:
        """Cells with significantly more throughput."""
        return tuple(cell for cell in self.differences if cell.change is not None and cell.change > 0)


def place_of(group: Group) -> ComparedCell:
    """Return the key of the cell of a group."""
    return ComparedCell(group.uut, group.scenario, group.sources, group.frame_size, group.load.as_requested)


def is_on_one_boot(group: Group) -> bool:
    """Return whether all valid trials were measured on the same boot of the UUT; False if boots are unknown."""
    boots = {trial.boot for trial in group.valid}
    return len(boots) == 1 and 0 not in boots
