import csv
import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.results.export_files import export
from netbench.results.export_rows import stream_rows
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS
from tests.unit.results_factory import campaign, comparison, stream_counts, trial

RESULTS = campaign([trial(stream_counts(sent=990, received=None, intended_fps=None, intended_frames=None), load="max")])
EXACT = trial(stream_counts(sent=997, received=991, duration_s=1.0000123), index=1)
TWO_TRIALS = campaign([*RESULTS.trials, EXACT])


def test_csv_has_empty_cells_for_unknown_and_full_precision(capsys: pytest.CaptureFixture[str]) -> None:
    export(TWO_TRIALS, "csv", False, None)
    text = capsys.readouterr().out
    row, other = csv.DictReader(io.StringIO(text))
    assert text.splitlines()[0].split(",") == [column.name for column in STREAM_COLUMNS]
    assert (row["sent_frames"], row["verdict"]) == ("990", "valid")
    assert row["received_frames"] == row["loss_ratio"] == row["intended_fps"] == ""
    assert float(other["loss_ratio"]) == 6 / 997
    assert float(other["offered_fps"]) == 997 / 1.0000123


def test_json_has_numbers_as_numbers_and_null_for_unknown(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    export(TWO_TRIALS, "json", False, out)
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    assert [list(row.items()) for row in document["rows"]] == [
        list(row.items()) for row in stream_rows(TWO_TRIALS.trials, details=True)
    ]


def test_aggregate_writes_groups(tmp_path: Path) -> None:
    out = tmp_path / "groups.csv"
    export(comparison(uuts=("raw", "kvm"), sizes=(64,), sources=(1,)), "csv", True, out)
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert list(rows[0]) == [column.name for column in GROUP_COLUMNS]
    assert len(rows) == 2 * 8


def test_no_trials_leave_the_header(capsys: pytest.CaptureFixture[str]) -> None:
    export(campaign(planned=9), "csv", False, None)
    assert capsys.readouterr().out == ",".join(column.name for column in STREAM_COLUMNS) + "\n"


def test_parquet_needs_a_file() -> None:
    with pytest.raises(UsageError, match="-o FILE"):
        export(RESULTS, "parquet", False, None)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "rows.parquet"
    with pytest.raises(MissingError, match=r"pip install 'netbench\[parquet\]'"):
        export(RESULTS, "parquet", False, out)
    assert not out.exists()


def test_parquet_has_the_types_of_the_columns_even_where_all_is_unknown(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional: pip install 'netbench[parquet]'")
    out = tmp_path / "rows.parquet"
    export(RESULTS, "parquet", False, out)
    table = pq.read_table(out)
    assert table.column_names == [column.name for column in STREAM_COLUMNS]
    assert str(table.schema.field("received_frames").type) == "int64"
    assert str(table.schema.field("loss_ratio").type) == "double"
    assert table.column("sent_frames").to_pylist() == [990]
    assert table.column("received_frames").to_pylist() == [None]


def test_a_file_is_replaced_a_symbolic_link_stays_one_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    link, target = tmp_path / "latest.csv", tmp_path / "rows.csv"
    target.write_text("old")
    link.symlink_to(target)
    export(RESULTS, "csv", False, link)
    assert link.is_symlink()
    assert target.read_text().startswith("uut,")
    assert {path.name for path in tmp_path.iterdir()} == {"latest.csv", "rows.csv"}


def test_a_full_disk_is_one_clear_error_and_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TestbedError, match=r"rows\.csv was not written: No space left on device"):
        export(RESULTS, "csv", False, out)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_device_is_written_to_not_replaced() -> None:
    with pytest.raises(TestbedError, match="No space left on device"):
        export(RESULTS, "csv", False, Path("/dev/full"))
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize(("name", "message"), [("no/such/rows.csv", "no directory"), (".", "is a directory")])
def test_places_that_cannot_be_written_to(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export(RESULTS, "csv", False, tmp_path / name)
