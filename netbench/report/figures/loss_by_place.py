"""The loss curve of a UUT split by where the frames were lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from netbench.model.frame_size import FrameSize
from netbench.report.figures.chart import Chart, Form, Mark, Numbers
from netbench.report.figures.panels import LOSS, Panels
from netbench.report.figures.registry import Figure, NamedChart, requires_trials
from netbench.report.formats import count, frames, mbps, mean, rough_percent
from netbench.report.model import ReportModel
from netbench.report.styles import PLACES, MarkerStyle, Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import known_interval
from netbench.statistics.lost_frames import GroupOutcome, LossPlace, PlaceLoss, Side, group_outcome

_LOADS = "Offered load [Mbit/s, L1]; each load that was measured"


def place_styles(drops: Iterable[PlaceLoss]) -> dict[LossPlace, MarkerStyle]:
    """A style for each place of some drops: darker nearer to the source, hatched where the place is unknown."""
    drops = list(drops)
    unknown = {drop.place for drop in drops if drop.side is Side.UNKNOWN}
    styles = {}
    for number, place in enumerate(dict.fromkeys(drop.place for drop in drops)):
        pattern = "/" if place in unknown or number >= len(PLACES) else ""
        styles[place] = MarkerStyle(PLACES[number % len(PLACES)], symbol="", pattern=pattern)
    return styles


def loss_by_place_chart(outcomes: Sequence[GroupOutcome], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size with a loss: a bar for each load measured, its parts the places along the path.

    `outcomes` are those of one UUT, scenario and number of sources. The upper edge of a bar is the loss. A load with
    suspicious trials only is marked with a `?`.
    """
    lossy_sizes = {outcome.group.frame_size for outcome in outcomes if outcome.drops}
    lossy = sorted((outcome for outcome in outcomes if outcome.group.frame_size in lossy_sizes), key=_offered)
    key_of, uut_of = attrgetter("group.frame_size"), attrgetter("group.uut")
    panels: Panels[FrameSize, GroupOutcome] = Panels(lossy, styles, _LOADS, LOSS, key_of=key_of, uut_of=uut_of)
    drops = {drop.place: drop for outcome in outcomes for drop in outcome.drops}
    places = [drops[place] for place in sorted(drops)]
    for size, members in panels.members.items():
        highest = max(100 * sum(outcome.ratio(drop) for drop in outcome.drops) for outcome in members)
        panels.scale(size, y=[0, 1.05 * highest or 1.0])
        loads = (mbps(_offered(outcome)) + (" ?" if outcome.doubtful else "") for outcome in members)
        panels.panels[size].x.categories = tuple(loads)
        for place, style in place_styles(places).items():
            at_loads = ((x, outcome, drop) for x, outcome in enumerate(members) for drop in outcome.drops)
            marks = [_mark(x, outcome, drop) for x, outcome, drop in at_loads if drop.place == place]
            panels.series(size, _name(drops[place]), style, Form.STACK, marks)
    return panels.finished()


def _mark(x: int, outcome: GroupOutcome, drop: PlaceLoss) -> Mark:
    group = outcome.group
    ratio, offered = outcome.ratio(drop), _offered(outcome)
    verdict = "suspicious" if outcome.doubtful else "valid"
    numbers: Numbers = {
        "uut": group.uut,
        "scenario": group.scenario,
        "streams": group.sources,
        "frame_size": f"{group.frame_size.without_packet:,}",
        "packet": group.frame_size.packet or None,
        "load": str(group.load),
        "trials": outcome.trials,
        "verdict": verdict,
        "offered_mbps": offered,
        "place": drop.place.name,
        "lost_frames": drop.frames,
        "sent_frames": outcome.sent,
        "loss_ratio": ratio,
    }
    lines = (
        f"{drop.place.name}, {drop.side.value}",
        f"{group.load}, offered {mbps(offered)} Mbit/s",
        f"{frames(drop.frames)} of {frames(outcome.sent)} frames = {rough_percent(ratio)}",
        f"in {count(outcome.trials, f'{verdict} trial')}",
    )
    return Mark(x, max(0.0, 100 * ratio), "\n".join(lines), numbers)


def _offered(outcome: GroupOutcome) -> float:
    """Mbit/s (L1), the mean over the trials that make up the outcome."""
    offered, suspicious = outcome.group.offered_mbps, outcome.group.suspicious
    if outcome.doubtful:
        offered = known_interval(trial.offered_mbps for trial in suspicious)
    return mean(offered) or 0.0


def _name(drop: PlaceLoss) -> str:
    return drop.place.name if drop.side in (Side.UNKNOWN, Side.HOST) else f"{drop.place.name}: {drop.side.value}"


def lossy_outcomes(groups: Iterable[Group], guests: Iterable[str]) -> dict[str, list[GroupOutcome]]:
    """The outcomes of the measurements of each UUT that lost frames."""
    with_guest = set(guests)
    outcomes = (outcome for group in groups if (outcome := group_outcome(group, guest=group.uut in with_guest)))
    by_uut = grouped(outcomes, lambda outcome: outcome.group.uut)
    return {uut: of_uut for uut, of_uut in by_uut.items() if any(outcome.drops for outcome in of_uut)}


def _build(model: ReportModel) -> Iterator[NamedChart]:
    for view in model.views:
        for place, (uut, outcomes) in enumerate(lossy_outcomes(view.groups, model.guests).items()):
            chart = loss_by_place_chart(outcomes, model.styles)
            yield NamedChart(f"split-{place}-{view.name}", chart, view.name, uut=uut)


FIGURE = Figure("split", "The loss curve by place", requires_trials, _build)
