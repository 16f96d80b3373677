"""Streams that are the way back of others: over the same NICs, in the other direction (RFC 2544, section 14)."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from netbench.model.paths import TURNED_ROUND


def with_ways_back(streams: object) -> object:
    """Return the streams of a topology with the NICs of each way back filled in from the stream that it reverses.

    pydantic's ValidationError, with its position, for an impossible way back.
    """
    if not isinstance(streams, list | tuple):
        return streams
    written = [dict(item) if isinstance(item, Mapping) else item for item in streams]
    for place, stream in enumerate(written):
        if isinstance(stream, dict) and isinstance(stream.get("reverse"), str):
            if why := _not_reversible(stream["reverse"], written, place):
                raise _problem_at(place, "reverse", stream["reverse"], why)
            forth = next(item for item in written if isinstance(item, dict) and item.get("name") == stream["reverse"])
            for role, turned in TURNED_ROUND.items():
                own, given = forth.get(turned), stream.get(role)
                if given not in (None, own):
                    why = f"a way back has the NICs of {stream['reverse']}, the other way round; leave it out"
                    raise _problem_at(place, role, given, why)
                if own is not None:
                    stream[role] = own
    return written


def _not_reversible(name: str, streams: Sequence[object], place: int) -> str:
    """Return why the stream at a place cannot be the way back of the named one; empty if it can."""
    named = [
        (number, item) for number, item in enumerate(streams) if isinstance(item, dict) and item.get("name") == name
    ]
    if not named:
        known = (str(item["name"]) for item in streams if isinstance(item, dict) and "name" in item)
        return f"there is no stream {name!r}; streams are {', '.join(known)}"
    number, forth = named[0]
    if number >= place:
        return f"stream {name} does not stand before it; a way back stands behind the stream that it reverses"
    if forth.get("reverse"):
        return f"stream {name} is a way back itself, of {forth['reverse']}; name that of which there is no way back yet"
    for earlier in streams[:place]:
        if isinstance(earlier, dict) and earlier.get("reverse") == name:
            return f"stream {name} has a way back already, {earlier.get('name')}"
    return ""


def _problem_at(place: int, key: str, given: object, why: str) -> ValidationError:
    """Return the problem of a key of the stream at a place; the caller adds the position in the file."""
    kind = PydanticCustomError("stream_reverse", "{why}", {"why": why})
    return ValidationError.from_exception_data("streams", [{"type": kind, "loc": (place, key), "input": given}])
