"""The rows of every export: each column in its place, with its unit and the type of its cells."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from netbench.model.campaign import Boot
from netbench.model.distributions import ClockOffset, DelayClass, LossRuns, SoftwareDelay, Spread
from netbench.model.received import MeasuringWindow
from netbench.model.scenario import Stress
from netbench.model.tester import Disturbance, Identity, StreamEnds, ThreadDelay
from netbench.model.verdict import Reason, ReasonKind
from netbench.results.export_columns import ExportColumn, Row
from netbench.results.export_rows import group_rows, stream_rows
from netbench.results.group_columns import GROUP_COLUMNS
from netbench.results.stream_columns import STREAM_COLUMNS
from tests.unit.points import loss
from tests.unit.results_factory import campaign, comparison, neighbour, stream_counts, trial

# A victim with two streams of 1,500-byte frames beside neighbours that forward 128-byte ones, compute, and do nothing.
LOSSY = stream_counts(
    "s1",
    sent=990,
    received=400,
    duplicate_frames=2,
    reordered_frames=4,
    foreign_frames=5,
    capture_dropped_frames=40,
    generator_errors=6,
    max_burst_frames=7,
    loss_runs=23,
    longest_loss_run_frames=9,
    last_missing_frame=988,
    lost_at=(loss("tap", 500), loss("guest egress queue (dropped)", 50)),
    delay=Spread(1_000, 2_500.5, 2_000, 3_000, 4_000, 5_000, 9_000),
    ipdv=Spread(0, 500.0, 400, 700, 800, 900, 1_000),
    loss_run_lengths=(LossRuns(1, 20), LossRuns(4, 3)),
    reordering_extent_median_frames=2,
    reordering_extent_mean_frames=2.5,
    reordering_extent_max_frames=7,
    window=MeasuringWindow(450, 0.75, 12),
    late_frames=11,
    control_frames=12,
    clock_offset=ClockOffset(-1_000, 2_500),
    software_delay=SoftwareDelay(
        "TRex v3.08, in software", 100, 3.0, 14.0, 31.0, 2.0, (DelayClass(0, 10, 60), DelayClass(30, 40, 40))
    ),
)
ENDS = StreamEnds(Identity("pktgen", "Linux 6.1", {"burst": "1"}, 1, (0,)), Identity("tcpdump", cpus=()))
_MEASURED = trial(
    LOSSY,
    stream_counts("s2", delay_refused="no common clock"),
    frame_size=1500,
    load="10%",
    scenario="mixed",
    repetition=3,
    index=7,
    cpu_s={"guest": 0.25, "host": 0.375},
    machine_cpu_s=4.0,
    neighbours=(
        neighbour(
            stream_counts("s3", sent=2000, received=1500, intended_fps=2000.0, lost_at=(loss("ingress tap", 500),)),
            frame_size=128,
            cpu_s={"guest": 0.5, "host": 0.1 + 0.2},
        ),
        neighbour(name="third", activity=Stress(1), cpu_s={"guest": 1.0, "host": 1.25, "load": 0.75}),
        neighbour(name="fourth"),
    ),
    boot=3,
    steps_s={"send": 1.0, "drain": 0.5, "observe": 2.0},
    reasons=(
        Reason(ReasonKind.NEIGHBOUR_STOPPED_EARLY, "s3", "0.2 s before the victim"),
        Reason(ReasonKind.NOT_DRAINED, "", "counters still moved"),
        Reason(ReasonKind.FOREIGN_FRAMES, "s1", "3 frames"),
        Reason(ReasonKind.FOREIGN_FRAMES, "s1", "and 4 more"),
    ),
)
DOWN, UNREAD = Reason(ReasonKind.LINK_DOWN, "", "down"), Reason(ReasonKind.CAPTURE_FAILED, "s1", "no capture")
THROWN_AWAY = ((DOWN,), (UNREAD, DOWN))
DISTURBANCE = Disturbance(
    window_s=1.5,
    threads=(
        ThreadDelay("source", "xdp", wait_s=0.25, stalled_s=0.5, stream="s1"),
        ThreadDelay("ingress", "napi/in1-7", wait_s=0.125, stalled_s=0.0625, stream="s1"),
        ThreadDelay("sink", "tcpdump", wait_s=0.75, stream="s1"),
        ThreadDelay("source", "xdp", stream="s2"),
    ),
    steal_s=0.03,
    throttled_s=0.0,
)
SHARED = replace(
    _MEASURED,
    machine_softirq_s=0.75,
    ends={"s1": ENDS},
    attempt=3,
    thrown_away=THROWN_AWAY,
    disturbance=DISTURBANCE,
)
# On the wire (L1) a frame costs 20 bytes more than its size.
OF_FLOWS = """
    workload tool flow_duration_s to_server_bytes to_client_bytes run_to_server_bytes run_to_client_bytes
    intended_operations started_operations completed_operations completed_in_time_operations failed_operations errors
    retransmissions
    lost_datagrams to_server_mbps to_client_mbps completed_per_s error_ratio response_p50_ms response_p95_ms
    response_p99_ms response_p999_ms service_p50_ms service_p95_ms service_p99_ms service_p999_ms rtt_p50_ms
    rtt_p95_ms rtt_p99_ms rtt_p999_ms connect_p50_ms connect_p95_ms connect_p99_ms connect_p999_ms response_times
    response_min_ms response_mean_ms response_max_ms service_times service_min_ms service_mean_ms service_max_ms
    rtt_times rtt_min_ms rtt_mean_ms rtt_max_ms connect_times connect_min_ms connect_mean_ms connect_max_ms
    client_late_p99_ms client_cpu_share client_tap_frames client_tap_dropped_frames client_tap_to_server_bytes
    client_tap_to_client_bytes client_tap_to_server_segments client_tap_to_client_segments
    client_tap_retransmissions client_tap_uncaptured_bytes client_tap_connections guest_tap_frames
    guest_tap_dropped_frames guest_tap_to_server_bytes guest_tap_to_client_bytes guest_tap_to_server_segments
    guest_tap_to_client_segments guest_tap_retransmissions guest_tap_uncaptured_bytes guest_tap_connections
    wire_exchange_p50_ms wire_exchange_p99_ms wire_handshake_p50_ms wire_handshake_p99_ms tool_error
    operation_cpu_ms socket_drops
"""
FIRST = {
    "uut": "raw",
    "scenario": "mixed",
    "streams": 2,
    "stream": "s1",
    "frame_size": 1500,
    "repetition": 3,
    "intended_fps": 1000.0,
    "sent_frames": 990,
    "unsent_frames": 10,
    "received_frames": 400,
    "lost_frames": 550,  # capture drops are not lost frames
    "duplicate_frames": 2,
    "reordered_frames": 4,
    "capture_dropped_frames": 40,
    "unexplained_frames": 0,
    "loss_ratio": 550 / 990,
    "duration_s": 1.0,
    "offered_mbps": 990 * 1520 * 8 / 1e6,
    "throughput_mbps": 600 * 1520 * 8 / 1e6,
    "offered_l2_mbps": 990 * 1500 * 8 / 1e6,
    "throughput_l2_mbps": 600 * 1500 * 8 / 1e6,
    "verdict": "suspicious",
    "reasons": "not-drained;foreign-frames",
    "trial": 7,
    "attempt": 3,
    "load": "10%",
    "started_ns": 1_741_079_700_000_000_000,
    "intended_mbps": 1000 * 1520 * 8 / 1e6,
    "offered_fps": 990.0,
    "throughput_fps": 600.0,
    "foreign_frames": 5,
    "loss_runs": 23,
    "longest_loss_run_frames": 9,
    "last_missing_frame": 988,
    "generator_errors": 6,
    "max_burst_frames": 7,
    "max_lateness_s": 0.0001,
    "lost_at": "tap=500;guest egress queue (dropped)=50",
    "delay_min_us": 1.0,
    "delay_median_us": 2.0,
    "delay_max_us": 9.0,
    "cpu_guest_s": 0.25,
    "cpu_host_s": 0.375,
    "guest": "",
    "trial_frame_size": 1500,
    "activity": "second: forwards 128-byte frames at 1000fps; third: stress-ng --cpu 1; fourth: idle",
    "lifetime": 3,
    "cpu_machine_s": 4.0,
    "cpu_load_s": 0.75,
    "observed_s": 2.0,
    "neighbours_cpu": "second: guest=0.5 host=0.3; third: guest=1.0 host=1.25 load=0.75",
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
    "window_s": 0.75,
    "window_frames": 450,
    "buffered_frames": 12,
    "source": "pktgen",
    "source_details": "Linux 6.1; burst=1; 1 thread; CPU 0",
    "sink": "tcpdump",
    "sink_details": "any CPU",
    "order_refused": "",
    "late_frames": 11,
    "control_frames": 12,
    "thrown_away": "1=link-down;2=capture-failed+link-down",
    "clock_bound_us": 2.5,
    "saturated": "no",
    "link_held_s": None,
    "source_away_s": None,
    "virtualisation": None,
    "cpu_emulated": None,
    "start_s": None,
    "memory_mib": None,
    "cpu_softirq_s": 0.75,
    "outlier": None,
    "warm_up_trials": 0,
    "warm_up_trial": None,
    "finds_maximum": "no",
    "reverse_of": "",
    "frame_mix": None,
    "frame_mix_genome": None,
    "frame_size_mean": 1500.0,
    "sent_frames_by_size": None,
    "received_frames_by_size": None,
    "lost_frames_by_size": None,
    "window_frames_by_size": None,
    "trial_frame_mix": None,
    "start_skew_us": 0.0,
    "start_skew_bound_us": 0.0,
    "software_delay_by": "TRex v3.08, in software",
    "software_delay_frames": 100,
    "software_delay_min_us": 3.0,
    "software_delay_mean_us": 14.0,
    "software_delay_max_us": 31.0,
    "software_delay_jitter_us": 2.0,
    "software_delay_classes": "0-10=60;30-40=40",
    "source_wait_s": 0.25,
    "ingress_wait_s": 0.125,
    "uut_wait_s": None,
    "sink_wait_s": 0.75,
    "stalled_s": 0.5625,
    "steal_s": 0.03,
    "cpu_pressure_s": None,
    "throttled_s": 0.0,
    "sending_s": 1.5,
    "source_ceiling_fps": None,
    "source_ceiling_doubt": None,
    "packet": "",
    "vlan": None,
    "flows": 1,
    "changed_frames": None,
    "reordered_in_flows_frames": None,
    "lossy_flows": None,
    "trial_packet": "",
    **dict.fromkeys(OF_FLOWS.split()),
}
UNDISTURBED: Row = dict.fromkeys([*FIRST][[*FIRST].index("source_wait_s") : [*FIRST].index("packet")])
PLAIN: Row = dict.fromkeys(("vlan", "changed_frames", "reordered_in_flows_frames", "lossy_flows"))
NO_ENDS: Row = dict.fromkeys(("source", "source_details", "sink", "sink_details"))
NO_MIX: Row = dict.fromkeys(name for name in FIRST if "_mix" in name or name.endswith("_by_size"))
NO_TIMES: Row = dict.fromkeys(
    name
    for name in FIRST
    if (name.endswith("_us") and "skew" not in name) or "_extent_" in name or name.startswith("software_delay")
)
NO_WINDOW: Row = dict.fromkeys(("window_s", "window_frames", "buffered_frames"))
# The differences in the other rows.
SECOND = {
    **NO_TIMES,
    **NO_WINDOW,
    **NO_ENDS,
    "stream": "s2",
    "lost_frames": 0,
    "loss_ratio": 0.0,
    "reasons": "not-drained",
    "lost_at": "",
    "delay_refused": "no common clock",
    "loss_run_lengths": "",
    "reordered_ratio": 0.0,
    "source_wait_s": None,
    "stalled_s": None,
    "steal_s": 0.03,
}
OF_NEIGHBOUR = {
    "stream": "s3",
    "frame_size": 128,
    "frame_size_mean": 128.0,
    "intended_fps": 2000.0,
    "sent_frames": 2000,
    "received_frames": 1500,
    "lost_frames": 500,
    "loss_ratio": 0.25,
    "offered_mbps": 2000 * 148 * 8 / 1e6,
    "throughput_mbps": 1500 * 148 * 8 / 1e6,
    "offered_l2_mbps": 2000 * 128 * 8 / 1e6,
    "throughput_l2_mbps": 1500 * 128 * 8 / 1e6,
    "reasons": "neighbour-stopped-early",
    "load": "2000fps",
    "intended_mbps": 2000 * 148 * 8 / 1e6,
    "lost_at": "ingress tap=500",
    "cpu_guest_s": 0.5,
    "cpu_host_s": 0.1 + 0.2,
    "guest": "second",
    "activity": "forwards 128-byte frames at 1000fps",
    "cpu_load_s": None,
    "neighbours_cpu": "",
}
OF_THE_TRIAL = """
    uut scenario streams repetition verdict trial attempt started_ns trial_frame_size lifetime cpu_machine_s observed_s
    thrown_away
"""


def test_a_row_for_each_stream_of_the_victim_and_then_of_its_neighbours() -> None:
    rows = list(stream_rows([SHARED]))
    assert [list(row) for row in rows] == [list(FIRST)] * 3, "columns never move"
    first, second, third = rows
    assert first == FIRST
    for row, differs in ((second, SECOND), (third, OF_NEIGHBOUR)):
        expected = {name: FIRST[name] for name in OF_THE_TRIAL.split()} | differs
        assert {name: row[name] for name in expected} == expected


def test_known_cells_are_of_the_type_of_their_column() -> None:
    results = comparison(sizes=(64,), sources=(1, 2))
    both: list[tuple[list[Row], Sequence[ExportColumn[Any]]]] = [
        ([*stream_rows(results.trials), *stream_rows([SHARED])], STREAM_COLUMNS),
        (list(group_rows(results)), GROUP_COLUMNS),
    ]
    for rows, columns in both:
        for row in rows:
            types = {column.name: column.type for column in columns}
            assert not {name for name, cell in row.items() if cell is not None and type(cell) is not types[name]}


def test_unknown_stays_unknown() -> None:
    counts = stream_counts(received=None, intended_fps=None, intended_frames=None, duplicate_frames=None)
    (row,) = stream_rows([trial(counts, load="max")])
    of_arrivals = {"received_frames", "lost_frames", "unexplained_frames", "duplicate_frames", "loss_ratio"}
    of_arrivals |= {"throughput_mbps", "throughput_l2_mbps", "throughput_fps", "loss_runs", "longest_loss_run_frames"}
    of_arrivals |= {"last_missing_frame"}
    of_machine = {"cpu_guest_s", "cpu_host_s", "cpu_machine_s", "cpu_softirq_s", "cpu_load_s", "lifetime"}
    intended = {"intended_fps", "intended_mbps", "unsent_frames", "link_held_s", "source_away_s"}
    of_the_uut = {"virtualisation", "cpu_emulated", "start_s", "memory_mib"}
    unknown = {name for name, cell in row.items() if cell is None}
    of_machine |= {*of_the_uut, *NO_MIX, *UNDISTURBED, *PLAIN, *OF_FLOWS.split(), "outlier", "warm_up_trial"}
    assert unknown == {*of_arrivals, *of_machine, *intended, *NO_TIMES, *NO_WINDOW, *NO_ENDS, "reordered_ratio"}
    assert (row["guest"], row["activity"], row["neighbours_cpu"]) == ("", "", "")


def test_a_neighbour_without_a_rate_to_keep_has_the_greatest_load() -> None:
    beside = neighbour(stream_counts("s2", intended_fps=None, intended_frames=None))
    assert [row["load"] for row in stream_rows([trial(stream_counts(), neighbours=(beside,))])] == ["1000fps", "max"]


def test_a_trial_that_broke_before_counting_still_has_its_rows() -> None:
    broken = trial(streams=("s1", "s2"), reasons=(Reason(ReasonKind.UUT_FAILED, "", "it died"),))
    rows = list(stream_rows([broken]))
    assert [row["stream"] for row in rows] == ["s1", "s2"]
    assert all(row["sent_frames"] is None and row["verdict"] == "invalid" for row in rows)


def test_what_was_under_watch_is_taken_from_the_steps_where_it_was_not_recorded() -> None:
    steps = ({"arm": 9.0, "send": 1.0, "drain": 0.5}, {"arm": 9.0}, {"send": 1.0, "observe": 1.75})
    rows = stream_rows([trial(stream_counts(), steps_s=step_times) for step_times in steps])
    assert [row["observed_s"] for row in rows] == [1.5, None, 1.75]


def test_a_group_row_has_means_half_widths_and_verdict_counts() -> None:
    trials = [
        trial(stream_counts(received=received), repetition=received, cpu_s={"host": received / 100})
        for received in (800, 900)
    ]
    trials.append(trial(stream_counts(received=1), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),)))
    (row,) = group_rows(campaign(trials))
    assert (row["valid_trials"], row["suspicious_trials"], row["invalid_trials"]) == (2, 0, 1)
    assert (row["throughput_fps"], row["cpu_host_s"], row["reasons"]) == (850, 8.5, "link-down")
    assert (row["trials_valid_at_once"], row["thrown_away_attempts"], row["counts_as_maximum"]) == (2, 0, "yes")
    assert row["limited_by"] == "the UUT", "it lost frames"
    # t(0.975; 1) = 12.7062 times s / √2 = 50.
    assert row["throughput_fps_ci95"] == pytest.approx(635.31, abs=0.005)
    assert row["cpu_host_s_ci95"] == pytest.approx(6.3531, abs=0.00005)
    assert row["loss_ratio"] == pytest.approx(0.15)
    assert row["cpu_guest_s"] is None


def test_a_group_without_valid_trials_has_no_means() -> None:
    bad = trial(stream_counts(), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),))
    (row,) = group_rows(campaign([replace(bad, attempt=2, thrown_away=(bad.reasons,))]))
    assert (row["trials_valid_at_once"], row["thrown_away_attempts"], row["counts_as_maximum"]) == (0, 1, "no")
    assert row["offered_mbps"] is None
    assert row["throughput_mbps_ci95"] is None
    assert row["intended_fps"] == 1000


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
    # None unsent of 4,000 intended, and none lost of 2,000 sent to the UUT itself: −ln 0.05 = 2.9957 may have been.
    assert row["neighbour_offered_mbps_ci95"] == pytest.approx(2.9957 / 4000 * row["neighbour_offered_mbps"], rel=1e-4)
    assert row["loss_ratio"] == 0
    assert row["loss_ratio_ci95"] == pytest.approx(2.9957 / 2000, rel=1e-4)
    assert row["throughput_fps_ci95"] == pytest.approx(2.9957 / 2, rel=1e-4)
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
    *empty, of_mix = [name for name in row if name.startswith(("neighbour_", "cpu_"))]
    assert (of_mix, row[of_mix]) == ("neighbour_frame_mix", None)
    assert len(empty) == 7 + 8 + 8
    assert {row[name] for name in empty} == {None}
    names = [column.name for column in GROUP_COLUMNS]
    begin = names.index(empty[4])
    assert names[begin:][: len(empty) - 4] == empty[4:]


def test_what_is_known_of_a_boot_and_of_a_platform_is_in_every_row_and_unknown_is_never_0():
    facts = {"virtualisation": "os-level", "second: virtualisation": "full", "second: emulated": "no KVM"}
    names = ("guest", "virtualisation", "cpu_emulated", "start_s", "memory_mib")
    shared = replace(SHARED, boot=7)
    (own, *_, beside) = stream_rows([shared], [Boot(shared.spec.uut, 7, 1.5, 3 << 19)], {shared.spec.uut: facts})
    assert [own[name] for name in names] == ["", "os-level", "no", 1.5, 1.5]
    assert [beside[name] for name in names] == [beside["guest"], "full", "yes", None, None]
    (own, *_) = stream_rows([shared], [Boot(shared.spec.uut, 7)], {shared.spec.uut: {"vm_emulated": "no KVM"}})
    assert [own[name] for name in names] == ["", None, "yes", None, None]
