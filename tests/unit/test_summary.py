"""The table at the end of a run."""

from dataclasses import replace

from netbench.cli.summary import findings_text
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.findings import findings
from tests.unit.interference_factory import paper_campaign, small_campaign
from tests.unit.points import loss
from tests.unit.report_page import printed
from tests.unit.results_factory import campaign, guests, stream_counts, trial

SUSPICIOUS = (Reason(ReasonKind.FOREIGN_FRAMES, "s1", "3 frames of others"),)
INVALID = (Reason(ReasonKind.LINK_DOWN, "", "egress NIC was down"),)


def test_it_shows_loads_loss_and_verdicts() -> None:
    trials = [
        trial(stream_counts(sent=100_000, received=93_000, intended_fps=100_000.0), load="100000fps", repetition=1),
        trial(stream_counts(), load="100000fps", repetition=2, reasons=SUSPICIOUS),
        trial(stream_counts(), load="100000fps", repetition=3, reasons=INVALID),
    ]
    lines = printed(campaign(trials)).splitlines()
    (first,) = [line.split() for line in lines if line.strip().startswith("raw")]
    assert first == ["raw", "64", "67.2", "67.2", "62.5", "93.0", "7.000", "1", "valid"]
    assert any("1 suspicious" in line for line in lines)
    assert any("link-down" in line for line in lines)


def test_it_has_no_words_about_what_there_is_none_of() -> None:
    text = printed(campaign([trial(stream_counts())]))
    assert [words for words in ("discarded", "emulated", "Sources", "most lost") if words in text] == []


def test_it_reports_what_to_do_about_loads_that_the_sources_did_not_reach() -> None:
    short = (Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "offered 3 of 4 frames/s"),)
    text = " ".join(printed(campaign([trial(stream_counts(), reasons=short)])).split())
    assert "invalid for offered-out-of-tolerance: 1 trial; the sources did not reach that load here" in text
    assert "or `max`, which is as much as they can send" in text


def test_it_shows_attempts_thrown_away() -> None:
    one = replace(trial(stream_counts()), attempt=3, thrown_away=(INVALID, INVALID))
    text = printed(campaign([one, trial(stream_counts(), repetition=2)]))
    assert "2 retries" in text
    assert "discarded and repeated for link-down: 2 attempts" in text


def test_it_of_a_group_without_valid_trials_has_no_numbers() -> None:
    text = printed(campaign([trial(stream_counts(), reasons=INVALID)]))
    (line,) = [line.split() for line in text.splitlines() if line.strip().startswith("raw")]
    assert line[:7] == ["raw", "64", "0.672", "–", "–", "–", "–"]


def test_it_marks_emulated_uuts_and_reports_what_that_means() -> None:
    text = printed(guests(), width=100)
    assert text.count("virtio (emulated)") == 3, "the best load of each size"
    assert "raw (emulated)" not in text
    assert "(emulated): the CPU is emulated; these numbers describe the emulator, not the VMM" in text


def test_it_takes_names_as_text_and_reports_sources_apart() -> None:
    trials = [
        trial(stream_counts("s1"), uut="[red]kvm"),
        trial(stream_counts("s1"), stream_counts("s2"), uut="[red]kvm"),
    ]
    text = printed(campaign(trials, uuts=("[red]kvm",)), width=100)
    assert text.count("[red]kvm") == 2
    assert "Sources" in text
    assert "Sources" not in printed(campaign(trials[:1]))


def test_it_has_columns_of_neighbours_where_one_forwards() -> None:
    text = printed(small_campaign())
    rows = [line.split() for line in text.splitlines()]
    assert "and out" in text
    assert "kfps" not in text
    assert ["network-50", "64", "0.672", "0.303", "54.900", "33.6", "27.6", "2", "valid"] in rows
    assert ["cpu-heavy", "64", "0.672", "0.471", "29.900", "–", "–", "2", "valid"] in rows
    assert ["kvm"] in rows
    without = [result for result in small_campaign().trials if result.spec.scenario != "network-50"]
    assert "and out" not in printed(campaign(without, uuts=("raw", "kvm")))


def test_it_fits_a_narrow_console_and_has_the_best_load_of_each_size_where_there_are_many() -> None:
    text = printed(paper_campaign(mishaps=False))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    table = text.partition("of each frame size only the load with the highest throughput")[0]
    rows = [line.split() for line in table.splitlines() if line.split()[:1] == ["network-95"]]
    assert [row[1] for row in rows] == ["64", "500", "1,000", "1,500"] * 4


def test_the_best_load_is_one_that_counts_as_a_maximum() -> None:
    """The highest of 13 loads was valid in one of three trials only, and does not count."""
    trials = []
    for uut in ("raw", "kvm"):
        for thousands in range(1, 14):
            sent = stream_counts(sent=1000 * thousands, received=1000 * thousands, intended_fps=1000.0 * thousands)
            for repetition in (1, 2, 3):
                reasons = INVALID if thousands == 13 and repetition > 1 else ()
                one = trial(sent, uut=uut, load=f"{thousands}kfps", repetition=repetition, reasons=reasons)
                trials.append(one)
    rows = [line.split() for line in printed(campaign(trials, uuts=("raw", "kvm"))).splitlines()]
    assert [row[2] for row in rows if row[:1] in (["raw"], ["kvm"])] == ["8.1", "8.1"], "Mbit/s that 12,000/s are"


def test_numbers_are_whole_beside_names_that_do_not_fit() -> None:
    long = "a-really-long-name-of-a-unit-under-test"
    results = campaign([trial(stream_counts(), uut=name) for name in (long, "raw")], uuts=(long, "raw"))
    narrow, wide = printed(results, 60), printed(results, 10_000)
    assert [text.count("0.672") for text in (narrow, wide)] == [6, 6]
    assert long in wide


def test_it_names_where_most_frames_of_a_uut_were_lost() -> None:
    lost_at = (loss("ingress tap (tx_dropped)", 300), loss("guest IP layer (InDiscards)", 100))
    trials = [
        trial(stream_counts(received=600, lost_at=lost_at), uut="kvm"),
        trial(stream_counts(received=100), uut="kvm", repetition=2, reasons=SUSPICIOUS),
    ]
    text = " ".join(printed(campaign(trials, uuts=("kvm",))).split())
    assert "most lost of kvm: ingress tap (tx_dropped), 75.0 % of 400" in text


def test_the_terminal_begins_with_the_findings_of_the_report() -> None:
    results = small_campaign()
    lines = findings_text(results).plain.splitlines()
    assert [line.removeprefix("• ") for line in lines] == list(map(str, findings(results)))
    assert all(line.startswith("• ") for line in lines)
