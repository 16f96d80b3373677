"""`netbench compare DIR` of a campaign that measured two versions of its UUTs in turn."""

import random
from dataclasses import replace

import pytest

from netbench.errors import ExitCode
from netbench.model.topology import measured_pairs
from netbench.model.trial import TrialResult
from netbench.results.comparability import split_versions
from netbench.statistics.compared_cells import Campaign
from netbench.statistics.comparison import compare
from netbench.statistics.regression_gate import GateResult, judge
from tests.unit.comparison_factory import stored
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import topology
from tests.unit.results_factory import campaign, stream_counts, trial


def in_turn(factor, *, seed=1, repetitions=9, drift=0.1, scatter=0.003):
    """A UUT and its base: the host is equally fast in both trials of a repetition, and differs between repetitions."""
    chance = random.Random(seed)
    trials: list[TrialResult] = []
    for repetition in range(1, repetitions + 1):
        host = chance.gauss(1, drift)
        for uut, own in (("raw", factor), ("raw.base", 1.0)):
            received = round(80_000 * host * own * chance.gauss(1, scatter))
            counts = stream_counts(sent=150_000, received=received, intended_fps=150_000.0, intended_frames=150_000)
            trials.append(trial(counts, uut=uut, load="150000fps", repetition=repetition, boot=len(trials) + 1))
    return campaign(trials, uuts=("raw", "raw.base"))


def gate(results, threshold=0.02, *, in_turn=True):
    versions = split_versions(results)
    assert versions is not None
    base, new = versions
    (found,) = compare(Campaign.of("base", base), [Campaign.of("new", new)], in_turn=in_turn)
    return judge(found, threshold)


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, GateResult.PASSED), (1.1, GateResult.PASSED), (0.97, GateResult.FAILED)]
)
def test_what_both_versions_have_in_common_is_no_difference(factor, expected):
    """The host varies by 10 %, and a difference of 1 % is still detected."""
    results = in_turn(factor, repetitions=7)
    assert gate(results).outcome is expected
    assert gate(results, in_turn=False).outcome is GateResult.INCONCLUSIVE


def test_equal_versions_hardly_ever_fail_and_slower_ones_never_pass():
    # With 9 repetitions, arranging these in all ways takes a second for each comparison.
    equal = [gate(in_turn(1.0, seed=seed, repetitions=7, scatter=0.02)).outcome for seed in range(60)]
    slower = [gate(in_turn(0.97, seed=seed, repetitions=7, scatter=0.02)).outcome for seed in range(60)]
    assert equal.count(GateResult.FAILED) <= 1
    assert slower.count(GateResult.PASSED) == 0


@pytest.mark.parametrize(("missing", "expected"), [(0, [0, 0]), (4, [2, 2])])
def test_a_longer_search_for_the_maximum_of_one_version_leaves_the_other_complete(missing, expected):
    measured = in_turn(1.0, repetitions=9 - missing // 2).trials
    finding = [trial(stream_counts(), uut=uut, index=number) for number, uut in enumerate(("raw", "raw", "raw.base"))]
    finding = [replace(result, spec=replace(result.spec, finds_maximum=True)) for result in finding]
    results = campaign((*finding, *measured), planned=21, uuts=("raw", "raw.base"))
    versions = split_versions(results)
    assert versions is not None
    assert [version.planned_trials - len(version.trials) for version in versions] == expected


def test_few_repetitions_are_inconclusive_and_more_are_asked_for():
    found = gate(in_turn(1.0, repetitions=3, scatter=0.02))
    assert found.outcome is GateResult.INCONCLUSIVE
    assert {cell.repetitions for cell in found.cells} != {None}


def test_the_command_compares_the_split_versions_one_directory(compare, tmp_path):
    directory = stored(tmp_path / "both", in_turn(0.95))
    code, out, err = compare(directory, "--fail-on-regression", "2")
    assert (code, err) == (ExitCode.INVALID_RESULTS, "")
    output = " ".join(out.split())
    assert "both (new) against both (base): slower in 2, by up to 5." in output
    assert "Paired t test: of the ratio in each repetition" in output


def test_both_versions_are_offered_the_shares_of_the_maximum_of_the_base(monkeypatch, tmp_path):
    uuts = [{"name": name, "kind": "raw"} for name in ("bridge", "bridge.base")]
    made = FakeCampaign.on(topology(uuts=uuts), tmp_path / "results", monkeypatch)
    made.testbed.usual = Behaviour(capacity_fps=4321.0)
    results = made.run(loads=["50% of maximum"], repetitions=2)
    assert measured_pairs(results.uuts)
    rates = {trial.spec.uut: trial.spec.load.as_rate.value for trial in results.wanted_trials}
    assert rates["bridge"] == rates["bridge.base"]
