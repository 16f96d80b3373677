"""The displayed results of a campaign, and the styles of its UUTs, for the page and for files of figures and tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from netbench.model.campaign import CampaignResults
from netbench.report.platforms_section import in_order
from netbench.report.styles import Style, styles
from netbench.statistics.groups import Group, group_trials
from netbench.statistics.limits import with_limits


@dataclass(frozen=True, slots=True)
class Shown:
    """The results without trials that only found maxima; their groups, with their limits, in order of UUTs."""

    results: CampaignResults
    groups: tuple[Group, ...]
    looks: Mapping[str, Style]

    @classmethod
    def of(cls, results: CampaignResults) -> "Shown":
        """Read a campaign once."""
        wanted = replace(results, trials=tuple(trial.without_counters for trial in results.wanted_trials))
        groups = with_limits(group_trials(wanted))
        uuts = in_order([*wanted.uuts, *(group.uut for group in groups)], wanted.facts)
        groups = tuple(sorted(groups, key=lambda group: uuts.index(group.uut)))
        return cls(wanted, groups, styles(uuts, wanted.settings))
