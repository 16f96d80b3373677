"""UUTs and neighbours that fail: how their trials are stored, and that all others are measured."""

import shutil
from itertools import count, groupby
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netbench.campaign.boots import MOST_FAILURES, MOST_GIVEN_UP, Boots, needs_new_boot
from netbench.campaign.record import CampaignRecord
from netbench.campaign.request import make_request
from netbench.campaign.runner import measure_all, start
from netbench.campaign.testbeds import Testbeds
from netbench.errors import TestbedError
from netbench.model.events import Event, TrialFinished, TrialStarted, UutFailed
from netbench.model.verdict import Reason, ReasonKind, Verdict, WarningKind
from netbench.results.directory import ResultDirectory
from tests.unit.fake_campaign import FakeCampaign, FakeTestbed
from tests.unit.fakes import Behaviour
from tests.unit.inputs import profile, shared_topology, topology

UUTS = tuple({"name": name, "kind": "raw"} for name in ("a", "b", "c"))
DIES = Behaviour(uut_error="guest b: QEMU was killed by signal 9")
UNREAD = Behaviour(sink_error="killed by signal 9")


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """On three UUTs."""
    return FakeCampaign.on(topology(uuts=UUTS), tmp_path / "results", monkeypatch)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """On two UUTs with a neighbour each."""
    return FakeCampaign.on(shared_topology(uuts=UUTS[:2]), tmp_path / "results", monkeypatch)


def of(results, *uuts):
    return [trial for trial in results.trials if trial.spec.uut in uuts]


def kinds(trial):
    return [reason.kind for reason in trial.reasons]


def test_a_uut_that_does_not_come_up_costs_its_own_trials_and_no_others(campaign):
    why = "guest b: QEMU ended with exit code 1: Could not set up host network"
    campaign.testbed.refusals["b"] = [why]
    results = campaign.run(repetitions=2)
    assert campaign.testbed.ups == {"a": 1, "b": 1, "c": 1}
    assert campaign.testbed.trials == 4, "b's were not tried"
    assert [trial.verdict for trial in of(results, "a", "c")] == [Verdict.VALID] * 4
    lost = of(results, "b")
    assert [trial.spec.repetition for trial in lost] == [1, 2]
    for trial in lost:
        assert [(reason.kind, reason.stream, reason.detail) for reason in trial.reasons] == [
            (ReasonKind.UUT_FAILED, "", why)
        ]
        assert (trial.streams, trial.verdict, trial.attempt) == ((), Verdict.INVALID, 1)
        assert trial.started_ns > 1_600_000_000 * 10**9
    assert results.manifest["finished"]
    assert not (campaign.directory.path / "consoles").exists(), "nothing was written to it"


# The behaviours in b's trials, the refusals of its starts, and the retries of a trial. Then the expected verdict and
# attempt of each of its trials, or `-` where it was not measured, and how often it was brought up.
FAILURES = {
    "it is restarted and the trial repeated": ([Behaviour(), DIES], [], 1, "valid-1 valid-2 valid-1", 2),
    "without retries it is restarted for the next trial": ([DIES], [], 0, "invalid-1 valid-1", 2),
    "after its last trial it is not brought up again": ([DIES], [], 0, "invalid-1", 1),
    "the third failure in a row is the last": ([DIES] * 99, [], 0, "invalid-1 invalid-1 invalid-1 - -", 3),
    "whichever trials they were in": ([DIES] * 99, [], 1, "invalid-2 invalid-1 - - -", 3),
    "or in a single one": ([DIES] * 99, [], 9, "invalid-3 - - - -", 3),
    "there must be something left to give it up for": ([DIES] * 3, [], 0, "invalid-1 invalid-1 invalid-1", 3),
    "only failures in a row count": ([DIES, DIES, Behaviour()] * 2, [], 0, "invalid-1 invalid-1 valid-1 " * 2, 5),
    "other failures need no restart": ([UNREAD] * 9, [], 1, "invalid-2 invalid-2 invalid-2 invalid-2", 1),
    "it may come up once only": ([Behaviour(), DIES], ["", "no answer within 60 s"], 3, "valid-1 - - -", 2),
}


@pytest.mark.parametrize(
    ("behaviours", "refusals", "retries", "outcome", "ups"), FAILURES.values(), ids=FAILURES.keys()
)
def test_a_uut_that_dies_in_a_trial(campaign, behaviours, refusals, retries, outcome, ups):
    campaign.testbed.behaviours["b"], campaign.testbed.refusals["b"] = list(behaviours), list(refusals)
    expected = outcome.split()
    results = campaign.run(repetitions=len(expected), retries=retries)
    found = of(results, "b")
    assert [f"{trial.verdict.value}-{trial.attempt}" if trial.streams else "-" for trial in found] == expected
    assert campaign.testbed.ups == {"a": 1, "b": ups, "c": 1}
    assert {trial.verdict for trial in of(results, "a", "c")} == {Verdict.VALID}
    gave_up = refusals[-1] if refusals else f"it failed in 3 trials one after the other: {DIES.uut_error}"
    for trial in found:
        why = [(reason.kind, reason.detail) for reason in trial.reasons]
        assert trial.streams or why == [(ReasonKind.UUT_FAILED, gave_up)]
    assert [(event["uut"], event["why"]) for event in campaign.events("uut-failed")] == [("b", gave_up)] * (
        "-" in expected
    )
    died = [reason.detail for trial in found if trial.streams for reason in trial.reasons]
    assert set(died) <= {DIES.uut_error, UNREAD.sink_error}


def test_every_visit_is_a_new_chance(campaign):
    """Interleaved, a UUT is visited about once a repetition."""
    campaign.testbed.refusals["b"] = ["out of memory"]
    more = {"repetitions": 4, "order": "interleaved"}
    planned = campaign.request(**more).schedule.trials
    visits = [list(trials) for name, trials in groupby(planned, lambda trial: trial.uut) if name == "b"]
    assert len(visits) > 1
    verdicts = {trial.spec: trial.verdict.value for trial in of(campaign.run(**more), "b")}
    assert {verdicts[trial] for trial in visits[0]} == {"invalid"}
    assert {verdicts[trial] for visit in visits[1:] for trial in visit} == {"valid"}


def test_a_uut_that_was_given_up_often_enough_is_not_visited_again(campaign):
    campaign.testbed.refusals["b"] = ["out of memory"] * 9
    results = campaign.run(repetitions=6, order="interleaved")
    assert {trial.verdict for trial in of(results, "b")} == {Verdict.INVALID}
    assert {trial.verdict for trial in of(results, "a", "c")} == {Verdict.VALID}
    assert campaign.testbed.ups["b"] == MOST_GIVEN_UP
    last = max(of(results, "b"), key=lambda trial: trial.spec.index)
    assert last.reasons[0].detail == "not tried again after it was given up 2 times: out of memory"


def test_what_a_uut_wrote_to_its_console_before_it_failed_is_kept(campaign):
    campaign.testbed.behaviours["b"] = [DIES]
    campaign.run(retries=0)
    (console,) = (campaign.directory.path / "consoles").iterdir()
    assert (console.name, console.read_text()) == ("b.log", "login: ")


def test_a_testbed_that_breaks_still_ends_the_campaign(campaign, monkeypatch):
    """A fault that is not the UUT's is not attributed to it."""

    def broken(spec):
        raise TestbedError("UUT a could not be undone: `ip link del nb-br-s1` failed")

    monkeypatch.setattr(campaign.testbed, "uut", broken)
    with pytest.raises(TestbedError, match="could not be undone"):
        campaign.run()
    assert campaign.events()[-1]["kind"] == "campaign-stopped"
    assert not campaign.directory.results().trials


def test_what_a_uut_reports_of_itself_is_kept_and_the_latest_counts(campaign):
    campaign.testbed.output["a"] = [{"accelerator": "kvm"}]
    campaign.testbed.output["b"] = [{"qemu": "7.2", "kernel": "6.1"}, {"qemu": "8.0"}]
    campaign.testbed.behaviours["b"] = [DIES]
    campaign.testbed.refusals["c"] = ["no carrier"]
    results = campaign.run(retries=1)
    assert results.facts == {"a": {"accelerator": "kvm"}, "b": {"qemu": "8.0"}}
    assert not [warning for warning in results.warnings if warning.kind is WarningKind.CPU_IS_EMULATED]


def test_an_emulated_cpu_is_warned_of_once_for_each_uut(campaign):
    why = "this host has no /dev/kvm"
    campaign.testbed.output = {name: [{"emulated": why}] * 3 for name in "ab"}
    results = campaign.run(repetitions=3, order="interleaved")
    texts = [warning.text for warning in results.warnings if warning.kind is WarningKind.CPU_IS_EMULATED]
    assert [text.partition(": its numbers")[0] for text in sorted(texts)] == [
        f"The CPU of UUT {name} is emulated ({why})" for name in "ab"
    ]
    assert results.emulated == {"a", "b"}


class Remover:
    """Removes the directory of captures after each attempt, and makes it before the next.

    With `replaces`, a file takes its place.
    """

    def __init__(self, captures, *, replaces: bool) -> None:
        self.captures, self.replaces = captures, replaces

    def on(self, event) -> None:
        if isinstance(event, TrialFinished):
            shutil.rmtree(self.captures)
            if self.replaces:
                self.captures.touch()
        elif isinstance(event, TrialStarted):
            if self.captures.is_file():
                self.captures.unlink()
            self.captures.mkdir(exist_ok=True)


@pytest.mark.parametrize("replaces", [False, True])
def test_captures_that_somebody_has_removed_stop_no_one(campaign, replaces):
    wanted = campaign.request(repetitions=2, keep_captures="all")
    remover = Remover(campaign.directory.captures, replaces=replaces)
    start(wanted, campaign.directory, ["netbench", "run"], [remover])
    assert of(campaign.directory.results(), "a", "b", "c")


class Notes:
    """A store and an observer that only record."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.output: list[Event] = []

    def add(self, trial) -> None:
        self.kept.append(trial)

    def __contains__(self, key) -> bool:
        return any(kept.spec.key == key for kept in self.kept)

    def keep_facts(self, uut, facts) -> None:
        pass

    def keep_boot(self, boot) -> None:
        pass

    def on(self, event) -> None:
        self.output.append(event)


BEHAVIOURS = st.sampled_from([Behaviour(), DIES, UNREAD])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(BEHAVIOURS, max_size=20), st.lists(st.sampled_from(["", "", "", "refused"]), max_size=6), st.integers(0, 3)
)
def test_whatever_happens_every_trial_is_stored_once_and_in_order(tmp_path, behaviours, refusals, retries):
    lab, wanted = topology(), profile(repetitions=5, retries=retries, order="sequential")
    request = make_request(lab, wanted)
    schedule = request.schedule
    testbed: Any = FakeTestbed(lab)
    testbed.behaviours["bridge"], testbed.refusals["bridge"] = list(behaviours), list(refusals)
    notes: Any = Notes()
    directory = ResultDirectory(tmp_path)
    directory.captures.mkdir(exist_ok=True)
    record = CampaignRecord(directory, notes, [notes])
    testbeds = Testbeds(request.resolved, lambda _: testbed.opening())
    boots = Boots(testbeds, wanted, directory.captures, record, count(1))
    measure_all(schedule, boots, {uut.name: uut for uut in lab.uuts})
    assert list(directory.captures.iterdir()) == []
    assert [kept.spec for kept in notes.kept] == list(schedule.trials or ())
    assert all(1 <= kept.attempt <= retries + 1 for kept in notes.kept)
    assert testbed.calls.count("up bridge") == testbed.calls.count("down bridge") <= testbed.trials + 1
    finished = [event for event in notes.output if isinstance(event, TrialFinished)]
    assert len(finished) == testbed.trials
    for kept in notes.kept:
        mine = [event for event in finished if event.key == kept.spec.key]
        if kept.streams:
            assert [event.attempt for event in mine] == list(range(1, kept.attempt + 1))
            assert mine[-1].verdict == kept.verdict.value
            assert all(event.verdict == "invalid" for event in mine[:-1])
        else:
            assert kinds(kept) == [ReasonKind.UUT_FAILED]
    given_up = [bool(kept.streams) for kept in notes.kept]
    assert given_up == sorted(given_up, reverse=True), "once given up, nothing more is measured"
    died = "".join("x" if any("uut-failed" in str(why) for why in event.reasons) else "." for event in finished)
    assert "x" * (MOST_FAILURES + 1) not in died
    failed = [event for event in notes.output if isinstance(event, UutFailed)]
    assert len(failed) == (0 if all(given_up) else 1)


@pytest.mark.parametrize(
    ("kind", "ends_connections", "is_needed"),
    [
        (ReasonKind.LINK_DOWN, False, True),
        (ReasonKind.TOOL_FAILED, True, True),
        (ReasonKind.TOOL_FAILED, False, False),
        (ReasonKind.TESTER_DISTURBED, True, False),
    ],
)
def test_an_attempt_that_may_leave_a_link_or_a_stuck_process_behind_needs_a_new_boot(kind, ends_connections, is_needed):
    result = Mock(reasons=(Reason(kind, "s1", "why"),))
    assert needs_new_boot(result, ends_connections) is is_needed


ONE_UUT = shared_topology(uuts=UUTS[:1])
FORWARDING = {"network": "500fps"}


def calls(text: str) -> list[str]:
    """Return `up a` for `+a` and `down a` for `-a`, between opening and closing."""
    return ["open", *(("up " if word[0] == "+" else "down ") + word[1:] for word in text.split()), "close"]


def test_a_neighbour_is_there_only_when_a_scenario_needs_it(shared):
    shared.lab = ONE_UUT
    shared.run(scenarios=["dedicated", "shared-idle", FORWARDING, {"name": "alone", "activity": "off"}])
    assert shared.testbed.calls == calls("+a +a.second -a.second -a")
    assert shared.testbed.trials == 4


def test_both_sides_of_a_trial_are_counted_and_the_neighbours_send_longer(shared):
    shared.testbed.behaviours.update({"a": [Behaviour(lost_in_uut=3)], "a.second": [Behaviour(lost_in_uut=5)]})
    trial = shared.run(scenarios=[FORWARDING], duration="2s", settle={"before": "1s"}).trials[0]
    [victim], [neighbour] = trial.streams, trial.neighbours
    assert (victim.stream, victim.sent.frames, victim.lost_frames) == ("s1", 2000, 3)
    [other] = neighbour.streams
    # Its sources send longer than the victim's: while the settling time passes, and a little more.
    assert (other.stream, other.sent.frames, other.lost_frames) == ("s2", 500 * (2 + 1) + 500 * 0.2, 5)
    assert neighbour.name == "second"
    assert str(trial.spec.task("second").activity) == "forwards 64-byte frames at 500fps"
    assert [(loss.place, loss.frames) for loss in other.lost_at] == [("uut (between ingress NIC and egress NIC)", 5)]
    assert trial.verdict is Verdict.VALID
    log = shared.testbed.fakes.log
    assert log.index("source s2 start") < log.index("source s1 start")
    assert log.index("source s1 wait") < log.index("source s2 wait")


def test_a_neighbour_that_dies_is_restarted_and_the_uut_lives_on(shared):
    shared.lab = ONE_UUT
    shared.testbed.behaviours["a.second"] = [DIES]
    results = shared.run(scenarios=["dedicated", "shared-idle", FORWARDING])
    assert {(trial.verdict, trial.boot) for trial in results.trials} == {(Verdict.VALID, 1)}
    assert shared.testbed.calls == calls("+a +a.second -a.second +a.second -a.second -a")
    failed = [event["reasons"] for event in shared.events("trial-finished") if event["reasons"]]
    assert failed == [["neighbour-failed: neighbour second: " + DIES.uut_error]]
    assert (shared.directory.path / "consoles" / "a.second.log").exists()


def test_a_uut_that_dies_takes_its_neighbours_with_it(shared):
    shared.lab = ONE_UUT
    shared.testbed.behaviours["a"] = [DIES]
    results = shared.run(scenarios=["shared-idle"])
    assert shared.testbed.calls == calls("+a +a.second -a.second -a +a +a.second -a.second -a")
    assert [trial.boot for trial in results.trials] == [2]


@pytest.mark.parametrize(
    ("what", "more", "ups"),
    [
        ("behaviours", {"retries": 1}, 3),  # it keeps dying
        ("refusals", {"order": "interleaved", "reboot": "trial"}, 2),  # tried again at the next visit, and no more
    ],
)
def test_a_neighbour_that_cannot_be_had_costs_only_the_trials_that_need_it(shared, what, more, ups):
    getattr(shared.testbed, what)["a.second"] = [
        {"behaviours": DIES, "refusals": "QEMU ended with exit code 1"}[what]
    ] * 99
    results = shared.run(scenarios=["shared-idle", "dedicated", FORWARDING], repetitions=4, **more)
    for trial in of(results, "a"):
        assert kinds(trial) == ([] if trial.spec.scenario == "dedicated" else [ReasonKind.NEIGHBOUR_FAILED])
    assert {trial.verdict for trial in of(results, "b")} == {Verdict.VALID}
    assert [len(of(results, name)) for name in "ab"] == [12, 12]
    assert shared.testbed.ups["a.second"] == ups


def test_a_neighbour_that_sends_less_than_intended_is_no_reason_against_a_trial_but_reported(shared):
    shared.testbed.behaviours["a.second"] = [Behaviour(sent=400)]
    results = shared.run(scenarios=[FORWARDING])
    assert results.trials[0].verdict is Verdict.VALID
    assert [warning.text for warning in results.warnings if warning.kind is WarningKind.NEIGHBOUR_BELOW_ITS_LOAD] == [
        "UUT a, scenario network-500fps: in some trials the sources of a neighbour sent less than was intended. "
        "Statements about the neighbour's load refer to the offered load."
    ]


def test_a_neighbour_whose_capture_fails_makes_the_trial_invalid(shared):
    shared.testbed.behaviours["a.second"] = [UNREAD]
    [reason] = shared.run(scenarios=[FORWARDING], retries=0).trials[0].reasons
    assert (reason.kind, reason.stream) == (ReasonKind.CAPTURE_FAILED, "s2")


def test_what_was_stored_for_it_is_not_measured_when_the_campaign_goes_on(campaign):
    """Neither after it was finished, nor when it was stopped later on."""
    campaign.testbed.refusals["b"] = ["no carrier"]
    campaign.stopped_at(2, TestbedError("eth1 is gone"))
    results = campaign.resume()
    assert campaign.testbed.calls == ["open", "up c", "down c", "close"]
    assert [len(of(results, name)) for name in "abc"] == [1, 1, 1]
    campaign.resume()
    assert campaign.testbed.calls == []
