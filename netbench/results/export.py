"""The numbers of a campaign as CSV, JSON or Parquet."""

import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.model.campaign import CampaignResults
from netbench.results.atomic import write_atomically
from netbench.results.rows import GROUP_COLUMNS, STREAM_COLUMNS, Column, Row, group_rows, stream_rows

Format = Literal["csv", "json", "parquet"]
SCHEMA = 1  # of the JSON document; grows when a reader would have to change


def export(results: CampaignResults, fmt: Format, aggregate: bool, out: Path | None) -> None:
    """Write one row per trial and stream, or per group of repetitions (`aggregate`), to `out`.

    `out` is written whole or not at all; None is standard output. Unknown is an empty cell in CSV and null
    in JSON and Parquet. UsageError for Parquet without `out`, MissingError for Parquet without pyarrow,
    TestbedError when writing breaks off.
    """
    columns: Sequence[Column[Any]] = GROUP_COLUMNS if aggregate else STREAM_COLUMNS
    if fmt == "parquet" and out is None:
        raise UsageError("Parquet is no text for a terminal; name a file with -o FILE")
    rows = group_rows(results) if aggregate else stream_rows(results)
    content = _ENCODERS[fmt](columns, rows)
    if out is None:
        _print(content)
    else:
        write_atomically(out, content)


def _csv(columns: Sequence[Column[Any]], rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _json(columns: Sequence[Column[Any]], rows: list[Row]) -> bytes:
    document = {"schema": SCHEMA, "rows": rows}
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _parquet(columns: Sequence[Column[Any]], rows: list[Row]) -> bytes:
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
        import pyarrow.parquet as pq  # noqa: PLC0415 - likewise
    except ImportError:
        raise MissingError("Parquet needs pyarrow; add it with: pip install 'netbench[parquet]'") from None
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(column.name, types[column.type]) for column in columns])
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer)
    return buffer.getvalue()


_ENCODERS = {"csv": _csv, "json": _json, "parquet": _parquet}


def _print(content: bytes) -> None:
    try:
        sys.stdout.write(content.decode())
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python exits; let it go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a reader that has seen enough (`| head`) is no error
            raise TestbedError(f"standard output was not written: {error.strerror}") from None
