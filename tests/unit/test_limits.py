"""What limited a maximum, and what is made of one that was limited by what was offered."""

import pytest

from netbench.model.verdict import Reason, ReasonKind
from netbench.report.page import report_page
from netbench.report.tables import most_words
from netbench.results.rows import group_rows
from netbench.statistics.comparison import Campaign, compare
from netbench.statistics.groups import best_groups, group_trials
from netbench.statistics.interference import relative_maxima, worst_isolation
from netbench.statistics.intervals import Unknown, statement
from netbench.statistics.limits import with_limits
from tests.unit.report_page import page_of, printed
from tests.unit.results_factory import campaign, stream_counts, trial

SATURATED = (Reason(ReasonKind.SATURATED, "s1", "held up"),)
LATE = (Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "offered 1,800 of 2,000"),)


def at(load, received, *reasons, sent=None, scenario="dedicated", **more):
    """Two repetitions at a load in frames/s, or `max`, of one second."""
    fps = None if load == "max" else float(load)
    frames = sent or round(fps or received)
    counts = stream_counts(sent=frames, received=received, intended_fps=fps, intended_frames=fps and round(fps), **more)
    written = load if load == "max" else f"{load}fps"
    return [trial(counts, scenario=scenario, load=written, repetition=n, reasons=reasons) for n in (1, 2)]


@pytest.mark.parametrize(
    ("trials", "limited_by"),
    [
        ([*at(1000, 1000), *at(2000, 2000)], "the load asked"),
        ([*at(1000, 1000), *at(2000, 1991)], "the load asked"),  # 0.45 % lost
        ([*at(1000, 1000), *at(2000, 1989)], ""),  # 0.55 %
        ([*at(1000, 1000), *at(2000, 900)], ""),  # it breaks down
        ([*at(1000, 1000), *at(2000, 1200, *SATURATED, sent=1200)], ""),
        ([*at(1000, 1000), *at(2000, 1800, *LATE, sent=1800)], "the tester: too few valid trials at 2000fps"),
        ([*at(1000, 1000), *at("max", 5000)], "the source"),
        ([*at(1000, 1000), *at("max", 900)], "the source"),  # slower without a rate to keep
        ([*at(1000, 1000), *at("max", 5000, sent=6000)], ""),
        ([*at(1000, 1000), *at("max", 5000, link_s=0.3)], ""),
        ([*at(1000, 1000), *at("max", 5000, link_s=0.2)], "the source"),
    ],
)
def test_what_limited_a_maximum(trials, limited_by):
    (best,) = best_groups(with_limits(group_trials(campaign(trials))))
    assert best.limited_by is not None
    assert best.limited_by.partition(" (")[0] == limited_by
    assert {group.limited_by for group in with_limits(group_trials(campaign(trials))) if group.load != best.load} == {
        None
    }
    limits = [row["limited_by"] for row in group_rows(campaign(trials))]
    assert sorted(map(str, limits)) == sorted(["None", best.limited_by or "the UUT"])


AT_LEAST, LESS = at(2000, 2000), at(2000, 1500)
SCENARIO = {"scenario": "cpu-heavy"}


@pytest.mark.parametrize(
    ("trials", "bound", "index", "says"),
    [
        ([*AT_LEAST, *at(2000, 1500, **SCENARIO)], "≤", 0.75, "≤ −25.0 %: the baseline is at least what was offered"),
        ([*LESS, *at(2000, 2000, **SCENARIO)], "≥", 4 / 3, "≥ +33.3 %: this maximum is at least what was offered"),
        ([*LESS, *at(2000, 1200, **SCENARIO)], "", 0.8, "−20.0 % "),
    ],
)
def test_a_ratio_of_a_lower_bound_is_a_bound(trials, bound, index, says):
    (one,) = relative_maxima(with_limits(group_trials(campaign(trials))))
    assert one.ratio.bound == bound
    assert one.isolation_index == pytest.approx(index)
    assert statement(one.ratio).startswith(says)
    assert worst_isolation([one]) == (one,)
    assert (one.ratio.low is None, one.ratio.high is None) == (bound == "≤", bound == "≥")
    assert one.ratio.significant is True
    text = page_of(campaign(trials)).text
    shown = f"{bound} {index:.3f} of a lower bound" if bound else f"{index:.3f}"
    assert shown in text


def test_a_ratio_of_two_lower_bounds_is_unknown():
    (one,) = relative_maxima(with_limits(group_trials(campaign([*AT_LEAST, *at(2000, 2000, **SCENARIO)]))))
    assert (one.isolation_index, one.ratio.unknown) == (None, Unknown.BOTH_AT_LEAST)
    assert statement(one.ratio) == "unknown: neither was offered as much as it could not forward"


def test_the_report_and_the_terminal_never_show_such_a_maximum_as_a_plain_number():
    trials = [*at(1000, 1000), *at(2000, 2000)]
    (best,) = best_groups(with_limits(group_trials(campaign(trials))))
    assert most_words(best) == "≥ 1.3 Mbit/s, not saturated: limited by the load asked"
    text = page_of(campaign(trials)).text
    assert "≥ 1.3 Mbit/s, not saturated: limited by the load asked" in text
    assert ">≥ 1</text>" in report_page(campaign(trials)), "on the bar"
    told = printed(campaign(trials))
    assert "≥ 1.3" in told
    assert told.count("≥ ") == 1, "that of the lower load is no maximum"
    assert "≥: a maximum that is limited by the load asked, not by the UUT, is a lower bound" in " ".join(told.split())
    of_uut = [*at(1000, 1000), *at(2000, 1500)]
    assert "≥" not in printed(campaign(of_uut))
    assert "Lower bounds" not in page_of(campaign(of_uut)).text


def test_campaigns_compared_say_which_maxima_are_lower_bounds():
    base, same, slower = (
        Campaign.of(name, campaign(trials))
        for name, trials in (("base", AT_LEAST), ("same", AT_LEAST), ("slower", LESS))
    )
    (alike,) = compare(base, [same])
    assert [(one.throughput.unknown, one.base.limited_by) for one in alike.maxima] == [
        (Unknown.BOTH_AT_LEAST, "the load asked")
    ]
    (worse,) = compare(base, [slower])
    (one,) = worse.maxima
    assert one.throughput.bound == "≤"
    assert one.throughput.change == pytest.approx(-0.25)
