"""The use of a sending thread's time, by clocks that a test sets."""

from dataclasses import dataclass

import pytest

from netbench.generators.afpacket import pacing
from netbench.generators.afpacket.pacing import TimeSpent
from netbench.linux.proc import CpuTicks

MS = 1_000_000
NO_TICKS = CpuTicks(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Clocks:
    """The clocks of the thread, in ns, and of its CPU."""

    now_ns: int = 0
    cpu_ns: int = 0
    waited_ns: int = 0
    ticks: CpuTicks | None = NO_TICKS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def thread_time_ns(self) -> int:
        return self.cpu_ns

    def read(self):
        return pacing._Clocks(self.now_ns, self.waited_ns, self.ticks)

    def call(self, account: TimeSpent, busy_ms: int, off_ms: int = 0, taken: int = 1) -> None:
        """Make a call that computes for `busy_ms` and is off its CPU for `off_ms`."""
        account.enter(self.now_ns)
        self.cpu_ns += busy_ms * MS
        self.now_ns += (busy_ms + off_ms) * MS
        account.leave(taken)


@pytest.fixture
def clocks(monkeypatch):
    clocks = Clocks()
    monkeypatch.setattr(pacing, "time", clocks)
    monkeypatch.setattr(pacing, "_read_clocks", clocks.read)
    return clocks


@pytest.fixture
def account(clocks):
    account = TimeSpent()
    account.begin()
    return account


def test_the_time_of_sending_itself_is_neither_backpressure_nor_a_stall(clocks, account):
    for _ in range(100):
        clocks.call(account, busy_ms=2)
    assert account.spent()[:2] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "backpressure_s"),
    [({"busy_ms": 2, "taken": -105}, 0.2), ({"busy_ms": 1, "off_ms": 1}, 0.1)],
    ids=["refused", "put to sleep"],
)
def test_what_the_link_took(clocks, account, call, backpressure_s):
    for _ in range(100):
        clocks.call(account, **call)
    assert account.spent()[:2] == (pytest.approx(backpressure_s), 0.0)


def test_softirqs_are_the_links_and_what_the_hypervisor_took_is_not(clocks, account):
    for _ in range(100):
        clocks.call(account, busy_ms=2)
    clocks.ticks = NO_TICKS._replace(softirq=12, steal=3)
    assert account.spent()[:2] == (pytest.approx(0.12), pytest.approx(0.03))
    clocks.ticks = None  # bound to no CPU
    assert account.spent().backpressure_s == 0


def test_calls_and_pauses_that_are_far_too_long_are_stops(clocks, account):
    for _ in range(100):
        clocks.call(account, busy_ms=2)
    clocks.call(account, busy_ms=2, off_ms=98)
    free_ns, clocks.now_ns = clocks.now_ns, clocks.now_ns + 50 * MS
    account.enter(free_ns)
    account.leave(1)
    assert account.spent()[:2] == (0.0, pytest.approx(0.148))


def test_waiting_for_the_cpu_is_not_waiting_for_the_link(clocks, account):
    for _ in range(100):
        clocks.call(account, busy_ms=2, off_ms=2)
    clocks.waited_ns = 150 * MS
    assert account.spent()[:2] == (pytest.approx(0.05), pytest.approx(0.15))


def test_a_kernel_that_does_not_tell_claims_nothing(clocks, account, monkeypatch):
    clocks.call(account, busy_ms=2, taken=-105)
    monkeypatch.setattr(pacing, "_read_clocks", lambda: None)
    assert account.spent()[:2] == (None, 0.0)


def test_this_kernel_reports_the_times():
    assert pacing._read_clocks() is not None


def test_a_stop_after_the_last_call_counts_too(clocks, account):
    for _ in range(100):
        clocks.call(account, busy_ms=1)
    free_ns, clocks.now_ns = clocks.now_ns, clocks.now_ns + 90 * MS
    assert account.spent(free_ns) == (0.0, pytest.approx(0.09), 0.0, 0.0, 0)
