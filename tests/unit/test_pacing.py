"""The output of a pacer: its frames, their blocks, and the earliest time of each."""

import threading
import time

import pytest

from netbench.generators.afpacket.pacing import MAX_BLOCK_FRAMES, Paced, Unpaced
from netbench.generators.source_worker import Halt

ATTEMPTS = 5


def blocks(pacer) -> list[range]:
    handed = []
    while (block := pacer.next_block()) is not None:
        handed.append(block)
    return handed


def numbers(handed: list[range]) -> list[int]:
    return [number for block in handed for number in block]


@pytest.mark.parametrize(("frames", "fps"), [(1, 10.0), (7, 1e3), (999, 33_333.3), (20_001, 1e6), (5000, 1e9)])
def test_paced_hands_out_every_frame_once_and_in_order(frames, fps):
    pacer = Paced(frames, fps, time.monotonic_ns(), Halt())
    assert numbers(blocks(pacer)) == list(range(frames))
    assert pacer.next_block() is None


def test_no_block_comes_before_its_first_frame_is_due():
    start_ns = time.monotonic_ns() + 5_000_000
    pacer = Paced(500, 10_000.0, start_ns, Halt())
    while (block := pacer.next_block()) is not None:
        assert time.monotonic_ns() >= start_ns + block.start * 100_000


@pytest.mark.parametrize(("fps", "frames"), [(1e3, 1), (39_999, 1), (1e5, 5), (1e6, 50), (1e8, 256)])
def test_a_block_is_what_is_due_within_50_us_and_never_more_than_256_frames(fps, frames):
    pacer = Paced(10_000, fps, time.monotonic_ns() + 2_000_000, Halt())
    handed = len(pacer.next_block() or ())
    overdue = 1 + int(fps * pacer.max_lateness_ns / 1e9)  # this machine may have been busy
    assert frames <= handed <= min(max(frames, overdue), MAX_BLOCK_FRAMES)


def test_lateness_is_caught_up_in_large_blocks_and_reported_as_one_burst():
    pacer = Paced(1_000, 100_000.0, time.monotonic_ns(), Halt())
    time.sleep(0.02)  # 2000 frames at this rate: everything is overdue
    handed = blocks(pacer)
    assert [len(block) for block in handed] == [256, 256, 256, 232]
    assert pacer.max_burst_frames == 1_000
    assert pacer.max_lateness_ns >= 10_000_000


def test_what_is_overdue_at_the_end_is_sent_for_a_while_and_then_left():
    pacer = Paced(1_000_000, 1e6, time.monotonic_ns(), Halt(), longest_s=0.2)
    handed = 0
    while block := pacer.next_block():
        handed = block.stop
        time.sleep(0.04)  # a link that takes 256 frames in that
    assert 256 <= handed <= 6 * 256
    assert pacer.max_lateness_ns >= 150_000_000  # including the frames that were left
    assert pacer.unevenness(handed, time.monotonic_ns()) < 0.5


def test_half_a_trial_at_a_stand_is_uneven():
    for _ in range(ATTEMPTS):
        pacer = Paced(100, 1e4, time.monotonic_ns(), Halt(), longest_s=1.0)
        handed = [pacer.next_block() for _ in range(50)]
        if handed[-1] is not None and handed[-1].stop < 75:  # or this machine itself stopped the test
            break
    time.sleep(0.2)
    blocks(pacer)
    assert pacer.unevenness(100, time.monotonic_ns()) > 0.3


def test_lateness_is_caught_up_gently_where_a_burst_would_overrun_a_ring():
    pacer = Paced(10_000, 200_000.0, time.monotonic_ns(), Halt(), gently=True)
    time.sleep(0.02)  # 4000 frames at this rate
    begin_ns = time.monotonic_ns()
    handed = [pacer.next_block() for _ in range(100)]
    passed_ns = time.monotonic_ns() - begin_ns
    assert {len(block or ()) for block in handed} == {10}  # the frames due in 50 µs, and never more
    assert passed_ns >= 99 * 50_000 / 1.5 * 0.99
    assert pacer.max_lateness_ns >= 10_000_000


def test_frames_on_time_are_no_burst():
    pacer = Paced(5, 50.0, time.monotonic_ns(), Halt())
    blocks(pacer)
    # 20 ms between frames; a wait between any two of them is enough to fall short of all five.
    assert pacer.max_burst_frames < 5


def test_a_start_in_the_past_is_lateness_but_no_reason_to_hurry():
    before_ns = time.monotonic_ns()
    pacer = Paced(10, 1000.0, before_ns - 500_000_000, Halt())
    assert pacer.max_lateness_ns >= 500_000_000
    blocks(pacer)
    assert time.monotonic_ns() >= before_ns + 9_000_000


def test_a_slot_ends_one_gap_after_its_frame_is_due():
    start_ns = time.monotonic_ns() + 60_000_000_000
    pacer = Paced(100, 1000.0, start_ns, Halt())
    assert pacer.end_ns(0) == start_ns
    assert pacer.end_ns(100) == start_ns + 100_000_000


def test_unpaced_hands_out_full_blocks_until_the_time_is_up():
    start_ns = time.monotonic_ns() + 1_000_000
    pacer = Unpaced(0.2, start_ns, Halt())
    first = pacer.next_block()
    assert first == range(MAX_BLOCK_FRAMES)
    assert time.monotonic_ns() >= start_ns
    rest = blocks(pacer)
    assert time.monotonic_ns() >= start_ns + 200_000_000
    starts = [block.start for block in (first, *rest)]
    assert {len(block) for block in rest} == {MAX_BLOCK_FRAMES}
    assert starts == list(range(0, pacer.max_burst_frames, MAX_BLOCK_FRAMES))


@pytest.mark.parametrize(("every_s", "stopped_s"), [(0.0001, 0.3), (0.01, 0.0)])
def test_without_a_rate_a_stop_is_lateness_and_slow_blocks_are_not(every_s: float, stopped_s: float) -> None:
    for _ in range(ATTEMPTS):
        pacer, longest_s = Unpaced(60.0, time.monotonic_ns(), Halt()), 0.0
        for number in range(30):
            began = time.monotonic()
            assert pacer.next_block() is not None
            time.sleep(every_s + (stopped_s if number == 20 else 0))
            longest_s = max(longest_s, time.monotonic() - began)
        if longest_s < stopped_s + 0.1:  # or this machine itself stopped the test
            break
    assert (pacer.max_lateness_ns > 150_000_000) is (stopped_s > 0)


@pytest.mark.parametrize("fps", [None, 0.001, 1e6])
def test_a_halt_ends_the_wait_for_the_start(fps):
    halt = Halt()
    far_ns = time.monotonic_ns() + 3600 * 10**9
    pacer = Unpaced(1.0, far_ns, halt) if fps is None else Paced(10, fps, far_ns, halt)
    threading.Timer(0.05, halt.set, ["enough"]).start()
    assert pacer.next_block() is None
    assert pacer.next_block() is None
    assert halt.reason == "enough"


def test_the_first_reason_to_halt_stands():
    halt = Halt()
    assert not halt.is_set()
    halt.set("first")
    halt.set("second")
    assert halt.is_set()
    assert halt.reason == "first"


@pytest.mark.parametrize("gently", [True, False])
def test_where_catching_up_is_limited_a_delay_leaves_frames_unsent_and_no_burst(gently):
    """Most of 6 ms at 100,000 frames/s stays unsent; delays of 250 µs are caught up at once."""
    pacer = Paced(10_000, 1e5, time.monotonic_ns(), Halt(), longest_s=0.102, gently=gently, catch_up=0.01)
    handed = [pacer.next_block() or range(0)]
    time.sleep(0.006)
    handed += blocks(pacer)
    frames = numbers(handed)
    assert frames == list(range(len(frames)))
    assert max(map(len, handed)) <= 5
    assert 10_000 - len(frames) > 0.3 * 600
    assert pacer.max_burst_frames <= 0.1 * 600
