"""The gate: passed, failed or inconclusive, by cells of campaigns with loads."""

import random
from dataclasses import replace

import pytest

from netbench.model.campaign import NoiseFloor
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.search import SearchState
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.report.comparison import gate_advice
from netbench.statistics.compared_cells import Campaign, CellSelection
from netbench.statistics.comparison import compare
from netbench.statistics.regression_gate import GateResult, judge
from netbench.statistics.search_comparison import compare_searches
from tests.unit.comparison_factory import as_compared, exact_campaign, made_up, trials_of
from tests.unit.results_factory import campaign, search_result, stream_counts, trial

BUSY = CampaignWarning(WarningKind.HOST_WAS_BUSY, "The host was busy.")
INVALID = (Reason(ReasonKind.CAPTURE_DROPPED, "s1", "1 frame"),)
OTHER = CampaignWarning(WarningKind.OTHER_CAMPAIGN, "Another netbench measured.")
SEARCH = search_result(goal="PDR", loss_ratio=0.05, width=0.02)


def gate(base, new, threshold=0.02, **options):
    sides = [Campaign.of(name, results) for name, results in (("base", base), ("new", new))]
    (comparison,) = compare(sides[0], [sides[1]], **options)
    maxima = compare_searches("base", base, "new", new, of_maxima=True)
    return judge(comparison, threshold, maxima)


def outcome(base, new, threshold=0.02, **options):
    return gate(base, new, threshold, **options).outcome


def noisy(deviation):
    return lambda chance: chance.gauss(1, deviation)


@pytest.mark.parametrize(
    ("factor", "deviation", "expected"),
    [
        (1.0, 0.0005, GateResult.PASSED),
        (1.05, 0.0005, GateResult.PASSED),
        (0.97, 0.0005, GateResult.FAILED),
        (0.98, 0.0005, GateResult.INCONCLUSIVE),
        (1.0, 0.05, GateResult.INCONCLUSIVE),
        (0.925, 0.09, GateResult.INCONCLUSIVE),
        (0.5, 0.03, GateResult.FAILED),
    ],
)
def test_passed_only_if_excluded_failed_only_if_shown(factor, deviation, expected):
    base, new = made_up(80_000, noisy(deviation), repetitions=5), made_up(80_000 * factor, noisy(deviation), seed=2)
    assert gate(base, new).outcome is expected


def test_an_inconclusive_cell_has_the_smallest_detectable_change_and_the_repetitions_needed():
    base, new = (made_up(80_000, noisy(0.006), seed=seed) for seed in (1, 2))
    cells = gate(base, new).with_outcome(GateResult.INCONCLUSIVE)
    assert cells
    for cell in cells:
        assert 0.01 < cell.detectable < 0.1
        assert cell.is_beyond_repetitions or 3 < cell.repetitions <= 1000


def test_no_number_of_repetitions_is_enough_where_runs_differ_by_more():
    base, new = (made_up(80_000, noisy(0.05), seed=seed, repetitions=9) for seed in (1, 2))
    cells = gate(base, new).with_outcome(GateResult.INCONCLUSIVE)
    assert all(cell.is_beyond_repetitions and cell.repetitions is None for cell in cells)


@pytest.mark.parametrize("warning", [BUSY, OTHER])
@pytest.mark.parametrize("disturbed", ["base", "new"])
def test_cells_of_a_disturbed_campaign_are_inconclusive(warning, disturbed):
    base, new = made_up(80_000, seed=1), made_up(64_000, seed=2)
    if disturbed == "base":
        base = replace(base, warnings=(warning,))
    else:
        new = replace(new, warnings=(warning,))
    found = gate(base, new)
    assert found.outcome is GateResult.INCONCLUSIVE
    assert {cell.why for cell in found.cells} == {f"{disturbed} was disturbed ({warning.kind.value})"}
    assert gate(base, new, accept_disturbed=True).outcome is GateResult.FAILED


def test_a_cell_that_lost_many_trials_to_a_disturbance_is_inconclusive():
    reasons = (Reason(ReasonKind.TESTER_DISTURBED, "s1", "stalled for 0.2 s"),)

    def spoilt(repetitions):
        trials = made_up(64_000, repetitions=9).trials
        return campaign(
            replace(result, reasons=reasons) if result.spec.repetition <= repetitions else result for result in trials
        )

    assert gate(made_up(repetitions=9), spoilt(3)).outcome is GateResult.FAILED
    found = gate(made_up(repetitions=9), spoilt(4))
    assert found.outcome is GateResult.INCONCLUSIVE
    assert "the tester was disturbed in 4 of 9 trials of new" in {cell.why for cell in found.cells}
    assert gate(made_up(repetitions=9), spoilt(4), accept_disturbed=True).outcome is GateResult.FAILED


def test_a_noise_floor_widens_the_interval():
    """A campaign whose repetitions are equal was measured on a host whose repeats of one trial vary."""
    base = made_up(80_000, noisy(0.0001), seed=1)
    new = made_up(77_600, noisy(0.0001), seed=2)
    assert gate(base, new).outcome is GateResult.FAILED
    for half_width, expected in ((0.08, GateResult.INCONCLUSIVE), (0.001, GateResult.FAILED)):
        floor = NoiseFloor(half_width, 5, "bridge, 64 bytes, max")
        assert gate(base, replace(new, noise_floor=floor)).outcome is expected
        assert gate(replace(base, noise_floor=floor), new).outcome is expected


def test_a_noise_floor_is_not_of_a_uut_that_keeps_up():
    base = exact_campaign(1e9)
    noisy_host = NoiseFloor(0.3, 5, "bridge, 64 bytes, max")
    assert gate(base, replace(base, noise_floor=noisy_host)).outcome is GateResult.PASSED


def test_runs_differ_as_much_as_the_repetitions_of_the_cell_itself():
    """The other cells of the UUT, which hardly scatter, are no evidence about one that does."""
    scatter = (0.98, 1.0, 1.02, 0.99, 1.01, 1.0, 0.98, 1.02, 1.0)
    base, new = (
        campaign(
            [
                *trials_of(repetitions=9, loads=(120_000,), sizes=(512, 1024, 1518)),
                *trials_of(
                    most=map(round, (most * factor for factor in scatter)).__next__, repetitions=9, loads=(120_000,)
                ),
            ]
        )
        for most in (80_000, 76_000)
    )
    small = [cell for cell in gate(base, new).cells if cell.place.frame_size.only_size == 64]
    assert {cell.outcome for cell in small} == {GateResult.INCONCLUSIVE}


def test_several_boots_are_the_units_of_replication():
    """Nine trials on three boots that differ are three values, not nine."""

    def booted(factors, seed):
        chance = random.Random(seed)
        trials = [
            trial(
                stream_counts(
                    sent=100_000,
                    received=round(80_000 * factor * chance.gauss(1, 0.0005)),
                    intended_fps=1e5,
                    intended_frames=100_000,
                ),
                uut="raw",
                frame_size=64,
                load="100000fps",
                repetition=3 * number + place,
                boot=number + 1,
            )
            for number, factor in enumerate(factors)
            for place in range(1, 4)
        ]
        return campaign(trials)

    base, new = booted((1.0, 1.02, 0.98), 1), booted((0.96, 0.98, 0.95), 2)
    found = gate(base, new)
    assert found.outcome is GateResult.INCONCLUSIVE
    assert all(cell.difference.sides[0].units == 3 for cell in found.cells)
    two = gate(booted((1.0, 1.0), 1), booted((0.8, 0.8), 2))
    assert two.outcome is GateResult.INCONCLUSIVE
    assert {(cell.why, cell.repetitions) for cell in two.cells} == {
        ("fewer than 3 boots, or valid pairs of repetitions", 3)
    }


def test_a_uut_on_one_boot_counts_as_repeatable_within_ten_percent():
    """Boots of the same UUT may differ by more than trials on one of them do."""
    base = campaign(replace(result, boot=1) for result in made_up(seed=1, repetitions=5).trials)
    for factor, expected in ((1.0, GateResult.INCONCLUSIVE), (0.95, GateResult.INCONCLUSIVE), (0.5, GateResult.FAILED)):
        new = made_up(80_000 * factor, seed=2, repetitions=5)
        found = gate(base, new)
        assert found.outcome is expected
        assert any("--set reboot=scenario" in line for line in gate_advice(found))
    booted = [
        campaign(replace(result, boot=result.spec.repetition) for result in made_up(seed=seed, repetitions=5).trials)
        for seed in (1, 2)
    ]
    assert gate(*booted).outcome is GateResult.PASSED


def shares(maximum, *, lower, upper, throughput=None, **search):
    """A campaign whose loads are shares of a maximum that a search found; it forwards less the more it is offered."""
    trials = []
    for percent in (30, 90, 150):
        fps = maximum * percent / 100
        received = fps if percent < 100 else (throughput or maximum**2 / fps)
        trials += [
            trial(
                stream_counts(
                    sent=round(fps), received=round(received) - number, intended_fps=fps, intended_frames=round(fps)
                ),
                uut="raw",
                frame_size=64,
                load=Load(LoadKind.OF_MAXIMUM, percent, Load.of_fps(round(fps))),
                repetition=number,
            )
            for number in (1, 2, 3)
        ]
    found = replace(SEARCH, lower=lower, upper=upper, for_maxima=True, **search)
    return replace(campaign(trials), maxima_searches=(found,))


def of_maximum(maximum, **more):
    return shares(maximum, lower=maximum * 0.99, upper=maximum * 1.01, **more)


@pytest.mark.parametrize("moved", [0.93, 1.07])
def test_a_maximum_that_moved_by_7_percent_is_no_regression_and_no_improvement(moved):
    base, new = of_maximum(100_000.0), of_maximum(100_000.0 * moved)
    sides = [Campaign.of(name, results) for name, results in (("base", base), ("new", new))]
    (comparison,) = compare(sides[0], [sides[1]])
    assert comparison.differences == ()
    assert all("--loads-from" in cell.why for cell in comparison.left_out)
    found = gate(base, new)
    assert found.outcome is GateResult.INCONCLUSIVE
    (searched,) = found.with_outcome(GateResult.INCONCLUSIVE)
    assert searched.place.goal == "PDR"


@pytest.mark.parametrize(
    ("factor", "expected"), [(0.5, GateResult.FAILED), (0.93, GateResult.INCONCLUSIVE), (2.0, GateResult.PASSED)]
)
def test_maxima_are_compared_with_maxima_whatever_a_lower_load_shows_that_both_share(factor, expected):
    base, new = of_maximum(100_000.0), of_maximum(100_000.0 * factor)
    assert outcome(base, new) is expected
    low = trials_of(loads=(10_000,))
    assert outcome(*(replace(side, trials=(*low, *side.trials)) for side in (base, new))) is expected


def test_a_maximum_that_the_source_limited_is_no_regression():
    limited = shares(
        23_000.0, lower=23_000.0, upper=None, state=SearchState.AT_LEAST, limited_by=LimitCause(LimitKind.SOURCE)
    )
    assert outcome(of_maximum(100_000.0), limited) is GateResult.INCONCLUSIVE


def test_the_same_shares_at_the_same_rates_are_compared():
    """As --loads-from measures them."""
    base = of_maximum(100_000.0)
    replayed = replace(base, maxima_searches=())
    found = gate(base, replayed)
    assert found.outcome is GateResult.PASSED
    assert len(found.with_outcome(GateResult.PASSED)) == 4


def three_trials(sent, received):
    """A campaign of a load of 100,000 frames/s, which its source may miss."""
    counts = stream_counts(sent=sent, received=received, intended_fps=1e5, intended_frames=100_000)
    return campaign(trial(counts, repetition=number) for number in (1, 2, 3))


def at_max(received, sent):
    return campaign(
        trial(
            stream_counts(sent=sent, received=received + number, intended_fps=None, intended_frames=None),
            uut="raw",
            frame_size=64,
            load="max",
            repetition=number,
        )
        for number in (1, 2, 3)
    )


def test_what_the_source_could_not_send_is_no_regression_of_the_uut():
    """All frames of a load `max` arrived, in one of the campaigns from a slower source."""
    assert gate(at_max(99_990, 100_000), at_max(79_990, 80_000)).outcome is GateResult.INCONCLUSIVE


@pytest.mark.parametrize(("threshold", "expected"), [(0.02, GateResult.PASSED), (0.005, GateResult.INCONCLUSIVE)])
def test_a_source_that_offered_a_little_less_is_no_regression_of_the_uut(threshold, expected):
    """All frames arrived, and the offered loads differ by less than a load may."""
    base, new = (three_trials(sent, sent) for sent in (100_000, 99_300))
    assert outcome(base, new, threshold) is expected
    assert outcome(new, base, threshold) is GateResult.PASSED
    (back,) = compare(as_compared(new, "base"), [as_compared(base, "new")])
    assert not back.faster


def test_a_base_that_was_offered_a_little_less_may_have_forwarded_as_much_more():
    """The new loads lose 0.6 %, so that less arrives than the base could have forwarded."""
    base, new = three_trials(99_100, 99_100), three_trials(100_000, 99_400)
    assert outcome(base, new, 0.02) is GateResult.PASSED
    found = gate(base, new, 0.005)
    assert [cell.why for cell in found.with_outcome(GateResult.INCONCLUSIVE)] == ["the source offered less in the base"]


@pytest.mark.parametrize("loads", [(50_000,), (50_000, 100_000)])
def test_a_base_that_forwarded_nothing_is_named_as_the_reason(loads):
    dead = campaign(trials_of(most=lambda: 0, loads=loads))
    found = gate(dead, campaign(trials_of(loads=loads)))
    assert [cell.why for cell in found.with_outcome(GateResult.INCONCLUSIVE)] == [
        "no load could be compared: the baseline is 0"
    ]


def test_a_maximum_that_one_source_did_not_reach_decides_nothing_whatever_lower_loads_show():
    low = trials_of(loads=(50_000,))
    reached, not_reached = (campaign((*low, *at_max(*rates).trials)) for rates in ((80_000, 200_000), (59_990, 60_000)))
    assert gate(reached, reached).outcome is GateResult.PASSED
    assert gate(reached, not_reached).outcome is GateResult.INCONCLUSIVE
    assert gate(not_reached, reached).outcome is GateResult.INCONCLUSIVE
    assert gate(not_reached, not_reached).outcome is GateResult.PASSED, "only the lower load is compared"


def test_a_cell_that_is_missing_in_an_unfinished_campaign_or_has_no_valid_trial_decides_nothing():
    low = trials_of(loads=(50_000, 100_000))
    base, new = made_up(), campaign(low, planned=9)
    invalid = [replace(result, reasons=INVALID) for result in trials_of(loads=(120_000,))]
    assert {outcome(base, new), outcome(new, base), outcome(base, campaign(low + invalid))} == {GateResult.INCONCLUSIVE}
    assert outcome(base, campaign(low)) is GateResult.PASSED


def test_only_selected_cells_are_judged():
    base = campaign([*trials_of("one"), *trials_of("two")], uuts=("one", "two"))
    new = campaign([*trials_of("one"), *trials_of("two", lambda: 60_000)], uuts=("one", "two"))
    for uut, expected in (("one", GateResult.PASSED), ("t*", GateResult.FAILED)):
        sides = [
            Campaign.of(name, results, CellSelection(uuts=(uut,))) for name, results in (("base", base), ("new", new))
        ]
        assert judge(compare(sides[0], [sides[1]])[0], 0.02).outcome is expected


def test_of_twenty_noisy_pairs_none_fails_and_no_slower_one_passes():
    """Runs of a campaign differ as much as repetitions within it, as on a virtual machine."""
    chance = random.Random(1)
    for seed in range(20):
        host = [chance.gauss(1, 0.05) for _ in range(3)]
        base, again, slower = (
            made_up(80_000 * factor, noisy(0.05), seed=3 * seed + place, repetitions=5)
            for place, factor in enumerate((host[0], host[1], 0.97 * host[2]))
        )
        assert gate(base, again).outcome is not GateResult.FAILED
        assert gate(base, slower).outcome is not GateResult.PASSED
