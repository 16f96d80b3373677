"""The open questions of a campaign and their remedies: the last sentence of its findings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import ReasonKind, Verdict
from netbench.report.formats import count, enumerated
from netbench.statistics.groups import Group, best_groups
from netbench.statistics.interference import relative_maxima
from netbench.statistics.intervals import MOST_REPETITIONS, RatioOfMeans, Unknown, repetitions_for
from netbench.statistics.limits import THE_LOAD_ASKED, THE_SOURCE

_MOST = 3  # questions in the sentence
_CLOSE_ENOUGH = 0.1  # the widest interval of a ratio, ±
_WHAT_HELPS = {
    ReasonKind.OFFERED_OUT_OF_TOLERANCE: "request loads that the source can send, or give it its own CPU",
    ReasonKind.CAPTURE_DROPPED: "use a sink that only counts (--set sink.kind=bpf)",
    ReasonKind.TESTER_DROPPED: "use a sink that only counts (--set sink.kind=bpf)",
}


@dataclass(frozen=True, slots=True)
class _Question:
    """An open question with its remedy, and the id of the section that shows it."""

    text: str
    chart: str


def open_questions(
    results: CampaignResults, groups: Sequence[Group], *, nothing_said: bool
) -> Iterator[tuple[str, str]]:
    """The sentence and the id of its section; nothing without open questions."""
    if nothing_said:
        yield _nothing(results), "verdicts"
        return
    questions = [
        *_missing(results),
        *_not_valid(results),
        *_lower_bounds(groups),
        *_too_few(groups),
        *_emulated(results),
    ]
    if questions:
        texts = [
            f"({number}) {question.text}" if len(questions) > 1 else question.text
            for number, question in enumerate(questions[:_MOST], 1)
        ]
        text = "; ".join(texts)
        yield f"{text[0].upper()}{text[1:]}.", questions[0].chart


def _nothing(results: CampaignResults) -> str:
    measured = list(results.wanted_trials)
    if not measured:
        return f"No results yet: no trial has been measured, {results.planned_trials:,} are planned."
    kinds = _worst_kinds(results)
    if not kinds:
        return f"No results: none of {count(len(measured), 'measured trial')} has counted frames."
    kind, trials = kinds[0]
    helps = _WHAT_HELPS.get(kind, "see the verdicts")
    return (
        f"No results: none of {count(len(measured), 'measured trial')} is valid, most often for {kind.value}"
        f" ({count(trials, 'trial')}); {helps}."
    )


def _missing(results: CampaignResults) -> Iterator[_Question]:
    missing = results.planned_trials - len(results.trials) - results.skipped_trials
    if missing > 0 and not results.searches:
        yield _Question(
            f"{missing:,} of {results.planned_trials:,} planned trials are missing: measure them with netbench resume",
            "verdicts",
        )


def _not_valid(results: CampaignResults) -> Iterator[_Question]:
    wanted = list(results.wanted_trials)
    left_out = sum(trial.verdict is not Verdict.VALID for trial in wanted)
    if left_out and not results.searches:
        (kind, trials), *_ = _worst_kinds(results)
        helps = f"; {_WHAT_HELPS[kind]}" if kind in _WHAT_HELPS else ""
        which = "is" if left_out == 1 else "are"
        often = "" if trials == left_out else "most often "
        yield _Question(
            f"{left_out:,} of {count(len(wanted), 'trial')} {which} not valid ({often}{kind.value}) and excluded: the "
            f"result may change once they are repeated{helps}",
            "verdicts",
        )


def _lower_bounds(groups: Sequence[Group]) -> Iterator[_Question]:
    """The maxima that are only lower bounds."""
    limited: dict[str, dict[str, None]] = {}
    for group in best_groups(groups):
        if group.limited_by:
            limited.setdefault(group.limited_by.partition(":")[0], {})[group.uut] = None
    helps = {
        THE_LOAD_ASKED: "measure higher loads (--set loads=…,max)",
        THE_SOURCE: "use a faster source (generator, or more CPUs)",
    }
    for limit, uuts in limited.items():
        how = helps.get(limit, "repeat the run on an idle machine")
        yield _Question(
            f"the throughput of {_named(uuts)} (marked ≥) is a lower bound, limited by {limit}: {how}", "maximum"
        )


def _too_few(groups: Sequence[Group]) -> Iterator[_Question]:
    """Intervals that are missing or too wide."""
    valid = [len(group.valid) for group in groups if group.valid]
    if valid and max(valid) == 1:
        yield _Question("the scatter is unknown, as n = 1: measure three repetitions or more", "results")
        return
    wide = [maximum for maximum in relative_maxima(groups) if _is_wide(maximum.ratio)]
    if wide:
        needed = max(_needed(maximum.best, maximum.base) for maximum in wide)
        many = f"{needed} repetitions or more" if needed >= MOST_REPETITIONS else f"{needed} repetitions"
        uuts = dict.fromkeys(maximum.victim.uut for maximum in wide)
        yield _Question(
            f"smaller costs of a neighbour are within the intervals of {_named(uuts)}: measure {many}"
            f" (--set repetitions={needed}) or longer trials",
            "isolation",
        )


def _is_wide(ratio: RatioOfMeans) -> bool:
    if ratio.unknown is Unknown.TOO_FEW or ratio.unknown is Unknown.BASE_MAY_BE_ZERO:
        return True
    return ratio.excluded is not None and ratio.excluded > _CLOSE_ENOUGH


def _needed(*groups: Group) -> int:
    """The repetitions that make the interval of each mean narrow enough."""
    return max(
        (
            repetitions_for(interval, _CLOSE_ENOUGH / 2)
            for group in groups
            if (interval := group.throughput_fps) and interval.mean
        ),
        default=3,
    )


def _emulated(results: CampaignResults) -> Iterator[_Question]:
    if emulated := [uut for uut in results.uuts if uut in results.emulated]:
        yield _Question(
            f"rates of {_named(emulated)} describe the emulator, not a real CPU: use a host with KVM",
            "uuts",
        )


def _worst_kinds(results: CampaignResults) -> list[tuple[ReasonKind, int]]:
    """The kinds of reasons against trials, the most frequent first, each with its number of trials."""
    counted = Counter(
        kind
        for trial in results.wanted_trials
        for kind in {reason.kind for reason in trial.reasons if reason.kind.verdict is not Verdict.VALID}
    )
    return counted.most_common()


def _named(uuts: Iterable[str]) -> str:
    names = list(uuts)
    if len(names) > _MOST + 1:
        return f"{', '.join(names[:_MOST])} and {len(names) - _MOST} more"
    return enumerated(names)
