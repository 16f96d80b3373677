"""Parameters of pktgen: the lattice of rates, whole nanoseconds between frames, and options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.config.shipped import PROFILES, shipped
from netbench.generators.pktgen.parameters import LONGEST_DELAY_NS, PktGenOptions, delay_ns
from netbench.model.frame_size import FrameSize
from netbench.model.traffic import NS_PER_S

SIZES = st.integers(64, 1518).map(FrameSize.of)
SMALLEST = FrameSize.of(64)


@given(fps=st.floats(0.11, 1e8), size=SIZES)
def test_the_lattice_is_the_nearest_whole_nanosecond(fps, size):
    delay = delay_ns(fps, size)
    assert abs(delay - 1e9 / fps) <= 0.5 or delay == 0x7FFFFFFF + 1
    assert delay_ns(NS_PER_S / delay, size) == delay  # a rate that can be paced stays as it is


@given(fps=st.floats(1, 1e8), size=SIZES)
def test_ratep_truncates_as_the_kernel_does(fps, size):
    assert delay_ns(fps, size, "ratep") == max(1, 10**9 // max(1, round(fps)))
    assert NS_PER_S / delay_ns(fps, size, "ratep") >= round(fps) * (1 - 1e-15)


@pytest.mark.parametrize(("reading", "less"), [("frame-size", 0), ("pktgen-size", 4)])
def test_profiles_with_the_papers_delay_offer_what_its_formula_reports(reading, less):
    """8000 × (s + 24) / b ns, where s is the frame size or pktgen's, which excludes the FCS; 0 ns at last."""
    files = shipped(PROFILES)
    names = (f"schlosser2011-delay-{reading}", "schlosser2011-dedicated")
    paper, usual = (load_profile(files[name], profile_kinds()) for name in names)
    own = {"name", "description", "generator", "streams"}
    assert paper.model_dump(exclude=own) == usual.model_dump(exclude=own)
    assert paper.generator.kind == "pktgen"
    options = PktGenOptions.model_validate(paper.generator.options)
    for size in paper.frame_sizes:
        rates = [load.fps(size, 1e9) for load in paper.loads]
        assert rates[-1] is None
        delays = [delay_ns(fps, size, options.pacing) for fps in rates if fps is not None]
        octets = size.only_size - less + 24
        assert delays == [round(8000 * octets / b) for b in (10, 100, 200, 400, 600, 800, 900, 1000)]


def test_delays_the_kernel_would_misread_are_not_used():
    never = 0x7FFFFFFF  # pktgen's "never transmit"
    assert delay_ns(1e9 / never, SMALLEST) == never + 1
    assert delay_ns(1e-9, SMALLEST) == LONGEST_DELAY_NS
    assert delay_ns(3e9, SMALLEST) == 1  # 0 would mean: no pause


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"threads": 0}, "greater than or equal to 1"),
        ({"threads": 3, "cpus": [0, 1]}, "3 threads need as many CPUs, and cpus names 2"),
        ({"burst": 8, "xmit_mode": "queue_xmit"}, "burst goes with xmit_mode start_xmit only"),
        ({"pacing": "even"}, "schlosser2011"),
        ({"cpus": [-1]}, "greater than or equal to 0"),
        ({"delay": 5}, "Extra inputs"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, reason):
    with pytest.raises(ValidationError, match=reason):
        PktGenOptions(**options)
