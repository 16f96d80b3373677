"""The frames that arrive while a stream is measured."""

from itertools import count, islice

import numpy as np
import pytest

from netbench.capture.capture_counts import ArrivalTimes
from netbench.model.received import MeasuringWindow
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.measuring_window import measured_time
from tests.unit.inputs import stream_traffic

START_NS = 1_700_000_000_000_000_000


def traffic(fps: float | None = 20_000, duration_s: float = 0.3, warm_up_s: float = 0.075) -> Traffic:
    return stream_traffic(fps=fps, duration_s=duration_s, warm_up_s=warm_up_s)


def sent(frames: int, duration_s: float = 0.3, late_start_s: float = 0.0, syscall_ns: int = 4000) -> Sent:
    """A source that had its frames due at equal intervals from START_NS on."""
    slot_ns = duration_s / frames * 1e9
    first, last = START_NS + int(late_start_s * 1e9), START_NS + int((frames - 1) * slot_ns) + syscall_ns
    return Sent(frames, 0, duration_s, first, last, 1, late_start_s)


def arrived(*offsets_s: float) -> ArrivalTimes:
    times = ArrivalTimes()
    for part in np.array_split(START_NS + (np.array(offsets_s) * 1e9).astype(np.int64), 7):
        times.add(part)
    return times


def paced(frames: int, duration_s: float = 0.3, delay_s: float = 0.0) -> list[float]:
    return [delay_s + index * duration_s / frames for index in range(frames)]


def served(offered: list[float], fps: float, queue: float = float("inf")) -> list[float]:
    """Return when frames leave a device that forwards `fps` frames/s, behind a queue of `queue` frames."""
    departures: list[float] = []
    free_at = 0.0
    for at in offered:
        if (free_at - at) * fps < queue:
            free_at = max(free_at, at) + 1 / fps
            departures.append(free_at)
    return departures


def measured(traffic: Traffic, sent: Sent, arrived: ArrivalTimes, lag_ns: int) -> MeasuringWindow | None:
    """Return the window of a stream; None where it has none."""
    time = measured_time(traffic, sent, arrived, lag_ns)
    return time.window(arrived) if time else None


def same(window: MeasuringWindow | None, frames: int, seconds: float = 0.225) -> bool:
    """Whether so many frames arrived in so many seconds, and none later."""
    assert window is not None
    assert window.seconds == pytest.approx(seconds)
    return (window.frames, window.buffered_frames) == (frames, 0)


@pytest.mark.parametrize("delay_s", [0.0, 0.0004, 0.3, 2.0])
@pytest.mark.parametrize("late_start_s", [0.0, 0.02])
def test_a_path_that_only_delays_has_the_offered_load_as_its_throughput(delay_s: float, late_start_s: float) -> None:
    times = [max(at, delay_s + late_start_s) for at in paced(6000, delay_s=delay_s)]
    window = measured(traffic(), sent(6000, late_start_s=late_start_s), arrived(*times), int(delay_s * 1e9))
    assert same(window, 4500)


@pytest.mark.parametrize("duration_s", [0.3, 3.0])
def test_a_queue_does_not_look_like_throughput(duration_s: float) -> None:
    offered = int(20_000 * duration_s)
    times = served(paced(offered, duration_s), 5_000)
    window = measured(traffic(duration_s=duration_s), sent(offered, duration_s), arrived(*times), int(0.0002 * 1e9))
    assert window is not None
    assert window.frames / window.seconds == pytest.approx(5_000, rel=0.002)
    assert window.buffered_frames == pytest.approx(15_000 * duration_s, rel=0.002)


def test_what_a_full_queue_holds_is_buffered() -> None:
    times = served(paced(20_000, 1.0), 5_000, queue=1000)
    window = measured(traffic(duration_s=1.0), sent(20_000, 1.0), arrived(*times), int(0.0002 * 1e9))
    assert window is not None
    assert window.buffered_frames == pytest.approx(1000, abs=2)


def test_the_window_of_a_saturated_source_is_that_of_what_it_sent() -> None:
    """2,400 of 6,000 frames in 0.315 s, and of that the first 0.075 s are not measured."""
    times = paced(2400, 0.315, delay_s=0.0002)
    window = measured(traffic(), sent(2400, 0.315), arrived(*times), int(0.0002 * 1e9))
    assert same(window, 2400 - 571, 0.315 * (1 - 571 / 2400))


def test_what_was_held_back_in_the_warm_up_is_not_throughput_of_the_window() -> None:
    times = [max(at, 0.095) for at in paced(6000)]
    assert same(measured(traffic(), sent(6000), arrived(*times), 0), 6000, 0.3)


def test_a_device_that_gives_up_half_way_has_half_the_throughput() -> None:
    window = measured(traffic(warm_up_s=0), sent(6000), arrived(*paced(6000)[:3000]), 0)
    assert same(window, 3000, 0.3)


def test_a_source_without_a_rate_is_measured_from_its_first_frame_to_its_last() -> None:
    window = measured(traffic(fps=None), sent(9000), arrived(*paced(9000, delay_s=0.001)), 1_000_000)
    assert same(window, 9000, 0.3)


def test_clocks_that_differ_do_not_matter() -> None:
    ahead_s = -7200.0
    window = measured(traffic(), sent(6000), arrived(*paced(6000, delay_s=ahead_s)), int(ahead_s * 1e9))
    assert same(window, 4500)


@pytest.mark.parametrize("nothing", [Sent(0, 0, 0.0, None, None, 0, 0.0), sent(10, 0.05)])
def test_nothing_sent_or_nothing_but_warm_up_is_not_measured(nothing: Sent) -> None:
    assert measured(traffic(fps=200 if nothing.frames else None), nothing, arrived(0.1), 0) is None


def test_arrival_times_take_constant_memory_and_stay_nearly_exact() -> None:
    times, frames = ArrivalTimes(), 1_000_000
    for start in range(0, frames, 5003):
        times.add(np.arange(start, min(frames, start + 5003)) * 1000)
    assert times.frames == frames
    for asked in islice(count(0, 77_777), 13):
        assert times.before(asked * 1000) == pytest.approx(asked, abs=frames / 32_768)
    assert times.before(10**18) == frames


@pytest.mark.parametrize("late_s", [0.0003, 0.002, 0.02])
def test_frames_that_a_source_sends_late_were_in_no_queue(late_s: float) -> None:
    """The last 10 of 2,000 frames leave together, after the time of the last one, and arrive after a constant delay."""
    at_s = [*paced(2000, 1.0)[:-10], *10 * [0.9995 + late_s]]
    late = Sent(2000, 0, max(1.0, at_s[-1]), START_NS, START_NS + int(at_s[-1] * 1e9), 10, late_s)
    times = arrived(*(at + 10e-6 for at in at_s))
    assert same(measured(traffic(2000, 1.0, warm_up_s=0.0), late, times, 10_000), 2000, max(1.0, at_s[-1]))
