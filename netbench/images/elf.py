"""Reads ELF files: their architecture and named sections.

Little-endian 64-bit files only, as on the architectures of guest images. Layouts are those of elf(5).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<qQ")
_NOTE = struct.Struct("<III")
_DT_NULL, _DT_NEEDED = 0, 1
# Debian's names of the machines (e_machine) that guests are built for.
_MACHINES = {62: "amd64", 183: "arm64"}


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    content: bytes
    strings: int  # the index of the section with this one's names


class Elf:
    """One ELF file. ValueError when the bytes are not an ELF file, or damaged."""

    def __init__(self, content: bytes) -> None:
        if content[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a little-endian 64-bit ELF file")
        try:
            fields = _HEADER.unpack_from(content)
            self._machine = fields[2]
            self._sections = _sections(content, offset=fields[6], count=fields[12], names=fields[13])
        except (struct.error, IndexError):
            raise ValueError("a damaged ELF file") from None

    @property
    def architecture(self) -> str:
        """Debian's name of the architecture, or `ELF machine N`."""
        return _MACHINES.get(self._machine, f"ELF machine {self._machine}")

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the shared libraries it is linked against (DT_NEEDED); none for a static program."""
        return tuple(self._needed())

    @property
    def interpreter(self) -> str | None:
        """The path of its dynamic linker; None for a static program or a library."""
        section = self._section(".interp")
        return section.content.rstrip(b"\0").decode() if section else None

    @property
    def modinfo(self) -> tuple[tuple[str, str], ...]:
        """The information of a kernel module, as `modinfo` prints it: (key, value); keys may repeat."""
        section = self._section(".modinfo")
        entries = section.content.decode(errors="replace").split("\0") if section else []
        return tuple((key, value) for key, separator, value in (entry.partition("=") for entry in entries) if separator)

    @property
    def notes(self) -> tuple[tuple[str, int], ...]:
        """The owner and the type of each note in the section .notes, which Linux uses for them."""
        section = self._section(".notes")
        return tuple(_notes(section.content)) if section else ()

    def _needed(self) -> Iterator[str]:
        dynamic = self._section(".dynamic")
        if dynamic is None:
            return
        strings = self._sections[dynamic.strings].content
        for tag, value in _DYNAMIC.iter_unpack(dynamic.content):
            if tag == _DT_NULL:
                return
            if tag == _DT_NEEDED:
                yield _string(strings, value)

    def _section(self, name: str) -> _Section | None:
        return next((section for section in self._sections if section.name == name), None)


def _sections(content: bytes, offset: int, count: int, names: int) -> list[_Section]:
    headers = [_SECTION.unpack_from(content, offset + index * _SECTION.size) for index in range(count)]
    bodies = [content[header[4] : header[4] + header[5]] for header in headers]
    return [
        _Section(_string(bodies[names], header[0]), body, header[6])
        for header, body in zip(headers, bodies, strict=True)
    ]


def _notes(content: bytes) -> Iterator[tuple[str, int]]:
    at = 0
    while at + _NOTE.size <= len(content):
        name_bytes, description_bytes, kind = _NOTE.unpack_from(content, at)
        at += _NOTE.size
        yield content[at : at + name_bytes].rstrip(b"\0").decode(), kind
        at += sum(size + -size % 4 for size in (name_bytes, description_bytes))


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()
