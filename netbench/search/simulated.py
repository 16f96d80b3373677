"""A simulated UUT with a simulated clock: searches must find its known limit."""

import random
from dataclasses import dataclass, field

from netbench.search.methods import Measured


@dataclass(slots=True)
class SimulatedUut:
    """Forwards at most `capacity_fps` frames/s; the excess is buffered or lost.

    `noise` is the standard deviation of the capacity from trial to trial, as a part of the capacity. In the part
    `stalls` of all seconds it stops for `stall_s`. The part `floor` of all frames is lost at any load. In the first
    `warm_up_s` seconds of its life its capacity is reduced to the part `cold`, after `breaks_after_s` to the part
    `broken`. `spent_s` is the clock: seconds of traffic, plus `overhead_s` for each trial.
    """

    capacity_fps: float
    buffer_frames: int = 1000
    noise: float = 0.0
    stalls: float = 0.0
    stall_s: float = 0.002
    floor: float = 0.0
    warm_up_s: float = 0.0
    cold: float = 0.7
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
        cold_s = min(duration_s, max(0.0, self.warm_up_s - self.spent_s))
        capacity *= 1 - (1 - self.cold) * cold_s / duration_s
        if self.spent_s >= self.breaks_after_s:
            capacity *= self.broken
        offered = round(load_fps * duration_s)
        too_many = max(0.0, (load_fps - capacity) * duration_s - self.buffer_frames)
        stalled = sum(self._random.random() < self.stalls for _ in range(max(1, round(duration_s))))
        by_stalls = stalled * max(0.0, load_fps * self.stall_s - self.buffer_frames)
        by_floor = sum(self._random.random() < self.floor for _ in range(min(offered, 1000))) * offered / 1000
        lost = min(offered, int(too_many + by_stalls + (by_floor if self.floor else 0.0)))
        self.spent_s += duration_s + self.overhead_s
        self.trials += 1
        waiting = int(min(self.buffer_frames, max(0.0, (load_fps - capacity) * duration_s)))
        return Measured(duration_s, load_fps, load_fps, offered, offered, offered - lost, min(waiting, offered - lost))
