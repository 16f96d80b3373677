"""The loss curve of a UUT split by where the frames were lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import FrameSize, rising, size_text
from netbench.report.figures.chart import Chart, Mark, Numbers
from netbench.report.figures.panels import LOSS, Panels, size_titles
from netbench.report.figures.registry import Figure, NamedChart, requires_trials
from netbench.report.figures.throughput import groups_by_uut
from netbench.report.formats import count, frames, mbps, rough_percent
from netbench.report.model import ReportModel
from netbench.report.styles import PLACES, MarkerStyle, Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import known_interval
from netbench.statistics.lost_frames import GroupOutcome, LossPlace, PlaceLoss, Side, group_outcome

_LOADS = "Offered load [Mbit/s, L1]; each load that was measured"


def place_styles(drops: Iterable[PlaceLoss]) -> dict[LossPlace, MarkerStyle]:
    """A style for each place of some drops: darker nearer to the source, hatched where the place is unknown."""
    places = list(dict.fromkeys(drop.place for drop in drops))
    unknown = {drop.place for drop in drops if drop.side is Side.UNKNOWN}
    return {
        place: MarkerStyle(
            PLACES[number % len(PLACES)],
            symbol="",
            pattern="/" if place in unknown or number >= len(PLACES) else "",
        )
        for number, place in enumerate(places)
    }


def loss_by_place_chart(outcomes: Sequence[GroupOutcome], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size with a loss: a bar for each load measured, its parts the places along the path.

    `outcomes` are those of one UUT, scenario and number of sources. The upper edge of a bar is the loss. A load with
    suspicious trials only is marked with a `?`.
    """
    drops = {drop.place: drop for outcome in outcomes for drop in outcome.drops}
    places = [drops[place] for place in sorted(drops)]
    of_place = place_styles(places)
    by_size = _by_size(outcomes)
    panels = Panels(size_titles(by_size), (outcome.group.uut for outcome in outcomes), styles, _LOADS, LOSS)
    for size, members in by_size.items():
        highest = max(100 * sum(outcome.ratio(drop) for drop in outcome.drops) for outcome in members)
        panels.scale(size, None, [0, 1.05 * highest or 1.0])
        panels.panel(size).x.categories = tuple(_load(outcome) for outcome in members)
        for place in places:
            marks = [_mark(x, outcome, place) for x, outcome in enumerate(members)]
            panels.stack(size, _name(place), of_place[place.place], [mark for mark in marks if mark])
    return panels.figure


def _mark(x: int, outcome: GroupOutcome, place: PlaceLoss) -> Mark | None:
    drop = next((loss for loss in outcome.drops if loss.place == place.place), None)
    if drop is None:
        return None
    group = outcome.group
    numbers: Numbers = {
        "uut": group.uut,
        "scenario": group.scenario,
        "streams": group.sources,
        "frame_size": size_text(group.frame_size),
        "load": str(group.load),
        "trials": outcome.trials,
        "verdict": "suspicious" if outcome.doubtful else "valid",
        "offered_mbps": _offered(outcome),
        "place": drop.place.name,
        "lost_frames": drop.frames,
        "sent_frames": outcome.sent,
        "loss_ratio": outcome.ratio(drop),
    }
    return Mark(x, max(0.0, 100 * outcome.ratio(drop)), _tooltip(outcome, drop), numbers)


def _load(outcome: GroupOutcome) -> str:
    return mbps(_offered(outcome)) + (" ?" if outcome.doubtful else "")


def _by_size(outcomes: Iterable[GroupOutcome]) -> dict[FrameSize, list[GroupOutcome]]:
    """Outcomes by rising offered load of each frame size with lost frames, the smallest size first."""
    in_order = sorted(outcomes, key=lambda outcome: (rising(outcome.group.frame_size), _offered(outcome)))
    by_size = grouped(in_order, lambda outcome: outcome.group.frame_size)
    return {size: members for size, members in by_size.items() if any(outcome.drops for outcome in members)}


def _offered(outcome: GroupOutcome) -> float:
    """Mbit/s (L1), the mean over the trials that make up the outcome."""
    group = outcome.group
    offered = (
        known_interval(trial.offered_mbps for trial in group.suspicious) if outcome.doubtful else group.offered_mbps
    )
    return 0.0 if offered is None else offered.mean


def _name(drop: PlaceLoss) -> str:
    return drop.place.name if drop.side in (Side.UNKNOWN, Side.HOST) else f"{drop.place.name}: {drop.side.value}"


def _tooltip(outcome: GroupOutcome, drop: PlaceLoss) -> str:
    kind = "suspicious trial" if outcome.doubtful else "valid trial"
    return "\n".join(
        (
            f"{drop.place.name}, {drop.side.value}",
            f"{outcome.group.load}, offered {mbps(_offered(outcome))} Mbit/s",
            f"{frames(drop.frames)} of {frames(outcome.sent)} frames = {rough_percent(outcome.ratio(drop))}",
            f"in {count(outcome.trials, kind)}",
        )
    )


def lossy_outcomes(groups: Iterable[Group], guests: Iterable[str]) -> dict[str, list[GroupOutcome]]:
    """The outcomes of the measurements of each UUT that lost frames."""
    with_guest = set(guests)
    by_uut = {
        uut: [outcome for group in members if (outcome := group_outcome(group, guest=uut in with_guest))]
        for uut, members in groups_by_uut(groups).items()
    }
    return {uut: outcomes for uut, outcomes in by_uut.items() if any(outcome.drops for outcome in outcomes)}


def _build(model: ReportModel) -> Iterator[NamedChart]:
    for view in model.views:
        for place, (uut, outcomes) in enumerate(lossy_outcomes(view.groups, model.guests).items()):
            chart = loss_by_place_chart(outcomes, model.styles)
            yield NamedChart(f"split-{place}-{view.name}", chart, view.name, uut=uut)


FIGURE = Figure("split", "The loss curve by place", requires_trials, _build)
