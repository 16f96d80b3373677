"""Expressions in packet code of TRex, with the values of the names in them. Nothing is evaluated."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.packet_values import DescriptionError

_MAX_DEPTH = 40  # of names that refer to names


@dataclass(frozen=True, slots=True)
class Bound:
    """An expression, and the values of its names at that place in the code."""

    node: ast.expr
    names: Mapping[str, "Meaning"]


@dataclass(frozen=True, slots=True)
class FieldEngine:
    """The commands of an `STLVM()`, in their order: name of the method, and the call."""

    commands: tuple[tuple[str, Bound], ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function of the code; its value is unknown, because calls are not followed."""

    function: str


Meaning = Bound | FieldEngine | Parameter
Names = dict[str, Meaning]


def called(node: ast.Call) -> str:
    """Return the name of the function that a call calls; empty for anything but a name."""
    return node.func.id if isinstance(node.func, ast.Name) else ""


def call_arguments(title: str, bound: Bound, names: Sequence[str]) -> dict[str, Bound]:
    """Return the arguments of a call by name; `names` are those of positional ones."""
    call = bound.node
    assert isinstance(call, ast.Call)
    if len(call.args) > len(names):
        raise DescriptionError(title, f"{len(call.args)} values without names: at most {len(names)}")
    found: dict[str, Bound] = {}
    named = [(keyword.arg, keyword.value) for keyword in call.keywords]
    for name, value in [*zip(names, call.args, strict=False), *named]:
        if name is None or name not in names or isinstance(value, ast.Starred):
            raise DescriptionError(
                title, f"{name or 'an unpacked value'} is not supported; arguments are {', '.join(names)}"
            )
        if name in found:
            raise DescriptionError(title, f"{name} is given twice")
        found[name] = Bound(value, bound.names)
    return found


def resolved(bound: Bound) -> Bound:
    """Return an expression with all names and constant items replaced by their values."""
    for _ in range(_MAX_DEPTH):
        node = bound.node
        name = name_of(node)
        if name:
            value = bound.names.get(name)
            if value is None:
                raise DescriptionError(name, "the code does not define it; write its value instead")
            if isinstance(value, Parameter):
                fault = f"is a parameter of {value.function}(), and calls are not followed"
                value_of = "vm=[…]" if name == "vm" else f"the value of {name}"
                raise DescriptionError(name, f"{fault}; paste STLPktBuilder with {value_of} written out")
            if isinstance(value, FieldEngine):
                raise DescriptionError(name, "is a field engine, where a value is needed")
            bound = value
        elif isinstance(node, ast.Subscript):
            bound = _item(node, resolved(Bound(node.value, bound.names)))
        else:
            return bound
    raise DescriptionError("trex", "its names refer to each other")


def name_of(node: ast.expr) -> str:
    """Return a name, or `self.NAME`; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
    return ""


def _item(node: ast.Subscript, container: Bound) -> Bound:
    match container.node, node.slice:
        case ast.Dict(keys=keys, values=values), ast.Constant(value=str() as wanted):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == wanted:
                    return Bound(value, container.names)
        case ((ast.List(elts=items) | ast.Tuple(elts=items)), ast.Constant(value=int() as index)):
            if 0 <= index < len(items):
                return Bound(items[index], container.names)
    raise DescriptionError(ast.unparse(node)[:40], "is no item of a list or mapping that the code defines")


def operands(bound: Bound) -> Iterator[Bound]:
    """Yield the operands of `/` in an expression from the left to the right, with names replaced."""
    waiting = [bound]
    for _ in range(1000):
        if not waiting:
            return
        this = waiting.pop()
        if isinstance(this.node, ast.BinOp) and isinstance(this.node.op, ast.Div):
            waiting += [Bound(this.node.right, this.names), Bound(this.node.left, this.names)]
        elif isinstance(this.node, ast.Name | ast.Attribute | ast.Subscript):
            waiting.append(resolved(this))
        else:
            yield this
    raise DescriptionError("packet", "has too many layers")


def is_payload(bound: Bound) -> bool:
    """Return whether an expression is text of some length, in whose place netbench sends pktgen's header."""
    match bound.node:
        case ast.Constant(value=str() | bytes()):
            return True
        case ast.BinOp(op=ast.Mult() | ast.Add(), left=left, right=right):
            return any(isinstance(side, ast.Constant) and isinstance(side.value, str | bytes) for side in (left, right))
        case ast.Call() as call:
            name = called(call)
            return name == "Raw" or name.islower()  # a function of the code that returns text
    return False


def with_literals(bound: Bound) -> ast.expr:
    """Return an expression with all names replaced by their literals."""
    node = bound.node
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return with_literals(resolved(bound))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return ast.List([with_literals(Bound(item, bound.names)) for item in items])
        case ast.Call(args=[ast.Constant(value=bytes()) as option]) if called(node) == "IPOption":
            return option
    return node
