"""The parts that the columns of all exports share; each column has its unit in its name.

Bandwidths are Mbit/s on the wire (L1) unless named `_l2`. None means unknown. Columns may be added at the
end, never renamed or moved.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from netbench.model.frame_size import FrameSize
from netbench.model.verdict import Reason

Cell = str | int | float | None
CellType = type[str] | type[int] | type[float]
Row = dict[str, Cell]
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class ExportColumn(Generic[Source]):
    """A column: its name, the type of its known cells, and the function that reads a cell from the row's source."""

    name: str
    type: CellType
    read: Callable[[Source], Cell]


def reason_kinds(reasons: Iterable[Reason], between: str = ";") -> str:
    """Return the kinds of these reasons, each once."""
    return between.join(dict.fromkeys(reason.kind.value for reason in reasons))


def one_size(size: FrameSize | None) -> int | None:
    """Return the frame size in bytes; None for a mix of sizes."""
    return None if size is None or size.is_mix else size.only_size


def value_at(path: str) -> Callable[[Any], Any]:
    """Return a function that follows the attributes of a path such as `counts.sent.frames`; None if one is None."""
    names = path.split(".")

    def read(value: object) -> Any:  # noqa: ANN401 - the type of the last attribute
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return value

    return read


def column_at(name: str, kind: CellType, path: str) -> ExportColumn[Any]:
    """Return the column of the attribute at a path."""
    return ExportColumn(name, kind, value_at(path))


def columns_at(kind: CellType, parent: str, *names: str, **attributes: str) -> list[ExportColumn[Any]]:
    """Return the columns of attributes of `parent`, a path: those of the same name, and `column name = attribute`."""
    attributes = dict(zip(names, names, strict=True)) | attributes
    return [column_at(name, kind, f"{parent}.{attribute}".removeprefix(".")) for name, attribute in attributes.items()]


def yes_no_column(name: str, read: Callable[[Any], bool | None]) -> ExportColumn[Any]:
    """Return a column with the cells `yes` and `no`."""
    return ExportColumn(name, str, lambda row: {None: None, True: "yes", False: "no"}[read(row)])


def mix_columns(prefix: str, path: str) -> list[ExportColumn[Any]]:
    """Return the columns of a frame size that may be a mix: its name, and its genome (RFC 6985)."""
    size = value_at(path)

    def column(name: str, text: Callable[[FrameSize], str]) -> ExportColumn[Any]:
        return ExportColumn(name, str, lambda row: text(mix) if (mix := size(row)) and mix.is_mix else None)

    return [column(f"{prefix}frame_mix", str), column(f"{prefix}frame_mix_genome", lambda mix: mix.in_letters)]


MIX_COLUMNS: list[ExportColumn[Any]] = [
    *mix_columns("", "frame_size"),
    ExportColumn(
        "frame_size_mean", float, lambda row: None if row.frame_size is None else float(row.frame_size.mean_bytes)
    ),
]
