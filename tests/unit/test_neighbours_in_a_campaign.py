"""A campaign whose UUTs have neighbours, on fakes: who is there when, what each sends, and what becomes of mishaps."""

import pytest

from netbench.campaign import runner as campaign
from netbench.campaign.runner import make_request, resume
from netbench.hosts.signals import Stopped
from netbench.model.paths import stream_paths
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.results.directory import ResultDirectory
from tests.unit.fakes import FakeTestbed, Fate
from tests.unit.inputs import profile, shared_topology
from tests.unit.test_campaign import events, run, stop_at

DIES = Fate(uut_error="guest second: QEMU was killed by signal 9")
REFUSED = "guest second: QEMU ended with exit code 1"
UUTS = ({"name": "a", "kind": "raw"}, {"name": "b", "kind": "raw"})


@pytest.fixture
def directory(tmp_path):
    return ResultDirectory(tmp_path / "results")


@pytest.fixture
def testbed(monkeypatch):
    fake = FakeTestbed(stream_paths(shared_topology()), streams={"second": ("s2",)})
    monkeypatch.setattr(campaign, "open_testbed", lambda *_: fake.opening())
    return fake


def request(*scenarios, uuts=UUTS[:1], **more):
    wanted = profile(**{"order": "sequential", "scenarios": list(scenarios), **more})
    return make_request(shared_topology(uuts=uuts), wanted)


def by_scenario(results):
    found: dict[str, list] = {}
    for trial in results.trials:
        found.setdefault(trial.spec.scenario, []).append(trial)
    return found


def kinds(trial):
    return [reason.kind for reason in trial.reasons]


def test_a_neighbour_is_there_only_when_a_scenario_needs_it(testbed, directory):
    run(directory, request("dedicated", "shared-idle", {"network": "500fps"}, {"name": "alone", "activity": "off"}))
    assert testbed.calls == ["open", "up a", "up a.second", "down a.second", "down a", "close"]
    assert testbed.trials == 4


def test_both_sides_of_a_trial_are_counted(testbed, directory):
    testbed.fates["a"] = [Fate(lost_in_uut=3)]
    testbed.fates["a.second"] = [Fate(lost_in_uut=5)]
    results = run(directory, request({"network": "500fps", "frame_size": 64}, duration="2s", settle={"before": "1s"}))
    [trial] = results.trials
    [victim] = trial.streams
    [neighbour] = trial.neighbours
    assert (victim.stream, victim.sent_frames, victim.lost_frames) == ("s1", 2000, 3)
    [other] = neighbour.streams
    # Its sources send longer than the victim's: while the settling time passes, and a little more.
    assert (other.stream, other.sent_frames, other.lost_frames) == ("s2", 500 * (2 + 1) + 500 * 0.2, 5)
    assert neighbour.name == "second"
    assert str(trial.spec.task("second").activity) == "forwards 64-byte frames at 500fps"
    assert [(loss.place, loss.frames) for loss in other.lost_at] == [("uut (between ingress NIC and egress NIC)", 5)]
    assert trial.verdict is Verdict.VALID


def test_the_neighbours_send_before_the_victim_and_are_waited_for(testbed, directory):
    run(directory, request({"network": "500fps"}))
    log = testbed.fakes.log
    assert log.index("source s2 start") < log.index("source s1 start")
    assert log.index("source s1 wait") < log.index("source s2 wait")


def test_shares_refer_to_the_best_of_the_loads_in_shared_idle(testbed, directory):
    results = run(
        directory, request("shared-idle", {"network": ["50%", "95%"]}, loads=["1000fps", "4000fps", "2000fps"])
    )
    [maximum] = results.maxima
    assert (maximum.uut, maximum.frame_size, maximum.fps, maximum.load) == ("a", 64, 4000.0, "4000fps")
    found = by_scenario(results)
    for scenario, fps in (("network-50", 2000.0), ("network-95", 3800.0)):
        assert {trial.neighbours[0].streams[0].intended_fps for trial in found[scenario]} == {fps}


def test_a_maximum_stays_what_it_was_when_a_campaign_is_resumed(testbed, directory):
    testbed.before_trial = stop_at(3, Stopped(15))
    wanted = request("shared-idle", {"network": ["50%", "80%"]}, loads=["1000fps"])
    with pytest.raises(Stopped):
        run(directory, wanted)
    testbed.before_trial = lambda number: None
    resume(directory, ["netbench", "resume"], [])
    found = by_scenario(directory.results())
    assert found["network-50"][0].neighbours[0].streams[0].intended_fps == 500.0
    assert found["network-80"][0].neighbours[0].streams[0].intended_fps == 800.0
    assert len(directory.results().maxima) == 1


@pytest.mark.parametrize("stop", range(1, 8))
def test_interrupted_anywhere_and_resumed_it_is_the_same_campaign(testbed, directory, stop):
    wanted = request("dedicated", "shared-idle", {"network": ["50%"]}, uuts=UUTS, order="interleaved", seed=stop)
    testbed.before_trial = stop_at(stop, Stopped(15))
    if stop <= len(wanted.schedule.trials):
        with pytest.raises(Stopped):
            run(directory, wanted)
        testbed.before_trial = lambda number: None
        resume(directory, ["netbench", "resume"], [])
    else:
        run(directory, wanted)
    results = directory.results()
    assert [trial.spec.key for trial in results.trials] == [trial.key for trial in wanted.schedule.trials]
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    boots = [trial.boot for trial in sorted(results.trials, key=lambda one: one.started_ns)]
    assert boots == sorted(boots)
    assert min(boots) == 1


def test_a_maximum_that_was_not_found_costs_only_what_refers_to_it(testbed, directory):
    testbed.fates["a"] = [Fate(sink_error="killed by signal 9")]
    wanted = request("dedicated", "shared-idle", {"network": ["50%", "500fps"]}, retries=0)
    found = by_scenario(run(directory, wanted))
    assert kinds(found["shared-idle"][0]) == [ReasonKind.CAPTURE_FAILED]
    assert kinds(found["network-50"][0]) == [ReasonKind.MAXIMUM_UNKNOWN]
    assert found["network-50"][0].streams == ()
    assert [found[name][0].verdict for name in ("dedicated", "network-500fps")] == [Verdict.VALID] * 2


def test_a_uut_that_forwards_nothing_has_no_maximum(testbed, directory):
    testbed.fates["a"] = [Fate(lost_in_uut=1000)]
    found = by_scenario(run(directory, request("shared-idle", {"network": "50%"})))
    assert found["shared-idle"][0].verdict is Verdict.VALID
    assert kinds(found["network-50"][0]) == [ReasonKind.MAXIMUM_UNKNOWN]


def test_a_neighbour_that_dies_is_restarted_and_the_uut_lives_on(testbed, directory):
    testbed.fates["a.second"] = [DIES]
    results = run(directory, request("dedicated", "shared-idle", {"network": "500fps"}))
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert testbed.calls == [
        "open",
        "up a",
        "up a.second",
        "down a.second",
        "up a.second",
        "down a.second",
        "down a",
        "close",
    ]
    assert {trial.boot for trial in results.trials} == {1}
    failed = [event for event in events(directory) if event["kind"] == "trial-finished" and event["reasons"]]
    assert [event["reasons"] for event in failed] == [["neighbour-failed: neighbour second: " + DIES.uut_error]]
    assert (directory.path / "consoles" / "a.second.log").exists()


def test_a_neighbour_that_keeps_dying_costs_only_the_trials_that_need_it(testbed, directory):
    testbed.fates["a.second"] = [DIES] * 99
    wanted = request("shared-idle", "dedicated", {"network": "500fps"}, uuts=UUTS, repetitions=4, retries=1)
    results = run(directory, wanted)
    of_a = [trial for trial in results.trials if trial.spec.uut == "a"]
    for trial in of_a:
        alone = trial.spec.scenario == "dedicated"
        assert trial.verdict is (Verdict.VALID if alone else Verdict.INVALID)
        assert kinds(trial) == ([] if alone else [ReasonKind.NEIGHBOUR_FAILED])
    assert {trial.verdict for trial in results.trials if trial.spec.uut == "b"} == {Verdict.VALID}
    assert testbed.calls.count("up a.second") == 3


def test_a_neighbour_that_does_not_come_up_is_tried_again_at_the_next_visit_and_then_no_more(testbed, directory):
    testbed.refusals["a.second"] = [REFUSED] * 99
    wanted = request("shared-idle", "dedicated", uuts=UUTS, repetitions=4, order="interleaved", reboot="trial")
    results = run(directory, wanted)
    shared = [trial for trial in results.trials if (trial.spec.uut, trial.spec.scenario) == ("a", "shared-idle")]
    assert [kinds(trial) for trial in shared] == [[ReasonKind.NEIGHBOUR_FAILED]] * 4
    assert testbed.calls.count("up a.second") == 2
    others = [trial for trial in results.trials if trial not in shared]
    assert {trial.verdict for trial in others} == {Verdict.VALID}
    assert len(others) == 12


def test_a_uut_that_dies_takes_its_neighbours_with_it(testbed, directory):
    testbed.fates["a"] = [Fate(uut_error="guest a: QEMU was killed by signal 9")]
    results = run(directory, request("shared-idle"))
    assert testbed.calls == [
        "open",
        "up a",
        "up a.second",
        "down a.second",
        "down a",
        "up a",
        "up a.second",
        "down a.second",
        "down a",
        "close",
    ]
    assert [trial.boot for trial in results.trials] == [2]


def test_a_neighbour_that_sends_less_than_intended_is_no_reason_against_a_trial_but_said(testbed, directory):
    testbed.fates["a.second"] = [Fate(sent=400)]
    results = run(directory, request({"network": "500fps"}))
    assert results.trials[0].verdict is Verdict.VALID
    said = [one.text for one in results.warnings if one.kind is WarningKind.NEIGHBOUR_BELOW_ITS_LOAD]
    assert said == [
        "UUT a, scenario network-500fps: in some trials the sources of a neighbour sent less than was intended. What "
        "is said of the neighbour's load refers to what they did send."
    ]


def test_a_neighbour_whose_capture_fails_makes_the_trial_invalid(testbed, directory):
    testbed.fates["a.second"] = [Fate(sink_error="killed by signal 9")]
    results = run(directory, request({"network": "500fps"}, retries=0))
    [reason] = results.trials[0].reasons
    assert (reason.kind, reason.stream) == (ReasonKind.CAPTURE_FAILED, "s2")
    assert results.trials[0].verdict is Verdict.INVALID
