"""JSON documents in the store."""

from typing import TypeVar

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from netbench.model.foreign_text import json_of

T = TypeVar("T")


def document_of(adapter: TypeAdapter[T], value: T) -> str:
    """A value as JSON; bytes in its texts that are not UTF-8 are spelled out."""
    try:
        return adapter.dump_json(value).decode()
    except PydanticSerializationError:
        return json_of(adapter.dump_python(value, mode="json"))
