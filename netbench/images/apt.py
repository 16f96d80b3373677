"""Debian packages: resolved and downloaded by apt into a cache, unpacked by mmdebstrap.

Of the machine's own state only its sources and package lists are used. Nothing is changed, so no root is needed. A
machine without lists (a fresh container) gets private ones in the cache.
"""

import re
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from netbench.errors import MissingError, UsageError
from netbench.images.library import Completed, file_digest, last_words, require_output, run_tool

MACHINE_LISTS = Path("/var/lib/apt/lists")
# Debian's unstable release changes: snapshot.debian.org keeps its older packages.
_ARCHIVES = ("http://deb.debian.org/debian", "http://snapshot.debian.org/archive/debian/20261030T120000Z")
# Part of the package apt; it uses the machine's own configuration (proxies), and checks the download.
_HELPER = "/usr/lib/apt/apt-helper"
# 'URI' FILE SIZE SHA256:HASH, the output of apt-get --print-uris
_URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+\.deb) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})", re.M)
# Read after the machine's own configuration, whose hooks would change the machine, and whose icon lists are slow.
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
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
# All files belong below /usr, although older packages have some in these directories.
MERGED = ("bin", "lib", "lib64", "sbin")
_MERGE_USR = f'for name in {" ".join(MERGED)}; do mkdir -p "$1/usr/$name"; ln -s "usr/$name" "$1/$name"; done'


@dataclass(frozen=True, slots=True)
class Package:
    """A package of one version: its `file` in the cache, the SHA-256 of that, and where it can be downloaded.

    `size` in bytes, 0 for pinned packages. `path` is set for a package file of the user, which is not in the cache.
    """

    name: str
    version: str
    file: str
    sha256: str
    uris: tuple[str, ...] = ()
    size: int = 0
    path: Path | None = None


def parse_uris(output: str) -> tuple[Package, ...]:
    """Return the packages in the output of `apt-get --print-uris`, sorted by name.

    Their files are called NAME_VERSION_ARCHITECTURE.deb, with %3a for a colon.
    """
    packages = []
    for line in _URI_LINE.finditer(output):
        name, version, _ = unquote(line["file"]).split("_")
        packages.append(Package(name, version, line["file"], line["sha256"], (line["uri"],), int(line["size"])))
    return tuple(sorted(packages, key=lambda package: package.name))


def parse_pins(text: str) -> tuple[Package, ...]:
    """Return the packages of a list in the format of sha256sum(1), by path in Debian's archive; # begins a comment."""
    packages = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            digest, path = line.split()
            file = path.rpartition("/")[2]
            name, version, _ = file.split("_")
            packages.append(Package(name, version, file, digest, tuple(f"{archive}/{path}" for archive in _ARCHIVES)))
    return tuple(packages)


def package_file(path: Path, architecture: str) -> Package:
    """Return the package in a file of the user; UsageError where it is none, or for another architecture."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; --kernel takes a package, a .deb, or a kernel with --modules")
    done = run_tool(["dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", path])
    if done.returncode:
        raise UsageError(f"{path} cannot be read as a Debian package. dpkg-deb reports:\n{last_words(done)}")
    name, version, built_for = done.stdout.decode().split()
    if built_for != architecture:
        raise UsageError(f"{path} is for {built_for}, guests here are {architecture}; choose a kernel for that")
    file = f"{name}_{quote(version, safe='+~')}_{built_for}.deb"
    return Package(name, version, file, file_digest(path) or "", size=path.stat().st_size, path=path.absolute())


class Apt:
    """apt for a machine without packages, with a separate cache; the attribute `directory` is that of packages."""

    def __init__(self, directory: Path, lists: Path = MACHINE_LISTS) -> None:
        self.directory = directory / "packages"
        self._configuration = directory / "apt.conf"
        private_lists = directory / "lists"
        self._lists = lists if _has_packages(lists) else private_lists
        # `archives` stays empty: apt omits packages that are there from its output.
        for needed in (directory / "archives" / "partial", private_lists / "partial", self.directory):
            needed.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text(_CONFIGURATION.format(lists=self._lists, directory=directory.absolute()))

    def resolve(self, names: Iterable[str], chosen: Collection[str] = ()) -> tuple[Package, ...]:
        """Return the named packages (NAME or NAME=VERSION) and all their dependencies, without recommendations.

        UsageError where no source has a package that the user has chosen, MissingError for all other packages.
        """
        if not _has_packages(self._lists):
            updated = self._get("update")
            if not _has_packages(self._lists):
                raise MissingError(
                    f"apt has no package lists; run `apt-get update`. apt reports:\n{last_words(updated)}"
                )
        done = self._get("--print-uris", "--yes", "--no-install-recommends", "install", "--", *names)
        if done.returncode:
            words = last_words(done)
            if wrong := [name for name in chosen if name.partition("=")[0] in words]:
                raise UsageError(
                    f"{', '.join(wrong)}: apt has no such package; `apt-get update`, and `apt-cache policy NAME` "
                    f"for the available versions. apt reports:\n{words}"
                )
            raise MissingError(
                "apt cannot find the packages of guests. Check that /etc/apt names Debian's main archive, "
                f"and run `apt-get update`. apt reports:\n{words}"
            )
        return parse_uris(done.stdout.decode())

    def path(self, package: Package) -> Path:
        """Return the path of the package's file, existing or not."""
        return package.path or self.directory / package.file

    def missing(self, packages: Iterable[Package]) -> list[Package]:
        """Return the packages that are missing from the cache or damaged."""
        return [package for package in packages if file_digest(self.path(package)) != package.sha256]

    def download(self, packages: Iterable[Package]) -> None:
        """Fetch packages into the cache; MissingError with apt's message where that fails."""
        wanted = absent = list(packages)
        words = ""
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=self.directory) as name:
            for source in range(len(_ARCHIVES)):
                uris = {package: package.uris[source] for package in absent if source < len(package.uris)}
                if not uris:
                    break
                argv = [_HELPER, "-oAPT::Sandbox::User=", "-oAcquire::Retries=3", "download-file"]
                for package, uri in uris.items():
                    argv += [uri, f"{name}/{package.file}", f"SHA256:{package.sha256}"]
                done = run_tool(argv)
                words = words or last_words(done)
                for package in uris:
                    if file_digest(Path(name, package.file)) == package.sha256:
                        Path(name, package.file).replace(self.path(package))
                absent = self.missing(absent)
        if absent:
            raise MissingError(
                f"{len(absent)} of {len(wanted)} packages were not downloaded to {self.directory}, first "
                f"{absent[0].file}. Check the network, and run `apt-get update`. apt reports:\n{words}"
            )

    def unpack(self, packages: Iterable[Package], root: Path) -> None:
        """Unpack packages into the new directory `root` with a merged /usr; TestbedError where that fails.

        mmdebstrap gets a repository of exactly these versions, without dependencies, and verifies their checksums. No
        program of theirs runs, so no root is needed.
        """
        names, stanzas = [], []
        with tempfile.TemporaryDirectory(prefix="repository-", dir=root.parent) as name:
            for package in packages:
                names.append(package.name)
                path, architecture = self.path(package), package.file.removesuffix(".deb").rpartition("_")[2]
                Path(name, f"{package.name}.deb").symlink_to(path)
                stanzas.append(
                    f"Package: {package.name}\nVersion: {package.version}\nArchitecture: {architecture}\n"
                    f"Filename: ./{package.name}.deb\nSize: {path.stat().st_size}\nSHA256: {package.sha256}\n"
                )
            Path(name, "Packages").write_text("\n".join(stanzas))
            options = ["--quiet", "--mode=chrootless", "--variant=extract", "--format=directory"]
            options += ['--aptopt=APT::Sandbox::User "root"', f"--setup-hook={_MERGE_USR}"]
            options.append(f"--include={','.join(names)}")
            source = f"deb [trusted=yes] copy:{quote(name)} ./"
            require_output(["mmdebstrap", *options, "", root, source], "the packages were not unpacked")

    def _get(self, *arguments: str) -> Completed:
        return run_tool(["apt-get", "--quiet=2", f"--config-file={self._configuration.absolute()}", *arguments])


def _has_packages(lists: Path) -> bool:
    return any(lists.glob("*_Packages*"))
