"""A kernel with modules that are built for it here, from sources in a Debian package (usr/src/NAME-VERSION, for DKMS).

The build uses the headers of Debian's own package of that kernel, unpacked and not installed. Small modules of
netbench, each a single C file, are also built.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.images.apt import Apt, Package
from netbench.images.debs import contents
from netbench.images.kernels import KernelSource, PackagedKernel
from netbench.images.library import file_digest
from netbench.images.programs import write_files
from netbench.images.tools import last_words, run_tool

_IMAGE = "linux-image-"
_COMPILER = re.compile(r"^CC = .*?(gcc-\d+)$", re.MULTILINE)
_OWN_PLACE = "netbench"  # below usr/src


@dataclass(frozen=True, slots=True)
class BuiltModules:
    """A packaged kernel with modules built from the package file `sources`.

    `own` are C files, each of which becomes a module of its name.
    """

    kernel: PackagedKernel
    headers: tuple[Package, ...]
    sources: Path
    own: tuple[Path, ...] = ()

    def inputs(self) -> dict[str, object]:
        """Return the kernel's inputs, the headers' versions and hashes, and the hashes of netbench's own sources."""
        return {
            **self.kernel.inputs(),
            "headers": [[package.name, package.version, package.sha256] for package in self.headers],
            "own": [[path.name, file_digest(path)] for path in self.own],
        }

    def packages(self) -> tuple[Package, ...]:
        """Return the packages of the kernel and its headers."""
        return (*self.kernel.packages(), *self.headers)

    def files(self, directory: Path) -> tuple[Path, Path]:
        """Unpack the kernel and its modules, build the additional modules, and return both paths."""
        image, modules = self.kernel.files(directory)
        apt, tree = self.kernel.apt, directory / "build"
        for package in self.headers:
            write_files(tree, contents(apt.path(package)))
        write_files(tree, contents(self.sources))
        source = tree / "usr" / "src"
        _write_own(source / _OWN_PLACE, self.own)
        _build(source, modules)
        return image, modules


def with_built_modules(
    kernel: KernelSource, sources: Path, apt: Apt, name: str, own: Sequence[Path] = ()
) -> BuiltModules:
    """Return the kernel with modules built for it; UsageError where apt has no headers for it."""
    packages = kernel.found if isinstance(kernel, PackagedKernel) else ()
    images = [package for package in packages if re.match(rf"{_IMAGE}\d", package.name)]
    if not isinstance(kernel, PackagedKernel) or len(images) != 1:
        raise UsageError(f"image {name}: modules are built for it, which needs one kernel of Debian's with its headers")
    release = images[0].name.removeprefix(_IMAGE).removesuffix("-unsigned")
    wanted = f"linux-headers-{release}={images[0].version}"
    closure = apt.resolve([wanted], chosen=[wanted])
    # Without the compiler that they depend on, which must be installed on this machine.
    headers = tuple(package for package in closure if package.name.startswith(("linux-headers-", "linux-kbuild-")))
    return BuiltModules(kernel, headers, sources, tuple(own))


def _write_own(place: Path, files: Sequence[Path]) -> None:
    """Write C files in the layout of the kernel's build: one directory per module, as in the package."""
    for file in files:
        directory = place / file.stem
        directory.mkdir(parents=True)
        shutil.copy(file, directory)
        (directory / "Makefile").write_text(f"obj-m = {file.stem}.o\n")
    if files:
        (place / "Makefile").write_text(f"obj-m = {' '.join(f'{file.stem}/' for file in files)}\n")


def _build(source: Path, modules: Path) -> None:
    """Build all modules below `source`, next to the headers of one kernel, and add them to `modules`."""
    ours, own = source / f"linux-headers-{modules.name}", source / _OWN_PLACE
    places = [path for path in source.iterdir() if (path / "dkms.conf").is_file()]
    if not ours.is_dir() or len(places) != 1:
        raise TestbedError(f"{source}: no headers of Linux {modules.name} with the source of one set of modules")
    makefile = ours / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{source}/"))
    compiler = _COMPILER.search((ours / ".kernelvariables").read_text())
    for tool, package in ((compiler[1] if compiler else "gcc", ""), ("make", ""), ("strip", "binutils")):
        if run_tool(["sh", "-c", 'command -v "$0"', tool]).returncode:
            raise MissingError(f"there is no {tool} here, to build kernel modules: apt-get install {package or tool}")
    (modules / "updates").mkdir()
    for place in (*places, *((own,) if own.is_dir() else ())):
        _build_set(place, ours, modules)


def _build_set(place: Path, headers: Path, modules: Path) -> None:
    """Build the modules in subdirectories of `place`, and add them to `modules`."""
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    # Without the build directory, so that the same sources give the same module.
    flags = f"KCFLAGS=-ffile-prefix-map={place.parent}/="
    done = run_tool(["make", "-C", headers, f"M={place}", jobs, flags, "LDFLAGS_MODULE=--build-id=none", "modules"])
    if done.returncode:
        raise TestbedError(f"the modules of {place.name} were not built for Linux {modules.name}:\n{last_words(done)}")
    for built in sorted(place.glob("*/*.ko")):
        target = modules / "updates" / built.name
        stripped = run_tool(["strip", "--strip-debug", "-o", target, built])
        if stripped.returncode:
            raise TestbedError(f"{built.name} cannot be stripped:\n{last_words(stripped)}")
