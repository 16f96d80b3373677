"""Parameters of the program of the source `xdp` for a trial, and drivers on kernels that do not report features."""

import time
from dataclasses import replace

import pytest

from netbench.generators.xdp.xdp_trial import Shared, XdpTrial
from netbench.linux import xdp_devices
from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.traffic import Sent, Traffic
from netbench.packets.build import build_template


def traffic(frame_size) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, parse_frame_size(frame_size), None, 1.0, 1, 0)


def trial_of(traffic: Traffic, shared: Shared, spare: int = 0) -> XdpTrial:
    return XdpTrial(traffic, build_template(traffic), shared, spare)


def shorter(trial: XdpTrial) -> list[int]:
    """By how much the program cuts the frames of each shape."""
    return [int.from_bytes(shape[40:], "little") for shape in trial.shapes]


@pytest.mark.parametrize("spare", [0, 1])
def test_what_is_spare_at_the_end_of_a_live_frame_is_cut_off_every_frame(spare):
    one, mix = trial_of(traffic(64), Shared(), spare), trial_of(traffic(FrameSize("two", (64, 128))), Shared(), spare)
    assert one.frame == build_template(traffic(64)).frames[64] + bytes(spare)
    assert shorter(one) == [1] * spare, "frames of one size need no shape, unless something is to be cut off"
    assert len(mix.frame) == 124 + spare
    assert shorter(mix) == [64 + spare, spare]


def test_drivers_are_known_where_the_kernel_does_not_tell(monkeypatch):
    """Linux before 6.3 has no family netdev; the loopback interface stands in for each NIC."""
    monkeypatch.setattr(xdp_devices, "_features", lambda index: None)
    found = {}
    for driver in ("virtio_net", "e1000", "vmxnet3", "some_other"):
        monkeypatch.setattr(xdp_devices, "driver_of", lambda interface, driver=driver: driver)
        device = xdp_devices.xdp_device("lo")
        found[driver] = device.takes_frames, device.runs_programs, device.alters_frames
    assert found == {
        "virtio_net": (False, True, True),  # once a program is attached to it
        "e1000": (False, False, False),
        "vmxnet3": (False, False, False),
        "some_other": (None, None, False),
    }
    assert xdp_devices._features_by_driver("virtio_net", b"\x01") == 0b101
    assert xdp_devices._features_by_driver("virtio_net", b"\x02") == 0b001, "behind the driver: generic mode"


def ended(traffic: Traffic, *, seen_ms: float, blocks: int, stalled_ms: float = 0.0, stalls: int = 0) -> Sent:
    """Return the report of a finished trial whose program sent `blocks` of 16 frames, and ran last at `seen_ms`."""
    shared = Shared()
    trial = trial_of(traffic, shared)
    trial.begin(time.monotonic_ns() - 2_000_000_000)
    begun_ns, lasting_ns = time.monotonic_ns() - 1_000_000_000, round(traffic.duration_s * 1e9)
    trial.start_ns = shared.start_ns = begun_ns
    trial._late_ns = 0
    shared.end_ns = begun_ns + lasting_ns
    shared.seen_ns = shared.last_ns = begun_ns + round(seen_ms * 1e6)
    shared.sent, shared.stalled_ns, shared.stalls = 16 * blocks, round(stalled_ms * 1e6), stalls
    return trial.result("")


def at_most(duration_s: float, fps: float | None = None) -> Traffic:
    return replace(traffic(64), duration_s=duration_s, fps=fps)


@pytest.mark.parametrize(
    ("sent", "stalled_s", "late_s"),
    [
        (ended(at_most(0.1), seen_ms=99.9, blocks=50_000), 0.0, 0.0),
        # a stall that lasts to the end
        (ended(at_most(0.1), seen_ms=10, blocks=5_000), 0.09, 0.09),
        (ended(at_most(0.1), seen_ms=10, blocks=1), 0.09, 0.0),  # it is unknown whether a single pause is a long one
        (ended(at_most(0.1), seen_ms=0, blocks=0), 0.1, 0.0),
        # beside one in the middle, which the program saw itself
        (ended(at_most(0.1), seen_ms=60, blocks=5_000, stalled_ms=30, stalls=1), 0.07, 0.04),
        # stopped again and again, as by a CPU limit
        (ended(at_most(0.1), seen_ms=99.9, blocks=5_000, stalled_ms=80, stalls=10), 0.08, 0.0),
        # a link so slow that each block takes that long
        (ended(at_most(0.1), seen_ms=99.9, blocks=50, stalled_ms=99, stalls=50), None, 0.0),
        # with a rate: nothing was left to be sent, and something was
        (ended(at_most(0.1, 8_000.0), seen_ms=10, blocks=50), 0.0, 0.0),
        (ended(at_most(0.1, 8_000.0), seen_ms=10, blocks=5), 0.09, 0.0),
    ],
)
def test_every_stall_counts_also_one_that_lasts_to_the_end(sent: Sent, stalled_s: float | None, late_s: float):
    assert sent.stalled_s == (None if stalled_s is None else pytest.approx(stalled_s, abs=1e-4))
    assert sent.max_lateness_s == pytest.approx(late_s, abs=2e-3)
