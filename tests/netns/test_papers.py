"""The commands that repeat papers: each workload of the files runs in a container and has its published rows."""

import pytest

from netbench.report.model import ReportModel
from netbench.report.published import paper_of_profile
from netbench.report.tables import tables_of
from netbench.report.tables.published import NOT_MEASURED
from netbench.results.directory import ResultDirectory
from tests.commands import netbench, settings

pytestmark = pytest.mark.root

SHORT = settings(retries=3, tolerance="100%", repetitions=1, topology__uuts__container__root="host")
# What shortens each profile further: sockperf needs 4 s, and clients that think begin within the think time.
PAPERS = {
    "fisher2012-network": settings(duration="4s"),
    "sampath2013-network": settings(duration="1s", scenarios="[shared-idle]"),
    "che2010-network": settings(
        duration="1s", tool__netio__message_size="[1024, 32768]", tool__web__clients="[1, 8, 16]"
    ),
    "padala2007": settings(duration="2s", warm_up="1s", tool__think_time=1.0),
}
# A busy machine disturbs these tests; the tools must work there nevertheless.
OF_BUSY_MACHINES = {"tester-disturbed", "tester-limited", "tool-disagrees"}


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_is_repeated_by_one_command(results, name):
    done = netbench("run", name, name, "-o", results, "--uut", "container", *SHORT, *PAPERS[name])
    assert done.returncode in (0, 5), done.stderr + done.stdout
    stored = ResultDirectory(results).results()
    reasons = [reason for trial in stored.trials for reason in trial.reasons]
    assert [reason for reason in reasons if reason.kind.value not in OF_BUSY_MACHINES] == []
    paper = paper_of_profile(name)
    assert paper is not None
    for trial in stored.trials:
        (flow,) = trial.victim.flows
        assert flow.error == ""
        assert flow.to_server_bytes or flow.to_client_bytes or flow.completed
    measured = {trial.spec.serves.workload for trial in stored.trials if trial.spec.serves}
    for figure in paper.figures:
        assert any(figure.is_of(work) for work in measured), figure.title
    (table,) = tables_of("published", ReportModel.of(stored))
    compared = {
        row.block for row in table.rows if row.cells[2].text == "container" and row.cells[3].text != NOT_MEASURED
    }
    assert len(compared) == len([figure for figure in paper.figures if not figure.scenario])
    assert "Measured beside the paper" in (results / "report.html").read_text()
