"""Stability: by how much each trial forwarded more or less than its cell, by when it began."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean

from netbench.model.frame_mix import frames_text
from netbench.report.figures.chart import Chart, Guide, Mark, Numbers
from netbench.report.figures.panels import Panels
from netbench.report.figures.registry import Figure, NamedChart, by_setting
from netbench.report.formats import change
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.drift import Residual, Steadiness
from netbench.statistics.groups import grouped
from netbench.statistics.outliers import outlying

_MOST_POINTS = 1000  # per panel: more trials are drawn as means of consecutive ones
_MOST_BOOTS = 60  # with more boots, their starts are not drawn
_POINT = 6.0  # pixels
_LEAST_REACH = 1.0  # percent: the y axis spans at least this
_S_OF = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


def stability_chart(cells: Sequence[Steadiness], styles: Mapping[str, Style]) -> Chart:
    """A panel per UUT: residuals in percent (y) by when trials began (x), a dotted line where each boot began."""
    first_ns = min(steadiness.residuals[0].trial.started_ns for steadiness in cells)
    last_ns = max(steadiness.residuals[-1].trial.started_ns for steadiness in cells)
    unit, seconds = unit_of((last_ns - first_ns) / 1e9)
    titles = {steadiness.uut: styles[steadiness.uut].label for steadiness in cells}
    panels = Panels(
        titles, (steadiness.uut for steadiness in cells), styles, f"Since the first trial [{unit}]", "Residual [%]"
    )
    shown = {steadiness.uut: residuals_below_saturation(steadiness) for steadiness in cells}
    reach = 1.15 * max(_LEAST_REACH, *(100 * abs(r.relative) for residuals in shown.values() for r in residuals))
    end = max((last_ns - first_ns) / 1e9 / seconds, 1e-3)
    outliers = {key for steadiness in cells for key in _marked_keys(steadiness)}
    for steadiness in cells:
        panels.scale(steadiness.uut, [-end / 50, end * 1.02], [-reach, reach])
        residuals = shown[steadiness.uut]
        panels.rule(steadiness.uut, 0)
        boots = [trials[0].trial.started_ns for trials in grouped(residuals, lambda r: r.trial.boot).values()]
        if 1 < len(boots) <= _MOST_BOOTS:
            panels.guide(steadiness.uut, _lines([(at - first_ns) / 1e9 / seconds for at in boots], reach))
        marker = replace(styles[steadiness.uut].marker, size=_POINT)
        marks = _marks(residuals, marker.symbol, first_ns, seconds, outliers)
        panels.points(steadiness.uut, steadiness.uut, marks, marker)
    return panels.figure


def residuals_below_saturation(steadiness: Steadiness) -> list[Residual]:
    """The residuals of a UUT that depend on its speed, in time order."""
    return (
        list(steadiness.residuals)
        if steadiness.below_saturation
        else [residual for residual in steadiness.residuals if residual.limited]
    )


def _marked_keys(steadiness: Steadiness) -> Iterator[str]:
    for residuals in grouped(steadiness.residuals, lambda r: r.cell).values():
        marks = outlying([1 + r.relative for r in residuals])
        yield from (r.trial.spec.key for r, marked in zip(residuals, marks, strict=True) if marked)


def _marks(residuals: Sequence[Residual], symbol: str, first_ns: int, seconds: float, outliers: set[str]) -> list[Mark]:
    together = -(-len(residuals) // _MOST_POINTS)
    rest = iter(residuals)
    batches = list(iter(lambda: list(islice(rest, together)), []))
    marked = [together == 1 and batch[0].trial.spec.key in outliers for batch in batches]
    marks = []
    for batch, outlier in zip(batches, marked, strict=True):
        since = fmean(r.trial.started_ns - first_ns for r in batch) / 1e9
        relative = fmean(r.relative for r in batch)
        numbers: Numbers = {
            "uut": batch[0].trial.spec.uut,
            "since_first_s": since,
            "relative_to_cell": relative,
            "trials": len(batch),
            "trial": batch[0].trial.spec.index if len(batch) == 1 else None,
            "boot": batch[0].trial.boot,
            "outlier": "yes" if outlier else "no",
        }
        shown = f"{symbol}-open" if outlier else ""
        marks.append(Mark(since / seconds, 100 * relative, _tooltip(batch, outlier), numbers, symbol=shown))
    return marks


def _tooltip(batch: Sequence[Residual], outlier: bool) -> str:
    spec, boot = batch[0].trial.spec, batch[0].trial.boot
    if len(batch) > 1:
        return f"mean of {len(batch)} trials: {change(fmean(residual.relative for residual in batch))}"
    lines = (
        f"{change(batch[0].relative)}{', outlier' if outlier else ''}",
        f"{frames_text(spec.frame_size)}, {spec.load}, {spec.scenario}",
        f"repetition {spec.repetition}, trial {batch[0].place} of boot {boot}",
    )
    return "\n".join(lines)


def _lines(times: Sequence[float], reach: float) -> Guide:
    """A dotted line from bottom to top at each time."""
    return Guide(tuple(point for at in times for point in ((at, -reach), (at, reach), None)), "start of a boot")


def unit_of(seconds: float) -> tuple[str, float]:
    """The largest of minutes, hours and days that fits at least twice, and its seconds; else minutes."""
    fitting = [unit for unit, long in _S_OF.items() if seconds >= 2 * long]
    name = fitting[-1] if fitting else "minutes"
    return name, _S_OF[name]


def _build(model: ReportModel) -> Iterator[NamedChart]:
    with_residuals = [steadiness for steadiness in model.steadiness if steadiness.residuals]
    yield from by_setting(
        with_residuals, lambda steadiness: steadiness.uut, model.styles, stability_chart, "steadiness"
    )


FIGURE = Figure(
    "steadiness",
    "Stability",
    lambda model: "" if any(cell.residuals for cell in model.steadiness) else "no cell was measured twice",
    _build,
)
