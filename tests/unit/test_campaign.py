"""A campaign on a testbed of fakes: which trials run, how often, what is stored, and how it is resumed."""

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from netbench.campaign import runner
from netbench.campaign.request import make_request
from netbench.campaign.testbeds import Testbeds
from netbench.errors import MachineGoneError, MissingError, TestbedError, UsageError
from netbench.linux.locks import OtherMeasurement
from netbench.model.selftest_record import Ceiling, SelftestRecord
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.results.directory import ResultDirectory
from netbench.results.export_rows import stream_rows
from netbench.results.manifest import IDENTITIES
from netbench.results.selftests import fingerprint
from netbench.signals import Stopped
from netbench.testbed import preconditions
from netbench.testbed.resolved import Resolved, resolve
from tests.breakages import load_shipped
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour, fake_ports
from tests.unit.inputs import profile, shared_topology, topology

ONE_UUT = topology()
TWO_UUTS = topology(uuts=[{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"}])
WITH_NEIGHBOURS = shared_topology(uuts=TWO_UUTS.uuts)
ON_A_VM = topology(
    uuts=[{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "on": "lab"}],
    hosts={"lab": {"kind": "vm"}, **{name: {"kind": "netns"} for name in ("source", "uut", "sink")}},
)
FINE = Behaviour()
BROKEN_OFF = Behaviour(source_error="ENETDOWN")  # invalid, and the generator's fault
UNREAD = Behaviour(sink_error="killed by signal 9")  # invalid, and not the generator's
DUBIOUS = Behaviour(flushes=False)


@pytest.fixture
def campaign(request, tmp_path, monkeypatch):
    """On one UUT, or the topology that a test names."""
    return FakeCampaign.on(getattr(request, "param", ONE_UUT), tmp_path / "results", monkeypatch)


on_a_vm = pytest.mark.parametrize("campaign", [ON_A_VM], ids=[""], indirect=True)
on_two_uuts = pytest.mark.parametrize("campaign", [TWO_UUTS], ids=[""], indirect=True)
with_neighbours = pytest.mark.parametrize("campaign", [WITH_NEIGHBOURS], ids=[""], indirect=True)


@on_two_uuts
def test_a_whole_campaign(campaign):
    results = campaign.run(repetitions=2)
    assert campaign.testbed.calls == ["open", "up bridge", "down bridge", "up route", "down route", "close"]
    assert [trial.spec.index for trial in results.trials] == [0, 1, 2, 3]
    assert {(trial.verdict, trial.streams[0].received.frames) for trial in results.trials} == {(Verdict.VALID, 1000)}
    manifest = results.manifest
    assert (manifest["planned_trials"], manifest["uuts"]) == (4, ["bridge", "route"])
    assert manifest["finished"]
    assert manifest["before"]["kernel"] == manifest["after"]["kernel"]


@on_two_uuts
def test_it_is_on_record_and_heard_what_happened_when_and_why(campaign):
    heard = []

    class Ear:
        def on(self, event):
            heard.append(event.kind)

    campaign.testbed.behaviours["bridge"] = [UNREAD]
    campaign.testbed.refusals["route"] = ["no carrier"]
    wanted = campaign.request(retries=1)
    runner.start(wanted, campaign.directory, [], [Ear()])
    output = campaign.events()
    assert [event["kind"] for event in output] == heard
    assert [(event["kind"], event.get("uut") or event.get("key", "").partition("/")[0]) for event in output] == [
        ("campaign-started", ""),
        ("uut-ready", "bridge"),
        ("trial-started", "bridge"),
        ("trial-finished", "bridge"),
        ("trial-started", "bridge"),
        ("trial-finished", "bridge"),
        ("trial-stored", "bridge"),
        ("uut-failed", "route"),
        ("trial-stored", "route"),
        ("campaign-finished", ""),
    ]
    first, failed = output[3], output[7]
    assert (first["verdict"], first["attempt"]) == ("invalid", 1)
    assert first["reasons"] == ["capture-failed: killed by signal 9"]
    assert (failed["why"], output[8]["verdict"]) == ("no carrier", "invalid")
    assert [event["key"] for event in campaign.events("trial-stored")] == [spec.key for spec in wanted.schedule.trials]


SWEEP = {
    "loads": ["6000fps", "2000fps", "4000fps", "3000fps", "max", "5000fps"],
    "stop_when_saturated": 2,
    "repetitions": 2,
}


@pytest.mark.parametrize("order", ["interleaved", "sequential", "random"])
def test_a_sweep_ends_once_so_many_loads_in_a_row_were_saturated(campaign, order):
    campaign.testbed.behaviours["bridge"] = [Behaviour(link_fps=2500.0)] * 12
    results = campaign.run(order=order, **SWEEP)
    measured = [str(trial.spec.load) for trial in results.trials if trial.spec.repetition == 1]
    assert measured == ["2000fps", "3000fps", "4000fps"]
    assert [(str(trial.spec.load), trial.is_saturated, trial.verdict) for trial in results.trials[-1:]] == [
        ("4000fps", True, Verdict.VALID)
    ]
    assert (len(results.trials), campaign.testbed.trials) == (6, 6)
    (output,) = campaign.events("sweep-ended")
    (ended,) = results.ended_sweeps
    assert output["sweep"]["skipped_loads"] == ["5000fps", "6000fps", "max"]
    assert str(ended) == (
        "bridge, dedicated, s1, 64 bytes: saturated at 3000fps, 4000fps; skipped 5000fps, 6000fps, max"
    )
    assert (results.planned_trials, results.skipped_trials) == (12, 6)
    campaign.resume()
    assert campaign.testbed.calls == []  # there is nothing left to measure


def test_a_sweep_that_is_not_saturated_so_often_goes_on_to_its_end(campaign):
    campaign.testbed.behaviours["bridge"] = [Behaviour(link_fps=fps) for fps in (9e9, 2500.0, 9e9, 2500.0)]
    results = campaign.run(**{**SWEEP, "repetitions": 1})
    assert (len(results.trials), results.ended_sweeps, campaign.events("sweep-ended")) == (6, (), [])


@pytest.mark.parametrize("number", [2, 4, 5])
def test_a_campaign_that_was_stopped_skips_the_same_when_it_goes_on(campaign, number):
    campaign.testbed.behaviours["bridge"] = [Behaviour(link_fps=2500.0)] * 12
    campaign.stopped_at(number, order="interleaved", **SWEEP)
    campaign.testbed.behaviours["bridge"] = [Behaviour(link_fps=2500.0)] * 12
    results = campaign.resume()
    assert sorted((str(trial.spec.load), trial.spec.repetition) for trial in results.trials) == [
        (f"{load}fps", repetition) for load in (2000, 3000, 4000) for repetition in (1, 2)
    ]
    assert (results.skipped_trials, len(campaign.events("sweep-ended"))) == (6, 1)


@pytest.mark.parametrize("output", [True, False])
def test_what_is_left_of_a_campaign_that_goes_on_is_without_what_was_skipped(campaign, output):
    campaign.testbed.behaviours["bridge"] = [Behaviour(link_fps=2500.0)] * 12
    campaign.stopped_at(4, order="interleaved", **SWEEP)
    manifest = campaign.directory.read_manifest()
    if not output:  # killed after a trial was stored, and before its effect was reported
        campaign.directory.write_manifest({**manifest, "ended_sweeps": []})
    campaign.resume()
    first, again = campaign.events("campaign-started")
    left_to_tell = sum(event["sweep"]["skipped_trials"] for event in campaign.events("sweep-ended")[1:])
    assert (again["planned"] - left_to_tell, again["done"]) == (6, 3)
    assert again["expected_s"] < first["expected_s"] * 0.4, "3 of 12"


@pytest.mark.parametrize(
    ("behaviours", "retries", "attempts", "verdict"),
    [
        ([UNREAD] * 9, 0, 1, Verdict.INVALID),
        ([UNREAD] * 9, 2, 3, Verdict.INVALID),
        ([UNREAD, UNREAD, FINE], 5, 3, Verdict.VALID),
        ([DUBIOUS], 5, 1, Verdict.SUSPICIOUS),
    ],
)
def test_an_invalid_trial_is_repeated_until_one_is_good_or_kept_and_marked(
    campaign, behaviours, retries, attempts, verdict
):
    campaign.testbed.behaviours["bridge"] = behaviours
    (kept,) = campaign.run(retries=retries).trials
    assert (campaign.testbed.trials, kept.attempt, kept.verdict) == (attempts, attempts, verdict)
    assert [[reason.kind for reason in reasons] for reasons in kept.thrown_away] == [[ReasonKind.CAPTURE_FAILED]] * (
        attempts - 1
    )
    assert (kept.streams[0].received.frames is None) is (verdict is Verdict.INVALID)


@pytest.mark.parametrize(
    ("behaviour", "more", "renewed"),
    [
        (BROKEN_OFF, {"retries": 1}, 1),
        (BROKEN_OFF, {"retries": 0, "repetitions": 2}, 1),  # the next trial needs a generator that works
        (UNREAD, {"retries": 1}, 0),
    ],
)
def test_after_a_generator_failed_all_endpoints_are_renewed(campaign, behaviour, more, renewed):
    campaign.testbed.behaviours["bridge"] = [behaviour]
    assert campaign.run(**more).trials[-1].verdict is Verdict.VALID
    assert campaign.testbed.calls == ["open", "up bridge", *["renew endpoints"] * renewed, "down bridge", "close"]


def test_a_generator_that_cannot_be_renewed_breaks_the_testbed_and_the_attempt_is_reported(campaign, monkeypatch):
    def gone():
        raise TestbedError("no TRex server answers")

    monkeypatch.setattr(campaign.testbed, "renew_endpoints", gone)
    campaign.testbed.behaviours["bridge"] = [FINE, BROKEN_OFF, FINE]
    with pytest.raises(TestbedError, match="no TRex server answers"):
        campaign.run(repetitions=2)
    assert [event["verdict"] for event in campaign.events("trial-finished")] == ["valid", "invalid"]
    assert [event["why"] for event in campaign.events("campaign-stopped")] == ["no TRex server answers"]


@pytest.mark.parametrize(
    ("keep", "retries", "kept"), [("none", 0, ""), ("invalid", 0, "1"), ("invalid", 1, ""), ("all", 0, "012")]
)
def test_captures_are_kept_as_asked(campaign, keep, retries, kept):
    """No capture is kept of an invalid attempt at a trial that is valid in the end."""
    campaign.testbed.behaviours["bridge"] = [FINE, UNREAD, *[FINE] * retries, DUBIOUS]
    campaign.run(retries=retries, repetitions=3, keep_captures=keep)
    names = sorted(path.name for path in campaign.directory.captures.iterdir())
    assert names == [f"trial-00000{number}-s1.pcap" for number in kept]


def test_captures_are_kept_up_to_their_limit_and_measuring_goes_on(campaign, monkeypatch):
    """Captures of an earlier run count; the lack of room is reported once."""
    monkeypatch.setattr("tests.unit.fakes.CAPTURE", bytes(300_000))
    results = campaign.run(repetitions=8, keep_captures="all", captures_limit="1M")
    assert [trial.verdict for trial in results.trials] == [Verdict.VALID] * 8
    names = sorted(path.name for path in campaign.directory.captures.iterdir())
    assert names == [f"trial-00000{number}-s1.pcap" for number in range(3)]
    (event,) = campaign.events("captures-full")
    assert (event["key"], event["limit_mib"]) == (results.trials[3].spec.key, 1)


def test_warnings_are_stored_with_the_results(campaign):
    campaign.testbed.reported = ["afpacket sends from nb-tx1 of host source: its kernel has no pktgen"]
    warnings = campaign.run(duration="100ms", repetitions=2).warnings
    kinds = {warning.kind for warning in warnings}
    assert {WarningKind.VETH_OVERLOAD_IS_UNSENT, WarningKind.SHORT_TRIALS, WarningKind.FEW_REPETITIONS} <= kinds
    assert len(set(warnings)) == len(warnings)
    assert [
        warning.text for warning in warnings if warning.kind is WarningKind.SOURCE_REMARK
    ] == campaign.testbed.reported


@pytest.mark.parametrize("error", [TestbedError("the guest is gone"), Stopped(15)], ids=["broken", "stopped"])
def test_what_was_measured_is_kept_and_the_rest_is_measured_later(campaign, error):
    first = campaign.stopped_at(3, error, repetitions=5)
    assert campaign.testbed.calls[-2:] == ["down bridge", "close"]
    assert [event["why"] for event in campaign.events("campaign-stopped")] == [str(error)]
    kept = tuple(first.trials)
    assert len(kept) == 2
    assert first.manifest["finished"] is None

    results = campaign.resume()
    assert campaign.testbed.trials == 3
    assert results.trials[:2] == kept
    assert [trial.spec.repetition for trial in results.trials] == [1, 2, 3, 4, 5]
    assert results.manifest["finished"]
    assert [session["command"] for session in results.manifest["sessions"]] == [["netbench", "resume"]]
    assert results.manifest["started"] == first.manifest["started"]


@with_neighbours
@pytest.mark.parametrize("stop", range(1, 7))
def test_interrupted_anywhere_and_resumed_it_is_the_same_campaign(campaign, stop):
    order = ("interleaved", "random")[stop % 2]
    more = {"scenarios": ["dedicated", "shared-idle", {"network": ["50%"]}], "order": order, "seed": stop}
    more["maxima"] = "loads"
    campaign.testbed.usual = Behaviour(capacity_fps=900)
    campaign.stopped_at(stop, **more)
    results = campaign.resume()
    assert [trial.spec.key for trial in results.trials] == [
        spec.key for spec in campaign.request(**more).schedule.trials
    ]
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert by_scenario(results)["network-50"].neighbours[0].streams[0].intended_fps == 450.0
    boots = [trial.boot for trial in sorted(results.trials, key=lambda trial: trial.started_ns)]
    assert boots == sorted(boots)
    assert min(boots) == 1


@on_two_uuts
def test_only_the_chosen_uuts_are_measured_and_resumed(campaign, monkeypatch):
    """The testbed serves them alone: a guest image that only another UUT needs is not required."""
    asked = []

    def open_fake(resolved, _):
        asked.append(tuple(resolved.guests))
        return campaign.testbed.opening()

    monkeypatch.setattr(runner, "open_testbed", open_fake)
    campaign.testbed.stop_at(2, TestbedError("x"))
    with pytest.raises(TestbedError):
        runner.start(make_request(TWO_UUTS, profile(repetitions=2), ["route"]), campaign.directory, [], [])
    assert campaign.resume().uuts == ("route",)
    assert campaign.testbed.calls == ["open", "up route", "down route", "close"]
    assert asked == [("route",), ("route",)]


def test_another_netbench_that_measures_meanwhile_is_noted_once(campaign):
    campaign.testbed.before_trial = lambda number: campaign.testbed.company.append(OtherMeasurement(7, "x", "NOW"))
    results = campaign.run(repetitions=3)
    (text,) = [warning.text for warning in results.warnings if warning.kind is WarningKind.OTHER_CAMPAIGN]
    assert "process id 7, topology x" in text
    order = [event["kind"] for event in campaign.events() if event["kind"] in ("trial-stored", "campaign-disturbed")]
    assert order == ["trial-stored", "campaign-disturbed", "trial-stored", "trial-stored"]


def test_each_row_reports_what_sent_it_and_a_resumed_campaign_what_changed(campaign):
    """Another kernel was booted in between."""
    campaign.stopped_at(2, repetitions=2)
    hosts = campaign.testbed.hosts
    hosts["uut"] = replace(hosts["uut"], kernel="Linux 6.12")
    results = campaign.resume()
    assert [tester.hosts["uut"].kernel for tester in IDENTITIES.of(results.manifest)] == ["Linux 6.1", "Linux 6.12"]
    assert [warning.kind for warning in results.warnings if warning.kind is WarningKind.TESTER_CHANGED]
    assert [(row["source"], row["sink_details"]) for row in stream_rows(results.trials)] == [("fake", "3 threads")] * 2


def test_a_tester_that_stays_as_it_was_is_noted_once(campaign):
    campaign.testbed.behaviours["bridge"] = [BROKEN_OFF]
    campaign.stopped_at(3, retries=1, repetitions=3)
    results = campaign.resume()
    assert len(IDENTITIES.of(results.manifest)) == 1
    assert WarningKind.TESTER_CHANGED not in {warning.kind for warning in results.warnings}


def test_resuming_what_is_complete_touches_nothing(campaign):
    campaign.run()
    before = [path.read_bytes() for path in (campaign.directory.manifest, campaign.directory.events)]
    campaign.resume()
    assert campaign.testbed.calls == []
    assert [path.read_bytes() for path in (campaign.directory.manifest, campaign.directory.events)] == before


def test_all_measured_but_not_finished_is_finished(campaign):
    """Killed between the last trial and the end."""
    manifest = campaign.run().manifest
    campaign.directory.write_manifest({**manifest, "finished": None, "after": None})
    manifest = campaign.resume().manifest
    assert campaign.testbed.calls == ["open", "close"]
    assert manifest["finished"]
    assert manifest["after"]


def test_a_directory_that_is_being_worked_on_cannot_be_resumed(campaign):
    campaign.stopped_at(1)
    with campaign.directory.lock(), pytest.raises(TestbedError, match="another netbench is working on it"):
        campaign.resume()


@pytest.mark.parametrize(
    ("file", "old", "new", "key"),
    [
        ("topology", "forward: bridge", "forward: route", "topology.yaml: uuts.0.forward"),
        ("profile", "duration: 1.0", "duration: 2.0", "profile.yaml: duration"),
        ("profile", "tolerance: 1%", "tolerance: 2%", "profile.yaml: tolerance"),
        ("profile", "seed: 1", "seed: 2", "profile.yaml: seed"),
    ],
)
def test_a_campaign_does_not_go_on_with_something_else(tmp_path, monkeypatch, file, old, new, key):
    lab = topology(uuts=[{"name": "bridge", "kind": "raw", "forward": "bridge"}])
    campaign = FakeCampaign.on(lab, tmp_path / "results", monkeypatch)
    campaign.stopped_at(2, repetitions=2)
    path = campaign.directory.path / f"{file}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=f"{key} is not what this campaign was started with; put it back"):
        campaign.resume()
    path.write_text(text + "# written otherwise, and the same\n")
    assert campaign.resume().manifest["finished"]


def test_what_killed_runs_left_is_undone_whatever_is_left_to_measure(campaign, monkeypatch):
    campaign.run()
    cleaned: list[str] = []
    monkeypatch.setattr(runner, "clean", lambda: cleaned.append("clean"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    campaign.resume()
    assert cleaned == ["clean"]


def test_a_testbed_that_does_not_come_up_leaves_no_directory(campaign, monkeypatch):
    def refuse(*_):
        raise MissingError("run it as root")

    monkeypatch.setattr(runner, "open_testbed", refuse)
    with pytest.raises(MissingError):
        campaign.run()
    assert not campaign.directory.path.exists()


@pytest.mark.parametrize(
    ("lab", "wanted", "why"),
    [
        (fake_ports(), profile(loads=["2Gbit/s"]), "profile one: loads: above line rate: 2Gbit/s at 64 bytes on t/tx"),
        (
            fake_ports().model_copy(update={"uuts": topology().uuts}),
            profile(),
            "stream s1: this kind of UUT needs an ingress and an egress NIC",
        ),
        (
            shared_topology([{"name": "second", "streams": ["s2"], "kind": "external"}]),
            profile(scenarios=["cpu-light"]),
            "UUT bridge: neighbour second: nothing can be run inside a UUT of kind external; choose scenarios without",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_else(lab, wanted, why):
    with pytest.raises(UsageError, match=why):
        make_request(lab, wanted)


def by_scenario(results):
    """The trials of the first UUT."""
    return {trial.spec.scenario: trial for trial in results.trials if trial.spec.uut == "bridge"}


@with_neighbours
def test_a_neighbour_whose_link_pushed_back_is_marked_and_one_that_was_away_is_doubted(campaign):
    campaign.testbed.behaviours["bridge.second"] = [
        Behaviour(link_fps=500.0),
        Behaviour(link_fps=500.0, descheduled_s=0.2),
    ]
    results = campaign.run(scenarios=[{"network": "1000fps"}], repetitions=2)
    held, away = [trial for trial in results.trials if trial.spec.uut == "bridge"]
    assert (held.verdict, held.saturated, held.is_saturated) == (Verdict.VALID, {"s2"}, False)
    assert [row["saturated"] for row in stream_rows([held])] == ["no", "yes"]
    assert [reason.kind for reason in away.reasons] == [ReasonKind.NEIGHBOUR_STOPPED_EARLY]


@with_neighbours
def test_shares_refer_to_the_best_of_the_loads_in_shared_idle(campaign):
    scenarios = ["shared-idle", {"network": ["50%", "95%"]}]
    campaign.testbed.usual = Behaviour(capacity_fps=4000)
    results = campaign.run(scenarios=scenarios, loads=["1000fps", "5000fps", "2000fps"], maxima="loads")
    assert [(maximum.uut, maximum.frame_size.only_size, maximum.fps, maximum.load) for maximum in results.maxima] == [
        (uut, 64, 4000.0, "5000fps") for uut in ("bridge", "route")
    ]
    intended = {
        (trial.spec.scenario, trial.neighbours[0].streams[0].intended_fps)
        for trial in results.trials
        if trial.spec.scenario != "shared-idle"
    }
    assert intended == {("network-50", 2000.0), ("network-95", 3800.0)}


def test_attempts_of_a_killed_run_are_thrown_away_too(campaign):
    campaign.testbed.behaviours["bridge"] = [UNREAD]
    campaign.stopped_at(2, retries=2)
    (kept,) = campaign.resume().trials
    assert (kept.attempt, kept.verdict, kept.valid_at_once) == (2, Verdict.VALID, False)
    [[reason]] = kept.thrown_away
    assert (reason.kind, reason.detail) == (ReasonKind.CAPTURE_FAILED, UNREAD.sink_error)


@with_neighbours
def test_a_load_whose_trials_are_rarely_valid_is_no_maximum_for_shares(campaign):
    """Three repetitions at each of two loads: of the second, which forwards more, two are valid only later."""
    full = Behaviour(capacity_fps=1000)
    campaign.testbed.usual = Behaviour(capacity_fps=4000)
    campaign.testbed.behaviours["bridge"] = [full, full, full, FINE, UNREAD, FINE, UNREAD, FINE]
    scenarios = ["shared-idle", {"network": ["50%"]}]
    loads = ["2000fps", "8000fps"]
    results = campaign.run(scenarios=scenarios, loads=loads, repetitions=3, order="sequential", maxima="loads")
    idle = [trial for trial in results.trials if (trial.spec.uut, trial.spec.scenario) == ("bridge", "shared-idle")]
    assert [trial.attempt for trial in idle] == [1, 1, 1, 1, 2, 2]
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert [(maximum.uut, maximum.fps) for maximum in results.maxima] == [("bridge", 1000.0), ("route", 4000.0)]
    assert by_scenario(results)["network-50"].neighbours[0].streams[0].intended_fps == 500.0


@with_neighbours
@pytest.mark.parametrize("behaviour", [UNREAD, Behaviour(lost_in_uut=1000)], ids=["not measured", "nothing forwarded"])
def test_a_maximum_that_was_not_found_costs_only_what_refers_to_it(campaign, behaviour):
    campaign.testbed.behaviours["bridge"] = [behaviour]
    scenarios = ["dedicated", "shared-idle", {"network": ["50%", "500fps"]}]
    found = by_scenario(campaign.run(scenarios=scenarios, retries=0, maxima="loads"))
    assert found["shared-idle"].verdict is (Verdict.INVALID if behaviour is UNREAD else Verdict.VALID)
    assert [reason.kind for reason in found["network-50"].reasons] == [ReasonKind.MAXIMUM_UNKNOWN]
    assert found["network-50"].streams == ()
    assert [found[name].verdict for name in ("dedicated", "network-500fps")] == [Verdict.VALID] * 2


@with_neighbours
@pytest.mark.parametrize(
    ("more", "load", "limited_by"),
    [
        ({"loads": ["1000fps", "4000fps"]}, None, "limited by the highest load requested (4000fps"),
        ({"loads": ["1000fps", "max"]}, 5000.0, "the limit was the source"),
    ],
)
def test_a_list_of_loads_that_ends_too_early_has_no_maximum(campaign, more, load, limited_by):
    """No loss at the highest load: shares of an unknown maximum, or of a lower bound if the source was the limit."""
    found = by_scenario(campaign.run(scenarios=["shared-idle", {"network": ["50%"]}], maxima="loads", **more))
    trial = found["network-50"]
    kind = ReasonKind.MAXIMUM_UNKNOWN if load is None else ReasonKind.SHARE_OF_LOWER_BOUND
    [reason] = trial.reasons
    assert reason.kind is kind
    assert limited_by in reason.detail
    if load is not None:
        assert (trial.verdict, trial.neighbours[0].streams[0].intended_fps) == (Verdict.VALID, load)


@on_a_vm
def test_a_uut_on_a_vm_is_measured_on_a_testbed_of_its_own(campaign):
    results = campaign.run(repetitions=2)
    here, there = ([f"up {uut}", f"down {uut}"] for uut in ("bridge", "route"))
    assert campaign.testbed.calls == ["open", *here, "close", "open", *there, "close"]
    assert campaign.testbed.done_while_held == [campaign.testbed.calls], "no other run gets the machine in between"
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert WarningKind.TESTER_CHANGED not in {warning.kind for warning in results.warnings}, "it was planned so"
    assert [tester.machines["uut"] for tester in IDENTITIES.of(results.manifest)] == [None, "lab"]


@pytest.mark.parametrize("error", [TestbedError("it does not boot"), MissingError("its image is not there")])
@on_a_vm
def test_a_vm_that_does_not_come_up_costs_the_trials_of_its_uuts(campaign, monkeypatch, error):
    def open_fake(resolved, _):
        if resolved.topology.vms:
            raise error
        return campaign.testbed.opening()

    monkeypatch.setattr(runner, "open_testbed", open_fake)
    results = campaign.run()
    printed = {trial.spec.uut: (trial.verdict, [reason.detail for reason in trial.reasons]) for trial in results.trials}
    assert printed == {"bridge": (Verdict.VALID, []), "route": (Verdict.INVALID, [str(error)])}
    another = ResultDirectory(campaign.directory.path / "x")
    with pytest.raises(type(error)):  # where nothing was measured yet, there is no campaign
        runner.start(make_request(ON_A_VM, profile(), ["route"]), another, [], [])


GONE = MachineGoneError("guest lab: QEMU was killed")


@pytest.mark.parametrize(
    ("retries", "outcome"),
    [(1, "valid-1-2 valid-2-3 valid-1-3"), (0, "valid-1-2 invalid-1-2 valid-1-3")],
    ids=["measured again", "lost"],
)
@on_a_vm
def test_a_vm_that_dies_costs_its_uut_the_attempt_and_another_is_started(campaign, retries, outcome):
    """It dies in the second of three trials; `outcome` is the verdict, attempt and boot number of each."""
    campaign.testbed.stop_at(5, GONE)
    results = campaign.run(order="sequential", repetitions=3, retries=retries)
    assert {trial.verdict for trial in results.trials if trial.spec.uut == "bridge"} == {Verdict.VALID}
    found = [trial for trial in results.trials if trial.spec.uut == "route"]
    assert " ".join(f"{trial.verdict.value}-{trial.attempt}-{trial.boot}" for trial in found) == outcome
    assert [boot.number for boot in results.boots] == [1, 2, 3]
    assert [event["attempt"] for event in campaign.events("trial-finished")] == ([1] * 5 + ([2, 1] if retries else [1]))
    spoken = [reason for trial in found for reasons in (trial.reasons, *trial.thrown_away) for reason in reasons]
    assert [(reason.kind, reason.detail) for reason in spoken] == [(ReasonKind.UUT_FAILED, str(GONE))]
    assert campaign.testbed.calls.count("open") == campaign.testbed.calls.count("close") == 3


@on_a_vm
def test_a_vm_that_keeps_dying_is_given_up_for_its_uuts_alone(campaign):
    def before_trial(number):
        if campaign.testbed.topology.vms:
            raise GONE

    campaign.testbed.before_trial = before_trial
    results = campaign.run(order="sequential", repetitions=5, retries=0)
    verdicts = {
        name: [trial.verdict.value for trial in results.trials if trial.spec.uut == name]
        for name in ("bridge", "route")
    }
    assert verdicts == {"bridge": ["valid"] * 5, "route": ["invalid"] * 5}
    why = f"it failed in 3 trials one after the other: {GONE}"
    assert [trial.reasons[0].detail for trial in results.trials[-3:]] == [str(GONE), why, why]
    assert campaign.testbed.calls.count("open") == 4


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_host_that_was_lost_is_reported_at_the_end_unless_what_was_left_there_is_undone_since(comes_back):
    lost = MachineGoneError("host uut: no answer")
    ends: list[Exception | None] = [lost, None]

    @contextmanager
    def opening(resolved):
        yield None
        if error := ends.pop(0):
            raise error

    def use():
        with Testbeds(resolve(load_shipped("netns-ssh"), profile()), opening) as testbeds:
            testbeds.of("bridge")
            testbeds.lose()
            if comes_back:
                testbeds.of("bridge")

    if comes_back:
        use()
    else:
        with pytest.raises(MachineGoneError, match="host uut: no answer"):
            use()


def test_a_vm_that_dies_where_all_is_on_it_ends_the_campaign(campaign):
    campaign.testbed.stop_at(1, GONE)
    with pytest.raises(MachineGoneError):
        campaign.run()


@on_a_vm
def test_what_changed_where_a_campaign_was_before_is_reported(campaign):
    """A kernel was replaced while UUTs on a VM were measured."""

    def before_trial(number):
        if number == 2:
            campaign.testbed.hosts["uut"] = replace(campaign.testbed.hosts["uut"], kernel="Linux 6.12")

    campaign.testbed.before_trial = before_trial
    results = campaign.run(repetitions=2, order="interleaved")
    assert WarningKind.TESTER_CHANGED in {warning.kind for warning in results.warnings}


@on_a_vm
def test_a_self_test_is_about_uuts_where_it_was_made(campaign, monkeypatch):
    """A self-test of a slow VM does not apply to this machine, nor the other way round."""
    own = profile()
    here = fingerprint(ON_A_VM.on(None), own.generator, "fake", "inline", own.sink)
    ceilings = (Ceiling(sources=1, frame_size=64, fps=1.0),)
    record = SelftestRecord(
        passed=True, when_ns=1, topology="lab", generator="fake", fingerprint=here, checks=(), ceilings=ceilings
    )
    monkeypatch.setattr(runner, "latest_record", lambda testbed: record if testbed == here else None)
    results = campaign.run()
    printed = {trial.spec.uut: {reason.kind for reason in trial.reasons} for trial in results.trials}
    assert printed == {"bridge": {ReasonKind.TESTER_LIMITED}, "route": set()}
    (unknown,) = [warning.text for warning in results.warnings if warning.kind is WarningKind.CEILING_UNKNOWN]
    assert "for UUTs on VM lab is unknown" in unknown


@on_a_vm
def test_what_this_host_lacks_for_uuts_on_a_vm_costs_their_trials_only(campaign, monkeypatch):
    why = "there is no guest image lab: netbench image build --name lab"
    monkeypatch.setattr(runner, "with_what_lacks", lambda resolved: replace(resolved, lacking={"route": why}))
    results = campaign.run(repetitions=2, order="interleaved")
    printed = Counter((trial.spec.uut, *(reason.detail for reason in trial.reasons)) for trial in results.trials)
    assert printed == {("route", why): 2, ("bridge",): 2}
    assert set(campaign.testbed.ups) == {"bridge"}
    output = [event["kind"] for event in campaign.events()]
    assert output.count("uut-failed") == 1
    assert output.index("uut-failed") < output.index("trial-stored")


@on_a_vm
def test_a_campaign_begins_with_a_uut_that_nothing_is_lacking_for(campaign, monkeypatch):
    monkeypatch.setattr(runner, "with_what_lacks", lambda resolved: replace(resolved, lacking={"bridge": "no"}))
    results = campaign.run()
    assert {trial.spec.uut: trial.verdict for trial in results.trials} == {
        "bridge": Verdict.INVALID,
        "route": Verdict.VALID,
    }
    assert set(campaign.testbed.ups) == {"route"}


@pytest.mark.parametrize(
    ("there", "uuts", "found"),
    [
        ({"here", "lab"}, (), {}),
        ({"here"}, (), {"route": "no lab here"}),
        ({"here"}, ("route",), "no lab here"),  # nothing could be measured
        ({"lab"}, (), "no here here"),  # an error, because something is missing outside VMs
        (set(), (), "no here here"),
    ],
)
def test_what_a_host_may_lack(monkeypatch, there, uuts, found):
    def require(needs):
        for need in needs - there:
            raise MissingError(f"no {need} here")

    monkeypatch.setattr(preconditions, "require_root", lambda: None)
    monkeypatch.setattr(preconditions, "require", require)
    monkeypatch.setattr(Resolved, "needs_for", lambda self, uuts: {"bridge": {"here"}, "route": {"lab"}}[uuts[0]])
    resolved = make_request(ON_A_VM, profile(), uuts).resolved
    if isinstance(found, dict):
        assert preconditions.with_what_lacks(resolved).lacking == found
        return
    with pytest.raises(MissingError, match=found):
        preconditions.with_what_lacks(resolved)
