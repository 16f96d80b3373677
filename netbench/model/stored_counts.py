"""The stored form of StreamCounts: one flat object, in which most fields have the names of the columns of exports."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, GetPydanticSchema, PlainSerializer

from netbench.model.counts import StreamCounts
from netbench.model.distributions import Extent
from netbench.model.received import Received
from netbench.model.traffic import Sent

Report = TypeVar("Report", Sent, Received)

# Fields by their stored names. All other fields of Sent and Received only serve to judge a trial.
_SENT = {"sent_frames": "frames", "generator_errors": "errors", "first_sent_ns": "first_ns", "last_sent_ns": "last_ns"}
_SENT |= {name: name for name in ("duration_s", "max_burst_frames", "max_lateness_s", "link_s", "away_s")}
_RECEIVED = {"received_frames": "frames", "first_received_ns": "first_ns", "last_received_ns": "last_ns"}
_RECEIVED |= {"duplicate_frames": "duplicates", "reordered_frames": "reordered", "late_frames": "late"}
_RECEIVED |= {"longest_loss_run_frames": "longest_loss_run", "last_missing_frame": "last_missing"}
_RECEIVED |= {name: name for name in ("late_from", "loss_runs", "loss_run_lengths", "window", "delay", "ipdv")}
_RECEIVED |= {name: name for name in ("clock_offset", "software_delay")}
_RECEIVED |= {"control_frames": "control", "delay_refused": "no_delay"}
_ENDS = {"median": "median", "mean": "mean", "max": "largest"}
_EXTENT = {f"reordering_extent_{end}_frames": name for end, name in _ENDS.items()}
_OWN = tuple(name for name in StreamCounts.__slots__ if name not in ("sent", "received"))
_LATER = ("last_missing_frame", "software_delay")  # the first stores do not have them: None


def stored_part(report: Report) -> Report:
    """Return a report of a source or sink with only those fields that are stored, the extent of reordering excepted."""
    names = _SENT if isinstance(report, Sent) else _RECEIVED
    return type(report)(**{name: getattr(report, name) for name in names.values()})


def _stored_fields() -> Iterator[tuple[str, Any, Any]]:
    types, own = get_type_hints(StreamCounts), {of.name: of.default for of in fields(StreamCounts)}
    yield from ((name, types[name], field(default=own[name])) for name in _OWN)
    for kind, names in (Sent, _SENT), (Received, _RECEIVED), (Extent, _EXTENT):
        types = get_type_hints(kind)
        for stored, name in names.items():
            of = types[name] | None if kind is Extent else types[name]
            yield stored, of, field(default=None if stored in _LATER else MISSING)


StoredCounts: Any = make_dataclass(StreamCounts.__name__, _stored_fields(), kw_only=True)


def stored(counts: StreamCounts) -> Any:  # noqa: ANN401 - StoredCounts, a class made at run time
    """Return the stored form of counts."""
    parts = (counts.sent, _SENT), (counts.received, _RECEIVED), (counts.received.reordering_extent, _EXTENT)
    values = {name: getattr(counts, name) for name in _OWN}
    return StoredCounts(
        **values, **{of: getattr(part, name, None) for part, names in parts for of, name in names.items()}
    )


def counts_of(stored: Any) -> StreamCounts:  # noqa: ANN401 - as above
    """Return counts from their stored form."""
    values = vars(stored)

    def part(names: Mapping[str, str]) -> dict[str, Any]:
        return {name: values[of] for of, name in names.items()}

    extent = part(_EXTENT)
    received = Received(**part(_RECEIVED), reordering_extent=None if extent["largest"] is None else Extent(**extent))
    return StreamCounts(**{name: values[name] for name in _OWN}, sent=Sent(**part(_SENT)), received=received)


CountsField = Annotated[
    StreamCounts,
    GetPydanticSchema(lambda _, schema_of: schema_of(StoredCounts)),
    AfterValidator(counts_of),
    PlainSerializer(stored, return_type=StoredCounts),
]
