"""CPU time of a whole machine."""

from pathlib import Path

import pytest

from netbench.linux.cpu_time import busy_s

STAT = """cpu  100 20 300 4000 50 6 70 800 9 10
cpu0 100 20 300 4000 50 6 70 800 9 10
intr 1
"""


def test_idling_and_what_others_took_is_not_counted():
    assert busy_s(STAT) == pytest.approx((100 + 20 + 300 + 6 + 70) / 100)


@pytest.mark.parametrize("text", ["", "cpu0 100 20 300 4000 50 6 70 800 9 10\n", "cpu 1 2\n", "cpu a b c d e f g\n"])
def test_what_is_no_such_text_is_refused(text):
    with pytest.raises((ValueError, IndexError)):
        busy_s(text)


def test_this_machine_has_used_some():
    before = busy_s(Path("/proc/stat").read_text())
    sum(range(3_000_000))
    assert 0 < before < busy_s(Path("/proc/stat").read_text()) + 1e-9
