"""Builds a guest image: from a kernel and Debian packages to files that a VMM boots."""

import fcntl
import fnmatch
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.images import recipe
from netbench.images.apt import Apt, Package
from netbench.images.built_modules import with_built_modules
from netbench.images.compression import directly_bootable
from netbench.images.debs import contents
from netbench.images.initramfs import guest_tree
from netbench.images.kernels import Kernel, KernelSource, choose, read_kernel
from netbench.images.library import MANIFEST, Image, content_digest, find_image, image_directory
from netbench.images.pinned import fetch_pins, missing_pins, pinned_files
from netbench.images.tools import run_tool
from netbench.images.tree import File, Tree, archive
from netbench.signals import shielded

# Reports progress in one line.
Say = Callable[[str], None]

_UNFINISHED = ".building-"
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class ImageOrder:
    """An image to build. `cache` is the directory of images and packages.

    `kernel` has the format of `--kernel`, None for Debian's default; `modules` is the directory of a kernel's modules.
    All files of `packages` are included, in addition to those of every guest and of the recipe for this image name.
    """

    name: str
    cache: Path
    kernel: str | None = None
    modules: Path | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ingredients:
    """The inputs of an image, resolved to exact versions."""

    architecture: str
    packages: tuple[Package, ...]
    whole: tuple[str, ...]
    kernel: KernelSource
    lab: recipe.Lab

    def described(self) -> dict[str, Any]:
        """Return all inputs that determine the image, as JSON values."""
        return {
            "architecture": self.architecture,
            "kernel": self.kernel.inputs(),
            "packages": {
                package.name: {"version": package.version, "sha256": package.sha256} for package in self.packages
            },
            "whole_packages": list(self.whole),
            "recipe": recipe.digest(),
            "lab": json.loads(json.dumps(asdict(self.lab))),  # as read back from the manifest
        }


def build(order: ImageOrder, say: Say, *, force: bool = False) -> Image:
    """Build the image unless the same one exists and `force` is False; never leaves a partial image.

    UsageError where a chosen kernel or package cannot be used, MissingError where this machine lacks tools, package
    lists or the network, TestbedError where there is no room.
    """
    target = image_directory(order.name, order.cache)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent, say):
            say("resolving packages")
            apt = Apt(order.cache)
            ingredients = _resolve(order, apt)
            inputs = ingredients.described()
            existing = _existing(order)
            if existing and not force and existing.manifest["inputs"] == inputs:
                say(f"up to date: {target}")
                return existing
            _download(order.name, apt, ingredients, say)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent) as name:
                directory = Path(name)
                _make(directory, order.name, apt, ingredients, inputs, say)
                _put_in_place(directory / "image", target, directory / "old")
    except PermissionError as error:
        raise MissingError(f"{error.filename}: no permission; be root, or name another place with --cache") from None
    except OSError as error:
        raise TestbedError(
            f"{error.filename or order.cache}: {error.strerror}; make room, or name another place with --cache"
        ) from None
    return find_image(order.name, order.cache)


def _resolve(order: ImageOrder, apt: Apt) -> _Ingredients:
    architecture = run_tool(["dpkg", "--print-architecture"]).stdout.decode().strip()
    if architecture not in recipe.DEFAULT_KERNELS:
        raise MissingError(
            f"guest images are built on {' and '.join(recipe.DEFAULT_KERNELS)}, this machine is {architecture}"
        )
    if order.modules and not order.kernel:
        raise UsageError("--modules belongs to a kernel file: name that by --kernel")
    kernel = choose(order.kernel or recipe.DEFAULT_KERNELS[architecture], order.modules, apt, architecture)
    lab = recipe.LABS.get(order.name, recipe.Lab())
    if lab.pinned and architecture != recipe.PINNED_FOR:
        raise MissingError(f"the image {order.name!r} is built on {recipe.PINNED_FOR}, this machine is {architecture}")
    if lab.builds:
        sources = pinned_files(lab.pinned, apt.directory)[lab.builds]
        kernel = with_built_modules(kernel, sources, apt, order.name, recipe.OWN_MODULES)
    packages = apt.resolve((*recipe.PACKAGES, *lab.packages, *order.packages), chosen=order.packages)
    whole = tuple(sorted({name.partition("=")[0].partition(":")[0] for name in order.packages}))
    if unknown := set(whole) - {package.name for package in packages}:
        raise UsageError(f"{', '.join(sorted(unknown))}: --package takes names of real packages (NAME or NAME=VERSION)")
    return _Ingredients(architecture, packages, whole, kernel, lab)


def _existing(order: ImageOrder) -> Image | None:
    with suppress(MissingError):  # not built, or damaged
        return find_image(order.name, order.cache)
    return None


def _download(name: str, apt: Apt, ingredients: _Ingredients, say: Say) -> None:
    missing = apt.missing([*ingredients.packages, *ingredients.kernel.packages()])
    if missing:
        say(f"downloading {len(missing)} packages ({sum(package.size for package in missing) / _MB:.0f} MB)")
        apt.download(missing)
    pins = ingredients.lab.pinned
    if absent := missing_pins(pins, apt.directory):
        say(f"downloading {len(absent)} packages of Debian unstable")
        fetch_pins(pins, absent, apt.directory, f"image {name}")


def _make(directory: Path, name: str, apt: Apt, ingredients: _Ingredients, inputs: dict[str, Any], say: Say) -> None:
    """Write the image to `directory`/image; all other files below `directory` are temporary."""
    say("unpacking")
    kernel_files, scratch, image = directory / "kernel", directory / "scratch", directory / "image"
    for path in (kernel_files, scratch, image):
        path.mkdir()
    lab = ingredients.lab
    kernel = read_kernel(ingredients.kernel, kernel_files, ingredients.architecture, lab.modules)
    packages = {package.name: contents(apt.path(package)) for package in ingredients.packages}
    # Last: their files replace others of the same path.
    packages |= {f"{label} (pinned)": contents(deb) for label, deb in pinned_files(lab.pinned, apt.directory).items()}
    tree = guest_tree(packages, ingredients.whole, lab, kernel, scratch)
    say("packing")
    files = {"vmlinuz": kernel.content, "initrd": archive(tree)}
    if lab.hypervisor:
        files["hypervisor"] = _hypervisor(packages, lab.hypervisor)
    digest = content_digest(*files.values())
    if direct := directly_bootable(kernel.content):
        files["vmlinux"] = direct
    manifest = {
        "name": name,
        "digest": digest,
        "architecture": ingredients.architecture,
        "kernel_release": kernel.release,
        "kernel": "vmlinux" if direct else "vmlinuz",
        "files": {file: {"size": len(data), "sha256": content_digest(data)} for file, data in files.items()},
        "modules": _modules(kernel),
        "inputs": inputs,
    }
    for file, data in {**files, MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode()}.items():
        _write(image / file, data)
    image.chmod(0o755)


def _hypervisor(packages: Mapping[str, Tree], pattern: str) -> bytes:
    """Return the hypervisor in the format for a multiboot loader; TestbedError when no package contains it."""
    for contents_ in packages.values():
        for path in fnmatch.filter(contents_, pattern):
            if isinstance(file := contents_[path], File):
                return gzip.decompress(file.content)
    raise TestbedError(f"none of the guest's packages holds {pattern}")


def _modules(kernel: Kernel) -> dict[str, list[str]]:
    selection = kernel.selection
    return {
        "included": sorted(module.name for module in selection.modules),
        "builtin": list(selection.builtin),
        "absent": list(selection.absent),
    }


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)  # independent of the umask: other users run guests of it


def _put_in_place(image: Path, target: Path, old: Path) -> None:
    with shielded():
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            target.rename(old)
        image.rename(target)


@contextmanager
def _alone(images: Path, say: Say) -> Iterator[None]:
    """Lock out other builds, and remove the leftovers of killed ones."""
    with (images / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in images.glob(f"{_UNFINISHED}*"):
            # A killed build's last command may still be writing there; the rest is then removed next time.
            shutil.rmtree(left, ignore_errors=True)
        yield
