import pytest

from netbench.model.campaign import CampaignResults
from netbench.model.counts import LossRuns, Spread
from netbench.model.scenario import Stress
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.results import rows as exported
from netbench.results.rows import GROUP_COLUMNS, STREAM_COLUMNS, Row
from tests.unit.points import loss
from tests.unit.results_factory import campaign, comparison, neighbour, spread, stream_counts, trial


def stream_rows(results: CampaignResults) -> list[Row]:
    return list(exported.stream_rows(results.trials))


def group_rows(results: CampaignResults) -> list[Row]:
    return list(exported.group_rows(results))


DOCUMENTED = [
    "uut",
    "scenario",
    "streams",
    "stream",
    "frame_size",
    "repetition",
    "intended_fps",
    "sent_frames",
    "unsent_frames",
    "received_frames",
    "lost_frames",
    "duplicate_frames",
    "reordered_frames",
    "capture_dropped_frames",
    "unexplained_frames",
    "loss_ratio",
    "duration_s",
    "offered_mbps",
    "throughput_mbps",
    "offered_l2_mbps",
    "throughput_l2_mbps",
    "verdict",
    "reasons",
]
ABOUT_NEIGHBOURS = [
    "guest",
    "trial_frame_size",
    "activity",
    "lifetime",
    "cpu_machine_s",
    "cpu_load_s",
    "observed_s",
    "neighbours_cpu",
]


def test_the_documented_columns_come_first_in_their_order() -> None:
    names = [column.name for column in STREAM_COLUMNS]
    assert names[: len(DOCUMENTED)] == DOCUMENTED
    about_neighbours = names.index("cpu_host_s") + 1
    assert names[about_neighbours : about_neighbours + len(ABOUT_NEIGHBOURS)] == ABOUT_NEIGHBOURS
    assert len(set(names)) == len(names)


def test_known_cells_are_of_the_type_of_their_column() -> None:
    results = comparison(sizes=(64,), sources=(1, 2))
    both: list[tuple[list[Row], dict[str, type]]] = [
        (stream_rows(results), {column.name: column.type for column in STREAM_COLUMNS}),
        (group_rows(results), {column.name: column.type for column in GROUP_COLUMNS}),
    ]
    for rows, types in both:
        for row in rows:
            wrong = {name for name, cell in row.items() if cell is not None and type(cell) is not types[name]}
            assert not wrong


def test_one_row_per_trial_and_stream_with_exact_counts() -> None:
    counts = (
        stream_counts("s1", sent=990, received=930, duplicate_frames=2, lost_at=(loss("tap", 60),)),
        stream_counts("s2", sent=1000, received=1000),
    )
    first, second = stream_rows(campaign([trial(*counts, frame_size=500, index=7, repetition=3)]))
    assert (first["stream"], second["stream"]) == ("s1", "s2")
    assert first["streams"] == second["streams"] == 2
    assert (first["sent_frames"], first["unsent_frames"], first["received_frames"]) == (990, 10, 930)
    assert (first["lost_frames"], first["loss_ratio"]) == (60, 60 / 990)
    assert (first["duplicate_frames"], first["lost_at"]) == (2, "tap=60")
    assert (first["trial"], first["repetition"], first["load"]) == (7, 3, "1000fps")
    assert (second["lost_frames"], second["lost_at"]) == (0, "")


def test_bandwidths_are_l1_unless_named_l2() -> None:
    (row,) = stream_rows(campaign([trial(stream_counts(sent=1000, received=500), frame_size=64)]))
    assert row["intended_mbps"] == row["offered_mbps"] == 1000 * 84 * 8 / 1e6
    assert row["throughput_mbps"] == 500 * 84 * 8 / 1e6
    assert row["offered_l2_mbps"] == 1000 * 64 * 8 / 1e6
    assert row["throughput_l2_mbps"] == 500 * 64 * 8 / 1e6


def test_frames_the_capture_dropped_are_not_lost() -> None:
    (row,) = stream_rows(campaign([trial(stream_counts(sent=1000, received=900, capture_dropped_frames=40))]))
    assert row["lost_frames"] == 60


def test_unknown_stays_unknown() -> None:
    counts = stream_counts(received=None, intended_fps=None, intended_frames=None, duplicate_frames=None)
    (row,) = stream_rows(campaign([trial(counts, load="max")]))
    unknown = {name for name, cell in row.items() if cell is None}
    assert unknown >= {"intended_fps", "intended_mbps", "unsent_frames", "received_frames", "lost_frames"}
    assert unknown >= {"loss_ratio", "throughput_mbps", "throughput_l2_mbps", "duplicate_frames"}
    assert row["sent_frames"] == 1000


def test_a_trial_that_broke_before_counting_still_has_its_rows() -> None:
    broken = trial(streams=("s1", "s2"), reasons=(Reason(ReasonKind.UUT_FAILED, "", "it died"),))
    rows = stream_rows(campaign([broken]))
    assert [row["stream"] for row in rows] == ["s1", "s2"]
    assert all(row["sent_frames"] is None and row["verdict"] == "invalid" for row in rows)


def test_reasons_go_to_their_stream_and_those_of_the_trial_to_all() -> None:
    reasons = (
        Reason(ReasonKind.UUT_FAILED, "", "it died"),
        Reason(ReasonKind.FOREIGN_FRAMES, "s2", "3 frames"),
        Reason(ReasonKind.FOREIGN_FRAMES, "s2", "and 4 more"),
    )
    first, second = stream_rows(campaign([trial(stream_counts("s1"), stream_counts("s2"), reasons=reasons)]))
    assert first["reasons"] == "uut-failed"
    assert second["reasons"] == "uut-failed;foreign-frames"


def test_a_group_row_has_means_half_widths_and_verdict_counts() -> None:
    trials = [trial(stream_counts(sent=1000, received=received), repetition=received) for received in (800, 900)]
    trials.append(trial(stream_counts(received=1), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),)))
    (row,) = group_rows(campaign(trials))
    assert (row["valid_trials"], row["suspicious_trials"], row["invalid_trials"]) == (2, 0, 1)
    assert row["throughput_fps"] == 850
    # t(0.975; 1) = 12.7062 times s / √2 = 50.
    assert isinstance(row["throughput_fps_ci95"], float)
    assert round(row["throughput_fps_ci95"], 2) == 635.31
    assert row["loss_ratio"] == 0.15000000000000002
    assert row["reasons"] == "link-down"


def test_a_group_without_valid_trials_has_no_means() -> None:
    bad = trial(stream_counts(), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),))
    (row,) = group_rows(campaign([bad]))
    assert row["offered_mbps"] is None
    assert row["throughput_mbps_ci95"] is None
    assert row["intended_fps"] == 1000


def test_delays_are_in_microseconds_and_cpu_times_in_every_row_of_their_trial() -> None:
    counts = (
        stream_counts("s1", delay=spread(1_500, 20_000, 1_000_001)),
        stream_counts("s2"),
    )
    first, second = stream_rows(campaign([trial(*counts, cpu_s={"guest": 0.5, "host": 0.75})]))
    names = ("delay_min_us", "delay_median_us", "delay_max_us", "cpu_guest_s", "cpu_host_s")
    assert [first[name] for name in names] == [1.5, 20.0, 1000.001, 0.5, 0.75]
    assert [second[name] for name in names] == [None, None, None, 0.5, 0.75]
    (unknown,) = stream_rows(campaign([trial(stream_counts())]))
    assert [unknown[name] for name in names] == [None] * 5


def test_a_group_row_has_the_mean_cpu_times() -> None:
    trials = [trial(stream_counts(), repetition=n, cpu_s={"host": seconds}) for n, seconds in ((1, 1.0), (2, 2.0))]
    (row,) = group_rows(campaign(trials))
    assert row["cpu_host_s"] == 1.5
    assert isinstance(row["cpu_host_s_ci95"], float)
    assert round(row["cpu_host_s_ci95"], 4) == 6.3531
    assert row["cpu_guest_s"] is None


def shared() -> TrialResult:
    """A victim with two streams beside a neighbour that forwards, one that computes, and one that is idle."""
    forwards = neighbour(
        stream_counts("s3", sent=2000, received=1500, intended_fps=2000.0, lost_at=(loss("ingress tap", 500),)),
        frame_size=128,
        cpu_s={"guest": 0.5, "host": 0.1 + 0.2},
    )
    stressed = neighbour(name="third", activity=Stress(1), cpu_s={"guest": 1.0, "host": 1.25, "load": 0.75})
    return trial(
        stream_counts("s1", received=900),
        stream_counts("s2"),
        frame_size=1500,
        load="10%",
        scenario="mixed",
        cpu_s={"guest": 0.25, "host": 0.375},
        machine_cpu_s=4.0,
        neighbours=(forwards, stressed, neighbour(name="fourth")),
        boot=3,
        steps_s={"send": 1.0, "drain": 0.5, "observe": 2.0},
        reasons=(
            Reason(ReasonKind.NEIGHBOUR_STOPPED_EARLY, "s3", "0.2 s before the victim"),
            Reason(ReasonKind.NOT_DRAINED, "", "counters still moved"),
        ),
    )


def test_streams_of_neighbours_follow_those_of_the_victim() -> None:
    first, second, third = stream_rows(campaign([shared()]))
    assert [(row["guest"], row["stream"]) for row in (first, second, third)] == [
        ("", "s1"),
        ("", "s2"),
        ("second", "s3"),
    ]
    assert [(row["frame_size"], row["trial_frame_size"]) for row in (first, second, third)] == [
        (1500, 1500),
        (1500, 1500),
        (128, 1500),
    ]
    assert {row["streams"] for row in (first, second, third)} == {2}
    assert (third["sent_frames"], third["received_frames"], third["lost_frames"]) == (2000, 1500, 500)
    assert third["lost_at"] == "ingress tap=500"
    # 128-byte frames cost 148 bytes on the wire.
    assert third["offered_mbps"] == 2000 * 148 * 8 / 1e6
    assert third["throughput_l2_mbps"] == 1500 * 128 * 8 / 1e6
    assert first["offered_mbps"] == 1000 * 1520 * 8 / 1e6


def test_rows_say_what_neighbours_did_and_at_which_load() -> None:
    first, second, third = stream_rows(campaign([shared()]))
    everybody = "second: forwards 128-byte frames at 1000fps; third: stress-ng --cpu 1; fourth: idle"
    assert first["activity"] == second["activity"] == everybody
    assert third["activity"] == "forwards 128-byte frames at 1000fps"
    assert [row["load"] for row in (first, second, third)] == ["10%", "10%", "2000fps"]
    assert {row["lifetime"] for row in (first, second, third)} == {3}
    (unknown,) = stream_rows(campaign([trial(stream_counts())]))
    assert (unknown["guest"], unknown["activity"], unknown["neighbours_cpu"]) == ("", "", "")
    assert unknown["lifetime"] is None
    beside = neighbour(stream_counts("s2", intended_fps=None, intended_frames=None))
    assert stream_rows(campaign([trial(stream_counts(), neighbours=(beside,))]))[1]["load"] == "max"


def test_a_row_has_the_cpu_times_of_its_guest_and_the_victims_those_of_all_neighbours() -> None:
    first, second, third = stream_rows(campaign([shared()]))
    names = ("cpu_guest_s", "cpu_host_s", "cpu_machine_s", "cpu_load_s", "observed_s")
    assert [first[name] for name in names] == [0.25, 0.375, 4.0, 0.75, 2.0]
    assert [second[name] for name in names] == [0.25, 0.375, 4.0, 0.75, 2.0]
    assert [third[name] for name in names] == [0.5, 0.1 + 0.2, 4.0, None, 2.0]
    assert first["neighbours_cpu"] == "second: guest=0.5 host=0.3; third: guest=1.0 host=1.25 load=0.75"
    assert third["neighbours_cpu"] == ""


def test_the_verdict_is_that_of_the_trial_and_reasons_go_to_the_stream_of_their_guest() -> None:
    first, second, third = stream_rows(campaign([shared()]))
    assert {row["verdict"] for row in (first, second, third)} == {"suspicious"}
    assert [row["reasons"] for row in (first, second, third)] == [
        "not-drained",
        "not-drained",
        "neighbour-stopped-early",
    ]


def test_what_was_under_watch_is_taken_from_the_steps_where_it_was_not_recorded() -> None:
    steps = ({"arm": 9.0, "send": 1.0, "drain": 0.5}, {"arm": 9.0}, {"send": 1.0, "observe": 1.75})
    rows = stream_rows(campaign([trial(stream_counts(), steps_s=one) for one in steps]))
    assert [row["observed_s"] for row in rows] == [1.5, None, 1.75]


def test_a_group_row_has_what_all_neighbours_did_and_cpu_in_percent() -> None:
    trials = [
        trial(
            stream_counts("s1"),
            repetition=number,
            cpu_s={"guest": 0.5, "host": 1.0, "machine": 2.0},
            neighbours=(
                neighbour(stream_counts("s2", sent=1000, received=received), name="a"),
                neighbour(stream_counts("s3", sent=3000, received=3000), name="b", cpu_s={"load": 0.5}),
            ),
            steps_s={"observe": 2.0},
        )
        for number, received in ((1, 600), (2, 800))
    ]
    (row,) = group_rows(campaign(trials))
    assert row["neighbour_offered_mbps"] == 4000 * 84 * 8 / 1e6
    assert row["neighbour_offered_mbps_ci95"] == 0
    assert row["neighbour_throughput_mbps"] == pytest.approx(3700 * 84 * 8 / 1e6)
    assert row["neighbour_loss_ratio"] == pytest.approx(0.075)
    assert row["neighbour_frame_size"] == 64
    assert row["throughput_fps"] == row["offered_fps"] == 1000
    names = ("cpu_guest", "cpu_host", "cpu_machine", "cpu_load")
    assert [row[f"{name}_percent"] for name in names] == [25, 50, 100, 25]
    assert [row[f"{name}_percent_ci95"] for name in names] == [0, 0, 0, 0]
    assert (row["cpu_machine_s"], row["cpu_load_s"]) == (2.0, 0.5)


def test_a_group_row_without_neighbours_leaves_their_columns_empty() -> None:
    (row,) = group_rows(campaign([trial(stream_counts())]))
    empty = [name for name in row if name.startswith(("neighbour_", "cpu_"))]
    assert len(empty) == 7 + 8 + 8
    assert {row[name] for name in empty} == {None}
    assert [column.name for column in GROUP_COLUMNS[-len(empty) + 4 :]] == empty[4:]


def test_variation_order_and_why_there_is_no_delay_are_in_the_last_columns() -> None:
    lossy = stream_counts(
        "s1",
        received=400,
        reordered_frames=4,
        delay=Spread(1_000, 2_500.5, 2_000, 3_000, 4_000, 5_000, 9_000),
        ipdv=Spread(0, 500.0, 400, 700, 800, 900, 1_000),
        loss_run_lengths=(LossRuns(1, 20), LossRuns(4, 3)),
        reordering_extent_median_frames=2,
        reordering_extent_mean_frames=2.5,
        reordering_extent_max_frames=7,
    )
    refused = stream_counts("s2", delay_refused="no common clock")
    first, second = stream_rows(campaign([trial(lossy, refused)]))
    true = {
        "delay_mean_us": 2.5005,
        "delay_p90_us": 3.0,
        "delay_p99_us": 4.0,
        "delay_p999_us": 5.0,
        "pdv_median_us": 1.0,
        "pdv_p99_us": 3.0,
        "pdv_p999_us": 4.0,
        "pdv_max_us": 8.0,
        "ipdv_median_us": 0.4,
        "ipdv_mean_us": 0.5,
        "ipdv_p99_us": 0.8,
        "ipdv_p999_us": 0.9,
        "ipdv_max_us": 1.0,
        "delay_refused": "",
        "loss_run_lengths": "1=20;4=3",
        "reordered_ratio": 0.01,
        "reordering_extent_median_frames": 2,
        "reordering_extent_mean_frames": 2.5,
        "reordering_extent_max_frames": 7,
    }
    assert dict(list(first.items())[-len(true) :]) == true
    unknown = {"delay_refused": "no common clock", "loss_run_lengths": "", "reordered_ratio": 0.0}
    assert {name: second[name] for name in true} == dict.fromkeys(true) | unknown
