"""The files of a guest: selected from unpacked packages with links and libraries, and archived reproducibly."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.images.initramfs import _follow, _libraries, _merged, archive
from netbench.images.recipe import GUEST, load_recipe

pytestmark = pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio: apt-get install cpio")


def make_tree(directory: Path, umask: int, time_s: int, *, is_reversed: bool) -> Path:
    """The same files with a umask and a time, written in either order."""
    before = os.umask(umask)
    try:
        names = ["a/tool", "a/data", "b"]
        for name in reversed(names) if is_reversed else names:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(name)
            os.utime(directory / name, (time_s, time_s))
        (directory / "a/tool").chmod(0o777 & ~umask)
        (directory / "link").symlink_to("a/tool")
        (directory / "var/log").mkdir(parents=True)
    finally:
        os.umask(before)
    return directory


def test_archive_depends_on_nothing_but_names_contents_and_executability(tmp_path):
    first = archive(make_tree(tmp_path / "1", 0o022, 0, is_reversed=False))
    assert archive(make_tree(tmp_path / "2", 0o077, 10**9, is_reversed=True)) == first
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["cpio", "-idm", "--quiet"], input=first, cwd=unpacked, check=True)
    modes = {name: (unpacked / name).lstat().st_mode & 0o777 for name in ("a", "a/tool", "a/data", "b", "var/log")}
    assert modes == {"a": 0o755, "a/tool": 0o755, "a/data": 0o644, "b": 0o644, "var/log": 0o755}
    assert ((unpacked / "link").readlink(), (unpacked / "b").stat().st_mtime) == (Path("a/tool"), 0)
    *_, last, end = first.split(b"070701")
    assert (last[104:].rstrip(b"\0"), b"TRAILER!!!" in end) == (b"var/log", True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("./bin/ip", "usr/bin/ip"),
        ("/lib64/ld.so", "usr/lib64/ld.so"),
        ("usr/bin/ip", "usr/bin/ip"),
        ("./libexec/x", "libexec/x"),
        ("./lib", "usr/lib"),
    ],
)
def test_paths_of_packages_are_those_of_a_merged_usr(path, expected):
    assert _merged(path) == expected


def test_links_are_followed_to_their_end_and_not_in_circles(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/tool").touch()
    links = {"absolute": "/bin/relative", "relative": "../bin/tool", "circle": "circle", "away": "/etc/none"}
    for name, target in links.items():
        (tmp_path / "usr/bin" / name).symlink_to(target)
    assert _follow(tmp_path, "usr/bin/absolute") == [f"usr/bin/{name}" for name in ("absolute", "relative", "tool")]
    assert _follow(tmp_path, "usr/bin/circle") == ["usr/bin/circle"]
    assert _follow(tmp_path, "usr/bin/away") == ["usr/bin/away"]
    assert _follow(tmp_path, "usr/bin/none") == []


@pytest.fixture
def root(tmp_path):
    """This machine's `ls`, its libraries and the dynamic linker as unpacked packages."""
    (linker,) = Path("/usr/lib").glob("*-linux-gnu/ld-linux-*.so.?")
    listed = subprocess.run(["ldd", "/bin/ls"], capture_output=True, text=True, check=True).stdout
    libraries = [line.split()[2] for line in listed.splitlines() if " => " in line]
    for path in (str(linker), "/usr/bin/ls", *libraries):
        target = tmp_path / _merged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (tmp_path / "usr/bin/script").write_text("#!/bin/sh\n")
    return tmp_path


def test_libraries_are_those_of_the_packages_whatever_this_machine_has(root):
    (selinux,) = root.glob("usr/lib/*/libselinux.so.1")
    (pcre,) = root.glob("usr/lib/*/libpcre2-8.so.*")
    found = _libraries(root, ["usr/bin/ls", "usr/bin/script"])
    assert {str(selinux.relative_to(root)), str(pcre.relative_to(root))} <= found
    assert all((root / path).is_file() for path in found)
    pcre.unlink()
    with pytest.raises(TestbedError, match=r"usr/bin/ls needs libpcre2-8\.so\..*, which none of the guest's packages"):
        _libraries(root, ["usr/bin/ls"])


@pytest.mark.parametrize("name", ["micro", "lab", "tester", "virtualbox", "xen"])
def test_recipes_are_complete(name):
    recipe = load_recipe(name)
    assert {"busybox-static", "python3-minimal"} <= set(recipe.packages)
    assert set(recipe.required_modules) <= {module for modules in recipe.modules.values() for module in modules}
    for file in (*recipe.built_sources, *([recipe.start] if recipe.start else [])):
        assert (GUEST / file).is_file()
    assert (recipe.digest == load_recipe("other").digest) == (name == "micro")
