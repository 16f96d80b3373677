"""Kernels that a user may choose, and those that are unsuitable for a guest."""

import bz2
import gzip
import lzma
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from netbench.errors import UsageError
from netbench.images.apt import Apt, Package
from netbench.images.kernels import KernelSource, choose_kernel, directly_bootable, read_kernel, uncompressed
from tests.unit.image_files import bzimage, compressed_kernel, elf, module, modules_tree

SOURCES = {
    "linux-image-amd64": ("linux-image-6.1.0-9-amd64", "linux-image-amd64", "initramfs-tools"),
    "busybox": ("busybox", "libc6"),
}
RELEASE = "6.1.0-test"


class FakeApt(Apt):
    """Package sources that contain only SOURCES."""

    def __init__(self):
        """Without a cache."""

    def resolve(self, names, chosen=()):
        return tuple(Package(name, "1", f"{name}_1_amd64.deb", "00") for source in names for name in SOURCES[source])


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "vmlinuz"
    path.write_bytes(bzimage())
    return path


@pytest.fixture
def modules(tmp_path):
    return modules_tree(tmp_path / RELEASE, {"kernel/pktgen.ko": module(), "kernel/virtio_pci.ko": module()})


def test_kernel_file_with_its_modules(kernel, modules, tmp_path):
    source = choose_kernel(str(kernel), modules, FakeApt(), "amd64")
    assert source == KernelSource(image=kernel, modules=modules)
    found = read_kernel(source, tmp_path / "root", "amd64")
    assert (found.release, found.image) == (RELEASE, kernel)
    assert (tmp_path / "root/usr/lib/modules" / RELEASE / "kernel/pktgen.ko").read_bytes() == module()


def test_another_module_is_another_input(kernel, modules):
    source = KernelSource(image=kernel, modules=modules)
    before = source.inputs()
    (modules / "kernel/pktgen.ko").write_bytes(module(aliases=["x"]))
    after = source.inputs()
    assert (before["image"], before["modules"] == after["modules"]) == (after["image"], False)


def test_kernel_package_goes_without_its_dependencies():
    source = choose_kernel("linux-image-amd64", None, FakeApt(), "amd64")
    assert [package.name for package in source.packages] == ["linux-image-6.1.0-9-amd64", "linux-image-amd64"]


def test_packaged_kernel_comes_with_its_modules(tmp_path):
    source = choose_kernel("linux-image-amd64", None, FakeApt(), "amd64")
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot" / f"vmlinuz-{RELEASE}").write_bytes(bzimage())
    with pytest.raises(UsageError, match="linux-image-amd64 has no kernel with its modules"):
        read_kernel(source, tmp_path, "amd64")
    modules_tree(tmp_path / "usr/lib/modules" / RELEASE, {})
    assert read_kernel(source, tmp_path, "amd64").release == RELEASE


@pytest.mark.parametrize(
    ("kernel", "modules", "complaint"),
    [
        ("busybox", None, "busybox is no kernel"),
        ("./none.deb", None, "no such file"),
        ("/boot/vmlinuz", None, "needs its modules: add --modules"),
        ("/none/vmlinuz", ".", "No such file or directory"),
        (__file__, ".", "is no kernel that boots here"),
        (__file__, "/none", "no such directory; --modules takes"),
    ],
)
def test_unsuitable_kernels_are_refused_with_the_remedy(kernel, modules, complaint):
    with pytest.raises(UsageError, match=complaint):
        choose_kernel(kernel, None if modules is None else Path(modules), FakeApt(), "amd64")


def test_kernels_of_other_machines_are_refused(kernel, modules):
    with pytest.raises(UsageError, match="no kernel that boots here"):
        choose_kernel(str(kernel), modules, FakeApt(), "arm64")
    kernel.write_bytes(bzimage(flags=0))
    with pytest.raises(UsageError, match="32-bit kernel"):
        choose_kernel(str(kernel), modules, FakeApt(), "amd64")


def test_arm64_kernel_has_the_release_of_its_modules(tmp_path, modules):
    image = tmp_path / "vmlinuz"
    image.write_bytes(b"MZ\0\0zimg" + bytes(100))
    source = choose_kernel(str(image), modules, FakeApt(), "arm64")
    assert read_kernel(source, tmp_path / "root", "arm64").release == RELEASE
    assert directly_bootable(image.read_bytes()) is None


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress, "zstd"])
def test_kernel_inside_a_bzimage_is_extracted_if_a_vmm_can_start_it(compress):
    plain, _ = compressed_kernel()
    if compress == "zstd":
        if shutil.which("zstd") is None:
            pytest.skip("needs zstd: apt-get install zstd")
        packed = subprocess.run(["zstd", "--stdout"], input=plain, capture_output=True, check=True).stdout
    else:
        packed = compress(plain)
    assert directly_bootable(bzimage(packed + struct.pack("<I", len(plain)))) == plain


def test_kernels_that_cannot_be_started_directly_stay_packed():
    assert directly_bootable(bzimage(compressed_kernel(notes=b"")[1])) is None
    assert directly_bootable(bzimage(compressed_kernel()[1][:40])) is None
    assert directly_bootable(bzimage(b"an unknown compression")) is None
    assert directly_bootable(elf({})) is None


def test_uncompressed_content_stays():
    assert uncompressed(b"plain") == b"plain"
    assert uncompressed(lzma.compress(b"data", lzma.FORMAT_ALONE)) == b"data"
