"""A campaign and UUTs that fail: which trials are stored as what, and that all others are measured."""

import tempfile
from collections import Counter
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.campaign import runner as campaign
from netbench.campaign.boots import MOST_FAILURES, MOST_GIVEN_UP, Boots
from netbench.campaign.record import Record, Results
from netbench.campaign.runner import make_request, measure_all, resume, start
from netbench.errors import TestbedError
from netbench.model.events import Event, TrialFinished, UutFailed
from netbench.model.paths import stream_paths
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.results.directory import ResultDirectory
from tests.unit.fakes import FakeTestbed, Fate
from tests.unit.inputs import profile, topology
from tests.unit.test_campaign import events, run, stop_at

UUTS = tuple({"name": name, "kind": "raw"} for name in ("a", "b", "c"))
DIES = Fate(uut_error="guest b: QEMU was killed by signal 9")
UNREAD = Fate(sink_error="killed by signal 9")


@pytest.fixture
def directory(tmp_path):
    return ResultDirectory(tmp_path / "results")


@pytest.fixture
def testbed(monkeypatch):
    """A testbed of fakes in the place of a real one."""
    fake = FakeTestbed(stream_paths(topology()))
    monkeypatch.setattr(campaign, "open_testbed", lambda *_: fake.opening())
    return fake


def request(uuts=UUTS, **more):
    return make_request(topology(uuts=uuts), profile(**{"order": "sequential", **more}))


def of(results, name):
    return [trial for trial in results.trials if trial.spec.uut == name]


def ups(testbed):
    return Counter(call.removeprefix("up ") for call in testbed.calls if call.startswith("up "))


def test_a_uut_that_does_not_come_up_costs_its_own_trials_and_no_others(testbed, directory):
    testbed.refusals["b"] = ["guest b: QEMU ended with exit code 1: Could not set up host network"]
    results = run(directory, request(repetitions=2))
    assert ups(testbed) == {"a": 1, "b": 1, "c": 1}
    assert testbed.trials == 4, "b's were not tried"
    assert [trial.verdict for trial in of(results, "a") + of(results, "c")] == [Verdict.VALID] * 4
    lost = of(results, "b")
    assert [trial.spec.repetition for trial in lost] == [1, 2]
    for trial in lost:
        (reason,) = trial.reasons
        assert (reason.kind, reason.stream) == (ReasonKind.UUT_FAILED, "")
        assert reason.detail == "guest b: QEMU ended with exit code 1: Could not set up host network"
        assert (trial.streams, trial.verdict, trial.attempt) == ((), Verdict.INVALID, 1)
        assert trial.started_ns > 1_600_000_000 * 10**9
    assert results.manifest["finished"]


def test_it_is_on_record_when_and_why(testbed, directory):
    testbed.refusals["b"] = ["no carrier"]
    run(directory, request())
    told = [(event["kind"], event.get("uut") or event.get("key", "").partition("/")[0]) for event in events(directory)]
    assert told == [
        ("campaign-started", ""),
        ("uut-ready", "a"),
        *((kind, told[2][1]) for kind in ("trial-started", "trial-finished", "trial-stored")),
        ("uut-failed", "b"),
        ("trial-stored", told[6][1]),
        ("uut-ready", "c"),
        *((kind, told[8][1]) for kind in ("trial-started", "trial-finished", "trial-stored")),
        ("campaign-finished", ""),
    ]
    failed, stored = events(directory)[5:7]
    assert (failed["why"], stored["verdict"]) == ("no carrier", "invalid")
    keys = [event["key"] for event in events(directory) if event["kind"] == "trial-stored"]
    assert keys == [trial.key for trial in request().schedule.trials]


def test_what_was_stored_for_it_is_not_measured_when_the_campaign_goes_on(testbed, directory):
    """Neither after it was finished, nor when it was stopped later on."""
    testbed.refusals["b"] = ["no carrier"]
    testbed.before_trial = stop_at(2, TestbedError("eth1 is gone"))
    with pytest.raises(TestbedError, match="eth1 is gone"):
        run(directory, request())
    testbed.before_trial = lambda number: None
    testbed.calls.clear()
    resume(directory, [], [])
    assert testbed.calls == ["open", "up c", "down c", "close"]
    assert [len(of(directory.results(), name)) for name in "abc"] == [1, 1, 1]
    testbed.calls.clear()
    resume(directory, [], [])
    assert testbed.calls == []


def test_a_uut_that_dies_in_a_trial_is_restarted_and_the_trial_repeated(testbed, directory):
    testbed.fates["b"] = [Fate(), DIES]
    results = run(directory, request(repetitions=3, retries=1))
    assert ups(testbed) == {"a": 1, "b": 2, "c": 1}
    assert [(trial.attempt, trial.verdict) for trial in of(results, "b")] == [
        (1, Verdict.VALID),
        (2, Verdict.VALID),
        (1, Verdict.VALID),
    ]
    where = testbed.calls.index("up b")
    assert testbed.calls[where : where + 4] == ["up b", "down b", "up b", "down b"]


def test_without_retries_it_is_restarted_for_the_next_trial(testbed, directory):
    testbed.fates["b"] = [DIES]
    results = run(directory, request(repetitions=2, retries=0))
    first, second = of(results, "b")
    assert (first.verdict, second.verdict) == (Verdict.INVALID, Verdict.VALID)
    assert [reason.detail for reason in first.reasons if reason.kind is ReasonKind.UUT_FAILED] == [DIES.uut_error]
    assert len(first.streams) == 1, "its frames were counted"
    assert ups(testbed)["b"] == 2


def test_after_its_last_trial_a_uut_that_died_is_not_brought_up_again(testbed, directory):
    testbed.fates["b"] = [DIES]
    run(directory, request(retries=0))
    assert ups(testbed) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(("retries", "tried"), [(0, 3), (1, 2), (2, 1), (9, 1)])
def test_a_uut_that_keeps_dying_is_given_up(testbed, directory, retries, tried):
    """The third failure in a row is the last, whichever trials they were in."""
    testbed.fates["b"] = [DIES] * 99
    results = run(directory, request(repetitions=5, retries=retries))
    assert ups(testbed) == {"a": 1, "b": MOST_FAILURES, "c": 1}
    assert testbed.trials == 5 + MOST_FAILURES + 5
    lost = of(results, "b")
    assert [bool(trial.streams) for trial in lost] == [True] * tried + [False] * (5 - tried)
    assert {trial.verdict for trial in lost} == {Verdict.INVALID}
    assert lost[-1].reasons[0].detail == f"it failed in 3 trials one after the other: {DIES.uut_error}"
    (failed,) = [event for event in events(directory) if event["kind"] == "uut-failed"]
    assert (failed["uut"], failed["why"]) == ("b", lost[-1].reasons[0].detail)
    assert [trial.verdict for trial in of(results, "a") + of(results, "c")] == [Verdict.VALID] * 10


def test_a_uut_that_died_in_its_last_three_trials_was_measured_in_all_of_them(testbed, directory):
    """There is nothing left to give it up for."""
    testbed.fates["b"] = [DIES] * 3
    results = run(directory, request(repetitions=3, retries=0))
    assert [(trial.verdict, len(trial.streams)) for trial in of(results, "b")] == [(Verdict.INVALID, 1)] * 3
    assert "uut-failed" not in [event["kind"] for event in events(directory)]


def test_only_failures_in_a_row_count(testbed, directory):
    testbed.fates["b"] = [DIES, DIES, Fate()] * 3
    results = run(directory, request(repetitions=9, retries=0))
    assert [trial.verdict.value for trial in of(results, "b")] == ["invalid", "invalid", "valid"] * 3
    assert all(trial.streams for trial in of(results, "b"))
    assert ups(testbed)["b"] == 7


def test_a_trial_that_is_invalid_for_another_reason_interrupts_nothing(testbed, directory):
    testbed.fates["b"] = [UNREAD] * 9
    results = run(directory, request(repetitions=4, retries=1))
    assert ups(testbed)["b"] == 1
    assert [trial.attempt for trial in of(results, "b")] == [2, 2, 2, 2]


def test_a_uut_that_comes_up_once_only(testbed, directory):
    testbed.refusals["b"] = ["", "guest b did not answer within 60 s of its start"]
    testbed.fates["b"] = [Fate(), DIES]
    results = run(directory, request(repetitions=4, retries=3))
    assert [bool(trial.streams) for trial in of(results, "b")] == [True, False, False, False]
    assert {trial.reasons[0].detail for trial in of(results, "b")[1:]} == {
        "guest b did not answer within 60 s of its start"
    }
    assert ups(testbed) == {"a": 1, "b": 2, "c": 1}


def test_every_visit_is_a_new_chance(testbed, directory):
    """Interleaved, a UUT is visited about once a repetition."""
    testbed.refusals["b"] = ["out of memory"]
    wanted = request(repetitions=4, order="interleaved")
    visits = [list(trials) for name, trials in groupby(wanted.schedule.trials, lambda trial: trial.uut) if name == "b"]
    assert len(visits) > 1
    results = run(directory, wanted)
    verdicts = {trial.spec: trial.verdict.value for trial in of(results, "b")}
    assert {verdicts[trial] for trial in visits[0]} == {"invalid"}
    assert {verdicts[trial] for visit in visits[1:] for trial in visit} == {"valid"}


def test_a_uut_that_was_given_up_often_enough_is_not_visited_again(testbed, directory):
    testbed.refusals["b"] = ["out of memory"] * 9
    wanted = request(repetitions=6, order="interleaved")
    results = run(directory, wanted)
    assert {trial.verdict for trial in of(results, "b")} == {Verdict.INVALID}
    assert {trial.verdict for trial in of(results, "a") + of(results, "c")} == {Verdict.VALID}
    assert ups(testbed)["b"] == MOST_GIVEN_UP
    last = max(of(results, "b"), key=lambda trial: trial.spec.index)
    assert last.reasons[0].detail == "not tried again after it was given up 2 times: out of memory"


def test_what_a_uut_wrote_to_its_console_before_it_failed_is_kept(testbed, directory):
    testbed.fates["b"] = [DIES]
    run(directory, request(retries=0))
    assert (directory.path / "consoles/b.log").read_text() == "login: "
    assert [path.name for path in (directory.path / "consoles").iterdir()] == ["b.log"]


def test_there_is_no_console_where_nothing_failed_or_nothing_was_written(testbed, directory):
    testbed.refusals["b"] = ["no carrier"]
    run(directory, request())
    assert not (directory.path / "consoles").exists()


def test_a_testbed_that_breaks_still_ends_the_campaign(testbed, directory, monkeypatch):
    """What is not the UUT's fault is not put down to it."""

    def broken(spec):
        raise TestbedError("UUT a could not be undone: `ip link del nb-br-s1` failed")

    monkeypatch.setattr(testbed, "uut", broken)
    with pytest.raises(TestbedError, match="could not be undone"):
        run(directory, request())
    assert events(directory)[-1]["kind"] == "campaign-stopped"
    assert not directory.results().trials


def test_what_a_uut_says_of_itself_is_kept_and_the_latest_counts(testbed, directory):
    testbed.told["a"] = [{"accelerator": "kvm"}]
    testbed.told["b"] = [{"qemu": "7.2", "kernel": "6.1"}, {"qemu": "8.0"}]
    testbed.fates["b"] = [DIES]
    testbed.refusals["c"] = ["no carrier"]
    results = run(directory, request(retries=1))
    assert results.facts == {"a": {"accelerator": "kvm"}, "b": {"qemu": "8.0"}}
    assert not [warning for warning in results.warnings if warning.kind is WarningKind.CPU_IS_EMULATED]


def test_an_emulated_cpu_is_warned_of_once_for_each_uut(testbed, directory):
    why = "this host has no /dev/kvm"
    for name in "ab":
        testbed.told[name] = [{"emulated": why}] * 3
    results = run(directory, request(repetitions=3, order="interleaved"))
    texts = [warning.text for warning in results.warnings if warning.kind is WarningKind.CPU_IS_EMULATED]
    assert len(texts) == 2
    assert {name for name in "abc" for text in texts if f"UUT {name} is emulated ({why})" in text} == {"a", "b"}
    assert results.emulated == {"a", "b"}


def test_what_sources_have_to_say_is_kept(testbed, directory):
    testbed.said = ["afpacket sends from nb-tx1 of host source: its kernel has no pktgen"]
    results = run(directory, request(repetitions=2))
    texts = [warning.text for warning in results.warnings]
    assert texts.count(testbed.said[0]) == 1


class Notes:
    """A store and an observer that only take note."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.told: list[Event] = []

    def add(self, trial) -> None:
        self.kept.append(trial)

    def keys(self):
        return set()

    def keep_facts(self, uut, facts) -> None:
        pass

    def keep_warnings(self, warnings) -> None:
        pass

    def on(self, event) -> None:
        self.told.append(event)


FATES = st.sampled_from([Fate(), DIES, UNREAD])


@settings(max_examples=60, deadline=None)
@given(st.lists(FATES, max_size=20), st.lists(st.sampled_from(["", "", "", "refused"]), max_size=6), st.integers(0, 3))
def test_whatever_happens_every_trial_is_stored_once_and_in_order(fates, refusals, retries):
    lab, wanted = topology(), profile(repetitions=5, retries=retries, order="sequential")
    schedule = make_request(lab, wanted).schedule
    trials = schedule.trials or ()
    testbed = FakeTestbed(stream_paths(lab), fates)
    testbed.refusals["bridge"] = list(refusals)
    notes: Any = Notes()
    fake: Any = testbed
    with tempfile.TemporaryDirectory() as place:
        directory = ResultDirectory(Path(place))
        directory.captures.mkdir()
        record = Record(directory, notes, Results(notes), [notes])
        boots = Boots(fake, wanted, directory.captures, record, count(1))
        measure_all(schedule, boots, {uut.name: uut for uut in lab.uuts})
        assert list(directory.captures.iterdir()) == []
    assert [kept.spec for kept in notes.kept] == list(trials)
    assert all(1 <= kept.attempt <= retries + 1 for kept in notes.kept)
    assert testbed.calls.count("up bridge") == testbed.calls.count("down bridge") <= testbed.trials + 1
    finished = [event for event in notes.told if isinstance(event, TrialFinished)]
    assert len(finished) == testbed.trials
    for kept in notes.kept:
        mine = [event for event in finished if event.key == kept.spec.key]
        if kept.streams:
            assert [event.attempt for event in mine] == list(range(1, kept.attempt + 1))
            assert mine[-1].verdict == kept.verdict.value
            assert all(event.verdict == "invalid" for event in mine[:-1])
        else:
            assert [reason.kind for reason in kept.reasons] == [ReasonKind.UUT_FAILED]
    given_up = [bool(kept.streams) for kept in notes.kept]
    assert given_up == sorted(given_up, reverse=True), "once given up, nothing more is measured"
    died = "".join("x" if any("uut-failed" in str(why) for why in one.reasons) else "." for one in finished)
    assert "x" * (MOST_FAILURES + 1) not in died
    failed = [event for event in notes.told if isinstance(event, UutFailed)]
    assert len(failed) == (0 if all(given_up) else 1)


def test_starting_says_which_uuts_the_testbed_is_for(testbed, directory, monkeypatch):
    """A guest image that only another UUT needs is not asked for."""
    asked = []

    def open_fake(topology, profile, uuts, scenarios):
        asked.append(tuple(uuts))
        return testbed.opening()

    monkeypatch.setattr(campaign, "open_testbed", open_fake)
    start(make_request(topology(uuts=UUTS), profile(), ["b"]), directory, [], [])
    directory.write_manifest({**directory.read_manifest(), "finished": None})
    resume(directory, [], [])
    assert asked == [("b",), ("b",)]
