"""The stability section of the report: throughput from trial to trial with boots marked, drift and outliers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from netbench.model.campaign import WarmUpTrial
from netbench.model.frame_mix import frames_text, size_text
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.chart import Chart, Guide, Mark, MarkerStyle, Numbers
from netbench.report.formats import change, count, kfps, mean
from netbench.report.markup import Html, TableColumn, element, folded, table
from netbench.report.panels import Panels
from netbench.report.sections import Section, drawn_apart, note, section
from netbench.report.steadiness_words import (
    boots_words,
    drift_an_hour_words,
    drift_words,
    first_trials_words,
    p_of,
)
from netbench.report.styles import Style
from netbench.report.tables import uut_label
from netbench.statistics.drift import Residual, Steadiness
from netbench.statistics.groups import Group, grouped
from netbench.statistics.outliers import FEWEST, Outliers, outliers_of, outlying
from netbench.statistics.totals import TrialTotals

_MOST_POINTS = 1000  # per panel: more trials are drawn as means of consecutive ones
_MOST_BOOTS = 60  # with more boots, their starts are not drawn
_POINT = 6.0  # pixels
_LEAST_REACH = 1.0  # percent: the y axis spans at least this
_S_OF = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


def steadiness_section(
    found: Sequence[Steadiness], groups: Sequence[Group], warm_ups: Sequence[WarmUpTrial], looks: Mapping[str, Style]
) -> Iterator[Section]:
    """Yield the section; nothing where no cell was measured twice and no warm-up trial was made."""
    shown = with_figures(found)
    if not shown:
        if warm_ups:
            yield section("steadiness", "Stability", *_warm_ups(warm_ups, looks))
        return
    yield section(
        "steadiness",
        "Stability",
        note(
            "By how much each valid trial forwarded more or less than its cell on average, in percent, by when it"
            " began; dotted lines are boots, hollow marks outliers. Of a UUT that could not forward all it was"
            " offered, only the cells where that was so are shown: in the others it forwards what comes, however fast"
            " it is."
        ),
        drawn_apart(shown, _uut, looks, residuals_in_time, "steadiness"),
        _table(shown, looks),
        note(
            "Drift: from the first trial to the last, the median slope (Theil–Sen) with its 95 % interval, and the p of"
            " Kendall's test, over boots where there are five and else over trials of the same cell and boot; boots: an"
            " analysis of variance, p by permutation; first trials: those of each boot against the others. p are"
            " corrected for the number of UUTs (Holm). None above x: the interval excludes more."
        ),
        *_outliers(groups, looks),
        *_warm_ups(warm_ups, looks),
    )


def with_figures(found: Sequence[Steadiness]) -> list[Steadiness]:
    """The UUTs that `residuals_in_time` draws: those with a cell that was measured twice."""
    return [steadiness for steadiness in found if steadiness.residuals]


def residuals_in_time(found: Sequence[Steadiness], looks: Mapping[str, Style]) -> Chart:
    """A panel per UUT: residuals in percent (y) by when trials began (x), a dotted line where each boot began."""
    first_ns = min(steadiness.residuals[0].trial.started_ns for steadiness in found)
    last_ns = max(steadiness.residuals[-1].trial.started_ns for steadiness in found)
    unit, seconds = _unit((last_ns - first_ns) / 1e9)
    titles = {steadiness.uut: looks[steadiness.uut].label for steadiness in found}
    panels = Panels(
        titles, (steadiness.uut for steadiness in found), looks, f"Since the first trial [{unit}]", "Residual [%]"
    )
    reach = 1.15 * max(_LEAST_REACH, *(100 * abs(r.relative) for steadiness in found for r in telling(steadiness)))
    end = max((last_ns - first_ns) / 1e9 / seconds, 1e-3)
    outliers = {key for steadiness in found for key in _marked_keys(steadiness)}
    for steadiness in found:
        panels.scale(steadiness.uut, [-end / 50, end * 1.02], [-reach, reach])
        residuals = telling(steadiness)
        panels.rule(steadiness.uut, 0)
        boots = [trials[0].trial.started_ns for trials in grouped(residuals, lambda r: r.trial.boot).values()]
        if 1 < len(boots) <= _MOST_BOOTS:
            panels.guide(steadiness.uut, _lines([(at - first_ns) / 1e9 / seconds for at in boots], reach))
        look = replace(looks[steadiness.uut].look, size=_POINT)
        panels.points(
            steadiness.uut, looks[steadiness.uut].label, look, _points(residuals, look, first_ns, seconds, outliers)
        )
    return panels.figure


def telling(one: Steadiness) -> list[Residual]:
    """The residuals of a UUT that depend on its speed, in time order."""
    return list(one.residuals) if one.below_saturation else [residual for residual in one.residuals if residual.limited]


def _marked_keys(one: Steadiness) -> Iterator[str]:
    for residuals in grouped(one.residuals, lambda r: r.cell).values():
        marks = outlying([1 + r.relative for r in residuals])
        yield from (r.trial.spec.key for r, marked in zip(residuals, marks, strict=True) if marked)


def _points(
    own: Sequence[Residual], look: MarkerStyle, first_ns: int, seconds: float, outliers: set[str]
) -> list[Mark]:
    together = -(-len(own) // _MOST_POINTS)
    rest = iter(own)
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
        symbol = f"{look.symbol}-open" if outlier else ""
        marks.append(Mark(since / seconds, 100 * relative, _hover(batch, outlier), numbers, symbol=symbol))
    return marks


def _hover(batch: Sequence[Residual], outlier: bool) -> str:
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


def _table(found: Sequence[Steadiness], looks: Mapping[str, Style]) -> Html:
    columns: tuple[TableColumn[Steadiness], ...] = (
        TableColumn("UUT", lambda steadiness: uut_label(steadiness.uut, looks)),
        TableColumn("Trials", lambda steadiness: f"{len(telling(steadiness)):,}", "number"),
        TableColumn("Over", lambda steadiness: _duration(steadiness.drift.over_s), "number"),
        TableColumn("Drift", lambda steadiness: drift_words(steadiness.drift)),
        TableColumn("An hour", lambda steadiness: drift_an_hour_words(steadiness.drift)),
        TableColumn("p", lambda steadiness: p_of(steadiness.drift), "number"),
        TableColumn("Boots", lambda steadiness: boots_words(steadiness.boots), "words"),
        TableColumn("p", lambda steadiness: p_of(steadiness.boots), "number"),
        TableColumn("First trials of a boot", lambda steadiness: first_trials_words(steadiness.first)),
        TableColumn("p", lambda steadiness: p_of(steadiness.first), "number"),
    )
    return table(columns, [found], "steadiness", lambda steadiness: "changed" if steadiness.drift.is_large else "")


def _outliers(groups: Sequence[Group], looks: Mapping[str, Style]) -> Iterator[Html]:
    """The cells with outliers, and their means without them."""
    cells = [cell for group in groups if (cell := outliers_of(group)) is not None]
    large = sum(len(group.valid) >= FEWEST for group in groups)
    yield element("h3", "Outliers")
    if not large:
        yield note(f"No cell has {FEWEST} valid trials, which it takes to tell.")
        return
    marked = sum(len(cell.marked) for cell in cells)
    yield note(
        f"{count(marked, 'valid trial')} in {count(len(cells), 'cell')}, of {large:,} with {FEWEST} valid trials or"
        " more: by their modified z-score (Iglewicz and Hoaglin), whose limit one cell of normal noise in a hundred"
        " exceeds. They are part of all means."
    )
    columns: tuple[TableColumn[Outliers], ...] = (
        TableColumn("UUT", lambda cell: uut_label(cell.group.uut, looks)),
        TableColumn("Scenario", lambda cell: cell.group.scenario),
        TableColumn("Sources", lambda cell: str(cell.group.sources), "number"),
        TableColumn("Frame size", lambda cell: size_text(cell.group.frame_size, " B"), "number"),
        TableColumn("Load per source", lambda cell: str(cell.group.load)),
        TableColumn(
            "Repetitions marked", lambda cell: ", ".join(str(trial.trial.spec.repetition) for trial in cell.marked)
        ),
        TableColumn("Valid", lambda cell: str(len(cell.group.valid)), "number"),
        TableColumn(
            "Their kfps", lambda cell: ", ".join(kfps(trial.throughput_fps) for trial in cell.marked), "number"
        ),
        TableColumn("Mean kfps", lambda cell: kfps(mean(cell.group.throughput_fps)), "number"),
        TableColumn("Mean without", lambda cell: kfps(cell.mean_without), "number"),
        TableColumn("Change", lambda cell: change(cell.change_without), "number"),
    )
    if cells:
        yield folded(count(len(cells), "cell"), len(cells), table(columns, [cells]))


@dataclass(frozen=True, slots=True)
class _Warmed:
    """The warm-up trials of one boot."""

    trials: tuple[TrialResult, ...]

    @property
    def kfps(self) -> list[str]:
        return [kfps(TrialTotals.of(trial).throughput_fps) for trial in self.trials]


def _warm_ups(made: Sequence[WarmUpTrial], looks: Mapping[str, Style]) -> Iterator[Html]:
    """The warm-up trials of each boot; nothing where there are none."""
    if not made:
        return
    boots = [
        _Warmed(tuple(warm_up.result for warm_up in of_boot))
        for of_boot in grouped(made, lambda warm_up: warm_up.result.boot).values()
    ]
    columns: tuple[TableColumn[_Warmed], ...] = (
        TableColumn("UUT", lambda boot: uut_label(boot.trials[0].spec.uut, looks)),
        TableColumn("Boot", lambda boot: f"{boot.trials[0].boot:,}", "number"),
        TableColumn("Frame size", lambda boot: size_text(boot.trials[0].spec.frame_size, " B"), "number"),
        TableColumn("Load per source", lambda boot: str(boot.trials[0].spec.load)),
        TableColumn("Warm-up trials", lambda boot: str(len(boot.trials)), "number"),
        TableColumn(
            "Not valid", lambda boot: str(sum(trial.verdict is not Verdict.VALID for trial in boot.trials)), "number"
        ),
        TableColumn("Throughput kfps, one after the other", lambda boot: ", ".join(boot.kfps)),
    )
    yield element("h3", "Warm-up trials")
    yield note(
        f"{count(len(made), 'trial')} on {count(len(boots), 'boot')}, made before the first trial of each. They are"
        " part of nothing else on this page."
    )
    yield folded(count(len(boots), "boot"), len(boots), table(columns, [boots]))


def _unit(seconds: float) -> tuple[str, float]:
    """The largest of minutes, hours and days that fits at least twice, and its seconds; else minutes."""
    fitting = [unit for unit, long in _S_OF.items() if seconds >= 2 * long]
    name = fitting[-1] if fitting else "minutes"
    return name, _S_OF[name]


def _duration(seconds: float) -> str:
    name, long = _unit(seconds)
    return f"{seconds / long:.1f} {name}"


def _uut(one: Steadiness) -> str:
    return one.uut
