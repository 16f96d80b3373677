"""Counters that NIC drivers refresh periodically, with a kernel that answers ioctl(2) as those drivers do."""

import ctypes
import errno
import struct

import pytest

from netbench.hosts.base import Completed
from netbench.linux.counters import iproute_counters, netlink_counters
from tests.unit.fakes import FakeHost

GSTATS, GCOALESCE, GSSET_INFO = 0x1D, 0x0E, 0x37


class Driver:
    """A driver with its own statistics, None for one without; the NIC updates them every so many µs."""

    def __init__(self, statistics, stats_block_usecs):
        self.statistics, self.stats_block_usecs = statistics, stats_block_usecs
        self.looked = 0
        self.slept: list[float] = []

    def ioctl(self, _, request, ifreq):
        assert request == 0x8946
        name, address = struct.unpack("@16sP16x", ifreq)
        assert name.rstrip(b"\0") == b"eth7"
        (command,) = struct.unpack("=I", ctypes.string_at(address, 4))
        if command == GSSET_INFO and self.statistics is not None:
            ctypes.memmove(address + 16, struct.pack("=I", self.statistics), 4)
        elif command == GSTATS and self.statistics is not None:
            self.looked += 1
            ctypes.memmove(address + 8, bytes(8 * self.statistics), 8 * self.statistics)
        elif command == GCOALESCE and self.stats_block_usecs is not None:
            ctypes.memmove(address + 9 * 4, struct.pack("=I", self.stats_block_usecs), 4)
        else:
            raise OSError(errno.EOPNOTSUPP, "")


@pytest.mark.parametrize(
    ("driver", "looked", "slept"),
    [
        (Driver(70, None), 1, 0.0),  # e1000
        (Driver(70, 1_000_000), 1, 1.0),  # tg3
        (Driver(None, 2_000_000), 0, 2.0),
        (Driver(3, 2**32 - 1), 1, 5.0),
        (Driver(None, None), 0, 0.0),
    ],
)
def test_a_driver_is_made_to_look_and_its_nic_is_waited_for(monkeypatch, driver, looked, slept):
    monkeypatch.setattr("netbench.linux.counters.netlink_counters.fcntl.ioctl", driver.ioctl)
    monkeypatch.setattr("netbench.linux.counters.netlink_counters.time.sleep", driver.slept.append)
    netlink_counters.refresh_driver_counters({None: ["eth7"]})
    assert (driver.looked, driver.slept) == (looked, [slept])


def test_an_interface_that_is_gone_and_none_at_all_are_not_waited_for(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr("netbench.linux.counters.netlink_counters.time.sleep", slept.append)
    netlink_counters.refresh_driver_counters({None: ["nb-not-there"]})
    netlink_counters.refresh_driver_counters({None: []})
    netlink_counters.refresh_driver_counters({})
    assert slept == [0.0]


def test_the_ports_of_another_host_are_looked_at_by_one_command(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr("netbench.linux.counters.iproute_counters.time.sleep", slept.append)
    output = "Coalesce parameters for eth1:\nstats-block-usecs:\t500000\nCoalesce parameters for eth2:\nrx-usecs:\t3\n"
    host = FakeHost({"sh": Completed((), 0, output, "")})
    iproute_counters.refresh_driver_counters_on(host, ["eth1", "eth2"])
    ((*_, script, _, one, other),) = host.commands
    assert ("ethtool -S" in script, one, other) == (True, "eth1", "eth2")
    assert slept == [0.5]
    iproute_counters.refresh_driver_counters_on(FakeHost({"sh": Completed((), 0, "", "")}), ["eth1"])
    assert slept == [0.5, 0.0]
