"""Packet code of TRex as data: the packet and the commands of `STLPktBuilder`, found in pasted code by its syntax tree.

Nothing is evaluated. Names are replaced by the literals, layers and commands that the code assigns to them. Of a whole
profile of TRex, only functions with STLPktBuilder are read, for direction 0. The size of frames is netbench's.
"""

import ast
import re
import textwrap
from collections.abc import Sequence

from netbench.model.packet_layers import LAYERS, layer_name
from netbench.model.packet_notation import parsed_module
from netbench.model.packet_values import DescriptionError
from netbench.model.trex_expressions import (
    Bound,
    FieldEngine,
    Names,
    Parameter,
    call_arguments,
    called,
    name_of,
    resolved,
)

BUILDER = "STLPktBuilder"
MAX_CODE = 1 << 16  # characters of pasted code
_MODULES = re.compile(r"(trex_stl_lib|trex|scapy)(\.\w+)*|argparse")
_SKIPPED_NAMES = ("parser", "args")  # tunables
_DIRECTIONS = ("direction", "dir")
_CALLED = re.compile(r"STL\w+|CTRex\w+|max|min|len|int|ord|range|IPOption|Raw|bind_layers")
_BUILDER_ARGUMENTS = ("pkt", "pkt_buffer", "vm", "path_relative_to_profile", "build_raw", "remove_fcs")


def packet_code(text: str) -> list[tuple[Bound, Bound | FieldEngine | None]]:
    """Return the `pkt` and the `vm` of each STLPktBuilder in a text; DescriptionError if there is none."""
    module = parsed_module(textwrap.dedent(text), MAX_CODE)
    reader = _Reader()
    try:
        reader.statements(module.body, {}, is_module=True)
    except RecursionError as error:
        raise DescriptionError("trex", "is nested too deeply") from error
    if not reader.builders:
        raise DescriptionError(BUILDER, "is missing; paste code such as STLPktBuilder(pkt=Ether()/IP()/UDP())")
    found = []
    for bound in reader.builders:
        arguments = call_arguments(BUILDER, bound, _BUILDER_ARGUMENTS)
        if "pkt" not in arguments:
            raise DescriptionError(BUILDER, "pkt is missing; paste code with pkt=Ether()/…")
        found.append((arguments["pkt"], _engine(arguments.get("vm"))))
    return found


def _engine(vm: Bound | None) -> Bound | FieldEngine | None:
    """Return the field engine that `vm=` refers to."""
    if vm is None or (isinstance(vm.node, ast.Constant) and vm.node.value is None):
        return None
    if isinstance(vm.node, ast.Name) and isinstance(engine := vm.names.get(vm.node.id), FieldEngine):
        return engine
    found = resolved(vm)
    return FieldEngine() if isinstance(found.node, ast.Call) and called(found.node) == "STLVM" else found


class _Reader:
    """Reads statements in their order, and collects the calls of STLPktBuilder."""

    def __init__(self) -> None:
        self.builders: list[Bound] = []
        self._functions: set[str] = set()

    def statements(self, body: Sequence[ast.stmt], names: Names, *, is_module: bool = False) -> None:
        """Read statements; `names` has the values of names; it changes."""
        self._functions |= {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        for statement in body:
            self._statement(statement, names, is_module=is_module)

    def _statement(self, statement: ast.stmt, names: Names, *, is_module: bool) -> None:
        match statement:
            case ast.ImportFrom(module=module) if is_module and _MODULES.fullmatch(module or ""):
                pass
            case ast.Import(names=modules) if is_module and all(_MODULES.fullmatch(module.name) for module in modules):
                pass
            case ast.Import(names=modules):
                raise DescriptionError("trex", f"imports {modules[0].name[:40]}; paste only the code of the packet")
            case ast.ImportFrom(module=module):
                raise DescriptionError("trex", f"imports from {str(module)[:40]}; paste only the code of the packet")
            case ast.ClassDef(body=body):
                self._class(body, names)
            case ast.FunctionDef(body=body) if _has_builder(statement):
                self.statements(body, {**_parameters(statement), **names})
            case ast.FunctionDef() | ast.Pass():
                pass
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))))
            ) if name in _SKIPPED_NAMES:
                pass
            case ast.Assign(targets=[target], value=value):
                self._check(value, names)
                self._assign(target, value, names)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Div(), value=value) if isinstance(
                before := names.get(name), Bound
            ):
                self._check(value, names)
                joined = ast.BinOp(ast.Name(f"{name} before"), ast.Div(), value)
                names[name] = Bound(joined, {**names, f"{name} before": before})
            case ast.If(test=test, body=body, orelse=orelse) if (taken := _is_direction_0(test)) is not None:
                self.statements(body if taken else orelse, names)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) as call) if (
                name in names and isinstance(engine := names[name], FieldEngine)
            ):
                self._check(call, names)
                names[name] = FieldEngine((*engine.commands, (method, Bound(call, dict(names)))))
            case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
                self._check(value, names)
            case _:
                kind = type(statement).__name__.lower()
                raise DescriptionError(
                    "trex", f"line {statement.lineno}: {kind} is not supported; paste only the packet"
                )

    def _class(self, body: Sequence[ast.stmt], names: Names) -> None:
        """Read the methods of a class with STLPktBuilder; others only for what they assign to `self`."""
        if not any(map(_has_builder, body)):
            return
        inside: Names = dict(names)
        for statement in body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                for inner in statement.body:
                    match inner:
                        case ast.Assign(targets=[ast.Attribute() as target], value=value):
                            self._assign(target, value, inside)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._assign(statement.targets[0], statement.value, inside)
                inside[f"self.{statement.targets[0].id}"] = inside[statement.targets[0].id]
        self.statements([statement for statement in body if isinstance(statement, ast.FunctionDef)], inside)

    def _assign(self, target: ast.expr, value: ast.expr, names: Names) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                before = dict(names)
                for item, bound in zip(targets, values, strict=True):
                    if name := name_of(item):
                        names[name] = Bound(bound, before)
            case _, ast.Call() if called(value) == "STLVM" and name_of(target):
                names[name_of(target)] = FieldEngine()
            case _ if name := name_of(target):
                names[name] = Bound(value, dict(names))

    def _check(self, expression: ast.expr, names: Names) -> None:
        """Note the calls of STLPktBuilder in an expression; DescriptionError for calls that no packet code has."""
        for node in ast.walk(expression):
            if isinstance(node, ast.Call):
                name = called(node)
                if name == BUILDER:
                    self.builders.append(Bound(node, dict(names)))
                elif name and not self._is_known(name):
                    self._refuse(name)
                elif not name and not self._is_method(node.func, names):
                    self._refuse(ast.unparse(node.func)[:40])
            elif isinstance(node, ast.Lambda | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
                self._refuse(ast.unparse(node)[:40])

    def _is_known(self, name: str) -> bool:
        return (
            layer_name(name) in LAYERS or bool(_CALLED.fullmatch(name)) or name in self._functions or name[:1].isupper()
        )

    def _is_method(self, function: ast.expr, names: Names) -> bool:
        """Return whether a call is one of a method of what the code defines."""
        while isinstance(function, ast.Attribute):
            function = function.value
        return (
            isinstance(function, ast.Constant)
            or (isinstance(function, ast.Name) and (function.id == "self" or _is_defined(function.id, names)))
            or (isinstance(function, ast.Call) and called(function).startswith("STL"))
        )

    def _refuse(self, text: str) -> None:
        raise DescriptionError(text, "is not supported in TRex packet code; nothing is evaluated, write its value")


def _parameters(function: ast.FunctionDef) -> Names:
    """Return the parameters of a function by name."""
    arguments = function.args
    return {item.arg: Parameter(function.name) for item in (*arguments.args, *arguments.kwonlyargs)}


def _is_defined(name: str, names: Names) -> bool:
    return name in names and not isinstance(names[name], Parameter)


def _has_builder(statement: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and called(node) == BUILDER for node in ast.walk(statement))


def _is_direction_0(test: ast.expr) -> bool | None:
    """Return whether a condition holds for direction 0; None if it is about something else."""
    match test:
        case ast.Name(id=name) if name in _DIRECTIONS:
            return False
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=int() as value)]) if (
            name in _DIRECTIONS
        ):
            return value == 0
    return None
