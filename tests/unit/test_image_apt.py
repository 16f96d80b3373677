"""Packages as apt prints them, and its errors as messages for users."""

import hashlib

import pytest

from netbench.errors import MissingError, UsageError
from netbench.images.apt import Apt, Package, parse_uris

DEB = b"a package"
HASH = hashlib.sha256(DEB).hexdigest()
URI = f"'http://deb.debian.org/pool/b/b_1.2.deb' b_1%3a1.2_amd64.deb {len(DEB)} SHA256:{HASH} \n"
PACKAGE = Package("b", "1:1.2", "b_1%3a1.2_amd64.deb", len(DEB), HASH)


@pytest.fixture
def lists(tmp_path):
    directory = tmp_path / "lists"
    directory.mkdir()
    (directory / "deb.debian.org_main_binary-amd64_Packages.lz4").touch()
    return directory


@pytest.fixture
def apt_get(tmp_path, monkeypatch):
    """Replace apt-get by a script; its arguments are in the file that it writes."""

    def become(script):
        program = tmp_path / "bin" / "apt-get"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return tmp_path / "called"

    return become


def test_packages_are_read_from_what_apt_prints():
    more = f"'http://x/liba.deb' liba_2_all.deb 100 SHA256:{'0' * 64} \nReading package lists...\n"
    assert parse_uris(f"{URI}{more}") == (PACKAGE, Package("liba", "2", "liba_2_all.deb", 100, "0" * 64))


def test_packages_are_asked_for_without_recommendations(tmp_path, lists, apt_get):
    called = apt_get(f"cat <<'E'\n{URI}E")
    assert Apt(tmp_path / "cache", lists).resolve(["b", "c=1"]) == (PACKAGE,)
    assert "--no-install-recommends install -- b c=1" in called.read_text()


def test_a_package_the_user_chose_and_nobody_has_is_a_usage_error(tmp_path, lists, apt_get):
    apt_get("echo 'E: Unable to locate package mine' >&2; exit 100")
    with pytest.raises(UsageError, match=r"mine: apt has no such package(.|\n)*E: Unable to locate package mine"):
        Apt(tmp_path / "cache", lists).resolve(["b", "mine"], chosen=["mine"])
    with pytest.raises(MissingError, match="apt cannot find what guests are made of"):
        Apt(tmp_path / "cache", lists).resolve(["mine"])


def test_a_machine_without_lists_gets_private_ones(tmp_path, apt_get):
    cache = tmp_path / "cache"
    called = apt_get(f"case $* in *update*) touch {cache}/lists/x_Packages ;; *) cat <<'E'\n{URI}E\nesac")
    (tmp_path / "empty").mkdir()
    assert Apt(cache, tmp_path / "empty").resolve(["b"]) == (PACKAGE,)
    assert [line.split()[-1] for line in called.read_text().splitlines()] == ["update", "b"]
    assert f'Dir::State::lists "{cache}/lists/"' in (cache / "apt.conf").read_text()


def test_no_lists_and_no_network_say_what_to_do(tmp_path, apt_get):
    apt_get("echo 'E: Temporary failure resolving' >&2")
    with pytest.raises(MissingError, match=r"run `apt-get update`(.|\n)*Temporary failure resolving"):
        Apt(tmp_path / "cache", tmp_path / "none").resolve(["b"])


def test_downloads_are_kept_and_damaged_ones_fetched_again(tmp_path, lists, apt_get):
    apt = Apt(tmp_path / "cache", lists)
    called = apt_get(f"printf '{DEB.decode()}' >'{PACKAGE.file}'")
    assert apt.missing([PACKAGE]) == [PACKAGE]
    apt.download([PACKAGE])
    assert apt.missing([PACKAGE]) == []
    apt.path(PACKAGE).write_bytes(b"damaged")
    assert apt.missing([PACKAGE]) == [PACKAGE]
    apt.download([PACKAGE])
    assert apt.path(PACKAGE).read_bytes() == DEB
    assert called.read_text().count("download -- b=1:1.2") == 2


def test_a_download_that_is_not_what_was_promised_is_not_kept(tmp_path, lists, apt_get):
    apt = Apt(tmp_path / "cache", lists)
    apt_get(f"printf 'something else' >'{PACKAGE.file}'; echo 'E: 404 Not Found' >&2; exit 100")
    with pytest.raises(MissingError, match=r"1 of 1 packages were not downloaded(.|\n)*404 Not Found"):
        apt.download([PACKAGE])
    assert list((tmp_path / "cache" / "packages").iterdir()) == []


def test_a_machine_without_apt_says_so(tmp_path, lists, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="there is no apt-get here: guest images are made from Debian packages"):
        Apt(tmp_path / "cache", lists).resolve(["b"])
