"""The modules of a guest: selected by modprobe, with the tables by which the guest's modprobe finds them."""

import gzip
import lzma
import shutil

import pytest

from netbench.errors import MissingError, UsageError
from netbench.images.apt import Apt, Package
from netbench.images.kernels import KernelSource, add_modules, build_modules, resolve_headers, select_modules
from netbench.images.recipe import load_recipe
from tests.unit.image_files import ARM64_WORD, module, modules_tree

pytestmark = pytest.mark.skipif(shutil.which("depmod", path="/usr/sbin:/sbin") is None, reason="apt-get install kmod")
RELEASE = "6.1.0-test"
MODULES = f"usr/lib/modules/{RELEASE}"
RECIPE = load_recipe("other").model_copy(
    update={"modules": {"tests": ("e1000", "phy-core", "virtio_pci", "vmxnet3")}, "required_modules": ("virtio_pci",)}
)


def make_root(directory, modules, builtin=()):
    modules_tree(directory / MODULES, modules, builtin)
    (directory / "lib").symlink_to("usr/lib")
    return directory


@pytest.fixture
def root(tmp_path):
    modules = {
        "kernel/net/e1000.ko": module(aliases=["pci:v8086*"]),
        "kernel/net/phy-core.ko.xz": lzma.compress(module("sums")),
        "kernel/net/unwanted.ko": module(),
    }
    return make_root(tmp_path / "root", modules, ["lib/sums", "drivers/virtio-pci"])


def select(root, recipe=RECIPE, architecture="amd64"):
    return select_modules(root, RELEASE, recipe, architecture)


def test_wanted_modules_are_selected_and_absent_ones_named(root):
    selection = select(root)
    assert [file.name for file in selection.files] == ["e1000.ko", "phy-core.ko.xz"]
    assert (selection.builtin, selection.absent) == (("virtio_pci",), ("phy-core", "vmxnet3"))


def test_guest_has_uncompressed_modules_and_tables_for_modprobe(root, tmp_path):
    tree = make_root(tmp_path / "tree", {})
    add_modules(select(root), root, tree, RELEASE)
    directory = tree / MODULES
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    tables = ["modules.alias", "modules.builtin", "modules.dep"]
    assert sorted(files) == ["kernel/net/e1000.ko", "kernel/net/phy-core.ko", *tables]
    assert all(path.read_bytes().startswith(b"\x7fELF") for name, path in files.items() if name.endswith(".ko"))
    assert files["modules.dep"].read_text() == "kernel/net/e1000.ko:\nkernel/net/phy-core.ko:\n"
    assert "alias pci:v8086* e1000\n" in files["modules.alias"].read_text()
    assert "kernel/drivers/virtio-pci.ko" in files["modules.builtin"].read_text()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"no module", "are damaged; depmod reports|is no kernel module"),
        (module(release="6.1.0-other"), r"e1000\.ko is a module of Linux 6\.1\.0-other, the kernel is Linux 6\.1\.0-t"),
        (module(words=ARM64_WORD), r"e1000\.ko is for another architecture, guests here are amd64"),
        (module("gone"), r"are incomplete: e1000\.ko needs gone"),
    ],
)
def test_unsuitable_modules_are_refused(root, content, complaint):
    (root / MODULES / "kernel/net/e1000.ko").write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        select(root)


def test_truncated_compressed_module_is_refused(root):
    (root / MODULES / "kernel/net/e1000.ko").unlink()
    (root / MODULES / "kernel/net/e1000.ko.gz").write_bytes(gzip.compress(module())[:-20])
    with pytest.raises(UsageError, match="are damaged|is no kernel module"):
        select(root)


def test_kernel_without_required_modules_is_refused(root, tmp_path):
    required = RECIPE.model_copy(update={"required_modules": ("virtio_pci", "virtio_console")})
    with pytest.raises(UsageError, match="has no virtio_console, neither as a module nor built in"):
        select(root, required)
    with pytest.raises(UsageError, match="has no modules"):
        select(make_root(tmp_path / "empty", {}))


class FakeApt(Apt):
    """Package sources with the headers of one kernel."""

    def __init__(self):
        """Without a cache."""

    def resolve(self, names, chosen=()):
        assert list(names) == ["linux-headers-6.1.0-9-amd64=6.1.1"]
        wanted = ("gcc-12", "linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-9-common", "linux-kbuild-6.1")
        return tuple(Package(name, "6.1.1", f"{name}.deb", "00") for name in wanted)


def test_modules_are_built_with_the_headers_of_the_very_kernel():
    names = ("linux-image-6.1.0-9-amd64", "linux-image-amd64")
    kernel = KernelSource(tuple(Package(name, "6.1.1", "", "00") for name in names))
    headers = [package.name for package in resolve_headers(kernel, FakeApt(), "x")]
    assert headers == ["linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-9-common", "linux-kbuild-6.1"]
    with pytest.raises(UsageError, match="image x: its modules are built for one kernel package"):
        resolve_headers(KernelSource(), FakeApt(), "x")


def test_missing_compiler_is_named_with_its_package(tmp_path):
    headers = tmp_path / "usr/src/linux-headers-6"
    headers.mkdir(parents=True)
    (headers / ".kernelvariables").write_text("CC = $(CROSS_COMPILE)gcc-99\n")
    with pytest.raises(MissingError, match="gcc-99 is missing: apt-get install gcc-99"):
        build_modules(tmp_path, "6", [])
