"""The kernel chosen by the user, a package, a .deb, or a file; and the kernel modules of a guest.

Modules are selected by modprobe, with tables written by depmod; or they are built from sources, with the headers of
Debian's package of the kernel, unpacked and not installed.

A kernel takes seconds to unpack itself on an emulated CPU. A VMM can start an unpacked kernel by the PVH entry point
that Linux has for Xen (CONFIG_PVH; include/xen/interface/elfnote.h; Documentation/arch/x86/boot.rst describes the place
of the compressed kernel).
"""

import os
import re
import shutil
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import MissingError, UsageError
from netbench.images.apt import Apt, Package, package_file
from netbench.images.library import (
    Completed,
    content_digest,
    file_digest,
    last_words,
    missing_tool,
    require_output,
    run_tool,
)
from netbench.images.recipe import BUILD_MODULES, Recipe

MODULES = Path("usr/lib/modules")

# The x86 boot protocol (Documentation/arch/x86/boot.rst).
_X86_MAGIC, _X86_MAGIC_OFFSET = b"HdrS", 0x202
_X86_VERSION_OFFSET, _X86_FLAGS_OFFSET = 0x20E, 0x236
_SETUP_SECTORS_OFFSET, _PAYLOAD_OFFSET, _SECTOR_BYTES = 0x1F1, 0x248, 512
# Documentation/arch/arm64/booting.rst; Debian's are compressed, or an EFI program around a compressed one.
_ARM64_MAGICS = ((0x38, b"ARM\x64"), (0, b"\x1f\x8b"), (4, b"zimg"))
# An ELF note of owner "Xen" and type XEN_ELFNOTE_PHYS32_ENTRY, with an address of 4 or 8 bytes.
_PVH_NOTE = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")
_DECOMPRESSORS = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"\x5d\0\0": "lzma",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
}


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The origin of a kernel: packages without their dependencies, or a file and the directory of its modules."""

    packages: tuple[Package, ...] = ()
    image: Path | None = None
    modules: Path | None = None

    def inputs(self) -> dict[str, object]:
        """Return the inputs that determine whether an image is up to date, as JSON values."""
        if self.image is None or self.modules is None:
            return {"packages": [[package.name, package.version, package.sha256] for package in self.packages]}
        files = sorted(path for path in self.modules.rglob("*.ko*") if path.is_file())
        digests = "".join(f"{path.relative_to(self.modules)} {file_digest(path)}\n" for path in files)
        return {"image": file_digest(self.image), "modules": content_digest(digests.encode())}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A checked kernel image, and its release: that of its modules in usr/lib/modules of the unpacked packages."""

    release: str
    image: Path


def choose_kernel(kernel: str, modules: Path | None, apt: Apt, architecture: str) -> KernelSource:
    """Return the kernel that `--kernel` and `--modules` select; UsageError where it cannot be a guest's kernel."""
    path = Path(kernel)
    if modules is not None:
        if not modules.is_dir():
            raise UsageError(f"{modules}: no such directory; --modules takes /lib/modules/RELEASE of that kernel")
        _image_release(path, architecture)
        return KernelSource(image=path, modules=modules)
    if kernel.endswith(".deb"):
        return KernelSource((package_file(path, architecture),))
    if "/" in kernel:
        raise UsageError(f"{kernel}: a kernel file needs its modules: add --modules /lib/modules/RELEASE")
    closure = apt.resolve([kernel], chosen=[kernel])
    # Ubuntu's modules are in separate packages.
    packages = tuple(package for package in closure if package.name.startswith(("linux-image-", "linux-modules-")))
    if not packages:
        raise UsageError(f"{kernel} is no kernel: --kernel takes a package such as linux-image-cloud-{architecture}")
    return KernelSource(packages)


def read_kernel(source: KernelSource, root: Path, architecture: str) -> Kernel:
    """Return the kernel in the unpacked packages `root`, or that of a file, whose modules are copied there.

    UsageError where guests here cannot boot it, or it comes without modules.
    """
    if source.image is not None and source.modules is not None:
        release = _image_release(source.image, architecture) or source.modules.resolve().name
        target = root / MODULES / release
        for path in (
            *source.modules.rglob("*.ko*"),
            source.modules / "modules.builtin",
            source.modules / "modules.order",
        ):
            if path.is_file():
                copy = target / path.relative_to(source.modules)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
        return Kernel(release, source.image)
    for image in sorted(root.glob("boot/vmlinu[xz]-*")):
        release = image.name.partition("-")[2]
        if (root / MODULES / release).is_dir():
            _image_release(image, architecture)
            return Kernel(release, image)
    names = ", ".join(str(package.path or package.name) for package in source.packages)
    raise UsageError(f"{names} has no kernel with its modules (boot/vmlinuz-RELEASE, lib/modules/RELEASE)")


def uncompressed(content: bytes) -> bytes:
    """Return `content` decompressed, or unchanged when it is in no known format; data after it is ignored."""
    tool = next((tool for magic, tool in _DECOMPRESSORS.items() if content.startswith(magic)), None)
    return run_tool([tool, "--decompress", "--stdout"], stdin=content).stdout if tool else content


def directly_bootable(kernel: bytes) -> bytes | None:
    """Return the uncompressed kernel (an ELF file) in a bzImage; None where it has none that a VMM can start."""
    if not _at(kernel, _X86_MAGIC_OFFSET, _X86_MAGIC):
        return None
    offset, size = struct.unpack_from("<II", kernel, _PAYLOAD_OFFSET)
    start = (kernel[_SETUP_SECTORS_OFFSET] + 1) * _SECTOR_BYTES + offset
    content = uncompressed(kernel[start : start + size])
    # The kernel's build appends the size before compression.
    is_whole = struct.pack("<I", len(content)) == kernel[start + size - 4 : start + size]
    return content if is_whole and _PVH_NOTE.search(content) else None


def _image_release(image: Path, architecture: str) -> str | None:
    """Return the release of a kernel image, if it has one; UsageError where this architecture cannot boot it."""
    try:
        with image.open("rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise UsageError(f"{image}: {error.strerror}; --kernel takes a package, a .deb, or a kernel file") from None
    is_x86 = _at(head, _X86_MAGIC_OFFSET, _X86_MAGIC)
    if architecture == "amd64" and is_x86:
        (flags,) = struct.unpack_from("<H", head, _X86_FLAGS_OFFSET)
        if not flags & 1:
            raise UsageError(f"{image} is a 32-bit kernel, guests here are {architecture}")
        (pointer,) = struct.unpack_from("<H", head, _X86_VERSION_OFFSET)
        return head[pointer + 0x200 :].split(b"\0")[0].decode(errors="replace").partition(" ")[0]
    if architecture == "arm64" and not is_x86 and any(_at(head, *magic) for magic in _ARM64_MAGICS):
        return None
    raise UsageError(
        f"{image} is no kernel that boots here ({architecture}): --kernel takes the file of a boot loader "
        "(vmlinuz, bzImage)"
    )


def _at(content: bytes, offset: int, magic: bytes) -> bool:
    return content[offset : offset + len(magic)] == magic


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
