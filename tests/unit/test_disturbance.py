"""Disturbance of the tester: which waits the trial causes itself, which others cause, and which are unknown."""

from dataclasses import replace

import pytest

from netbench.linux.proc import CpuDelays, CpuTicks, SchedTimes, read_cpu_delays
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import Disturbance, ThreadDelay
from netbench.model.traffic import NOTHING_SENT
from netbench.model.verdict import ReasonKind
from netbench.trial.disturbance import GuestTime, Watched, disturbance_of
from netbench.trial.verdict_rules import disturbed
from tests.unit.fakes import FakeSetup
from tests.unit.inputs import topology, trial_spec

ENDPOINTS = list(FakeSetup.on(stream_paths(topology())).setup.endpoints.values())
IDLE = CpuTicks(0, 0, 0, 0, 0, 0, 0, 0)
NAPI, TCPDUMP, SWITCH = 7, 9, 11
WATCHED = [Watched("ingress", "napi/in1-7", "s1", NAPI), Watched("sink", "tcpdump", "s1", TCPDUMP)]
FORWARDS = Watched("uut", "ovs-vswitchd", "s1", SWITCH)
BEFORE = CpuDelays(
    0,
    {NAPI: SchedTimes(0, 0), TCPDUMP: SchedTimes(0, 0)},
    {NAPI: 1, TCPDUMP: 1},
    {1: SchedTimes(0, 0)},
    {None: IDLE, 0: IDLE, 1: IDLE},
    throttled_s=1.0,
)


def ms(milliseconds: float) -> int:
    return round(milliseconds * 1e6)


def measured(
    *,
    source=(0.0, 0.0),
    turns=0,
    napi=(0, 0),
    tcpdump=(0, 0),
    busy_ms=0,
    all_busy_ms=0,
    steal_ms=0,
    softirqs_ms=0,
    own_ms=0,
    guests=(),
) -> dict[str, float | None]:
    """Return the stalled time in ms of each role in a trial of 1 s.

    `source` is how long it waited and paused, in s, on CPU 0. The others are how long they ran and waited, in ms, on
    CPU 1. Everything together used `busy_ms` of CPU 1, and `all_busy_ms` of all CPUs.
    """
    after = CpuDelays(
        ms(1000),
        {NAPI: SchedTimes(*map(ms, napi)), TCPDUMP: SchedTimes(*map(ms, tcpdump))},
        BEFORE.bound,
        {1: SchedTimes(ms(softirqs_ms), 0)},
        {
            None: IDLE._replace(system=all_busy_ms // 10),
            0: IDLE,
            1: IDLE._replace(system=busy_ms // 10, steal=steal_ms // 10),
        },
        throttled_s=1.25,
        own_s=own_ms / 1e3,
    )
    wait_s, stalled_s = source
    sent = {"s1": replace(NOTHING_SENT, ran_s=0.9, wait_s=wait_s, turns=turns, stalled_s=stalled_s, cpu=0)}
    found = disturbance_of(ENDPOINTS, sent, WATCHED, (BEFORE, after), guests)
    assert (found.window_s, found.throttled_s, found.cpu_pressure_s) == (1.0, 0.25, None)
    return {delay.role: None if delay.stalled_s is None else round(delay.stalled_s * 1e3) for delay in found.threads}


NEIGHBOUR = GuestTime(0.5, (1,))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, (0, 0)),
        # waits that nothing in the trial explains
        ({"source": (0.09, 0.0)}, (90, 0)),
        ({"napi": (900, 90), "busy_ms": 990}, (0, 90)),
        # frequent wake-ups: 6 µs each time, and 20 µs
        ({"source": (0.018, 0.018), "turns": 3000}, (0, 0)),
        ({"source": (0.2, 0.2), "turns": 10_000}, (170, 0)),
        # stopped, throttled, or its CPU was taken away: no wait
        ({"source": (0.0, 0.09)}, (90, 0)),
        ({"source": (0.03, 0.09)}, (90, 0)),
        ({"steal_ms": 100}, (0, 90)),
        ({"steal_ms": 10}, (0, 0)),  # may be far less than a tick
        # it waited for the sink on its CPU
        ({"napi": (600, 300), "tcpdump": (300, 600), "busy_ms": 900}, (0, 0)),
        # and for what counts its capture meanwhile
        ({"napi": (500, 400), "tcpdump": (300, 600), "own_ms": 100, "busy_ms": 900}, (0, 0)),
        # for frames on their way from the UUT to the sink
        ({"napi": (500, 480), "softirqs_ms": 500, "busy_ms": 1000}, (0, 0)),
        # for the neighbour that computes there
        ({"napi": (500, 480), "busy_ms": 1000, "guests": [NEIGHBOUR]}, (0, 0)),
        # for the neighbour, and another program that took 100 ms
        ({"napi": (400, 580), "busy_ms": 1000, "guests": [NEIGHBOUR]}, (0, 80)),
        # for a program, while the neighbour computed on another CPU
        ({"napi": (900, 90), "busy_ms": 990, "guests": [GuestTime(0.5, (0,))]}, (0, 90)),
        ({"source": (0.09, 0.09), "guests": [NEIGHBOUR]}, (90, 0)),
        # for a guest that may run anywhere
        ({"napi": (500, 400), "busy_ms": 900, "guests": [GuestTime(0.5)]}, (0, 0)),
        ({"source": (0.3, 0.3), "all_busy_ms": 1400, "guests": [GuestTime(0.5)]}, (0, 0)),
        # beside such a guest, for a program that took 300 ms of all CPUs
        ({"source": (0.3, 0.3), "all_busy_ms": 1700, "guests": [GuestTime(0.5)]}, (272, 0)),
        ({"source": (0.1, 0.1), "all_busy_ms": 1700, "guests": [GuestTime(0.5)]}, (100, 0)),
    ],
)
def test_only_what_others_took_is_a_stall(case, expected):
    found = measured(**case)
    assert (found["source"], found["ingress"]) == expected


@pytest.mark.parametrize(
    ("waited_ms", "turns", "tcpdump_ms", "guests", "longest_ms"),
    [
        (6, 0, 0, (), 6.0),
        (6, 40_000, 0, (), 4.0),  # a wake-up takes 50 ns at least
        (2, 40_000, 0, (), 0.0),
        (6, 0, 5, (), 1.0),  # it waited for the sink on its CPU
        (6, 0, 0, (NEIGHBOUR,), 0.0),
    ],
)
def test_a_short_stall_may_be_among_many_wake_ups(waited_ms, turns, tcpdump_ms, guests, longest_ms):
    ran = {NAPI: SchedTimes(ms(500), ms(waited_ms), turns), TCPDUMP: SchedTimes(ms(tcpdump_ms), 0)}
    after = CpuDelays(ms(1000), ran, BEFORE.bound, {}, {None: IDLE, 0: IDLE, 1: IDLE})
    found = disturbance_of(ENDPOINTS, {"s1": NOTHING_SENT}, WATCHED, (BEFORE, after), guests)
    assert round(1e3 * found.longest_s("ingress", "s1"), 3) == longest_ms


@pytest.mark.parametrize(
    ("cpus", "ran_ms", "waited_ms", "others_ms", "stalled_ms"),
    [
        ((1,), 500, 490, 0, 0),  # it waited for the sink on its CPU
        ((1,), 300, 590, 400, 330),  # and for another program there
        ((), 500, 490, 0, 0),
        ((), 300, 590, 400, 330),
        ((), 300, 5, 400, 5),  # it had another CPU meanwhile
    ],
)
def test_a_program_on_the_cpu_of_a_process_that_forwards_is_a_disturbance(
    cpus, ran_ms, waited_ms, others_ms, stalled_ms
):
    tcpdump_ms = 490 if not others_ms else 290
    threads = {TCPDUMP: SchedTimes(ms(tcpdump_ms), 0), SWITCH: SchedTimes(ms(ran_ms), ms(waited_ms))}
    busy = IDLE._replace(user=(ran_ms + tcpdump_ms + others_ms) // 10)
    bound = {TCPDUMP: 1} | dict.fromkeys([SWITCH] if cpus else [], 1)
    before = CpuDelays(0, dict.fromkeys(threads, SchedTimes(0, 0)), bound, {}, {None: IDLE, 0: IDLE, 1: IDLE})
    after = CpuDelays(ms(1000), threads, bound, {}, {None: busy, 0: IDLE, 1: busy})
    guests = [GuestTime(ran_ms / 1e3, cpus)]
    found = disturbance_of(ENDPOINTS, {"s1": NOTHING_SENT}, [WATCHED[1], FORWARDS], (before, after), guests)
    (thread,) = [thread for thread in found.threads if thread.role == "uut"]
    assert thread.wait_s == waited_ms / 1e3
    assert thread.stalled_s == pytest.approx(stalled_ms / 1e3, abs=1e-3)


def test_what_is_not_known_is_not_0():
    unread = CpuDelays(ms(1000))
    found = disturbance_of(ENDPOINTS, {"s1": NOTHING_SENT}, WATCHED, (BEFORE, unread))
    assert found == Disturbance(
        1.0,
        (
            ThreadDelay("source", "fake", stream="s1"),
            ThreadDelay("ingress", "napi/in1-7", stream="s1"),
            ThreadDelay("sink", "tcpdump", stream="s1"),
        ),
    )
    assert found.stalled_of("s1") is None
    assert disturbed(trial_spec(), found) == []


def test_where_the_sources_are_on_another_machine_this_ones_times_say_nothing():
    found = disturbance_of(ENDPOINTS, {"s1": NOTHING_SENT}, (), (BEFORE, BEFORE), is_here=False)
    assert (found.steal_s, found.throttled_s) == (None, None)


def threads(source_s: float, ingress_s: float = 0.0, sink_s: float = 0.0) -> tuple[ThreadDelay, ...]:
    return (
        ThreadDelay("source", "xdp", source_s, source_s, "s1"),
        ThreadDelay("ingress", "napi/in1-7", ingress_s, ingress_s, "s1"),
        ThreadDelay("sink", "tcpdump", sink_s, sink_s, "s1"),
    )


@pytest.mark.parametrize(
    ("disturbance", "duration_s", "tolerance", "expected"),
    [
        (Disturbance(1.0, threads(0.029)), 1.0, 0.01, []),
        (Disturbance(1.0, threads(0.031)), 1.0, 0.01, ["s1"]),
        (Disturbance(1.0, threads(0.02, 0.02)), 1.0, 0.01, ["s1"]),  # their sum counts
        (Disturbance(1.0, threads(0.0, 0.0, 0.9)), 1.0, 0.01, []),  # a sink that waits loses frames, or nothing
        (Disturbance(1.0, (ThreadDelay("uut", "ovs-vswitchd", 0.5, 0.5, "s1"),)), 1.0, 0.01, ["s1"]),
        (Disturbance(0.1, threads(0.0045)), 0.1, 0.01, []),
        (Disturbance(0.1, threads(0.09)), 0.1, 0.01, ["s1"]),
        (Disturbance(1.0, threads(0.31)), 1.0, 1.0, []),  # a tolerance of 100 % tolerates that too
        (Disturbance(1.0, threads(0.0), throttled_s=0.5), 1.0, 0.01, [""]),
        (Disturbance(1.0, (ThreadDelay("source", "xdp", 0.5, 0.5, "of a neighbour"),)), 1.0, 0.01, []),
    ],
)
def test_a_trial_is_disturbed_beyond_3_percent_of_its_duration(disturbance, duration_s, tolerance, expected):
    spec = trial_spec(tolerance=tolerance)
    spec = replace(spec, guests=(replace(spec.victim, duration_s=duration_s),))
    found = disturbed(spec, disturbance)
    assert [reason.stream for reason in found] == expected
    assert {reason.kind for reason in found} <= {ReasonKind.TESTER_DISTURBED}


def test_this_machine_is_read_in_no_time():
    found = read_cpu_delays([1])
    assert found.ticks[None].user > 0
    assert found.threads[1].ran_ns > 0
