"""How often drift, different boots or outliers are reported for steady campaigns; and how often real drift is found.

Campaigns are simulated: two UUTs, three frame sizes, three loads of which two are above saturation, interleaved, each
repetition on a separate boot or all on one. `python -m benchmarks.steadiness [CAMPAIGNS]`
"""

import sys
from collections.abc import Callable
from dataclasses import replace

from netbench.statistics.drift import Steadiness
from netbench.statistics.groups import group_trials
from netbench.statistics.outliers import outliers_of
from tests.unit.comparison_factory import SCATTER
from tests.unit.steadiness_factory import Made

_DRIFT = -0.03
_WAYS = {
    **{how: Made(scatter) for how, scatter in SCATTER.items()},
    "normal, boots 0.5 % apart": Made(boots_scatter=0.005),
    "normal, boots 2 % apart": Made(boots_scatter=0.02),
    "wandering (AR 0.8), 0.6 %": Made(lambda chance: chance.gauss(1, 0.006), wander=0.8),
}


def main(campaigns: int = 1000) -> None:
    """Print a line per kind of scatter and number of repetitions, with and without restarts of UUTs."""
    print(
        f"{campaigns} campaigns each         n  boots  steady: drifts  warned  boots differ  first differ  marks",
        end="",
    )
    print("  3 % drift: found  warned")
    for how, way in _WAYS.items():
        for repetitions in (3, 5, 9):
            for one_boot in (False, True):
                _line(how, replace(way, repetitions=repetitions, one_boot=one_boot), campaigns)


def _line(how: str, way: Made, campaigns: int) -> None:
    steady = [list(way.steadiness(seed).values()) for seed in range(campaigns)]
    drifting = [list(replace(way, drift=_DRIFT).steadiness(seed).values()) for seed in range(campaigns // 2)]
    cells = [group for seed in range(campaigns // 20) for group in group_trials(way.campaign(seed))]
    limited = [group for group in cells if group.intended_fps and group.intended_fps > 90_000]
    marked = sum(outliers_of(group) is not None for group in limited) / len(limited)
    print(
        f"{how:26} {way.repetitions:2}  {'one' if way.one_boot else 'each':5} {_part(steady, _drifts):14.1%}"
        f" {_part(steady, _warned):7.1%} {_part(steady, _boots_differ):13.1%} {_part(steady, _first_differ):13.1%}"
        f" {marked:6.1%} {_part(drifting, _drifts):17.1%} {_part(drifting, _warned):7.1%}",
        flush=True,
    )


def _part(found: list[list[Steadiness]], what: Callable[[Steadiness], bool]) -> float:
    return sum(any(what(steadiness) for steadiness in campaign) for campaign in found) / len(found)


def _drifts(one: Steadiness) -> bool:
    return one.drift.significant


def _warned(one: Steadiness) -> bool:
    return one.drift.is_large


def _boots_differ(one: Steadiness) -> bool:
    return one.boots is not None and one.boots.significant


def _first_differ(one: Steadiness) -> bool:
    return one.first is not None and one.first.significant


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
