"""A campaign on a testbed of fakes: which trials are run, how often, what is stored, and how it goes on later."""

import json
from collections import Counter

import pytest

from netbench.campaign import runner as campaign
from netbench.campaign.runner import make_request, resume, start
from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.signals import Stopped
from netbench.model.paths import stream_paths
from netbench.model.verdict import Verdict, WarningKind
from netbench.results.directory import ResultDirectory
from tests.unit.fakes import FakeTestbed, Fate, fake_ports
from tests.unit.inputs import profile, topology

TWO_UUTS = ({"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"})
FINE = Fate()
BROKEN_OFF = Fate(source_error="ENETDOWN")  # invalid, and the generator's fault
UNREAD = Fate(sink_error="killed by signal 9")  # invalid, and not the generator's
DUBIOUS = Fate(flushes=False)


@pytest.fixture
def directory(tmp_path):
    return ResultDirectory(tmp_path / "results")


@pytest.fixture
def testbed(monkeypatch):
    """Put fakes in the place of what open_testbed brings up: fates in, testbed out."""
    paths = stream_paths(topology())

    def of(*fates) -> FakeTestbed:
        fake = FakeTestbed(paths, fates)

        monkeypatch.setattr(campaign, "open_testbed", lambda *_: fake.opening())
        return fake

    return of


def request(uuts=({"name": "bridge", "kind": "raw"},), **more):
    return make_request(topology(uuts=uuts), profile(**more))


def run(directory, wanted):
    start(wanted, directory, ["netbench", "run"], [])
    return directory.results()


def events(directory):
    return [json.loads(line) for line in directory.events.read_text().splitlines()]


def test_a_whole_campaign(testbed, directory):
    fakes = testbed()
    results = run(directory, request(TWO_UUTS, repetitions=2, order="sequential"))
    assert fakes.calls == ["open", "up bridge", "down bridge", "up route", "down route", "close"]
    assert [trial.spec.index for trial in results.trials] == [0, 1, 2, 3]
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert {trial.streams[0].received_frames for trial in results.trials} == {1000}
    manifest = directory.read_manifest()
    assert (manifest["planned_trials"], manifest["uuts"]) == (4, ["bridge", "route"])
    assert manifest["finished"]
    assert manifest["before"]["kernel"] == manifest["after"]["kernel"]


def test_events_in_order(testbed, directory):
    testbed(UNREAD)
    run(directory, request(retries=1))
    assert [event["kind"] for event in events(directory)] == [
        "campaign-started",
        "uut-ready",
        "trial-started",
        "trial-finished",
        "trial-started",
        "trial-finished",
        "trial-stored",
        "campaign-finished",
    ]
    first = events(directory)[3]
    assert (first["verdict"], first["attempt"]) == ("invalid", 1)
    assert first["reasons"] == ["capture-failed: killed by signal 9"]


def test_observers_hear_the_same_events_as_the_log(testbed, directory):
    testbed()
    heard = []

    class Ear:
        def on(self, event):
            heard.append(event.kind)

    start(request(), directory, [], [Ear()])
    assert heard == [event["kind"] for event in events(directory)]


def test_uuts_are_changed_only_when_the_plan_changes_them(testbed, directory):
    fakes = testbed()
    run(directory, request(TWO_UUTS, repetitions=2, frame_sizes=[64], loads=["10fps", "20fps"], order="interleaved"))
    ups = [call for call in fakes.calls if call.startswith("up")]
    assert Counter(ups).keys() == {"up bridge", "up route"}
    assert len(ups) in (3, 4)
    assert fakes.trials == 8


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_an_invalid_trial_is_repeated_and_then_kept_and_marked(testbed, directory, retries):
    fakes = testbed(*[UNREAD] * 9)
    (kept,) = run(directory, request(retries=retries)).trials
    assert fakes.trials == retries + 1
    assert (kept.verdict, kept.attempt) == (Verdict.INVALID, retries + 1)
    assert kept.streams[0].received_frames is None


def test_the_first_attempt_that_is_good_is_kept(testbed, directory):
    fakes = testbed(UNREAD, UNREAD, FINE)
    (kept,) = run(directory, request(retries=5)).trials
    assert (fakes.trials, kept.attempt, kept.verdict) == (3, 3, Verdict.VALID)


def test_a_suspicious_trial_is_not_repeated(testbed, directory):
    fakes = testbed(DUBIOUS)
    (kept,) = run(directory, request(retries=5)).trials
    assert (fakes.trials, kept.attempt, kept.verdict) == (1, 1, Verdict.SUSPICIOUS)


def test_after_a_generator_failed_its_lanes_are_renewed(testbed, directory):
    fakes = testbed(BROKEN_OFF, FINE)
    (kept,) = run(directory, request(retries=1)).trials
    assert (kept.attempt, kept.verdict) == (2, Verdict.VALID)
    assert fakes.calls == ["open", "up bridge", "renew endpoints", "down bridge", "close"]


def test_also_after_the_last_attempt(testbed, directory):
    """The next trial is to find a generator that works."""
    fakes = testbed(BROKEN_OFF, FINE)
    kept = run(directory, request(retries=0, repetitions=2)).trials
    assert [trial.verdict for trial in kept] == [Verdict.INVALID, Verdict.VALID]
    assert fakes.calls.count("renew endpoints") == 1


def test_after_another_failure_lanes_stay(testbed, directory):
    fakes = testbed(UNREAD, FINE)
    run(directory, request())
    assert "renew endpoints" not in fakes.calls


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("none", []),
        ("invalid", ["trial-000001-s1.pcap"]),
        ("all", ["trial-000000-s1.pcap", "trial-000001-s1.pcap", "trial-000002-s1.pcap"]),
    ],
)
def test_captures_are_kept_as_asked(testbed, directory, keep, kept):
    testbed(FINE, UNREAD, DUBIOUS)
    run(directory, request(retries=0, repetitions=3, keep_captures=keep))
    assert sorted(path.name for path in directory.captures.iterdir()) == kept


def test_the_capture_of_an_invalid_attempt_is_not_kept_for_a_valid_trial(testbed, directory):
    testbed(UNREAD, FINE)
    run(directory, request(retries=1, keep_captures="invalid"))
    assert list(directory.captures.iterdir()) == []


def test_warnings_are_stored_with_the_results(testbed, directory):
    testbed()
    warnings = run(directory, request(duration="100ms")).warnings
    kinds = [warning.kind for warning in warnings]
    assert {WarningKind.VETH_OVERLOAD_IS_UNSENT, WarningKind.SHORT_TRIALS, WarningKind.FEW_REPETITIONS} <= set(kinds)
    assert len(set(warnings)) == len(warnings)


def stop_at(number, error):
    def before_trial(trial):
        if trial == number:
            raise error

    return before_trial


@pytest.mark.parametrize("error", [TestbedError("the guest is gone"), Stopped(15)], ids=["broken", "stopped"])
def test_what_was_measured_is_kept_and_the_rest_is_measured_later(testbed, directory, error):
    fakes = testbed()
    fakes.before_trial = stop_at(3, error)
    with pytest.raises(type(error)):
        run(directory, request(repetitions=5))
    assert fakes.calls[-2:] == ["down bridge", "close"]
    assert events(directory)[-1] == {
        "time_ns": events(directory)[-1]["time_ns"],
        "kind": "campaign-stopped",
        "why": str(error),
    }
    first = directory.results()
    kept = tuple(first.trials)
    assert len(kept) == 2
    assert first.manifest["finished"] is None

    again = testbed()
    resume(directory, ["netbench", "resume"], [])
    assert again.trials == 3
    results = directory.results()
    assert results.trials[:2] == kept
    assert sorted(trial.spec.repetition for trial in results.trials) == [1, 2, 3, 4, 5]
    assert results.manifest["finished"]
    sessions = directory.read_manifest()["sessions"]
    assert [session["command"] for session in sessions] == [["netbench", "resume"]]
    assert directory.read_manifest()["started"] == first.manifest["started"]


def test_resuming_follows_the_same_plan(testbed, directory):
    fakes = testbed()
    fakes.before_trial = stop_at(4, TestbedError("x"))
    wanted = request(TWO_UUTS, repetitions=3, frame_sizes=[64], loads=["10fps", "20fps"], order="random", seed=7)
    with pytest.raises(TestbedError):
        run(directory, wanted)
    testbed()
    resume(directory, [], [])
    assert [trial.spec for trial in directory.results().trials] == list(wanted.schedule.trials)
    started = sorted(directory.results().trials, key=lambda trial: trial.started_ns)
    assert {trial.spec.index for trial in started} == set(range(12))


def test_only_the_chosen_uuts_are_resumed(testbed, directory):
    fakes = testbed()
    fakes.before_trial = stop_at(1, TestbedError("x"))
    with pytest.raises(TestbedError):
        start(make_request(topology(uuts=TWO_UUTS), profile(), ["route"]), directory, [], [])
    again = testbed()
    assert resume(directory, [], []).uuts == ("route",)
    assert again.calls == ["open", "up route", "down route", "close"]


def test_resuming_what_is_complete_touches_nothing(testbed, directory):
    testbed()
    run(directory, request())
    before = {path.name: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}
    again = testbed()
    resume(directory, [], [])
    assert again.calls == []
    after = {path.name: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}
    assert after["manifest.json"] == before["manifest.json"]
    assert after["events.jsonl"] == before["events.jsonl"]


def test_all_measured_but_not_finished_is_finished(testbed, directory):
    """Killed between the last trial and the end."""
    testbed()
    run(directory, request())
    directory.write_manifest({**directory.read_manifest(), "finished": None, "after": None})
    again = testbed()
    resume(directory, [], [])
    assert again.trials == 0
    assert again.calls == ["open", "close"]
    assert directory.read_manifest()["finished"]
    assert directory.read_manifest()["after"]


@pytest.mark.parametrize("missing", ["uuts", "scenarios", "before"])
def test_a_damaged_manifest_cannot_be_resumed(testbed, directory, missing):
    fakes = testbed()
    fakes.before_trial = stop_at(1, TestbedError("x"))
    with pytest.raises(TestbedError):
        run(directory, request())
    manifest = directory.read_manifest()
    del manifest[missing]
    directory.write_manifest(manifest)
    with pytest.raises(UsageError, match="is damaged"):
        resume(directory, [], [])


def test_a_directory_that_is_being_worked_on_cannot_be_resumed(testbed, directory):
    fakes = testbed()
    fakes.before_trial = stop_at(1, TestbedError("x"))
    with pytest.raises(TestbedError):
        run(directory, request())
    testbed()
    with directory.lock(), pytest.raises(TestbedError, match="another netbench is working on it"):
        resume(directory, [], [])


def test_a_testbed_that_does_not_come_up_leaves_no_directory(monkeypatch, directory):
    def refuse(*_):
        raise MissingError("run it as root")

    monkeypatch.setattr(campaign, "open_testbed", refuse)
    with pytest.raises(MissingError):
        run(directory, request())
    assert not directory.path.exists()


def test_a_load_that_no_cable_carries_is_refused_before_anything_else():
    lab = fake_ports()
    with pytest.raises(UsageError, match="profile one: loads: above line rate: 2Gbit/s at 64 bytes on t/tx"):
        make_request(lab, profile(loads=["2Gbit/s"]))
    make_request(lab, profile(loads=["1Gbit/s"]))


def test_a_uut_that_cannot_forward_on_these_streams_is_refused():
    with pytest.raises(UsageError, match="stream s1: this kind of UUT needs an ingress and an egress NIC"):
        make_request(fake_ports().model_copy(update={"uuts": topology().uuts}), profile())
