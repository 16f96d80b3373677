"""The example of a schedule from outside: it decides by results what comes next."""

import pytest
from netbench_example.halving import Halving

from netbench.campaign import runner as campaign
from netbench.campaign.runner import make_request, resume
from netbench.cli.dry_run import describe
from netbench.config import plugins
from netbench.hosts.signals import Stopped
from netbench.model.paths import stream_paths
from netbench.plan import schedule
from netbench.results.directory import ResultDirectory
from tests.unit.fakes import FakeTestbed, Fate
from tests.unit.inputs import profile, topology
from tests.unit.test_campaign import run, stop_at

LOST = Fate(lost_in_uut=1)


@pytest.fixture
def halving(monkeypatch):
    """Have it installed, so to speak."""
    known = plugins.plugins

    def with_halving(group):
        return known(group) | ({"halving": Halving} if group == plugins.SCHEDULES else {})

    monkeypatch.setattr(plugins, "plugins", with_halving)
    monkeypatch.setattr(schedule, "plugins", with_halving)


@pytest.mark.parametrize("stopped_in", [None, 1, 3])
def test_a_schedule_of_somebody_else(halving, monkeypatch, tmp_path, stopped_in):
    """Also when it was stopped in the middle of the search."""
    testbed = FakeTestbed(stream_paths(topology()), [LOST, Fate(), LOST, Fate()])
    monkeypatch.setattr(campaign, "open_testbed", lambda *_: testbed.opening())
    request = make_request(topology(), profile(schedule={"kind": "halving", "highest": 1600, "steps": 4}))
    assert "# trials: chosen one by one by what was measured so far (halving)" in list(describe(request))
    directory = ResultDirectory(tmp_path / "results")
    if stopped_in is None:
        run(directory, request)
    else:
        testbed.before_trial = stop_at(stopped_in, Stopped(15))
        with pytest.raises(Stopped):
            run(directory, request)
        testbed.before_trial = lambda number: None
        resume(directory, [], [])
    results = directory.results()
    assert [str(trial.spec.load) for trial in results.trials] == ["800fps", "400fps", "600fps", "500fps"]
    assert {trial.boot for trial in results.trials} == ({1} if stopped_in in (None, 1) else {1, 2})
    assert results.manifest["finished"]
    assert (results.manifest["planned_trials"], results.planned_trials) == (None, 4)
