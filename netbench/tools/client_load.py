"""The load of a client over TCP, and the figures of its run. It runs on the client's host with the standard library."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from random import Random

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """A client's load on one server. `rate` is operations/s of the open loop; 0 for a closed loop of `clients`.

    A client that `shares_cpu` with its server must not precede it.
    """

    address: str
    port: int
    duration_s: float
    warm_up_s: float = 0.0
    timeout_s: float = 10.0
    rate: float = 0.0
    clients: int = 1
    think_time_s: float = 0.0
    poisson: bool = False
    connections: int = 1000
    seed: int = 1
    shares_cpu: bool = False

    def starts_ns(self) -> "array[int]":
        """Return the intended starts of the open loop, in ns from its begin, ascending."""
        if not self.poisson:
            number = ceil(round(self.duration_s * self.rate, 6))
            return array("q", (round(k * _NS / self.rate) for k in range(number)))
        random, at_s = Random(self.seed), 0.0
        starts = array("q")
        while (at_s := at_s + random.expovariate(self.rate)) < self.duration_s:
            starts.append(round(at_s * _NS))
        return starts


@dataclass(slots=True)
class Figures:
    """The figures of a loop: counts of measured operations, times in ns, and payload in bytes.

    `completed_in_time` are the operations that succeeded within the measured time, whenever they were due. `late_ns`
    has how late the client itself started operations for which a connection was free. `cpu_share` is its use of one
    CPU: near 1, the client is the limit.
    """

    intended: int = 0
    started: int = 0
    completed: int = 0
    completed_in_time: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    response_ns: "array[int]" = field(default_factory=lambda: array("q"))
    service_ns: "array[int]" = field(default_factory=lambda: array("q"))
    late_ns: "array[int]" = field(default_factory=lambda: array("q"))
    to_server: int = 0
    to_client: int = 0
    run_to_server: int = 0
    run_to_client: int = 0
    connections: int = 0
    cpu_share: float = 0.0
