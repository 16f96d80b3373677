"""The sources of one trial: those of the neighbours start first, then the victim's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netbench.errors import TestbedError
from netbench.hosts.clock import Clock
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic
from netbench.trial.setup import Endpoints, TrialGuest

# A message to another machine is sometimes delayed for longer than a round trip took.
_FAR_NS, _ROUND_TRIPS = 30_000_000, 4


def prepare(endpoints: Sequence[Endpoints], traffic: Mapping[str, Traffic]) -> dict[str, Sent]:
    """Prepare all sources; return for each source that cannot be prepared a Sent without frames and with the error."""
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
    """Send, and return the frames sent by each source, by stream.

    The neighbours' sources start first and send during the settling time. `meanwhile` is called once all have started.
    """
    victim, *neighbours = guests
    start_sources([ends for guest in neighbours for ends in guest.endpoints], clock)
    clock.sleep(settle_s)
    start_sources(victim.endpoints, clock)
    if meanwhile is not None:
        meanwhile()
    # A source ends by itself; this limit only catches a source that hangs.
    longest_s = max(traffic.duration_s for guest in guests for traffic in guest.traffic.values())
    limit_s = 5 * longest_s + 10
    return {ends.path.name: ends.source.wait(limit_s) for guest in guests for ends in guest.endpoints}


def start_sources(endpoints: Sequence[Endpoints], clock: Clock) -> None:
    """Start all these sources at the same time, as soon as all can be ready."""
    clocks = [ends.source_clock() for ends in endpoints]
    ahead_ns = [
        ends.source.start_ahead_ns + _far_ns(source_clock) for ends, source_clock in zip(endpoints, clocks, strict=True)
    ]
    at_ns = clock.monotonic_ns() + max(ahead_ns, default=0)
    for ends, source_clock in zip(endpoints, clocks, strict=True):
        ends.source.start(at_ns + source_clock.middle_ns)


def _far_ns(clock: ClockDifference) -> int:
    """Return how much earlier a source must be started than one on this machine, by its round-trip time, in ns."""
    return 0 if clock == SAME_CLOCK else _FAR_NS + _ROUND_TRIPS * (clock.most_ns - clock.least_ns)
