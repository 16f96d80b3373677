"""Streams that are the way back of others: over the same NICs, in the other direction (RFC 2544, section 14)."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from netbench.model.paths import TURNED_ROUND


def with_ways_back(streams: object) -> object:
    """Streams as a topology has them written, each way back with the NICs of the stream that it reverses.

    pydantic's ValidationError, with its place, for one that cannot be.
    """
    if not isinstance(streams, list | tuple):
        return streams
    written = [dict(one) if isinstance(one, Mapping) else one for one in streams]
    for place, stream in enumerate(written):
        if isinstance(stream, dict) and isinstance(stream.get("reverse"), str):
            if why := _not_reversible(stream["reverse"], written, place):
                raise _problem_at(place, "reverse", stream["reverse"], why)
            forth = next(one for one in written if isinstance(one, dict) and one.get("name") == stream["reverse"])
            for role, turned in TURNED_ROUND.items():
                own, given = forth.get(turned), stream.get(role)
                if given not in (None, own):
                    why = f"a way back has the NICs of {stream['reverse']}, the other way round; leave it out"
                    raise _problem_at(place, role, given, why)
                if own is not None:
                    stream[role] = own
    return written


def _not_reversible(name: str, streams: Sequence[object], place: int) -> str:
    """Why the stream at a place cannot be the way back of the one of this name; empty when it can."""
    named = [(number, one) for number, one in enumerate(streams) if isinstance(one, dict) and one.get("name") == name]
    if not named:
        known = (str(one["name"]) for one in streams if isinstance(one, dict) and "name" in one)
        return f"there is no stream {name!r}; streams are {', '.join(known)}"
    number, forth = named[0]
    if number >= place:
        return f"stream {name} does not stand before it; a way back stands behind the stream that it reverses"
    if forth.get("reverse"):
        return f"stream {name} is a way back itself, of {forth['reverse']}; name that of which there is no way back yet"
    for other in streams[:place]:
        if isinstance(other, dict) and other.get("reverse") == name:
            return f"stream {name} has a way back already, {other.get('name')}"
    return ""


def _problem_at(place: int, key: str, given: object, why: str) -> ValidationError:
    """What is wrong with a key of the stream at a place, for whoever says where in the file that is."""
    kind = PydanticCustomError("stream_reverse", "{why}", {"why": why})
    return ValidationError.from_exception_data("streams", [{"type": kind, "loc": (place, key), "input": given}])
