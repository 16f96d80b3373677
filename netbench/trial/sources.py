"""The sources of one trial, all at once: those of neighbours first, then the victim's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netbench.errors import TestbedError
from netbench.hosts.clock import Clock
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic
from netbench.trial.setup import Endpoints, TrialGuest

# On its way to another machine a word is now and then held up for longer than an answer took.
_FAR_NS, _ROUND_TRIPS = 30_000_000, 4


def prepare(endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic]) -> dict[str, Sent]:
    """Have all sources ready; what those that cannot be have sent: nothing, and why."""
    unready = {}
    for ends in endpoints:
        try:
            ends.source.prepare(traffic[ends.path.name])
        except TestbedError as error:
            unready[ends.path.name] = replace(NOTHING_SENT, error=str(error))
    return unready


def send(
    clock: Clock,
    guests: Sequence[TrialGuest],
    settle_s: float = 0.0,
    meanwhile: Callable[[], None] | None = None,
) -> dict[str, Sent]:
    """What every source has sent; the neighbours' start first, and the settling time passes while they send.

    `meanwhile` is done once all have started.
    """
    victim, *neighbours = guests
    start_sources([ends for guest in neighbours for ends in guest.endpoints], clock)
    clock.sleep(settle_s)
    start_sources(victim.endpoints, clock)
    if meanwhile is not None:
        meanwhile()
    # A source bounds itself; this only catches one that hangs.
    longest_s = max(one.duration_s for guest in guests for one in guest.traffic.values())
    limit_s = 5 * longest_s + 10
    return {ends.path.name: ends.source.wait(limit_s) for guest in guests for ends in guest.endpoints}


def start_sources(endpoints: Sequence[Endpoints], clock: Clock) -> None:
    """Start all of these sources at one time, as soon as each of them can be ready."""
    clocks = [ends.source_clock() for ends in endpoints]
    ahead_ns = [ends.source.start_ahead_ns + _far_ns(one) for ends, one in zip(endpoints, clocks, strict=True)]
    at_ns = clock.monotonic_ns() + max(ahead_ns, default=0)
    for ends, one in zip(endpoints, clocks, strict=True):
        ends.source.start(at_ns + one.middle_ns)


def _far_ns(clock: ClockDifference) -> int:
    """How much earlier than one of this machine a source is to be told, by the time that an answer of its takes."""
    return 0 if clock == SAME_CLOCK else _FAR_NS + _ROUND_TRIPS * (clock.most_ns - clock.least_ns)
