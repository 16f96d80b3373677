"""How long a trial waits for its last frames: until all have arrived, or the missing ones can no longer arrive.

Counters that stand still do not prove that frames are lost: a device may delay frames for longer than the wait. Drop
counters prove it, if they have counted every missing frame exactly. Otherwise, the first time that a UUT misses frames,
the trial waits for them up to its limit. From then on the largest delay of the UUT is known, and counters that stand
still for longer than that are enough.
"""

from collections.abc import Callable, Mapping, Sequence

from netbench.linux.counters.counting_points import NicCounters
from netbench.model.counts import StreamCounts
from netbench.model.paths import InterfaceRef
from netbench.model.traffic import Sent
from netbench.model.trial import GuestResult
from netbench.trial.observation import growth
from netbench.trial.setup import TrialGuest, TrialSetup
from netbench.trial.snapshots import places_of

# Foreign frames may move the counters just when the time is up. The wait for standing counters is then extended a bit.
_STANDS_AWAITED = 3


def drain(
    setup: TrialSetup,
    guests: Sequence[TrialGuest],
    sent: Mapping[str, Sent],
    before: Mapping[InterfaceRef, NicCounters],
    limit_s: float,
    all_dropped: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait for the frames `sent`, by stream; return True if the path's counters stood still within about `limit_s`.

    `before` are the counters of the NICs before sending. `all_dropped` is called when the counters stand still while
    frames are missing. It returns True if all of these were counted as dropped. A wait up to the limit for missing
    frames is recorded in the delays of each guest.
    """
    endpoints = [ends for guest in guests for ends in guest.endpoints]
    places, clock, delays = places_of(endpoints), setup.clock, [guest.active.delays for guest in guests]
    quiet_s = max(guest.active.ready.quiet_time_s for guest in guests)
    gaps_s = [2 * source.duration_s / source.frames for source in sent.values() if source.frames]
    least_s = min(limit_s, max([quiet_s, *gaps_s]))
    enough_s = max(least_s, quiet_s + max(delay.largest_s for delay in delays))

    def is_missing(now: Mapping[InterfaceRef, NicCounters]) -> bool:
        for name, place in ((ends.path.name, ends.path.sink.place) for ends in endpoints):
            arrived = growth(before[place].rx, now[place].rx) if place in before and place in now else None
            if arrived is not None and arrived < sent[name].frames:
                return True
        return False

    began_ns = moved_ns = clock.monotonic_ns()
    last, asked_ns = setup.read_nics(places), 0
    while True:
        clock.sleep(quiet_s)
        now, now_ns = setup.read_nics(places), clock.monotonic_ns()
        if now != last:
            last, moved_ns = now, now_ns
        passed_s, stood_s, missing = (now_ns - began_ns) / 1e9, (now_ns - moved_ns) / 1e9, is_missing(now)
        if stood_s >= least_s and not missing:
            return True
        if stood_s >= enough_s and all(delay.waited_out for delay in delays):
            return True
        if stood_s >= least_s and asked_ns != moved_ns:  # once per stand: reading disturbs and takes a guest some time
            asked_ns = moved_ns
            if all_dropped():
                return True
        if passed_s >= limit_s and (stood_s >= least_s or passed_s >= limit_s + _STANDS_AWAITED * least_s):
            for delay in delays:
                delay.waited_out |= missing
            return stood_s >= least_s


def learn_delays(guests: Sequence[TrialGuest], results: Sequence[GuestResult]) -> None:
    """Record the largest observed delay of each guest, and start over where frames came later than expected."""
    for guest, result in zip(guests, results, strict=True):
        seen = guest.active.delays
        for ends, counts in zip(guest.endpoints, result.streams, strict=True):
            if counts.received.late:
                seen.waited_out = False
            if ends.path.source.machine == ends.path.sink.machine:  # both use the same clock
                seen.largest_s = max(seen.largest_s, *_delays_s(counts))


def _delays_s(counts: StreamCounts) -> tuple[float, float]:
    """Return a lower bound of the last frame's delay, and the largest delay by the time stamps; 0 if unknown."""
    sent_ns, received_ns, delay = counts.sent.last_ns, counts.received.last_ns, counts.received.delay
    of_last = 0 if sent_ns is None or received_ns is None else received_ns - sent_ns
    return of_last / 1e9, ((delay.largest_ns or 0) if delay else 0) / 1e9
