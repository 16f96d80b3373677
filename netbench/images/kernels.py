"""The kernel chosen by the user: a package, a .deb, or a file with its modules."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netbench.errors import UsageError
from netbench.images.apt import Apt, Package
from netbench.images.debs import control_field, unpack_kernel
from netbench.images.library import content_digest, file_digest
from netbench.images.modules import ModuleSelection, select
from netbench.images.recipe import REQUIRED, WANTED

# The x86 boot protocol (Documentation/arch/x86/boot.rst): a magic, the offset of the version text, a flag "64 bit".
_X86_MAGIC, _X86_MAGIC_OFFSET = b"HdrS", 0x202
_X86_VERSION_OFFSET, _X86_FLAGS_OFFSET = 0x20E, 0x236
# Documentation/arch/arm64/booting.rst; Debian's are compressed, or an EFI program around a compressed one.
_ARM64_MAGICS = ((0x38, b"ARM\x64"), (0, b"\x1f\x8b"), (4, b"zimg"))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A checked kernel: its bytes, and its modules that go into the guest."""

    release: str
    content: bytes
    selection: ModuleSelection


class KernelSource(Protocol):
    """The origin of a kernel."""

    def inputs(self) -> dict[str, object]:
        """Return the inputs that determine whether an image is up to date, as JSON values."""

    def packages(self) -> tuple[Package, ...]:
        """Return the packages to download first."""

    def files(self, directory: Path) -> tuple[Path, Path]:
        """Return the kernel and the directory of its modules, unpacked below `directory` if necessary."""


@dataclass(frozen=True, slots=True)
class PackagedKernel:
    """A kernel of one of the machine's package sources."""

    apt: Apt
    found: tuple[Package, ...]

    def inputs(self) -> dict[str, object]:
        """Return the packages' versions and hashes."""
        return {"packages": [[package.name, package.version, package.sha256] for package in self.found]}

    def packages(self) -> tuple[Package, ...]:
        """Return the kernel packages without their dependencies, such as boot loader hooks."""
        return self.found

    def files(self, directory: Path) -> tuple[Path, Path]:
        """Unpack and return the kernel and its modules."""
        for package in self.found:
            unpack_kernel(self.apt.path(package), directory)
        return _unpacked(directory, ", ".join(package.name for package in self.found))


@dataclass(frozen=True, slots=True)
class DebKernel:
    """A kernel package as a file, such as one built by `make bindeb-pkg`."""

    deb: Path

    def inputs(self) -> dict[str, object]:
        """Return the package's hash."""
        return {"deb": file_digest(self.deb)}

    def packages(self) -> tuple[Package, ...]:
        """Return no packages."""
        return ()

    def files(self, directory: Path) -> tuple[Path, Path]:
        """Unpack and return the kernel and its modules."""
        unpack_kernel(self.deb, directory)
        return _unpacked(directory, str(self.deb))


@dataclass(frozen=True, slots=True)
class FileKernel:
    """A kernel file on this machine, with the directory of its modules."""

    image: Path
    modules: Path

    def inputs(self) -> dict[str, object]:
        """Return the hashes of the kernel and of the modules that would go into a guest."""
        contents = (module.content for module in _selection(self.modules).modules)
        return {"image": file_digest(self.image), "modules": content_digest(*contents)}

    def packages(self) -> tuple[Package, ...]:
        """Return no packages."""
        return ()

    def files(self, directory: Path) -> tuple[Path, Path]:
        """Return both paths unchanged."""
        return self.image, self.modules


def choose(kernel: str, modules: Path | None, apt: Apt, architecture: str) -> KernelSource:
    """Return the kernel that `--kernel` and `--modules` select; UsageError where it cannot be a guest's kernel."""
    path = Path(kernel)
    if modules is not None:
        if not modules.is_dir():
            raise UsageError(f"{modules}: no such directory; --modules takes /lib/modules/RELEASE of that kernel")
        _check_image(path, architecture)
        return FileKernel(path, modules)
    if kernel.endswith(".deb"):
        if not path.is_file():
            raise UsageError(f"{kernel}: no such file; --kernel takes a package, a .deb, or a kernel with --modules")
        built_for = control_field(path, "Architecture")
        if built_for != architecture:
            raise UsageError(f"{kernel} is for {built_for}, guests here are {architecture}; choose a kernel for that")
        return DebKernel(path)
    if "/" in kernel:
        raise UsageError(f"{kernel}: a kernel file needs its modules: add --modules /lib/modules/RELEASE")
    closure = apt.resolve([kernel], chosen=[kernel])
    # Ubuntu's modules are in separate packages.
    packages = tuple(package for package in closure if package.name.startswith(("linux-image-", "linux-modules-")))
    if not packages:
        raise UsageError(f"{kernel} is no kernel: --kernel takes a package such as linux-image-cloud-{architecture}")
    return PackagedKernel(apt, packages)


def read_kernel(source: KernelSource, directory: Path, architecture: str, besides: Iterable[str] = ()) -> Kernel:
    """Return the kernel and its modules, including the extra modules `besides`.

    UsageError where they are not for guests here, or do not match each other.
    """
    image, modules = source.files(directory)
    release = _check_image(image, architecture)
    selection = _selection(modules, besides)
    for module in selection.modules:
        if module.architecture != architecture:
            raise UsageError(f"{modules}: {module.name} is for {module.architecture}, guests here are {architecture}")
        release = release or module.release
        if module.release != release:
            raise UsageError(
                f"{modules}: {module.name} is a module of Linux {module.release}, {image} is Linux {release}; "
                f"name the directory of modules that belongs to the kernel"
            )
    return Kernel(release or modules.name, image.read_bytes(), selection)


def _selection(modules: Path, besides: Iterable[str] = ()) -> ModuleSelection:
    return select(modules, (*(name for names in WANTED.values() for name in names), *besides), REQUIRED)


def _unpacked(directory: Path, source: str) -> tuple[Path, Path]:
    """Return the paths of a package's unpacked kernel (Debian: boot/vmlinuz-RELEASE) and modules."""
    for image in sorted(directory.glob("boot/vmlinu[xz]-*")):
        release = image.name.partition("-")[2]
        modules = directory / "usr" / "lib" / "modules" / release
        if modules.is_dir():
            return image, modules
    raise UsageError(f"{source} holds no kernel with its modules (boot/vmlinuz-RELEASE, lib/modules/RELEASE)")


def _check_image(image: Path, architecture: str) -> str | None:
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
        f"{image} is no kernel that boots here ({architecture}): --kernel takes the file that a boot loader would "
        "(vmlinuz, bzImage)"
    )


def _at(content: bytes, offset: int, magic: bytes) -> bool:
    return content[offset : offset + len(magic)] == magic
