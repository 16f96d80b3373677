import re
from dataclasses import replace
from pathlib import Path

import pytest

import netbench
from netbench.errors import UsageError
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS
from tests.unit.comparison_factory import stored
from tests.unit.interference_factory import small_campaign
from tests.unit.results_factory import changed

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Return results/demo: a campaign with neighbours, and one calibration trial of ten times the rate."""
    results = small_campaign()
    counted = next(
        result for result in results.trials if result.spec.uut == "kvm" and result.spec.scenario == "cpu-heavy"
    )
    (counts,) = counted.streams
    faster = replace(counted.guests[0], streams=(changed(counts, received_frames=10 * (counts.received.frames or 0)),))
    calibrating = replace(counted, spec=replace(counted.spec, finds_maximum=True), guests=(faster, *counted.guests[1:]))
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    return stored(tmp_path / "results/demo", replace(results, trials=(*results.trials, calibrating)))


def test_the_python_snippet_of_the_docs_runs(demo, capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", (DOCS / "get-started.md").read_text(encoding="utf-8"), re.S)
    exec(snippet, {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["kvm", "cpu-heavy", "64", "1000fps", "0.471072", "0.00095", "2"] in lines


def test_frames_have_the_columns_and_numbers_of_exports(demo):
    campaign = netbench.load(demo)
    assert list(campaign.trials.columns) == [column.name for column in STREAM_COLUMNS]
    assert list(campaign.groups.columns) == [column.name for column in GROUP_COLUMNS]
    assert str(campaign.trials.dtypes["received_frames"]) == "Int64"
    assert campaign.trials.delay_min_us.isna().all(), "an unknown value is NA"
    assert "lower_fps" in campaign.searches.columns
    assert campaign.searches.empty
    assert set(campaign.findings.columns) == {"topic", "text"}
    assert len(campaign.findings) > 0


def test_a_directory_without_results_is_refused(tmp_path):
    with pytest.raises(UsageError):
        netbench.load(tmp_path)
