"""Primes the forwarding databases (FDB) of bridges outside netbench's control: sinks send learning frames.

In the direction of a reverse stream, learning frames of the stream arrive at a sink. Those that arrive late would count
as foreign frames. A trial therefore begins after they have arrived.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netbench.linux.counters.counting_points import NicCounters
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.paths import InterfaceRef
from netbench.trial.observation import growth
from netbench.trial.setup import Endpoints, TrialSetup

_WAIT_S, _POLL_S = 1.0, 0.005


@dataclass(frozen=True, slots=True)
class Primed:
    """The number of learning frames sent to NICs that are sinks, too, and the counters of these NICs before."""

    frames: Mapping[InterfaceRef, int] = field(default_factory=dict)
    before: Mapping[InterfaceRef, NicCounters] = field(default_factory=dict)


def prime_bridges(
    setup: TrialSetup,
    endpoints: Sequence[Endpoints],
    headers: Mapping[str, ExpectedHeaders | None] = {},
    *,
    at_once: bool = False,
) -> Primed:
    """Send the learning frames (RFC 2544, section 23) that are due on all paths that netbench did not create.

    Bridges learn from them where the sinks are. Such a frame goes from the sink to the source, like an answer to the
    test frames. Call it before each trial. `headers` are those of described packets, by stream. `at_once` sends also
    those that are not due yet.
    """
    sinks = {ends.path.sink.place for ends in endpoints}
    awaited = [
        place
        for ends in endpoints
        if ends.path.leads_outside and (place := ends.path.source.place) in sinks and setup.learning.arrive_at(place)
    ]
    before, frames = setup.read_nics(awaited) if awaited else {}, dict.fromkeys(awaited, 0)
    for ends in endpoints:
        path = ends.path
        if path.leads_outside:
            now_ns = setup.clock.monotonic_ns()
            if due := setup.learning.due_frames(path, headers.get(path.name), now_ns, at_once=at_once):
                ends.sink.prime_fdb(due)
                if path.source.place in frames:
                    frames[path.source.place] += len(due)
    return Primed(frames, before)


def await_learning_frames(setup: TrialSetup, primed: Primed) -> None:
    """Wait up to 1 s for learning frames. Do not wait again for NICs that these have not reached: routers drop them."""
    clock, frames = setup.clock, primed.frames
    deadline_ns = clock.monotonic_ns() + int(_WAIT_S * 1e9)
    waiting = [place for place in frames if frames[place] and place in primed.before]
    while waiting:
        now = setup.read_nics(waiting)
        arrived = {place: growth(primed.before[place].rx, now[place].rx) for place in waiting if place in now}
        waiting = [place for place, grown in arrived.items() if grown is not None and grown < frames[place]]
        if waiting and clock.monotonic_ns() > deadline_ns:
            setup.learning.never_arrive_at(waiting)
            return
        if waiting:
            clock.sleep(_POLL_S)
