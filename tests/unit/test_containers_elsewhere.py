"""Containers on another machine: their files, processes and programs are those of that machine, not of this one."""

import gzip
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.errors import MachineGoneError, MissingError, TestbedError, UsageError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.images.initramfs import archive
from netbench.images.library import SHELF, Image
from netbench.images.on_host import root_on
from netbench.linux.proc import is_there, memory_of, processes_of
from netbench.linux.requirements import Command, Facility, require_on_host
from netbench.model.stream_paths import stream_paths
from netbench.vmm import boot_disc
from netbench.vmm.container.container import Container, ContainerOptions
from netbench.vmm.container.runtime import Root
from tests.breakages import load_shipped
from tests.unit.fakes import NetbenchCopied

ON_SSH = stream_paths(load_shipped("netns-ssh"))


class Elsewhere(NetbenchCopied, LocalHost):
    """A machine whose files only the host reaches, with netbench installed; `ran` lists the commands."""

    def __init__(self, scratch: Path) -> None:
        super().__init__("far", "no-run")
        self.scratch = str(scratch)
        self.ran: list[Sequence[str]] = []

    @property
    def shares_files(self) -> bool:
        return False

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        self.ran.append(argv)
        return super().run(argv, stdin=stdin, timeout_s=timeout_s)


class Gone(Elsewhere):
    """A machine that does not answer any more."""

    def read(self, path: str) -> str:
        raise MachineGoneError("gone")


class Burning(Elsewhere):
    """A machine whose xorriso makes empty CDs."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        made = ["touch", argv[argv.index("-o") + 1]] if argv[0] == "xorriso" else argv
        return super().run(made, stdin=stdin, timeout_s=timeout_s)


@pytest.fixture
def far(tmp_path):
    return Elsewhere(tmp_path)


def test_the_root_of_a_container_is_made_of_what_is_there(far, tmp_path):
    (source := tmp_path / "its files").mkdir()
    for name in ("usr", "etc", "home"):
        (source / name).mkdir()
    (source / "bin").symlink_to("usr/bin of it")
    (source / "sbin").touch()
    root = Root.found(far, source)
    assert root == Root(source, ("etc", "usr"), (("bin", "usr/bin of it"),))
    root.lay_out(far, tmp_path / "made")
    made = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*")}
    assert made == {"bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/log", "var/tmp"}
    assert (tmp_path / "made" / "bin").readlink() == Path("usr/bin of it")
    assert Root.found(far, tmp_path / "gone") == Root(tmp_path / "gone"), "as on most machines"
    with pytest.raises(TestbedError, match="host far: `mkdir -p .*sbin/dev.* failed"):
        root.lay_out(far, source / "sbin")


def test_an_image_is_unpacked_there_once(far, tmp_path):
    for path in ("more/usr/bin/more", "tree/usr/bin/tool", "tree/etc/os-release"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(Path(path).name)
    (tmp_path / "tree/usr/bin/tool").chmod(0o755)
    (tmp_path / "tree/bin").symlink_to("usr/bin")
    (shelf := tmp_path / "tree" / SHELF).mkdir(parents=True)
    (shelf / "more.cpio.gz").write_bytes(gzip.compress(archive(tmp_path / "more")))
    (initrd := tmp_path / "initrd").write_bytes(archive(tmp_path / "tree"))
    image = Image("x", tmp_path, initrd, initrd, initrd, "6.1", "x86_64", "0123456789abcdef", {})
    root = root_on(image, far)
    assert root == tmp_path / "images" / "0123456789ab" / "root"
    assert [(root / path).read_text() for path in ("bin/tool", "bin/more", "etc/hostname")] == ["tool", "more", ""]
    assert os.access(root / "bin" / "tool", os.X_OK)
    before = len(far.ran)
    assert root_on(image, far) == root
    assert not any("sh" in argv for argv in far.ran[before:])
    initrd.write_bytes(b"no archive")
    with pytest.raises(TestbedError, match="host far: `sh -c"):
        root_on(replace(image, digest="f" * 16), far)


def test_a_cd_is_made_there_once_and_goes_with_all_that_was_brought(tmp_path, monkeypatch):
    for name in ("isolinux.bin", "ldlinux.c32", "kernel"):
        (tmp_path / name).write_bytes(b"one")
    monkeypatch.setattr(boot_disc, "LOADER", (str(tmp_path / "isolinux.bin"), str(tmp_path / "ldlinux.c32")))
    far = Burning(tmp_path)
    kernel = tmp_path / "kernel"
    image = Image("x", tmp_path, kernel, kernel, kernel, "6.1", "x86_64", "0123456789abcdef", {})
    disc = Path(boot_disc.disc_of(image, "words", far, tmp_path / "of the guest"))
    assert disc.parent == Path(far.scratch, "discs")
    assert list(disc.parent.iterdir()) == [disc]
    before = len(far.ran)
    assert boot_disc.disc_of(image, "words", far, tmp_path / "of the next guest") == str(disc)
    assert len(far.ran) == before + 1, "it is only looked for"


def test_processes_are_those_of_that_machine(far, tmp_path):
    own = next(process for process in processes_of(far) if process.pid == os.getpid())
    assert (own.parent, own.state in "RS") == (os.getppid(), True)
    assert is_there(far, os.getpid())
    assert not is_there(far, 2**22 + 1)
    with pytest.raises(MachineGoneError):
        is_there(Gone(tmp_path), os.getpid())
    for pid, kib in ((1, 10), (7, 5)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "smaps_rollup").write_text(f"Rss: 900 kB\nPss: {kib} kB\n")
    assert memory_of(far, str(tmp_path)) == 15 * 1024
    assert memory_of(far, str(tmp_path / "none")) is None


def test_what_that_machine_has_not_is_reported_with_the_package(far):
    there = Command("sh", "dash", "tests")
    require_on_host(far, [there])
    lacking = [there, Command("no-such-lxc", "lxc", "tests"), Command("no-such-crun", "crun", "tests")]
    with pytest.raises(MissingError, match="^host far has no no-such-lxc, no-such-crun: install lxc, crun there"):
        require_on_host(far, lacking)
    signs = ("sh", "/usr/bin/no-such* /bin/s?")  # one of two patterns is enough
    require_on_host(far, [Facility("shell", "tests", "", str, signs=signs, packages=("dash",))])
    of_libvirt = Facility("lxc", "tests", "", str, signs=("sh", "/no/such-*.so"), packages=("libvirt-x", "libvirt-y"))
    with pytest.raises(MissingError, match=r"^host far has no /no/such-\*\.so: install libvirt-x, libvirt-y there"):
        require_on_host(far, [of_libvirt])
    by_hand = Facility("a kernel", "tests", "boot another kernel", str, signs=("/no/such", "/no/other"))
    with pytest.raises(MissingError, match="^host far has no /no/such, /no/other: boot another kernel$"):
        require_on_host(far, [there, by_hand])
    with pytest.raises(MissingError, match="install lxc there .*; boot another kernel$"):
        require_on_host(far, [lacking[1], by_hand])


def test_a_directory_of_that_machine_is_looked_at_there(far, tmp_path):
    elsewhere = Container(ContainerOptions.model_validate({"root": "image", "image": "/only/there"}))
    with pytest.raises(UsageError, match="there is no directory /only/there for the root of a container"):
        elsewhere.check(stream_paths(load_shipped("netns")))
    elsewhere.check(ON_SSH)
    with pytest.raises(TestbedError, match="host far: image: there is no directory /only/there"):
        elsewhere._source(far)
    (tmp_path / "link").symlink_to("/usr")
    by_link = ContainerOptions.model_validate({"root": "image", "image": str(tmp_path / "link")})
    assert Container(by_link)._source(far) == Path("/usr")
