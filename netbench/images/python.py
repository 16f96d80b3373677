"""Python's smallest standard library as bytecode, which starts much faster than source on an emulated CPU."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from netbench.errors import TestbedError
from netbench.images.elf import Elf
from netbench.images.libraries import libraries
from netbench.images.tools import last_words, run_tool
from netbench.images.tree import Directory, File, Link, Node, Tree, follow


def standard_library(packages: Tree, scratch: Path) -> dict[str, Node]:
    """The library of the Python in `packages`, compiled by that very Python in the directory `scratch`.

    Another Python's bytecode would not do, and hashes rather than dates make it the same on every day.
    Modules in C stay out: they bring libraries many times their size, and the built-in ones are enough.
    """
    program = follow(packages, "usr/bin/python3")[-1]
    directory = f"usr/lib/{PurePosixPath(program).name}"
    # A link leads to /etc, where a guest has nothing and this machine has what is its own.
    sources = {
        path: node
        for path, node in packages.items()
        if isinstance(node, File) and path.startswith(f"{directory}/") and path.endswith(".py")
    }
    programs = {program: packages[program]}
    shared = {path: packages[path] for path in libraries(packages, programs)}
    _write(scratch, {**sources, **programs, **shared})
    _compile(scratch, program, directory, sorted({str(PurePosixPath(path).parent) for path in shared}), packages)
    bytecode: dict[str, Node] = {f"{path}c": File((scratch / f"{path}c").read_bytes()) for path in sources}
    # Python complains on every start where this is missing.
    return {f"{directory}/lib-dynload": Directory(), **bytecode}


def _compile(scratch: Path, program: str, directory: str, shelves: Iterable[str], packages: Tree) -> None:
    python = packages[program]
    assert isinstance(python, File)
    interpreter = Elf(python.content).interpreter
    linker = scratch / follow(packages, f"usr{interpreter}")[-1]
    environment = {"PYTHONHOME": str(scratch / "usr"), "PYTHONHASHSEED": "0"}
    shared = ":".join(str(scratch / shelf) for shelf in shelves)
    run = (linker, "--library-path", shared, scratch / program, "-S", "-m", "compileall", "-q", "-b")
    as_in_guest = ("-s", scratch, "-p", "/")  # the paths that bytecode names
    done = run_tool(
        [*run, "--invalidation-mode", "unchecked-hash", *as_in_guest, scratch / directory], environment=environment
    )
    if done.returncode:
        raise TestbedError(f"the guest's Python did not compile its library here. It says:\n{last_words(done)}")


def _write(directory: Path, tree: Tree) -> None:
    for path, node in tree.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        match node:
            case File(content, executable):
                target.write_bytes(content)
                target.chmod(0o755 if executable else 0o644)
            case Link(leads_to):
                target.symlink_to(leads_to)
            case _:
                raise AssertionError(f"{path}: only files and links make a program")
