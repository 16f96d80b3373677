"""The tables of stability: drift, boots and first trials of each UUT, outliers, warm-up trials."""

from collections.abc import Iterator
from dataclasses import dataclass

from netbench.model.frame_mix import size_text
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import change, kfps, mean
from netbench.report.model import ReportModel
from netbench.report.stability import boots_words, drift_an_hour_words, drift_words, first_trials_words, p_of
from netbench.report.tables.columns import group_columns, number, uut_column, words
from netbench.report.tables.registry import report_table
from netbench.statistics.drift import Steadiness
from netbench.statistics.groups import grouped
from netbench.statistics.outliers import Outliers, outliers_of
from netbench.statistics.totals import TrialTotals

_S_OF = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


@report_table("stability", "Stability", "a cell that was measured twice")
def stability(model: ReportModel) -> Iterator[Table]:
    """Drift, effects of boots and of first trials by UUT."""
    if shown := [steadiness for steadiness in model.steadiness if steadiness.residuals]:
        yield table(
            (
                uut_column(model.styles, lambda row: row.uut),
                number("Trials", lambda row: f"{_trials(row):,}"),
                number("Over", lambda row: _duration(row.drift.over_s)),
                Column("Drift", lambda row: drift_words(row.drift)),
                Column("An hour", lambda row: drift_an_hour_words(row.drift)),
                number("p", lambda row: p_of(row.drift)),
                words("Boots", lambda row: boots_words(row.boots)),
                number("p", lambda row: p_of(row.boots)),
                Column("First trials of a boot", lambda row: first_trials_words(row.first)),
                number("p", lambda row: p_of(row.first)),
            ),
            shown,
            "steadiness",
            row_css=lambda row: "changed" if row.drift.is_large else "",
        )


def _trials(row: Steadiness) -> int:
    """The number of trials that depend on the speed of the UUT."""
    return len(row.residuals) if row.below_saturation else sum(residual.limited for residual in row.residuals)


def _duration(seconds: float) -> str:
    fitting = [unit for unit, long in _S_OF.items() if seconds >= 2 * long]
    unit = fitting[-1] if fitting else "minutes"
    return f"{seconds / _S_OF[unit]:.1f} {unit}"


@report_table("outliers", "Outliers", "a cell with five valid trials")
def outliers(model: ReportModel) -> Iterator[Table]:
    """The cells with outliers, and their means without them."""
    if cells := [cell for group in model.groups if (cell := outliers_of(group)) is not None]:
        columns: tuple[Column[Outliers], ...] = (
            *(
                Column(column.title, lambda cell, read=column.cell: read(cell.group), column.kind)  # type: ignore[misc]
                for column in group_columns(model.styles)
            ),
            Column("Load per source", lambda cell: str(cell.group.load)),
            Column(
                "Repetitions marked",
                lambda cell: ", ".join(str(totals.trial.spec.repetition) for totals in cell.marked),
            ),
            number("Valid", lambda cell: str(len(cell.group.valid))),
            number("Their kfps", lambda cell: ", ".join(kfps(totals.throughput_fps) for totals in cell.marked)),
            number("Mean kfps", lambda cell: kfps(mean(cell.group.throughput_fps))),
            number("Mean without", lambda cell: kfps(cell.mean_without)),
            number("Change", lambda cell: change(cell.change_without)),
        )
        yield table(columns, cells)


@dataclass(frozen=True, slots=True)
class _WarmUp:
    """The warm-up trials of one boot."""

    trials: tuple[TrialResult, ...]

    @property
    def kfps(self) -> list[str]:
        return [kfps(TrialTotals.of(trial).throughput_fps) for trial in self.trials]


@report_table("warm-ups", "Warm-up trials", "warm_up_trials in the profile")
def warm_ups(model: ReportModel) -> Iterator[Table]:
    """The warm-up trials of each boot."""
    by_boot = grouped(model.results.warm_ups, lambda warm_up: warm_up.result.boot)
    boots = [_WarmUp(tuple(warm_up.result for warm_up in of_boot)) for of_boot in by_boot.values()]
    if boots:
        yield table(
            (
                uut_column(model.styles, lambda boot: boot.trials[0].spec.uut),
                number("Boot", lambda boot: f"{boot.trials[0].boot:,}"),
                number("Frame size", lambda boot: size_text(boot.trials[0].spec.frame_size, " B")),
                Column("Load per source", lambda boot: str(boot.trials[0].spec.load)),
                number("Warm-up trials", lambda boot: str(len(boot.trials))),
                number("Not valid", lambda boot: str(sum(trial.verdict is not Verdict.VALID for trial in boot.trials))),
                Column("Throughput kfps, in order of time", lambda boot: ", ".join(boot.kfps)),
            ),
            boots,
        )
