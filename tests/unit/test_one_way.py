"""When a stream has delays, and what is said when it has none."""

from dataclasses import replace

import pytest

from netbench.capture.captured import Span, StreamCapture
from netbench.model.counts import Spread
from netbench.model.paths import Nic, StreamPath
from netbench.model.traffic import Sent
from netbench.trial.one_way import OneWay, one_way

DELAY = Spread(0, 5.5, 5, 7, 8, 9, 10)
IPDV = Spread(0, 1.5, 1, 2, 3, 4, 5)
CAUGHT = StreamCapture("s1", "a", "b", 3, 0, 0, None, 0, 0, 0, (), 0, 2, Span(3, 192, 64, 64, 0, 9), DELAY, IPDV)
SENT = Sent(frames=3, errors=0, duration_s=1.0, first_ns=0, last_ns=9, max_burst_frames=1, max_lateness_s=0.0)


def path(source=None, sink=None):
    nics = [Nic("host", machine, None, "eth", "", is_port=False) for machine in (source, sink)]
    return StreamPath("s1", 1, nics[0], None, None, nics[1], 1e9)


@pytest.mark.parametrize("machine", [None, "vm"])
def test_on_one_clock_there_are_delays(machine):
    assert one_way(path(machine, machine), SENT, CAUGHT, 0) == OneWay(DELAY, IPDV, "")


def test_the_clock_of_another_machine_was_not_set_with_that_of_this_one():
    assert one_way(path("vm", "vm"), SENT, CAUGHT, 10**9).delay == DELAY


def test_by_early_stamps_a_delay_of_0_is_less_than_can_be_told():
    early = replace(SENT, stamped_early=True)
    assert one_way(path(), early, CAUGHT, 0) == OneWay(Spread(None, None, 5, 7, 8, 9, 10), IPDV, "")
    later = replace(CAUGHT, delay=replace(DELAY, smallest_ns=4))
    assert one_way(path(), early, later, 0).delay == later.delay


@pytest.mark.parametrize(
    ("where", "sent", "caught", "set_ns", "reason"),
    [
        (path("vm"), SENT, CAUGHT, 0, "the source on vm and the sink on this machine share no clock"),
        (path(), replace(SENT, numbered=False), CAUGHT, 0, "the source does not number its frames"),
        (path(), replace(SENT, stamped=False), CAUGHT, 0, "the source does not stamp its frames"),
        (path(), SENT, CAUGHT, -3_200_000_000, "the clock was set by -3.200000 s during the trial"),
        (path(), SENT, None, 0, "there is no whole capture"),
        (path(), SENT, replace(CAUGHT, delay=None, ipdv=None), 0, "no frame arrived"),
        (
            path(),
            SENT,
            replace(CAUGHT, delay=replace(DELAY, smallest_ns=-2_000)),
            0,
            "captured up to 0.000002 s before",
        ),
    ],
)
def test_where_there_are_none_the_reason_is_told(where, sent, caught, set_ns, reason):
    found = one_way(where, sent, caught, set_ns)
    assert (found.delay, found.ipdv) == (None, None)
    assert reason in found.refused
