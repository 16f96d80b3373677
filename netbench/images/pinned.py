"""Packages that no apt source of the machine has: fetched by path from Debian's archive, verified by checksum.

Debian's unstable release changes: older packages are at snapshot.debian.org, and in the cache.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from netbench.errors import MissingError
from netbench.images.library import file_digest
from netbench.images.tools import last_words, run_tool

_ARCHIVES = ("http://deb.debian.org/debian", "http://snapshot.debian.org/archive/debian/20261030T120000Z")
# Part of the package apt; it uses the machine's own configuration (proxies), and checks the download.
_HELPER = "/usr/lib/apt/apt-helper"


def parse_pins(text: str) -> dict[str, str]:
    """Return the SHA-256 by path, from a list in the format of sha256sum(1); lines that begin with # are comments."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {path: digest for digest, path in lines}


def pinned_files(pins: Mapping[str, str], directory: Path) -> dict[str, Path]:
    """Return the local path of each package, existing or not, by package name."""
    files = (path.rpartition("/")[2] for path in pins)
    return {file.partition("_")[0]: directory / file for file in files}


def missing_pins(pins: Mapping[str, str], directory: Path) -> list[str]:
    """Return the paths of packages that are missing from the directory or damaged."""
    return [path for path, digest in pins.items() if file_digest(directory / path.rpartition("/")[2]) != digest]


def fetch_pins(pins: Mapping[str, str], missing: Sequence[str], directory: Path, of: str) -> None:
    """Fetch the missing packages into the directory; MissingError for an unavailable one; `of` names the image."""
    if missing and not Path(_HELPER).exists():
        raise MissingError(f"{of}: there is no {_HELPER} here: build it on Debian, or one of its children")
    for path in missing:
        name = path.rpartition("/")[2]
        target, part = directory / name, directory / f".fetched-{name}"
        words = ""
        for archive in _ARCHIVES:
            done = run_tool(
                [_HELPER, "-oAPT::Sandbox::User=", "download-file", f"{archive}/{path}", part, f"SHA256:{pins[path]}"]
            )
            if done.returncode == 0 and file_digest(part) == pins[path]:
                part.replace(target)
                break
            part.unlink(missing_ok=True)
            words = words or last_words(done)
        else:
            raise MissingError(
                f"{of}: {name} cannot be had from {' or '.join(_ARCHIVES)}, and is not in {directory}; is the network "
                f"there? Else bring it there from a cache that has it. apt says:\n{words}"
            )
