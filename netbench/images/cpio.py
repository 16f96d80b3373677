"""An initramfs archive: cpio in the `newc` format of the kernel's driver-api/early-userspace/buffer-format.

The same tree gives the same bytes, whoever writes it, when and where: entries are sorted, owned by root,
dated 1970, numbered in order, and have one of two modes.
"""

import stat
from collections.abc import Iterator
from pathlib import PurePosixPath

from netbench.images.tree import Device, Directory, File, Link, Node, Tree

_ALIGNMENT = 4
_END = "TRAILER!!!"


def archive(tree: Tree) -> bytes:
    """The tree as an uncompressed cpio archive; directories that lead to a node are made."""
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
        case Link(target):
            return _record(number, path, stat.S_IFLNK | 0o777, target.encode())
        case Device(major, minor):
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
