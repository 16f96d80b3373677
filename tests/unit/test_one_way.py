"""When a stream has delays, and what is said when it has none."""

from dataclasses import replace

import pytest

from netbench.model.counts import Spread
from netbench.model.paths import Nic, StreamPath
from netbench.model.traffic import Sent
from netbench.sinks.base import Received
from netbench.trial.accounting import OneWay, one_way

DELAY = Spread(0, 5.5, 5, 7, 8, 9, 10)
IPDV = Spread(0, 1.5, 1, 2, 3, 4, 5)
RECEIVED = Received(frames=3, delay=DELAY, ipdv=IPDV)
SENT = Sent(frames=3, errors=0, duration_s=1.0, first_ns=0, last_ns=9, max_burst_frames=1, max_lateness_s=0.0)


def path(source=None, sink=None):
    nics = [Nic("host", machine, None, "eth", "", is_port=False) for machine in (source, sink)]
    return StreamPath("s1", 1, nics[0], None, None, nics[1], 1e9)


@pytest.mark.parametrize("machine", [None, "vm"])
def test_on_one_clock_there_are_delays(machine):
    assert one_way(path(machine, machine), SENT, RECEIVED, 0) == OneWay(DELAY, IPDV, "")


def test_the_clock_of_another_machine_was_not_set_with_that_of_this_one():
    assert one_way(path("vm", "vm"), SENT, RECEIVED, 10**9).delay == DELAY


@pytest.mark.parametrize(
    ("where", "sent", "received", "set_ns", "reason"),
    [
        (path("vm"), SENT, RECEIVED, 0, "the source on vm and the sink on this machine share no clock"),
        (path(), replace(SENT, numbered=False), RECEIVED, 0, "the source does not number its frames"),
        (path(), replace(SENT, stamped=False), RECEIVED, 0, "the source does not stamp its frames"),
        (path(), SENT, RECEIVED, -3_200_000_000, "the clock was set by -3.200000 s during the trial"),
        (path(), SENT, Received(no_delay="there is no whole capture"), 0, "there is no whole capture"),
        (path(), SENT, Received(frames=3), 0, "the sink measures none"),
        (
            path(),
            SENT,
            replace(RECEIVED, delay=replace(DELAY, smallest_ns=-2_000)),
            0,
            "captured up to 0.000002 s before",
        ),
    ],
)
def test_where_there_are_none_the_reason_is_told(where, sent, received, set_ns, reason):
    found = one_way(where, sent, received, set_ns)
    assert (found.delay, found.ipdv) == (None, None)
    assert reason in found.refused
