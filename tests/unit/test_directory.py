"""A result directory: made as a whole, read back, locked by one process, and refused with a reason."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import profile_kinds
from netbench.errors import TestbedError, UsageError
from netbench.model.campaign import CampaignResults
from netbench.model.events import TrialStored
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.results.atomic import file_written_atomically
from netbench.results.directory import EventLog, ResultDirectory
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
    "digests": {"topology": {}, "profile": {}},
    "finished": None,
}


@pytest.fixture
def directory(tmp_path):
    made = ResultDirectory(tmp_path / "results" / "first")
    with made.created(topology(), profile(), MANIFEST):
        return made


def test_everything_is_there_from_the_start_and_reads_back_the_same(directory):
    names = [".lock", "campaign.sqlite", "captures", "manifest.json", "profile.yaml", "topology.yaml"]
    assert sorted(path.name for path in directory.path.iterdir()) == names
    assert directory.read_manifest() == MANIFEST
    assert load_topology(directory.topology, {"raw": RawOptions}) == topology()
    assert load_profile(directory.profile, profile_kinds()) == profile()


def test_what_is_there_is_not_overwritten(directory):
    before = {path.name: path.stat().st_mtime_ns for path in directory.path.iterdir()}
    with (
        pytest.raises(UsageError, match="already exists; go on with `netbench resume .*first`"),
        directory.created(topology(), profile(), {}),
    ):
        pytest.fail("it was used")
    assert {path.name: path.stat().st_mtime_ns for path in directory.path.iterdir()} == before


def test_an_empty_directory_is_used_and_a_file_is_not(tmp_path):
    ResultDirectory(tmp_path).refuse_existing()
    ResultDirectory(tmp_path / "none").refuse_existing()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="already exists"):
        ResultDirectory(tmp_path / "file").refuse_existing()


def test_a_place_where_nothing_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    below = ResultDirectory(tmp_path / "file" / "results")
    with (
        pytest.raises(UsageError, match=r"cannot be made: Not a directory; name another with -o"),
        below.created(topology(), profile(), MANIFEST),
    ):
        pytest.fail("it was made")


FULL_DISK = """
import resource, sys
from pathlib import Path
from netbench.errors import TestbedError
from netbench.results.atomic import file_written_atomically
from netbench.results.directory import ResultDirectory
from tests.unit.inputs import profile, topology
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    with ResultDirectory(Path(sys.argv[1])).created(topology(), profile(), {"command": "x" * 5000}):
        print("made")
except TestbedError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [10, 2000, 8000])
def test_a_directory_that_could_not_be_finished_is_not_begun(tmp_path, limit):
    """An incomplete one would be refused next time, and could not be resumed either."""
    path = tmp_path / "results"
    argv = [sys.executable, "-c", FULL_DISK, str(path), str(limit)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{path}/" in done.stdout
    assert "(ulimit -f)" in done.stdout or "File too large" in done.stdout
    assert not path.exists()


def test_results_are_what_was_stored(directory):
    store = Store.open(directory.store)
    one, other = trial(stream_counts(), index=1, repetition=2), trial(stream_counts(), index=0)
    warning = CampaignWarning(WarningKind.SHORT_TRIALS, "too short")
    store.add(one)
    store.add(other)
    store.keep_warnings([warning])
    store.keep_facts("bridge", {"emulated": "no KVM"})
    store.close()
    results = directory.results()
    facts = {"bridge": {"emulated": "no KVM"}}
    output = CampaignResults("lab", "one", 3, ("bridge",), results.trials, (warning,), MANIFEST, facts)
    streams = {
        stream.name: (stream.source.partition("/")[0], str(stream.ingress).partition("/")[0])
        for stream in topology().streams
    }
    lazy = {"added_up": results.added_up, "warm_ups": results.warm_ups}
    assert results == replace(output, **lazy, stream_hosts=streams)
    assert list(results.warm_ups) == []
    assert tuple(results.trials) == (other, one)
    assert results.emulated == {"bridge"}
    assert results.scenarios == ("dedicated",)


NEEDED = ("topology", "profile", "planned_trials", "uuts", "scenarios", "before")


def without(field):
    return json.dumps({name: value for name, value in MANIFEST.items() if name != field}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no result directory of `netbench run`: manifest.json: No such file"),
        (b"{", "manifest.json: is damaged"),
        (b"", "manifest.json: is damaged"),
        (b"\xff\xfe\x00", "manifest.json: is damaged"),
        (b"[]", "manifest.json: is damaged: the whole"),
        (b"[" * 100_000, "manifest.json: is damaged"),
        *((without(field), f"manifest.json: is damaged: {field}: is missing") for field in NEEDED),
        (json.dumps({**MANIFEST, "planned_trials": "many"}).encode(), "manifest.json: is damaged: planned_trials"),
        (json.dumps({**MANIFEST, "uuts": None}).encode(), "manifest.json: is damaged: uuts"),
    ],
)
def test_a_manifest_that_is_missing_or_damaged(directory, content, message):
    directory.manifest.unlink()
    if content is not None:
        directory.manifest.write_bytes(content)
    with pytest.raises(UsageError, match=message):
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


def test_what_a_start_that_was_killed_leaves_is_begun_anew(tmp_path):
    """Regardless of what it left: the manifest is written last."""
    whole = ResultDirectory(tmp_path / "whole")
    with whole.created(topology(), profile(), MANIFEST):
        pass
    parts = [".lock", "captures", "topology.yaml", "profile.yaml", "campaign.sqlite"]
    for number in range(1, len(parts) + 1):
        killed = ResultDirectory(tmp_path / str(number))
        killed.path.mkdir()
        for name in parts[:number]:
            (killed.captures.mkdir if name == "captures" else (killed.path / name).touch)()
        (killed.path / ".profile.yaml.0123456789abcdef.tmp").write_text("half")
        with killed.created(topology(), profile(), MANIFEST):
            assert sorted(path.name for path in killed.path.iterdir()) == sorted([*parts, "manifest.json"])


@pytest.mark.parametrize("name", ["notes.txt", ".x.tmp", "captures/trial-000000-s1.pcap"])
def test_what_netbench_did_not_make_is_not_overwritten(tmp_path, name):
    (tmp_path / "captures").mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        ResultDirectory(tmp_path).refuse_existing()


def test_trials_without_their_manifest_are_not_overwritten(directory):
    with closing(Store.open(directory.store)) as store:
        store.add(trial(stream_counts()))
    directory.manifest.unlink()
    with pytest.raises(UsageError, match="already exists"):
        directory.refuse_existing()


def test_of_two_at_once_the_second_touches_nothing(tmp_path):
    directory = ResultDirectory(tmp_path / "results")
    with directory.created(topology(), profile(), MANIFEST):
        directory.manifest.unlink()  # the state before it is written
        before = sorted(directory.path.iterdir())
        with (
            pytest.raises(TestbedError, match="another netbench is working on it"),
            directory.created(topology(), profile(), MANIFEST),
        ):
            pytest.fail("both have it")
        assert sorted(directory.path.iterdir()) == before


def test_a_directory_that_the_user_made_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "create", lambda path: (_ for _ in ()).throw(TestbedError("full")))
    with pytest.raises(TestbedError), ResultDirectory(tmp_path).created(topology(), profile(), MANIFEST):
        pytest.fail("it was made")
    assert list(tmp_path.iterdir()) == []
    new = tmp_path / "a" / "b"
    with pytest.raises(TestbedError), ResultDirectory(new).created(topology(), profile(), MANIFEST):
        pytest.fail("it was made")
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_the_store_that_is_lost_is_noticed(directory):
    log = EventLog(directory.events)
    with closing(Store.open(directory.store)) as store:
        for number in range(3):
            store.add(trial(stream_counts(), index=number, repetition=number + 1))
            log.on(TrialStored(str(number), number, "valid"))
        assert len(directory.results().trials) == 3
        copy = ResultDirectory(directory.path.with_name("copy"))
        shutil.copytree(directory.path, copy.path)
    wal = copy.store.with_name("campaign.sqlite-wal")
    wal.write_bytes(bytes(wal.stat().st_size))
    with pytest.raises(UsageError, match="3 trials were stored and it holds 0: campaign.sqlite-wal"):
        copy.results()


def test_a_file_is_written_to_no_link_that_was_put_there(tmp_path):
    """The name of the temporary file is unpredictable."""
    names = set()
    for _ in range(2):
        with file_written_atomically(tmp_path / "x") as file:
            names.add(Path(file.name).name)
    assert len(names) == 2
