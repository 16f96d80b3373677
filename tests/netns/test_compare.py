"""`netbench compare` on real traffic: campaigns of a UUT that drops nothing, and of one that drops 3 of 100 frames.

How that shows in throughput, of which this machine may be too busy to say anything within 3 %, is in the unit tests.
"""

import pytest

from tests.commands import INLINE, PATIENT, netbench, settings
from tests.unit.report_page import Page

pytestmark = pytest.mark.root

TRIALS = [*settings(frame_sizes=64, loads="2000fps", repetitions=5, duration="200ms"), *PATIENT, *INLINE]


def measured(directory, dropped):
    """The result directory of a campaign of a UUT that drops so many of every 100 frames."""
    uut = f"[{{name: drops, kind: reference, drop: {{k: {dropped}, n: 100}}}}]"
    done = netbench("run", "netns", "quick", "-o", directory, *TRIALS, "--set", f"topology.uuts={uut}")
    assert done.returncode == 0, done.stderr
    return directory


def test_campaigns_of_the_same_do_not_differ_in_loss_and_what_was_changed_shows(tmp_path):
    base, again, worse = (measured(tmp_path / name, k) for name, k in (("base", 0), ("again", 0), ("worse", 3)))
    page = tmp_path / "page.html"
    done = netbench("compare", base, again, worse, "--html", page)
    assert done.returncode == 0, done.stderr
    same, _, other = done.stdout.partition("worse against base")
    assert "warning: not only numbers differ, base → worse:\n  topology: uuts.0.drop.k: 0 → 3\n" in same
    assert "base → again" not in same
    assert "pp" not in same, "no frame was lost"
    (loss,) = [line for line in other.splitlines() if "+3.000 pp (± " in line]
    assert float(loss.split()[-1].lstrip("<")) < 0.05
    assert "Along time" in Page(page.read_text()).text
