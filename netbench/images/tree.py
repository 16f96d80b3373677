"""The files of a guest, in memory: what a package holds, and what goes into an initramfs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class File:
    """A regular file."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link; `target` as readlink(2) gives it."""

    target: str


@dataclass(frozen=True, slots=True)
class Device:
    """A character device."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory, for those that stay empty: the parents of everything else need no naming."""


Node: TypeAlias = File | Link | Device | Directory
# Guest paths without a leading slash, such as usr/bin/python3. No path leads through a link.
Tree: TypeAlias = Mapping[str, Node]

# Debian's merged /usr: these are links, whatever directories an older package names.
MERGED = ("bin", "lib", "lib64", "sbin")


def merged(path: str) -> str:
    """A path of a package (`./bin/ip`, `/lib64/ld.so`) as it is in a guest with merged /usr: `usr/bin/ip`."""
    plain = PurePosixPath("/", path.removeprefix("./")).relative_to("/")
    return f"usr/{plain}" if plain.parts and plain.parts[0] in MERGED else str(plain)


def follow(tree: Tree, path: str) -> list[str]:
    """`path` and, where it is a link, what it leads to, link by link; ends where the tree holds no more."""
    found: list[str] = []
    while path in tree and path not in found:
        found.append(path)
        node = tree[path]
        if not isinstance(node, Link):
            break
        path = merged(_absolute(path, node.target))
    return found


def _absolute(link: str, target: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath("/", link).parent.joinpath(target).parts[1:]:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)
