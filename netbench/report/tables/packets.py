"""The tables of described packets: their cost, their loss by groups of flows, and changed header fields."""

from collections.abc import Iterator
from typing import NamedTuple

from netbench.report.blocks import Column, Table, table
from netbench.report.formats import (
    UNKNOWN,
    at_least,
    change_text,
    frames,
    index,
    index_spread,
    kfps_interval,
    mbps_interval,
    rough_percent,
    sentence,
)
from netbench.report.model import ReportModel
from netbench.report.tables.registry import number, place_columns, report_table
from netbench.statistics.changed_fields import changed_frames
from netbench.statistics.flow_losses import FieldLoss, LossyGroup, losses_by_field
from netbench.statistics.groups import Group
from netbench.statistics.packet_cost import flow_scaling, packet_costs
from netbench.statistics.totals import ratio

_MOST_GROUPS = 20  # of one measurement and field


class _GroupRow(NamedTuple):
    loss: FieldLoss
    group: LossyGroup


@report_table("packet-costs", is_exported=True)
def costs(model: ReportModel) -> Iterator[Table]:
    """The highest throughput with each packet and with plain frames, in frames/s and Mbit/s, and their ratio."""
    if rows := packet_costs(model.groups):
        yield table(
            rows,
            *place_columns(model.styles, lambda cost: cost.best),
            number("Packet, kfps", lambda cost: _kfps(cost.best)),
            number("Plain, kfps", lambda cost: _kfps(cost.plain)),
            number("Packet, Mbit/s", lambda cost: _mbps(cost.best)),
            number("Plain, Mbit/s", lambda cost: _mbps(cost.plain)),
            Column("Change in frames/s", lambda cost: change_text(cost.frames)),
            Column("Change in Mbit/s", lambda cost: change_text(cost.bits)),
            name="packet-costs",
            caption=sentence("captions.packet_costs"),
        )


@report_table("flow-scaling", is_exported=True)
def scaling(model: ReportModel) -> Iterator[Table]:
    """The highest throughput by number of flows."""
    if rows := [(series, point) for series in flow_scaling(model.groups) for point in series.points]:
        yield table(
            rows,
            *place_columns(model.styles, lambda row: row[1].best),
            Column("Headers", lambda row: row[0].headers),
            number("Flows", lambda row: f"{row[1].flows:,}"),
            number("Highest throughput, kfps", lambda row: _kfps(row[1].best)),
            number("Mbit/s", lambda row: _mbps(row[1].best)),
            name="flow-scaling",
            caption=sentence("captions.flow_scaling"),
        )


@report_table("flow-fairness")
def fairness(model: ReportModel) -> Iterator[Table]:
    """The groups of flows of each measurement and varying field: how many lost frames, and their fairness."""
    if rows := losses_by_field(model.groups):
        yield table(
            rows,
            *place_columns(model.styles, lambda loss: loss.measurement),
            Column("Load per source", lambda loss: str(loss.measurement.load)),
            Column("Field", lambda loss: loss.field),
            number("Groups", lambda loss: f"{loss.groups:,}"),
            number("Groups with loss", lambda loss: f"{len(loss.lossy):,}"),
            number("Lost", lambda loss: frames(loss.lost)),
            number("Fairness index", _index),
        )


@report_table("flow-groups")
def groups(model: ReportModel) -> Iterator[Table]:
    """The groups of flows that lost most frames, for each measurement and varying field."""
    for loss in losses_by_field(model.groups):
        measured = loss.measurement
        place = f"{measured.uut}, {measured.scenario}, {measured.frame_size.frames_text}, {measured.load}"
        shown = min(len(loss.lossy), _MOST_GROUPS)
        if loss.lossy:
            yield table(
                [_GroupRow(loss, group) for group in loss.lossy[:_MOST_GROUPS]],
                Column("Field", lambda row: row.loss.field),
                Column("Values", lambda row: row.group.values),
                number("Sent", lambda row: frames(row.group.sent)),
                number("Lost", lambda row: frames(row.group.lost)),
                number("of sent", lambda row: rough_percent(ratio(row.group.lost, row.group.sent) or 0.0)),
                number("Trials with loss", lambda row: f"{row.group.trials} of {len(row.loss.measurement.valid)}"),
                caption=sentence(
                    "captions.flow_groups", place=place, field=loss.field, shown=shown, groups=f"{loss.groups:,}"
                ),
            )


@report_table("changed-fields")
def changed_fields(model: ReportModel) -> Iterator[Table]:
    """The header fields that were not as expected at the sink, by stream, with the values of the first such frame."""
    if rows := changed_frames(model.groups):
        yield table(
            rows,
            *place_columns(model.styles, lambda row: row.measurement),
            Column("Load per source", lambda row: str(row.measurement.load)),
            Column("Stream", lambda row: row.stream),
            Column("Field", lambda row: row.name),
            Column("Sent", lambda row: row.field.sent or UNKNOWN),
            Column("Expected", lambda row: row.field.expected or UNKNOWN),
            Column("Arrived (first)", lambda row: row.field.arrived or UNKNOWN),
            number("Frames", lambda row: frames(row.frames)),
            number("Received", lambda row: frames(row.received)),
            number("Share", lambda row: rough_percent(ratio(row.frames, row.received))),
        )


def _index(loss: FieldLoss) -> str:
    fairness = loss.fairness
    return UNKNOWN if fairness is None else f"{index(fairness.mean)} {index_spread(fairness)}".rstrip()


def _kfps(group: Group) -> str:
    return at_least(kfps_interval(group.maximum_fps), group.is_lower_bound)


def _mbps(group: Group) -> str:
    return at_least(mbps_interval(group.maximum_mbps), group.is_lower_bound)
