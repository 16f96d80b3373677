"""How long a trial waits for its last frames, on a clock and NICs of its own."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from netbench.linux.counters.counting_points import NicCounters
from netbench.model.distributions import Spread
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent
from netbench.model.trial import GuestResult
from netbench.trial.draining import drain, learn_delays
from netbench.trial.setup import TrialGuest, guests_of
from tests.unit.fakes import FakeSetup
from tests.unit.inputs import planned_trial, profile, topology
from tests.unit.results_factory import stream_counts

(PATH,) = stream_paths(topology(1))
LIMIT_S = 5.0
NOTHING_YET = {PATH.sink.place: NicCounters(0, 0, 0, 0, 0, 0, True, 0, PATH.sink.mac, 1, 0)}
SENT = 100


class Drained:
    """Trials of 100 frames, the last of which reach the sink `after_s` seconds after the end of sending."""

    def __init__(self) -> None:
        self.fake = FakeSetup.on([PATH])
        self.guests: list[TrialGuest] = guests_of(
            self.fake.setup, planned_trial(topology(1), profile(loads=["100fps"]), ("s1",))
        )

    def trial(
        self,
        *after_s: float,
        lost: int = 0,
        frame_gap_s: float = 1e-4,
        chatter_s: float = 0.0,
        all_dropped: Callable[[], bool] = lambda: False,
    ) -> float:
        """Return the time it drains. It must not end before a frame has come, or report that counters still moved.

        Frames of others come every `chatter_s`.
        """
        clock = self.fake.setup.clock
        began_ns = clock.monotonic_ns()

        def passed_s() -> float:
            return (clock.monotonic_ns() - began_ns) / 1e9

        def read(places):
            rx = SENT - lost - sum(at > passed_s() for at in after_s)
            rx += int(passed_s() / chatter_s) if chatter_s else 0
            return {place: replace(NOTHING_YET[PATH.sink.place], rx=rx) for place in places}

        sent = {"s1": Sent(SENT, 0, SENT * frame_gap_s, None, None, 1, 0.0)}
        assert drain(replace(self.fake.setup, read_nics=read), self.guests, sent, NOTHING_YET, LIMIT_S, all_dropped)
        took_s = passed_s()
        assert all(at < took_s for at in after_s)
        return took_s

    def learn(self, **counts) -> None:
        learn_delays(self.guests, [GuestResult("victim", (stream_counts("s1", **counts),))])


def of_largest(ns: int) -> Spread:
    return Spread(1000, 1000.0, 1000, 1000, 1000, 1000, ns)


def test_a_trial_whose_frames_have_all_come_takes_no_time():
    assert Drained().trial() < 0.05


@pytest.mark.parametrize("late_s", [0.3, 1.5, 4.9])
def test_no_frame_is_missed_for_coming_late_the_first_time(late_s):
    assert Drained().trial(late_s) < late_s + 0.1
    assert Drained().trial(0.001, late_s, lost=1) == pytest.approx(LIMIT_S, abs=0.2)


def test_frames_that_were_counted_as_dropped_are_not_waited_for_and_asked_for_once_a_stand():
    answers = iter([False, True])  # ... for two stands; a third question would be one too many
    assert 0.3 < Drained().trial(0.3, lost=7, all_dropped=lambda: next(answers)) < 0.4


def test_a_uut_that_loses_frames_costs_the_limit_once():
    drained = Drained()
    assert drained.trial(lost=7) == pytest.approx(LIMIT_S, abs=0.1)
    drained.learn(delay=of_largest(2_000_000))
    assert drained.trial(lost=7) < 0.1
    # ... unless the UUT turns out to have delayed frames for longer than a trial waited.
    drained.learn(late_frames=1)
    assert drained.trial(lost=7) == pytest.approx(LIMIT_S, abs=0.1)


@pytest.mark.parametrize(
    "seen", [{"delay": of_largest(300_000_000)}, {"last_sent_ns": 10**9, "last_received_ns": 1_300_000_000}]
)
def test_frames_are_waited_for_as_long_as_any_was_ever_held(seen):
    drained = Drained()
    drained.trial(lost=7)
    drained.learn(**seen)
    assert 0.3 < drained.trial(0.29, lost=7) < 0.7


def test_slow_frames_are_waited_for_by_their_gaps():
    """A device with 300 ms of delay, at 10 frames/s: the counters stand still between any two frames."""
    drained = Drained()
    drained.trial(lost=7)
    assert drained.trial(0.1, 0.2, 0.3, lost=1, frame_gap_s=0.1) < 0.6
    assert drained.trial(0.1, 0.2, 0.3, frame_gap_s=0.1, chatter_s=0.25) < 0.8


def test_frames_of_others_do_not_look_like_a_path_that_still_moves():
    drained = Drained()
    for at_s in (0.62, 0.49):  # so that a frame comes right before the limit
        assert drained.trial(lost=50, chatter_s=at_s) < LIMIT_S + 0.1
