"""pktgen as a source, on a kernel that behaves, and on one that does not."""

import signal
from contextlib import closing
from dataclasses import replace

import pytest

from netbench.errors import TestbedError
from netbench.generators.pktgen.files import PktgenDevice
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import sent_of_run
from netbench.model.frame_size import FrameSize
from tests.unit.pktgen_kernel import MAX, OFFSET_NS, TRAFFIC, generator, host, impatient, kernel, opened, trial

__all__ = ["host", "impatient", "kernel"]  # fixtures


@pytest.fixture
def source(host):
    with closing(opened(host)) as source:
        yield source


@pytest.fixture
def device(kernel, source):
    """The one device of the one source."""
    return kernel.devices()["nb-tx1@0"]


def test_a_trial_is_reported_by_the_kernels_own_counters(source, device):
    sent = trial(source)
    assert (sent.frames, sent.errors, sent.error) == (1000, 0, "")
    assert sent.frames == device.frames
    assert sent.first_sequence == 1
    assert sent.duration_s == pytest.approx(0.1, abs=1e-9)  # the last frame's slot included
    assert sent.first_ns == device.started_ns // 1000 * 1000 + OFFSET_NS
    assert sent.last_ns == device.stopped_ns // 1000 * 1000 + OFFSET_NS
    assert sent.max_burst_frames == 1
    assert sent.max_lateness_s < 5e-6


def test_the_device_has_the_settings_of_the_traffic(source, device):
    trial(source, replace(TRAFFIC, frame_size=FrameSize.of(1518)))
    assert device.values == {
        "pkt_size": "1514",
        "count": "1000",
        "delay": "100000",
        "src_mac": "02:00:00:00:00:0a",
        "dst_mac": "02:00:00:00:00:02",
        **dict.fromkeys(("src_min", "src_max"), "198.18.0.1"),
        **dict.fromkeys(("dst_min", "dst_max"), "198.18.0.2"),
        **dict.fromkeys(("udp_src_min", "udp_src_max", "udp_dst_min", "udp_dst_max"), "9"),
    }
    trial(source, replace(TRAFFIC, flows=60_000))
    first, last = int(device.values["udp_src_min"]), int(device.values["udp_src_max"])
    assert (last - first, device.values["udp_dst_min"], device.values["udp_dst_max"]) == (60_000, "9", "9")
    assert 1024 <= first < last <= 65_535


def test_the_first_frame_of_a_new_device_has_its_slot_and_later_trials_write_only_what_changes(kernel, source):
    first = trial(source)
    kernel.log.clear()
    second = trial(source, replace(TRAFFIC, fps=20_000.0, duration_s=0.05))
    assert (first.duration_s, second.duration_s) == (pytest.approx(0.1, abs=1e-9), pytest.approx(0.05, abs=1e-9))
    assert kernel.log == [
        "nb-tx1@0: delay 50000",
        "nb-tx1@0: xmit_mode queue_xmit",
        "nb-tx1@0: xmit_mode start_xmit",
        "pgctrl: start",
    ]


def test_frames_may_go_through_the_queueing_discipline(kernel, host):
    with closing(opened(host, xmit_mode="queue_xmit")) as source:
        trial(source)
        assert kernel.devices()["nb-tx1@0"].xmit_mode == "queue_xmit"


def test_a_timed_run_is_stopped_when_its_time_is_up(host, source, device):
    sent = trial(source, replace(MAX, duration_s=0.01))
    assert (device.values["count"], device.values["delay"]) == ("0", "0")
    assert [writer.returncode for writer in host.writers] == [-signal.SIGTERM]  # Ctrl-C would do the same
    assert (sent.frames, sent.error) == (105_000, "")
    assert sent.duration_s == pytest.approx(1.05, rel=1e-3)
    assert (sent.max_burst_frames, sent.max_lateness_s) == (sent.frames, 0)


@pytest.mark.parametrize(
    ("pacing", "fps", "size", "paced"),
    [
        ("lattice", 148_809.5, 64, 1e9 / 6720),
        ("ratep", 148_809.5, 64, 1e9 / (10**9 // 148_810)),
        ("schlosser2011", 1e9 / 672, 64, 1e9 / 704),
    ],
)
def test_rates_are_those_that_can_be_paced(host, pacing, fps, size, paced):
    with closing(opened(host, pacing=pacing)) as source:
        assert source.nearest_fps(fps, FrameSize.of(size)) == paced
        source.prepare(replace(TRAFFIC, fps=paced, frame_size=FrameSize.of(size)))
        assert host.kernel.devices()["nb-tx1@0"].values["delay"] == str(round(1e9 / paced))


def test_a_stall_is_lateness_and_a_burst(kernel, source):
    kernel.stall_ns = 3_000_000
    sent = trial(source)
    assert sent.max_lateness_s == pytest.approx(0.003, abs=1e-5)
    assert sent.max_burst_frames == 31
    assert sent.duration_s == pytest.approx(0.1029, abs=1e-5)  # the return of the last send


def test_frames_the_driver_drops_are_errors_and_not_lateness(kernel, source):
    kernel.drops = 50
    sent = trial(source)
    assert (sent.frames, sent.errors) == (1000, 50)
    assert sent.max_lateness_s < 5e-6
    assert sent.duration_s == pytest.approx(0.1049, abs=1e-5)
    assert (sent.backpressure_s, sent.descheduled_s) == (pytest.approx(50 * 100e-6), pytest.approx(0, abs=5e-6))


def test_softirqs_on_the_cpu_of_the_source_are_its_links_and_what_else_made_it_late_is_not(kernel, source):
    kernel.stat, kernel.stall_ns = "cpu0 0 0 0 0 0 0 10 0\n", 30_000_000
    sent = trial(source, amid=lambda: setattr(kernel, "stat", "cpu0 0 0 0 0 0 0 13 0\n"))
    assert (sent.backpressure_s, sent.descheduled_s) == (pytest.approx(0.03), pytest.approx(0.03, abs=1e-4))
    kernel.stat = ""
    assert trial(source).backpressure_s is None  # unknown is not none


def test_an_interface_that_is_not_there(host):
    rejected = r"rejects `add_device nb-no@0` > \S+kpktgend_0: No such device \(ERROR: can not add device nb-no@0\)"
    with pytest.raises(TestbedError, match=rejected):
        opened(host, interface="nb-no")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dst_mac": "nonsense"}, r"pktgen rejects `dst_mac nonsense` > \S+nb-tx1@0: Invalid argument$"),
        ({"fps": 1e6, "duration_s": 1e4}, "pktgen interprets `count 10000000000` of nb-tx1@0 as 1000000000"),
    ],
    ids=["refused", "cut off"],
)
def test_a_setting_that_is_not_taken_as_it_is(source, change, reason):
    with pytest.raises(TestbedError, match=reason):
        source.prepare(replace(TRAFFIC, **change))


def test_a_link_that_goes_down(kernel, source):
    kernel.fail_after = 400
    sent = trial(source)
    assert (sent.frames, sent.error) == (400, "pktgen sent only 400 of 1,000 frames: the link may have gone down")
    assert sent.duration_s == pytest.approx(0.04, abs=1e-5)
    timed = trial(source, MAX)
    assert timed.frames == 400
    assert "pktgen ended after 0.004 s" in timed.error


def test_an_interface_that_is_removed_in_mid_trial(kernel, source):
    sent = trial(source, MAX, amid=lambda: kernel.remove_interface("nb-tx1"))
    assert (sent.frames, sent.first_ns) == (0, None)
    assert sent.error == "pktgen's device nb-tx1@0 is gone: its interface may have been removed"
    with pytest.raises(TestbedError, match="rejects `add_device nb-tx1@0`.*No such device"):
        source.prepare(TRAFFIC)
    kernel.interfaces.add("nb-tx1")
    assert trial(source).frames == 1000


@pytest.mark.parametrize(
    ("amid", "frames", "error"),
    [
        (lambda host: setattr(host.kernel, "lost", True), 0, "guest far: it is gone"),
        (lambda host: host.writers[-1].kill(), 105_000, "the process that starts pktgen was killed by signal 9"),
    ],
    ids=["the host", "the writer"],
)
def test_what_dies_in_mid_trial(host, source, amid, frames, error):
    sent = trial(source, MAX, amid=lambda: amid(host))
    assert (sent.frames, sent.first_ns is None, sent.error) == (frames, not frames, error)


def test_a_writer_that_fails(kernel, source):
    source.prepare(TRAFFIC)
    kernel.loaded = False
    source.start(0)
    sent = source.wait(1.0)
    assert sent.frames == 0
    assert sent.error.startswith("the process that starts pktgen failed: tee: /proc/net/pktgen/pgctrl: No such file")


@pytest.mark.parametrize(
    ("traffic", "frames", "stops"),
    [(TRAFFIC, 1000, 0), (replace(MAX, duration_s=0.01), 105_000, 1)],
    ids=["is waited for", "is stopped without a writer"],
)
def test_a_thread_that_wakes_up_late(kernel, source, traffic, frames, stops):
    source.prepare(traffic)
    kernel.reads_until_start = 3  # the write of `start` has long returned
    source.start(0)
    sent = source.wait(1.0)
    assert (sent.frames, sent.error, kernel.log.count("pgctrl: stop")) == (frames, "", stops)


@pytest.mark.parametrize("timeout_s", [0.01, 60.0], ids=["of the caller", "its own"])
def test_a_run_that_takes_too_long_is_stopped_with_what_it_sent(kernel, source, timeout_s):
    kernel.fps, kernel.stall_ns = 30, 1_000_000_000
    source.prepare(replace(TRAFFIC, duration_s=0.005))
    kernel.stuck = True
    source.start(0)
    kernel.stuck = False
    sent = source.wait(timeout_s)
    assert (sent.frames, sent.error) == (31, "")
    assert sent.duration_s > 1


def test_a_run_that_cannot_be_stopped_is_no_hang(kernel, source):
    kernel.stuck = True
    sent = trial(source, timeout_s=0.01)
    assert sent.frames == 0
    assert "pktgen did not stop within 0.2 s" in sent.error


def test_close_ends_a_run_and_removes_the_device(kernel, host):
    source = opened(host)
    source.prepare(MAX)
    source.start(0)
    assert kernel.running()
    source.close()
    source.close()
    assert kernel.devices() == {}
    assert all(writer.returncode is not None for writer in host.writers)


def test_close_on_a_host_that_is_gone(kernel, host):
    source = opened(host)
    kernel.loaded = False
    source.close()


def test_use_before_open():
    with pytest.raises(TestbedError, match="before open"):
        generator().source().prepare(TRAFFIC)


def test_the_commands_of_a_dry_run():
    assert generator().source().commands("nb-tx1", (3,)) == [
        "tee /proc/net/pktgen/kpktgend_3 <<< 'add_device nb-tx1@3'",
        "tee /proc/net/pktgen/nb-tx1@3 <<< 'xmit_mode start_xmit'",
        "tee /proc/net/pktgen/nb-tx1@3 <<< 'pkt_size FRAME_SIZE-4'",
        "tee /proc/net/pktgen/nb-tx1@3 <<< 'count FRAMES'",
        "tee /proc/net/pktgen/nb-tx1@3 <<< 'delay NANOSECONDS'",
        "tee /proc/net/pktgen/pgctrl <<< 'start'",
    ]
    assert "kpktgend_N" in generator().source().commands("nb-tx1", ())[0]


@pytest.mark.parametrize(("option", "flags"), [("paced", {"NO_TIMESTAMP"}), ("always", set())])
def test_frames_of_max_bear_no_time_unless_that_is_wanted(kernel, host, option, flags):
    with closing(opened(host, timestamps=option)) as source:
        for traffic, expected in ((TRAFFIC, set()), (replace(MAX, duration_s=0.01), flags), (TRAFFIC, set())):
            assert trial(source, traffic).stamped is not bool(expected)
            assert kernel.devices()["nb-tx1@0"].flags == expected


def test_copies_make_max_faster_and_are_counted_only(kernel, host):
    kernel.shares_frames = True
    with closing(opened(host, clone_skb=10, burst=8)) as source:
        unpaced = trial(source, MAX)
        values = kernel.devices()["nb-tx1@0"].values
        assert (values["clone_skb"], values["burst"]) == ("10", "8")
        assert not unpaced.numbered
        paced = trial(source)
        assert (values["clone_skb"], values["burst"]) == ("0", "1")
        assert (paced.numbered, paced.frames, paced.error) == (True, 1000, "")


@pytest.mark.parametrize(
    ("options", "numbered"), [({}, True), ({"clone_skb": 1}, True), ({"clone_skb": 2}, False), ({"burst": 2}, False)]
)
def test_only_copies_cost_the_numbers(options, numbered):
    assert PktGenOptions(**options).numbered is numbered


@pytest.mark.parametrize(("option", "value"), [("clone_skb", 10), ("burst", 8)])
def test_copies_that_the_driver_cannot_send(kernel, host, option, value):
    with pytest.raises(TestbedError) as caught:
        opened(host, **{option: value})
    assert str(caught.value) == (
        f"pktgen rejects `{option} {value}` > /proc/net/pktgen/nb-tx1@0: "
        "the driver of this interface cannot send one frame several times"
    )
    assert kernel.devices() == {}


def test_the_time_between_the_starts_of_threads_is_reported():
    one = PktgenDevice({}, frames=10, errors=0, started_us=1_000, stopped_us=5_000, result="")
    late = replace(one, started_us=91_000, stopped_us=96_000)
    sent = sent_of_run([one, late], MAX, 0)
    assert (sent.apart_s, sent.in_order, sent.frames) == (0.091, False, 20)
    alone = sent_of_run([one], MAX, 0)
    assert (alone.apart_s, alone.in_order) == (0.0, True)


@pytest.mark.parametrize(("shows_threads", "expected"), [(True, (0.09, 0)), (False, (None, None))])
def test_how_long_its_kernel_thread_waited_is_known_where_the_thread_is_seen(kernel, host, shows_threads, expected):
    kernel.shows_threads, kernel.wait_ns = shows_threads, 90_000_000
    with closing(opened(host)) as source:
        sent = trial(source)
    assert (sent.wait_s, sent.cpu) == expected
