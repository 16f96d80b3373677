"""Commands of TRex's field engine, with their arguments: of the classes `STLVm…`, and of the methods of `STLVM`."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from netbench.model.packet import FieldValue
from netbench.model.packet_notation import literal
from netbench.model.packet_values import DescriptionError, address_number
from netbench.model.suggestions import choices
from netbench.model.trex_expressions import Bound, FieldEngine, call_arguments, called, resolved, with_literals

TRIM = "STLVmTrimPktSize"
_VARIABLE = (
    "name",
    "init_value",
    "min_value",
    "max_value",
    "size",
    "step",
    "op",
    "value_list",
    "split_to_cores",
    "next_var",
)
# Arguments of commands in the order of their positions.
_COMMANDS = {
    "STLVmFlowVar": _VARIABLE,
    "STLVmFlowVarRepeatableRandom": (
        *("name", "size", "limit", "seed", "min_value", "max_value", "split_to_cores", "next_var"),
    ),
    "STLVmTupleGen": ("name", "ip_min", "ip_max", "port_min", "port_max", "limit_flows", "flags"),
    "STLVmWrFlowVar": ("fv_name", "pkt_offset", "offset_fixup", "add_val", "is_big"),
    "STLVmWrMaskFlowVar": (
        *("fv_name", "pkt_offset", "pkt_cast_size", "mask", "shift", "add_value", "offset_fixup", "is_big"),
    ),
    "STLVmFixIpv4": ("offset",),
    "STLVmFixChecksumHw": ("l3_offset", "l4_offset", "l4_type"),
    "STLVmFixIcmpv6": ("l3_offset", "l4_offset"),
    TRIM: ("fv_name",),
}
# Methods of STLVM by name: the command, and the arguments by position.
_METHODS = {
    "var": (
        "STLVmFlowVar",
        (
            "name",
            "min_value",
            "max_value",
            "size",
            "op",
            "step",
            "split_to_cores",
            "next_var",
            "init_value",
            "value_list",
        ),
    ),
    "repeatable_random_var": (
        "STLVmFlowVarRepeatableRandom",
        ("fv_name", "size", "limit", "seed", "min_value", "max_value", "split_to_cores", "next_var"),
    ),
    "tuple_var": ("STLVmTupleGen", ("name", "ip_min", "ip_max", "port_min", "port_max", "limit_flows")),
    "write": ("STLVmWrFlowVar", ("fv_name", "pkt_offset", "offset_fixup", "add_val", "byte_order")),
    "write_mask": (
        "STLVmWrMaskFlowVar",
        ("fv_name", "pkt_offset", "pkt_cast_size", "mask", "shift", "offset_fixup", "add_val", "byte_order"),
    ),
    "fix_chksum": ("STLVmFixIpv4", ("offset",)),
    "fix_chksum_hw": ("STLVmFixChecksumHw", ("l3_offset", "l4_offset", "l4_type")),
    "fix_chksum_icmpv6": ("STLVmFixIcmpv6", ("l3_offset", "l4_offset")),
    "trim": (TRIM, ("fv_name",)),
    "set_cached": ("", ("cache_size",)),
}
# Arguments of methods that have another name in the command.
_RENAMED = {("repeatable_random_var", "fv_name"): "name", ("write_mask", "add_val"): "add_value"}
FIXES = ("STLVmFixIpv4", "STLVmFixChecksumHw", "STLVmFixIcmpv6")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one command."""

    command: str
    values: dict[str, Bound]

    def number(self, name: str, usual: int | None = None) -> int:
        """Return a number; also an IPv4 address as one."""
        value = self.value(name)
        if value is None and usual is not None:
            return usual
        return self.as_number(name, value)

    def as_number(self, name: str, value: FieldValue) -> int:
        """Return a value of an argument, or of its list, as a number."""
        if type(value) is int:
            return value
        try:
            return address_number("IPv4", str(value))
        except ValueError as error:
            text = f"{name}: {value!r} is no number and no IPv4 address"
            raise DescriptionError(self.command, text) from error

    def text(self, name: str, usual: str = "") -> str:
        """Return a text."""
        value = self.value(name)
        if value is None:
            value = usual
        if not isinstance(value, str):
            raise DescriptionError(self.command, f"{name}: {value!r} is no text")
        return value

    def value(self, name: str) -> FieldValue | None:
        """Return a literal; None for none."""
        if name not in self.values:
            return None
        node = with_literals(self.values[name])
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
            return None
        return literal(f"{self.command}.{name}", node)

    def is_false(self, name: str) -> bool:
        """Return whether a flag is given as False."""
        node = self.values[name].node if name in self.values else None
        return isinstance(node, ast.Constant) and node.value is False


def commands_of(vm: Bound | FieldEngine | None) -> Iterator[tuple[str, Arguments]]:
    """Yield the commands of a field engine in their order."""
    if vm is None:
        return
    if isinstance(vm, FieldEngine):
        for method, call in vm.commands:
            if method not in _METHODS:
                raise DescriptionError(f"STLVM.{method}", f"no such method; {choices(method, _METHODS, 'methods')}")
            command, names = _METHODS[method]
            arguments = call_arguments(f"STLVM.{method}", call, names)
            if command:
                of_command = {_RENAMED.get((method, name), name): value for name, value in arguments.items()}
                yield command, Arguments(command, of_command)
        return
    node = vm.node
    if isinstance(node, ast.Call) and called(node) == "STLScVmRaw":
        listed = call_arguments("STLScVmRaw", vm, ("list_of_commands", "cache_size")).get("list_of_commands")
        yield from commands_of(resolved(listed)) if listed else ()
    elif isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:
            call = resolved(Bound(item, vm.names))
            name = called(call.node) if isinstance(call.node, ast.Call) else ""
            if name not in _COMMANDS:
                raise DescriptionError(name or "vm", f"no such instruction; {choices(name, _COMMANDS, 'instructions')}")
            yield name, Arguments(name, call_arguments(name, call, _COMMANDS[name]))
    else:
        raise DescriptionError("vm", "is no field engine; write vm=STLScVmRaw([…]) or vm=[…]")
