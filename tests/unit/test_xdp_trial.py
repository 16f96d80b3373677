"""Parameters of the program of the source `xdp` for a trial, and drivers on kernels that do not report features."""

import time
from dataclasses import replace

import numpy as np
import pytest

from netbench.generators.xdp.xdp_trial import Shape, Shared, XdpTrial, flow_rows
from netbench.linux import xdp_devices
from netbench.linux.proc import SchedTimes
from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.packet import FieldRef, Layer, Packet, SteppedValues, VaryingField
from netbench.model.traffic import Sent, Traffic
from netbench.packets.build import build_template
from netbench.packets.flow_values import FlowBytes, flow_bytes


def traffic(frame_size) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, parse_frame_size(frame_size), None, 1.0, 1, 0)


def trial_of(traffic: Traffic, shared: Shared, spare: int = 0) -> XdpTrial:
    template = build_template(traffic)
    return XdpTrial(traffic, template, flow_bytes(template), shared, spare)


def shorter(trial: XdpTrial) -> list[int]:
    """By how much the program cuts the frames of each shape."""
    return [Shape.from_buffer_copy(shape).shorter for shape in trial.shapes]


@pytest.mark.parametrize("spare", [0, 1])
def test_what_is_spare_at_the_end_of_a_live_frame_is_cut_off_every_frame(spare):
    one, mix = trial_of(traffic(64), Shared(), spare), trial_of(traffic(FrameSize("two", (64, 128))), Shared(), spare)
    assert one.frame == build_template(traffic(64)).frames[64] + bytes(spare)
    assert shorter(one) == [1] * spare, "frames of one size need no shape, unless something is to be cut off"
    assert len(mix.frame) == 124 + spare
    assert shorter(mix) == [64 + spare, spare]


def test_the_program_gets_the_headers_of_each_size_and_the_places_of_what_varies():
    shared, mix = Shared(), FrameSize("two", (256, 128))
    layers, values = (Layer("Ether"), Layer("IPv6"), Layer("UDP")), SteppedValues(7, 1, 5)
    vary = VaryingField(FieldRef("IPv6", "src"), values), VaryingField(FieldRef("UDP", "sport"), values)
    described = replace(traffic(mix), packet=Packet("six", layers, vary))
    frames = build_template(described).frames
    trial = trial_of(described, shared)
    assert (shared.payload_at, shared.complement_at, shared.flows, shared.shapes) == (62, 78, 5, 2)
    assert list(shared.words_at[: shared.words]) == [30, 34, 54], "the low 64 bits of the address, and the ports"
    assert (list(shared.sums_at[: shared.sums]), list(shared.zero_sums)) == ([60], [0xFFFF, 0, 0, 0])
    shapes = [Shape.from_buffer_copy(shape) for shape in trial.shapes]
    for shape, size in zip(shapes, mix.genome, strict=True):
        assert bytes(shape.headers) == frames[size][:192].ljust(192, b"\0")
        base = 0xFFFF ^ int.from_bytes(frames[size][60:62], "little")
        assert list(shape.checksums) == [base, 0, 0, 0], "in the order of bytes in the frame"
    assert bytes(shared.only) == trial.shapes[0], "the live frame has the largest size"


@pytest.mark.parametrize(("words", "sums"), [(1, 0), (2, 1), (12, 4)])
def test_the_row_of_a_flow_has_its_words_and_its_sums_at_fixed_places(words, sums):
    contents = np.arange(3 * words, dtype=np.uint32).reshape(3, words)
    numbers = np.arange(3 * sums, dtype=np.uint16).reshape(3, sums) + np.uint16(0x0102)
    rows = flow_rows(FlowBytes(tuple(range(words)), contents, tuple(range(sums)), numbers, (True,) * sums))
    assert rows.nbytes == 3 * 64
    assert rows[:, :words].tolist() == contents.tolist()
    assert rows[:, 12 : 12 + sums].astype("<u2").tobytes() == numbers.astype(">u2").tobytes()
    assert not rows[:, words:12].any()
    assert not rows[:, 12 + sums :].any()


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


@pytest.mark.parametrize(
    ("held_up_ms", "stalled_ms", "waited_ms", "softirqs_ms", "backpressure_s", "descheduled_s"),
    [
        (40, 0, None, 0, 0.04, 0.0),  # a kernel that does not count waits
        (40, 0, 0, 0, 0.04, 0.0),
        (40, 0, 30, 0, 0.01, 0.03),  # waits as short as the receiver's work
        (40, 0, 30, 20, 0.03, 0.01),  # two thirds of them for the receiver's work
        (40, 0, 30, 50, 0.04, 0.0),
        (40, 20, 20, 0, 0.04, 0.02),  # the stall was that wait
        (40, 20, 25, 0, 0.035, 0.025),
        (40, 20, 0, 0, 0.04, 0.02),
        (40, 0, 70, 0, 0.0, 0.04),  # most of the waits were before a frame was due
    ],
)
def test_a_wait_for_a_cpu_is_backpressure_only_if_the_receiver_had_it(
    held_up_ms, stalled_ms, waited_ms, softirqs_ms, backpressure_s, descheduled_s
):
    shared = Shared()
    trial = trial_of(replace(at_most(0.1, 8_000.0), receive="softirq"), shared)
    trial.begin(time.monotonic_ns() + 1_000_000_000)
    shared.sent, shared.seen_ns = 800, shared.end_ns
    shared.backpressure_ns, shared.stalled_ns, shared.stalls = held_up_ms * 1_000_000, stalled_ms * 1_000_000, 1
    waited = None if waited_ms is None else SchedTimes(0, waited_ms * 1_000_000)
    sent = trial.result("", waited, 0, softirqs_ms * 1_000_000)
    assert (sent.backpressure_s, sent.descheduled_s) == pytest.approx((backpressure_s, descheduled_s))
    assert sent.stalled_s == pytest.approx(stalled_ms / 1e3)
