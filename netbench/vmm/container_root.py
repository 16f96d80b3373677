"""The root of a container: the programs of a root file system that is there, read-only, and empty room of its own."""

from dataclasses import dataclass
from pathlib import Path

# What of it holds programs and what they read; links among them stay links.
_SHARED = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr")
_WHERE_USR_IS_MERGED = ("etc", "usr")
_OWN = ("dev", "proc", "root", "run", "sys", "tmp", "var/log", "var/tmp")


@dataclass(frozen=True, slots=True)
class Root:
    """A root file system at `source`, of which a container sees the programs, but neither homes nor /var."""

    source: Path

    @property
    def shared(self) -> tuple[str, ...]:
        """The directories that are mounted from the source; as on most machines where there is none (yet)."""
        found = (name for name in _SHARED if (self.source / name).is_dir() and not (self.source / name).is_symlink())
        return tuple(found) or _WHERE_USR_IS_MERGED

    def lay_out(self, target: Path) -> None:
        """Make the directories that everything is mounted on below `target`, and the links; OSError where it cannot."""
        for name in (*_OWN, *self.shared):
            (target / name).mkdir(parents=True)
        for name in _SHARED:
            if (link := self.source / name).is_symlink():
                (target / name).symlink_to(link.readlink())
