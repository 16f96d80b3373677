"""The example of an external schedule: results decide which trial comes next."""

import re
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from netbench_example.halving import Halving

from netbench.cli.dry_run import describe
from netbench.config import plugins
from netbench.errors import TestbedError
from netbench.model.units import Load
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import topology

LOST = Behaviour(lost_in_uut=1)


@pytest.fixture
def halving(monkeypatch):
    """Register it as if it were installed."""
    known = plugins.installed

    def with_halving(group):
        found = known(group)
        return replace(found, kinds=found.kinds | {"halving": Halving}) if group == plugins.SCHEDULES else found

    monkeypatch.setattr(plugins, "installed", with_halving)


@pytest.mark.parametrize("stopped_in", [None, 1, 3])
def test_a_schedule_of_somebody_else(halving, monkeypatch, tmp_path, stopped_in):
    """Also when it was stopped in the middle of the search."""
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    campaign.testbed.behaviours["bridge"] = [LOST, Behaviour(), LOST]
    wanted: dict[str, Any] = {"schedule": {"kind": "halving", "highest": 1600, "steps": 4}}
    output = describe(campaign.request(**wanted))
    assert "# trials: each depends on earlier results (halving)" in list(output)
    if stopped_in is None:
        results = campaign.run(**wanted)
    else:
        campaign.stopped_at(stopped_in, **wanted)
        results = campaign.resume()
    assert [str(trial.spec.load) for trial in results.trials] == ["800fps", "400fps", "600fps", "500fps"]
    assert {trial.boot for trial in results.trials} == ({1} if stopped_in in (None, 1) else {1, 2})
    assert results.manifest["finished"]
    assert (results.manifest["planned_trials"], results.planned_trials) == (None, 4)


def first_trial(plan, fps):
    return plan.trial("bridge", plan.scenarios[0], plan.profile.frame_sizes[0], Load.of_fps(fps), 1, index=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda plan: "a trial", "'a trial' instead of a trial"),
        (lambda plan: first_trial(plan, -5.0), "the load -5fps: a load must be above 0"),
        (lambda plan: first_trial(plan, inf), "a load must be above 0"),
        (lambda plan: replace(first_trial(plan, 5.0), uut="missing"), "a trial of missing, which is no UUT"),
        (lambda plan: first_trial(plan, 800.0), "the trial bridge/dedicated/s1/64/800fps/1 again"),
    ],
)
def test_a_trial_that_cannot_be_measured_is_refused_and_the_results_stay_readable(
    halving, monkeypatch, tmp_path, wrong, message
):
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    following = Halving.next
    monkeypatch.setattr(
        Halving, "next", lambda self, results: wrong(self.plan) if results else following(self, results)
    )
    with pytest.raises(TestbedError, match=r"the schedule halving.* returned .*" + re.escape(message)):
        campaign.run(schedule={"kind": "halving", "highest": 1600, "steps": 4})
    assert [str(trial.spec.load) for trial in campaign.directory.results().trials] == ["800fps"]
