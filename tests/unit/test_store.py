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

from netbench.errors import TestbedError, UsageError
from netbench.model.counts import Loss, LossRuns, PointCount, Spread, StreamCounts
from netbench.model.points import Where
from netbench.model.scenario import Idle, Network, Off, Stress
from netbench.model.trial import Frames, GuestResult, GuestTask
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind, Warning, WarningKind
from netbench.results.store import SCHEMA_VERSION, Store
from tests.unit.points import count, loss
from tests.unit.results_factory import neighbour, spread, stream_counts, trial

BIG = 2**63 - 1
frames = st.integers(0, BIG)
maybe_frames = st.none() | st.integers(-BIG, BIG)
seconds = st.floats(0, 1e9)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
wheres, orders = st.sampled_from(Where), st.integers(0, 99)
point_counts = st.lists(st.builds(PointCount, words, wheres, orders, words, words, maybe_frames), max_size=4).map(tuple)
spreads = st.none() | st.builds(
    Spread, maybe_frames, st.none() | seconds, maybe_frames, maybe_frames, maybe_frames, maybe_frames, maybe_frames
)
loss_runs = st.dictionaries(st.integers(0, 40), frames, max_size=4).map(
    lambda runs: tuple(LossRuns(1 << doubling, runs[doubling]) for doubling in sorted(runs))
)
networks = [Network(Load.parse("10fps")), Network(None, 50.0, 1500)]
activities = st.sampled_from([Off(), Idle(), Stress(1), Stress(8, 4), *networks])
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
        lost_at=tuple(draw(st.lists(st.builds(Loss, words, words, wheres, orders, frames), max_size=3))),
        counters=draw(point_counts),
    )


@st.composite
def neighbour_results(draw, number):
    streams = [f"n{number}-{n}" for n in range(1, draw(st.integers(0, 2)) + 1)]
    does = draw(activities)
    traffic = Frames(draw(st.integers(64, 1518)), draw(loads)) if isinstance(does, Network) else None
    task = GuestTask(f"n{number}", does, tuple(streams), traffic, draw(seconds))
    counts = tuple(draw(stream_results(name)) for name in streams)
    return task, GuestResult(task.name, counts, draw(point_counts), draw(st.dictionaries(words, seconds, max_size=3)))


@st.composite
def trial_results(draw, index=0):
    streams = tuple(f"s{n}" for n in range(1, draw(st.integers(1, 3)) + 1))
    made = trial(
        *(draw(stream_results(name)) for name in streams[: draw(st.integers(0, 3))]),
        uut=draw(words),
        frame_size=draw(st.integers(64, 1518)),
        load=str(draw(loads)),
        repetition=draw(st.integers(1, 1000)),
        index=index,
        streams=streams,
        reasons=tuple(draw(st.lists(st.builds(Reason, st.sampled_from(ReasonKind), words, words), max_size=5))),
        counters=draw(point_counts),
        cpu_s=draw(st.dictionaries(words, seconds, max_size=2)),
        machine_cpu_s=draw(st.none() | seconds),
        neighbours=tuple(draw(neighbour_results(number)) for number in range(draw(st.integers(0, 3)))),
        boot=draw(frames),
        steps_s=draw(st.dictionaries(words, seconds, max_size=4)),
    )
    return replace(made, attempt=draw(st.integers(1, 11)), started_ns=draw(frames))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "campaign.sqlite"


@pytest.fixture
def store(path):
    store = Store.create(path)
    yield store
    store.close()


def trials(store):
    return tuple(store.trials())


def read(path):
    store = Store.read(path)
    try:
        return trials(store)
    finally:
        store.close()


@settings(max_examples=40, deadline=None)
@given(trial_results())
def test_a_trial_comes_back_as_it_was(result):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "campaign.sqlite"
        store = Store.create(path)
        store.add(result)
        assert trials(store) == (result,)
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
    assert trials(store) == (result,)


def test_unknown_stays_unknown_and_none_stays_none(store):
    unknown = stream_counts(
        received=None,
        intended_fps=None,
        intended_frames=None,
        duplicate_frames=None,
        capture_dropped_frames=None,
        counters=(count("sink NIC", "rx", "passed", None), count("sink NIC", "rx_dropped", "dropped", 0)),
    )
    store.add(trial(unknown))
    (counts,) = trials(store)[0].streams
    assert counts == unknown
    assert [one.grew for one in counts.counters] == [None, 0]


def test_a_trial_that_broke_before_it_counted_is_kept_with_its_reason(store):
    broken = trial(streams=("s1", "s2"), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),))
    store.add(broken)
    assert trials(store) == (broken,)
    assert trials(store)[0].spec.streams == ("s1", "s2")
    assert store.keys() == {broken.spec.key}


def test_only_what_is_asked_for_is_read(store):
    for index, (uut, scenario) in enumerate([("raw", "dedicated"), ("kvm", "dedicated"), ("kvm", "shared-idle")]):
        store.add(trial(stream_counts(), index=index, uut=uut, scenario=scenario))
    assert [one.spec.index for one in store.trials(uut="kvm")] == [1, 2]
    assert [one.spec.index for one in store.trials(uut="kvm", scenario="shared-idle")] == [2]
    assert list(store.trials(scenario="shared-spread")) == []


def test_trials_can_be_added_while_others_are_read(store):
    for repetition in (1, 2, 3):
        store.add(trial(stream_counts(), repetition=repetition, index=repetition))
    reading = store.trials()
    assert next(reading).spec.repetition == 1
    store.add(trial(stream_counts(), repetition=4, index=4))
    assert [one.spec.repetition for one in reading][:2] == [2, 3]


def test_trials_come_in_the_order_of_the_plan(store):
    for index in (2, 0, 1):
        store.add(trial(stream_counts(), index=index, repetition=index + 1))
    assert [one.spec.index for one in trials(store)] == [0, 1, 2]
    assert store.keys() == {f"raw/dedicated/s1/64/1000fps/{n}" for n in (1, 2, 3)}


def test_the_same_trial_twice_is_an_error_and_the_first_is_kept(store):
    first = trial(stream_counts(received=990), reasons=(Reason(ReasonKind.NOT_DRAINED, "s1", ""),))
    store.add(first)
    with pytest.raises(TestbedError, match="this trial is already stored"):
        store.add(replace(first, attempt=2, guests=(), reasons=()))
    assert trials(store) == (first,)


def test_a_crash_between_begin_and_commit_leaves_nothing_of_that_trial(path, store):
    store.close()
    crash = """
import os, sys
from pathlib import Path
from netbench.results.store import Store
from tests.unit.results_factory import stream_counts, trial

store = Store.open(Path(sys.argv[1]))
store.add(trial(stream_counts(), repetition=1))
store._connection.set_trace_callback(lambda sql: os.kill(os.getpid(), 9) if sql == "COMMIT" else None)
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
    counters = (count("ingress tap", "tx_dropped", "dropped", 7),)
    shared = (count("guest softnet", "dropped", "repeated", 1),)
    forwards = neighbour(
        stream_counts("s2", received=993, lost_at=(loss("ingress tap (tx_dropped)", 7),), counters=counters),
        counters=shared,
        cpu_s={"guest": 0.5, "host": 0.75},
    )
    stressed = neighbour(name="third", activity=Stress(8, 4), cpu_s={"load": 9.5})
    measured = trial(stream_counts("s1"), neighbours=(forwards, stressed), boot=3, counters=())
    store.add(measured)
    (again,) = trials(store)
    assert again == measured
    assert [counts.stream for counts in again.streams] == ["s1"]
    assert (again.victim.counters, again.neighbours[0].counters, again.neighbours[1].counters) == ((), shared, ())


def test_the_last_boot_is_the_highest_that_was_stored(path, store):
    assert store.last_boot() == 0
    for repetition, boot in ((1, 4), (2, 0), (3, 2)):
        store.add(trial(stream_counts(), repetition=repetition, boot=boot))
    assert store.last_boot() == 4
    assert [one.boot for one in trials(store)] == [4, 0, 2]
    store.close()
    again = Store.read(path)
    assert again.last_boot() == 4
    again.close()


def set_in_document(path, value):
    return f"UPDATE trials SET document = json_set(document, '$.{path}', json('{value}'))"


FIRST = "guests[0].streams[0]"
WORDS_FOR_BOOTS = "ALTER TABLE trials DROP COLUMN boot; ALTER TABLE trials ADD COLUMN boot TEXT DEFAULT 'x'"
DAMAGE = {
    "no JSON": ("UPDATE trials SET document = '{'", "trial raw/.*: the whole: Invalid JSON"),
    "no trial": ("UPDATE trials SET document = '[]'", "trial raw/.*: the whole"),
    "no bytes of text": ("UPDATE trials SET document = CAST(x'fffe' AS TEXT)", ""),
    "frames that are words": (set_in_document(f"{FIRST}.sent_frames", '"many"'), "streams.0.sent_frames"),
    "frames that are a fraction": (set_in_document(f"{FIRST}.sent_frames", "0.5"), "streams.0.sent_frames"),
    "a delay of words": (set_in_document(f"{FIRST}.delay.median_ns", '"long"'), "streams.0.delay.median_ns"),
    "CPU times that are none": (set_in_document("guests[1].cpu_s", "[1]"), "guests.1.cpu_s"),
    "a reason that there is none of": (set_in_document("reasons[0].kind", '"bad luck"'), "reasons.0.kind"),
    "no stream's name": (
        "UPDATE trials SET document = json_remove(document, '$.guests[0].streams[0].stream')",
        "Field required",
    ),
    "no trials": ("DROP TABLE trials", "no such table"),
    "no documents": ("ALTER TABLE trials DROP COLUMN document", "no such column"),
}


def damaged(path, sql):
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()
    return Store.read(path)


@pytest.mark.parametrize(("damage", "says"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_trials_are_told(path, store, damage, says):
    timed = stream_counts("s1", delay=spread(1, 2, 3))
    reasons = (Reason(ReasonKind.NOT_DRAINED, "s1", ""),)
    store.add(trial(timed, neighbours=(neighbour(stream_counts("s2")),), reasons=reasons, boot=1))
    store.close()
    broken = damaged(path, damage)
    with pytest.raises(UsageError, match=f"campaign.sqlite: is damaged: .*{says}"):
        trials(broken)
    broken.close()


@pytest.mark.parametrize(
    ("damage", "ask"),
    [
        ("ALTER TABLE trials DROP COLUMN boot", Store.last_boot),
        (WORDS_FOR_BOOTS, Store.last_boot),
        ("UPDATE warnings SET kind = 'rain'", Store.warnings),
        ("DROP TABLE uuts", Store.facts),
    ],
)
def test_damage_of_what_is_not_a_trial_is_told(path, store, damage, ask):
    store.add(trial(stream_counts(), boot=1))
    store.keep_warnings([Warning(WarningKind.SHORT_TRIALS, "short")])
    store.close()
    broken = damaged(path, damage)
    with pytest.raises(UsageError, match="campaign.sqlite: is damaged: "):
        ask(broken)
    broken.close()


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
@pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_store_of_another_version_is_refused_and_stays_as_it_is(how, path, store, version):
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(UsageError, match=f"has schema version {version}, this netbench reads {SCHEMA_VERSION} alone"):
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
    counters = tuple(count("hop" * 100, str(n), "passed", n) for n in range(500))
    with pytest.raises(TestbedError, match="cannot be written: database or disk is full; is the disk full?"):
        store.add(trial(stream_counts(counters=counters), repetition=2))
    assert [one.spec.repetition for one in trials(store)] == [1]


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
