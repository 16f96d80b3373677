"""The guest images that were built, and where they are."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netbench.errors import MissingError, UsageError

DEFAULT_IMAGE = "micro"
MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Image:
    """A guest image. `digest` is the SHA-256 over its compressed kernel, its initrd and its hypervisor, in hexadecimal.

    `kernel` is what starts fastest, `vmlinuz` the same kernel as any boot loader takes it. `hypervisor` is
    what boots before it, where the image is a domain 0. `manifest` is what the image was built from.
    """

    name: str
    directory: Path
    kernel: Path
    vmlinuz: Path
    initrd: Path
    kernel_release: str
    architecture: str
    digest: str
    manifest: Mapping[str, Any]
    hypervisor: Path | None = None

    @property
    def size(self) -> int:
        """Bytes of all its files but the manifest."""
        return sum(file["size"] for file in self.manifest["files"].values())


def file_digest(path: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal; None where there is none to read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def content_digest(*contents: bytes) -> str:
    """The SHA-256 of the contents, one after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def cache_directory() -> Path:
    """$NETBENCH_CACHE, else /var/cache/netbench for root, else netbench below the user's cache directory."""
    if named := os.environ.get("NETBENCH_CACHE"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/cache/netbench")
    # The XDG base directory specification: a relative path there is to be ignored.
    above = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (above if above.is_absolute() else Path.home() / ".cache") / "netbench"


def image_directory(name: str, cache: Path | None = None) -> Path:
    """Where the image is, or would be; UsageError for a name that no image can have."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of an image: letters, digits, dots, dashes and underscores, no path")
    return (cache or cache_directory()) / "images" / name


def find_image(name: str, cache: Path | None = None) -> Image:
    """The image of that name, every byte of it checked; MissingError where it is not built, or damaged."""
    directory = image_directory(name, cache)
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(
            f"the guest image {name!r} is not built (there is no {directory}): run `{build_command(name)}`"
        ) from None
    except PermissionError:
        raise MissingError(f"the guest image {name!r} in {directory} is not yours to read") from None
    except (OSError, ValueError):
        raise _damaged(name, directory, MANIFEST) from None
    try:
        image = Image(
            name,
            directory,
            kernel=directory / manifest["kernel"],
            vmlinuz=directory / "vmlinuz",
            initrd=directory / "initrd",
            kernel_release=manifest["kernel_release"],
            architecture=manifest["architecture"],
            digest=manifest["digest"],
            manifest=manifest,
            hypervisor=directory / "hypervisor" if "hypervisor" in manifest["files"] else None,
        )
        expected = {file: known["sha256"] for file, known in manifest["files"].items()}
    except (LookupError, TypeError, AttributeError):
        raise _damaged(name, directory, MANIFEST) from None
    for file, digest in expected.items():
        if file_digest(directory / file) != digest:
            raise _damaged(name, directory, file)
    return image


def list_images(cache: Path | None = None) -> list[Image | MissingError]:
    """All images, by name; for one that is damaged, the error that says so."""
    found: list[Image | MissingError] = []
    for directory in sorted(image_directory(DEFAULT_IMAGE, cache).parent.glob("[!.]*/")):
        try:
            found.append(find_image(directory.name, cache))
        except MissingError as error:
            found.append(error)
    return found


def build_command(name: str) -> str:
    """The command that builds the image."""
    return "netbench image build" if name == DEFAULT_IMAGE else f"netbench image build --name {name}"


def _damaged(name: str, directory: Path, file: str) -> MissingError:
    return MissingError(
        f"the guest image {name!r} is damaged: {directory / file} is not what was built; run `{build_command(name)}`"
    )
