"""The report's section on frames of several sizes: the exact sequence of each mix, and the counts of each size."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.campaign import CampaignResults
from netbench.model.counts import SizeCounts
from netbench.model.frame_mix import FrameMix, mixes_among
from netbench.report.formats import UNKNOWN, frames, rough_percent
from netbench.report.markup import Html, TableColumn, table
from netbench.report.sections import Section, note, section
from netbench.report.styles import Style
from netbench.report.tables import uut_label
from netbench.statistics.groups import Group, grouped
from netbench.statistics.totals import ratio, total


@dataclass(frozen=True, slots=True)
class _OfSize:
    """The frames of one size of a group, added up over the streams of its valid trials; None: unknown."""

    group: Group
    size: int
    sent: int | None
    received: int | None
    lost: int | None


def frame_mixes_section(
    groups: Sequence[Group], looks: Mapping[str, Style], results: CampaignResults
) -> Iterable[Section]:
    """The composition of each mix, and its frames by size; nothing without mixes."""
    sizes = (group.frame_size for group in groups)
    mixes = mixes_among([*sizes, *(search.frame_size for search in results.searches)])
    if not mixes:
        return
    of_mixes: tuple[TableColumn[FrameMix], ...] = (
        TableColumn("Mix", lambda mix: mix.name),
        TableColumn("Mean size", lambda mix: f"{mix.mean_bytes:,.1f} B", "number"),
        TableColumn("Frames of each size", lambda mix: mix.shares),
        TableColumn("Sequence that repeats", lambda mix: mix.in_letters, "words"),
    )
    of_sizes: tuple[TableColumn[_OfSize], ...] = (
        TableColumn("UUT", lambda row: uut_label(row.group.uut, looks)),
        TableColumn("Scenario", lambda row: row.group.scenario),
        TableColumn("Sources", lambda row: str(row.group.sources), "number"),
        TableColumn("Load per source", lambda row: str(row.group.load)),
        TableColumn("Frame size", lambda row: f"{row.size:,} B", "number"),
        TableColumn("Sent", lambda row: frames(row.sent), "number"),
        TableColumn("Received", lambda row: frames(row.received), "number"),
        TableColumn("Lost", lambda row: frames(row.lost), "number"),
        TableColumn("of sent", lambda row: _part(row), "number"),
    )
    rows = [row for group in groups for row in _by_size(group)]
    yield section(
        "mixes",
        "Frame mixes",
        note(
            "Frames of several sizes in one stream, in a sequence that repeats (IMIX genome, RFC 6985); sizes include"
            " the FCS. Bit rates and shares of line rate that were asked for are those of the mean size; what is said"
            " of offered loads and throughput is by the sizes of the frames that were sent and received."
        ),
        table(of_mixes, [mixes]),
        *(_counts(of_sizes, rows) if rows else ()),
    )


def _counts(columns: Sequence[TableColumn[_OfSize]], rows: Sequence[_OfSize]) -> Iterable[Html]:
    yield note("Frames by size, all sources and the valid trials added up:")
    yield table(columns, grouped(rows, lambda row: str(row.group.frame_size)))


def _by_size(group: Group) -> Iterable[_OfSize]:
    if not isinstance(group.frame_size, FrameMix) or not group.valid:
        return
    for size in group.frame_size.sizes:
        counts = [
            _of(size, None if stream is None else stream.by_size) for trial in group.valid for stream in trial.streams
        ]
        yield _OfSize(
            group,
            size,
            total(None if stream is None else stream.sent_frames for stream in counts),
            total(None if stream is None else stream.received_frames for stream in counts),
            total(None if stream is None else stream.lost_frames for stream in counts),
        )


def _of(size: int, counts: Sequence[SizeCounts] | None) -> SizeCounts | None:
    return next((entry for entry in counts or () if entry.size == size), None)


def _part(one: _OfSize) -> str:
    part = ratio(one.lost, one.sent)
    return UNKNOWN if part is None else rough_percent(part)
