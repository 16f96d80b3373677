"""Warm-up trials: which are made on each boot, when they are enough, and that they are part of nothing else."""

import csv
import io
import sqlite3

import pytest

from netbench.campaign.request import make_request
from netbench.cli.dry_run import describe
from netbench.errors import TestbedError, UsageError
from netbench.model.units import Load
from netbench.model.verdict import ReasonKind, Verdict
from netbench.plan.warm_up import MOST, expected_number, is_enough, warm_up_trial
from netbench.results.export_files import export
from netbench.results.export_rows import stream_rows, warm_up_rows
from netbench.results.store import Store
from netbench.statistics.groups import group_trials
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import profile, shared_topology, topology, trial_spec
from tests.unit.report_page import report_page

UUTS = tuple({"name": name, "kind": "raw"} for name in ("a", "b"))
DIES = Behaviour(uut_error="guest a: QEMU was killed by signal 9")
LOADS = ["1000fps", "5000fps", "2000fps"]


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    return FakeCampaign.on(topology(uuts=UUTS), tmp_path / "results", monkeypatch)


def made(results):
    """Return the numbers of the warm-up trials by boot."""
    found: dict[tuple[str, int], list[int]] = {}
    for warm_up in results.warm_ups:
        found.setdefault((warm_up.result.spec.uut, warm_up.result.boot), []).append(warm_up.number)
    return found


@pytest.mark.parametrize(
    ("fps", "enough"),
    [
        ([], False),
        ([100.0], False),
        ([100.0, 100.0], True),
        ([100.0, 100.05], True),  # less than counts as a change
        ([100.0, 101.0], False),
        ([100.0, 110.0, 120.0, 130.0], False),
        ([100.0, 110.0, 120.0, 115.0], True),
        ([120.0, 110.0, 100.0], False),
        ([100.0, None], False),
        ([None, None, 100.0, 100.0], True),
        ([float(fps) for fps in range(1, MOST)], False),
        ([float(fps) for fps in range(1, MOST + 1)], True),  # otherwise it never ends
        ([None] * MOST, True),
    ],
)
def test_by_rule_a_boot_is_warm_once_a_trial_breaks_no_record(fps, enough):
    assert is_enough("auto", fps) is enough


def test_a_number_is_a_number_and_nothing_is_nothing():
    assert [is_enough(2, [None] * made) for made in range(4)] == [False, False, True, True]
    assert is_enough(None, [])
    assert [expected_number(wanted) for wanted in (None, 3, "auto")] == [0, 3, 4]


def test_it_sends_what_follows_at_the_highest_load_of_the_profile():
    following = trial_spec("a", "dedicated", ("s1",), 512, "1000fps")
    loads = [Load.parse(load) for load in ("2000fps", "90%", "1Mbit/s")]
    warm = warm_up_trial(following, topology(), loads)
    assert (str(warm.load), warm.frame_size.only_size, warm.streams) == ("90%", 512, ("s1",))
    assert str(warm_up_trial(following, topology(), [*loads, Load.parse("max")]).load) == "max"
    assert warm_up_trial(following, topology(), ()) == following, "a search chooses its loads itself"


@pytest.mark.parametrize("value", [-1, 101, 1.5, "often", "3", True, [3]])
def test_a_number_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"warm_up_trials\n.*a number up to 100, or auto"):
        profile(warm_up_trials=value)


def test_each_boot_is_warmed_up_and_no_number_knows_of_it(campaign):
    results = campaign.run(warm_up_trials=3, repetitions=2, order="interleaved", reboot="trial", loads=LOADS)
    boots = {trial.boot for trial in results.trials}
    assert len(results.trials) == len(boots) == 2 * 2 * 3
    assert {boot: numbers for (_, boot), numbers in made(results).items()} == {boot: [1, 2, 3] for boot in boots}
    assert {str(warm_up.result.spec.load) for warm_up in results.warm_ups} == {"5000fps"}
    assert campaign.testbed.trials == 4 * len(boots)
    assert {len(group.everything) for group in group_trials(results)} == {2}
    assert len(results.boots) == len(boots)
    assert len(campaign.events("warm-up-trial-stored")) == 3 * len(boots)
    assert len(campaign.events("trial-stored")) == len(boots)
    assert list((campaign.directory.path / "captures").iterdir()) == []


def test_without_them_nothing_is_other_than_before(campaign):
    results = campaign.run()
    assert (list(results.warm_ups), campaign.testbed.trials) == ([], 2)
    with sqlite3.connect(campaign.directory.store) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "warm_up_trials" not in tables, "as older stores"
    assert not {key for key in results.manifest["digests"]["profile"] if "warm_up" in key}, "as older manifests"
    assert profile(warm_up_trials=0) == profile()


def test_by_rule_as_many_are_made_as_it_takes(campaign):
    campaign.testbed.behaviours["a"] = [Behaviour(lost_in_uut=lost) for lost in (400, 300, 200, 250, 100, 100)]
    results = campaign.run(warm_up_trials="auto", repetitions=2)
    assert made(results) == {("a", 1): [1, 2, 3, 4], ("b", 2): [1, 2]}
    lost = [trial.streams[0].lost_frames for trial in results.trials if trial.spec.uut == "a"]
    assert lost == [100, 100]


def test_a_uut_that_dies_while_it_warms_up_is_restarted_and_given_up_like_any(campaign):
    campaign.testbed.behaviours["a"] = [Behaviour(), DIES, Behaviour(), Behaviour(), Behaviour()]
    results = campaign.run(warm_up_trials=2)
    assert campaign.testbed.ups == {"a": 2, "b": 1}
    assert made(results) == {("a", 1): [1, 2], ("a", 2): [1, 2], ("b", 3): [1, 2]}
    assert [(trial.verdict, trial.attempt, trial.boot) for trial in results.trials] == [
        (Verdict.VALID, 1, 2),
        (Verdict.VALID, 1, 3),
    ]
    verdicts = [warm_up.result.verdict for warm_up in results.warm_ups]
    assert verdicts.count(Verdict.INVALID) == 1


def test_one_that_dies_in_every_warm_up_is_given_up(campaign):
    campaign.testbed.behaviours["a"] = [DIES] * 99
    results = campaign.run(warm_up_trials=2, repetitions=2)
    assert campaign.testbed.ups == {"a": 3, "b": 1}
    of_a = [trial for trial in results.trials if trial.spec.uut == "a"]
    assert [[reason.kind for reason in trial.reasons] for trial in of_a] == [[ReasonKind.UUT_FAILED]] * 2
    assert "failed in 3 trials one after the other" in of_a[0].reasons[0].detail


def test_neighbours_are_there_and_one_that_fails_is_brought_up_again(tmp_path, monkeypatch):
    lab = shared_topology(uuts=UUTS[:1])
    campaign = FakeCampaign.on(lab, tmp_path / "results", monkeypatch)
    campaign.testbed.behaviours["a.second"] = [DIES]
    results = campaign.run(warm_up_trials=2, scenarios=[{"network": "1000fps", "frame_size": 64}])
    assert campaign.testbed.ups == {"a": 1, "a.second": 2}
    assert made(results) == {("a", 1): [1]}
    assert [trial.verdict for trial in results.trials] == [Verdict.VALID]


def test_exports_tell_how_many_and_have_them_apart(campaign, tmp_path):
    results = campaign.run(warm_up_trials=2, repetitions=2)
    rows = list(stream_rows(results.trials, results.boots, results.facts, results.warm_ups))
    assert [(row["warm_up_trials"], row["warm_up_trial"]) for row in rows] == [(2, None)] * 4
    apart = list(warm_up_rows(results))
    assert [(row["uut"], row["lifetime"], row["warm_up_trial"]) for row in apart] == [
        ("a", 1, 1),
        ("a", 1, 2),
        ("b", 2, 1),
        ("b", 2, 2),
    ]
    assert {row["received_frames"] for row in apart} == {1000}
    assert {tuple(row) for row in apart} == {tuple(rows[0])}, "the same columns"
    export(results, "csv", False, tmp_path / "warm.csv", warm_ups=True)
    read = list(csv.DictReader(io.StringIO((tmp_path / "warm.csv").read_text())))
    assert [row["warm_up_trial"] for row in read] == ["1", "2"] * 2
    with pytest.raises(UsageError, match="part of no mean"):
        export(results, "csv", True, None, warm_ups=True)


def test_the_report_counts_and_shows_them(campaign):
    page = report_page(campaign.run(warm_up_trials=2, repetitions=2))
    assert "4 warm-up trials</a>, not part of any result." in page
    assert "4 trials on 2 boots, made before the first trial of each boot." in page
    without = report_page(FakeCampaign.run(_again(campaign)))
    assert "warm-up trials</a>" not in without
    assert "made before the first trial of each" not in without


def _again(campaign):
    return FakeCampaign(
        campaign.lab, type(campaign.directory)(campaign.directory.path.parent / "more"), campaign.testbed
    )


def test_the_dry_run_reports_of_them_and_of_their_time():
    def output(**more):
        lines = list(describe(make_request(topology(uuts=UUTS), profile(repetitions=3, order="sequential", **more))))
        return lines, float(lines[-1].split("(")[1].split()[0])

    plain, without_s = output()
    three, with_s = output(warm_up_trials=3)
    assert [line for line in three if line not in plain and "expected" not in line] == ["    3 warm-up trials"] * 2
    assert with_s - without_s == pytest.approx(2 * 3 * 1.2, abs=1.0)
    lines, _ = output(warm_up_trials="auto")
    assert "    warm-up trials, until one is no faster and no slower than those before, 10 at most" in lines


def test_a_store_keeps_them_beside_its_trials(campaign):
    campaign.run(warm_up_trials=1)
    store = Store.open(campaign.directory.store)
    assert (len(store), len(list(store.warm_ups())), store.last_boot()) == (2, 2, 2)
    with pytest.raises(TestbedError, match="already stored"):
        store.keep_warm_up(next(iter(store.warm_ups())))
    store.close()


@pytest.mark.parametrize(
    ("stop", "numbers", "boots"),
    [(2, [1], [2, 2, 3, 3]), (5, [1, 2, 3], [1, 2, 3, 3])],
    ids=["in a warm-up trial", "after the first trial"],
)
def test_a_campaign_that_was_stopped_goes_on_with_another_boot_that_is_warmed_up(campaign, stop, numbers, boots):
    stopped = campaign.stopped_at(stop, warm_up_trials=3, repetitions=2)
    assert made(stopped) == {("a", 1): numbers}
    results = campaign.resume()
    assert made(results) == {("a", 1): numbers, ("a", 2): [1, 2, 3], ("b", 3): [1, 2, 3]}
    assert [trial.boot for trial in results.trials] == boots
    campaign.resume()
    assert campaign.testbed.calls == []


def test_a_testbed_that_breaks_stops_the_campaign_as_ever(campaign):
    stopped = campaign.stopped_at(1, TestbedError("eth1 is gone"), warm_up_trials=2)
    assert (len(stopped.trials), made(stopped)) == (0, {})
    assert report_page(stopped)
