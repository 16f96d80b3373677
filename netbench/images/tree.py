"""The files of a guest, in memory: the contents of packages and of an initramfs.

An initramfs is a cpio archive in the `newc` format of the kernel's driver-api/early-userspace/buffer-format. The same
tree always gives the same bytes, on any machine, at any time, for any user: entries are sorted, owned by root, dated
1970, numbered in order, and have one of two modes.
"""

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class File:
    """A regular file."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link; `target` as returned by readlink(2)."""

    target: str


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Directory:
    """An empty directory; the parents of other nodes need no entry."""


Node: TypeAlias = File | Symlink | DeviceNode | Directory
# Guest paths without a leading slash, such as usr/bin/python3. No path leads through a link.
Tree: TypeAlias = Mapping[str, Node]

# Debian's merged /usr: these are links, although older packages have files in them.
MERGED = ("bin", "lib", "lib64", "sbin")

_ALIGNMENT = 4
_END = "TRAILER!!!"


def merged(path: str) -> str:
    """Return the path of a package's file (`./bin/ip`, `/lib64/ld.so`) in a guest with merged /usr: `usr/bin/ip`."""
    plain = PurePosixPath("/", path.removeprefix("./")).relative_to("/")
    return f"usr/{plain}" if plain.parts and plain.parts[0] in MERGED else str(plain)


def follow(tree: Tree, path: str) -> list[str]:
    """Return `path` and, where it is a link, its targets link by link, as far as they are in the tree."""
    chain: list[str] = []
    while path in tree and path not in chain:
        chain.append(path)
        node = tree[path]
        if not isinstance(node, Symlink):
            break
        path = merged(_absolute(path, node.target))
    return chain


def _absolute(link: str, target: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath("/", link).parent.joinpath(target).parts[1:]:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)


def archive(tree: Tree) -> bytes:
    """Return the tree as an uncompressed cpio archive, with the parent directories of all nodes."""
    directories = {str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."}
    everything: dict[str, Node] = {**dict.fromkeys(directories, Directory()), **tree}
    pieces: list[bytes] = []
    for number, path in enumerate(sorted(everything), start=1):
        pieces.extend(_entry(number, path, everything[path]))
    pieces.extend(_record(0, _END, 0, b""))
    return b"".join(pieces)


def _entry(number: int, path: str, node: Node) -> Iterator[bytes]:
    match node:
        case File(content, executable):
            return _record(number, path, stat.S_IFREG | (0o755 if executable else 0o644), content)
        case Symlink(target):
            return _record(number, path, stat.S_IFLNK | 0o777, target.encode())
        case DeviceNode(major, minor):
            return _record(number, path, stat.S_IFCHR | 0o600, b"", (major, minor))
        case Directory():
            return _record(number, path, stat.S_IFDIR | 0o755, b"")


def _record(number: int, path: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> Iterator[bytes]:
    name = path.encode() + b"\0"
    links, owner, group, mtime, check = 1, 0, 0, 0, 0
    numbers = (number, mode, owner, group, links, mtime, len(content), 0, 0, *device, len(name), check)
    header = b"070701" + b"".join(b"%08X" % field for field in numbers)
    yield header + name
    yield _padding(len(header) + len(name))
    yield content
    yield _padding(len(content))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _ALIGNMENT)
