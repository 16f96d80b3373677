"""The tables of delay and its variation, of the delay by the generator's clock, and of reordering."""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean

from netbench.model.distributions import SoftwareDelay
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.blocks import Column, Table, table
from netbench.report.formats import UNKNOWN, frames, mean, microseconds, rough_percent
from netbench.report.model import ReportModel
from netbench.report.tables.registry import largest_first, number, report_table, tables_of_groups, uut_column, words
from netbench.statistics.delay_and_order import (
    FrameOrder,
    ReadSpread,
    ReadTime,
    clock_bound,
    delay_of,
    greatest_time,
    ipdv_of,
    least_time,
    mean_time,
    order_of,
    pdv_of,
)
from netbench.statistics.groups import Group, grouped


@report_table("delay")
def delay(model: ReportModel) -> Iterator[Table]:
    """Percentiles of the delay and its variation in µs, for each view."""

    def time(title: str, spread: ReadSpread, read: ReadTime) -> Column[Group]:
        """The mean of a time that each stream has, over the valid trials."""
        return number(title, lambda group: microseconds(mean(mean_time(group, spread, read))))

    return tables_of_groups(
        model,
        has_delay,
        number("Smallest", lambda group: microseconds(least_time(group, delay_of, lambda delay: delay.smallest_ns))),
        time("Mean", delay_of, lambda delay: delay.mean_ns),
        time("Median", delay_of, lambda delay: delay.median_ns),
        time("90 %", delay_of, lambda delay: delay.p90_ns),
        time("99 %", delay_of, lambda delay: delay.p99_ns),
        time("99.9 %", delay_of, lambda delay: delay.p999_ns),
        number("Largest", lambda group: microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns))),
        number("Clocks ±", lambda group: microseconds(clock_bound(group))),
        time("PDV 99 %", pdv_of, lambda pdv: pdv.p99_ns),
        time("PDV 99.9 %", pdv_of, lambda pdv: pdv.p999_ns),
        time("IPDV median", ipdv_of, lambda ipdv: ipdv.median_ns),
        time("IPDV 99 %", ipdv_of, lambda ipdv: ipdv.p99_ns),
    )


def has_delay(group: Group) -> bool:
    """Whether any valid trial of the group measured a delay."""
    return any(counts and counts.received.delay for trial in group.valid for counts in trial.streams)


@report_table("software-delay")
def software_delay(model: ReportModel) -> Iterator[Table]:
    """Delay as measured by the generator, in µs, for each view."""

    def time(title: str, name: str, combined: Callable[[list[float]], float]) -> Column[Group]:
        """A time of the streams that have it, combined."""

        def cell(group: Group) -> str:
            values = [value for delay in software_delays(group) if (value := getattr(delay, name)) is not None]
            return f"{combined(values):,.0f}" if values else UNKNOWN

        return number(title, cell)

    return tables_of_groups(
        model,
        software_delays,
        number("Frames", lambda group: frames(sum(delay.frames for delay in software_delays(group)))),
        time("Smallest", "smallest_us", min),
        time("Mean", "smoothed_mean_us", fmean),
        time("Largest", "largest_us", max),
        time("Jitter", "jitter_us", max),
        words("Frames by delay, µs", _classes),
    )


def software_delays(group: Group) -> list[SoftwareDelay]:
    """The delays that the generator measured in the valid trials."""
    streams = (counts for trial in group.valid for counts in trial.streams)
    return [counts.received.software_delay for counts in streams if counts and counts.received.software_delay]


def _classes(group: Group) -> str:
    """`20–29: 1,234`: whole µs, and how many frames took so long."""
    sums: Counter[tuple[int, int]] = Counter()
    for delay in software_delays(group):
        sums.update({(delay_class.from_us, delay_class.below_us): delay_class.frames for delay_class in delay.classes})
    return " · ".join(f"{low:,}–{high - 1:,}: {number:,}" for (low, high), number in sorted(sums.items())) or UNKNOWN


@report_table("order")
def order(model: ReportModel) -> Iterator[Table]:
    """Reordering, duplicates and loss runs by UUT and frame size."""
    by_cell = grouped(judged(model), lambda trial: (trial.spec.uut, trial.spec.frame_size))
    uuts = list(model.styles)
    in_order = sorted(largest_first(by_cell, lambda cell: cell[1]), key=lambda cell: uuts.index(cell[0]))
    rows = [(uut, size, order) for uut, size in in_order if (order := order_of(by_cell[uut, size])) is not None]
    if rows:
        yield table(
            rows,
            uut_column(model.styles, lambda row: row[0]),
            number("Frame size", lambda row: f"{row[1]:,}"),
            number("Received", lambda row: frames(row[2].received)),
            number("Duplicates", lambda row: frames(row[2].duplicates)),
            number("Reordered", lambda row: frames(row[2].reordered)),
            number("of received", lambda row: rough_percent(row[2].reordered_ratio)),
            number("Largest extent", lambda row: frames(row[2].extent_frames)),
            number("Loss runs", lambda row: frames(row[2].loss_runs)),
            number("Longest run", lambda row: frames(row[2].longest_run_frames)),
            words("Loss runs by length", lambda row: _run_lengths(row[2])),
        )


def judged(model: ReportModel) -> list[TrialResult]:
    """The trials whose order counts: valid and suspicious ones."""
    return [trial for trial in model.trials if trial.verdict is not Verdict.INVALID]


def _run_lengths(order: FrameOrder) -> str:
    """Numbers of loss runs by the classes of LossRuns."""
    classes = (("1" if least == 1 else f"{least:,}–{2 * least - 1:,}", runs) for least, runs in order.run_lengths)
    return " · ".join(f"{lengths}: {runs:,}" for lengths, runs in classes) or UNKNOWN
