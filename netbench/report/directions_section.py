"""The section about each direction by itself, where frames went both ways at once."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.model.frame_mix import rising
from netbench.report.formats import count, frames, kfps, mbps, mbps_spread, mean, microseconds, percent, percent_spread
from netbench.report.markup import Html, TableColumn, folded, table
from netbench.report.panels import size_titles
from netbench.report.sections import Section, View, chosen, note, section
from netbench.report.styles import Style
from netbench.report.tables import mean_column, stream_label, uut_label
from netbench.statistics.delay_percentiles import delay_of, time_of
from netbench.statistics.frame_order import Direction, directions
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import known_interval
from netbench.statistics.totals import total


def directions_section(choice: Sequence[View], looks: Mapping[str, Style]) -> Iterable[Section]:
    """Each direction of measurements with a stream and its reverse; nothing without any."""
    both = [(view, directions(view.groups)) for view in choice]
    if shown := {view.name: of_view for view, of_view in both if of_view}:
        yield section(
            "directions",
            "Directions",
            note(
                "Where a stream and its way back ran over the same NICs at once (RFC 2544, section 14), each by itself."
                " Means of the valid trials ± 95 % interval; bandwidths are L1."
            ),
            chosen([view for view in choice if view.name in shown], lambda view: _table(shown[view.name], looks)),
        )


def _table(own: Sequence[Direction], looks: Mapping[str, Style]) -> Html:
    columns: tuple[TableColumn[Direction], ...] = (
        TableColumn("UUT", lambda direction: uut_label(direction.group.uut, looks)),
        TableColumn("Load per source", lambda direction: str(direction.group.load)),
        TableColumn("Stream", lambda direction: stream_label(direction.stream, direction.reverse_of)),
        mean_column("Offered Mbit/s", lambda direction: direction.offered_mbps, mbps, mbps_spread),
        mean_column("Throughput Mbit/s", lambda direction: direction.throughput_mbps, mbps, mbps_spread),
        TableColumn("Throughput kfps", lambda direction: kfps(mean(direction.throughput_fps)), "number"),
        mean_column("Loss", lambda direction: direction.loss_ratio, percent, percent_spread),
        TableColumn(
            "Frames lost", lambda direction: frames(total(trial.lost_frames for trial in direction.valid)), "number"
        ),
        TableColumn("Median delay, µs", lambda direction: microseconds(_median_ns(direction)), "number"),
        TableColumn("Valid", lambda direction: str(len(direction.valid)), "number"),
    )
    return folded(count(len(own), "direction"), len(own), table(columns, _by_size(own), css="results"))


def _median_ns(one: Direction) -> float | None:
    streams = (counts for trial in one.valid for counts in trial.streams)
    return mean(known_interval(time_of(counts, delay_of, lambda delay: delay.median_ns) for counts in streams))


def _by_size(own: Sequence[Direction]) -> dict[str, list[Direction]]:
    """Directions by the panel title of their frame size, the largest first."""
    falling = sorted(own, key=lambda direction: rising(direction.group.frame_size), reverse=True)
    by_size = grouped(falling, lambda direction: direction.group.frame_size)
    return dict(zip(size_titles(by_size).values(), by_size.values(), strict=True))
