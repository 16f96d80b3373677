"""The cost of searches, and how often they are right, on simulated UUTs with a known limit.

A thousand UUTs, from 10 thousand to 3 million frames/s, with a queue of 1,000 frames: stable ones, and noisy ones. The
capacity of noisy UUTs varies by 0.2 % between trials, and they lose frames in a stall of 5 ms in one second of ten. All
methods search the same UUTs; a search is right if the truth is within the goal's width (0.5 %) of its bounds. Times are
seconds of traffic, which are the same on any machine. They are printed beside those of the paper's sweep of ten loads,
nine trials of 10 s each (Schlosser et al. 2011), which determines the limit less precisely than any search.

    python benchmarks/search.py [--searches N] [--check]
"""

import argparse
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from netbench.search.methods import Measured, Method
from netbench.search.search_options import SearchOptions

WIDTH = 0.005
PAPER_S = 10 * 9 * 10.0
MLR = {"method": "mlrsearch", "initial": "200ms", "duration_sum": "5s"}
# Methods by name: options of a profile, and the duration of a trial in seconds. The values are those of the shipped
# profiles, except that trials of a plain bisection are as short as those of MLRsearch.
WAYS: Mapping[str, tuple[Mapping[str, object], float]] = {
    "MLRsearch, NDR": (MLR, 1.0),
    "MLRsearch, NDR and PDR 0.5 %": ({**MLR, "loss": ["0%", "0.5%"]}, 1.0),
    "bisection, trials of 1 s": ({"method": "rfc2544"}, 1.0),
    "bisection, trials of 5 s": ({"method": "rfc2544"}, 5.0),
    "bisection, RFC 2544 (60 s)": ({"method": "rfc2544"}, 60.0),
    "bisection, TST 009 (30 s)": ({"method": "tst009"}, 30.0),
}
NOISE: Mapping[str, Mapping[str, float]] = {"stable": {}, "noisy": {"noise": 0.002, "stalls": 0.1, "stall_s": 0.005}}
LEAST_RIGHT = 0.95


@dataclass(slots=True)
class SimulatedUut:
    """A simulated UUT that forwards at most `capacity_fps` frames/s; the excess is buffered or lost.

    `noise` is the standard deviation of the capacity from trial to trial, as a part of the capacity. In the part
    `stalls` of all seconds it stops for `stall_s`. After `breaks_after_s` its capacity is reduced to the part `broken`.
    `spent_s` is the simulated clock: seconds of traffic, plus `overhead_s` for each trial.
    """

    capacity_fps: float
    buffer_frames: int = 1000
    noise: float = 0.0
    stalls: float = 0.0
    stall_s: float = 0.002
    breaks_after_s: float = float("inf")
    broken: float = 0.5
    overhead_s: float = 0.2
    seed: int = 1
    spent_s: float = 0.0
    trials: int = 0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def measure(self, duration_s: float, load_fps: float) -> Measured:
        """Return the measurement of one trial."""
        capacity = (
            self.capacity_fps * max(0.0, self._random.gauss(1.0, self.noise)) if self.noise else self.capacity_fps
        )
        if self.spent_s >= self.breaks_after_s:
            capacity *= self.broken
        offered = round(load_fps * duration_s)
        too_many = max(0.0, (load_fps - capacity) * duration_s - self.buffer_frames)
        stalled = sum(self._random.random() < self.stalls for _ in range(max(1, round(duration_s))))
        by_stalls = stalled * max(0.0, load_fps * self.stall_s - self.buffer_frames)
        lost = min(offered, int(too_many + by_stalls))
        self.spent_s += duration_s + self.overhead_s
        self.trials += 1
        waiting = int(min(self.buffer_frames, max(0.0, (load_fps - capacity) * duration_s)))
        return Measured(duration_s, load_fps, load_fps, offered, offered, offered - lost, min(waiting, offered - lost))


def main() -> None:
    options = parse_arguments()
    print(f"{options.searches:,} searches each; traffic in seconds, in the mean\n")
    print(f"{'':<30}{'stable: right':>14}{'traffic':>9}{'trials':>8}{'noisy: right':>14}{'traffic':>9}{'trials':>8}")
    rows = {}
    for name, (wanted, trial_s) in WAYS.items():
        rows[name] = {kind: tried(wanted, trial_s, noise, options.searches) for kind, noise in NOISE.items()}
        cells = (
            f"{100 * right:>12.1f} %{spent_s:>9.1f}{trials:>8.1f}" for right, spent_s, trials in rows[name].values()
        )
        print(f"{name:<30}{''.join(cells)}", flush=True)
    print(f"{'the sweep of the paper':<30}{'':>14}{PAPER_S:>9.1f}{90:>8}{'':>14}{PAPER_S:>9.1f}{90:>8}")
    if options.check:
        sys.exit(check(rows))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what searches cost, and how often they are right")
    parser.add_argument("--searches", type=int, default=1000, help="on so many UUTs of either kind (default: 1000)")
    parser.add_argument("--check", action="store_true", help="exit 1 where MLRsearch is wrong or slow too often")
    options = parser.parse_args()
    if options.searches < 1:
        parser.error("at least 1 search")
    return options


def tried(
    wanted: Mapping[str, object], trial_s: float, noise: Mapping[str, float], searches: int
) -> tuple[float, float, float]:
    """The share of right searches, and the mean seconds of traffic and number of trials per search."""
    right, spent, trials = 0, [], []
    for seed in range(searches):
        draw = random.Random(seed)
        truth = 10 ** draw.uniform(4, 6.5)
        uut = SimulatedUut(truth, seed=seed, overhead_s=0.0, **noise)  # type: ignore[arg-type]  # no option is a seed
        method = SearchOptions.model_validate(wanted).method_of(trial_s)
        method.search(truth / draw.uniform(50, 1000), truth * draw.uniform(1.2, 12), uut.measure)
        right += is_right(method, truth)
        spent.append(uut.spent_s)
        trials.append(uut.trials)
    return right / searches, fmean(spent), fmean(trials)


def is_right(method: Method, truth: float) -> bool:
    """Whether the bounds of every goal are narrow enough, and the limit is within the goal's width of them."""
    for goal in method.goals:
        bounds, limit = method.bounds(goal), truth / (1 - (goal.loss_ratio or 0.0))
        if bounds.lower is None or bounds.upper is None or bounds.upper - bounds.lower > 1.001 * WIDTH * bounds.upper:
            return False
        if not bounds.lower / (1 + WIDTH) <= limit <= bounds.upper / (1 - WIDTH):
            return False
    return True


def check(rows: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> int:
    """Return 0 if MLRsearch is right often enough, in a quarter of the paper's time, and faster than bisections."""
    wrong = []
    for goals, name in enumerate(list(rows)[:2], start=1):
        for kind, (right, spent_s, _) in rows[name].items():
            bisection_s = goals * rows["bisection, trials of 1 s"][kind][1]
            if right < LEAST_RIGHT or spent_s > PAPER_S / 4 or spent_s >= bisection_s:
                wrong.append(f"{name}, {kind}: {100 * right:.1f} % right, {spent_s:.1f} s")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
