"""Delay that a tester's own software measured: the report shows it apart, and calls it coarse."""

from netbench.model.distributions import DelayClass, SoftwareDelay
from netbench.model.verdict import Reason, ReasonKind
from tests.unit.report_page import page_of
from tests.unit.results_factory import campaign, stream_counts, trial

INVALID = (Reason(ReasonKind.LINK_DOWN, "", "down"),)


def measured(*classes: DelayClass, smallest: float, mean: float, largest: float, jitter: float) -> SoftwareDelay:
    frames = sum(delay_class.frames for delay_class in classes)
    return SoftwareDelay("TRex v3.08, in software", frames, smallest, mean, largest, jitter, classes)


ONE = measured(DelayClass(0, 10, 60), DelayClass(30, 40, 40), smallest=3, mean=14, largest=31, jitter=2)
OTHER = measured(DelayClass(30, 40, 99), DelayClass(1000, 2000, 1), smallest=30, mean=40, largest=1200, jitter=7)


def test_it_has_a_table_of_its_own_that_reports_how_coarse_it_is() -> None:
    trials = [
        trial(stream_counts(software_delay=ONE), repetition=1),
        trial(stream_counts(software_delay=OTHER), repetition=2),
        trial(stream_counts(software_delay=ONE), repetition=3, reasons=INVALID),
    ]
    text = page_of(campaign(trials)).text
    assert "Delay by the generator's clock (coarse)" in text
    assert "Measured by TRex v3.08, in software" in text
    # Offered Mbit/s, frames, smallest, mean of the means, largest, largest jitter, and all histograms of valid trials.
    assert "raw 1000fps 0.672 200 3 27 1,200 7 0–9: 60 · 30–39: 139 · 1,000–1,999: 1" in text
