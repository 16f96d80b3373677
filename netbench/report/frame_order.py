"""The part of the page about the order of frames: duplicates, reordering, runs of lost ones."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.formats import UNKNOWN, frames, rough_percent
from netbench.report.markup import Column, Html, row, table
from netbench.report.panels import Style
from netbench.report.sections import Section, note, section
from netbench.report.tables import uut_label
from netbench.statistics.frame_order import order_of

_ORDER = (
    Column("UUT"),
    Column("Frame size", css="number"),
    Column("Received", css="number"),
    Column("Duplicates", css="number"),
    Column("Reordered", css="number"),
    Column("of received", css="number"),
    Column("Largest extent", css="number"),
    Column("Loss runs", css="number"),
    Column("Longest run", css="number"),
    Column("Loss runs by their frames", css="words"),
)


def order_sections(trials: Sequence[TrialResult], looks: Mapping[str, Style]) -> Iterable[Section]:
    """Order by UUT and frame size; nothing where no trial has frames that can be told apart."""
    counted = [trial for trial in trials if trial.verdict is not Verdict.INVALID]
    if rows := list(_order_rows(counted, looks)):
        yield section(
            "order",
            "Order",
            note(
                "Sums over the valid and the suspicious trials at any load: a trial with duplicates is never simply"
                " valid. A reordered frame came after one with a higher number; its extent is by how many frames"
                " (RFC 4737). A loss run is of frames sent one after the other."
            ),
            table(_ORDER, [rows]),
        )


def _order_rows(trials: Sequence[TrialResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    for uut in looks:
        sizes = sorted({trial.spec.frame_size for trial in trials if trial.spec.uut == uut}, reverse=True)
        for size in sizes:
            order = order_of(trial for trial in trials if (trial.spec.uut, trial.spec.frame_size) == (uut, size))
            if order is not None:
                cells = (
                    uut_label(uut, looks),
                    f"{size:,}",
                    frames(order.received),
                    frames(order.duplicates),
                    frames(order.reordered),
                    rough_percent(order.reordered_ratio),
                    frames(order.extent_frames),
                    f"{order.loss_runs:,}",
                    frames(order.longest_run_frames),
                    " · ".join(f"{_class(least)}: {runs:,}" for least, runs in order.run_lengths) or UNKNOWN,
                )
                yield row(_ORDER, cells)


def _class(least: int) -> str:
    """The frames of the loss runs of a class, as LossRuns has them."""
    return "1" if least == 1 else f"{least:,}–{2 * least - 1:,}"
