"""summary.json of campaigns and self-tests: findings and verdicts, numbers with their units."""

import json
from dataclasses import replace

import pytest

from netbench.model.campaign import NoiseFloor
from netbench.model.selftest_record import Ceiling, SelftestCheck, SelftestRecord
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.report.summary_json import campaign_summary, selftest_summary, write_summary
from tests.unit.comparison_factory import made_up, trials_of
from tests.unit.results_factory import campaign, search_result

SEARCH = search_result()


def test_a_campaign_has_its_findings_verdicts_and_maxima():
    spoilt = trials_of()
    spoilt[-1] = replace(spoilt[-1], reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),), thrown_away=((),))
    busy = CampaignWarning(WarningKind.HOST_WAS_BUSY, "busy")
    output = campaign_summary(replace(campaign(spoilt, warnings=(busy,)), noise_floor=NoiseFloor(0.08, 5, "a trial")))
    assert (output["schema"], output["schema_version"], output["kind"]) == ("netbench-summary", 1, "run")
    assert output["trials"] == {
        "valid": 8,
        "suspicious": 0,
        "invalid": 1,
        "planned": 9,
        "skipped": 0,
        "calibration": 0,
        "discarded_attempts": 1,
        "reasons": {"link-down": 1},
    }
    assert output["findings"][0]["topic"] == "Throughput"
    assert {"kind": "host-was-busy", "text": "busy"} in output["warnings"]
    assert output["noise_floor_percent"] == 8
    (most,) = output["maxima"]
    assert (most["uut"], most["frame_size"], most["limited_by"], most["is_lower_bound"]) == (
        *("raw", "64", "the UUT"),
        False,
    )
    assert most["throughput_fps"] == 80_000
    assert [load["load"] for load in output["loads"]] == ["50000fps", "100000fps", "120000fps"]
    assert [load["invalid"] for load in output["loads"]] == [0, 0, 1]


def test_a_search_has_its_bounds_and_state():
    output = campaign_summary(replace(made_up(), searches=(SEARCH, replace(SEARCH, repetition=2, unstable="losses"))))
    assert output["kind"] == "search"
    first, second = output["searches"]
    assert (first["verdict"], first["lower_fps"], first["upper_fps"], first["unstable"]) == (
        *("found", 99_600.0, 100_000.0),
        None,
    )
    assert first["upper_mbps"] == pytest.approx(67.2)
    assert second["unstable"] == "losses"


def test_a_selftest_has_its_checks_and_ceilings():
    checks = (
        SelftestCheck(name="drops", uut="known", passed=True),
        SelftestCheck(name="delay", passed=None, detail="no netem"),
    )
    record = SelftestRecord(
        passed=True,
        when_ns=0,
        topology="netns",
        generator="xdp",
        fingerprint="f",
        checks=checks,
        ceilings=(Ceiling(1, 64, 1e6),),
    )
    output = selftest_summary(record)
    assert (output["kind"], output["verdict"]) == ("selftest", "passed")
    assert [check["verdict"] for check in output["checks"]] == ["passed", "skipped"]
    assert output["ceilings"] == [{"sources": 1, "frame_size": 64, "fps": 1e6}]


def test_it_is_written_as_json_even_of_nothing(tmp_path):
    path = tmp_path / "summary.json"
    write_summary(campaign([], planned=3), path)
    assert json.loads(path.read_text())["trials"]["valid"] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
