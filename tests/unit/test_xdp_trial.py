"""What the program of the source `xdp` is told of the frames of a trial, and drivers in kernels that do not tell."""

import pytest

from netbench.generators.frames import build_frame
from netbench.generators.xdp.program_trial import Shared, Trial
from netbench.linux import xdp_devices
from netbench.model.frame_mix import FrameMix
from netbench.model.traffic import Traffic


def traffic(frame_size) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, frame_size, None, 1.0, 1, 0)


def shorter(trial: Trial) -> list[int]:
    """By how much the program cuts the frames of each shape."""
    return [int.from_bytes(shape[40:], "little") for shape in trial.shapes]


@pytest.mark.parametrize("spare", [0, 1])
def test_what_is_spare_at_the_end_of_a_live_frame_is_cut_off_every_frame(spare):
    one, mix = Trial(traffic(64), Shared(), spare), Trial(traffic(FrameMix("two", (64, 128))), Shared(), spare)
    assert one.frame == build_frame(traffic(64), 64) + bytes(spare)
    assert shorter(one) == [1] * spare, "frames of one size need no shape, unless something is to be cut off"
    assert len(mix.frame) == 124 + spare
    assert shorter(mix) == [64 + spare, spare]


def test_drivers_are_known_where_the_kernel_does_not_tell(monkeypatch):
    """Linux before 6.3 has no family netdev; the loopback interface plays each NIC."""
    monkeypatch.setattr(xdp_devices, "_features", lambda index: None)
    found = {}
    for driver in ("virtio_net", "e1000", "vmxnet3", "some_other"):
        monkeypatch.setattr(xdp_devices, "_driver", lambda interface, driver=driver: driver)
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
