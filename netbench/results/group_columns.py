"""The columns of exported groups, with one row per group of repetitions."""

from collections.abc import Callable
from typing import Any

from netbench.model.counts import l1_mbps
from netbench.results.export_columns import (
    MIX_COLUMNS,
    ExportColumn,
    column_at,
    columns_at,
    mix_columns,
    one_size,
    reason_kinds,
    value_at,
    yes_no_column,
)
from netbench.results.flow_columns import FLOW_GROUP_COLUMNS
from netbench.statistics.groups import Group
from netbench.statistics.outliers import FEWEST_TO_MARK, outliers_of
from netbench.statistics.stream_fairness import fairness_of_streams
from netbench.statistics.totals import LOAD


def _maximum_loads(group: Group) -> str | None:
    return None if group.limited_by is None else ";".join(map(str, group.maximum_loads))


def _outlier_trials(group: Group) -> int | None:
    if len(group.valid) < FEWEST_TO_MARK:
        return None
    outliers = outliers_of(group)
    return len(outliers.marked) if outliers else 0


def _without_outliers(group: Group) -> float | None:
    outliers = outliers_of(group)
    if outliers is None:
        return group.throughput_mbps.mean if group.throughput_mbps and len(group.valid) >= FEWEST_TO_MARK else None
    return l1_mbps(outliers.mean_without, group.frame_size.mean_bytes)


def _interval(name: str, read: Callable[[Group], Any]) -> list[ExportColumn[Group]]:
    """Return the columns of the mean and of the half width of an interval."""

    def column(name: str, attribute: str) -> ExportColumn[Group]:
        return ExportColumn(name, float, lambda group: getattr(read(group), attribute, None))

    return [column(name, "mean"), column(f"{name}_ci95", "half_width")]


def _intervals(*names: str, prefix: str = "", parent: str = "") -> list[ExportColumn[Group]]:
    """Return the columns of attributes of a group that are intervals."""
    return [column for name in names for column in _interval(prefix + name, value_at(parent + name))]


def _cpu_seconds(whose: str) -> list[ExportColumn[Group]]:
    return _interval(f"cpu_{whose}_s", lambda group: group.cpu_s(whose))


def _cpu_percent(whose: str) -> list[ExportColumn[Group]]:
    return _interval(f"cpu_{whose}_percent", lambda group: (share := group.cpu_share(whose)) and share.scaled(100))


GROUP_COLUMNS: tuple[ExportColumn[Group], ...] = (
    *columns_at(str, "", "uut", "scenario"),
    column_at("streams", int, "sources"),
    ExportColumn("frame_size", int, lambda group: one_size(group.frame_size)),
    ExportColumn("load", str, lambda group: str(group.load)),
    ExportColumn("valid_trials", int, lambda group: len(group.valid)),
    ExportColumn("suspicious_trials", int, lambda group: len(group.suspicious)),
    ExportColumn("invalid_trials", int, lambda group: len(group.invalid)),
    *columns_at(float, "", "intended_fps", "intended_mbps"),
    *_intervals("offered_mbps", "throughput_mbps", "loss_ratio", "unsent_ratio", "offered_fps", "throughput_fps"),
    *_intervals("offered_l2_mbps", "throughput_l2_mbps"),
    ExportColumn("reasons", str, lambda group: reason_kinds(group.reasons)),
    *_cpu_seconds("guest"),
    *_cpu_seconds("host"),
    *_intervals("offered_mbps", "throughput_mbps", "loss_ratio", prefix="neighbour_", parent="neighbours_"),
    ExportColumn("neighbour_frame_size", int, lambda group: one_size(group.neighbours_frame_size)),
    *_cpu_seconds("machine"),
    *_cpu_seconds(LOAD),
    *_cpu_percent("guest"),
    *_cpu_percent("host"),
    *_cpu_percent("machine"),
    *_cpu_percent(LOAD),
    *columns_at(int, "", buffered_frames_max="buffered_frames", trials_valid_at_once="valid_at_once"),
    column_at("thrown_away_attempts", int, "thrown_away"),
    yes_no_column("counts_as_maximum", lambda group: group.counts_as_maximum),
    column_at("saturated_trials", int, "saturated"),
    ExportColumn("outlier_trials", int, _outlier_trials),
    ExportColumn("throughput_mbps_without_outliers", float, _without_outliers),
    # Empty in all rows except those of a maximum.
    ExportColumn("limited_by", str, lambda group: None if group.limited_by is None else str(group.limited_by)),
    *_interval("maximum_fps", lambda group: None if group.limited_by is None else group.maximum_fps),
    ExportColumn("maximum_loads", str, _maximum_loads),
    ExportColumn("boots", int, lambda group: value_at("throughput_fps.boots")(group) or None),
    column_at("noise_floor", float, "noise_floor"),
    *MIX_COLUMNS,
    mix_columns("neighbour_", "neighbours_frame_size")[0],
    column_at("packet", str, "frame_size.packet"),
    column_at("flows", int, "packet.flows"),
    *_interval("stream_fairness", lambda group: getattr(fairness_of_streams(group), "index", None)),
    ExportColumn("streams_differ_p", float, lambda group: getattr(fairness_of_streams(group), "p", None)),
    # Empty for groups of frames; flow_cell() reads those of flows.
    *(ExportColumn(column.name, column.type, lambda _: None) for column in FLOW_GROUP_COLUMNS),
)
