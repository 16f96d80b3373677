"""Memory of reports and exports: almost nothing for a trial that they have read, since campaigns grow large."""

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import closing

import pytest

from benchmarks import results as made_up
from netbench.model.campaign import CampaignResults
from netbench.report import page
from netbench.results.directory import ResultDirectory
from netbench.results.export_files import export
from netbench.results.store import Store

# All have the same few cells, with more repetitions, so that the output about cells is as long.
FEW, MANY = 400, 1200
UUTS, CELLS = 4, 16
# Bytes per trial, with delays, and with one stream or, in every second trial, two.
MOST_IN_A_REPORT = 8000
# Bytes per trial: its key and its cell, which outliers depend on.
MOST_IN_AN_EXPORT = 700


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ResultDirectory]:
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "FRAME_SIZES", (64,))
        patch.setattr(made_up, "LOADS", ("14000fps", "20000fps"))
        for count in (FEW, MANY):
            path = tmp_path_factory.mktemp("campaigns") / str(count)
            made_up.make_campaign(path, count)
            made[count] = ResultDirectory(path)
    return made


def peak(work: Callable[[CampaignResults], object], directory: ResultDirectory) -> int:
    """Return the peak memory in bytes that `work` adds while it reads results."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work(directory.results(counters=False))
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def bytes_a_trial(work: Callable[[CampaignResults], object], campaigns: dict[int, ResultDirectory]) -> float:
    work(campaigns[FEW].results(counters=False))  # loads what is loaded or cached only once
    few, many = (peak(work, campaigns[count]) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def test_a_report_holds_little_of_each_trial(campaigns, tmp_path):
    assert (
        bytes_a_trial(lambda results: page.write_report(results, tmp_path / "report.html"), campaigns)
        < MOST_IN_A_REPORT
    )


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_writes_trials_as_it_reads_them(campaigns, tmp_path, form):
    held = bytes_a_trial(lambda results: export(results, form, False, tmp_path / "trials"), campaigns)
    assert held < MOST_IN_AN_EXPORT


def test_what_many_trials_have_in_common_is_in_memory_once(campaigns):
    with closing(Store.read(campaigns[FEW].store)) as store:
        guests = {id(trial.spec.guests): trial.spec.guests for trial in list(store.trials(counters=False))}
    assert len(guests) == len(set(guests.values())) == CELLS // UUTS
