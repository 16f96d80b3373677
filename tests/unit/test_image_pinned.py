"""Packages known by path and checksum, and modules that are built for a kernel."""

import hashlib
from pathlib import Path

import pytest

from netbench.errors import MissingError, UsageError
from netbench.images import pinned
from netbench.images.apt import Apt, Package
from netbench.images.built_modules import with_built_modules
from netbench.images.kernels import FileKernel, PackagedKernel
from netbench.images.pinned import fetch_pins, missing_pins, parse_pins, pinned_files
from netbench.images.recipe import LABS, OWN_MODULES

DEB = b"a package"
HASH = hashlib.sha256(DEB).hexdigest()
PATH = "pool/main/a/a/a_1.2_amd64.deb"
PINS = {PATH: HASH}


@pytest.fixture
def helper(tmp_path, monkeypatch):
    """A script in the place of apt's helper; called with its options, then `download-file URI FILE HASH`."""

    def become(script):
        program = tmp_path / "apt-helper"
        program.write_text(f'#!/bin/sh\necho "$3" >>{tmp_path}/asked\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setattr(pinned, "_HELPER", str(program))
        return tmp_path / "asked"

    return become


def test_a_list_is_read_as_sha256sum_does():
    assert parse_pins(f"# of today\n\n{HASH}  {PATH}\n") == PINS
    assert pinned_files(PINS, Path("/c")) == {"a": Path("/c/a_1.2_amd64.deb")}


def test_what_is_there_is_not_fetched_and_what_is_damaged_is(tmp_path, helper):
    asked = helper(f"printf '{DEB.decode()}' >\"$4\"")
    file = tmp_path / "a_1.2_amd64.deb"
    file.write_bytes(b"damaged")
    fetch_pins(PINS, missing_pins(PINS, tmp_path), tmp_path, "image x")
    assert file.read_bytes() == DEB
    assert missing_pins(PINS, tmp_path) == []
    assert asked.read_text() == f"http://deb.debian.org/debian/{PATH}\n"


def test_what_the_archive_has_no_more_is_looked_for_where_all_is_kept(tmp_path, helper):
    asked = helper(f"case $3 in *snapshot*) printf '{DEB.decode()}' >\"$4\" ;; *) exit 100 ;; esac")
    fetch_pins(PINS, [PATH], tmp_path, "image x")
    assert len(asked.read_text().splitlines()) == 2
    assert missing_pins(PINS, tmp_path) == []


def test_what_nobody_has_or_is_another_file_is_missing(tmp_path, helper):
    helper("echo 'E: 404  Not Found' >&2; exit 100")
    with pytest.raises(MissingError, match=r"image x: a_1.2_amd64.deb cannot be had(.|\n)*404"):
        fetch_pins(PINS, [PATH], tmp_path, "image x")
    helper('echo another >"$4"')
    with pytest.raises(MissingError, match="cannot be had"):
        fetch_pins(PINS, [PATH], tmp_path, "image x")
    assert not list(tmp_path.glob(".fetched*"))


def test_the_image_virtualbox_has_sources_and_programs_of_one_version():
    lab = LABS["virtualbox"]
    files = pinned_files(lab.pinned, Path("/c"))
    programs, sources = (files[name].name.split("_")[1] for name in ("virtualbox", lab.builds))
    assert programs == sources
    assert all(len(digest) == 64 for digest in lab.pinned.values())
    assert {source.stem for source in OWN_MODULES} <= set(lab.modules)
    assert all(f"modprobe {source.stem}" in lab.start for source in OWN_MODULES)


def test_modules_are_built_against_headers_of_the_very_kernel(tmp_path):
    class Fake(Apt):
        def resolve(self, names, chosen=()):
            assert list(names) == ["linux-headers-6.1.0-9-amd64=6.1.1"]
            wanted = ("gcc-12", "linux-headers-6.1.0-9-amd64", "linux-headers-6.1.0-9-common", "linux-kbuild-6.1")
            return tuple(Package(name, "6.1.1", f"{name}.deb", 1, HASH) for name in wanted)

    apt = Fake(tmp_path)
    found = tuple(Package(name, "6.1.1", "", 1, HASH) for name in ("linux-image-6.1.0-9-amd64", "linux-image-amd64"))
    own = tmp_path / "own.c"
    own.write_text("1")
    made = with_built_modules(PackagedKernel(apt, found), Path("/c/dkms.deb"), apt, "x", [own])
    assert [package.name for package in made.packages()[2:]] == [
        "linux-headers-6.1.0-9-amd64",
        "linux-headers-6.1.0-9-common",
        "linux-kbuild-6.1",
    ]
    before = made.inputs()
    own.write_text("2")
    assert made.inputs() != before, "another module is another image"
    with pytest.raises(UsageError, match="image x: modules are built for it"):
        with_built_modules(FileKernel(Path("/k"), Path("/m")), Path("/c/dkms.deb"), apt, "x")
