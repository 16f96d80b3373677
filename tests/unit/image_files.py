"""Small files of the kinds in guest images: ELF files, kernels, module trees."""

import gzip
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

AMD64 = 62  # e_machine of ELF
ARM64_WORD = "aarch64"
PVH_NOTE = struct.pack("<III", 4, 4, 18) + b"Xen\0" + struct.pack("<I", 0x1000)
XEN_VERSION_NOTE = struct.pack("<III", 4, 5, 5) + b"Xen\0" + b"xen-3\0\0\0"


def elf(sections: Mapping[str, bytes]) -> bytes:
    """Return an ELF file with these sections."""
    names = ["", *sections, ".shstrtab"]
    table = b"\0".join(name.encode() for name in names) + b"\0"
    bodies = [b"", *sections.values(), table]
    offsets, at = [], 64
    for body in bodies:
        offsets.append(at)
        at += len(body)
    headers = b"".join(
        struct.pack("<IIQQQQIIQQ", table.index(f"{name}\0".encode()), 1, 0, 0, offset, len(body), 0, 0, 1, 0)
        for name, offset, body in zip(names, offsets, bodies, strict=True)
    )
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, AMD64, 1, 0, 0, at, 0, 64, 0, 0, 64, len(names), len(names) - 1)
    return header + b"".join(bodies) + headers


def module(*depends: str, aliases: Sequence[str] = (), release: str = "6.1.0-test", words: str = "") -> bytes:
    """A kernel module; `words` end its version magic."""
    info = [
        f"depends={','.join(depends)}",
        f"vermagic={release} SMP mod_unload {words}",
        *(f"alias={alias}" for alias in aliases),
    ]
    return elf({".modinfo": b"".join(f"{entry}\0".encode() for entry in info)})


def modules_tree(directory: Path, modules: Mapping[str, bytes], builtin: Sequence[str] = ()) -> Path:
    """A directory /lib/modules/RELEASE, with these files by their paths."""
    for path, content in modules.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in builtin))
    return directory


def bzimage(payload: bytes = b"", release: str = "6.1.0-test", flags: int = 1) -> bytes:
    """An x86 kernel with this compressed payload."""
    head = bytearray(1024)  # the boot sector and one sector of setup code
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x300 - 0x200)
    struct.pack_into("<H", head, 0x236, flags)
    struct.pack_into("<II", head, 0x248, 16, len(payload))
    text = f"{release} (someone@somewhere) #1\0".encode()
    head[0x300 : 0x300 + len(text)] = text
    return bytes(head) + b"unpacker".ljust(16, b"\0") + payload + b"more"


def compressed_kernel(notes: bytes = XEN_VERSION_NOTE + PVH_NOTE) -> tuple[bytes, bytes]:
    """Return a kernel as an ELF file, and compressed as in a bzImage, followed by its size."""
    plain = elf({".text": b"code", ".notes": notes})
    return plain, gzip.compress(plain, mtime=0) + struct.pack("<I", len(plain))
