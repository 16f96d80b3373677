"""Models as JSON, for the store, for the manifest and for netbench's own processes.

pydantic calls functions of netbench to serialise, and replaces the exception of a signal that arrives meanwhile by its
own error. Therefore signals are deferred during serialisation.
"""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError

from netbench.model.foreign_text import json_of
from netbench.signals import shielded

T = TypeVar("T")


def document_of(adapter: TypeAdapter[T], value: T) -> str:
    """Return a value as JSON; bytes in its texts that are not UTF-8 are escaped."""
    with shielded():
        try:
            return adapter.dump_json(value).decode()
        except PydanticSerializationError:
            return json_of(adapter.dump_python(value, mode="json"))


def plain_value(adapter: TypeAdapter[T], value: T) -> object:
    """Return a value as JSON types."""
    with shielded():
        plain: object = adapter.dump_python(value, mode="json")
    return plain


def plain(
    model: BaseModel,
    include: set[str] | None = None,
    exclude_none: bool = False,
    exclude_unset: bool = False,
    exclude_defaults: bool = False,
) -> dict[str, Any]:
    """Return a model as JSON types, without what is excluded (as in pydantic's `model_dump`)."""
    with shielded():
        return model.model_dump(
            mode="json",
            include=include,
            exclude_none=exclude_none,
            exclude_unset=exclude_unset,
            exclude_defaults=exclude_defaults,
        )


def plain_text(model: BaseModel, exclude_none: bool = False, exclude_unset: bool = False) -> str:
    """Return the same as JSON text."""
    return json.dumps(plain(model, exclude_none=exclude_none, exclude_unset=exclude_unset), separators=(",", ":"))
