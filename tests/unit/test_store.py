"""The store: what was measured comes back as it was, and nothing comes back that was not stored whole."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from netbench.errors import TestbedError, UsageError
from netbench.model.counts import HopCount, HopLoss, LossRuns, Spread, StreamCounts
from netbench.model.maximum import Maximum
from netbench.model.names import StreamName
from netbench.model.trial import NeighbourResult, TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind, Warning, WarningKind
from netbench.results.schema import SCHEMA_VERSION, shared_by_streams
from netbench.results.store import Store
from tests.unit.results_factory import neighbour, spread, stream_counts, trial

BIG = 2**63 - 1
frames = st.integers(0, BIG)
maybe_frames = st.none() | st.integers(-BIG, BIG)
seconds = st.floats(0, 1e9)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
hop_counts = st.lists(st.builds(HopCount, words, words, words, maybe_frames), max_size=4).map(tuple)
spreads = st.none() | st.builds(
    Spread, maybe_frames, st.none() | seconds, maybe_frames, maybe_frames, maybe_frames, maybe_frames, maybe_frames
)
loss_runs = st.dictionaries(st.integers(0, 40), frames, max_size=4).map(
    lambda runs: tuple(LossRuns(1 << doubling, runs[doubling]) for doubling in sorted(runs))
)
loads = st.sampled_from(["max", "10Mbit/s", "33.3%", "148809fps", "1.5Gbit/s", "0.25fps"]).map(Load.parse)


@st.composite
def stream_results(draw, stream):
    return StreamCounts(
        stream=stream,
        intended_fps=draw(st.none() | seconds),
        intended_frames=draw(maybe_frames),
        sent_frames=draw(frames),
        generator_errors=draw(frames),
        duration_s=draw(seconds),
        first_sent_ns=draw(maybe_frames),
        last_sent_ns=draw(maybe_frames),
        max_burst_frames=draw(frames),
        max_lateness_s=draw(seconds),
        received_frames=draw(maybe_frames),
        duplicate_frames=draw(maybe_frames),
        reordered_frames=draw(maybe_frames),
        foreign_frames=draw(maybe_frames),
        capture_dropped_frames=draw(maybe_frames),
        unexplained_frames=draw(maybe_frames),
        longest_loss_run_frames=draw(maybe_frames),
        loss_runs=draw(maybe_frames),
        first_received_ns=draw(maybe_frames),
        last_received_ns=draw(maybe_frames),
        delay=draw(spreads),
        ipdv=draw(spreads),
        delay_refused=draw(words),
        loss_run_lengths=draw(loss_runs),
        reordering_extent_median_frames=draw(maybe_frames),
        reordering_extent_mean_frames=draw(st.none() | seconds),
        reordering_extent_max_frames=draw(maybe_frames),
        lost_at=tuple(draw(st.lists(st.builds(HopLoss, words, frames), max_size=3))),
        hops=draw(hop_counts),
    )


@st.composite
def neighbour_results(draw, number):
    streams = [f"n{number}-{n}" for n in range(1, draw(st.integers(0, 2)) + 1)]
    return NeighbourResult(
        name=f"n{number}",
        activity=draw(words),
        frame_size=draw(st.none() | st.integers(64, 1518)),
        streams=tuple(draw(stream_results(name)) for name in streams),
        hops=draw(hop_counts),
        cpu_s=draw(st.dictionaries(words, seconds, max_size=3)),
    )


@st.composite
def trial_results(draw, index=0):
    streams = tuple(f"s{n}" for n in range(1, draw(st.integers(1, 3)) + 1))
    spec = TrialSpec(
        index, draw(words), "dedicated", streams, draw(st.integers(64, 1518)), draw(loads), draw(st.integers(1, 1000))
    )
    return TrialResult(
        spec=spec,
        attempt=draw(st.integers(1, 11)),
        started_ns=draw(frames),
        streams=tuple(draw(stream_results(name)) for name in streams[: draw(st.integers(0, 3))]),
        reasons=tuple(draw(st.lists(st.builds(Reason, st.sampled_from(ReasonKind), words, words), max_size=5))),
        steps_s=draw(st.dictionaries(words, seconds, max_size=4)),
        hops=draw(hop_counts),
        cpu_s=draw(st.dictionaries(words, seconds, max_size=2)),
        neighbours=tuple(draw(neighbour_results(number)) for number in range(draw(st.integers(0, 3)))),
        lifetime=draw(frames),
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "campaign.sqlite"


@pytest.fixture
def store(path):
    store = Store.create(path)
    yield store
    store.close()


def read(path):
    store = Store.read(path)
    try:
        return store.trials()
    finally:
        store.close()


@settings(max_examples=40, deadline=None)
@given(trial_results())
def test_a_trial_comes_back_as_it_was(result):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "campaign.sqlite"
        store = Store.create(path)
        store.add(result)
        assert store.trials() == (result,)
        store.close()
        (again,) = read(path)
        assert again == result
        for counts, original in zip(again.streams, result.streams, strict=True):
            assert [type(getattr(counts, name)) for name in counts.__slots__] == [
                type(getattr(original, name)) for name in original.__slots__
            ]


def test_all_kinds_of_reasons_come_back_in_order(store):
    reasons = tuple(Reason(kind, "s1", f"because of {kind.name}") for kind in ReasonKind)
    result = trial(stream_counts(), reasons=reasons)
    store.add(result)
    assert store.trials() == (result,)


def test_unknown_stays_unknown_and_none_stays_none(store):
    unknown = stream_counts(
        received=None,
        intended_fps=None,
        intended_frames=None,
        duplicate_frames=None,
        capture_dropped_frames=None,
        hops=(HopCount("sink NIC", "rx", "passed", None), HopCount("sink NIC", "rx_dropped", "dropped", 0)),
    )
    store.add(trial(unknown))
    (counts,) = store.trials()[0].streams
    assert counts == unknown
    assert [hop.grew for hop in counts.hops] == [None, 0]


def test_a_trial_that_broke_before_it_counted_is_kept_with_its_reason(store):
    broken = trial(streams=("s1", "s2"), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),))
    store.add(broken)
    assert store.trials() == (broken,)
    assert store.trials()[0].spec.streams == ("s1", "s2")
    assert store.keys() == {broken.spec.key}


def test_trials_come_in_the_order_of_the_plan(store):
    for index in (2, 0, 1):
        store.add(trial(stream_counts(), index=index, repetition=index + 1))
    assert [one.spec.index for one in store.trials()] == [0, 1, 2]
    assert store.keys() == {f"raw/dedicated/s1/64/1000fps/{n}" for n in (1, 2, 3)}


def test_the_same_trial_twice_is_an_error_and_the_first_is_kept(store):
    first = trial(stream_counts(received=990), reasons=(Reason(ReasonKind.NOT_DRAINED, "s1", ""),))
    store.add(first)
    with pytest.raises(TestbedError, match="this trial is already stored"):
        store.add(replace(first, attempt=2, streams=(stream_counts(received=1),), reasons=()))
    assert store.trials() == (first,)


def test_a_trial_is_stored_whole_or_not_at_all(store):
    """A stream named twice: found out only after most of the trial has been written."""
    doubled = replace(stream_counts(received=900))
    with pytest.raises(TestbedError):
        store.add(trial(doubled, doubled))
    assert (store.trials(), store.keys()) == ((), set())
    counts = store._connection.execute("SELECT count(*) FROM streams").fetchone()[0]
    assert counts == 0
    whole = trial(stream_counts())
    store.add(whole)
    assert store.trials() == (whole,)


def test_a_crash_between_begin_and_commit_leaves_nothing_of_that_trial(path, store):
    store.close()
    crash = """
import os, sys
from pathlib import Path
from netbench.results.store import Store
from tests.unit.results_factory import stream_counts, trial

store = Store.open(Path(sys.argv[1]))
store.add(trial(stream_counts(), repetition=1))
store._connection.set_trace_callback(lambda sql: os.kill(os.getpid(), 9) if "INTO losses" in sql else None)
store.add(trial(stream_counts(received=900), repetition=2))
"""
    done = subprocess.run([sys.executable, "-c", crash, str(path)], timeout=60, check=False)
    assert done.returncode == -9
    assert [one.spec.repetition for one in read(path)] == [1]
    again = Store.open(path)
    again.add(trial(stream_counts(received=900), repetition=2))
    again.close()
    assert [one.spec.repetition for one in read(path)] == [1, 2]


def test_a_reader_sees_what_is_committed_while_the_writer_goes_on(path, store):
    store.add(trial(stream_counts()))
    assert len(read(path)) == 1
    store.add(trial(stream_counts(), repetition=2))
    assert len(read(path)) == 2


def test_warnings_are_kept_once_and_in_order(store):
    few = Warning(WarningKind.FEW_REPETITIONS, "one repetition")
    busy = Warning(WarningKind.HOST_WAS_BUSY, "load average 7")
    store.keep_warnings([few, busy])
    store.keep_warnings([busy, few])
    assert store.warnings() == (few, busy)


def test_facts_of_a_uut_take_the_place_of_what_it_said_before(path, store):
    assert store.facts() == {}
    store.keep_facts("virtio", {"accelerator": "tcg", "emulated": "no KVM", "qemu": "7.2.18"})
    store.keep_facts("raw", {"kernel": "6.1.0"})
    store.keep_facts("virtio", {"qemu": "8.0.0", "accelerator": "kvm"})
    store.keep_facts("external", {})
    facts = {"raw": {"kernel": "6.1.0"}, "virtio": {"qemu": "8.0.0", "accelerator": "kvm"}}
    assert store.facts() == facts
    assert list(store.facts()["virtio"]) == ["qemu", "accelerator"]
    store.close()
    again = Store.read(path)
    assert again.facts() == facts
    again.close()


def test_what_a_neighbour_did_is_kept_apart_from_what_the_victim_did(store):
    hops = (HopCount("ingress tap", "tx_dropped", "dropped", 7),)
    shared = (HopCount("guest softnet", "dropped", "repeated", 1),)
    forwards = neighbour(
        stream_counts("s2", received=993, lost_at=(HopLoss("ingress tap (tx_dropped)", 7),), hops=hops),
        hops=shared,
        cpu_s={"guest": 0.5, "host": 0.75},
    )
    stressed = neighbour(name="third", activity="stress-ng --cpu 8 --vm 4", cpu_s={"load": 9.5})
    measured = trial(stream_counts("s1"), neighbours=(forwards, stressed), lifetime=3, hops=())
    store.add(measured)
    (again,) = store.trials()
    assert again == measured
    assert [counts.stream for counts in again.streams] == ["s1"]
    assert (again.hops, again.neighbours[0].hops, again.neighbours[1].hops) == ((), shared, ())
    assert again.neighbours[1].frame_size is None


def test_what_streams_of_a_neighbour_share_is_under_a_name_that_no_stream_can_have():
    names = TypeAdapter(StreamName)
    assert names.validate_python("n2") == "n2"
    with pytest.raises(ValueError, match="string_pattern_mismatch"):
        names.validate_python(shared_by_streams("n2"))
    assert len({shared_by_streams(name) for name in ("", "n2", "n3")}) == 3


def test_a_stream_of_both_victim_and_neighbour_is_refused_whole(store):
    with pytest.raises(TestbedError):
        store.add(
            trial(stream_counts("s1", received=9), neighbours=(neighbour(stream_counts("s1", received=5)),), lifetime=1)
        )
    assert (store.trials(), store.last_lifetime()) == ((), 0)


def test_two_neighbours_of_one_name_are_refused_whole(store):
    """Nobody could tell whose streams are whose."""
    with pytest.raises(TestbedError):
        store.add(trial(stream_counts("s1"), neighbours=(neighbour(), neighbour(activity="stress-ng --cpu 1"))))
    assert store.trials() == ()


def test_the_last_lifetime_is_the_highest_that_was_stored(path, store):
    assert store.last_lifetime() == 0
    for repetition, lifetime in ((1, 4), (2, 0), (3, 2)):
        store.add(trial(stream_counts(), repetition=repetition, lifetime=lifetime))
    assert store.last_lifetime() == 4
    assert [one.lifetime for one in store.trials()] == [4, 0, 2]
    store.close()
    again = Store.read(path)
    assert again.last_lifetime() == 4
    again.close()


def test_maxima_come_back_and_a_new_one_takes_the_place_of_the_old(path, store):
    assert store.maxima() == ()
    first, other = Maximum("kvm", 64, 54_321.125, "400Mbit/s", 9), Maximum("kvm", 1500, 81_000.0, "max", 3)
    for maximum in (first, other):
        store.keep_maximum(maximum)
    assert store.maxima() == (first, other)
    better = replace(first, fps=60_000.5, load="max", repetitions=2)
    store.keep_maximum(better)
    store.close()
    again = Store.read(path)
    assert set(again.maxima()) == {better, other}
    again.close()


def written_by(version, path):
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name(f"store_version_{version}.sql").read_text())
    connection.close()
    return path


@pytest.fixture
def version_1(path):
    """A store as version 1 wrote it: a trial of two streams, of one of which nothing is known."""
    return written_by(1, path)


@pytest.fixture
def version_2(path):
    """A store as version 2 wrote it: such a trial of a guest, and one whose guest was gone."""
    return written_by(2, path)


@pytest.fixture
def version_3(path):
    """A store as version 3 wrote it: such trials of a guest, the first beside a neighbour that forwards."""
    return written_by(3, path)


def test_a_store_of_version_1_is_read_and_stays_as_it_is(version_1):
    content = version_1.read_bytes()
    store = Store.read(version_1)
    whole, empty = store.trials()
    assert whole.spec.streams == ("left", "right")
    assert [counts.received_frames for counts in whole.streams] == [990, None]
    assert whole.streams[0].lost_at == (HopLoss("uut", 10),)
    assert [(counts.delay, counts.ipdv, counts.loss_run_lengths) for counts in whole.streams] == [(None, None, ())] * 2
    assert (whole.cpu_s, whole.hops, empty.streams) == ({}, (), ())
    assert [one.kind for one in store.warnings()] == [WarningKind.FEW_REPETITIONS]
    assert store.facts() == {}
    assert ((whole.neighbours, whole.lifetime), store.last_lifetime(), store.maxima()) == (((), 0), 0, ())
    store.close()
    assert version_1.read_bytes() == content


def test_a_store_of_version_2_is_read_and_stays_as_it_is(version_2):
    content = version_2.read_bytes()
    store = Store.read(version_2)
    whole, empty = store.trials()
    assert (whole.spec.uut, whole.attempt, whole.spec.streams) == ("virtio", 2, ("left", "right"))
    assert [counts.received_frames for counts in whole.streams] == [990, None]
    assert [counts.delay and counts.delay.median_ns for counts in whole.streams] == [200_000, None]
    assert whole.streams[0].hops == (HopCount("ingress tap", "tx_dropped", "dropped", 10),)
    assert whole.hops == (HopCount("guest softnet", "dropped", "repeated", 0),)
    assert (whole.cpu_s, whole.steps_s) == ({"guest": 0.5, "host": 1.25}, {"send": 1.0, "drain": 0.25})
    assert (whole.neighbours, whole.lifetime) == ((), 0)
    assert (empty.spec.streams, empty.streams) == (("left", "right"), ())
    assert store.facts() == {"virtio": {"accelerator": "tcg", "emulated": "no KVM"}}
    assert (store.last_lifetime(), store.maxima()) == (0, ())
    store.close()
    assert version_2.read_bytes() == content


def test_a_store_of_version_3_is_read_and_stays_as_it_is(version_3):
    content = version_3.read_bytes()
    store = Store.read(version_3)
    whole, empty = store.trials()
    left, right = whole.streams
    assert left.delay == Spread(None, None, 200_000, None, None, None, 9_000_000)
    assert (left.ipdv, left.delay_refused, left.loss_run_lengths, left.pdv) == (None, "", (), None)
    assert (left.lost_at, left.loss_runs) == ((HopLoss("ingress tap (tx_dropped)", 10),), 4)
    assert (right.received_frames, right.delay) == (None, None)
    (beside,) = whole.neighbours
    assert (beside.name, beside.activity, beside.cpu_s) == ("second", "forwarding", {"guest": 0.25})
    assert [one.delay for one in beside.streams] == [Spread(80_000, None, 90_000, None, None, None, 100_000)]
    assert (empty.streams, whole.lifetime, store.last_lifetime()) == ((), 2, 2)
    assert store.maxima() == (Maximum("virtio", 64, 54_321.125, "max", 3),)
    store.close()
    assert version_3.read_bytes() == content


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_store_is_brought_up_to_date_when_it_is_gone_on_with(path, version):
    store = Store.open(written_by(version, path))
    before = store.trials()
    beside = neighbour(stream_counts("s2", received=1), hops=(HopCount("guest softnet", "dropped", "repeated", 3),))
    timed = stream_counts(delay=spread(3, 5, 9), ipdv=spread(0, 1, 6), loss_run_lengths=(LossRuns(1, 20),))
    new = trial(timed, index=2, lifetime=1, neighbours=(beside,), hops=beside.hops)
    maximum = Maximum("raw", 64, 1000.0, "max", 1)
    store.add(new)
    store.keep_facts("raw", {"kernel": "6.1.0"})
    store.keep_maximum(maximum)
    store.close()
    assert read(path) == (*before, new)
    again = Store.open(path)
    assert again.trials() == (*before, new)
    assert again.facts()["raw"] == {"kernel": "6.1.0"}
    assert (again.maxima()[-1], again.last_lifetime()) == (maximum, 2 if version == 3 else 1)
    again.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_store_and_a_new_one_have_the_same_tables(path, tmp_path, version):
    Store.open(written_by(version, path)).close()
    Store.create(tmp_path / "new.sqlite").close()

    def columns(file):
        connection = sqlite3.connect(file)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        # But for their order and defaults: a column that is added comes last, and old rows need something in it.
        found = {
            table: sorted(row[1:4] + row[5:] for row in connection.execute(f"PRAGMA table_info({table})"))
            for table in tables
        }
        connection.close()
        return found

    assert columns(path) == columns(tmp_path / "new.sqlite")


NO_LIFETIMES = "ALTER TABLE trials DROP COLUMN lifetime"
WORDS_FOR_LIFETIMES = f"{NO_LIFETIMES}; ALTER TABLE trials ADD COLUMN lifetime TEXT DEFAULT 'x'"
DAMAGE = {
    "a guest that is none": "UPDATE streams SET guest = 'nobody' WHERE guest != ''",
    "a neighbour that was forgotten": "DELETE FROM neighbours",
    "CPU times that are none": "UPDATE neighbours SET cpu_s = '[1]'",
    "CPU times that are no JSON": "UPDATE neighbours SET cpu_s = '{'",
    "a lifetime of words": WORDS_FOR_LIFETIMES,
    "no lifetimes": NO_LIFETIMES,
    "no guests": "ALTER TABLE streams DROP COLUMN guest",
    "no neighbours": "DROP TABLE neighbours",
    "a delay of words": "ALTER TABLE delays DROP COLUMN median_ns; "
    "ALTER TABLE delays ADD COLUMN median_ns TEXT DEFAULT 'long'",
    "no lengths of loss runs": "DROP TABLE loss_runs",
    "a frame size of words": "ALTER TABLE neighbours DROP COLUMN frame_size; "
    "ALTER TABLE neighbours ADD COLUMN frame_size TEXT DEFAULT 'big'",
}


def damaged(path, sql):
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()
    return Store.read(path)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_trials_are_told(path, store, damage):
    timed = stream_counts("s1", delay=spread(1, 2, 3))
    store.add(trial(timed, neighbours=(neighbour(stream_counts("s2")),), lifetime=1))
    store.close()
    broken = damaged(path, damage)
    with pytest.raises(UsageError, match="campaign.sqlite: is damaged: "):
        broken.trials()
    broken.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE maxima",
        "ALTER TABLE maxima DROP COLUMN load",
        "ALTER TABLE maxima DROP COLUMN fps; ALTER TABLE maxima ADD COLUMN fps TEXT DEFAULT 'fast'",
    ],
)
def test_damaged_maxima_are_told(path, store, damage):
    store.keep_maximum(Maximum("raw", 64, 1000.0, "max", 1))
    store.close()
    broken = damaged(path, damage)
    with pytest.raises(UsageError, match="campaign.sqlite: is damaged: "):
        broken.maxima()
    broken.close()


@pytest.mark.parametrize("damage", [NO_LIFETIMES, WORDS_FOR_LIFETIMES])
def test_lifetimes_that_make_no_sense(path, store, damage):
    store.add(trial(stream_counts(), lifetime=1))
    store.close()
    broken = damaged(path, damage)
    with pytest.raises(UsageError, match="campaign.sqlite: is damaged: "):
        broken.last_lifetime()
    broken.close()


@pytest.mark.parametrize("column", ["streams", "cpu_s", "steps_s"])
def test_a_trial_with_columns_that_make_no_sense(path, store, column):
    store.add(trial(stream_counts()))
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE trials SET {column} = '7'")
    connection.close()
    with pytest.raises(UsageError, match="campaign.sqlite: "):
        store.trials()


@pytest.mark.parametrize("how", [Store.open, Store.read])
def test_a_store_that_is_missing(how, path):
    with pytest.raises(UsageError, match="no such file; is this a result directory"):
        how(path)
    assert not path.exists()


@pytest.mark.parametrize("how", [Store.open, Store.read])
@pytest.mark.parametrize("content", [b"garbage" * 1000, b"\x89PNG\r\n", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_store(how, path, content):
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a netbench store"):
        how(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("how", [Store.open, Store.read])
@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
def test_a_store_of_another_version(how, path, store, version):
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(UsageError, match=f"has schema version {version}, this netbench reads 1 to {SCHEMA_VERSION}"):
        how(path)


def test_a_store_that_is_damaged_in_the_middle(path, store):
    for repetition in range(1, 200):
        store.add(trial(stream_counts(), repetition=repetition))
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)
    with pytest.raises(UsageError, match="campaign.sqlite: "):
        read(path)


def test_a_store_that_cannot_be_made(tmp_path):
    with pytest.raises(TestbedError, match="cannot be opened: unable to open database file"):
        Store.create(tmp_path / "no" / "campaign.sqlite")


def test_a_full_disk_is_told_and_what_was_stored_is_kept(path, store):
    store.add(trial(stream_counts(), repetition=1))
    store._connection.execute(f"PRAGMA max_page_count = {store._connection.execute('PRAGMA page_count').fetchone()[0]}")
    hops = tuple(HopCount("hop" * 100, str(n), "passed", n) for n in range(500))
    with pytest.raises(TestbedError, match="cannot be written: database or disk is full; is the disk full?"):
        store.add(trial(stream_counts(hops=hops), repetition=2))
    assert [one.spec.repetition for one in store.trials()] == [1]


def as_somebody_without_rights(function):
    """Run `function` in a child that is not root; what it prints."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(write_end, str(function()).encode())
            status = 0
        except BaseException as error:
            os.write(write_end, repr(error).encode())
        finally:
            os._exit(status)
    os.close(write_end)
    with open(read_end, "rb") as pipe:  # noqa: PTH123 - a file descriptor
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, said
    return said


@pytest.fixture
def read_only():
    """A result directory on which only reading is allowed, in a place that anyone can reach."""
    directory = Path(tempfile.mkdtemp(prefix="netbench-read-only-"))
    store = Store.create(directory / "campaign.sqlite")
    store.add(trial(stream_counts(received=993)))
    store.close()
    (directory / "campaign.sqlite").chmod(0o444)
    directory.chmod(0o555)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


def test_a_store_is_read_where_nothing_can_be_written(read_only):
    def received():
        return read(read_only / "campaign.sqlite")[0].streams[0].received_frames

    assert as_somebody_without_rights(received) == "993"
    assert [path.name for path in read_only.iterdir()] == ["campaign.sqlite"]


def test_a_store_is_not_opened_for_writing_where_nothing_can_be_written(read_only):
    def refusal():
        try:
            Store.open(read_only / "campaign.sqlite")
        except UsageError as error:
            return error
        return "it was opened"

    assert "attempt to write a readonly database" in as_somebody_without_rights(refusal)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_store_is_read_where_nothing_can_be_written(read_only, version):
    old = read_only / "campaign.sqlite"
    read_only.chmod(0o755)
    old.unlink()
    written_by(version, old)
    old.chmod(0o444)
    read_only.chmod(0o555)
    assert as_somebody_without_rights(lambda: len(read(old))) == "2"
    assert [path.name for path in read_only.iterdir()] == ["campaign.sqlite"]
