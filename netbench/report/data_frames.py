"""The results of a campaign as tidy pandas frames, for notebooks: `netbench.load(DIR)`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from netbench.errors import MissingError
from netbench.report.summary_json import campaign_summary
from netbench.results.directory import ResultDirectory
from netbench.results.export_columns import ExportColumn
from netbench.results.export_files import trial_rows
from netbench.results.export_rows import group_rows
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

_DTYPES = {str: "string", int: "Int64", float: "Float64"}  # pandas types in which a value can be unknown
_SEARCH_COLUMNS = (
    *("uut", "scenario", "sources", "frame_size", "repetition", "method", "goal", "for_maxima", "verdict"),
    *("lower_fps", "lower_mbps", "upper_fps", "upper_mbps", "throughput_fps", "throughput_mbps"),
    *("limited_by", "unstable", "why", "trials", "packet"),
)


class CampaignFrames:
    """The frames of one result directory, each read when it is first used. Unknown values are `pandas.NA`.

    - `trials`: one row per trial and stream, with the columns of `netbench export --format csv`.
    - `groups`: one row per group of repetitions: means over valid trials and 95 % intervals, as `export --aggregate`.
    - `searches`: one row per search result, with the fields of `searches` in `summary.json`.
    - `findings`: one row per finding of the report: `topic`, `text`.
    """

    def __init__(self, directory: Path) -> None:
        """Open a result directory; UsageError if it is none."""
        self._results = ResultDirectory(directory).results(counters=False)

    @cached_property
    def trials(self) -> "DataFrame":
        """One row per trial and stream, in the order of measurement; frames are integers, bandwidths Mbit/s (L1)."""
        return _frame(trial_rows(self._results), STREAM_COLUMNS)

    @cached_property
    def groups(self) -> "DataFrame":
        """One row per UUT, scenario, number of streams, frame size and load."""
        return _frame(group_rows(self._results), GROUP_COLUMNS)

    @cached_property
    def searches(self) -> "DataFrame":
        """One row per search and repetition; bounds in frames/s and Mbit/s (L1) of each stream."""
        return _pandas().DataFrame(self._summary["searches"], columns=list(_SEARCH_COLUMNS))

    @cached_property
    def findings(self) -> "DataFrame":
        """One row per finding, in the order of the report."""
        return _pandas().DataFrame(self._summary["findings"], columns=["topic", "text"])

    @cached_property
    def _summary(self) -> Mapping[str, Any]:
        return campaign_summary(self._results)


def _frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[ExportColumn[Any]]) -> "DataFrame":
    frame = _pandas().DataFrame(list(rows), columns=[column.name for column in columns])
    return frame.astype({column.name: _DTYPES[column.type] for column in columns})


def _pandas() -> ModuleType:
    try:
        return import_module("pandas")
    except ImportError:
        raise MissingError("netbench.load needs pandas; add it with: pip install 'netbench[pandas]'") from None
