"""Stability: by how much each trial forwarded more or less than its cell, by when it began."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean

from netbench.report.figures.chart import Chart, Guide, Mark, Numbers
from netbench.report.figures.panels import Panels
from netbench.report.figures.registry import Figure, by_setting
from netbench.report.formats import change, time_unit
from netbench.report.styles import Style
from netbench.report.tables.stability import residuals_below_saturation
from netbench.statistics.drift import Residual, Steadiness
from netbench.statistics.groups import grouped
from netbench.statistics.outliers import outlying

_MOST_POINTS = 1000  # per panel: more trials are drawn as means of consecutive ones
_MOST_BOOTS = 60  # with more boots, their starts are not drawn
_POINT = 6.0  # pixels
_LEAST_REACH = 1.0  # percent: the y axis spans at least this


def stability_chart(cells: Sequence[Steadiness], styles: Mapping[str, Style]) -> Chart:
    """A panel per UUT: residuals in percent (y) by when trials began (x), a dotted line where each boot began."""
    first_ns = min(steadiness.residuals[0].trial.started_ns for steadiness in cells)
    last_ns = max(steadiness.residuals[-1].trial.started_ns for steadiness in cells)
    unit, unit_s = time_unit((last_ns - first_ns) / 1e9)

    def since_s(residual: Residual) -> float:
        """When a trial began, in seconds since the first one."""
        return (residual.trial.started_ns - first_ns) / 1e9

    x_title = f"Since the first trial [{unit}]"
    panels = Panels(cells, styles, x_title, "Residual [%]", key_of=lambda cell: styles[cell.uut].label)
    shown = {steadiness.uut: residuals_below_saturation(steadiness) for steadiness in cells}
    reach = 1.15 * max(_LEAST_REACH, *(100 * abs(r.relative) for residuals in shown.values() for r in residuals))
    end = max((last_ns - first_ns) / 1e9 / unit_s, 1e-3)
    for label, (steadiness,) in panels.members.items():
        residuals, style = shown[steadiness.uut], styles[steadiness.uut]
        panels.scale(label, [-end / 50, end * 1.02], [-reach, reach])
        panels.rule(label, 0)
        boots = [since_s(trials[0]) / unit_s for trials in grouped(residuals, lambda r: r.trial.boot).values()]
        if 1 < len(boots) <= _MOST_BOOTS:
            ends = [point for at in boots for point in ((at, -reach), (at, reach), None)]
            panels.guide(label, Guide(tuple(ends), "start of a boot"))
        outliers = set(_outliers(steadiness))
        batches = _batches(residuals, -(-len(residuals) // _MOST_POINTS))
        marks = [_mark(batch, fmean(map(since_s, batch)), unit_s, outliers, style.symbol) for batch in batches]
        panels.points(label, steadiness.uut, marks, replace(style, size=_POINT))
    return panels.finished()


def _outliers(steadiness: Steadiness) -> Iterator[str]:
    """The keys of the trials that are outliers of their cell."""
    for residuals in grouped(steadiness.residuals, lambda r: r.cell).values():
        marks = outlying([1 + r.relative for r in residuals])
        yield from (r.trial.spec.key for r, marked in zip(residuals, marks, strict=True) if marked)


def _batches(residuals: Sequence[Residual], size: int) -> Iterator[list[Residual]]:
    rest = iter(residuals)
    yield from iter(lambda: list(islice(rest, size)), [])


def _mark(batch: Sequence[Residual], since_s: float, unit_s: float, outliers: set[str], symbol: str) -> Mark:
    """A trial, or the mean of several."""
    trial, relative = batch[0].trial, fmean(residual.relative for residual in batch)
    spec, alone = trial.spec, len(batch) == 1
    outlier = alone and spec.key in outliers
    numbers: Numbers = {
        "uut": spec.uut,
        "since_first_s": since_s,
        "relative_to_cell": relative,
        "trials": len(batch),
        "trial": spec.index if alone else None,
        "boot": trial.boot,
        "outlier": "yes" if outlier else "no",
    }
    lines = [f"{change(relative)}{', outlier' if outlier else ''}"]
    lines += [f"{spec.frame_size.frames_text}, {spec.load}, {spec.scenario}"]
    lines += [f"repetition {spec.repetition}, trial {batch[0].place} of boot {trial.boot}"]
    hover = "\n".join(lines) if alone else f"mean of {len(batch)} trials: {change(relative)}"
    return Mark(since_s / unit_s, 100 * relative, hover, numbers, symbol=f"{symbol}-open" if outlier else "")


FIGURE = Figure(
    "steadiness",
    "Stability",
    lambda model: "" if any(cell.residuals for cell in model.steadiness) else "no cell was measured twice",
    lambda model: by_setting(
        [steadiness for steadiness in model.steadiness if steadiness.residuals],
        lambda steadiness: steadiness.uut,
        model.styles,
        stability_chart,
        "steadiness",
    ),
)
