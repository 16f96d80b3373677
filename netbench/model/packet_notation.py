"""scapy's notation of packets: `Ether()/Dot1Q(vlan=100)/IPv6(tc=46)/UDP(dport=53)`, read without evaluating anything.

Python's parser makes a syntax tree of the text. Only calls of known layers with named fields and literals are accepted,
joined by `/`.
"""

import ast
import warnings
from collections.abc import Iterator, Sequence

from netbench.model.layer_order import check_layers
from netbench.model.layer_spec import FieldSpec, LayerSpec
from netbench.model.packet import ANY, IP_LAYERS, TAGS, AnyValue, FieldRef, FieldValue, Layer, VariedValue
from netbench.model.packet_layers import ALIASES, FOREIGN_FIELDS, FOREIGN_NAMES, LAYERS, field_name, layer_name
from netbench.model.packet_remedies import any_remedy, dscp_remedy, several_values, written
from netbench.model.packet_syntax import syntax_fault
from netbench.model.packet_values import DescriptionError, checked_value
from netbench.model.suggestions import choices

MAX_TEXT = 4096  # characters of a description
_MAX_DEPTH = 40  # of brackets, or of literals
_MOST_LAYERS = 32
_EXAMPLE = "write for example Ether()/IP()/UDP(dport=53)"
_MOST_BITS = 128  # of a number: an IPv6 address
_LITERALS = "write a number, text, bytes or a list of these"
_WORDS: dict[type[ast.AST], str] = {
    ast.Call: "a call",
    ast.Attribute: "an attribute",
    ast.Name: "a name",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "a function",
    ast.NamedExpr: "an assignment",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.BinOp: "a computation",
    ast.UnaryOp: "a computation",
    ast.BoolOp: "a computation",
    ast.Compare: "a comparison",
    ast.IfExp: "a condition",
    ast.Subscript: "an item",
    ast.Starred: "an unpacked value",
    ast.Dict: "a mapping",
    ast.Set: "a set",
}


def parse_layers(text: str, *, expected: bool = False) -> tuple[Layer, ...]:
    """Return the layers that a text describes; DescriptionError with layer and field if it is wrong.

    `expected` ones may have `any` as a value.
    """
    try:
        expression = ast.Expression(parsed_expression(text, MAX_TEXT)).body
        layers: list[Layer] = []
        for node in divided(expression):
            layers.append(layer_of(node, expected=expected, outer=layers))
    except RecursionError as error:
        raise DescriptionError("packet", "is nested too deeply") from error
    check_layers(layers)
    return tuple(layers)


def parsed_expression(text: str, most: int) -> ast.expr:
    """Return the syntax tree of an expression; DescriptionError if it is empty, too long or no expression."""
    if not text.strip():
        raise DescriptionError("packet", f"is empty; {_EXAMPLE}")
    module = parsed_module(text, most, in_brackets=True)
    if len(module.body) != 1 or not isinstance(module.body[0], ast.Expr):
        raise DescriptionError("packet", f"is not one packet; {_EXAMPLE}")
    return module.body[0].value


def parsed_module(text: str, most: int, *, in_brackets: bool = False) -> ast.Module:
    """Return the syntax tree of a text; DescriptionError if it has more than `most` characters or is no Python.

    A text `in_brackets` may have line breaks anywhere.
    """
    if len(text) > most:
        raise DescriptionError("packet", f"is {len(text):,} characters long: at most {most:,} are read")
    if "\0" in text:
        raise DescriptionError("packet", "has a NUL character")
    if _depth(text) > _MAX_DEPTH:
        raise DescriptionError("packet", f"is nested too deeply: more than {_MAX_DEPTH} brackets")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in text
            module = ast.parse(f"(\n{text}\n)" if in_brackets else text)
    except SyntaxError as error:
        raise syntax_fault(text, error, _EXAMPLE, lines_before=int(in_brackets)) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DescriptionError("packet", f"is not in scapy's notation; {_EXAMPLE}") from error
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > _MOST_BITS:
            raise DescriptionError(
                "packet", f"{hex(node.value)[:20]}… has more than {_MOST_BITS} bits, as no field has"
            )
    return module


def _depth(text: str) -> int:
    """Return the depth of brackets, or the length of the longest run of signs, whichever is larger."""
    depth = deepest = run = longest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        run = run + 1 if character in "-+~" else 0
        deepest, longest = max(deepest, depth), max(longest, run)
    return max(deepest, longest)


def divided(node: ast.expr) -> list[ast.expr]:
    """Return the operands of `/` from the left to the right; DescriptionError for too many."""
    waiting, operands = [node], list[ast.expr]()
    while waiting:
        this = waiting.pop()
        if isinstance(this, ast.BinOp) and isinstance(this.op, ast.Div):
            waiting += [this.right, this.left]
        else:
            operands.append(this)
        if len(operands) + len(waiting) > _MOST_LAYERS:
            raise DescriptionError("packet", f"has more than {_MOST_LAYERS} layers")
    return operands


def layer_of(node: ast.expr, *, expected: bool = False, outer: Sequence[Layer] = ()) -> Layer:
    """Return the layer that a call describes, behind the `outer` ones; DescriptionError for anything else."""
    if isinstance(node, ast.Name) and layer_name(node.id) in LAYERS:
        raise DescriptionError(node.id, f"has no parentheses; write {node.id}()")
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        raise DescriptionError("payload", "cannot be described: pktgen's header follows the last layer; leave it out")
    if not isinstance(node, ast.Call):
        raise DescriptionError("packet", f"{_word(node)} is no layer; {_EXAMPLE}")
    if not isinstance(node.func, ast.Name):
        raise DescriptionError("packet", f"{_word(node.func)} is no layer; {_EXAMPLE}")
    spec = layer_spec(node.func.id)
    if node.args:
        raise DescriptionError(spec.name, f"a value without the name of its field; {_named_value(spec, node.args[0])}")
    occurrence = 1 + sum(layer.name == spec.name for layer in outer)
    fields: dict[str, FieldValue | AnyValue] = {}
    for keyword in node.keywords:
        field = _field_of(spec, keyword)
        if field.name in fields:
            raise DescriptionError(f"{spec.name}.{field.name}", "is given twice")
        ref = FieldRef(spec.name, field.name, occurrence)
        try:
            fields[field.name] = _field_value(ref, field, keyword.value, expected=expected)
        except DescriptionError as error:
            if spec.name not in TAGS or keyword.arg != "id":
                raise
            vlan = written(keyword.value)
            text = f"is scapy's old name of dei, which is 0 or 1; for VLAN {vlan} write vlan={vlan}"
            raise DescriptionError(f"{spec.name}.id", text) from error
    return Layer(spec.name, tuple(fields.items()))


def _field_of(spec: LayerSpec, keyword: ast.keyword) -> FieldSpec:
    """Return the field that an argument of a layer names."""
    if keyword.arg is None:
        raise DescriptionError(spec.name, f"an unpacked mapping is no field; fields are {_names(spec)}")
    if keyword.arg == "dscp" and spec.name in IP_LAYERS:
        raise DescriptionError(f"{spec.name}.dscp", f"no such field; {dscp_remedy(spec.name, keyword.value)}")
    return field_spec(spec, keyword.arg)


def _field_value(ref: FieldRef, field: FieldSpec, node: ast.expr, *, expected: bool) -> FieldValue | AnyValue:
    """Return the value of a field; `expected` ones may be `any`."""
    title = f"{ref.layer}.{ref.field}"
    if expected and _is_any(node):
        return ANY
    if isinstance(node, ast.Name) and node.id.lower() == "any":
        raise DescriptionError(title, f"{_word(node)} is no value; {any_remedy(expected=expected)}")
    if isinstance(node, ast.Constant) and node.value == "*":
        raise DescriptionError(title, f"* is no value; {any_remedy(expected=expected, field=field.name)}")
    if field.varies and (values := several_values(field, node)):
        raise DescriptionError(title, f"{written(node)} is more than one value; write vary: {{{ref}: {values}}}")
    if isinstance(node, ast.List | ast.Tuple) and not field.takes_list:
        raise DescriptionError(title, f"{written(node)} is not allowed: one value")
    return checked_value(title, field, literal(title, node))


def _named_value(spec: LayerSpec, node: ast.expr) -> str:
    """Return the remedy for a value without the name of its field: the first field that can have it, as an example."""
    for field in spec.fields.values():
        if field.use == "free":
            try:
                checked_value(field.name, field, literal(field.name, node))
            except DescriptionError:
                continue
            return f"write for example {spec.name}({field.name}={written(node)})"
    return f"fields are {_names(spec)}"


def layer_spec(name: str) -> LayerSpec:
    """Return the description of a layer by one of its names; DescriptionError, with a suggestion, for others."""
    if layer_name(name) not in LAYERS:
        if name.lower() in ("raw", "payload", "padding"):
            raise DescriptionError(name, "no such layer; leave it out: the payload is pktgen's header")
        if meant := FOREIGN_NAMES.get(name.lower()):
            raise DescriptionError(name, f"no such layer; write {meant}()")
        raise DescriptionError(name, f"no such layer; {choices(name, [*LAYERS, *ALIASES], 'layers')}")
    return LAYERS[layer_name(name)]


def field_spec(spec: LayerSpec, name: str) -> FieldSpec:
    """Return the description of a layer's field by name; DescriptionError, with a suggestion, for others."""
    field = spec.fields.get(field_name(spec.name, name))
    if field is None and (meant := FOREIGN_FIELDS.get(spec.name, {}).get(name.lower())):
        raise DescriptionError(f"{spec.name}.{name}", f"no such field; write {meant}")
    if field is None:
        raise DescriptionError(f"{spec.name}.{name}", f"no such field; {choices(name, spec.fields, 'fields')}")
    return field


def literal(title: str, node: ast.expr, depth: int = 0) -> FieldValue:
    """Return the value of a literal; DescriptionError for anything that would have to be evaluated."""
    if depth > _MAX_DEPTH:
        raise DescriptionError(title, "is nested too deeply")
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | str() | bytes() as value):
            return value
        case ast.Constant(value=None) if depth > 1:  # the value of a TCP option without one
            return ()
        case ast.Constant(value=None) if title == "UDP.chksum":  # as in scapy: computed
            return None
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)) if not isinstance(value, bool):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return tuple(literal(title, item, depth + 1) for item in items)
    raise DescriptionError(title, f"{_word(node)} is no value; {_LITERALS}")


def _is_any(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "any") or (isinstance(node, ast.Constant) and node.value == "any")


def _names(spec: LayerSpec) -> str:
    return ", ".join(spec.fields)


def _word(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return f"the name {name[:40]}"
        case ast.Constant(value=value):
            text = repr(value)
            return text if len(text) <= 40 else f"{text[:37]}…"
    return _WORDS.get(type(node), "this")


def layers_text(layers: Sequence[Layer]) -> str:
    """Return layers in scapy's notation, without fields that vary."""
    return "/".join(f"{layer.name}({', '.join(_fields_text(layer))})" for layer in layers)


def _fields_text(layer: Layer) -> Iterator[str]:
    for name, value in layer.fields:
        if not isinstance(value, VariedValue):
            yield f"{name}={_literal_text(value)}"


def _literal_text(value: FieldValue | AnyValue) -> str:
    if isinstance(value, AnyValue):
        return "any"
    if not isinstance(value, tuple):
        return repr(value)
    items = (repr(item) if isinstance(item, tuple) else _literal_text(item) for item in value)
    return f"[{', '.join(items)}]"
