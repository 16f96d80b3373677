"""The store returns measurements as they were, and nothing that was not stored completely."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.campaign.record import CampaignRecord
from netbench.errors import TestbedError, UsageError
from netbench.model.campaign import Boot
from netbench.model.counts import DropKind, Loss, PointCount, SizeCounts
from netbench.model.distributions import ClockDifference, ClockOffset, DelayClass, LossRuns, SoftwareDelay, Spread
from netbench.model.flow_result import FlowResult, Latencies, WireFigures
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.packet_counts import ChangedField, FieldGroups, FlowGroup, PacketCounts, SentPacket
from netbench.model.points import PathSection
from netbench.model.received import MeasuringWindow
from netbench.model.scenario import VICTIM, Idle, Network, Off, Serve, Stress
from netbench.model.stored_counts import StoredCounts, counts_of
from netbench.model.tester import Disturbance, Identity, Role, StreamEnds, ThreadDelay
from netbench.model.trial import GuestResult, GuestTask, TrialFrames, TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, Verdict, WarningKind
from netbench.model.workload import workload_of
from netbench.results.directory import ResultDirectory
from netbench.results.store import SCHEMA_VERSION, Store
from netbench.statistics.lost_frames import CounterTotals
from tests.unit.points import count
from tests.unit.results_factory import neighbour, spread, stream_counts, trial

BIG = 2**63 - 1
frames = st.integers(0, BIG)
maybe_frames = st.none() | st.integers(-BIG, BIG)
seconds = st.floats(0, 1e9)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
loads = st.sampled_from(["max", "10Mbit/s", "33.3%", "148809fps", "1.5Gbit/s", "0.25fps"]).map(Load.parse)
serving = Serve(workload_of({"kind": "http", "body_size": 1, "keep_alive": False}), Load.parse("100/s"))
networks = [Network(Load.parse("10fps")), Network(None, 50.0, FrameSize.of(1500)), Network(None, 50.0, IMIX)]
mixes = st.sampled_from([IMIX, FrameSize("mine", (64, 1518, 64))])
activities = st.sampled_from([Off(), Idle(), Stress(1), Stress(8, 4), serving, *networks])
# The values that a field of some type may have.
HELD: dict[Any, st.SearchStrategy[Any]] = {
    int: frames,
    int | None: maybe_frames,
    float: seconds,
    float | None: st.none() | seconds,
    str: words,
    bool: st.booleans(),
    tuple[str, ...]: st.lists(words, max_size=3).map(tuple),
    DropKind: st.sampled_from(DropKind),
    PathSection: st.sampled_from(PathSection),
    ReasonKind: st.sampled_from(ReasonKind),
    dict[str, float]: st.dictionaries(words, seconds, max_size=3),
    Mapping[str, int]: st.dictionaries(words, frames, max_size=3),
    FrameSize: st.builds(
        FrameSize.with_packet, st.integers(64, 9234).map(FrameSize.of) | mixes, st.sampled_from(["", "vlan", "flows"])
    ),
}


def any_of(kind: type, **caught: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of a dataclass with arbitrary values in their fields, except those given."""
    fields = {name: hint for name, hint in get_type_hints(kind).items() if name not in caught}
    return st.builds(kind, **caught, **{name: HELD[hint] for name, hint in fields.items()})


def several_of(kind: type) -> st.SearchStrategy[Any]:
    return st.lists(any_of(kind), max_size=4).map(tuple)


HELD[Spread | None] = st.none() | any_of(Spread)
HELD[MeasuringWindow | None] = st.none() | any_of(MeasuringWindow)
HELD[SentPacket | None] = st.none() | any_of(SentPacket)
HELD[tuple[ChangedField, ...]] = several_of(ChangedField)
HELD[tuple[FlowGroup, ...]] = several_of(FlowGroup)
HELD[tuple[FieldGroups, ...]] = several_of(FieldGroups)
HELD[PacketCounts | None] = st.none() | any_of(PacketCounts)
HELD[ClockOffset | None] = st.none() | any_of(ClockOffset)
HELD[ClockDifference | None] = st.none() | any_of(ClockDifference)
HELD[tuple[DelayClass, ...]] = several_of(DelayClass)
HELD[SoftwareDelay | None] = st.none() | any_of(SoftwareDelay)
HELD[tuple[LossRuns, ...]] = several_of(LossRuns)
HELD[tuple[SizeCounts, ...]] = several_of(SizeCounts)
HELD[tuple[Loss, ...]] = several_of(Loss)
HELD[tuple[PointCount, ...]] = several_of(PointCount)
HELD[tuple[Reason, ...]] = several_of(Reason)
HELD[dict[str, int]] = st.dictionaries(words, frames, max_size=3)
HELD[tuple[tuple[int, int], ...]] = st.lists(st.tuples(frames, frames), max_size=3).map(tuple)
HELD[Latencies | None] = st.none() | any_of(Latencies)
HELD[tuple[Latencies, ...]] = several_of(Latencies)
HELD[tuple[WireFigures, ...]] = several_of(WireFigures)
HELD[tuple[FlowResult, ...]] = several_of(FlowResult)
HELD[Mapping[str, str] | None] = st.none() | st.dictionaries(words, words, max_size=3)
HELD[tuple[int, ...] | None] = st.none() | st.lists(frames, max_size=3).map(tuple)
HELD[Identity] = any_of(Identity)
HELD[dict[str, StreamEnds]] = st.dictionaries(words, any_of(StreamEnds), max_size=2)
HELD[Role] = st.sampled_from(get_args(Role))
HELD[tuple[ThreadDelay, ...]] = several_of(ThreadDelay)
HELD[Disturbance | None] = st.none() | any_of(Disturbance)
HELD[tuple[tuple[Reason, ...], ...]] = st.lists(several_of(Reason), max_size=2).map(tuple)


COUNTS = any_of(StoredCounts).map(counts_of)
TRAFFIC = any_of(TrialFrames, load=loads)
GUEST_RESULTS = any_of(GuestResult, streams=st.just(()))
SPECS = any_of(TrialSpec, guests=st.just(()))
TRIAL_RESULTS = any_of(TrialResult, spec=SPECS, guests=st.just(()))


@st.composite
def trial_results(draw):
    """Results of guests with as many counted streams as the trial got to, or without any guests."""
    tasks, results = [], []
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}" if number else VICTIM
        streams = tuple(f"{name}-{n}" for n in range(draw(st.integers(0 if number else 1, 3))))
        does = draw(activities) if number else networks[0]
        sends = draw(TRAFFIC) if isinstance(does, Network) else None
        tasks.append(GuestTask(name, does, streams, sends, draw(seconds)))
        counted = tuple(replace(draw(COUNTS), stream=stream) for stream in streams[: draw(st.integers(0, 3))])
        results.append(replace(draw(GUEST_RESULTS), name=name, streams=counted))
    result = draw(TRIAL_RESULTS)
    spec = replace(result.spec, guests=tuple(tasks))
    return replace(result, spec=spec, guests=tuple(results) if draw(st.booleans()) else ())


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
    with closing(Store.read(path)) as store:
        return trials(store)


@settings(max_examples=40)
@given(trial_results())
def test_a_trial_comes_back_as_it_was(result):
    """So does one that broke before it counted. Unknown values stay unknown, and 0 stays 0."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "campaign.sqlite"
        with closing(Store.create(path)) as store:
            store.add(result)
            assert trials(store) == (result,)
            assert store.keys() == {result.spec.key}
        (again,) = read(path)
        assert repr(again) == repr(result), "1.0 is not 1"


def sums(added_up):
    counted = CounterTotals()
    for result, times in added_up:
        counted.add(result, times)
    return {guest: (own.trials, own.counters()) for guest, own in counted.sums.items()}, counted.guests


@settings(max_examples=60)
@given(st.lists(trial_results(), min_size=1, max_size=3), st.integers(1, 3))
def test_counters_are_left_out_or_added_up_whatever_they_are_called(results, times):
    kept = [
        replace(
            result, spec=replace(result.spec, uut=f"{result.spec.uut}{place}", repetition=repetition, index=repetition)
        )
        for repetition in range(times)
        for place, result in enumerate(results)
    ]
    with tempfile.TemporaryDirectory() as directory, closing(Store.create(Path(directory) / "s.sqlite")) as store:
        for result in kept:
            store.add(result)
        assert [result.without_counters for result in store.trials(counters=False)] == [
            result.without_counters for result in kept
        ]
        # A trial that broke may have lost frames elsewhere than the first with the same counters.
        added = [*store.added_up(), *((result.without_counters, 0) for result in kept)]
        assert sums(added) == sums((result, 1) for result in kept)


def test_trials_with_the_same_counters_are_read_as_one(store):
    def of(growth, name="rx", uut="raw"):
        counters = (count("ingress tap", name, "passed", growth), count("guest softnet", "dropped", "repeated", None))
        return trial(stream_counts(counters=counters), uut=uut, repetition=growth, index=growth)

    for result in (of(1), of(20), of(300), of(4, 'a "bracket]'), of(5, uut="kvm")):
        store.add(result)
    found = [(result.spec.uut, result.streams[0].counters[0].grew, times) for result, times in store.added_up()]
    assert found == [("raw", 321, 3), ("raw", 4, 1), ("kvm", 5, 1)]
    assert not any(result.streams[0].counters for result in store.trials(counters=False))
    assert store._connection.execute("SELECT count(*) FROM counters").fetchone() == (2,), "what is counted is kept once"


def test_a_trial_that_is_judged_anew_keeps_its_counters(store):
    first = trial(stream_counts(counters=(count("bridge", "nft drop", "dropped", 3),)))
    store.add(first)
    again = replace(first, reasons=(Reason(ReasonKind.LATE_FRAMES, "s1", ""),))
    store.replace(again)
    assert trials(store) == (again,)
    assert [result.verdict for result, _ in store.added_up()] == [Verdict.SUSPICIOUS]


def test_only_what_is_asked_for_is_read(store):
    for index, (uut, scenario) in enumerate([("raw", "dedicated"), ("kvm", "dedicated"), ("kvm", "shared-idle")]):
        store.add(trial(stream_counts(), index=index, uut=uut, scenario=scenario))
    assert [result.spec.index for result in store.trials(uut="kvm")] == [1, 2]
    assert [result.spec.index for result in store.trials(uut="kvm", scenario="shared-idle")] == [2]
    assert list(store.trials(scenario="shared-spread")) == []


def test_trials_can_be_added_while_others_are_read(store):
    for repetition in (1, 2, 3):
        store.add(trial(stream_counts(), repetition=repetition, index=repetition))
    reading = store.trials()
    assert next(reading).spec.repetition == 1
    store.add(trial(stream_counts(), repetition=4, index=4))
    assert [result.spec.repetition for result in reading][:2] == [2, 3]


def test_trials_come_in_the_order_of_the_plan(store):
    for index in (2, 0, 1):
        store.add(trial(stream_counts(), index=index, repetition=index + 1))
    assert [result.spec.index for result in trials(store)] == [0, 1, 2]
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
    assert [result.spec.repetition for result in read(path)] == [1]
    again = Store.open(path)
    again.add(trial(stream_counts(received=900), repetition=2))
    again.close()
    assert [result.spec.repetition for result in read(path)] == [1, 2]


def test_a_reader_sees_what_is_committed_while_the_writer_goes_on(path, store):
    store.add(trial(stream_counts()))
    assert len(read(path)) == 1
    store.add(trial(stream_counts(), repetition=2))
    assert len(read(path)) == 2


def test_warnings_are_kept_once_and_in_order(store):
    few = CampaignWarning(WarningKind.FEW_REPETITIONS, "one repetition")
    busy = CampaignWarning(WarningKind.HOST_WAS_BUSY, "load average 7")
    store.keep_warnings([few, busy])
    store.keep_warnings([busy, few])
    assert store.warnings() == (few, busy)


def test_facts_of_a_uut_take_the_place_of_what_it_reported_before(path, store):
    assert store.facts() == {}
    store.keep_facts("virtio", {"accelerator": "tcg", "emulated": "no KVM", "qemu": "7.2.18"})
    store.keep_facts("raw", {"kernel": "6.1.0"})
    store.keep_facts("virtio", {"qemu": "8.0.0", "accelerator": "kvm"})
    store.keep_facts("external", {})
    facts = {"raw": {"kernel": "6.1.0"}, "virtio": {"qemu": "8.0.0", "accelerator": "kvm"}}
    assert store.facts() == facts
    assert list(store.facts()["virtio"]) == ["qemu", "accelerator"]
    with closing(Store.read(path)) as again:
        assert again.facts() == facts


def test_the_last_boot_is_the_highest_that_was_stored(store):
    assert store.last_boot() == 0
    for repetition, boot in ((1, 4), (2, 0), (3, 2)):
        store.add(trial(stream_counts(), repetition=repetition, boot=boot))
    assert store.last_boot() == 4


def added(store):
    return tuple(store.added_up())


def set_in_document(path, value):
    return f"UPDATE trials SET document = json_set(document, '$.{path}', json('{value}'))"


FIRST = "guests[0].streams[0]"
DAMAGE = {
    "no JSON": ("UPDATE trials SET document = '{'", trials, "trial raw/.*: the whole: Invalid JSON"),
    "no trial": ("UPDATE trials SET document = '[]'", trials, "trial raw/.*: the whole"),
    "no bytes of text": ("UPDATE trials SET document = CAST(x'fffe' AS TEXT)", trials, ""),
    "frames that are words": (set_in_document(f"{FIRST}.sent_frames", '"many"'), trials, "streams.0.sent_frames"),
    "frames that are a fraction": (set_in_document(f"{FIRST}.sent_frames", "0.5"), trials, "streams.0.sent_frames"),
    "a delay of words": (set_in_document(f"{FIRST}.delay.median_ns", '"long"'), trials, "streams.0.delay.median_ns"),
    "CPU times that are none": (set_in_document("guests[1].cpu_s", "[1]"), trials, "guests.1.cpu_s"),
    "a reason that there is none of": (set_in_document("reasons[0].kind", '"bad luck"'), trials, "reasons.0.kind"),
    "no stream's name": (
        "UPDATE trials SET document = json_remove(document, '$.guests[0].streams[0].stream')",
        trials,
        "is missing",
    ),
    "growths that are words": ("UPDATE trials SET growths = '[\"many\"]'", trials, "trial raw/.*: 0: "),
    "fewer growths than counters": ("UPDATE trials SET growths = '[]'", trials, "counters are not those of its guests"),
    "no growths to add up": ("UPDATE trials SET growths = '{'", added, "Invalid JSON"),
    "no places to count at": ("UPDATE counters SET places = '[]'", trials, "counters are not those of its guests"),
    "no trials": ("DROP TABLE trials", trials, "no such table"),
    "no documents": ("ALTER TABLE trials DROP COLUMN document", trials, "no such column"),
    "no boots": ("ALTER TABLE trials DROP COLUMN boot", Store.last_boot, ""),
    "boots that are words": (
        "ALTER TABLE trials DROP COLUMN boot; ALTER TABLE trials ADD COLUMN boot TEXT DEFAULT 'x'",
        Store.last_boot,
        "",
    ),
    "a warning that there is none of": ("UPDATE warnings SET kind = 'rain'", Store.warnings, ""),
    "no facts": ("DROP TABLE uuts", Store.facts, ""),
}


@pytest.mark.parametrize(("sql", "ask", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_reported(path, store, sql, ask, message):
    timed = stream_counts("s1", delay=spread(1, 2, 3), counters=(count("bridge", "nft drop", "dropped", 3),))
    reasons = (Reason(ReasonKind.NOT_DRAINED, "s1", ""),)
    store.add(trial(timed, neighbours=(neighbour(stream_counts("s2")),), reasons=reasons, boot=1))
    store.keep_warnings([CampaignWarning(WarningKind.SHORT_TRIALS, "short")])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)
    with closing(Store.read(path)) as broken, pytest.raises(UsageError, match=f"is damaged: .*{message}") as caught:
        ask(broken)
    assert str(caught.value).startswith(f"{path}: ")


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


def test_a_full_disk_is_reported_and_what_was_stored_is_kept(path, store):
    store.add(trial(stream_counts(), repetition=1))
    store._connection.execute(f"PRAGMA max_page_count = {store._connection.execute('PRAGMA page_count').fetchone()[0]}")
    counters = tuple(count("hop" * 100, str(n), "passed", n) for n in range(500))
    with pytest.raises(TestbedError, match="cannot be written: database or disk is full; is the disk full?"):
        store.add(trial(stream_counts(counters=counters), repetition=2))
    assert [result.spec.repetition for result in trials(store)] == [1]


def become_nobody():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


@pytest.mark.parametrize("how", [Store.read, Store.open])
def test_where_nothing_can_be_written_a_store_is_read_and_not_opened_for_writing(how):
    directory = Path(tempfile.mkdtemp(prefix="netbench-read-only-"))  # which anyone can reach
    path = directory / "campaign.sqlite"
    with closing(Store.create(path)) as store:
        store.add(trial(stream_counts(received=993)))
    path.chmod(0o444)
    directory.chmod(0o555)
    try:
        with get_context("fork").Pool(1, become_nobody) as somebody:
            if how == Store.read:
                assert somebody.apply(read, (path,))[0].streams[0].received.frames == 993
            else:
                with pytest.raises(UsageError, match="attempt to write a readonly database"):
                    somebody.apply(how, (path,))
        assert [path.name for path in directory.iterdir()] == ["campaign.sqlite"]
    finally:
        directory.chmod(0o755)
        shutil.rmtree(directory)


def test_frames_that_come_late_spoil_the_trial_that_they_are_missing_in(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results.sqlite")
    record = CampaignRecord(ResultDirectory(tmp_path), store, [])
    for index, late_from in enumerate([{}, {}, {"198.18.1.2": 2, "198.18.1.99": 1}]):
        counts = stream_counts(received=998, source_address=f"198.18.1.{2 + index}", late_from=late_from)
        record.keep(trial(counts, index=index, repetition=1 + index))
    first, second, _ = store.trials()
    assert [(reason.kind, reason.stream) for reason in first.reasons] == [(ReasonKind.LATE_FRAMES, "s1")]
    assert first.reasons[0].detail.startswith("2 of the frames that it counts as lost arrived later, in trial 2;")
    assert (first.verdict, second.reasons) == (Verdict.SUSPICIOUS, ())


@pytest.mark.parametrize(
    ("received", "attempt", "spoiled"),
    [(998, 1, [False, True, False]), (1000, 1, [False, False, False]), (998, 2, [False, False, False])],
)
def test_late_frames_without_an_address_spoil_the_trial_before(tmp_path: Path, received, attempt, spoiled) -> None:
    """Not one that lost no frame, and none if an attempt was discarded: it may have sent them."""
    store = Store.create(tmp_path / "results.sqlite")
    record = CampaignRecord(ResultDirectory(tmp_path), store, [])
    for index, late in enumerate([0, 0, 2]):
        counts = stream_counts(received=received, source_address="198.18.1.2", late_from={})
        counts = replace(counts, received=replace(counts.received, late=late))
        result = trial(counts, index=index, repetition=1 + index)
        record.keep(replace(result, attempt=attempt))
    found = store.trials()
    assert [any(reason.kind is ReasonKind.LATE_FRAMES for reason in one.reasons) for one in found] == spoiled


def test_starts_of_uuts_are_noted_and_a_number_that_is_used_again_is_that_of_the_later(store):
    for boot in (Boot("a", 1, 1.5, 4096), Boot("b", 2, 0.5), Boot("a", 2)):
        store.keep_boot(boot)
    assert store.boots() == (Boot("a", 1, 1.5, 4096), Boot("a", 2))
