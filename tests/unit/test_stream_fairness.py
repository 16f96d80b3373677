"""Fairness between the streams of one guest: index, difference of means, report and export."""

import pytest

from netbench.report.model import ReportModel
from netbench.report.tables import tables_of
from netbench.results.export_rows import group_rows
from netbench.statistics.groups import group_trials
from netbench.statistics.stream_fairness import stream_fairness
from tests.unit.results_factory import campaign, stream_counts, trial

# Frames that each of three streams received in each of the repetitions, of 1,000 in a second.
EQUAL = [(500, 500, 500)] * 4
UNEQUAL = [(900, 600, 300), (910, 590, 310), (890, 610, 290), (905, 595, 305)]
NOISY = [(900, 600, 300), (300, 900, 600), (600, 300, 900), (610, 590, 600)]
OF_CLOCKS = [(100_000, 100_001, 100_002)] * 4  # 0.002 % apart in every trial

# The first two are 0.005 % apart in every trial; the third scatters by 1 %, and its mean is 0.5 % away.
ONE_NOISY = [(100_000, 100_005, third) for third in (99_000, 101_800, 100_100, 101_200)]


def shared(repetitions, *, sources=3, unknown=False):
    trials = [
        trial(
            *(
                stream_counts(f"s{place}", sent=max(1000, received), received=None if unknown else received)
                for place, received in enumerate(of_trial[:sources], 1)
            ),
            repetition=number,
            index=number,
        )
        for number, of_trial in enumerate(repetitions, 1)
    ]
    return campaign(trials)


@pytest.mark.parametrize(
    ("repetitions", "index", "differ"),
    [
        (EQUAL, 1.0, False),
        (UNEQUAL, 0.857, True),  # (1800)² ÷ (3 · 1,260,000) of the first
        (NOISY, 0.893, False),
        (OF_CLOCKS, 1.0, False),
        (UNEQUAL[:2], 0.859, None),
        (ONE_NOISY, 1.0, False),
    ],
    ids=["equal", "unequal", "noisy", "differences of clocks", "two trials", "clocks beside a noisy stream"],
)
def test_index_and_difference(repetitions, index, differ):
    (fairness,) = stream_fairness(group_trials(shared(repetitions)))
    assert fairness.index.mean == pytest.approx(index, abs=0.002)
    assert fairness.differ is differ
    first = [of_trial[0] for of_trial in repetitions]
    mbps = sum(first) / len(first) * 84 * 8 / 1e6  # frames of 64 bytes, and 20 bytes on the wire
    assert fairness.throughput_mbps["s1"].mean == pytest.approx(mbps)


@pytest.mark.parametrize(
    "results",
    [shared(UNEQUAL, sources=1), shared(UNEQUAL, unknown=True), shared([(0, 0, 0)] * 3)],
    ids=["one stream", "unknown", "nothing received"],
)
def test_without_several_known_streams_there_is_none(results):
    assert stream_fairness(group_trials(results)) == ()
    assert tables_of("stream-fairness", ReportModel.of(results)) == []
    assert {(row["stream_fairness"], row["streams_differ_p"]) for row in group_rows(results)} == {(None, None)}


def test_report_and_export_show_it():
    results = shared(UNEQUAL)
    (table,) = tables_of("stream-fairness", ReportModel.of(results))
    (row,) = table.rows
    texts = dict(zip((column.title for column in table.columns), (cell.text for cell in row.cells), strict=True))
    assert (texts["Fairness index"], texts["Streams differ"], row.css) == ("0.857", "yes", "changed")
    assert texts["Throughput of each stream, Mbit/s"].startswith("s1: 0.6")
    (exported,) = group_rows(results)
    assert exported["stream_fairness"] == pytest.approx(0.857, abs=0.001)
    p = exported["streams_differ_p"]
    assert isinstance(p, float)
    assert p < 0.01
