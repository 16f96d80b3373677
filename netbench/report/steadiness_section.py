"""The section of the report about time: what UUTs forwarded from trial to trial, boots marked; drift and outliers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from netbench.model.campaign import WarmUpTrial
from netbench.model.frame_mix import frames_text, size_text
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.chart import Chart, Guide, Look, Mark, Numbers
from netbench.report.formats import change, count, kfps, mean
from netbench.report.markup import Column, Html, element, folded, table
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

_MOST_POINTS = 1000  # in a panel: more trials are drawn as means of so many one after the other
_MOST_BOOTS = 60  # of which the beginnings are drawn
_POINT = 6.0  # pixels
_LEAST_REACH = 1.0  # percent: what scatters less is not blown up
_S_OF = {"minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


def steadiness_section(
    found: Sequence[Steadiness], groups: Sequence[Group], warm_ups: Sequence[WarmUpTrial], looks: Mapping[str, Style]
) -> Iterator[Section]:
    """Nothing where no cell was measured twice, and nothing to warm up: of single trials nothing can be told."""
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
    """What is drawn by `residuals_in_time`: where a cell was measured twice."""
    return [one for one in found if one.residuals]


def residuals_in_time(found: Sequence[Steadiness], looks: Mapping[str, Style]) -> Chart:
    """A panel per UUT: residuals in percent (y) by when trials began (x), a dotted line where each boot began."""
    first_ns = min(one.residuals[0].trial.started_ns for one in found)
    last_ns = max(one.residuals[-1].trial.started_ns for one in found)
    unit, seconds = _unit((last_ns - first_ns) / 1e9)
    titles = {one.uut: looks[one.uut].label for one in found}
    panels = Panels(titles, (one.uut for one in found), looks, f"Since the first trial [{unit}]", "Residual [%]")
    reach = 1.15 * max(_LEAST_REACH, *(100 * abs(r.relative) for one in found for r in telling(one)))
    end = max((last_ns - first_ns) / 1e9 / seconds, 1e-3)
    outliers = {key for one in found for key in _marked_keys(one)}
    for one in found:
        panels.scale(one.uut, [-end / 50, end * 1.02], [-reach, reach])
        own = telling(one)
        panels.rule(one.uut, 0)
        boots = [trials[0].trial.started_ns for trials in grouped(own, lambda r: r.trial.boot).values()]
        if 1 < len(boots) <= _MOST_BOOTS:
            panels.guide(one.uut, _lines([(at - first_ns) / 1e9 / seconds for at in boots], reach))
        look = replace(looks[one.uut].look, size=_POINT)
        panels.points(one.uut, looks[one.uut].label, look, _points(own, look, first_ns, seconds, outliers))
    return panels.figure


def telling(one: Steadiness) -> list[Residual]:
    """The residuals of a UUT that say something of its speed, in the order of time."""
    return list(one.residuals) if one.below_saturation else [each for each in one.residuals if each.limited]


def _marked_keys(one: Steadiness) -> Iterator[str]:
    for own in grouped(one.residuals, lambda r: r.cell).values():
        marks = outlying([1 + r.relative for r in own])
        yield from (r.trial.spec.key for r, marked in zip(own, marks, strict=True) if marked)


def _points(own: Sequence[Residual], look: Look, first_ns: int, seconds: float, outliers: set[str]) -> list[Mark]:
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
        return f"mean of {len(batch)} trials: {change(fmean(one.relative for one in batch))}"
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
    columns: tuple[Column[Steadiness], ...] = (
        Column("UUT", lambda one: uut_label(one.uut, looks)),
        Column("Trials", lambda one: f"{len(telling(one)):,}", "number"),
        Column("Over", lambda one: _duration(one.drift.over_s), "number"),
        Column("Drift", lambda one: drift_words(one.drift)),
        Column("An hour", lambda one: drift_an_hour_words(one.drift)),
        Column("p", lambda one: p_of(one.drift), "number"),
        Column("Boots", lambda one: boots_words(one.boots), "words"),
        Column("p", lambda one: p_of(one.boots), "number"),
        Column("First trials of a boot", lambda one: first_trials_words(one.first)),
        Column("p", lambda one: p_of(one.first), "number"),
    )
    return table(columns, [found], "steadiness", lambda one: "changed" if one.drift.is_large else "")


def _outliers(groups: Sequence[Group], looks: Mapping[str, Style]) -> Iterator[Html]:
    """The cells with trials that stand apart, and what their means would be without those."""
    found = [one for group in groups if (one := outliers_of(group)) is not None]
    large = sum(len(group.valid) >= FEWEST for group in groups)
    yield element("h3", "Outliers")
    if not large:
        yield note(f"No cell has {FEWEST} valid trials, which it takes to tell.")
        return
    marked = sum(len(one.marked) for one in found)
    yield note(
        f"{count(marked, 'valid trial')} in {count(len(found), 'cell')}, of {large:,} with {FEWEST} valid trials or"
        " more: by their modified z-score (Iglewicz and Hoaglin), whose limit one cell of normal noise in a hundred"
        " exceeds. They are part of all means."
    )
    columns: tuple[Column[Outliers], ...] = (
        Column("UUT", lambda one: uut_label(one.group.uut, looks)),
        Column("Scenario", lambda one: one.group.scenario),
        Column("Sources", lambda one: str(one.group.sources), "number"),
        Column("Frame size", lambda one: size_text(one.group.frame_size, " B"), "number"),
        Column("Load per source", lambda one: str(one.group.load)),
        Column("Repetitions marked", lambda one: ", ".join(str(each.trial.spec.repetition) for each in one.marked)),
        Column("Valid", lambda one: str(len(one.group.valid)), "number"),
        Column("Their kfps", lambda one: ", ".join(kfps(each.throughput_fps) for each in one.marked), "number"),
        Column("Mean kfps", lambda one: kfps(mean(one.group.throughput_fps)), "number"),
        Column("Mean without", lambda one: kfps(one.mean_without), "number"),
        Column("Change", lambda one: change(one.change_without), "number"),
    )
    if found:
        yield folded(count(len(found), "cell"), len(found), table(columns, [found]))


@dataclass(frozen=True, slots=True)
class _Warmed:
    """The warm-up trials of one boot."""

    trials: tuple[TrialResult, ...]

    @property
    def kfps(self) -> list[str]:
        return [kfps(TrialTotals.of(one).throughput_fps) for one in self.trials]


def _warm_ups(made: Sequence[WarmUpTrial], looks: Mapping[str, Style]) -> Iterator[Html]:
    """What was made on each boot before its first trial; nothing where that was nothing."""
    if not made:
        return
    boots = [_Warmed(tuple(each.result for each in own)) for own in grouped(made, lambda one: one.result.boot).values()]
    columns: tuple[Column[_Warmed], ...] = (
        Column("UUT", lambda one: uut_label(one.trials[0].spec.uut, looks)),
        Column("Boot", lambda one: f"{one.trials[0].boot:,}", "number"),
        Column("Frame size", lambda one: size_text(one.trials[0].spec.frame_size, " B"), "number"),
        Column("Load per source", lambda one: str(one.trials[0].spec.load)),
        Column("Warm-up trials", lambda one: str(len(one.trials)), "number"),
        Column("Not valid", lambda one: str(sum(each.verdict is not Verdict.VALID for each in one.trials)), "number"),
        Column("Throughput kfps, one after the other", lambda one: ", ".join(one.kfps)),
    )
    yield element("h3", "Warm-up trials")
    yield note(
        f"{count(len(made), 'trial')} on {count(len(boots), 'boot')}, made before the first trial of each. They are"
        " part of nothing else on this page."
    )
    yield folded(count(len(boots), "boot"), len(boots), table(columns, [boots]))


def _unit(seconds: float) -> tuple[str, float]:
    """Minutes, hours or days, whatever there are some of."""
    fitting = [unit for unit, long in _S_OF.items() if seconds >= 2 * long]
    name = fitting[-1] if fitting else "minutes"
    return name, _S_OF[name]


def _duration(seconds: float) -> str:
    name, long = _unit(seconds)
    return f"{seconds / long:.1f} {name}"


def _uut(one: Steadiness) -> str:
    return one.uut
