"""Only trusted code runs as root: the search path of commands, and processes that run Python modules.

A process that runs as root must not import modules from the current directory or from PYTHONPATH. This file is the
start of such a process: `python -E -P trusted_code.py DIRECTORY -m MODULE …`. With `-M` the directory, which contains
only code that netbench has copied, precedes all others. Every command of netbench imports this file: it must be quick.
"""

import os
import sys
from pathlib import Path

FIRST = "-M"


def absolute_path() -> str:
    """Return PATH without entries relative to the current directory, where any user may have put a program."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(filter(os.path.isabs, directories))


def search_path() -> str:
    """Return the same plus the directories of root's tools, which a shell opened with plain `su` lacks."""
    return os.pathsep.join((absolute_path(), "/usr/sbin", "/sbin"))


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of netbench or of an extension, with arguments, on this machine.

    The directory of the module's top-level package is searched last.
    """
    from importlib.util import find_spec

    spec = find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    directory = Path(spec.origin).parents[1]
    return [sys.executable, "-E", "-P", __file__, str(directory), "-m", module, *arguments]


def main() -> None:
    """Run the module."""
    import runpy

    _, directory, order, module, *arguments = sys.argv
    sys.path.insert(0 if order == FIRST else len(sys.path), directory)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
