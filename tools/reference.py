"""Write docs/reference.md: every key of topologies and profiles, with its type, default and meaning.

The tables are generated from the pydantic models, so they cannot differ from what netbench accepts.
Usage: python tools/reference.py [--check]
"""

import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.schema import Schema, raw_schema_of
from netbench.model.packet_layers import ALIASES, LAYERS
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.model.units import LoadKind

_ROOT = Path(__file__).parents[1]
_TEMPLATE, _PAGE = _ROOT / "tools/reference.in.md", _ROOT / "docs/reference.md"
_MARK = "<!-- tables: {} -->"
# The section of the page that describes a model.
_SECTIONS = {
    "HostSpec": ("host", "hosts"),
    "PortSpec": ("interface or port", "hosts"),
    "Password": ("password", "hosts"),
    "LinkSpec": ("link", "links"),
    "StreamSpec": ("stream", "streams"),
    "UutSpec": ("UUT", "uuts"),
    "NeighbourSpec": ("neighbour", "neighbours"),
    "Settle": ("pauses", "settle"),
    "Scenario": ("scenario", "scenarios"),
    "GeneratorSpec": ("generator", "generators"),
    "SinkSpec": ("sink", "sinks"),
    "ScheduleSpec": ("schedule", "search"),
    "MaximaSpec": ("search", "search"),
}
# Tables that are not on the page, with the table that has the same keys: the options of `maxima` are those of a search.
_SAME_KEYS = {"maxima": "schedule"}
# Values with units, by the first example in their schemas; the page explains them in one place.
_UNITS = {"500ms": "time", "256M": "memory size", "0.5%": "percentage", "50%": "percentage", "1Gbit/s": "bit rate"}


def reference_text(template: str) -> str:
    """Return the page: the template with the table of each model in place of its mark; ValueError for a missing key."""
    tables, text = _tables(), template
    for name, table in tables.items():
        mark = _MARK.format(name)
        shown = _keys(tables[_SAME_KEYS[name]]) if name in _SAME_KEYS else {"kind"}
        if mark not in template and (missing := _keys(table) - shown):
            raise ValueError(f"{mark} is missing in the template, so these keys are too: {', '.join(sorted(missing))}")
        text = text.replace(mark, table)
    return text


def _keys(table: str) -> set[str]:
    """Return the keys in the first column of a table."""
    return {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}


def _tables() -> dict[str, str]:
    topology, profile = raw_schema_of(Topology), raw_schema_of(Profile)
    models = {"Topology": topology, **topology["$defs"], "Profile": profile, **profile["$defs"]}
    tables = {name: _table(schema, models) for name, schema in models.items() if "properties" in schema}
    tables["layers"] = _layers()
    tables["uuts"] = "\n\n".join(_sections(option_models(UUTS)))
    for key, kinds in profile_kinds().items():
        tables[key] = "\n\n".join(_sections(kinds))
    return tables


def _layers() -> str:
    """Return the layers of described packets, with their fields."""
    rows = ["| layer | fields that can vary | other fields | can be followed by |", "|---|---|---|---|"]
    for name, spec in LAYERS.items():
        settable = [field for field in spec.fields.values() if field.use != "computed"]
        varying = ", ".join(_code(field.name) for field in settable if field.varies)
        others = ", ".join(_code(field.name) for field in settable if not field.varies)
        following = ", ".join(map(_code, spec.types)) + (f"{', ' if spec.types else ''}payload" if spec.carries else "")
        names = [name, *(alias for alias, meant in ALIASES.items() if meant == name)]
        rows.append(f"| {', '.join(map(_code, names))} | {varying} | {others} | {following} |")
    return "\n".join(rows)


def _sections(kinds: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    """Yield a section for each kind that has options, and a table for each model that its options contain."""
    for kind, model in kinds.items():
        schema = raw_schema_of(model)
        if schema.get("properties"):
            inner = schema["$defs"]
            yield f"#### `{kind}`\n\n{_table(schema, inner)}"
            for name, definition in inner.items():
                if definition.get("properties"):
                    keys = [key for key, value in schema["properties"].items() if name in str(value)]
                    heading = ", ".join(f"`{key}`" for key in keys) or name
                    yield f"{name} (of {heading}):\n\n{_table(definition, inner)}"


def _table(schema: Schema, models: Mapping[str, Schema]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    required = schema.get("required", [])
    for key, value in schema["properties"].items():
        default = "required" if key in required and key != "name" else _default(value, models)
        meaning = value.get("description", "").replace("|", "\\|")
        rows.append(f"| `{key}` | {_type(value, models)} | {default} | {meaning} |")
    return "\n".join(rows)


def _type(schema: Schema, models: Mapping[str, Schema]) -> str:
    """Return the accepted values of a JSON Schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in _SECTIONS:
            return "[{}](#{})".format(*_SECTIONS[name])
        return name if "properties" in models.get(name, {}) else _type(models.get(name, {}), models)
    if "allOf" in schema:
        return _type(schema["allOf"][0], models)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = [_type(option, models) for option in schema[several] if option.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "examples" in schema:
        return f"[{_UNITS.get(schema['examples'][0], 'load')}](#units)"
    if "const" in schema:
        return _code(schema["const"])
    if "enum" in schema:
        return ", ".join(_code(value) for value in schema["enum"] if not isinstance(value, bool))
    match schema.get("type"):
        case "array":
            items = schema.get("items", {})
            return "list" if items is True or not items else f"list of {_type(items, models)}"
        case "object":
            values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
            of = next((_type(value, models) for value in values if isinstance(value, dict) and value), "")
            return f"map of {of}" if of else "map"
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number" as kind:
            return f"{kind}{_range(schema)}"
    return "text"


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is None and "exclusiveMaximum" in schema:
        most = schema["exclusiveMaximum"] - 1
    if most is None:
        return "" if least is None else f", {least} or more"
    return f", {least or 0} to {most}"


def _default(schema: Schema, models: Mapping[str, Schema]) -> str:
    """Return a default as a user would write it; empty for none, and where the description states it."""
    value = schema.get("default")
    if isinstance(value, dict) and (value.keys() == {"kind"} or value.get("kind") == LoadKind.MAX.value):
        value = value["kind"]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0].get("name")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _code(_with_unit(value, _type(schema, models)))
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        kind = _type(schema, models)
        return ", ".join(_code(_with_unit(item, kind)) for item in value)
    return _code(value) if isinstance(value, str | bool) and value != "" else ""


def _with_unit(value: float, kind: str) -> str:
    if "[time]" in kind:
        return f"{value:g}s" if value >= 1 or not value else f"{value * 1000:g}ms"
    if "[memory size]" in kind:
        return f"{value}M" if value % 1024 else f"{value // 1024}G"
    if "[percentage]" in kind:
        return f"{Decimal(str(value)) * 100:f}".rstrip("0").rstrip(".") + "%"
    return str(value)


def _code(value: Any) -> str:  # noqa: ANN401 - any JSON
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    text = reference_text(_TEMPLATE.read_text())
    if "--check" in sys.argv[1:]:
        sys.exit(0 if _PAGE.exists() and _PAGE.read_text() == text else f"{_PAGE} is out of date: run `make schemas`")
    _PAGE.write_text(text)
