"""`run --loads-from BASE`: shares of a maximum with the rates of an earlier campaign."""

from typing import Any

import pytest

from netbench.campaign.request import CampaignRequest, make_request
from netbench.cli.dry_run import describe
from netbench.errors import UsageError
from netbench.model.replayed_loads import ReplayedLoads, replayed_loads_of
from netbench.model.verdict import Verdict
from netbench.statistics.compared_cells import Campaign
from netbench.statistics.comparison import compare
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import profile, shared_topology

TWO = [{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"}]
LOADS: dict[str, Any] = {"loads": ["30% of maximum", "90% of maximum", "2000fps", "max"], "repetitions": 2}
NEIGHBOURS: dict[str, Any] = {"scenarios": ["dedicated", {"network": ["50%"]}], "streams": [1]}
CAPACITY = 4321.0


@pytest.fixture
def base(monkeypatch, tmp_path):
    """A finished campaign of two UUTs with shares of maxima, also of a neighbour."""
    made = FakeCampaign.on(shared_topology(uuts=TWO), tmp_path / "base", monkeypatch)
    made.testbed.usual = Behaviour(capacity_fps=CAPACITY)
    return made.run(**LOADS, **NEIGHBOURS)


@pytest.fixture
def rates(base, tmp_path):
    return ReplayedLoads(str(tmp_path / "base"), "2025-03-04", replayed_loads_of(base.trials))


def request(rates, **more) -> CampaignRequest:
    topology = shared_topology(uuts=more.pop("uuts", TWO))
    return make_request(topology, profile(**{**LOADS, **NEIGHBOURS, **more}), replayed=rates)


def rate(spec):
    """Return the identity of a measurement, and all rates in it."""
    loads = [guest.traffic.load for guest in spec.guests if guest.traffic is not None]
    key = (spec.uut, spec.scenario, spec.streams, str(spec.frame_size), str(spec.load), spec.repetition)
    return key, tuple(load.as_rate.value for load in loads)


def test_each_trial_has_the_rates_of_the_base_and_no_maximum_is_searched_for(base, rates):
    measured = dict(rate(trial.spec) for trial in base.wanted_trials)
    planned = dict(rate(spec) for spec in request(rates).schedule.planned)
    assert planned == measured
    assert len(planned) == 2 * 2 * 4 * 2
    assert {replayed.neighbour for replayed in rates.loads} == {"", "second"}


def test_a_measurement_that_the_base_does_not_have_is_refused_by_name(rates):
    with pytest.raises(UsageError, match=r"it has no rate for bridge, .*512 bytes, .*, and 7 more; measure"):
        request(rates, frame_sizes=[512])
    with pytest.raises(UsageError, match="it has no rate for ovs, dedicated"):
        request(rates, uuts=[{"name": "ovs", "kind": "raw"}])


def test_absolute_loads_need_nothing_of_the_base(rates):
    assert len(request(rates, loads=["1000fps", "max"], scenarios=["dedicated"]).schedule.planned) == 2 * 2 * 2


def test_the_dry_run_shows_the_rates_and_where_they_come_from(rates):
    lines = list(describe(request(rates)))
    (first,) = [number for number, line in enumerate(lines) if line.startswith("# loads from ")]
    assert "started 2025-03-04: the shares of maxima have its rates" in lines[first]
    found = next(replayed for replayed in rates.loads if replayed.load == "90% of maximum")
    assert f"  bridge, dedicated, s1, 64 bytes, 90% of maximum: {found.rate:,.0f} frames/s" in lines
    assert any(f"90% of maximum ({found.rate:,.0f} frames/s)" in line for line in lines)


def test_a_replay_is_measured_stored_resumed_and_compared(base, rates, monkeypatch, tmp_path):
    """The new UUTs forward less: at the same rates that is a difference."""
    made = FakeCampaign.on(shared_topology(uuts=TWO), tmp_path / "new", monkeypatch)
    made.testbed.usual = Behaviour(capacity_fps=CAPACITY * 0.9)
    results = made.run(**LOADS, **NEIGHBOURS, replayed=rates)
    stored: Any = results.manifest["loads_from"]
    assert stored["directory"] == str(tmp_path / "base")
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert results.maxima == ()
    again = made.resume()
    assert len(again.trials) == len(results.trials)
    (comparison,) = compare(Campaign.of("base", base), [Campaign.of("new", results)])
    loads = {str(cell.place.load) for cell in comparison.by_load}
    assert {"30% of maximum", "90% of maximum"} <= loads
