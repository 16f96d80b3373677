"""The contents of a .deb, read with dpkg-deb, which supports every compression that Debian uses."""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from netbench.errors import UsageError
from netbench.images.tools import last_words, run_tool, start_tool
from netbench.images.tree import File, Node, Symlink, merged

# No program in a guest reads these, and they are the largest part of many packages.
_UNREAD = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bug/")

_OF_KERNELS = ("boot/", "usr/lib/modules/")


def contents(deb: Path) -> dict[str, Node]:
    """Return the files and links of a package, for a guest with merged /usr; documentation is omitted.

    UsageError where the file is not a Debian package.
    """
    tree: dict[str, Node] = {}
    for path, member, file in _members(deb):
        if path.startswith(_UNREAD):
            continue
        if member.issym():
            tree[path] = Symlink(member.linkname)
        elif member.islnk():
            tree[path] = tree[merged(member.linkname)]
        elif file is not None:
            tree[path] = File(file.read(), executable=bool(member.mode & 0o111))
    return tree


def unpack_kernel(deb: Path, directory: Path) -> None:
    """Write a package's kernel and modules below `directory`, to boot/ and usr/lib/modules/; UsageError as above."""
    # Not with dpkg-deb itself: its helpers would keep writing for a while after netbench is killed.
    for path, _, file in _members(deb):
        if file is not None and path.startswith(_OF_KERNELS) and ".." not in PurePosixPath(path).parts:
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())


def control_field(deb: Path, field: str) -> str:
    """Return one field of a package's control file, empty where it is missing; UsageError as above."""
    done = run_tool(["dpkg-deb", "--field", deb, field])
    if done.returncode:
        raise UsageError(f"{deb} cannot be read as a Debian package. dpkg-deb says:\n{last_words(done)}")
    return done.stdout.decode().strip()


def _members(deb: Path) -> Iterator[tuple[str, tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of a package: path, kind, and content of a regular file, which must be read at once."""
    damage = ""
    with start_tool(["dpkg-deb", "--fsys-tarfile", deb]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    yield merged(member.name), member, archive.extractfile(member) if member.isreg() else None
        except tarfile.ReadError as error:
            damage = str(error)
        process.stdout.read()  # the rest after the last file, or dpkg-deb would fail
        complaint = process.stderr.read().decode(errors="replace").strip()
    if damage or process.returncode:
        raise UsageError(f"{deb} cannot be read as a Debian package: {complaint or damage}")
