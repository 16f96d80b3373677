"""Writes the numbers of a campaign as CSV, JSON or Parquet."""

import codecs
import csv
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

from pydantic_core import to_json

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.model.campaign import CampaignResults
from netbench.results.atomic import file_written_atomically
from netbench.results.export_columns import ExportColumn, Row
from netbench.results.export_rows import group_rows, stream_rows, warm_up_rows
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.manifest import CEILINGS
from netbench.results.stream_columns import STREAM_COLUMNS
from netbench.statistics.compared_cells import ALL_CELLS, CellSelection

Format = Literal["csv", "json", "parquet"]
SCHEMA = 1  # version of the JSON document; it increases when readers must change
_ROWS_OF_A_GROUP = 4096  # of a Parquet file; so many rows are in memory at a time


def export(
    results: CampaignResults,
    fmt: Format,
    aggregate: bool,
    out: Path | None,
    *,
    warm_ups: bool = False,
    selection: CellSelection = ALL_CELLS,
) -> None:
    """Write one row per trial and stream to `out`, or per group of repetitions (`aggregate`), or the warm-up trials.

    Trials are written as they are read, so that a campaign may be larger than memory. `out` is written completely or
    not at all; None is standard output. Rows of trials in JSON also have the lists of `DETAILS`. `selection` are the
    cells that have rows. Unknown values are empty cells in CSV and null in JSON and Parquet. UsageError for Parquet
    without `out`, MissingError for Parquet without pyarrow, TestbedError if writing is interrupted.
    """
    if fmt == "parquet" and out is None:
        raise UsageError("Parquet is no text for a terminal; name a file with -o FILE")
    columns: Sequence[ExportColumn[Any]] = GROUP_COLUMNS if aggregate else STREAM_COLUMNS
    if warm_ups and aggregate:
        raise UsageError("warm-up trials are part of no mean; leave out --aggregate or --warm-up-trials")
    if aggregate:
        rows: Iterable[Row] = group_rows(results, selection=selection)
    else:
        rows = (warm_up_rows if warm_ups else trial_rows)(results, details=fmt == "json", selection=selection)
    encode = _ENCODERS[fmt]
    with _standard_output() if out is None else file_written_atomically(out) as file:
        encode(columns, rows, file)


def trial_rows(
    results: CampaignResults, *, details: bool = False, selection: CellSelection = ALL_CELLS
) -> Iterable[Row]:
    """Return a row per selected trial and stream, with the columns of `STREAM_COLUMNS`, and the lists of `DETAILS`."""
    return stream_rows(
        results.trials,
        results.boots,
        results.facts,
        results.warm_ups,
        CEILINGS.of(results.manifest),
        details=details,
        selection=selection,
    )


def _csv(columns: Sequence[ExportColumn[Any]], rows: Iterable[Row], file: IO[bytes]) -> None:
    writer = csv.writer(_utf8(file), lineterminator="\n")
    writer.writerow(column.name for column in columns)
    writer.writerows(row.values() for row in rows)


def _json(_: Sequence[ExportColumn[Any]], rows: Iterable[Row], file: IO[bytes]) -> None:
    # Python's own encoder takes several times as long for one cell per line.
    # Values that are not finite are unknown, and JSON has no numbers for them.
    text, between = _utf8(file), "\n"
    text.write(f'{{\n "schema": {SCHEMA},\n "rows": [')
    for row in rows:
        cells = to_json(row, indent=3, inf_nan_mode="null").decode()
        text.write(f"{between}  {cells[:-1]}  }}")
        between = ",\n"
    text.write("]\n}\n" if between == "\n" else "\n ]\n}\n")


def _parquet(columns: Sequence[ExportColumn[Any]], rows: Iterable[Row], file: IO[bytes]) -> None:
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
        import pyarrow.parquet as pq  # noqa: PLC0415 - likewise
    except ImportError:
        raise MissingError("Parquet needs pyarrow; add it with: pip install 'netbench[parquet]'") from None
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(column.name, types[column.type]) for column in columns])
    rows = iter(rows)
    with pq.ParquetWriter(file, schema) as writer:
        while part := list(islice((row.values() for row in rows), _ROWS_OF_A_GROUP)):
            cells = map(pa.array, zip(*part, strict=True), schema.types)
            writer.write_table(pa.Table.from_arrays(list(cells), schema=schema))


_ENCODERS = {"csv": _csv, "json": _json, "parquet": _parquet}


# This writer does not close its file when it is deleted: the file may be standard output.
_utf8 = codecs.getwriter("utf-8")


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    try:
        yield sys.stdout.buffer
        sys.stdout.flush()
    except OSError as error:
        # The buffered rest would fail again when Python exits: send it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a reader that stops early (`| head`) is not an error
            raise TestbedError(f"standard output was not written: {error.strerror}") from None
