"""The tables of stability: drift, boots and first trials of each UUT, outliers, warm-up trials."""

from collections.abc import Iterator

from netbench.model.verdict import Verdict
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import change, kfps, mean, time_unit
from netbench.report.model import ReportModel
from netbench.report.stability import boots_words, drift_an_hour_words, drift_words, first_trials_words, p_of
from netbench.report.tables.registry import number, place_columns, report_table, size_column, uut_column, words
from netbench.statistics.drift import Residual, Steadiness
from netbench.statistics.groups import grouped
from netbench.statistics.outliers import outliers_of
from netbench.statistics.totals import TrialTotals


@report_table("stability")
def stability(model: ReportModel) -> Iterator[Table]:
    """Drift, effects of boots and of first trials by UUT."""
    if shown := [steadiness for steadiness in model.steadiness if steadiness.residuals]:
        yield table(
            shown,
            uut_column(model.styles, lambda row: row.uut),
            number("Trials", lambda row: f"{len(residuals_below_saturation(row)):,}"),
            number("Over", lambda row: _duration(row.drift.over_s)),
            Column("Drift", lambda row: drift_words(row.drift)),
            Column("An hour", lambda row: drift_an_hour_words(row.drift)),
            number("p", lambda row: p_of(row.drift)),
            words("Boots", lambda row: boots_words(row.boots)),
            number("p", lambda row: p_of(row.boots)),
            Column("First trials of a boot", lambda row: first_trials_words(row.first)),
            number("p", lambda row: p_of(row.first)),
            css="steadiness",
            row_css=lambda row: "changed" if row.drift.is_large else "",
        )


def residuals_below_saturation(steadiness: Steadiness) -> list[Residual]:
    """The residuals of a UUT that depend on its speed, in time order."""
    every = steadiness.below_saturation  # passes over all residuals
    return [residual for residual in steadiness.residuals if residual.limited or every]


def _duration(seconds: float) -> str:
    unit, unit_s = time_unit(seconds)
    return f"{seconds / unit_s:.1f} {unit}"


@report_table("outliers")
def outliers(model: ReportModel) -> Iterator[Table]:
    """The cells with outliers, and their means without them."""
    if cells := [cell for group in model.groups if (cell := outliers_of(group)) is not None]:
        yield table(
            cells,
            *place_columns(model.styles, lambda cell: cell.group),
            Column("Load per source", lambda cell: str(cell.group.load)),
            Column(
                "Repetitions marked",
                lambda cell: ", ".join(str(totals.trial.spec.repetition) for totals in cell.marked),
            ),
            number("Valid", lambda cell: str(len(cell.group.valid))),
            number("Outliers, kfps", lambda cell: ", ".join(kfps(totals.throughput_fps) for totals in cell.marked)),
            number("Mean, kfps", lambda cell: kfps(mean(cell.group.throughput_fps))),
            number("Mean without outliers", lambda cell: kfps(cell.mean_without)),
            number("Change", lambda cell: change(cell.change_without)),
        )


@report_table("warm-ups")
def warm_ups(model: ReportModel) -> Iterator[Table]:
    """The warm-up trials of each boot."""
    trials = [warm_up.result for warm_up in model.results.warm_ups]
    if boots := list(grouped(trials, lambda trial: trial.boot).values()):
        yield table(
            boots,
            uut_column(model.styles, lambda boot: boot[0].spec.uut),
            number("Boot", lambda boot: f"{boot[0].boot:,}"),
            size_column(lambda boot: boot[0].spec.frame_size),
            Column("Load per source", lambda boot: str(boot[0].spec.load)),
            number("Warm-up trials", lambda boot: str(len(boot))),
            number("Not valid", lambda boot: str(sum(trial.verdict is not Verdict.VALID for trial in boot))),
            Column(
                "Throughput kfps, in order of time",
                lambda boot: ", ".join(kfps(TrialTotals.of(trial).throughput_fps) for trial in boot),
            ),
        )
