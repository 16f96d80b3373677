from netbench.model.counts import HopLoss
from netbench.model.verdict import Reason, ReasonKind
from netbench.results.rows import GROUP_COLUMNS, STREAM_COLUMNS, Row, group_rows, stream_rows
from tests.unit.results_factory import campaign, comparison, stream_counts, trial

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


def test_the_documented_columns_come_first_in_their_order() -> None:
    names = [column.name for column in STREAM_COLUMNS]
    assert names[: len(DOCUMENTED)] == DOCUMENTED
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
        stream_counts("s1", sent=990, received=930, duplicate_frames=2, lost_at=(HopLoss("tap", 60),)),
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
        stream_counts("s1", delay_min_ns=1_500, delay_median_ns=20_000, delay_max_ns=1_000_001),
        stream_counts("s2"),
    )
    first, second = stream_rows(campaign([trial(*counts, cpu_s={"guest": 0.5, "host": 0.75})]))
    names = ("delay_min_us", "delay_median_us", "delay_max_us", "cpu_guest_s", "cpu_host_s")
    assert [first[name] for name in names] == [1.5, 20.0, 1000.001, 0.5, 0.75]
    assert [second[name] for name in names] == [None, None, None, 0.5, 0.75]
    assert tuple(column.name for column in STREAM_COLUMNS[-5:]) == names
    (unknown,) = stream_rows(campaign([trial(stream_counts())]))
    assert [unknown[name] for name in names] == [None] * 5


def test_a_group_row_has_the_mean_cpu_times() -> None:
    trials = [trial(stream_counts(), repetition=n, cpu_s={"host": seconds}) for n, seconds in ((1, 1.0), (2, 2.0))]
    (row,) = group_rows(campaign(trials))
    assert row["cpu_host_s"] == 1.5
    assert isinstance(row["cpu_host_s_ci95"], float)
    assert round(row["cpu_host_s_ci95"], 4) == 6.3531
    assert row["cpu_guest_s"] is None
