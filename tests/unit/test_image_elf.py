"""The properties of ELF files, and the libraries that come with a program."""

import platform
import sys
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.images.elf import Elf
from netbench.images.programs import libraries
from netbench.images.tree import File, Node, Symlink, follow, merged
from tests.unit.image_files import AMD64, ARM64, PVH_NOTE, XEN_VERSION_NOTE, elf, module, program


def test_a_real_program_tells_its_linker_and_libraries():
    found = Elf(Path(sys.executable).resolve().read_bytes())
    assert found.architecture == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    assert found.interpreter is not None
    assert Path(found.interpreter).exists()
    assert any(name.startswith("libc.so") for name in found.needed)


def test_a_module_tells_what_it_needs_and_for_what_it_is():
    info = Elf(module("b", "c", aliases=["pci:v1*", "net-pf-1"], machine=ARM64)).modinfo
    assert info == (
        ("depends", "b,c"),
        ("vermagic", "6.1.0-test SMP mod_unload"),
        ("alias", "pci:v1*"),
        ("alias", "net-pf-1"),
    )
    assert Elf(module(machine=ARM64)).architecture == "arm64"
    assert Elf(module(machine=3)).architecture == "ELF machine 3"


def test_notes_are_told_by_owner_and_type_whatever_their_sizes():
    assert Elf(elf({".notes": XEN_VERSION_NOTE + PVH_NOTE})).notes == (("Xen", 5), ("Xen", 18))


def test_a_static_program_needs_nothing():
    found = Elf(elf({".text": b"code"}, AMD64))
    assert (found.needed, found.interpreter, found.modinfo, found.notes) == ((), None, (), ())


def test_damaged_files_are_told_as_damaged_wherever_they_end():
    whole = program(["libx.so.1"], "/lib/ld.so")
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="ELF file"):
            Elf(whole[:length])


def test_libraries_come_with_what_they_need_and_the_links_to_them():
    packages: dict[str, Node] = {
        "usr/bin/tool": File(program(["liba.so.1"], "/lib64/ld.so.2")),
        "usr/lib/x86_64-linux-gnu/liba.so.1": Symlink("liba.so.1.2"),
        "usr/lib/x86_64-linux-gnu/liba.so.1.2": File(program(["libb.so.0"])),
        "usr/lib/libb.so.0": File(program(["liba.so.1"])),
        "usr/lib64/ld.so.2": Symlink("/lib/x86_64-linux-gnu/ld.so"),
        "usr/lib/x86_64-linux-gnu/ld.so": File(program()),
        "usr/lib/x86_64-linux-gnu/libother.so.1": File(program()),
        "usr/lib/x86_64-linux-gnu/plugins/liba.so.1": File(program(["libmissing.so"])),
    }
    assert libraries(packages, {"usr/bin/tool": packages["usr/bin/tool"]}) == {
        path for path in packages if "tool" not in path and "other" not in path and "plugins" not in path
    }


def test_a_library_that_nobody_holds_is_named():
    with pytest.raises(TestbedError, match=r"usr/bin/tool needs libgone\.so\.3"):
        libraries({}, {"usr/bin/tool": File(program(["libgone.so.3"]))})


def test_paths_of_packages_are_those_of_a_merged_usr():
    assert merged("./bin/ip") == "usr/bin/ip"
    assert merged("/lib64/ld.so") == "usr/lib64/ld.so"
    assert merged("./usr/bin/ip") == "usr/bin/ip"
    assert merged("./library/x") == "library/x"


def test_links_are_followed_to_their_end_and_not_in_circles():
    tree: dict[str, Node] = {
        "usr/sbin/a": Symlink("../bin/b"),
        "usr/bin/b": Symlink("/bin/c"),
        "usr/bin/c": File(b""),
        "x": Symlink("x"),
    }
    assert follow(tree, "usr/sbin/a") == ["usr/sbin/a", "usr/bin/b", "usr/bin/c"]
    assert follow(tree, "x") == ["x"]
    assert follow(tree, "gone") == []
