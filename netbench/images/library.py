"""The built guest images, their directories, and the commands that build them."""

import hashlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from netbench.errors import MissingError, TestbedError, UsageError

DEFAULT_IMAGE = "micro"
MANIFEST = "manifest.json"
# The guest's directory of netbench's files and packed commands.
SHELF = "usr/lib/netbench"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Image:
    """A guest image. `digest` is the SHA-256 over its compressed kernel, its initrd and its hypervisor, in hexadecimal.

    `kernel` starts fastest; `vmlinuz` is the same kernel in the format for any boot loader. `hypervisor` boots before
    it, where the image is a domain 0. `manifest` describes the inputs of the build.
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
        """The size of all its files except the manifest, in bytes."""
        return sum(file["size"] for file in self.manifest["files"].values())

    @property
    def fact(self) -> str:
        """Its name, and the beginning of its digest: a fact about a guest."""
        return f"{self.name} {self.digest[:12]}"


def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file in hexadecimal; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def content_digest(*contents: bytes) -> str:
    """Return the SHA-256 of the concatenated contents in hexadecimal."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def cache_directory() -> Path:
    """Return $NETBENCH_CACHE, else /var/cache/netbench for root, else netbench in the user's cache directory."""
    if named := os.environ.get("NETBENCH_CACHE"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/cache/netbench")
    # The XDG base directory specification: relative paths must be ignored.
    above = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (above if above.is_absolute() else Path.home() / ".cache") / "netbench"


def image_directory(name: str, cache: Path | None = None) -> Path:
    """Return the directory of the image, existing or not; UsageError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of an image: letters, digits, dots, dashes and underscores, no path")
    return (cache or cache_directory()) / "images" / name


def find_image(name: str, cache: Path | None = None) -> Image:
    """Return the image of that name, with all its bytes verified; MissingError where it is not built or damaged."""
    directory = image_directory(name, cache)
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        digests = {file: entry["sha256"] for file, entry in manifest["files"].items()}
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
            hypervisor=directory / "hypervisor" if "hypervisor" in digests else None,
        )
        damaged = next((file for file, digest in digests.items() if file_digest(directory / file) != digest), "")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(
            f"the guest image {name!r} is not built (there is no {directory}): run `{build_command(name)}`"
        ) from None
    except PermissionError:
        raise MissingError(f"the guest image {name!r} in {directory} is not yours to read") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        damaged = MANIFEST
    if damaged:
        raise MissingError(
            f"the guest image {name!r} is damaged: {directory / damaged} has changed; run `{build_command(name)}`"
        )
    return image


def list_images(cache: Path | None = None) -> list[Image | MissingError]:
    """Return all images, by name; for a damaged one, the error instead."""
    images: list[Image | MissingError] = []
    for directory in sorted(image_directory(DEFAULT_IMAGE, cache).parent.glob("[!.]*/")):
        try:
            images.append(find_image(directory.name, cache))
        except MissingError as error:
            images.append(error)
    return images


def build_command(name: str) -> str:
    """Return the command that builds the image."""
    return "netbench image build" if name == DEFAULT_IMAGE else f"netbench image build --name {name}"


Completed: TypeAlias = "subprocess.CompletedProcess[bytes]"
_LAST_LINES = 4
# Debian's packages of commands; other packages are called like their command.
_PACKAGES = {"strip": "binutils", "xz": "xz-utils", "lzma": "xz-utils"}
_PACKAGES |= dict.fromkeys(("depmod", "modinfo", "modprobe"), "kmod")
_OF_DEBIAN = ("apt-get", "dpkg", "dpkg-deb", "/usr/lib/apt/apt-helper")


def run_tool(
    argv: Sequence[str | Path], *, stdin: bytes = b"", cwd: Path | None = None, environment: Mapping[str, str] = {}
) -> Completed:
    """Run a command in the C locale, with any exit code; MissingError where it is not installed.

    An exception such as Stopped ends all its processes.
    """
    # Administrators' commands are not in the PATH of users.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    variables = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "PATH": path, **environment}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=variables, process_group=0)
    except FileNotFoundError:
        raise MissingError(missing_tool(str(argv[0]))) from None
    with process:
        try:
            stdout, stderr = process.communicate(stdin)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def require_output(argv: Sequence[str | Path], failure: str, *, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
    """Return the output of a command; TestbedError with the message `failure` where it fails."""
    done = run_tool(argv, stdin=stdin, cwd=cwd)
    if done.returncode:
        raise TestbedError(f"{failure}; {Path(argv[0]).name} reports:\n{last_words(done)}")
    return done.stdout


def missing_tool(name: str) -> str:
    """Return the message for a user whose machine lacks a command."""
    if name in _OF_DEBIAN:
        return (
            f"{name} is missing: guest images are built from Debian packages. Build them on Debian or a derivative "
            "(also in a container), and copy the cache's images/NAME here"
        )
    return f"{name} is missing: apt-get install {_PACKAGES.get(name, name)}"


def last_words(done: Completed) -> str:
    """Return the last lines of a command's error output, for an error message."""
    output = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in output[-_LAST_LINES:]) or f"  exit code {done.returncode}"
