"""The kernel chosen by the user: a package, a .deb, or a file with its modules.

A kernel takes seconds to unpack itself on an emulated CPU. A VMM can start an unpacked kernel by the PVH entry point
that Linux has for Xen (CONFIG_PVH; include/xen/interface/elfnote.h; Documentation/arch/x86/boot.rst describes the place
of the compressed kernel).
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import UsageError
from netbench.images.apt import Apt, Package, package_file
from netbench.images.library import content_digest, file_digest
from netbench.images.tools import run_tool

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
