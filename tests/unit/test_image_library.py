"""Images that were built: where they are, and how damaged ones are reported."""

import hashlib
import json
from pathlib import Path

import pytest

from netbench.errors import MissingError, UsageError
from netbench.images.library import DEFAULT_IMAGE, Image, cache_directory, find_image, list_images


@pytest.fixture
def make(tmp_path):
    def image(name=DEFAULT_IMAGE):
        directory = tmp_path / "images" / name
        directory.mkdir(parents=True)
        contents = {"vmlinux": b"plain", "vmlinuz": b"packed", "initrd": b"files!"}
        for file, content in contents.items():
            (directory / file).write_bytes(content)
        files = {
            file: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for file, content in contents.items()
        }
        known = {"kernel": "vmlinux", "kernel_release": "6.1", "architecture": "amd64", "digest": "d1", "files": files}
        (directory / "manifest.json").write_text(json.dumps(known))
        return directory

    return image


def test_an_image_that_was_built_is_found(make, tmp_path):
    directory = make()
    image = find_image("micro", tmp_path)
    assert (image.name, image.directory, image.digest, image.size) == ("micro", directory, "d1", 17)
    assert (image.kernel_release, image.architecture) == ("6.1", "amd64")
    files = (image.kernel, image.vmlinuz, image.initrd)
    assert [path.read_bytes() for path in files] == [b"plain", b"packed", b"files!"]


@pytest.mark.parametrize(("name", "command"), [("micro", "build`"), ("cloud", "build --name cloud`")])
def test_an_image_that_is_not_there_comes_with_the_command_that_builds_it(tmp_path, name, command):
    with pytest.raises(MissingError, match=f"{name!r} is not built.* run `netbench image {command}"):
        find_image(name, tmp_path)


def test_every_damage_is_found_and_reported(make, tmp_path):
    directory = make()
    whole = {path.name: path.read_bytes() for path in directory.iterdir()}
    manifest = json.loads(whole["manifest.json"])
    damages = [
        ("initrd", b"files?"),
        ("initrd", b""),
        ("vmlinux", b"plai"),
        ("vmlinuz", None),
        ("manifest.json", b"{"),
        ("manifest.json", b"\xff"),
        ("manifest.json", b"[]"),
        ("manifest.json", json.dumps({**manifest, "files": {"initrd": 5}}).encode()),
        *(("manifest.json", json.dumps({k: v for k, v in manifest.items() if k != key}).encode()) for key in manifest),
    ]
    for name, content in damages:
        if content is None:
            (directory / name).unlink()
        else:
            (directory / name).write_bytes(content)
        with pytest.raises(MissingError, match=rf"is damaged: .*{name} has changed; run `netbench image"):
            find_image("micro", tmp_path)
        (directory / name).write_bytes(whole[name])
    assert find_image("micro", tmp_path).digest == "d1"


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "-option", "a b"])
def test_names_that_would_be_paths_or_options_are_refused(name, tmp_path):
    with pytest.raises(UsageError, match="is no name of an image"):
        find_image(name, tmp_path)


def test_all_images_are_listed_and_damaged_ones_reported(make, tmp_path):
    for name in ("micro", "cloud", "broken"):
        make(name)
    make(".building-x")
    (tmp_path / "images" / "broken" / "initrd").unlink()
    found = list_images(tmp_path)
    assert [entry.name for entry in found if isinstance(entry, Image)] == ["cloud", "micro"]
    assert ["'broken' is damaged" in str(entry) for entry in found if not isinstance(entry, Image)] == [True]
    assert list_images(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("user", "environment", "expected"),
    [
        (0, {"NETBENCH_CACHE": "/n"}, "/n"),
        (1000, {"NETBENCH_CACHE": "/n", "XDG_CACHE_HOME": "/x"}, "/n"),
        (0, {"XDG_CACHE_HOME": "/x"}, "/var/cache/netbench"),
        (1000, {"XDG_CACHE_HOME": "/x"}, "/x/netbench"),
        (1000, {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/netbench"),
        (1000, {}, "/home/me/.cache/netbench"),
    ],
)
def test_where_images_are_kept(monkeypatch, user, environment, expected):
    for name in ("NETBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert cache_directory() == Path(expected)
