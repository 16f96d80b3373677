"""The lattice of rates: whole nanoseconds between frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.generators.pktgen.parameters import LONGEST_DELAY_NS, delay_ns, paced_fps
from netbench.model.units import line_rate_fps

SIZES = st.integers(64, 1518)


@given(fps=st.floats(0.11, 1e8), size=SIZES)
def test_the_lattice_is_the_nearest_whole_nanosecond(fps, size):
    delay = delay_ns(fps, size)
    assert abs(delay - 1e9 / fps) <= 0.5 or delay == 0x7FFFFFFF + 1
    assert delay_ns(paced_fps(delay), size) == delay  # what can be paced is paced as it is


@given(fps=st.floats(1, 1e8), size=SIZES)
def test_ratep_truncates_as_the_kernel_does(fps, size):
    assert delay_ns(fps, size, "ratep") == max(1, 10**9 // max(1, round(fps)))
    assert paced_fps(delay_ns(fps, size, "ratep")) >= round(fps) * (1 - 1e-15)


@pytest.mark.parametrize(
    ("size", "mbps", "delay"),
    [(64, 10, 70_400), (64, 1000, 704), (500, 400, 10_480), (1000, 800, 10_240), (1500, 1000, 12_192)],
)
def test_the_papers_formula(size, mbps, delay):
    fps = line_rate_fps(mbps * 1e6, size)
    assert delay_ns(fps, size, "schlosser2011") == delay == 8000 * (size + 24) / mbps


def test_the_papers_formula_under_offers_by_4_5_percent_at_64_bytes():
    fps = line_rate_fps(1e9, 64)
    assert paced_fps(delay_ns(fps, 64, "schlosser2011")) / fps == pytest.approx(84 / 88, rel=1e-6)


def test_delays_the_kernel_would_misread_are_not_used():
    never = 0x7FFFFFFF  # pktgen's "never transmit"
    assert delay_ns(1e9 / never, 64) == never + 1
    assert delay_ns(1e-9, 64) == LONGEST_DELAY_NS
    assert delay_ns(3e9, 64) == 1  # 0 would be: without a pause
