"""Builds a guest image: from a kernel and Debian packages to files that a VMM boots."""

import fcntl
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.images.apt import Apt, Package, parse_pins
from netbench.images.initramfs import archive, lay_out
from netbench.images.kernels import (
    KernelSource,
    add_modules,
    build_modules,
    choose_kernel,
    directly_bootable,
    read_kernel,
    resolve_headers,
    select_modules,
)
from netbench.images.library import (
    MANIFEST,
    Image,
    content_digest,
    find_image,
    image_directory,
    require_output,
    run_tool,
)
from netbench.images.recipe import DEFAULT_KERNELS, GUEST, PINNED_FOR, Recipe, load_recipe
from netbench.signals import shielded

# Reports progress in one line.
Progress = Callable[[str], None]

_UNFINISHED = ".building-"
_REMOVALS = 50


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
    """The inputs of an image, resolved to exact versions; `whole` are the packages of which it includes all files."""

    architecture: str
    recipe: Recipe
    kernel: KernelSource
    headers: tuple[Package, ...]
    packages: tuple[Package, ...]
    pinned: tuple[Package, ...]
    whole: tuple[Package, ...]

    def inputs(self) -> dict[str, Any]:
        """Return all inputs that determine the image, as JSON values."""
        return {
            "architecture": self.architecture,
            "kernel": self.kernel.inputs(),
            "packages": {package.file: package.sha256 for package in (*self.headers, *self.packages, *self.pinned)},
            "whole_packages": [package.name for package in self.whole],
            "recipe": self.recipe.digest,
        }


def build(order: ImageOrder, report: Progress, *, force: bool = False) -> Image:
    """Build the image unless the same one exists and `force` is False; never leaves a partial image.

    UsageError where a chosen kernel or package cannot be used, MissingError where this machine lacks tools, package
    lists or the network, TestbedError where there is no room.
    """
    target = image_directory(order.name, order.cache)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent, report):
            report("resolving packages")
            apt = Apt(order.cache)
            parts = _resolve(order, apt)
            with suppress(MissingError):  # not built, or damaged
                existing = find_image(order.name, order.cache)
                if not force and existing.manifest["inputs"] == parts.inputs():
                    report(f"up to date: {target}")
                    return existing
            if missing := apt.missing((*parts.kernel.packages, *parts.headers, *parts.packages, *parts.pinned)):
                report(f"downloading {len(missing)} packages ({sum(package.size for package in missing) / 1e6:.0f} MB)")
                apt.download(missing)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent) as name:
                _make(Path(name), order.name, apt, parts, report)
                _put_in_place(Path(name, "image"), target, Path(name, "old"))
    except PermissionError as error:
        raise MissingError(f"{error.filename}: no permission; be root, or name another place with --cache") from None
    except OSError as error:
        raise TestbedError(
            f"{error.filename or order.cache}: {error.strerror}; make room, or name another place with --cache"
        ) from None
    return find_image(order.name, order.cache)


def _resolve(order: ImageOrder, apt: Apt) -> _Ingredients:
    architecture = run_tool(["dpkg", "--print-architecture"]).stdout.decode().strip()
    if architecture not in DEFAULT_KERNELS:
        raise MissingError(f"guest images are built on {' and '.join(DEFAULT_KERNELS)}, this machine is {architecture}")
    if order.modules and not order.kernel:
        raise UsageError("--modules belongs to a kernel file: name that by --kernel")
    recipe = load_recipe(order.name)
    pinned = parse_pins(recipe.pinned)
    if pinned and architecture != PINNED_FOR:
        raise MissingError(f"the image {order.name!r} is built on {PINNED_FOR}, this machine is {architecture}")
    kernel = choose_kernel(order.kernel or DEFAULT_KERNELS[architecture], order.modules, apt, architecture)
    headers = resolve_headers(kernel, apt, order.name) if recipe.built_sources else ()
    packages = apt.resolve((*recipe.packages, *order.packages), chosen=order.packages)
    names = {name.partition("=")[0].partition(":")[0] for name in order.packages}
    if unknown := names - {package.name for package in packages}:
        raise UsageError(f"{', '.join(sorted(unknown))}: --package takes names of real packages (NAME or NAME=VERSION)")
    whole = tuple(package for package in packages if package.name in names)
    return _Ingredients(architecture, recipe, kernel, headers, packages, pinned, whole)


def _make(directory: Path, name: str, apt: Apt, parts: _Ingredients, report: Progress) -> None:
    """Write the image to `directory`/image; all other files below `directory` are temporary."""
    root, tree, image = (directory / part for part in ("root", "tree", "image"))
    for path in (tree, image):
        path.mkdir()
    report("unpacking")
    apt.unpack((*parts.kernel.packages, *parts.headers, *parts.packages), root)
    if parts.pinned:
        apt.unpack(parts.pinned, directory / "pinned")
        over = ["--archive", "--remove-destination", "--no-target-directory"]
        require_output(["cp", *over, directory / "pinned", root], "the pinned packages were not added")
    kernel = read_kernel(parts.kernel, root, parts.architecture)
    if sources := [GUEST / source for source in parts.recipe.built_sources]:
        report("building kernel modules")
        build_modules(root, kernel.release, sources)
    modules = select_modules(root, kernel.release, parts.recipe, parts.architecture)
    report("packing")
    files = {"vmlinuz": kernel.image.read_bytes()}
    if parts.recipe.hypervisor:
        (hypervisor,) = root.glob(parts.recipe.hypervisor)
        files["hypervisor"] = gzip.decompress(hypervisor.read_bytes())
    lay_out(root, tree, parts.recipe, map(apt.path, parts.whole))
    add_modules(modules, root, tree, kernel.release)
    files["initrd"] = archive(tree)
    digest = content_digest(*files.values())
    if direct := directly_bootable(files["vmlinuz"]):
        files["vmlinux"] = direct
    manifest = {
        "name": name,
        "digest": digest,
        "architecture": parts.architecture,
        "kernel_release": kernel.release,
        "kernel": "vmlinux" if direct else "vmlinuz",
        "files": {file: {"size": len(data), "sha256": content_digest(data)} for file, data in files.items()},
        "modules": {
            "included": sorted(file.name.partition(".")[0] for file in modules.files),
            "builtin": modules.builtin,
            "absent": modules.absent,
        },
        "inputs": parts.inputs(),
    }
    for file, data in {**files, MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode()}.items():
        _write(image / file, data)
    image.chmod(0o755)


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
def _locked(images: Path, report: Progress) -> Iterator[None]:
    """Lock out other builds, and remove the leftovers of killed ones."""
    with (images / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another build is running; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in images.glob(f"{_UNFINISHED}*"):
            for _ in range(_REMOVALS):  # the last command of a killed build may still be writing there
                shutil.rmtree(left, ignore_errors=True)
                if not left.exists():
                    break
        yield
