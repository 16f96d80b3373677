"""Kernels that a user may choose, and those that are unsuitable for a guest."""

from pathlib import Path

import pytest

from netbench.errors import UsageError
from netbench.images.apt import Apt, Package
from netbench.images.compression import directly_bootable
from netbench.images.kernels import FileKernel, PackagedKernel, choose, read_kernel
from tests.unit.image_files import ARM64, bzimage, compressed_kernel, elf, module, modules_tree

SOURCES = {
    "linux-image-amd64": ("linux-image-6.1.0-9-amd64", "linux-image-amd64", "initramfs-tools"),
    "busybox": ("busybox", "libc6"),
}


class FakeApt(Apt):
    """Package sources that contain only SOURCES."""

    def __init__(self):
        """Without a cache."""

    def resolve(self, names, chosen=()):
        return tuple(Package(name, "1", f"{name}_1_amd64.deb", 1, "00") for source in names for name in SOURCES[source])


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "vmlinuz"
    path.write_bytes(bzimage())
    return path


@pytest.fixture
def modules(tmp_path):
    files = {f"kernel/{name}.ko": module() for name in ("virtio_pci", "virtio_console", "pktgen")}
    return modules_tree(tmp_path / "6.1.0-test", files)


def test_a_kernel_file_with_its_modules(kernel, modules, tmp_path):
    source = choose(str(kernel), modules, FakeApt(), "amd64")
    assert source == FileKernel(kernel, modules)
    found = read_kernel(source, tmp_path / "scratch", "amd64")
    assert (found.release, found.content) == ("6.1.0-test", kernel.read_bytes())
    assert sorted(selected.name for selected in found.selection.modules) == ["pktgen", "virtio_console", "virtio_pci"]


def test_another_content_of_a_module_is_another_input(kernel, modules):
    before = FileKernel(kernel, modules).inputs()
    (modules / "kernel/pktgen.ko").write_bytes(module(aliases=["x"]))
    after = FileKernel(kernel, modules).inputs()
    assert (before["image"], before["modules"] == after["modules"]) == (after["image"], False)


def test_a_kernel_package_goes_without_what_it_depends_on():
    source = choose("linux-image-amd64", None, FakeApt(), "amd64")
    assert isinstance(source, PackagedKernel)
    assert [package.name for package in source.packages()] == ["linux-image-6.1.0-9-amd64", "linux-image-amd64"]


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
def test_what_is_no_kernel_is_refused_with_what_to_do(kernel, modules, complaint):
    with pytest.raises(UsageError, match=complaint):
        choose(kernel, None if modules is None else Path(modules), FakeApt(), "amd64")


def test_kernels_of_other_machines_are_refused(kernel, modules):
    with pytest.raises(UsageError, match="no kernel that boots here"):
        choose(str(kernel), modules, FakeApt(), "arm64")
    kernel.write_bytes(bzimage(flags=0))
    with pytest.raises(UsageError, match="32-bit kernel"):
        choose(str(kernel), modules, FakeApt(), "amd64")


def test_modules_of_another_kernel_or_machine_are_refused(kernel, modules, tmp_path):
    (modules / "kernel/pktgen.ko").write_bytes(module(release="6.1.0-other"))
    with pytest.raises(UsageError, match=r"pktgen is a module of Linux 6\.1\.0-other.* is Linux 6\.1\.0-test"):
        read_kernel(FileKernel(kernel, modules), tmp_path, "amd64")
    (modules / "kernel/pktgen.ko").write_bytes(module(machine=ARM64))
    with pytest.raises(UsageError, match="pktgen is for arm64, guests here are amd64"):
        read_kernel(FileKernel(kernel, modules), tmp_path, "amd64")


def test_an_arm64_kernel_is_known_by_its_modules(tmp_path):
    image = tmp_path / "vmlinuz"
    image.write_bytes(b"MZ\0\0zimg" + bytes(100))
    files = {f"kernel/{name}.ko": module(machine=ARM64) for name in ("virtio_pci", "virtio_console")}
    found = read_kernel(FileKernel(image, modules_tree(tmp_path / "R", files)), tmp_path, "arm64")
    assert (found.release, directly_bootable(found.content)) == ("6.1.0-test", None)


def test_the_kernel_inside_a_bzimage_is_found_where_a_vmm_can_start_it():
    plain, packed = compressed_kernel()
    assert directly_bootable(bzimage(packed)) == plain


def test_kernels_that_cannot_be_started_directly_stay_packed():
    assert directly_bootable(bzimage(compressed_kernel(notes=b"")[1])) is None
    assert directly_bootable(bzimage(compressed_kernel()[1][:40])) is None
    assert directly_bootable(bzimage(b"an unknown compression")) is None
    assert directly_bootable(elf({})) is None
