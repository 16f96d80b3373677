"""Packages that no source of the machine's apt has: fetched by their path in Debian's archive, and known by checksum.

Debian's unstable release moves on: what it had once is found at snapshot.debian.org, and in the cache.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from netbench.errors import MissingError
from netbench.images.library import file_digest
from netbench.images.tools import last_words, run_tool

_ARCHIVES = ("http://deb.debian.org/debian", "http://snapshot.debian.org/archive/debian/20261030T120000Z")
# Of the package apt itself; it fetches by the machine's own configuration (proxies), and checks what came.
_HELPER = "/usr/lib/apt/apt-helper"


def parse_pins(text: str) -> dict[str, str]:
    """SHA-256 by path, of a list as sha256sum(1) reads it; lines that begin with # are remarks."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {path: digest for digest, path in lines}


def pinned_files(pins: Mapping[str, str], directory: Path) -> dict[str, Path]:
    """Where the package of each path is, or would be, by the name of the package."""
    files = (path.rpartition("/")[2] for path in pins)
    return {file.partition("_")[0]: directory / file for file in files}


def missing_pins(pins: Mapping[str, str], directory: Path) -> list[str]:
    """The paths of those that are not in the directory, or damaged there."""
    return [path for path, digest in pins.items() if file_digest(directory / path.rpartition("/")[2]) != digest]


def fetch_pins(pins: Mapping[str, str], missing: Sequence[str], directory: Path, of: str) -> None:
    """Bring those that are missing into the directory; MissingError for one not to be had; `of` names the image."""
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
