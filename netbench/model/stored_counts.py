"""The stored form of StreamCounts: one flat object, in which most fields have the names of the columns of exports."""

from collections.abc import Iterator
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, GetPydanticSchema, PlainSerializer

from netbench.model.counts import StreamCounts
from netbench.model.distributions import Extent
from netbench.model.received import Received
from netbench.model.traffic import Sent

# The fields of each part by their stored names. All other fields of Sent and Received only serve to judge a trial.
_OWN = {name: name for name in StreamCounts.__slots__ if name not in ("sent", "received")}
_SENT = {"sent_frames": "frames", "generator_errors": "errors", "first_sent_ns": "first_ns", "last_sent_ns": "last_ns"}
_SENT |= {name: name for name in ("duration_s", "max_burst_frames", "max_lateness_s")}
_SENT |= {"link_s": "backpressure_s", "away_s": "descheduled_s"}
_RECEIVED = {"received_frames": "frames", "first_received_ns": "first_ns", "last_received_ns": "last_ns"}
_RECEIVED |= {"duplicate_frames": "duplicates", "reordered_frames": "reordered", "late_frames": "late"}
_RECEIVED |= {"longest_loss_run_frames": "longest_loss_run", "last_missing_frame": "last_missing"}
_RECEIVED |= {"control_frames": "control", "delay_refused": "no_delay"}
_RECEIVED |= {name: name for name in ("late_from", "loss_runs", "loss_run_lengths", "window", "delay", "ipdv")}
_RECEIVED |= {name: name for name in ("clock_offset", "software_delay")}
_RECEIVED |= {"packet_counts": "packet"}
_STATISTICS = {"median": "median", "mean": "mean", "max": "largest"}
_EXTENT = {f"reordering_extent_{statistic}_frames": name for statistic, name in _STATISTICS.items()}
_PARTS = {StreamCounts: _OWN, Sent: _SENT, Received: _RECEIVED, Extent: _EXTENT}
# The first stores lack those of them that have defaults.
_LATER = {*_OWN, "last_missing_frame", "software_delay", "packet_counts"}


def _stored_fields() -> Iterator[tuple[str, Any, Any]]:
    for part, names in _PARTS.items():
        types, defaults = get_type_hints(part), {of.name: of.default for of in fields(part)}
        for name, of in names.items():
            kind = types[of] | None if part is Extent else types[of]
            yield name, kind, field(default=defaults[of] if name in _LATER else MISSING)


StoredCounts: Any = make_dataclass(StreamCounts.__name__, _stored_fields(), kw_only=True)


def stored(counts: StreamCounts) -> Any:  # noqa: ANN401 - StoredCounts is made at run time
    """Return the stored form of counts."""
    parts = zip((counts, counts.sent, counts.received, counts.received.reordering_extent), _PARTS.values(), strict=True)
    return StoredCounts(**{name: getattr(part, of, None) for part, names in parts for name, of in names.items()})


def counts_of(form: Any) -> StreamCounts:  # noqa: ANN401 - as above
    """Return counts from their stored form."""
    own, sent, received, extent = ({of: getattr(form, name) for name, of in names.items()} for names in _PARTS.values())
    reordering_extent = None if extent["largest"] is None else Extent(**extent)
    return StreamCounts(**own, sent=Sent(**sent), received=Received(**received, reordering_extent=reordering_extent))


CountsField = Annotated[
    StreamCounts,
    GetPydanticSchema(lambda _, schema_of: schema_of(StoredCounts)),
    AfterValidator(counts_of),
    PlainSerializer(stored, return_type=StoredCounts),
]
