"""Source and sink trex with a real server that runs already, on the host that NETBENCH_TREX names.

Nothing but its ports is asked for: no root, and no interface of this machine.
"""

import re
import time
from dataclasses import replace

import pytest

from netbench.generators.trex.trex import Trex
from netbench.generators.trex.trex_servers import TrexOptions
from netbench.model.frame_size import IMIX
from tests.trex import NO_SERVER, server
from tests.unit.test_trex import worker_of
from tests.unit.test_trex_sink import TRAFFIC, Ends

pytestmark = pytest.mark.skipif(bool(NO_SERVER), reason=NO_SERVER)


def opened() -> Ends:
    """A source at port 0, and a sink at port 1."""
    return Ends(Trex(TrexOptions.model_validate({**server(), "ports": {"tx1": 0, "rx1": 1}}))).open()


@pytest.fixture
def ends():
    found = opened()
    yield found
    found.close()


@pytest.mark.parametrize("fps", [1_000.0, 50_000.0])
def test_all_that_is_sent_arrives_in_trial_after_trial(ends, fps):
    for _ in range(2):
        sent, received = ends.trial(replace(TRAFFIC, fps=fps, duration_s=1.0))
        assert (sent.frames, sent.error, received.error) == (fps, "", "")
        assert (received.frames, received.dropped) == (fps, 0)
        assert sent.duration_s == pytest.approx(1.0, abs=0.3)
    assert re.match(r"trex \(TRex v\d+\.\d+, lbr-trex-client 3\.4\.0; server=", str(ends.sink.identity()))


def test_a_mix_is_counted_by_its_sizes(ends):
    sent, received = ends.trial(replace(TRAFFIC, frame_size=IMIX, fps=1_200.0, duration_s=1.0))
    assert (sent.frames, received.frames) == (1200, 1200)
    assert {size: counts.frames for size, counts in received.by_size.items()} == {64: 700, 594: 400, 1518: 100}


def test_as_fast_as_it_can_it_ends_in_time(ends):
    sent, received = ends.trial(replace(TRAFFIC, fps=None, duration_s=1.0))
    assert (sent.error, received.error) == ("", "")
    assert sent.frames > 10_000
    assert received.frames + received.dropped == sent.frames
    assert 0.9 <= sent.duration_s < 3


def test_what_a_killed_worker_has_left_the_next_one_ends(ends):
    ends.prepare(replace(TRAFFIC, duration_s=60.0))
    ends.source.start(time.monotonic_ns())
    time.sleep(1)
    worker_of(ends.source).kill()
    assert ends.source.wait(10.0).error
    another = opened()
    try:
        sent, received = another.trial()
        assert (sent.frames, received.frames, received.error) == (500, 500, "")
    finally:
        another.close()
