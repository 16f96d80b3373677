"""The root of a container: the programs of an existing root file system, read-only, and writable empty directories."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netbench.hosts.base import Host, run_checked
from netbench.images.library import SHELF

# Directories of programs and of the files they read; symbolic links among them stay links.
_SHARED = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr")
_WHERE_USR_IS_MERGED = ("etc", "opt", "usr")
_OWN = ("dev", "proc", "root", "run", "sys", "tmp", "var/log", "var/tmp")
# Prints the type of each of the named paths that exists in a directory.
_LOOK = """
cd "$0" 2>/dev/null || exit 0
for name; do
    if [ -L "$name" ]; then
        echo "link $name $(readlink "$name")"
    elif [ -d "$name" ]; then
        echo "directory $name -"
    fi
done
"""
# Packed commands of a guest image unpack themselves at their first use. A container cannot do that, because it mounts
# them read-only: they are unpacked before.
_UNPACK = """
for packed in "/$0"/*.cpio.gz; do
    [ ! -e "$packed" ] || "$(basename "$packed" .cpio.gz)" --version >/dev/null || exit
done
"""


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system at `source` on a host: a container sees its programs, but neither its homes nor its /var.

    `shared` are the directories mounted from it; until detected, the usual ones. `links` are symbolic links, as pairs
    of name and target.
    """

    source: Path
    shared: tuple[str, ...] = _WHERE_USR_IS_MERGED
    links: tuple[tuple[str, str], ...] = ()

    @classmethod
    def found(cls, host: Host, source: Path) -> Self:
        """Return the root with its detected directories; with the usual ones if it has none."""
        listing = run_checked(host, ["sh", "-c", _LOOK, str(source), *_SHARED])
        seen = [line.split(" ", 2) for line in listing.splitlines()]
        shared = tuple(name for what, name, _ in seen if what == "directory")
        links = tuple((name, where) for what, name, where in seen if what == "link")
        return cls(source, shared or _WHERE_USR_IS_MERGED, links)

    def lay_out(self, host: Host, target: Path) -> None:
        """Make all mount points below `target` on a host, and the links; TestbedError.

        Shared commands that are still packed are unpacked.
        """
        if self.source == Path("/"):
            run_checked(host, ["sh", "-c", _UNPACK, SHELF])
        run_checked(host, ["mkdir", "-p", *(str(target / name) for name in (*_OWN, *self.shared))])
        for name, where in self.links:
            run_checked(host, ["ln", "-s", where, str(target / name)])
