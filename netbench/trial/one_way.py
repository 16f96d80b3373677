"""One-way delays of a stream's frames, or why there are none."""

from typing import NamedTuple

from netbench.model.counts import Spread
from netbench.model.paths import StreamPath
from netbench.model.traffic import Sent
from netbench.sinks.base import Received


class OneWay(NamedTuple):
    """Delay and its variation as of StreamCounts, or in words why they are `refused`."""

    delay: Spread | None
    ipdv: Spread | None
    refused: str


def one_way(path: StreamPath, sent: Sent, received: Received, clock_set_ns: int) -> OneWay:
    """What the stamps in the frames tell; `clock_set_ns`: by how much this machine's clock was set during the trial."""
    refused = _refused(path, sent, received, clock_set_ns)
    return OneWay(None, None, refused) if refused else OneWay(received.delay, received.ipdv, "")


def _refused(path: StreamPath, sent: Sent, received: Received, clock_set_ns: int) -> str:
    source, sink = path.source.machine, path.sink.machine
    if source != sink:
        return f"the source on {source or 'this machine'} and the sink on {sink or 'this machine'} share no clock"
    if not sent.numbered:
        return "the source does not number its frames: the stamp of one cannot be told from that of another"
    if not sent.stamped:
        return "the source does not stamp its frames"
    if source is None and clock_set_ns:
        return f"the clock was set by {clock_set_ns / 1e9:+,.6f} s during the trial"
    if received.delay is None:
        return received.no_delay
    if received.delay.smallest_ns is not None and received.delay.smallest_ns < 0:
        early_s = -received.delay.smallest_ns / 1e9
        return f"frames were captured up to {early_s:,.6f} s before they were stamped: not by one clock"
    return ""
