"""Campaigns compared: cells, differences, and trials that are left out."""

from dataclasses import replace

import pytest

from netbench.model.campaign import EndedSweep
from netbench.model.frame_size import FrameSize
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.comparison import change_words, how_tested, loss_words, verdict_words
from netbench.statistics.compared_cells import ComparedCell
from netbench.statistics.comparison import compare, number_of_tests, why_nothing_compares
from netbench.statistics.intervals import Unknown
from netbench.statistics.regression_gate import GateResult, judge
from netbench.statistics.significance import Test
from tests.unit.comparison_factory import LOADS, as_compared, made_up, trials_of
from tests.unit.comparison_factory import exact_campaign as exact
from tests.unit.results_factory import campaign, stream_counts, trial

INVALID = (Reason(ReasonKind.LINK_DOWN, "", "egress NIC was down"),)
MAXIMUM = ComparedCell("raw", "dedicated", 1, FrameSize.of(64), None)
KVM = {"emulated": "no KVM here"}


def at(load):
    return replace(MAXIMUM, load=Load.parse(load))


def found(base, *others):
    """Return the comparisons of campaigns with the first, which is named base."""
    return compare(as_compared(base, "base"), [as_compared(results, "new") for results in others])


def cells(comparison):
    return {difference.place: difference for difference in comparison.differences}


def test_equal_campaigns_differ_in_nothing_and_the_interval_reports_how_much_is_excluded():
    (same,) = found(made_up(seed=1), made_up(seed=2))
    assert not same.slower
    assert not same.faster
    assert verdict_words(same) == "no difference in 4 cells"
    words = change_words(cells(same)[MAXIMUM])
    assert words.startswith("none above ")
    assert 0.05 < float(words.split()[2]) < 1


@pytest.mark.parametrize("repetitions", [3, 5, 9])
def test_a_uut_that_is_slower_by_3_percent_is_a_regression_of_about_3_percent(repetitions):
    (slower,) = found(
        made_up(80_000, seed=1, repetitions=repetitions), made_up(77_600, seed=2, repetitions=repetitions)
    )
    assert cells(slower)[MAXIMUM].change == pytest.approx(-0.03, abs=0.001)
    assert judge(slower, 0.02).outcome is GateResult.FAILED
    assert judge(slower, 0.04).outcome is GateResult.PASSED
    (faster,) = found(
        made_up(77_600, seed=2, repetitions=repetitions), made_up(80_000, seed=1, repetitions=repetitions)
    )
    assert cells(faster)[MAXIMUM].change == pytest.approx(0.031, abs=0.001)
    assert not judge(faster, 0).with_outcome(GateResult.FAILED)


def test_below_saturation_both_forward_what_is_offered_and_only_the_maximum_and_the_loads_above_tell():
    (slower,) = found(exact(80_000), exact(77_600))
    assert {difference.place for difference in slower.slower} == {MAXIMUM, at("100000fps"), at("120000fps")}
    unchanged = cells(slower)[at("50000fps")]
    assert unchanged.throughput_test.test is Test.ALIKE
    assert number_of_tests([slower]) == 3
    assert change_words(unchanged) == "none above 0.1 %"
    assert loss_words(cells(slower)[at("100000fps")]).startswith("+2.400 pp (± ")


def test_the_maximum_is_that_of_any_load_and_may_be_at_another():
    base = campaign(
        [*trials_of(most=lambda: 80_000, loads=[100_000]), *trials_of(most=lambda: 70_000, loads=[120_000])]
    )
    new = campaign([*trials_of(most=lambda: 60_000, loads=[100_000]), *trials_of(most=lambda: 63_000, loads=[120_000])])
    one = cells(found(base, new)[0])[MAXIMUM]
    assert (str(one.base.load), str(one.new.load)) == ("100000fps", "120000fps")
    assert one.change == pytest.approx(63 / 80 - 1)


def test_a_difference_that_means_nothing_is_called_none_whatever_its_p():
    (same,) = found(exact(80_000), exact(79_990))
    assert cells(same)[MAXIMUM].change is None
    noisy = made_up(79_990, lambda chance: 1 + chance.randrange(3) / 80_000, repetitions=9)
    (near,) = found(made_up(80_000, lambda chance: 1 + chance.randrange(3) / 80_000, repetitions=9), noisy)
    one = cells(near)[MAXIMUM]
    assert one.throughput_test.significant
    assert one.change is None


def test_few_repetitions_are_reported_to_be_too_few_for_a_permutation_test():
    (few,) = found(made_up(seed=1), made_up(seed=2))
    assert cells(few)[MAXIMUM].throughput_test.test is Test.WELCH
    assert "needs at least n = 5 on either side" in " ".join(how_tested([few]))
    (many,) = found(made_up(seed=1, repetitions=9), made_up(seed=2, repetitions=9))
    assert cells(many)[MAXIMUM].throughput_test.test is Test.PERMUTATION


@pytest.mark.parametrize("repetitions", [1, 2])
def test_one_and_two_repetitions_tell_nothing(repetitions):
    (one,) = found(exact(80_000, repetitions=repetitions), exact(60_000, repetitions=repetitions))
    assert not one.slower
    assert all(difference.throughput_test.p is None for difference in one.differences)
    assert verdict_words(one) == "too few repetitions, in 4 cells"
    assert change_words(cells(one)[MAXIMUM]).startswith("−25.0 % (")


def test_only_valid_trials_count():
    spoilt = [*trials_of(), *trials_of(most=lambda: 40_000)]
    spoilt[9:] = [
        replace(result, spec=replace(result.spec, repetition=result.spec.repetition + 3), reasons=INVALID)
        for result in spoilt[9:]
    ]
    comparison = found(exact(), campaign(spoilt))[0]
    assert not comparison.slower
    assert {len(difference.new.valid) for difference in comparison.differences} == {3}


def test_a_cell_without_a_valid_trial_on_one_side_is_left_out_with_the_reason():
    broken = campaign(
        [replace(result, reasons=INVALID) if result.spec.load.value == 120_000 else result for result in trials_of()]
    )
    (comparison,) = found(exact(), broken)
    assert [(cell.place, cell.why) for cell in comparison.left_out] == [
        (at("120000fps"), "no valid trial in the new campaign")
    ]


def test_a_maximum_is_unknown_where_the_load_of_the_higher_one_did_not_count_in_the_other():
    trials = [
        replace(result, reasons=INVALID) if result.spec.load.value > 50_000 and result.spec.repetition > 1 else result
        for result in trials_of()
    ]
    one = cells(found(exact(), campaign(trials))[0])[MAXIMUM]
    assert one.throughput.unknown is Unknown.NOT_MEASURED
    assert one.change is None


def test_maxima_are_over_the_loads_that_both_have():
    (comparison,) = found(exact(80_000), exact(80_000, loads=LOADS[:1]))
    assert str(cells(comparison)[MAXIMUM].base.load) == "50000fps"
    assert {cell.why for cell in comparison.left_out} == {"only in base"}


def test_a_load_that_was_skipped_as_saturated_counts_as_looked_for():
    ended = EndedSweep("raw", "dedicated", ("s1",), FrameSize.of(64), ("100000fps",), ("120000fps",), 3)
    skipped = replace(exact(60_000, loads=LOADS[:2]), ended_sweeps=(ended,))
    base = campaign([*trials_of(loads=LOADS[:2]), *trials_of(most=lambda: 90_000, loads=LOADS[2:])])
    (comparison,) = found(base, skipped)
    assert cells(comparison)[MAXIMUM].change == pytest.approx(60 / 90 - 1)
    assert [cell.why for cell in comparison.left_out] == ["skipped as saturated in one campaign"]


def test_the_same_share_of_another_line_rate_is_another_load():
    def half_of(rate):
        counts = stream_counts(intended_fps=rate / 2, intended_frames=1000)
        return campaign(trial(counts, load="50%", repetition=repetition) for repetition in (1, 2, 3))

    (comparison,) = found(half_of(1e6), half_of(1e7))
    assert comparison.differences == ()
    assert why_nothing_compares(comparison) == "raw: means 500,000 frames/s in one and 5,000,000 in the other"


def test_nothing_in_common_is_reported_in_words():
    (comparison,) = found(exact(), campaign(trials_of(loads=(1, 2, 3))))
    assert comparison.differences == ()
    common = "they have no load in common: 50000fps, 100000fps, 120000fps in base, 1fps, 2fps, 3fps in new"
    assert why_nothing_compares(comparison) == common
    other = campaign(trial(stream_counts(), load="100Mbit/s", repetition=repetition) for repetition in (1, 2, 3))
    (comparison,) = found(exact(), other)
    assert why_nothing_compares(comparison) == "their loads are in different units: fps in base, bit/s in new"


def test_an_emulated_uut_does_not_compare_with_one_that_is_not():
    real = campaign([*trials_of("raw"), *trials_of("kvm")], uuts=("raw", "kvm"), facts={"raw": {}, "kvm": {}})
    imitated = replace(real, facts={"raw": {}, "kvm": KVM})
    (comparison,) = found(real, imitated)
    assert {difference.place.uut for difference in comparison.differences} == {"raw"}
    assert {cell.why for cell in comparison.left_out} == {
        "on this machine, CPU not emulated in base; on this machine, CPU emulated in new"
    }
    (both,) = found(imitated, imitated)
    assert {difference.place.uut for difference in both.differences} == {"raw", "kvm"}


def test_p_values_are_corrected_for_the_cells_of_all_campaigns_together():
    base = made_up(seed=1)
    (alone,) = found(base, made_up(79_800, seed=2))
    together = found(base, made_up(79_800, seed=2), made_up(seed=3), made_up(seed=4))
    assert number_of_tests(together) == 3 * number_of_tests([alone])
    first, again = (cells(comparison)[at("100000fps")].throughput_test for comparison in (alone, together[0]))
    assert first.p == again.p
    assert (first.corrected or 0) <= (again.corrected or 0)


def test_a_uut_that_forwards_nothing_any_more_is_slower_by_all_of_it():
    (dead,) = found(exact(), exact(0))
    assert cells(dead)[MAXIMUM].change == -1
    (woken,) = found(exact(0), exact())
    assert cells(woken)[MAXIMUM].throughput.unknown is Unknown.BASE_IS_ZERO
    assert cells(woken)[MAXIMUM].change is None
    assert verdict_words(woken) == "the baseline is 0, in 4 cells"


def test_an_outlier_makes_no_regression():
    chosen = iter([80_000, 80_000, 80_000, 30_000, *[80_000] * 50])
    odd = campaign(trials_of(most=lambda: next(chosen), loads=[100_000], repetitions=9))
    (comparison,) = found(exact(loads=[100_000], repetitions=9), odd)
    assert not comparison.slower


def test_a_loss_that_scatters_from_run_to_run_is_no_difference():
    """+0.31 ± 0.12 percentage points by repetitions alone, of a source that sent unevenly in one run."""

    def losing(*lost):
        return campaign(
            trial(
                stream_counts(sent=10_000, received=10_000 - frames, intended_fps=1e4, intended_frames=10_000),
                load="10000fps",
                repetition=repetition,
            )
            for repetition, frames in enumerate(lost, start=1)
        )

    (found_one,) = found(losing(5, 12, 2, 10, 6), losing(30, 52, 25, 45, 40))
    one = cells(found_one)[at("10000fps")]
    assert one.loss.difference == pytest.approx(0.00314)
    assert one.change_of_loss is None
    (found_one,) = found(losing(5, 12, 2, 10, 6), losing(1030, 1052, 1025, 1045, 1040))
    assert cells(found_one)[at("10000fps")].change_of_loss == pytest.approx(0.1031, abs=1e-4)
