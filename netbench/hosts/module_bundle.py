"""A module as one program, with all modules of its package that it imports, for hosts that have Python alone."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Runs in `__main__`. Packages are empty modules there: their own code is not needed.
_PROGRAM = """\
import sys, types
for _name, _source in {modules!r}:
    for _package in [_name[:at] for at, letter in enumerate(_name) if letter == "."]:
        sys.modules.setdefault(_package, types.ModuleType(_package)).__path__ = []
    sys.modules[_name] = types.ModuleType(_name)
    exec(compile(_source, _name, "exec"), sys.modules[_name].__dict__)
exec(compile({main!r}, {name!r}, "exec"))
"""


@cache
def bundle(module: str) -> str:
    """Return the source of a program that runs a module as `__main__`.

    Modules of the same package and of netbench are included if the module, or one of them, imports them at its top
    level by `from PACKAGE.MODULE import …`. All others must be in the standard library of the host's Python.
    """
    main, *imported = _with_imported(module, set())
    if not imported:
        return main[1]
    return _PROGRAM.format(modules=imported[::-1], main=main[1], name=module)


def _with_imported(module: str, seen: set[str]) -> list[tuple[str, str]]:
    """Return the names and sources of a module and of those that it imports, each before those that it needs."""
    seen.add(module)
    source = _source_of(module)
    ordered: list[tuple[str, str]] = []
    for needed in _imported(source, (f"{module.partition('.')[0]}.", "netbench.")):
        if needed not in seen:
            ordered = [*_with_imported(needed, seen), *ordered]
    return [(module, source), *ordered]


def _imported(source: str, packages: tuple[str, str]) -> Iterator[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(packages):
            yield str(statement.module)


def _source_of(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()
