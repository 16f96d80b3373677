"""Splits a campaign that measured two versions of its UUTs in turn into two campaigns."""

from collections.abc import Mapping
from dataclasses import replace

from netbench.model.campaign import CampaignResults
from netbench.model.topology import measured_pairs


def split_versions(results: CampaignResults) -> tuple[CampaignResults, CampaignResults] | None:
    """Return the results of the base versions, under the names of the UUTs, and those of the UUTs themselves.

    None if the campaign did not measure one version against another (`netbench run --against`).
    """
    pairs = measured_pairs(results.uuts)
    if not pairs:
        return None
    return _only(results, {base: uut for uut, base in pairs.items()}), _only(results, {uut: uut for uut in pairs})


def _only(results: CampaignResults, names: Mapping[str, str]) -> CampaignResults:
    """Return the results of some UUTs, renamed.

    Both versions have equally many planned trials, apart from calibration and added trials.
    """
    trials = tuple(
        replace(trial, spec=replace(trial.spec, uut=names[trial.spec.uut]))
        for trial in results.trials
        if trial.spec.uut in names
    )
    ended = tuple(replace(sweep, uut=names[sweep.uut]) for sweep in results.ended_sweeps if sweep.uut in names)
    planned = len(trials) + sum(sweep.skipped_trials for sweep in ended)
    if len(results.trials) + results.skipped_trials < results.planned_trials:
        finding, own = (sum(trial.spec.finds_maximum for trial in group) for group in (results.trials, trials))
        planned = (results.planned_trials - finding) * len(names) // len(results.uuts) + own
    return replace(
        results,
        uuts=tuple(names.values()),
        planned_trials=planned,
        trials=trials,
        facts={names[uut]: facts for uut, facts in results.facts.items() if uut in names},
        maxima=tuple(replace(maximum, uut=names[maximum.uut]) for maximum in results.maxima if maximum.uut in names),
        ended_sweeps=ended,
        searches=tuple(replace(search, uut=names[search.uut]) for search in results.searches if search.uut in names),
        maxima_searches=tuple(
            replace(search, uut=names[search.uut]) for search in results.maxima_searches if search.uut in names
        ),
        added_up=(),
        boots=(),
        warm_ups=(),
    )
