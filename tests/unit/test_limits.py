"""The limit of each maximum, and the treatment of a maximum that the offered load limited."""

from dataclasses import replace

import pytest

from netbench.model.campaign import NoiseFloor
from netbench.model.counts import l1_mbps
from netbench.model.frame_size import IMIX
from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.scenario import DEDICATED
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.tables.results import maximum_text
from netbench.results.export_rows import group_rows
from netbench.statistics.compared_cells import Campaign
from netbench.statistics.comparison import compare
from netbench.statistics.groups import best_groups, group_trials
from netbench.statistics.interference import compared, counted_loads, relative_maxima, worst_isolation
from netbench.statistics.intervals import Interval, Unknown, statement
from netbench.statistics.limits import with_limits
from tests.unit.charts import figures_on
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
        ([*at(1000, 1000), *at(2000, 2000)], "the highest load requested"),
        ([*at(1000, 1000), *at(2000, 1991)], "the highest load requested"),  # 0.45 % lost
        ([*at(1000, 1000), *at(2000, 1989)], "the highest load requested: throughput still rises there"),  # 0.55 %
        ([*at(1000, 1000), *at(2000, 1940)], "the highest load requested: throughput still rises there"),  # 3 %
        ([*at(1000, 1000), *at(2000, 1600)], "the highest load requested: throughput still rises there"),
        (
            [*at(500, 250), *at(1000, 500), *at(2000, 1000)],
            "the highest load requested: throughput still rises there",
        ),  # in half
        ([*at(1000, 1000), *at(2000, 1300)], ""),  # the gain is less than a third of the additional load
        (
            [*at(1000, 1000), at(2000, 1100)[0], at(2000, 1500)[1]],
            "the highest load requested: throughput still rises there",
        ),  # ±2541
        ([*at(1000, 1000), *at(2000, 1600), *at(3000, 1590)], ""),
        (
            [*at(1000, 1000), *at(2000, 1600), *at(2020, 1590)],
            "the highest load requested: throughput still rises there",
        ),
        ([*at(2000, 1940)], "the highest load requested: throughput still rises there"),  # the only load
        ([*at(2000, 1900)], ""),
        ([*at(1000, 1000), *at(2000, 900)], ""),  # it breaks down
        ([*at(1000, 1000), *at(2000, 1200, *SATURATED, sent=1200)], ""),
        ([*at(1000, 1000), *at(2000, 1800, *LATE, sent=1800)], "the tester: too few valid trials at 2000fps"),
        ([*at(1000, 1000), *at("max", 5000)], "the source"),
        ([*at(1000, 1000), *at("max", 900)], "the source"),  # slower without a rate to keep
        ([*at(1000, 1000), *at("max", 5000, sent=6000)], "the source: throughput still rises there"),
        ([*at(1000, 1000), *at("max", 2000, sent=6000)], ""),
        ([*at(1000, 1000), *at("max", 5000, link_s=0.3)], ""),
        ([*at(1000, 1000), *at("max", 5000, link_s=0.2)], "the source"),
    ],
)
def test_what_limited_a_maximum(trials, limited_by):
    (best,) = best_groups(with_limits(group_trials(campaign(trials))))
    assert best.limited_by is not None
    assert str(best.limited_by).partition(" (")[0] == (limited_by or "the UUT")
    others = [group for group in with_limits(group_trials(campaign(trials))) if group.load != best.load]
    assert {group.limited_by for group in others} <= {None}
    limits = [row["limited_by"] for row in group_rows(campaign(trials))]
    assert [limit for limit in limits if limit is not None] == [str(best.limited_by)]


AT_LEAST, LESS = at(2000, 2000), at(2000, 1500)  # 25 % lost of the only load
SCENARIO = {"scenario": "cpu-heavy"}


@pytest.mark.parametrize(
    ("trials", "bound", "index", "message"),
    [
        ([*AT_LEAST, *at(2000, 1500, **SCENARIO)], "≤", 0.75, "≤ −25.0 %: the baseline is a lower bound"),
        ([*LESS, *at(2000, 2000, **SCENARIO)], "≥", 4 / 3, "≥ +33.3 %: this maximum is a lower bound"),
        ([*LESS, *at(2000, 1200, **SCENARIO)], "", 0.8, "−20.0 % "),
    ],
)
def test_a_ratio_of_a_lower_bound_is_a_bound(trials, bound, index, message):
    (one,) = relative_maxima(with_limits(group_trials(campaign(trials))))
    assert one.ratio.bound == bound
    assert one.isolation_index == pytest.approx(index)
    assert statement(one.ratio).startswith(message)
    assert worst_isolation([one]) == (one,)
    assert (one.ratio.low is None, one.ratio.high is None) == (bound == "≤", bound == "≥")
    assert one.ratio.significant is True
    text = page_of(campaign(trials)).text
    shown = f"{bound} {index:.3f} of a lower bound" if bound else f"{index:.3f}"
    assert shown in text


def test_a_ratio_of_two_lower_bounds_is_unknown():
    (one,) = relative_maxima(with_limits(group_trials(campaign([*AT_LEAST, *at(2000, 2000, **SCENARIO)]))))
    assert (one.isolation_index, one.ratio.unknown) == (None, Unknown.BOTH_AT_LEAST)
    assert statement(one.ratio) == "unknown: both maxima are lower bounds"


def test_the_report_and_the_terminal_never_show_such_a_maximum_as_a_plain_number():
    trials = [*at(1000, 1000), *at(2000, 2000)]
    (best,) = best_groups(with_limits(group_trials(campaign(trials))))
    assert maximum_text(best) == "≥ 1.3 Mbit/s, not overloaded: limited by the highest load requested"
    page = page_of(campaign(trials))
    assert "≥ 1.3 Mbit/s, not overloaded: limited by the highest load requested" in page.text
    assert "≥ 1" in str(figures_on(page.source)[0].plotly), "on the bar"
    output = printed(campaign(trials))
    assert "≥ 1.3" in output
    assert output.count("≥ ") == 1, "that of the lower load is no maximum"
    assert "≥: a maximum that is limited by the highest load requested, not by the UUT, is a lower bound" in " ".join(
        output.split()
    )
    of_uut = [*at(1000, 1000), *at(4000, 1500)]
    assert "≥" not in printed(campaign(of_uut))
    assert "Lower bounds" not in page_of(campaign(of_uut)).text


def test_campaigns_compared_say_which_maxima_are_lower_bounds():
    base, same, slower = (
        Campaign.of(name, campaign(trials))
        for name, trials in (("base", AT_LEAST), ("same", AT_LEAST), ("slower", LESS))
    )
    (alike,) = compare(base, [same])
    assert [(maximum.throughput.unknown, maximum.base.limited_by) for maximum in alike.maxima] == [
        (Unknown.BOTH_AT_LEAST, LimitCause(LimitKind.REQUESTED_LOAD))
    ]
    (worse,) = compare(base, [slower])
    (one,) = worse.maxima
    assert one.throughput.bound == "≤"
    assert one.throughput.change == pytest.approx(-0.25)


def half(interval: Interval | None) -> float:
    assert interval is not None
    assert interval.half_width is not None
    return interval.half_width


def curve(*points, boots=3, noise=0.0, size=64):
    """A trial on each boot at each load, offered and received in frames/s."""
    for place, (load, received) in enumerate(points):
        for boot in range(1, boots + 1):
            got = round(received * (1 + noise * (boot - 2)))
            counts = stream_counts(sent=load, received=got, intended_fps=float(load), intended_frames=load)
            result = trial(counts, load=f"{load}fps", repetition=boot, frame_size=size)
            yield replace(result, boot=boot, started_ns=place)


@pytest.mark.parametrize(
    ("points", "mean", "loads"),
    [
        (((500, 500), (1000, 800), (1200, 820), (1400, 810)), 810, ["1000fps", "1200fps", "1400fps"]),
        (((500, 500), (1000, 800), (1200, 600)), 800, ["1000fps"]),  # it breaks down: a peak, not a plateau
        (((700, 700), (830, 800), (1200, 820)), 810, ["830fps", "1200fps"]),
        (((700, 700), (810, 800), (1200, 820)), 820, ["1200fps"]),  # less was offered than the maximum
    ],
)
def test_a_maximum_is_the_mean_over_all_loads_at_which_it_is_the_same(points, mean, loads):
    (best,) = best_groups(with_limits(group_trials(campaign(curve(*points, noise=0.02)))))
    assert best.limited_by == LIMITED_BY_UUT
    assert best.maximum_fps is not None
    assert best.maximum_fps.mean == pytest.approx(mean, rel=0.002)
    assert list(map(str, best.maximum_loads)) == loads
    assert best.maximum_fps.boots == 3
    (of_mix,) = best_groups(with_limits(group_trials(campaign(curve(*points, noise=0.02, size=IMIX)))))
    assert of_mix.maximum_mbps is not None
    assert of_mix.maximum_mbps.mean == pytest.approx(l1_mbps(best.maximum_fps.mean, IMIX.mean_bytes))
    (row,) = [row for row in group_rows(campaign(curve(*points, noise=0.02))) if row["limited_by"]]
    assert (row["maximum_loads"], row["boots"]) == (";".join(loads), 3)
    assert row["maximum_fps"] == pytest.approx(mean, rel=0.002)


def test_trials_at_more_loads_of_the_same_boots_make_the_interval_no_narrower():
    def half_width(*points):
        (best,) = best_groups(with_limits(group_trials(campaign(curve((500, 500), *points, noise=0.05)))))
        return half(best.maximum_fps)

    one, three = half_width((1000, 800)), half_width((1000, 800), (1200, 800), (1400, 800))
    assert three == pytest.approx(one, rel=0.01)


def test_the_noise_floor_widens_what_the_host_decides_and_not_what_the_clock_of_the_source_does():
    results = campaign(curve((500, 500), (1000, 800), (1200, 800)))
    noisy = replace(results, noise_floor=NoiseFloor(0.08, 6, "a trial"))
    low, high, _ = group_trials(noisy)
    assert half(high.throughput_fps) == pytest.approx(0.08 * 800, rel=0.05)
    assert half(low.throughput_fps) < 0.01 * 500
    (best,) = best_groups(with_limits(group_trials(noisy)))
    assert half(best.maximum_fps) == pytest.approx(0.08 * 800, rel=0.05)
    assert "This host varies by ±8 % between repeats." in page_of(noisy).text


def test_what_varies_between_runs_is_part_of_maxima_and_of_ratios_of_uuts_but_not_of_ratios_of_scenarios():
    alone, beside = (list(curve((500, 500), (1000, most), (1200, most))) for most in (800, 760))
    beside = [replace(trial, spec=replace(trial.spec, scenario="cpu-heavy")) for trial in beside]
    other = [replace(trial, spec=replace(trial.spec, uut="other")) for trial in alone]
    results = campaign([*alone, *beside, *other])
    here, virtual = (
        with_limits(group_trials(replace(results, noise_floor=NoiseFloor(0.01, 6, "a trial", (), run_to_run))))
        for run_to_run in (0.0, 0.15)
    )
    best = {(group.uut, group.scenario): group for group in best_groups(virtual)}
    (uut,) = {trial.spec.uut for trial in alone}
    assert half(best[uut, DEDICATED].maximum_fps) == pytest.approx(0.15 * 800, rel=0.05)
    assert relative_maxima(virtual)[0].ratio == relative_maxima(here)[0].ratio
    ratio = compared(best["other", DEDICATED], best[uut, DEDICATED], counted_loads(virtual))
    assert ratio is not None
    assert ratio.low == pytest.approx(1 - 0.15 * 2**0.5, abs=0.04)


def test_a_difference_below_the_noise_floor_is_none():
    alone, beside = curve((500, 500), (1000, 800), (1200, 800)), curve((500, 500), (1000, 760), (1200, 760))
    beside = (replace(result, spec=replace(result.spec, scenario="cpu-heavy")) for result in beside)
    results = campaign([*alone, *beside])
    (exact,) = relative_maxima(with_limits(group_trials(results)))
    (noisy,) = relative_maxima(with_limits(group_trials(replace(results, noise_floor=NoiseFloor(0.08, 6, "a trial")))))
    assert (exact.ratio.significant, noisy.ratio.significant) == (True, False)


@pytest.mark.parametrize(
    ("limit", "stored"),
    [
        (LIMITED_BY_UUT, ""),
        (LimitCause(LimitKind.REQUESTED_LOAD), "the highest load requested"),
        (LimitCause(LimitKind.REQUESTED_LOAD), "the highest load asked for"),
        (LimitCause(LimitKind.SOURCE, paced_fps=9800), "the source, which can be paced at 9,800 frames/s"),
        (
            LimitCause(LimitKind.SOURCE, paced_fps=9800, doubt="it (or the self-test) varied"),
            "the source, which can be paced at 9,800 frames/s (not reliable: it (or the self-test) varied)",
        ),
        (LimitCause(LimitKind.TRIAL_REASON, detail="uneven-pacing: 3 ms late"), "uneven-pacing: 3 ms late"),
    ],
)
def test_limits_are_stored_as_text_also_by_earlier_versions(limit, stored):
    assert LimitCause.parse(stored) == limit
    assert limit.stored == stored.replace("asked for", "requested")
