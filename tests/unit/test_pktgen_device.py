"""Device files, real ones of kernel 6.1 and made ones."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.errors import TestbedError
from netbench.generators.pktgen.files import parse_device, realtime_offset_ns
from netbench.hosts.local import LocalHost
from tests.unit.fakes import FakeHost
from tests.unit.pktgen_kernel import OFFSET_NS, FakeDevice, show

FILES = Path(__file__).parent / "pktgen_files"


def read(name: str):
    return parse_device((FILES / f"{name}.txt").read_text())


def test_a_run_that_ended_by_its_count():
    device = read("counted")
    assert (device.frames, device.errors) == (100, 0)
    assert (device.started_us, device.stopped_us, device.ended) == (5_624_419, 5_634_329, True)
    assert device.settings["count"] == "100"
    assert device.settings["min_pkt_size"] == device.settings["max_pkt_size"] == "60"
    assert device.settings["delay"] == "100000"
    assert device.settings["dst_mac"] == "02:00:00:00:00:02"
    assert device.settings["src_mac"] == "de:fc:ba:ef:31:3d"
    assert device.settings["src_max"] == "198.18.0.1"
    assert device.settings["udp_dst_max"] == "9"


def test_a_run_that_was_stopped():
    device = read("stopped")
    assert device.settings["count"] == "0"
    assert (device.frames, device.ended) == (176_863, True)


def test_a_device_that_never_ran():
    device = read("idle")
    assert not device.ended
    assert device.result == "Idle"
    assert device.settings["dst_min"] == ""
    assert device.settings["src_max"] == ""
    assert device.settings["udp_src_min"] == "9"


def test_a_command_after_a_run_hides_its_result():
    text = (FILES / "counted.txt").read_text()
    device = parse_device(text[: text.index("Result:")] + "Result: OK: delay=100\n")
    assert not device.ended
    assert device.frames == 100


@pytest.mark.parametrize("text", ["", "Running: \nStopped: va@0 \nResult: NA\n", "Params: count 5\nCurrent:\n"])
def test_other_text_is_refused(text):
    with pytest.raises(TestbedError, match="instead of the state of a device"):
        parse_device(text)


@given(
    frames=st.integers(0, 2**63),
    errors=st.integers(0, 2**63),
    times=st.tuples(*[st.integers(0, 2**60)] * 3),
    result=st.sampled_from(["Starting", "Idle", "OK: count=5", "No memory"]),
)
def test_whatever_the_kernel_counts_is_read(frames, errors, times, result):
    values = dict.fromkeys(("count", "delay", "pkt_size", "udp_src_min", "udp_src_max"), "1")
    values |= dict.fromkeys(("udp_dst_min", "udp_dst_max", "src_min", "src_max", "dst_min", "dst_max"), "")
    values |= dict.fromkeys(("src_mac", "dst_mac"), "00:00:00:00:00:00")
    started, stopped, idle = (time * 1000 for time in times)
    made = FakeDevice("a@0", values, frames=frames, errors=errors, result=result)
    made.started_ns, made.stopped_ns, made.idle_ns = started, stopped, idle
    device = parse_device(show(made, 0))
    assert (device.frames, device.errors, device.result) == (frames, errors, result)
    assert (device.started_us, device.stopped_us) == times[:2]


def test_the_offset_of_the_clocks_of_another_machine():
    host = FakeHost(files={"/proc/timer_list": (FILES / "timer_list.txt").read_text()})
    assert realtime_offset_ns(host) == OFFSET_NS


def test_the_offset_of_the_clocks_of_this_machine():
    host = LocalHost("here", "test")
    assert abs(realtime_offset_ns(host) - realtime_offset_ns(host)) < 10_000_000


def test_a_host_that_hides_its_clocks():
    with pytest.raises(TestbedError, match="does not contain the offset of CLOCK_REALTIME"):
        realtime_offset_ns(FakeHost(files={"/proc/timer_list": "Timer List Version: v0.9\n"}))


def test_the_fake_kernel_writes_as_the_real_one_does():
    text = (FILES / "counted.txt").read_text()
    values = {"count": "100", "delay": "100000", "pkt_size": "60"}
    values |= dict.fromkeys(("udp_src_min", "udp_src_max", "udp_dst_min", "udp_dst_max"), "9")
    values |= dict.fromkeys(("src_min", "src_max"), "198.18.0.1") | dict.fromkeys(("dst_min", "dst_max"), "198.18.0.2")
    values |= {"src_mac": "de:fc:ba:ef:31:3d", "dst_mac": "02:00:00:00:00:02"}
    made = FakeDevice("va@0", values, frames=100, result=text.partition("Result: ")[2].rstrip("\n"))
    made.started_ns, made.stopped_ns, made.idle_ns = 5_624_419_000, 5_634_329_000, 8_488_000
    real = text.replace("cur_saddr: 198.18.0.1  cur_daddr: 198.18.0.2", "cur_saddr: 0.0.0.0  cur_daddr: 0.0.0.0")
    assert show(made, 0) == real
