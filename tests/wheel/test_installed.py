"""netbench as users install it: from a wheel, outside of any checkout, under the Pythons of Debian's releases."""

import csv
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from netbench.errors import MissingError
from netbench.images.library import DEFAULT_IMAGE, cache_directory, find_image
from tests.commands import FEW, settings, verdict_of
from tests.wheel.debian import Unavailable, entering, root_of

# The first run makes a root from downloaded packages.
pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

CHECKOUT = Path(__file__).parents[2]
# The sources of a wheel.
SOURCES = ("netbench", "topologies", "pktgen-profiles", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
PYTHONS = {"bookworm": "Python 3.11", "trixie": "Python 3.13"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from copies, because a build leaves files beside the sources and uses those of earlier builds."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, source / name)
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={source / 'dist'}"]
    subprocess.run([*pip_wheel, source], check=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


class Installed:
    """netbench in its own virtual environment, and a working directory."""

    def __init__(self, inside: list[str], directory: Path) -> None:
        self._inside = inside
        self.directory = directory

    def run(self, *arguments: object) -> str:
        """The output of a command, which must succeed."""
        # With the PATH of a login, and without Python's other variables.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*self._inside, "env", "-C", self.directory, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def netbench(self, *arguments: object) -> str:
        """The output of netbench."""
        return self.run(self.directory / "venv/bin/netbench", *arguments)


@pytest.fixture(scope="module")
def installed_under(wheel):
    """Installs netbench under the Python of a release, once: that of this machine if it runs that release."""
    with tempfile.TemporaryDirectory(prefix="nbt-wheel-") as name:
        there: dict[str, Installed | Unavailable] = {}

        def installed(release: str) -> Installed:
            if release not in there:
                try:
                    there[release] = _install(wheel, release, Path(name, release))
                except Unavailable as error:
                    there[release] = error
            if isinstance(found := there[release], Unavailable):
                raise found
            return found

        yield installed


def _install(wheel: Path, release: str, directory: Path) -> Installed:
    directory.mkdir()
    shutil.copy(wheel, directory)
    inside = [] if is_release_of_this_machine(release) else entering(root_of(release), directory)
    there = Installed(inside, directory)
    assert there.run("/usr/bin/python3", "--version").startswith(PYTHONS[release])
    there.run("/usr/bin/python3", "-m", "venv", directory / "venv")
    there.run(directory / "venv/bin/pip", "install", "--quiet", "--no-compile", directory / wheel.name)
    return there


def is_release_of_this_machine(release: str) -> bool:
    return platform.freedesktop_os_release().get("VERSION_CODENAME") == release


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request, installed_under):
    """netbench under the Python of a release."""
    try:
        return installed_under(request.param)
    except Unavailable as error:
        pytest.skip(str(error))  # where Debian's archive cannot be reached; with CI=true it fails


@pytest.fixture
def installed_elsewhere(installed_under):
    """netbench under the Python of another Debian release, or of this machine if there is no other."""
    for release in sorted(PYTHONS, key=is_release_of_this_machine):
        try:
            return installed_under(release)
        except Unavailable as error:
            reason = str(error)
    pytest.skip(reason)  # as above, for every release


def test_it_lists_what_came_with_it(installed):
    listed = installed.netbench("list")
    for name in [path.stem for kind in ("topologies", "pktgen-profiles") for path in (CHECKOUT / kind).glob("*.yaml")]:
        assert f"  {name} " in listed
    assert "  afpacket " in listed


def test_it_reports_what_it_would_do(installed):
    assert "netns add" in installed.netbench("run", "netns", "quick", "--dry-run")
    assert "qemu-system" in installed.netbench("run", "netns-qemu-virtio", "quick", "--dry-run")


def test_it_measures_and_reports(installed):
    few = [*FEW, *settings(frame_sizes=512)]
    installed.netbench("run", "netns", "quick", "--uut", "bridge", *few, "--strict", "-o", "results")
    (row,) = csv.DictReader(io.StringIO(installed.netbench("export", "results", "--format", "csv")))
    assert (verdict_of(row), row["lost_frames"]) == ("valid", "0")
    assert row["received_frames"] == row["sent_frames"] != "0"
    installed.netbench("report", "results", "-o", "again.html")
    assert "</html>" in (installed.directory / "again.html").read_text()


def test_it_builds_the_same_guest_image(installed_elsewhere):
    """Another Python, apt and dpkg make the same bytes as those of this machine."""
    try:
        expected = find_image(DEFAULT_IMAGE)
    except MissingError as error:
        pytest.skip(str(error))
    cache = installed_elsewhere.directory / "cache"
    shutil.copytree(cache_directory() / "packages", cache / "packages")
    installed_elsewhere.netbench("image", "build", "--cache", cache)
    built = find_image(DEFAULT_IMAGE, cache)
    assert json.dumps(built.manifest["inputs"]) == json.dumps(expected.manifest["inputs"])
    assert built.digest == expected.digest
