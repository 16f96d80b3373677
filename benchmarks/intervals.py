"""The simulated coverage of netbench's 95 % intervals: the percentage of cases in which they contain the truth.

Prints a table of ratios and one of losses, the same numbers each time.

    python -m benchmarks.intervals [--draws N]
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from math import exp

from netbench.statistics.intervals import RatioOfMeans, mean_interval, ratio_of_intervals
from netbench.statistics.totals import CountedNumber

DRAWS = 10_000
SEED = 2011
REPETITIONS = ((2, 2), (2, 3), (2, 9), (3, 3), (3, 9), (4, 4), (4, 9), (5, 30), (9, 9))
# Standard deviations of the fewer and of the more repetitions, as parts of their means.
SCATTER = {
    "all alike": (0.03, 0.03),
    "the fewer 5 times as much": (0.1, 0.02),
    "the more 5 times as much": (0.02, 0.1),
}
FRAMES = 1_000_000  # sent in a trial of which few frames are lost
LOST = (0.02, 0.1, 0.3, 1, 3, 10, 30)  # in a trial, on average
LOSSES: CountedNumber[int] = CountedNumber(
    float, int, lambda _: FRAMES, lambda _: float(FRAMES)
)  # the number lost in a trial


def coverage(held: Callable[[random.Random], bool], draws: int) -> float:
    """The share of this many simulated campaigns in which an interval contains the truth; the same for each call."""
    rng = random.Random(SEED)
    return sum(held(rng) for _ in range(draws)) / draws


def ratio_of_means(new: Sequence[float], base: Sequence[float]) -> RatioOfMeans:
    """The mean of `new` ÷ that of `base`, two independent samples."""
    return ratio_of_intervals(mean_interval(new), mean_interval(base))


def of_ratio(numbers: tuple[int, int], scatter: tuple[float, float]) -> Callable[[random.Random], bool]:
    """Whether the interval of a ratio contains 1 where nothing changed; fewer and more repetitions, both normal."""

    def held(rng: random.Random) -> bool:
        fewer, more = (
            [rng.gauss(1, deviation) for _ in range(number)] for number, deviation in zip(numbers, scatter, strict=True)
        )
        found = ratio_of_means(fewer, more)
        return found.low is None or found.high is None or found.low <= 1 <= found.high

    return held


def of_losses(lost: float, repetitions: int) -> Callable[[random.Random], bool]:
    """Whether the interval of the loss contains it, where this many frames are lost at random in each repetition."""

    def held(rng: random.Random) -> bool:
        found = LOSSES.over([poisson(rng, lost) for _ in range(repetitions)])
        return found is not None and found.half_width is not None and abs(found.mean - lost) <= found.half_width

    return held


def poisson(rng: random.Random, mean: float) -> int:
    """A Poisson number, by multiplication (Knuth, The Art of Computer Programming, volume 2, section 3.4.1)."""
    number, product, limit = 0, rng.random(), exp(-mean)
    while product > limit:
        number, product = number + 1, product * rng.random()
    return number


def tables(draws: int) -> Iterator[str]:
    """The lines of both tables."""
    yield from table(
        ["repetitions", *SCATTER],
        (
            [f"{fewer} and {more}", *(coverage(of_ratio((fewer, more), noise), draws) for noise in SCATTER.values())]
            for fewer, more in REPETITIONS
        ),
    )
    yield ""
    numbers = (2, 3, 5, 9)
    yield from table(
        ["frames lost in a trial", *(f"{number} repetitions" for number in numbers)],
        ([f"{lost:g}", *(coverage(of_losses(lost, number), draws) for number in numbers)] for lost in LOST),
    )


def table(head: Sequence[str], rows: Iterator[list[str | float]]) -> Iterator[str]:
    """A table in Markdown, line by line; parts in percent."""
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(cell if isinstance(cell, str) else f'{100 * cell:.1f} %' for cell in row)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="simulated campaigns for each number")
    for line in tables(parser.parse_args().draws):
        print(line, flush=True)


if __name__ == "__main__":
    main()
