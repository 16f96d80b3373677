"""Resolves and downloads the packages of a guest with apt, as for a machine without packages.

Of the machine's own state only its sources and package lists are used. Nothing is changed, so no root is needed. A
machine without lists (a fresh container) gets private ones in the cache.
"""

import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from netbench.errors import MissingError, UsageError
from netbench.images.library import file_digest
from netbench.images.tools import Completed, last_words, run_tool

MACHINE_LISTS = Path("/var/lib/apt/lists")
# 'URI' FILE SIZE SHA256:HASH, the output of apt-get --print-uris
_URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+\.deb) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})", re.M)
# Read after the machine's own configuration, whose hooks would change the machine, and whose icon lists are slow.
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Sandbox::User "";
Dir::State::status "/dev/null";
Dir::State::lists "{lists}/";
Dir::Cache "{directory}";
Dir::Cache::archives "archives/";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
"""


@dataclass(frozen=True, slots=True)
class Package:
    """One package of one version. `size` in bytes of its `file`, `sha256` that file's hash in hexadecimal."""

    name: str
    version: str
    file: str
    size: int
    sha256: str


def parse_uris(output: str) -> tuple[Package, ...]:
    """Return the packages in the output of `apt-get --print-uris`, sorted by name.

    Their files are called NAME_VERSION_ARCHITECTURE.deb, with %3a for a colon.
    """
    packages = []
    for line in _URI_LINE.finditer(output):
        name, version, _ = unquote(line["file"]).split("_")
        packages.append(Package(name, version, line["file"], int(line["size"]), line["sha256"]))
    return tuple(sorted(packages, key=lambda package: package.name))


class Apt:
    """apt for a machine without packages, with a separate cache; the attribute `directory` is that of packages."""

    def __init__(self, directory: Path, lists: Path = MACHINE_LISTS) -> None:
        self.directory = directory / "packages"
        self._configuration = directory / "apt.conf"
        own_lists = directory / "lists"
        self._lists = lists if _holds_packages(lists) else own_lists
        # `archives` stays empty: apt omits packages that are there from its output.
        for needed in (directory / "archives" / "partial", own_lists / "partial", self.directory):
            needed.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text(_CONFIGURATION.format(lists=self._lists, directory=directory.absolute()))

    def resolve(self, names: Iterable[str], chosen: Collection[str] = ()) -> tuple[Package, ...]:
        """Return the named packages (NAME or NAME=VERSION) and all their dependencies, without recommendations.

        UsageError where no source has a package that the user has chosen, MissingError for all other packages.
        """
        if not _holds_packages(self._lists):
            self._update()
        done = self._get("--print-uris", "--yes", "--no-install-recommends", "install", "--", *names)
        if done.returncode:
            words = last_words(done)
            if wrong := [name for name in chosen if name.partition("=")[0] in words]:
                raise UsageError(
                    f"{', '.join(wrong)}: apt has no such package; `apt-get update`, and `apt-cache policy NAME` "
                    f"for the versions there are. apt says:\n{words}"
                )
            raise MissingError(
                "apt cannot find what guests are made of; see that /etc/apt names Debian's main archive, "
                f"and run `apt-get update`. apt says:\n{words}"
            )
        return parse_uris(done.stdout.decode())

    def path(self, package: Package) -> Path:
        """Return the path of the package's file, existing or not."""
        return self.directory / package.file

    def missing(self, packages: Iterable[Package]) -> list[Package]:
        """Return the packages that are missing from the cache or damaged."""
        return [package for package in packages if file_digest(self.path(package)) != package.sha256]

    def download(self, packages: Sequence[Package]) -> None:
        """Fetch packages into the cache; MissingError with apt's message where that fails."""
        if not packages:
            return
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=self.directory) as name:
            directory = Path(name)
            exact = [f"{package.name}={package.version}" for package in packages]
            done = self._get("download", "--", *exact, cwd=directory)
            for package in packages:
                if file_digest(directory / package.file) == package.sha256:
                    (directory / package.file).replace(self.path(package))
        if absent := self.missing(packages):
            raise MissingError(
                f"{len(absent)} of {len(packages)} packages were not downloaded, first {absent[0].file}; is the "
                f"network there, are the lists of `apt-get update` recent? apt says:\n{last_words(done)}"
            )

    def _update(self) -> None:
        done = self._get("update")
        if not _holds_packages(self._lists):
            raise MissingError(f"apt has no package lists; run `apt-get update`. apt says:\n{last_words(done)}")

    def _get(self, *arguments: str, cwd: Path | None = None) -> Completed:
        return run_tool(
            ["apt-get", "--quiet=2", f"--config-file={self._configuration.absolute()}", *arguments], cwd=cwd
        )


def _holds_packages(lists: Path) -> bool:
    return any(lists.glob("*_Packages*"))
