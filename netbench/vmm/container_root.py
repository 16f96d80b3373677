"""The root of a container: the programs of a root file system that is there, read-only, and empty room of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netbench.hosts.base import Host, run_checked
from netbench.images.programs import SHELF

# What of it holds programs and what they read; links among them stay links.
_SHARED = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr")
_WHERE_USR_IS_MERGED = ("etc", "opt", "usr")
_OWN = ("dev", "proc", "root", "run", "sys", "tmp", "var/log", "var/tmp")
# What the names among its arguments are in a directory, where that is there.
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
# Commands that a guest image has packed take the place of what unpacks them when they are first wanted, for which a
# container, that only reads them, has no room.
_UNPACK = """
for packed in "/$0"/*.cpio.gz; do
    [ ! -e "$packed" ] || "$(basename "$packed" .cpio.gz)" --version >/dev/null || exit
done
"""


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system at `source` of a host, of which a container sees the programs, but neither homes nor /var.

    `shared` are the directories that are mounted from it, until they are found those of most machines; `links` are
    where others of them lead, by name.
    """

    source: Path
    shared: tuple[str, ...] = _WHERE_USR_IS_MERGED
    links: tuple[tuple[str, str], ...] = ()

    @classmethod
    def found(cls, host: Host, source: Path) -> Self:
        """As it is there; as on most machines where there is none."""
        told = run_checked(host, ["sh", "-c", _LOOK, str(source), *_SHARED])
        seen = [line.split(" ", 2) for line in told.splitlines()]
        shared = tuple(name for what, name, _ in seen if what == "directory")
        links = tuple((name, where) for what, name, where in seen if what == "link")
        return cls(source, shared or _WHERE_USR_IS_MERGED, links)

    def lay_out(self, host: Host, target: Path) -> None:
        """Make the directories that everything is mounted on below `target` of a host, and the links; TestbedError.

        Commands that it shares are there then, unpacked where they were not.
        """
        if self.source == Path("/"):
            run_checked(host, ["sh", "-c", _UNPACK, SHELF])
        run_checked(host, ["mkdir", "-p", *(str(target / name) for name in (*_OWN, *self.shared))])
        for name, where in self.links:
            run_checked(host, ["ln", "-s", where, str(target / name)])
