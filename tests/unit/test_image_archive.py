"""Archives of a guest's files: what is in a package, and the initramfs that is written."""

import os
import shutil
import stat
import subprocess

import pytest

from netbench.errors import UsageError
from netbench.images.debs import contents, control_field, unpack_kernel
from netbench.images.tree import DeviceNode, Directory, File, Node, Symlink, archive

TREE: dict[str, Node] = {
    "init": File(b"#!/bin/sh\n", executable=True),
    "usr/lib/x/data": File(b"12345"),
    "bin": Symlink("usr/bin"),
    "dev/console": DeviceNode(5, 1),
    "var/log": Directory(),
}


def test_the_first_entry_byte_for_byte():
    fields = [1, 0o120777, 0, 0, 1, 0, 7, 0, 0, 0, 0, 4, 0]
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    assert archive(TREE).startswith(header + b"bin\0" + b"\0\0" + b"usr/bin\0" + b"070701")


def test_the_order_of_a_tree_does_not_matter():
    assert archive(dict(reversed(TREE.items()))) == archive(TREE)


@pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox: apt-get install busybox-static")
def test_an_archive_unpacks_to_the_tree(tmp_path):
    without_devices = {path: node for path, node in TREE.items() if not isinstance(node, DeviceNode)}
    unpack = ["busybox", "cpio", "-idm", "--quiet"]
    subprocess.run(unpack, input=archive(without_devices), cwd=tmp_path, check=True)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        *("bin", "init", "usr", "usr/lib", "usr/lib/x", "usr/lib/x/data", "var", "var/log")
    ]
    assert (tmp_path / "bin").readlink().name == "bin"
    assert (tmp_path / "usr/lib/x/data").read_bytes() == b"12345"
    for path, mode in (("init", 0o755), ("usr/lib/x/data", 0o644), ("usr/lib", 0o755), ("var/log", 0o755)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode, path
    assert (tmp_path / "init").stat().st_mtime == 0


@pytest.fixture
def make_deb(tmp_path):
    """Build a package of a tree of files, with any umask and time."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb")

    def make(name, umask=0o022, mtime=0):
        root = tmp_path / name
        before = os.umask(umask)
        try:
            for path, content in {
                "DEBIAN/control": "Package: p\nVersion: 1\nArchitecture: amd64\nMaintainer: m\nDescription: d\n",
                "bin/tool": "tool",
                "boot/vmlinuz-6": "kernel",
                "lib/modules/6/a.ko": "module",
                "usr/share/doc/p/copyright": "text",
            }.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
                os.utime(root / path, (mtime, mtime))
            for directory in (root, root / "DEBIAN"):
                directory.chmod(0o755)
            (root / "bin/tool").chmod(0o777 & ~umask)
            (root / "usr/lib").mkdir()
            (root / "usr/lib/alias").symlink_to("../../bin/tool")
            (root / "usr/lib/twin").hardlink_to(root / "bin/tool")
        finally:
            os.umask(before)
        deb = tmp_path / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, deb], check=True, capture_output=True)
        return deb

    return make


def test_the_contents_of_a_package_in_a_merged_usr_without_its_documentation(make_deb):
    tool = File(b"tool", executable=True)
    assert contents(make_deb("p")) == {
        "boot/vmlinuz-6": File(b"kernel"),
        "usr/bin/tool": tool,
        "usr/lib/alias": Symlink("../../bin/tool"),
        "usr/lib/modules/6/a.ko": File(b"module"),
        "usr/lib/twin": tool,
    }


def test_the_same_files_give_the_same_image_whatever_their_times_and_modes(make_deb):
    first, second = (contents(make_deb("a")), contents(make_deb("b", umask=0o077, mtime=1_000_000_000)))
    assert archive(first) == archive(second)


def test_kernel_and_modules_of_a_package_are_unpacked_and_nothing_else(make_deb, tmp_path):
    unpack_kernel(make_deb("p"), tmp_path / "out")
    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files == {"boot/vmlinuz-6", "usr/lib/modules/6/a.ko"}


def test_fields_of_a_package(make_deb):
    assert control_field(make_deb("p"), "Architecture") == "amd64"


def test_what_is_no_package_is_told_in_words_of_dpkg(make_deb, tmp_path):
    whole = make_deb("p").read_bytes()
    damaged = tmp_path / "damaged.deb"
    for content in (b"", b"no package", whole[:-300]):
        damaged.write_bytes(content)
        with pytest.raises(UsageError, match=r"damaged\.deb cannot be read as a Debian package"):
            contents(damaged)
