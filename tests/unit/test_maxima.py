"""The maxima that loads are shares of: searched for first, stored, resumed and reported; and values that are none."""

import re

import pytest
from pydantic import ValidationError
from rich.console import Console

from netbench.cli.dry_run import describe
from netbench.cli.progress import ConsoleProgress
from netbench.cli.summary import searches_table
from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.config.shipped import PROFILES, shipped
from netbench.errors import TestbedError, UsageError
from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.profile import LOADS
from netbench.model.search import SearchState
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.plan.schedule_factory import make_schedule
from netbench.plan.selection import choose
from netbench.results.export_rows import stream_rows
from netbench.search.search_options import MaximaOptions
from netbench.statistics.compared_cells import Campaign
from netbench.statistics.comparison import compare
from netbench.statistics.groups import best_groups, group_trials
from netbench.statistics.limits import with_limits
from netbench.statistics.regression_gate import GateResult, judge
from netbench.statistics.search_comparison import compare_searches
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.fakes import Behaviour
from tests.unit.inputs import profile, shared_topology
from tests.unit.report_page import report_page

TWO = [{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", "forward": "route"}]
SHARES = {"scenarios": ["dedicated", {"network": ["50%", "95%"]}], "loads": ["500fps", "800fps"]}
CAPACITY = 4321.0  # frames/s; the fake source sends 10,000


@pytest.fixture
def campaign(monkeypatch, tmp_path):
    """A campaign of two UUTs of equal capacity, each beside a neighbour."""
    made = FakeCampaign.on(shared_topology(uuts=TWO), tmp_path / "results", monkeypatch)
    made.testbed.usual = Behaviour(capacity_fps=CAPACITY)
    return made


def offered(results):
    """The loads of neighbours that forward, by UUT and scenario."""
    return {
        (trial.spec.uut, trial.spec.scenario): trial.neighbours[0].streams[0].intended_fps
        for trial in results.trials
        if trial.spec.scenario.startswith("network")
    }


def test_shares_are_of_what_a_search_finds_though_the_list_of_loads_ends_far_below(campaign):
    results = campaign.run(**SHARES, repetitions=2)
    shares = offered(results)
    assert set(shares) == {(uut, name) for uut in ("bridge", "route") for name in ("network-50", "network-95")}
    for (_, scenario), fps in shares.items():
        assert fps == pytest.approx(CAPACITY * int(scenario[-2:]) / 100, rel=0.01)
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    finding = [trial.spec for trial in results.trials if trial.spec.finds_maximum]
    planned = [trial.spec for trial in results.wanted_trials]
    assert {(spec.scenario, spec.frame_size.only_size, spec.phase) for spec in finding} == {("shared-idle", 64, 1)}
    assert {spec.phase for spec in planned} == {2}
    assert len(planned) == 2 * 3 * 2 * 2
    assert [spec.index for spec in (*finding, *planned)] == list(range(len(results.trials)))
    assert results.planned_trials == len(results.trials)
    assert results.manifest["planned_trials"] is None
    assert [(search.uut, search.state, search.scenario) for search in results.maxima_searches] == [
        (uut, SearchState.FOUND, "shared-idle") for uut in ("bridge", "route")
    ]
    assert results.searches == ()
    assert [(maximum.uut, maximum.limited_by) for maximum in results.maxima] == [
        ("bridge", LIMITED_BY_UUT),
        ("route", LIMITED_BY_UUT),
    ]


OF_VICTIM = {"loads": ["25% of maximum", "100% of maximum", "150% of maximum"]}


@pytest.mark.parametrize(
    ("wanted", "stops"),
    [({**SHARES, "repetitions": 2}, [1, 2, 6, 9, 10, 17, 18, 20, 27]), (OF_VICTIM, [1, 10, 22])],
    ids=["of neighbours", "of the victim"],
)
def test_stopped_anywhere_and_resumed_it_is_the_same_campaign(campaign, tmp_path, monkeypatch, wanted, stops):
    """It stops in the first search or the second, between these and the plan, or in the plan."""
    expected = campaign.run(**wanted)
    for stop in stops:
        again = FakeCampaign.on(campaign.lab, tmp_path / f"stopped-{stop}", monkeypatch)
        again.testbed.usual = campaign.testbed.usual
        first = again.stopped_at(stop, TestbedError("x"), **wanted)
        kept = first.trials[:]
        assert first.planned_trials > len(kept)
        results = again.resume()
        assert [result.spec for result in results.trials] == [result.spec for result in expected.trials]
        assert results.trials[: len(kept)] == kept
        assert offered(results) == offered(expected)
        assert results.maxima == expected.maxima
        assert results.manifest["finished"]
        again.resume()
        assert again.testbed.trials == 0, "nothing is left"


def test_one_search_serves_all_shares_of_a_frame_size_and_each_size_has_its_own(campaign):
    scenarios = [{"network": ["50%", "90%"]}, {"name": "large", "network": "50%", "frame_size": 1500}]
    wanted = profile(scenarios=scenarios, frame_sizes=[500])
    lines = list(describe(campaign.request(scenarios=scenarios, frame_sizes=[500])))
    begun = lines.index("# searched for first; each trial depends on earlier results")
    end = lines.index("# then trials, in order")
    assert lines[begun - 2 : begun] == [
        f"# calibration: 1 source at {size} bytes, without a UUT where links allow it" for size in ("64", "1,500")
    ]
    assert [line.split(":")[0].split() for line in lines[begun + 1 : end]] == [
        [uut, "shared-idle", "s1", size, "B"] for uut in ("bridge", "route") for size in ("64", "1,500")
    ]
    schedule = make_schedule(choose(campaign.lab, wanted))
    assert schedule.trials is None
    assert "shared-idle" in schedule.scenarios, "the neighbour is needed for it"
    alone = make_schedule(choose(campaign.lab, profile(loads=["500fps"])))
    search_s = (schedule.expected_s(()) or 0) - sum(spec.duration_s for spec in schedule.planned)
    assert search_s > 4 * 2 * 2.0, "each of four takes twice its duration_sum, or so"
    assert alone.expected_s(()) is not None


def test_rates_need_no_search(campaign):
    results = campaign.run(scenarios=["shared-idle", {"network": ["100fps"]}])
    assert not any(trial.spec.finds_maximum for trial in results.trials)
    assert results.manifest["planned_trials"] == len(results.trials)


def test_where_the_source_is_the_limit_every_trial_the_report_and_a_warning_say_so(campaign):
    campaign.testbed.usual = Behaviour()  # nothing is lost
    results = campaign.run(**SHARES)
    assert {maximum.limited_by for maximum in results.maxima} == {LimitCause(LimitKind.SOURCE, paced_fps=9800)}
    for trial in results.wanted_trials:
        kinds = [reason.kind for reason in trial.reasons]
        shares = trial.spec.scenario.startswith("network")
        assert kinds == ([ReasonKind.SHARE_OF_LOWER_BOUND] if shares else [])
        assert trial.verdict is Verdict.VALID
    assert set(offered(results).values()) == {4900.0, 9310.0}
    texts = [warning.text for warning in results.warnings if warning.kind is WarningKind.MAXIMUM_IS_LOWER_BOUND]
    assert len(texts) == 2
    assert "is at least 9,800 frames/s, limited by the source, which can be paced at 9,800 frames/s" in texts[0]
    assert "≥ 9.8" in report_page(results)


def test_loads_may_be_shares_of_what_each_uut_forwards_alone(campaign):
    """The fake UUT loses the frames above its capacity, and a second frame size has its own maximum."""
    results = campaign.run(**OF_VICTIM, frame_sizes=[64, 1500], scenarios=["dedicated", {"network": ["100fps"]}])
    finding = [trial.spec for trial in results.trials if trial.spec.finds_maximum]
    assert {(spec.scenario, spec.streams, spec.frame_size.only_size) for spec in finding} == {
        ("dedicated", ("s1",), 64),
        ("dedicated", ("s1",), 1500),
    }
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}
    assert len(list(results.wanted_trials)) == 2 * 2 * 2 * 3
    for trial in results.wanted_trials:
        intended = trial.streams[0].intended_fps
        assert intended == pytest.approx(CAPACITY * trial.spec.load.value / 100, rel=0.01)
        assert trial.spec.load.as_rate.value == intended
    lossy = [group.loss_ratio for group in group_trials(results) if group.load.value == 150]
    assert [loss and round(loss.mean, 2) for loss in lossy] == 8 * [0.33]
    page = report_page(results)
    assert "150% of maximum" in page
    assert {row["load"] for row in stream_rows(tuple(results.wanted_trials))} == {*OF_VICTIM["loads"], "100fps"}


def test_each_number_of_sources_has_a_maximum_and_idle_neighbours_are_there_if_theirs_are_shares_too(campaign):
    lab = shared_topology([{"name": "second", "streams": ["s3"]}], streams=3, uuts=TWO[:1])
    scenarios = ["dedicated", {"network": ["50%"], "streams": [1]}]
    schedule = make_schedule(choose(lab, profile(**OF_VICTIM, scenarios=scenarios, streams="each")))
    assert [line.split(":")[0].split() for line in schedule.announced] == [
        ["bridge", "shared-idle", streams, "64", "B"] for streams in ("s1", "s1+s2")
    ]
    assert {str(spec.load) for spec in schedule.planned} == set(OF_VICTIM["loads"])


def test_no_more_is_asked_of_a_source_than_it_can_offer(campaign):
    campaign.testbed.usual = Behaviour()  # nothing is lost
    results = campaign.run(**OF_VICTIM)
    assert {maximum.limited_by for maximum in results.maxima} == {LimitCause(LimitKind.SOURCE, paced_fps=9800)}
    intended = {str(result.spec.load): result.streams[0].intended_fps for result in results.wanted_trials}
    shares = {"25% of maximum": 2450.0, "100% of maximum": 9800.0, "150% of maximum": 9800.0}
    assert intended == {**shares, "max": None}
    for trial in results.wanted_trials:
        if str(trial.spec.load) == "max":
            assert trial.reasons == ()
            continue
        is_less = [ReasonKind.LESS_THAN_SHARE] if str(trial.spec.load) == "150% of maximum" else []
        assert [reason.kind for reason in trial.reasons] == [ReasonKind.SHARE_OF_LOWER_BOUND, *is_less]
        assert trial.verdict is Verdict.VALID
    assert {group.limited_by for group in best_groups(with_limits(group_trials(results)))} == {
        LimitCause(LimitKind.SOURCE)
    }


def test_above_its_maximum_a_uut_is_offered_what_the_source_was_seen_to_hold(campaign):
    """Its pace is 9,800 frames/s at most, less than 1.5 times the UUT's capacity."""
    campaign.testbed.usual = Behaviour(capacity_fps=8000.0)
    results = campaign.run(**OF_VICTIM)
    assert {maximum.limited_by for maximum in results.maxima} == {LIMITED_BY_UUT}
    for trial in results.wanted_trials:
        is_less = str(trial.spec.load) == "150% of maximum"
        intended = 9600.0 if is_less else 8000.0 * trial.spec.load.value / 100
        assert trial.streams[0].intended_fps == pytest.approx(intended, rel=0.01)
        assert [reason.kind for reason in trial.reasons] == ([ReasonKind.LESS_THAN_SHARE] if is_less else [])
        assert trial.verdict is Verdict.VALID
    assert "is more than the sources can sustain" in report_page(results)


def test_a_uut_without_a_maximum_costs_its_own_trials(campaign):
    campaign.testbed.usual = Behaviour(capacity_fps=0.0)
    results = campaign.run(**OF_VICTIM, retries=0)
    for trial in results.wanted_trials:
        [reason] = trial.reasons
        assert reason.kind is ReasonKind.MAXIMUM_UNKNOWN
        assert reason.detail.startswith("the load is a share of the maximum: even at")
    assert "No valid trial" in report_page(results)


def test_shares_of_two_maxima_are_other_loads_and_the_maxima_are_compared_instead(campaign, tmp_path, monkeypatch):
    base = campaign.run(**OF_VICTIM, repetitions=3)
    slower = FakeCampaign.on(campaign.lab, tmp_path / "slower", monkeypatch)
    slower.testbed.usual = Behaviour(capacity_fps=CAPACITY / 2)
    new = slower.run(**OF_VICTIM, repetitions=3)
    (found,) = compare(Campaign.of("base", base), [Campaign.of("new", new)])
    assert found.differences == ()
    assert {str(cell.place).rpartition(", ")[2] for cell in found.left_out} == set(OF_VICTIM["loads"])
    assert all("the load is a share of a maximum" in cell.why for cell in found.left_out)
    # The machine that runs the tests may be busy.
    maxima = compare_searches("base", base, "new", new, accept_disturbed=True, of_maxima=True)
    gate = judge(found, 0.02, maxima)
    assert {getattr(cell.place, "goal", "") for cell in gate.with_outcome(GateResult.FAILED)} == {"maximum (PDR 5 %)"}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            {"loads": ["50% of maximum"], "maxima": "loads"},
            "50% of maximum is no load in which a maximum could be found",
        ),
        ({"loads": ["50% of maximum", "1kfps"], "stop_when_saturated": 2}, "the order of these loads is unknown"),
        ({"loads": ["1001% of maximum"]}, "a share of the maximum is at most 1000%"),
        ({"loads": ["0% of maximum"]}, "a load must be more than 0"),
        ({"loads": ["50% of maximum (1000fps)"]}, "because that is measured; write 50% of maximum"),
        (
            {"loads": ["1kfps"], "schedule": {"kind": "search", "highest": "50% of maximum"}},
            "the maximum is what is searched for",
        ),
    ],
)
def test_shares_that_make_no_sense_are_refused_in_words(campaign, wanted, why):
    with pytest.raises((UsageError, ValidationError), match=re.escape(why)):
        make_schedule(choose(campaign.lab, profile(**wanted)))


@pytest.mark.parametrize(
    ("options", "behaviour", "why"),
    [
        (
            {"highest": "2kfps"},
            Behaviour(),
            "at least 2,000 frames/s, the highest load that the search may try; raise",
        ),
        ({}, Behaviour(capacity_fps=0.0), "more was lost than the search allows; allow more"),
        ({}, Behaviour(source_error="broken"), "the search for it failed: generator-failed"),
    ],
)
def test_what_is_no_maximum_costs_what_refers_to_it_and_reports_what_to_do(campaign, options, behaviour, why):
    campaign.testbed.usual = behaviour
    results = campaign.run(**SHARES, maxima=options, retries=0)
    for trial in results.wanted_trials:
        if trial.spec.scenario.startswith("network"):
            [reason] = trial.reasons
            assert reason.kind is ReasonKind.MAXIMUM_UNKNOWN
            assert why in reason.detail
            assert trial.streams == ()
    assert results.maxima == ()


def test_trials_that_search_are_in_no_mean_and_marked_in_the_export(campaign):
    results = campaign.run(**{**SHARES, "scenarios": ["shared-idle", {"network": ["50%"]}]}, repetitions=2)
    rows = list(stream_rows(results.trials))
    marked = [row for row in rows if row["finds_maximum"] == "yes"]
    assert len(marked) == sum(search.trials + 2 for search in results.maxima_searches), "and overload"
    page = report_page(results)
    assert "Highest loads" in page
    assert "maximum (PDR 5 %)" in page
    measured = results.planned_trials - len(marked)
    assert f"{measured:,} of {measured:,} trials valid" in page
    console = Console(width=100, record=True)
    console.print(searches_table(results, results.maxima_searches))
    assert "maximum (PDR 5 %)" in console.export_text()


def test_the_console_reports_bounds_as_they_narrow(campaign, capsys):
    from netbench.campaign import runner

    observer = ConsoleProgress(Console(width=200))
    runner.start(campaign.request(**SHARES), campaign.directory, ["netbench"], [observer])
    lines = capsys.readouterr().out.splitlines()
    expected = int(lines[0].split()[1])
    assert lines[0].startswith(f"about {expected} of {expected} trials to measure, about ")
    first = next(line for line in lines if "/maximum valid" in line)
    assert re.match(r"1 of about \d+ ", first)
    last = [line for line in lines if " of about " in line][-1]
    assert re.match(r"(\d+) of about \1 ", last), "in the end it is known"
    assert any(line.startswith("  maximum (PDR 5 %): ") for line in lines)
    found = [line for line in lines if line.startswith("bridge/shared-idle/s1/64/1/maximum (PDR 5 %): ")]
    assert len(found) == 1


def test_a_search_may_have_neighbours_with_shares_too(campaign):
    """The maxima of the neighbours' loads are found first, then the requested ones."""
    scenarios = ["shared-idle", {"network": ["50%"]}]
    options = {"kind": "search", "method": "tst009", "width": "5%"}
    results = campaign.run(scenarios=scenarios, loads=[], schedule=options)
    assert len(results.searches) == 2 * 2
    assert {search.state for search in results.searches} == {SearchState.FOUND}
    assert len(results.maxima_searches) == 2
    assert all(fps == pytest.approx(CAPACITY / 2, rel=0.01) for fps in offered(results).values())
    assert [trial.spec.index for trial in results.trials] == list(range(len(results.trials)))
    keys = [trial.spec.key for trial in results.trials]
    assert len(set(keys)) == len(keys), "both search in shared-idle"


def test_options():
    assert MaximaOptions().loss == (0.05,)
    assert MaximaOptions().width == 0.02
    assert MaximaOptions.model_validate({"method": "rfc2544"}).loss == (0.0,)
    with pytest.raises(ValidationError):
        MaximaOptions.model_validate({"loss": ["0%", "1%"]})
    with pytest.raises(ValidationError):
        MaximaOptions.model_validate({"delay_at": "50%"})


def test_the_papers_own_profile_keeps_the_papers_way():
    found = load_profile(shipped(PROFILES)["schlosser2011"], profile_kinds())
    assert found.maxima is not None
    assert found.maxima.kind == LOADS
    for name in ("schlosser2011-short", "interference"):
        assert load_profile(shipped(PROFILES)[name], profile_kinds()).maxima is None


def test_a_campaign_from_before_there_were_such_searches_goes_on_as_it_was_planned(campaign):
    campaign.testbed.usual = Behaviour(capacity_fps=600)
    campaign.stopped_at(5, TestbedError("x"), **SHARES, maxima="loads")
    text = campaign.directory.profile.read_text()  # neither it nor the manifest had the key
    campaign.directory.profile.write_text(text.replace("maxima:\n  kind: loads\n", ""))
    manifest = campaign.directory.read_manifest()
    del manifest["digests"]["profile"]["maxima.kind"], manifest["planned_after_search"]
    campaign.directory.write_manifest(manifest)
    results = campaign.resume()
    assert not any(trial.spec.finds_maximum for trial in results.trials)
    assert results.planned_trials == len(results.trials)
    assert set(offered(results).values()) == {300.0, 570.0}
