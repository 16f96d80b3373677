"""Which modules go into a guest, and the tables by which modprobe finds them."""

import bz2
import gzip
import lzma
import shutil
import subprocess

import pytest

from netbench.errors import UsageError
from netbench.images.compression import uncompressed
from netbench.images.modules import module_files, select
from netbench.images.tree import File
from tests.unit.image_files import module, modules_tree


@pytest.fixture
def directory(tmp_path):
    modules = {
        "kernel/net/e1000.ko": module("phy-core", aliases=["pci:v8086*"]),
        "kernel/net/phy-core.ko.xz": lzma.compress(module("bits", "crc")),
        "kernel/lib/bits.ko.gz": gzip.compress(module("crc")),
        "kernel/lib/crc.ko": module("sums"),
        "kernel/net/unwanted.ko": module(),
    }
    return modules_tree(tmp_path / "6.1.0-test", modules, builtin=["lib/sums", "drivers/virtio-pci"])


def test_wanted_modules_come_after_what_they_depend_on_and_uncompressed(directory):
    selection = select(directory, ["e1000", "virtio_pci", "vmxnet3"], required=["virtio_pci"])
    assert [selected.name for selected in selection.modules] == ["crc", "bits", "phy_core", "e1000"]
    assert (selection.builtin, selection.absent) == (("virtio_pci",), ("vmxnet3",))
    assert all(selected.content.startswith(b"\x7fELF") for selected in selection.modules)
    assert {selected.release for selected in selection.modules} == {"6.1.0-test"}


def test_the_tables_are_what_modprobe_reads(directory):
    tree = module_files(select(directory, ["e1000", "virtio_pci"]), "usr/lib/modules/R")
    assert sorted(tree) == [
        *(f"usr/lib/modules/R/kernel/{path}.ko" for path in ("lib/bits", "lib/crc", "net/e1000", "net/phy-core")),
        *(f"usr/lib/modules/R/modules.{table}" for table in ("alias", "builtin", "dep")),
    ]
    assert tree["usr/lib/modules/R/modules.dep"] == File(
        b"kernel/lib/bits.ko: kernel/lib/crc.ko\n"
        b"kernel/lib/crc.ko:\n"
        b"kernel/net/e1000.ko: kernel/net/phy-core.ko kernel/lib/bits.ko kernel/lib/crc.ko\n"
        b"kernel/net/phy-core.ko: kernel/lib/bits.ko kernel/lib/crc.ko\n"
    )
    assert tree["usr/lib/modules/R/modules.alias"] == File(b"alias pci:v8086* e1000\n")
    assert tree["usr/lib/modules/R/modules.builtin"] == File(b"kernel/virtio_pci.ko\n")


def test_a_kernel_without_what_a_guest_is_reached_by_is_refused(directory):
    with pytest.raises(UsageError, match="has no virtio_console, neither as a module nor built in"):
        select(directory, [], required=["virtio_pci", "virtio_console"])


def test_directories_that_are_no_kernels_or_damaged_are_refused(tmp_path, directory):
    with pytest.raises(UsageError, match="holds no kernel modules"):
        select(tmp_path / "nothing", ["e1000"])
    (directory / "kernel/lib/crc.ko").write_bytes(b"no module")
    with pytest.raises(UsageError, match=r"crc\.ko is no kernel module"):
        select(directory, ["e1000"])
    (directory / "kernel/lib/crc.ko").unlink()
    with pytest.raises(UsageError, match="bits depends on crc, which is not there"):
        select(directory, ["e1000"])
    (directory / "kernel/net/phy-core.ko.xz").write_bytes(lzma.compress(b"x" * 1000)[:-20])
    with pytest.raises(UsageError, match=r"phy-core\.ko\.xz is no kernel module"):
        select(directory, ["e1000"])


@pytest.mark.parametrize(
    "compress", [gzip.compress, lzma.compress, bz2.compress, lambda data: lzma.compress(data, lzma.FORMAT_ALONE), bytes]
)
def test_every_compression_of_kernels_is_undone_and_what_follows_left_out(compress):
    data = b"kernel " * 1000
    behind = b"" if compress is bytes else b"\x58\x1b\0\0"
    assert uncompressed(compress(data) + behind) == data


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd: apt-get install zstd")
def test_zstd_is_undone_by_its_command():
    data = b"kernel " * 1000
    packed = subprocess.run(["zstd", "--stdout"], input=data, capture_output=True, check=True).stdout
    assert uncompressed(packed + b"\x58\x1b\0\0") == data
