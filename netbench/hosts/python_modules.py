"""Python modules as processes that import only trusted code.

A process that runs as root must not import modules from the current directory or from PYTHONPATH. This file is the
start of such a process: `python -E -P python_modules.py DIRECTORY -m MODULE …`. With `-M` the directory, which contains
only code that netbench has copied, precedes all others.
"""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

FIRST = "-M"


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of netbench or of an extension, with arguments, on this machine.

    The directory of the module's top-level package is searched last.
    """
    spec = find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    directory = Path(spec.origin).parents[1]
    return [sys.executable, "-E", "-P", __file__, str(directory), "-m", module, *arguments]


def source_command(module: ModuleType, *arguments: str) -> list[str]:
    """Return the command that runs a module on a host without netbench; the module must not import netbench."""
    import inspect  # slow to import, and not needed by processes that start with this file

    return ["python3", "-I", "-S", "-c", inspect.getsource(module), *arguments]


def main() -> None:
    """Run the module."""
    _, directory, order, module, *arguments = sys.argv
    sys.path.insert(0 if order == FIRST else len(sys.path), directory)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
