"""How often `netbench compare` raises an alarm over two equal campaigns, and how often it finds one that is 3 % slower.

Campaigns are made up: two UUTs, two frame sizes, three loads of which two are above saturation, and the ways in
which what UUTs forward scatters. `python -m benchmarks.comparison_alarms [COMPARISONS]`
"""

import sys

from netbench.statistics.comparison import Comparison, compare
from tests.unit.comparison_factory import SCATTER, as_compared, made_up

_REPETITIONS = (3, 4, 5, 7, 9)
_SLOWER = 0.97


def main(comparisons: int = 400) -> None:
    """Print a line per way to scatter and number of repetitions."""
    print(f"{comparisons} comparisons each        n  equal: differs  regression > 2 %  3 % slower: regression > 2 %")
    for how in SCATTER:
        for repetitions in _REPETITIONS:
            equal = [_compared(how, repetitions, seed, 1.0) for seed in range(comparisons)]
            slower = [_compared(how, repetitions, seed, _SLOWER) for seed in range(comparisons // 4)]
            differs = sum(bool(one.slower or one.faster) for one in equal) / len(equal)
            alarms, found = (sum(map(_regression, own)) / len(own) for own in (equal, slower))
            print(f"{how:26} {repetitions:2} {differs:15.1%} {alarms:17.1%} {found:29.1%}", flush=True)


def _compared(how: str, repetitions: int, seed: int, part: float) -> Comparison:
    base, new = (
        as_compared(
            made_up(
                80_000 * factor,
                SCATTER[how],
                seed=2 * seed + side,
                repetitions=repetitions,
                sizes=(64, 512),
                uuts=("one", "other"),
            )
        )
        for side, factor in enumerate((1.0, part))
    )
    (found,) = compare(base, [new])
    return found


def _regression(one: Comparison) -> bool:
    return any(each.is_regression(0.02) for each in one.differences)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
