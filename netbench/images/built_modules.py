"""A kernel with modules that are built for it here, from sources in a Debian package (usr/src/NAME-VERSION, for DKMS).

They are built against the headers of Debian's own package of that kernel, which are unpacked and not installed.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.images.apt import Apt, Package
from netbench.images.debs import contents
from netbench.images.kernels import KernelSource, PackagedKernel
from netbench.images.programs import write_files
from netbench.images.tools import last_words, run_tool

_IMAGE = "linux-image-"
_COMPILER = re.compile(r"^CC = .*?(gcc-\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BuiltModules:
    """A packaged kernel with the modules that the package `sources`, a file, has the source of."""

    kernel: PackagedKernel
    headers: tuple[Package, ...]
    sources: Path

    def inputs(self) -> dict[str, object]:
        """Those of the kernel, and the headers' versions and hashes."""
        return {**self.kernel.inputs(), "headers": [[one.name, one.version, one.sha256] for one in self.headers]}

    def packages(self) -> tuple[Package, ...]:
        """The kernel and its headers."""
        return (*self.kernel.packages(), *self.headers)

    def files(self, directory: Path) -> tuple[Path, Path]:
        """The kernel and its modules, unpacked, with those that were built among them."""
        image, modules = self.kernel.files(directory)
        apt, tree = self.kernel.apt, directory / "build"
        for package in self.headers:
            write_files(tree, contents(apt.path(package)))
        write_files(tree, contents(self.sources))
        _build(tree / "usr" / "src", modules)
        return image, modules


def with_built_modules(kernel: KernelSource, sources: Path, apt: Apt, name: str) -> BuiltModules:
    """That kernel with modules built for it; UsageError where it has no headers that apt knows."""
    found = kernel.found if isinstance(kernel, PackagedKernel) else ()
    images = [one for one in found if re.match(rf"{_IMAGE}\d", one.name)]
    if not isinstance(kernel, PackagedKernel) or len(images) != 1:
        raise UsageError(f"image {name}: modules are built for it, which needs one kernel of Debian's with its headers")
    release = images[0].name.removeprefix(_IMAGE).removesuffix("-unsigned")
    wanted = f"linux-headers-{release}={images[0].version}"
    closure = apt.resolve([wanted], chosen=[wanted])
    # Without the compiler that they depend on: it is to be on this machine.
    headers = tuple(one for one in closure if one.name.startswith(("linux-headers-", "linux-kbuild-")))
    return BuiltModules(kernel, headers, sources)


def _build(source: Path, modules: Path) -> None:
    """Build all modules that lie below `source`, beside headers of one kernel, and put them among `modules`."""
    ours = source / f"linux-headers-{modules.name}"
    places = [path for path in source.iterdir() if (path / "dkms.conf").is_file()]
    if not ours.is_dir() or len(places) != 1:
        raise TestbedError(f"{source}: no headers of Linux {modules.name} with the source of one set of modules")
    makefile = ours / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{source}/"))
    compiler = _COMPILER.search((ours / ".kernelvariables").read_text())
    for tool, package in ((compiler[1] if compiler else "gcc", ""), ("make", ""), ("strip", "binutils")):
        if run_tool(["sh", "-c", 'command -v "$0"', tool]).returncode:
            raise MissingError(f"there is no {tool} here, to build kernel modules: apt-get install {package or tool}")
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    # Nothing of where it is built, so that the same sources give the same module.
    flags = f"KCFLAGS=-ffile-prefix-map={source}/="
    done = run_tool(["make", "-C", ours, f"M={places[0]}", jobs, flags, "LDFLAGS_MODULE=--build-id=none", "modules"])
    if done.returncode:
        raise TestbedError(
            f"the modules of {places[0].name} were not built for Linux {modules.name}:\n{last_words(done)}"
        )
    (modules / "updates").mkdir()
    for built in sorted(places[0].glob("*/*.ko")):
        target = modules / "updates" / built.name
        stripped = run_tool(["strip", "--strip-debug", "-o", target, built])
        if stripped.returncode:
            raise TestbedError(f"{built.name} cannot be stripped:\n{last_words(stripped)}")
