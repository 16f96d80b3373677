"""Whether the clock was set, as far as readings that take time themselves can show."""

import pytest

from netbench.hosts.clock import ClockReading, SystemClock, clock_set_ns, read_clocks

S = 1_000_000_000


class SteppedClock:
    """Takes 100 ns for every reading, and longer where its reader was not scheduled for a while."""

    def __init__(self, ahead_ns, held_up_ns=()):
        self.ahead_ns = ahead_ns
        self._now_ns = 0
        self._held_up_ns = list(held_up_ns)

    def monotonic_ns(self):
        self._now_ns += 100 + (self._held_up_ns.pop(0) if self._held_up_ns else 0)
        return self._now_ns

    def realtime_ns(self):
        return self.ahead_ns + self.monotonic_ns()

    def sleep(self, seconds):
        self._now_ns += round(seconds * S)


@pytest.mark.parametrize("step_ns", [-3_200_000_000, 86_400 * S, 5_000, -5_000])
def test_a_step_is_seen_with_its_sign(step_ns):
    clock = SteppedClock(1_700_000_000 * S)
    before = read_clocks(clock)
    clock.sleep(10)
    assert clock_set_ns(before, read_clocks(clock)) == 0
    clock.ahead_ns += step_ns
    assert abs(clock_set_ns(before, read_clocks(clock)) - step_ns) <= 200


def test_a_reader_that_was_held_up_makes_no_step_of_it():
    clock = SteppedClock(S, held_up_ns=[0, 7_000_000, 0, 0, 9_000_000])
    before = read_clocks(clock)
    assert before.most_ns - before.least_ns <= 200
    held_up_throughout = ClockReading(before.least_ns - 2 * S, before.most_ns)
    assert clock_set_ns(before, held_up_throughout) == clock_set_ns(held_up_throughout, before) == 0


def test_the_clocks_of_this_machine_are_read_closely():
    reading = read_clocks(SystemClock())
    assert reading.least_ns <= reading.most_ns
    assert clock_set_ns(reading, reading) == 0
