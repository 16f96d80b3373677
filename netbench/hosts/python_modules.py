"""Python modules as processes, which import nothing that merely lies about.

A process that runs as root must not take a module from the current directory or from where PYTHONPATH says. The rest
of this file is what such a process begins with: `python -E -P python_modules.py DIRECTORY -m MODULE …`. With `-M` the
directory, which holds nothing but what netbench has brought, comes before all others.
"""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

FIRST = "-M"


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of netbench, or of an extension, with some arguments, on this machine.

    The directory that the parts of the module's package are in is looked in last.
    """
    spec = find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    directory = Path(spec.origin).parents[1]
    return [sys.executable, "-E", "-P", __file__, str(directory), "-m", module, *arguments]


def source_command(module: ModuleType, *arguments: str) -> list[str]:
    """The command that runs a module, with some arguments, on a host that has no netbench: it imports none of it."""
    import inspect  # slow, and what this file begins does not need it

    return ["python3", "-I", "-S", "-c", inspect.getsource(module), *arguments]


def main() -> None:
    """Run the module."""
    _, directory, order, module, *arguments = sys.argv
    sys.path.insert(0 if order == FIRST else len(sys.path), directory)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
