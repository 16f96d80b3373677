"""Values that the notation has in another place, such as ranges: how messages show them, and their remedies."""

import ast

from netbench.model.layer_spec import FieldSpec
from netbench.model.packet import MAX_FLOWS
from netbench.model.packet_values import example_range, network_hosts, range_ends, written_range

_MOST_DSCP = 63  # the upper 6 bits of the field (RFC 2474, section 3)


def dscp_remedy(layer: str, node: ast.expr) -> str:
    """Return the remedy for a DSCP (RFC 2474), which is the upper 6 bits of a field."""
    field = "tos" if layer == "IP" else "tc"
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= _MOST_DSCP:
        return f"write {field}={4 * node.value} (4 × DSCP)"
    return f"write {field}, which is 4 × DSCP"


def any_remedy(*, expected: bool, field: str = "") -> str:
    """Return the remedy for `any` in capitals, for another sign in its place in a `field`, or outside of `expect`."""
    if expected and field:
        return f"write {field}=any"
    return "write any, in small letters" if expected else "any is for expect only: write a value, or leave it out"


def several_values(field: FieldSpec, node: ast.expr) -> str:
    """Return the values of scapy's notation for several packets, as `vary` has them; empty for anything else."""
    match node:
        case ast.Tuple(elts=[ast.Constant(value=int() as least), ast.Constant(value=int() as most)]):
            return f"{{random: {least}-{most}}}"
        case ast.List() | ast.Tuple() if node.elts:
            items = [str(item.value) if isinstance(item, ast.Constant) else "…" for item in node.elts]
            return f"{{list: [{', '.join(items)}]}}"
        case ast.Call(func=ast.Name(id=name)) if name.startswith("Rand"):
            return f"{{random: {example_range(field)}}}"
        case ast.Constant(value=str() as text) if values := written_range(field, text):
            return f"{{random: {values}{_count_of(field, values)}}}"
    return ""


def _count_of(field: FieldSpec, values: str) -> str:
    """Return the `count` without which a range has too many values; empty if it has few enough."""
    ends = network_hosts(field.kind, values) or range_ends(field, values)
    return f", count: {MAX_FLOWS}" if ends and ends[1] - ends[0] >= MAX_FLOWS else ""


def written(node: ast.expr) -> str:
    """Return a value as it is written; text of the notation has double quotes."""
    match node:
        case ast.Constant(value=str() as value):
            text = f'"{value}"'
        case _:
            text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}…"
