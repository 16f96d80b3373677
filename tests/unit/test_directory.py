"""A result directory: made whole, read back, held by one process, and refused with a reason."""

import json
import subprocess
import sys

import pytest

from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import profile_kinds
from netbench.errors import TestbedError, UsageError
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


def test_everything_is_there_from_the_start(directory):
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "campaign.sqlite",
        "captures",
        "manifest.json",
        "profile.yaml",
        "topology.yaml",
    ]
    assert directory.read_manifest() == MANIFEST


def test_what_was_asked_for_reads_back_the_same(directory):
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
    assert (results.topology, results.profile, results.uuts) == ("lab", "one", ("bridge",))
    assert (results.planned_trials, tuple(results.trials), results.warnings) == (3, (other, one), (warning,))
    assert results.manifest == MANIFEST
    assert results.facts == {"bridge": {"emulated": "no KVM"}}
    assert results.emulated == {"bridge"}
    assert results.maxima == ()
    assert results.scenarios == ("dedicated",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is no result directory of `netbench run`: manifest.json: No such file"),
        ("{", "manifest.json: is damaged"),
        ("", "manifest.json: is damaged"),
        ("[]", "manifest.json: is damaged: the whole"),
        ("{}", "manifest.json: is damaged: topology"),
        ("[" * 100_000, "manifest.json: is damaged"),
        (json.dumps({**MANIFEST, "planned_trials": "many"}), "is damaged"),
        (json.dumps({**MANIFEST, "uuts": None}), "is damaged"),
    ],
)
def test_a_manifest_that_is_missing_or_damaged(directory, content, says):
    directory.manifest.unlink()
    if content is not None:
        directory.manifest.write_text(content)
    with pytest.raises(UsageError, match=says):
        directory.results()


def test_a_manifest_that_is_no_text(directory):
    directory.manifest.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is damaged"):
        directory.results()


def test_a_store_that_is_missing(directory):
    directory.store.unlink()
    with pytest.raises(UsageError, match="no such file"):
        directory.results()


def test_a_directory_is_held_by_one_process_at_a_time(directory):
    with (
        directory.lock(),
        pytest.raises(TestbedError, match="another netbench is working on it; wait until it is done"),
    ):
        directory.lock()
    with directory.lock():
        pass


def test_a_directory_that_cannot_be_locked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TestbedError, match="cannot be written"):
        ResultDirectory(tmp_path / "file").lock()


def test_the_manifest_is_replaced_whole(directory):
    directory.write_manifest({**MANIFEST, "finished": "2025-03-04T10:02:41+00:00"})
    assert directory.read_manifest()["finished"] == "2025-03-04T10:02:41+00:00"
    assert [path.name for path in directory.path.glob(".*")] == []
