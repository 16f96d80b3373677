"""JSON Schemas of topologies and profiles, for editors: the allowed content, with the options of each installed kind.

They check less than netbench itself, and never reject a file that netbench accepts.
"""

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.model.fields import listed
from netbench.model.profile import Profile
from netbench.model.scenario import DEDICATED, NAMES, SHARED_IDLE
from netbench.model.topology import Topology
from netbench.model.workload import FlowPath

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"  # supported by all editors
_LIMITS = ("gt", "ge", "lt", "le")  # of values with units, whose schemas describe text
_SWITCHES = {"on": True, "off": False}  # as YAML 1.1 reads these words
_ANYTHING: Schema = {}
_TEXT: Schema = {"type": "string"}


class _Written(GenerateJsonSchema):
    """Schemas of the written form of values that have another type after reading."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Accept the only item of a list in place of the list."""
        written = super().function_before_schema(schema)
        if schema["function"]["function"] is listed and "items" in written:
            return {"anyOf": [written["items"], written]}
        return written

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe each key by the text below the attribute of the model."""
        described = super().model_schema(schema)
        for key, value in described.get("properties", {}).items():
            if text := attribute_docs(schema["cls"]).get(key):
                value["description"] = text
        return described

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        """Accept anything for values that a plug-in reads with its own function."""
        return _ANYTHING


def attribute_docs(model: type) -> dict[str, str]:
    """Return the docstrings below the attributes of a model and of its bases, by attribute.

    Pydantic can read them too, but when it creates the class, which would delay each start.
    """
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            try:
                body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            except OSError:  # no source file
                continue
            docs |= _docs_of(body.body) if isinstance(body, ast.ClassDef) else {}
    return docs


def _docs_of(statements: list[ast.stmt]) -> dict[str, str]:
    docs: dict[str, str] = {}
    for statement, following in itertools.pairwise(statements):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text).replace("\n", " ")
    return docs


def topology_schema() -> Schema:
    """Return the schema of a topology."""
    schema = _schema_of(Topology)
    definitions = schema["$defs"]
    models = option_models(UUTS)
    definitions["UutSpec"] = _with_kinds(definitions, definitions["UutSpec"], models)
    definitions["NeighbourSpec"] = _with_kinds(definitions, definitions["NeighbourSpec"], models)
    ports = definitions["HostSpec"]["properties"]["ports"]
    ports["patternProperties"] = {
        pattern: {"anyOf": [_TEXT, port]} for pattern, port in ports["patternProperties"].items()
    }
    definitions["StreamSpec"]["required"] = ["name"]  # a way back has the NICs of the stream that it reverses
    return _complete(schema, "topology")


def profile_schema() -> Schema:
    """Return the schema of a profile."""
    schema = _schema_of(Profile)
    definitions, properties = schema["$defs"], schema["properties"]
    kinds = profile_kinds()
    properties["tool"] = _tools(definitions, kinds.pop("tool"))
    for key, models in kinds.items():
        spec = f"{key.capitalize()}Spec"
        definitions[spec] = _with_kinds(definitions, definitions[spec], models)
        properties[key] = {"anyOf": [{"enum": sorted(models)}, {"$ref": f"#/$defs/{spec}"}]}
    named = {"enum": [DEDICATED, SHARED_IDLE, *NAMES]}
    scenario = {"anyOf": [named, {"$ref": "#/$defs/Scenario"}, _steps(definitions)]}
    properties["scenarios"] = {"anyOf": [scenario, {"type": "array", "items": scenario, "minItems": 1}]}
    return _complete(schema, "profile")


def _tools(definitions: Schema, models: Mapping[str, type[BaseModel]]) -> Schema:
    """Return the schema of tools: kinds, or mappings, or a list of these.

    In a mapping each option, and the path, may have several values.

    Their schemas are added to the definitions.
    """
    base: Schema = {"type": "object", "properties": {"name": _TEXT}, "required": ["kind"]}
    spec = _with_kinds(definitions, base, models)
    for case in spec["allOf"]:
        options = case["then"]["properties"]
        options["path"] = {"enum": [path.value for path in FlowPath]}
        for key in sorted(options.keys() - {"kind", "name"}):
            options[key] = {"anyOf": [options[key], {"type": "array", "items": options[key], "minItems": 1}]}
    definitions["ToolSpec"] = spec
    tool = {"anyOf": [{"enum": sorted(models)}, {"$ref": "#/$defs/ToolSpec"}]}
    return {"anyOf": [tool, {"type": "array", "items": tool, "minItems": 1}]}


SCHEMAS: Mapping[str, Callable[[], Schema]] = {"topology": topology_schema, "profile": profile_schema}


def schema_text(what: str) -> str:
    """Return the schema of a `topology` or a `profile` as the text of a file."""
    return json.dumps(SCHEMAS[what](), indent=1, ensure_ascii=False) + "\n"


def _steps(definitions: Mapping[str, Schema]) -> Schema:
    """Return the schema of a scenario that defines several scenarios, one per rate."""
    properties = definitions["Scenario"]["properties"]
    rates = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
    other_keys = {key: schema for key, schema in properties.items() if key != "activity"}
    return {
        "type": "object",
        "required": ["network"],
        "properties": {**other_keys, "network": rates, "frame_size": _ANYTHING},
        "additionalProperties": False,
    }


def raw_schema_of(model: type[BaseModel]) -> Schema:
    """Return the schema of a model as pydantic generates it, with `$defs` and the defaults of all keys."""
    schema = model.model_json_schema(schema_generator=_Written, ref_template="#/$defs/{model}")
    schema.setdefault("$defs", {})
    return schema


def _schema_of(model: type[BaseModel]) -> Schema:
    plain: Schema = _plain(raw_schema_of(model))
    return plain


def _plain(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Convert a schema for editors: describe values as written, and drop titles that only repeat the key."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _plain(value) for key, value in schema.items() if not _is_of_what_is_read(key, value, schema)}
    if switches := _SWITCHES.keys() & {word for word in schema.get("enum", ()) if isinstance(word, str)}:
        kept.pop("type", None)
        kept["enum"] = [*schema["enum"], *(_SWITCHES[word] for word in sorted(switches))]
    for length, items in (("minLength", "minItems"), ("maxLength", "maxItems")):
        if length in kept and "anyOf" in kept:  # a list that may be written as its only item
            kept["anyOf"][-1][items] = kept.pop(length)
    return kept


def _is_of_what_is_read(key: str, value: object, schema: Schema) -> bool:
    """Return whether a part of a schema describes the value after reading, or contains no information."""
    if key == "title":
        return isinstance(value, str)
    if key in _LIMITS:
        return isinstance(value, int | float)
    is_written_otherwise = "pattern" in schema or "anyOf" in schema
    return key == "default" and (value is None or (not isinstance(value, str) and is_written_otherwise))


def _with_kinds(definitions: Schema, base: Schema, models: Mapping[str, type[BaseModel]]) -> Schema:
    """Return the schema of an object that is chosen by its kind: its own keys, and those of its kind."""
    properties = {**base["properties"], "kind": {"enum": sorted(models)}}
    cases = []
    for kind, model in models.items():
        json_text = json.dumps(_schema_of(model)).replace("#/$defs/", f"#/$defs/{kind}.")
        options: Schema = json.loads(json_text)
        definitions |= {f"{kind}.{name}": inner for name, inner in options.pop("$defs").items()}
        then = {
            "properties": {**dict.fromkeys(properties, True), **options["properties"]},
            "required": options.get("required", []) if base.get("required") else [],
            "additionalProperties": False,
        }
        if "description" in options:
            then["description"] = options["description"]
        cases.append({"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": then})
    return {**base, "properties": properties, "additionalProperties": True, "allOf": cases}


def _complete(schema: Schema, what: str) -> Schema:
    schema["required"] = [key for key in schema.get("required", []) if key != "name"]  # the default is the file name
    return {"$schema": _DIALECT, "title": f"netbench {what}", **schema}
