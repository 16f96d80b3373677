"""Packages as apt prints them, downloads by checksum, packages unpacked by mmdebstrap, and errors for users."""

import hashlib
import shutil
import subprocess

import pytest

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.images import apt as apt_module
from netbench.images.apt import Apt, Package, package_file, parse_pins, parse_uris

DEB = b"a package"
HASH = hashlib.sha256(DEB).hexdigest()
URI = f"'http://deb.debian.org/pool/b/b_1.2.deb' b_1%3a1.2_amd64.deb {len(DEB)} SHA256:{HASH} \n"
PACKAGE = Package("b", "1:1.2", "b_1%3a1.2_amd64.deb", HASH, ("http://deb.debian.org/pool/b/b_1.2.deb",), len(DEB))
PINS = parse_pins(f"# of today\n\n{HASH}  pool/main/a/a/a_1.2_amd64.deb\n")


@pytest.fixture
def lists(tmp_path):
    directory = tmp_path / "lists"
    directory.mkdir()
    (directory / "deb.debian.org_main_binary-amd64_Packages.lz4").touch()
    return directory


@pytest.fixture
def apt_get(tmp_path, monkeypatch):
    """Replace apt-get and apt-helper by a script; its arguments are in the file that it writes."""

    def become(script):
        program = tmp_path / "bin" / "apt-get"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setattr(apt_module, "_HELPER", str(program))
        return tmp_path / "called"

    return become


def test_apt_output_is_parsed():
    more = f"'http://x/liba.deb' liba_2_all.deb 100 SHA256:{'0' * 64} \nReading package lists...\n"
    assert parse_uris(f"{URI}{more}") == (
        PACKAGE,
        Package("liba", "2", "liba_2_all.deb", "0" * 64, ("http://x/liba.deb",), 100),
    )


def test_pinned_packages_are_at_the_archive_or_its_snapshot():
    (pin,) = PINS
    assert (pin.name, pin.version, pin.file, pin.sha256) == ("a", "1.2", "a_1.2_amd64.deb", HASH)
    assert [uri.endswith("/pool/main/a/a/a_1.2_amd64.deb") for uri in pin.uris] == [True, True]
    assert "snapshot" in pin.uris[1]


def test_packages_are_resolved_without_recommendations(tmp_path, lists, apt_get):
    called = apt_get(f"cat <<'E'\n{URI}E")
    assert Apt(tmp_path / "cache", lists).resolve(["b", "c=1"]) == (PACKAGE,)
    assert "--no-install-recommends install -- b c=1" in called.read_text()


def test_unavailable_package_is_a_usage_error_if_the_user_chose_it(tmp_path, lists, apt_get):
    apt_get("echo 'E: Unable to locate package mine' >&2; exit 100")
    with pytest.raises(UsageError, match=r"mine: apt has no such package(.|\n)*E: Unable to locate package mine"):
        Apt(tmp_path / "cache", lists).resolve(["b", "mine"], chosen=["mine"])
    with pytest.raises(MissingError, match="apt cannot find the packages of guests"):
        Apt(tmp_path / "cache", lists).resolve(["mine"])


def test_machine_without_lists_gets_private_ones(tmp_path, apt_get):
    cache = tmp_path / "cache"
    called = apt_get(f"case $* in *update*) touch {cache}/lists/x_Packages ;; *) cat <<'E'\n{URI}E\nesac")
    (tmp_path / "empty").mkdir()
    assert Apt(cache, tmp_path / "empty").resolve(["b"]) == (PACKAGE,)
    assert [line.split()[-1] for line in called.read_text().splitlines()] == ["update", "b"]
    assert f'Dir::State::lists "{cache}/lists/"' in (cache / "apt.conf").read_text()


def test_no_lists_and_no_network(tmp_path, apt_get):
    apt_get("echo 'E: Temporary failure resolving' >&2")
    with pytest.raises(MissingError, match=r"run `apt-get update`(.|\n)*Temporary failure resolving"):
        Apt(tmp_path / "cache", tmp_path / "none").resolve(["b"])


def test_downloads_are_kept_and_damaged_ones_fetched_again(tmp_path, lists, apt_get):
    apt = Apt(tmp_path / "cache", lists)
    called = apt_get(f"printf '{DEB.decode()}' >\"$5\"")
    for _ in range(2):
        assert apt.missing([PACKAGE]) == [PACKAGE]
        apt.download([PACKAGE])
        assert (apt.missing([PACKAGE]), apt.path(PACKAGE).read_bytes()) == ([], DEB)
        apt.path(PACKAGE).write_bytes(b"damaged")
    assert called.read_text().count(f"download-file {PACKAGE.uris[0]}") == 2


def test_package_that_left_the_archive_comes_from_the_snapshot(tmp_path, lists, apt_get):
    apt = Apt(tmp_path / "cache", lists)
    called = apt_get(f"case $4 in *snapshot*) printf '{DEB.decode()}' >\"$5\" ;; *) exit 100 ;; esac")
    apt.download(PINS)
    assert (apt.missing(PINS), len(called.read_text().splitlines())) == ([], 2)


@pytest.mark.parametrize("packages", [[PACKAGE], PINS])
def test_download_with_another_checksum_is_not_kept(tmp_path, lists, apt_get, packages):
    apt = Apt(tmp_path / "cache", lists)
    apt_get("printf 'something else' >\"$5\"; echo 'E: 404 Not Found' >&2; exit 100")
    with pytest.raises(MissingError, match=r"1 of 1 packages were not downloaded(.|\n)*404 Not Found"):
        apt.download(packages)
    assert list((tmp_path / "cache" / "packages").iterdir()) == []


def test_machine_without_apt(tmp_path, lists, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="apt-get is missing: guest images are built from Debian packages"):
        Apt(tmp_path / "cache", lists).resolve(["b"])


@pytest.fixture
def deb(tmp_path):
    """A package file in a directory whose name has a space."""
    source = tmp_path / "of a package"
    for path, content in {
        "DEBIAN/control": "Package: p\nVersion: 1:2\nArchitecture: amd64\nDepends: q\nMaintainer: m\nDescription: d\n",
        "bin/tool": "tool",
        "lib/modules/6/a.ko": "module",
    }.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(content)
    for directory in (source, source / "DEBIAN"):
        directory.chmod(0o755)
    (source / "usr/lib").mkdir(parents=True)
    (source / "usr/lib/alias").symlink_to("../../bin/tool")
    file = tmp_path / "of a package.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", source, file], check=True, capture_output=True)
    return file


@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="needs mmdebstrap: apt-get install mmdebstrap")
def test_package_is_unpacked_without_its_dependencies_to_a_merged_usr(tmp_path, lists, deb):
    apt = Apt(tmp_path / "cache", lists)
    package = package_file(deb, "amd64")
    assert (package.name, package.version, package.file) == ("p", "1:2", "p_1%3A2_amd64.deb")
    assert apt.missing([package]) == []
    (parent := tmp_path / "un packed").mkdir()
    apt.unpack([package], parent / "root")
    files = {path: (parent / "root/usr" / path).read_text() for path in ("bin/tool", "lib/modules/6/a.ko")}
    assert files == {"bin/tool": "tool", "lib/modules/6/a.ko": "module"}
    links = {name: str((parent / "root" / name).readlink()) for name in ("bin", "lib", "usr/lib/alias")}
    assert links == {"bin": "usr/bin", "lib": "usr/lib", "usr/lib/alias": "../../bin/tool"}
    deb.write_bytes(deb.read_bytes()[:-1])
    with pytest.raises(TestbedError, match="the packages were not unpacked; mmdebstrap reports"):
        apt.unpack([package], parent / "again")


def test_unsuitable_package_files_are_refused(tmp_path, deb):
    with pytest.raises(UsageError, match="is for amd64, guests here are arm64"):
        package_file(deb, "arm64")
    deb.write_bytes(b"no package")
    with pytest.raises(UsageError, match=r"cannot be read as a Debian package. dpkg-deb reports"):
        package_file(deb, "amd64")
    with pytest.raises(UsageError, match="no such file"):
        package_file(tmp_path / "none.deb", "amd64")
