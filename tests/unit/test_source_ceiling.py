"""Highest rate of the sources: its samples, calibration, storage, use and display."""

from dataclasses import replace
from functools import partial

import pytest

from netbench.model.frame_size import FrameSize
from netbench.model.source_ceiling import (
    MOST_SAMPLES,
    CeilingComparison,
    CeilingSample,
    ceiling_of,
    is_settled,
)
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent, Traffic
from netbench.model.verdict import WarningKind
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from netbench.results.export_rows import stream_rows
from netbench.results.manifest import CEILINGS
from netbench.trial.source_calibration import calibrate_sources, can_calibrate, fault_of
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour, FakeSetup, fake_ports
from tests.unit.inputs import profile, shared_topology, topology
from tests.unit.report_page import report_page

SIZE = FrameSize.of(64)
of_xdp = partial(ceiling_of, "xdp", 1, SIZE)


def samples(*fps, disturbed=()):
    return [
        CeilingSample(rate, 0.2, accepted=rate not in disturbed, reason="stopped" * (rate in disturbed)) for rate in fps
    ]


@pytest.mark.parametrize(
    ("fps", "disturbed", "settled", "ceiling", "agreed"),
    [
        ([9e6, 9.1e6, 9.05e6], [], True, 9.05e6, True),
        ([10_662, 9e6, 9.1e6], [], True, 9e6, True),  # a stall that nothing shows
        ([9e6, 9.1e6], [], False, 9e6, True),  # too few
        ([9e6, 8e6, 7e6], [], False, 8e6, False),
        ([9e6, 8e6, 7e6, 8.8e6], [], True, 8.8e6, True),
        ([9e6, 8.9e6, 3e6], [8.9e6], False, 3e6, False),
        ([9e6, 9e6 + 1, 3e6], [9e6, 9e6 + 1], False, 0.0, False),
        ([10_662, 10_700, 10_650], [], True, 10_662, True),  # all of them: the comparisons show it
        ([0.0, 0.0, 0.0], [], False, 0.0, False),
        ([1e6 * 2**n for n in range(MOST_SAMPLES)], [], True, 1e6 * 2 ** (MOST_SAMPLES - 2), False),
    ],
)
def test_two_samples_that_agree_and_are_the_highest_decide(fps, disturbed, settled, ceiling, agreed):
    taken = samples(*fps, disturbed=disturbed)
    found = of_xdp(taken)
    assert (is_settled(taken), found.fps, found.agreed, found.is_known) == (settled, ceiling, agreed, ceiling > 0)


def test_what_is_doubtful_of_a_ceiling_is_reported_with_numbers():
    sure = of_xdp(samples(9e6, 9.1e6, 9.05e6))
    assert sure.doubt == ""
    held, missed = (CeilingSample(8.8e6, 0.2, accepted, "", 8.8e6) for accepted in (True, False))
    assert replace(sure, paced_fps=8.8e6, paced_samples=(missed, held, held)).doubt == ""
    unheld = replace(sure, paced_fps=8.8e6, paced_samples=(missed, held))
    assert unheld.doubt == "the sources sustained 8,800,000 frames/s in fewer than 2 samples"
    assert replace(sure, compared_with=(CeilingComparison("the self-test", 10e6),)).doubt == ""
    slow = of_xdp(samples(10_662, 10_700, 10_650), compared_with=[CeilingComparison("UUT xdp", 9e6)])
    assert slow.doubt == "the same source offered 9,000,000 frames/s in UUT xdp"
    assert "differ by more than 5%" in of_xdp(samples(9e6, 8e6, 7e6)).doubt
    assert of_xdp(samples(9e6, disturbed=[9e6])).doubt == "fewer than two of 1 samples count; stopped"
    assert CEILINGS.of(CEILINGS.put({}, (sure, slow))) == (sure, slow)
    assert CEILINGS.of({"source_ceilings": [{"fps": "x"}]}) == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"max_lateness_s": 0.009}, ""),
        ({"max_lateness_s": 0.09}, "the source did not run for 90 ms of 200 ms"),
        ({"descheduled_s": 0.011}, "the source did not run for 11 ms of 200 ms"),
        ({"wait_s": 0.011}, ""),
        ({"wait_s": 0.011, "cpu": 0}, "the source did not run for 11 ms of 200 ms"),
        ({"error": "the link went down"}, "the link went down"),
        ({"frames": 0}, "nothing was sent"),
    ],
)
def test_a_sample_in_which_the_source_stood_still_does_not_count(changes, fault):
    assert fault_of(replace(Sent(2_000_000, 0, 0.2, 0, 1, 2_000_000, 0.0), **changes)) == fault


class Rates:
    """Sources that offer these rates one after the other where they are not paced, and `holds` where they are.

    If `holds` has several rates, the source was stopped in all of these samples but the last.
    """

    def __init__(self, setup, rates, holds):
        self.rates, self.holds = list(rates), holds if isinstance(holds, list) else [holds]
        self.traffic: list[Traffic] = []
        for ends in setup.endpoints.values():
            ends.source.prepare = self.traffic.append
            ends.source.wait = lambda _: self.sent(self.traffic[-1])

    def sent(self, traffic):
        is_stopped = traffic.fps is not None and len(self.holds) > 1
        held = self.holds.pop(0) if is_stopped else self.holds[0]
        fps = self.rates.pop(0) if traffic.fps is None else min(traffic.fps, held)
        descheduled_s = 0.15 if is_stopped else 0.0
        return Sent(round(fps * traffic.duration_s), 0, traffic.duration_s, 0, 1, 1, 0.0, descheduled_s=descheduled_s)


@pytest.mark.parametrize(
    ("rates", "holds", "ceiling", "paced", "paced_samples"),
    [
        ([1, 9e6, 9.1e6, 9e6], 9e6, 9e6, 8.82e6, 2),  # the first is the warm-up
        ([9e6, 10_662, 9.1e6, 9e6], 9e6, 9e6, 8.82e6, 2),
        ([9e6, 9e6, 7e6, 5e6, 8e6, 8.9e6], 9e6, 8.9e6, 8.722e6, 2),
        ([9e6, 9e6, 9e6, 9e6], 7e6, 9e6, 6.86e6, 4),
        ([9e6, 9e6, 9e6, 9e6], [0.0, 1e6, 9e6], 9e6, 8.82e6, 4),  # a program took the CPU for 300 ms
    ],
)
def test_sources_are_calibrated_without_a_uut(rates, holds, ceiling, paced, paced_samples):
    setup = FakeSetup.on(stream_paths(topology())).setup
    sources = Rates(setup, rates, holds)
    found = calibrate_sources(setup, list(setup.endpoints.values()), SIZE)
    assert sources.rates == []
    assert (found.fps, found.paced_fps, len(found.paced_samples)) == (ceiling, paced, paced_samples)
    assert (found.agreed, found.uut, found.sources, found.frame_size, found.source) == (True, "", 1, SIZE, "fake")
    assert len({sent.src_ip for sent in sources.traffic}) == len(sources.traffic), (
        "each sample has an address of its own"
    )
    macs = {nic.mac for ends in setup.endpoints.values() for nic in ends.path.nics.values()}
    assert not macs & {sent.dst_mac for sent in sources.traffic}


def test_frames_for_no_one_are_sent_over_links_of_netbench_alone():
    own, foreign = (FakeSetup.on(stream_paths(lab)).setup.endpoints.values() for lab in (topology(), fake_ports()))
    assert can_calibrate(list(own))
    assert not can_calibrate(list(foreign))
    assert not can_calibrate([])


SHARES = {"scenarios": [{"network": ["50%"]}], "loads": ["500fps"]}


@pytest.fixture
def made(monkeypatch, tmp_path):
    two = [{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"}]
    return FakeCampaign.on(shared_topology(uuts=two), tmp_path / "results", monkeypatch)


def test_a_campaign_calibrates_once_for_all_its_uuts_and_resumes_with_the_same(made):
    made.testbed.usual = Behaviour(capacity_fps=4321.0)
    first = made.stopped_at(3, **SHARES)
    (ceiling,) = CEILINGS.of(first.manifest)
    assert (ceiling.fps, ceiling.paced_fps, ceiling.agreed, ceiling.uut) == (10_000.0, 9_800.0, True, "")
    assert len(ceiling.samples) == 3
    results = made.resume()
    assert CEILINGS.of(results.manifest) == (ceiling,)
    assert "max" not in {str(trial.spec.load) for trial in results.trials}, "no trial is for the source alone"
    assert [search.uut for search in results.maxima_searches] == ["bridge", "route"]
    rows = list(stream_rows(results.trials, ceilings=CEILINGS.of(results.manifest)))
    assert {row["source_ceiling_fps"] for row in rows if not row["guest"]} == {10_000.0}
    assert {row["source_ceiling_doubt"] for row in rows} == {None}
    page = report_page(results)
    assert "Highest rate of the sources" in page
    assert "10.0, 10.0, 10.0" in page


def test_where_frames_must_not_be_sent_without_a_uut_trials_through_each_uut_calibrate(monkeypatch, tmp_path):
    campaign = FakeCampaign.on(fake_ports(), tmp_path / "results", monkeypatch)
    monkeypatch.setattr("netbench.campaign.runner.can_calibrate", lambda _: False)
    campaign.testbed.usual = Behaviour(capacity_fps=4321.0)
    results = campaign.run(loads=[], schedule={"kind": "search", "method": "rfc2544"})
    (ceiling,) = CEILINGS.of(results.manifest)
    assert (ceiling.uut, ceiling.fps, len(ceiling.samples)) == ("x", 10_000.0, 3)
    loads = [str(trial.spec.load) for trial in results.trials]
    assert loads[:5] == ["max", "max", "max", "max", "9800fps"], "the first is the warm-up"


def test_a_ceiling_that_is_doubtful_is_a_warning_and_part_of_what_it_limits(made, monkeypatch):
    slow = ceiling_of(
        "fake", 1, SIZE, samples(10_000, 9_900, 9_950), compared_with=[CeilingComparison("the self-test", 9e6)]
    )
    monkeypatch.setattr("netbench.campaign.runner.calibrate_sources", lambda *_, **__: slow)
    results = made.run(**SHARES)
    assert [warning.kind for warning in results.warnings].count(WarningKind.SOURCE_CEILING_DOUBTFUL) == 1
    assert {str(search.limited_by) for search in results.maxima_searches} == {
        "the source, which can be paced at 9,751 frames/s (not reliable: the same source offered 9,000,000 frames/s in "
        "the self-test)"
    }


def test_a_search_between_loads_that_were_asked_for_needs_no_ceiling():
    def needed(**options):
        return make_schedule(
            choose(topology(), profile(loads=[], schedule={"kind": "search", **options}))
        ).needed_ceilings

    assert needed() == ((1, SIZE),)
    assert needed(highest="10kfps") == ()
    assert make_schedule(choose(topology(), profile())).needed_ceilings == ()
