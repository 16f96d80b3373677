"""Results of the gate of `netbench compare` for equal campaigns, and of one that is 3 % slower.

Campaigns are simulated: two UUTs, two frame sizes, three loads of which two are above saturation, and several kinds of
scatter of the throughput within a run and between runs. `python -m benchmarks.comparison_alarms [COMPARISONS]`
"""

import random
import sys
from collections import Counter

from netbench.statistics.comparison import compare
from netbench.statistics.regression_gate import GateResult, judge
from tests.unit.comparison_factory import SCATTER, as_compared, made_up

_SCATTER = {"normal, 0.2 %": lambda chance: chance.gauss(1, 0.002), **SCATTER}
_REPETITIONS = (3, 5, 9)
_SLOWER = 0.97
_THRESHOLD = 0.02
_BETWEEN_RUNS = (0.0, 0.002, 0.01)  # standard deviation of the common factor of all trials of a run


def main(comparisons: int = 200) -> None:
    """Print a line per kind of scatter and number of repetitions."""
    print(f"{comparisons} comparisons each, gate at 2 %: passed / failed / inconclusive, in percent")
    print(f"{'scatter within a run':24} {'between runs':>12} {'n':>2}  {'equal campaigns':>20}  {'3 % slower':>20}")
    for between in _BETWEEN_RUNS:
        for how in _SCATTER:
            for repetitions in _REPETITIONS:
                shares = [
                    _shares(how, repetitions, between, part, number)
                    for part, number in ((1.0, comparisons), (_SLOWER, comparisons // 2))
                ]
                print(f"{how:24} {between:12.1%} {repetitions:2}  {shares[0]:>20}  {shares[1]:>20}", flush=True)


def _shares(how: str, repetitions: int, between: float, part: float, number: int) -> str:
    found = Counter(_outcome(how, repetitions, between, seed, part) for seed in range(number))
    order = GateResult.PASSED, GateResult.FAILED, GateResult.INCONCLUSIVE
    return " / ".join(f"{100 * found[outcome] / number:.1f}" for outcome in order)


def _outcome(how: str, repetitions: int, between: float, seed: int, part: float) -> GateResult:
    chance = random.Random(seed)
    base, new = (
        as_compared(
            made_up(
                80_000 * factor * chance.gauss(1, between),
                _SCATTER[how],
                seed=2 * seed + side,
                repetitions=repetitions,
                sizes=(64, 512),
                uuts=("one", "other"),
            )
        )
        for side, factor in enumerate((1.0, part))
    )
    (found,) = compare(base, [new])
    return judge(found, _THRESHOLD).outcome


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
