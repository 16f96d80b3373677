"""How long a trial waits for its last frames: until all are there, or those that are missing will surely not come.

Counters that stand still are no proof of the latter: something may hold frames for longer than one looks. Counters of
drops are, where they have counted every frame that is missing, to the frame. Otherwise, the first time that frames are
missing of a UUT they are waited for as long as a trial may. From then on it is known for how long it holds frames at
most, and counters that stand still for longer than that are enough.
"""

from collections.abc import Callable, Mapping, Sequence

from netbench.linux.nics import NicCounters
from netbench.model.counts import StreamCounts
from netbench.model.interfaces import Place
from netbench.model.traffic import Sent
from netbench.model.trial import GuestResult
from netbench.trial.evidence import growth
from netbench.trial.setup import TrialGuest, TrialSetup
from netbench.trial.snapshots import places_of

# Counters that move when the time is up may be moved by others, now and then. A stand is awaited for a little longer.
_STANDS_AWAITED = 3


def drain(
    setup: TrialSetup,
    guests: Sequence[TrialGuest],
    sent: Mapping[str, Sent],
    before: Mapping[Place, NicCounters],
    limit_s: float,
    all_dropped: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait for what was `sent`, by stream; whether the path's counters came to a stand within about `limit_s`.

    `before` is what the NICs had counted before it was sent. `all_dropped` is asked at a stand at which frames are
    missing: whether these were counted as dropped. Notes with the guests that missing frames were waited for.
    """
    endpoints = [ends for guest in guests for ends in guest.endpoints]
    places, clock, delays = places_of(endpoints), setup.clock, [guest.active.delays for guest in guests]
    quiet_s = max(guest.active.ready.quiet_time_s for guest in guests)
    gaps_s = [2 * one.duration_s / one.frames for one in sent.values() if one.frames]
    least_s = min(limit_s, max([quiet_s, *gaps_s]))
    enough_s = max(least_s, quiet_s + max(one.largest_s for one in delays))

    def is_missing(now: Mapping[Place, NicCounters]) -> bool:
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
        if stood_s >= enough_s and all(one.waited_out for one in delays):
            return True
        if stood_s >= least_s and asked_ns != moved_ns:  # once a stand: asking disturbs, and takes a guest some time
            asked_ns = moved_ns
            if all_dropped():
                return True
        if passed_s >= limit_s and (stood_s >= least_s or passed_s >= limit_s + _STANDS_AWAITED * least_s):
            for one in delays:
                one.waited_out |= missing
            return stood_s >= least_s


def learn_delays(guests: Sequence[TrialGuest], results: Sequence[GuestResult]) -> None:
    """Note with each guest how long it was seen to hold frames, and when it held some for longer than was thought."""
    for guest, result in zip(guests, results, strict=True):
        seen = guest.active.delays
        for ends, counts in zip(guest.endpoints, result.streams, strict=True):
            if counts.late_frames:
                seen.waited_out = False
            if ends.path.source.machine == ends.path.sink.machine:  # one clock
                seen.largest_s = max(seen.largest_s, *_delays_s(counts))


def _delays_s(counts: StreamCounts) -> tuple[float, float]:
    """Of the frame that came last, at least, and the largest by the stamps in the frames; 0 where unknown."""
    sent_ns, received_ns, delay = counts.last_sent_ns, counts.last_received_ns, counts.delay
    of_last = 0 if sent_ns is None or received_ns is None else received_ns - sent_ns
    return of_last / 1e9, ((delay.largest_ns or 0) if delay else 0) / 1e9
