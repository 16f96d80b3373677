"""The shared libraries that programs need: found among packages as the dynamic linker would find them."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from netbench.errors import TestbedError
from netbench.images.elf import Elf
from netbench.images.tree import File, Tree, follow, merged


def libraries(packages: Tree, programs: Tree) -> set[str]:
    """The paths in `packages` of all libraries that `programs` are linked against, directly or not.

    A link comes with what it leads to. TestbedError for a library that no package holds.
    """
    shelves = {}
    for path in sorted(packages, reverse=True):
        if _is_searched(PurePosixPath(path)):
            shelves[PurePosixPath(path).name] = path
    own = {PurePosixPath(path).name for path in programs}
    found: set[str] = set()
    waiting = list(programs.items())
    while waiting:
        program, node = waiting.pop()
        if not isinstance(node, File):
            continue
        for wanted in _needs(node.content):
            if PurePosixPath(wanted).name in own:
                continue
            chain = follow(packages, merged(wanted) if wanted.startswith("/") else shelves.get(wanted, ""))
            if not chain:
                raise TestbedError(f"{program} needs {wanted}, which none of the guest's packages holds")
            waiting.extend((one, packages[one]) for one in chain if one not in found)
            found.update(chain)
    return found


def _needs(content: bytes) -> Iterable[str]:
    try:
        elf = Elf(content)
    except ValueError:
        return ()
    return (*elf.needed, *([elf.interpreter] if elf.interpreter else ()))


def _is_searched(path: PurePosixPath) -> bool:
    """Whether the dynamic linker looks there of itself: usr/lib, usr/lib64, usr/lib/TRIPLET."""
    parent = path.parent.parts
    return (
        ".so" in path.name
        and parent[:1] == ("usr",)
        and (
            parent[1:] in (("lib",), ("lib64",))
            or (len(parent) == 3 and parent[1] == "lib" and parent[2].count("-") == 2)
        )
    )
