"""Counters that NIC drivers refresh periodically."""

import pytest

from netbench.hosts.base import Completed
from netbench.linux.counters.iproute_counters import refresh_driver_counters
from tests.unit.fakes import FakeHost


@pytest.mark.parametrize(
    ("printed", "slept"),
    [
        ("", 0.0),  # e1000, and drivers without settings
        ("Coalesce parameters for eth1:\nstats-block-usecs:\t500000\nCoalesce parameters for eth2:\nrx-usecs:\t3\n", 0.5),
        ("Coalesce parameters for eth1:\nstats-block-usecs:\t4294967295\n", 5.0),
    ],
)
def test_drivers_read_their_nics_now_and_slow_nics_are_waited_for(monkeypatch, printed, slept):
    waits: list[float] = []
    monkeypatch.setattr("netbench.linux.counters.iproute_counters.time.sleep", waits.append)
    host = FakeHost({"sh": Completed((), 0, printed, "")})
    refresh_driver_counters(host, ["eth1", "eth2"])
    ((*_, script, _, first, second),) = host.commands
    assert ("ethtool -S" in script, first, second) == (True, "eth1", "eth2")
    assert waits == [slept]
