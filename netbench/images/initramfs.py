"""The file system of a guest, put together from packages, a kernel's modules and netbench's own files."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from netbench.errors import TestbedError
from netbench.images.kernels import Kernel
from netbench.images.modules import module_files
from netbench.images.programs import (
    BUSYBOX,
    Busybox,
    is_python_module,
    libraries,
    packed,
    python_modules,
)
from netbench.images.recipe import ACCOUNTS, AGENT, COMMANDS, FILES, INIT, MOUNT_POINTS, PACKED_COMMANDS, START, Lab
from netbench.images.tree import MERGED, DeviceNode, Directory, File, Node, Symlink, Tree, follow


def guest_tree(
    packages: Mapping[str, Tree], whole: Collection[str], lab: Lab, kernel: Kernel, scratch: Path
) -> dict[str, Node]:
    """Return all files of a guest, including those of its lab.

    `packages` has the contents of each package by name. Packages named in `whole` are included completely; of the
    others, only the commands, libraries and files in the recipe. `scratch` is an empty working directory.
    """
    everything = {path: node for contents in packages.values() for path, node in contents.items()}
    links = {path: Symlink(target) for path, target in lab.links.items()}
    everything.update(links)
    busybox = Busybox(everything, scratch)
    chosen: dict[str, Node] = {}
    for name in whole:
        chosen.update(packages[name])
    for path in {part for name in (*COMMANDS, *lab.commands) for part in _command(everything, name)}:
        chosen[path] = everything[path]
    for path in _files(everything, (*FILES, *lab.files)):
        chosen[path] = everything[path]
    sources = {path: chosen.pop(path) for path in list(chosen) if is_python_module(path)}
    chosen.update({path: everything[path] for path in libraries(everything, chosen)})
    return {
        **_applets(busybox, besides={PurePosixPath(path).name for path in chosen}),
        **_seldom_used(everything, chosen, busybox),
        **chosen,
        **links,
        **python_modules(everything, sources, scratch),
        **module_files(kernel.selection, f"usr/lib/modules/{kernel.release}"),
        **_own_files(),
        **({START: File(lab.start.encode(), executable=True)} if lab.start else {}),
    }


def _command(packages: Tree, name: str) -> list[str]:
    chain = follow(packages, f"usr/bin/{name}") or follow(packages, f"usr/sbin/{name}")
    if not chain:
        raise TestbedError(f"none of the guest's packages holds the command {name}")
    return chain


def _seldom_used(packages: Tree, chosen: Tree, busybox: Busybox) -> dict[str, Node]:
    """Return the packed commands, without files that the guest has anyway."""
    tree: dict[str, Node] = {}
    for name in PACKED_COMMANDS:
        command = {path: packages[path] for path in _command(packages, name)}
        needed = {**command, **{path: packages[path] for path in libraries(packages, command)}}
        tree.update(packed(next(iter(command)), {path: needed[path] for path in needed.keys() - chosen}, busybox))
    return tree


def _files(packages: Tree, patterns: Iterable[str]) -> set[str]:
    named = {path for pattern in patterns for path in fnmatch.filter(packages, pattern)}
    return {part for path in named for part in follow(packages, path)}


def _applets(busybox: Busybox, besides: Collection[str]) -> dict[str, Node]:
    """Return a link for each applet of busybox whose name is not in `besides`, in any directory."""
    link = Symlink(f"/{BUSYBOX}")
    return {path: link for path in busybox.applets() if PurePosixPath(path).name not in besides}


def _own_files() -> dict[str, Node]:
    return {
        "init": File(INIT.read_bytes(), executable=True),
        "usr/lib/netbench/agent.py": File(AGENT.read_bytes()),
        "dev/console": DeviceNode(5, 1),
        **{name: Symlink(f"usr/{name}") for name in MERGED},
        **{path: File(text.encode()) for path, text in ACCOUNTS.items()},
        **dict.fromkeys(MOUNT_POINTS, Directory()),
    }
