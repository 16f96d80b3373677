"""The kernel modules of a guest: selected by modprobe, with tables written by depmod; or built from sources.

Modules are built with the headers of Debian's package of the kernel, unpacked and not installed.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import MissingError, UsageError
from netbench.images.apt import Apt, Package
from netbench.images.kernels import MODULES, KernelSource, uncompressed
from netbench.images.recipe import BUILD_MODULES, Recipe
from netbench.images.tools import Completed, last_words, missing_tool, require_output, run_tool

# The tables that the guest's modprobe reads.
_TABLES = ("modules.dep", "modules.alias", "modules.builtin")
_IMAGE = "linux-image-"
_COMPILER = re.compile(r"^CC = .*?(gcc-\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModuleSelection:
    """The files of the wanted modules and their dependencies, relative to the root.

    `builtin` and `absent` are the wanted modules that the kernel has built in, or lacks.
    """

    files: tuple[Path, ...]
    builtin: tuple[str, ...]
    absent: tuple[str, ...]


def select_modules(root: Path, release: str, recipe: Recipe, architecture: str) -> ModuleSelection:
    """Return the modules of the recipe in usr/lib/modules/RELEASE of `root`, and their dependencies.

    UsageError where there are none, one is damaged or of another kernel, or a required one is neither present nor
    built in.
    """
    directory = root / MODULES / release
    table = directory / "modules.builtin"  # paths, written by the kernel's build
    builtin = set(map(_name, table.read_text().splitlines() if table.is_file() else ()))
    if not builtin and not any(directory.rglob("*.ko*")):
        raise UsageError(f"the kernel {release} has no modules; --modules takes /lib/modules/RELEASE")
    if packed := list(directory.rglob("*.ko.gz")):  # Debian's kmod reads only xz and zstd
        _require(run_tool(["gunzip", *packed]), release)
    _depmod(root, release)
    names = sorted({name for names in recipe.modules.values() for name in names})
    options: list[str | Path] = ["--dirname", root, "--set-version", release, "--config", "/dev/null"]
    lines = run_tool(["modprobe", *options, "--show-depends", "--all", *names]).stdout.decode().splitlines()
    paths = [line.removeprefix("insmod ").strip() for line in lines if line.startswith("insmod ")]
    files = {_name(path): Path(os.path.realpath(path)) for path in paths}
    available = files.keys() | builtin
    if lacking := sorted(set(recipe.required_modules) - available):
        raise UsageError(
            f"the kernel {release} has no {', '.join(lacking)}, neither as a module nor built in, and without "
            "it netbench cannot reach the guest. Choose a kernel with CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE"
        )
    for file in files.values():
        _check(file, release, architecture, available)
    return ModuleSelection(
        tuple(file.relative_to(root.resolve()) for file in files.values()),
        builtin=tuple(name for name in names if name in builtin and name not in files),
        absent=tuple(name for name in names if name not in available),
    )


def add_modules(selection: ModuleSelection, root: Path, tree: Path, release: str) -> None:
    """Add the selected modules of `root` to the guest's `tree`, uncompressed, with the tables for modprobe."""
    for file in selection.files:
        target = tree / file.parent / f"{file.name.partition('.')[0]}.ko"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(uncompressed((root / file).read_bytes()))
    (tree / MODULES / release).mkdir(parents=True, exist_ok=True)
    for name in ("modules.builtin", "modules.order"):
        if (table := root / MODULES / release / name).is_file():
            shutil.copy(table, tree / MODULES / release)
    _depmod(tree, release)
    for path in (tree / MODULES / release).glob("modules.*"):
        if path.name not in _TABLES:
            path.unlink()


def resolve_headers(kernel: KernelSource, apt: Apt, image: str) -> tuple[Package, ...]:
    """Return the headers of a packaged kernel; UsageError where it is no package, or apt has no headers for it."""
    kernels = [package for package in kernel.packages if re.match(rf"{_IMAGE}\d", package.name) and not package.path]
    if len(kernels) != 1:
        raise UsageError(f"image {image}: its modules are built for one kernel package of Debian with headers")
    release = kernels[0].name.removeprefix(_IMAGE).removesuffix("-unsigned")
    wanted = f"linux-headers-{release}={kernels[0].version}"
    # Without the compiler that they depend on, which must be installed on this machine.
    closure = apt.resolve([wanted], chosen=[wanted])
    return tuple(package for package in closure if package.name.startswith(("linux-headers-", "linux-kbuild-")))


def build_modules(root: Path, release: str, sources: Sequence[Path]) -> None:
    """Add modules to those of a kernel: built from the sources for DKMS in the unpacked packages, and from C files.

    MissingError without the compiler of the kernel, TestbedError where the modules are not built.
    """
    compiler = _COMPILER.search((root / "usr/src" / f"linux-headers-{release}" / ".kernelvariables").read_text())
    for tool in (compiler[1] if compiler else "gcc", "make", "strip"):
        if not shutil.which(tool):
            raise MissingError(f"{missing_tool(tool)} (it builds kernel modules)")
    require_output(["sh", BUILD_MODULES, root, release, *sources], f"no modules were built for Linux {release}")


def _depmod(root: Path, release: str) -> None:
    _require(run_tool(["depmod", "--basedir", root, release]), release)


def _require(done: Completed, release: str) -> None:
    if done.returncode or b"ERROR" in done.stderr:
        raise UsageError(f"the modules of Linux {release} are damaged; {done.args[0]} reports:\n{last_words(done)}")


def _check(file: Path, release: str, architecture: str, available: Iterable[str]) -> None:
    """UsageError unless a module is whole, for this kernel and architecture, and its dependencies are available."""
    done = run_tool(["modinfo", "--field", "vermagic", file])
    if done.returncode or not done.stdout:
        raise UsageError(f"{file.name} is no kernel module; modinfo reports:\n{last_words(done)}")
    built_for, *words = done.stdout.decode().split()
    if ("aarch64" in words) != (architecture == "arm64"):
        raise UsageError(f"{file.name} is for another architecture, guests here are {architecture}")
    if built_for != release:
        raise UsageError(
            f"{file.name} is a module of Linux {built_for}, the kernel is Linux {release}; "
            "name the directory of modules that belongs to the kernel"
        )
    depends = run_tool(["modinfo", "--field", "depends", file]).stdout.decode().strip().split(",")
    if missing := {_name(word) for word in depends if word}.difference(available):
        raise UsageError(f"the modules of Linux {release} are incomplete: {file.name} needs {', '.join(missing)}")


def _name(path: str) -> str:
    """Return the kernel's name of a module: a file e-x.ko is the module e_x."""
    return path.rpartition("/")[2].partition(".")[0].replace("-", "_")
