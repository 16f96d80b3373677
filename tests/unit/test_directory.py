"""A result directory: made whole, read back, held by one process, and refused with a reason."""

import json
import subprocess
import sys

import pytest

from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import profile_kinds
from netbench.errors import TestbedError, UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Warning, WarningKind
from netbench.results.directory import ResultDirectory
from netbench.results.store import Store
from netbench.uut.raw import RawOptions
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import stream_counts, trial

MANIFEST = {
    "topology": "lab",
    "profile": "one",
    "planned_trials": 3,
    "uuts": ["bridge"],
    "scenarios": ["dedicated"],
    "before": {},
    "finished": None,
}


@pytest.fixture
def directory(tmp_path):
    made = ResultDirectory(tmp_path / "results" / "first")
    made.create(topology(), profile(), MANIFEST)
    return made


def test_everything_is_there_from_the_start_and_reads_back_the_same(directory):
    names = ["campaign.sqlite", "captures", "manifest.json", "profile.yaml", "topology.yaml"]
    assert sorted(path.name for path in directory.path.iterdir()) == names
    assert directory.read_manifest() == MANIFEST
    assert load_topology(directory.topology, {"raw": RawOptions}) == topology()
    assert load_profile(directory.profile, profile_kinds()) == profile()


def test_what_is_there_is_not_overwritten(directory):
    before = {path.name: path.stat().st_mtime_ns for path in directory.path.iterdir()}
    with pytest.raises(UsageError, match="is there already; go on with `netbench resume .*first`"):
        directory.create(topology(), profile(), {})
    assert {path.name: path.stat().st_mtime_ns for path in directory.path.iterdir()} == before


def test_an_empty_directory_is_used_and_a_file_is_not(tmp_path):
    ResultDirectory(tmp_path).refuse_existing()
    ResultDirectory(tmp_path / "none").refuse_existing()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is there already"):
        ResultDirectory(tmp_path / "file").refuse_existing()


def test_a_place_where_nothing_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be made: Not a directory; name another with -o"):
        ResultDirectory(tmp_path / "file" / "results").create(topology(), profile(), MANIFEST)


FULL_DISK = """
import resource, sys
from pathlib import Path
from netbench.errors import TestbedError
from netbench.results.directory import ResultDirectory
from tests.unit.inputs import profile, topology
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    ResultDirectory(Path(sys.argv[1])).create(topology(), profile(), {"command": "x" * 5000})
except TestbedError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [10, 2000, 8000])
def test_a_directory_that_could_not_be_finished_is_not_begun(tmp_path, limit):
    """Half of one would be refused next time, and could not be resumed either."""
    path = tmp_path / "results"
    argv = [sys.executable, "-c", FULL_DISK, str(path), str(limit)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{path}/" in done.stdout
    assert not path.exists()


def test_results_are_what_was_stored(directory):
    store = Store.open(directory.store)
    one, other = trial(stream_counts(), index=1, repetition=2), trial(stream_counts(), index=0)
    warning = Warning(WarningKind.SHORT_TRIALS, "too short")
    store.add(one)
    store.add(other)
    store.keep_warnings([warning])
    store.keep_facts("bridge", {"emulated": "no KVM"})
    store.close()
    results = directory.results()
    assert results == CampaignResults(
        "lab", "one", 3, ("bridge",), results.trials, (warning,), MANIFEST, {"bridge": {"emulated": "no KVM"}}, ()
    )
    assert tuple(results.trials) == (other, one)
    assert results.emulated == {"bridge"}
    assert results.scenarios == ("dedicated",)


NEEDED = ("topology", "profile", "planned_trials", "uuts", "scenarios", "before")


def without(field):
    return json.dumps({name: value for name, value in MANIFEST.items() if name != field}).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is no result directory of `netbench run`: manifest.json: No such file"),
        (b"{", "manifest.json: is damaged"),
        (b"", "manifest.json: is damaged"),
        (b"\xff\xfe\x00", "manifest.json: is damaged"),
        (b"[]", "manifest.json: is damaged: the whole"),
        (b"[" * 100_000, "manifest.json: is damaged"),
        *((without(field), f"manifest.json: is damaged: {field}: Field required") for field in NEEDED),
        (json.dumps({**MANIFEST, "planned_trials": "many"}).encode(), "manifest.json: is damaged: planned_trials"),
        (json.dumps({**MANIFEST, "uuts": None}).encode(), "manifest.json: is damaged: uuts"),
    ],
)
def test_a_manifest_that_is_missing_or_damaged(directory, content, says):
    directory.manifest.unlink()
    if content is not None:
        directory.manifest.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        directory.results()


def test_a_directory_is_held_by_one_process_at_a_time(directory):
    refused = pytest.raises(TestbedError, match="another netbench is working on it; wait until it is done")
    with directory.lock(), refused:
        directory.lock()
    with directory.lock():
        pass


def test_a_directory_that_cannot_be_locked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TestbedError, match="cannot be written"):
        ResultDirectory(tmp_path / "file").lock()
