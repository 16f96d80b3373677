"""The noise floor of a host: how it is computed, measured and kept."""

import json

import pytest

from netbench.campaign import runner
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.plan.noise_trial import MOST, came_out_fps, is_enough, noise_trial
from netbench.results.manifest import NOISE_FLOOR
from netbench.statistics.intervals import noise_floor
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import stream_counts, trial


@pytest.mark.parametrize(
    ("repeats", "parts", "half_width"),
    [
        ([100.0, 100.0], 1, None),  # too few
        ([0.0, 0.0, 0.0], 1, None),
        ([100.0, 100.0, 100.0], 1, 0.0),
        ([95.0, 100.0, 105.0], 1, 4.303 * 0.05 * (4 / 3) ** 0.5),
        ([95.0, 100.0, 105.0], 3, 4.303 * 0.05 * (2 / 3) ** 0.5),
        ([95.0, 100.0, 105.0], 0.5, 4.303 * 0.05 * (4 / 3) ** 0.5),  # no trial is shorter than a repeat
        ([98.0, 99.0, 100.0, 101.0, 102.0], 1, 2.776 * 0.01581 * (6 / 5) ** 0.5),
        ([98.0, 99.0, 100.0, 101.0, 20.0], 1, 2.776 * 2 * 0.014826 * 100 / 99 * (6 / 5) ** 0.5),  # one was disturbed
    ],
)
def test_the_noise_floor_of_some_repeats(repeats, parts, half_width):
    found = noise_floor(repeats, "a trial", parts)
    if half_width is None:
        assert found is None
    else:
        assert found is not None
        assert found.half_width == pytest.approx(half_width, rel=0.02)
        assert found.repeats == len(repeats)


@pytest.mark.parametrize(("half_width", "text"), [(0.081, "±8 %"), (0.004, "±0.4 %"), (0.0, "±0 %"), (1.2, "±120 %")])
def test_it_is_stated_in_percent(half_width, text):
    scale = half_width / 4.303 / (4 / 3) ** 0.5
    found = noise_floor([100 - 100 * scale, 100.0, 100 + 100 * scale], "a trial")
    assert (
        str(found)
        == f"This host varies by {text} between repeats. Intervals of throughput under overload include this."
    )


def test_the_fixed_trial_is_short_and_as_fast_as_the_source_can():
    spec = trial(stream_counts(), scenario="cpu-heavy").spec
    fixed = noise_trial(spec, profile(frame_sizes=[1500, 64], duration="10s"))
    assert (fixed.frame_size.only_size, fixed.load.kind, fixed.duration_s) == (64, LoadKind.MAX, 0.05)
    assert fixed.neighbours == ()
    assert noise_trial(spec, profile(duration="20ms")).duration_s == 0.02


def test_enough_repeats_are_made_and_no_more():
    assert not is_enough(3, 60.0, 1.5), "the first one warms up"
    assert is_enough(4, 1.5, 1.5)
    assert not is_enough(MOST - 1, 1.0, 1.5)
    assert is_enough(MOST, 0.1, 1.5)


def test_frames_that_the_capture_dropped_came_out_too_and_a_disturbed_trial_is_no_repeat():
    counts = stream_counts(sent=1000, received=700, capture_dropped_frames=100)
    assert came_out_fps(trial(counts)) == pytest.approx(800)
    disturbed = (Reason(ReasonKind.TESTER_DISTURBED, "s1", "stalled"),)
    assert came_out_fps(trial(counts, reasons=disturbed)) is None


def test_a_campaign_measures_it_once_at_its_start_and_keeps_it(tmp_path, monkeypatch):
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    results = campaign.run(noise_floor="1s", repetitions=2)
    assert results.noise_floor is not None
    assert results.noise_floor.repeats == MOST - 1
    assert len(results.trials) == 2 * len(results.uuts), "none of them is a result"
    kept = json.loads((tmp_path / "results" / "manifest.json").read_text())
    assert NOISE_FLOOR.of(kept) == results.noise_floor
    assert NOISE_FLOOR.of({**kept, "noise_floor": {"half_width": "x"}}) is None


@pytest.mark.parametrize(("machine", "run_to_run"), [("none", 0.0), ("kvm", 0.25), (None, 0.0)])
def test_in_a_virtual_machine_runs_vary_too(tmp_path, monkeypatch, machine, run_to_run):
    def environment(*_, **__):
        return {"virtualisation": {"machine": machine}}

    monkeypatch.setattr(runner, "read_environment", environment)
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    floor = campaign.run(noise_floor="1s", repetitions=2).noise_floor
    assert floor is not None
    assert floor.run_to_run == run_to_run
    assert ("another ±25 %, the variation between runs" in str(floor)) == bool(run_to_run)


def test_without_time_for_it_there_is_none(tmp_path, monkeypatch):
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    assert campaign.run(noise_floor=0).noise_floor is None
