"""Real drivers of NICs: a VM that measures, cabled to a VM under test; both are up once for all tests."""

import threading
import time

import pytest

from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import TOPOLOGIES, shipped
from netbench.errors import MachineGoneError, MissingError
from netbench.model.verdict import ReasonKind, Verdict
from netbench.testbed.bring_up import base_changes
from tests.commands import netbench, rows, settings, verdict_of
from tests.netns.watching import wait_for
from tests.vm.cabled import BOX, cabled
from tests.vm.lab import build_or_skip

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(900)]

DRIVERS = {"virtio": "virtio_net", "e1000": "e1000", "vmxnet3": "vmxnet3"}  # by stream
# The state of a port, without values that depend on the time of the query.
LOOK = """
for port in eth1 eth2 eth3 eth4 eth5 eth6; do
    ip -br link show $port; ip address show $port | grep inet | sed 's/ tentative//'; ethtool -k $port
    cat /proc/sys/net/ipv6/conf/$port/disable_ipv6
done
"""


@pytest.fixture(scope="module")
def bench():
    build_or_skip("tester")
    build_or_skip("micro")
    longer = ["topology.hosts.box.boot_limit=5min", "topology.hosts.dut.boot_limit=5min"]
    with cabled(load_topology(shipped(TOPOLOGIES)["lab-cabled"], option_models(UUTS), longer)) as bench:
        # Existing settings: one port is up, with an address.
        bench.on_box("ip link set eth2 up; ip address add 192.0.2.7/24 dev eth2; ethtool -K eth3 tso off gro on")
        bench.found = bench.on_box(LOOK)
        bench.box.make(base_changes(bench.topology, BOX))
        yield bench


def counts(result):
    (stream,) = result.streams
    return stream.sent.frames, stream.received.frames, stream.lost_frames


@pytest.mark.parametrize("generator", ["pktgen", "afpacket"])
def test_every_driver_sends_and_receives_each_frame(bench, generator):
    """200 frames fit into the rings of all. Before its spanning tree lets it, the device forwards nothing, and nothing
    counts as lost.
    """
    with bench.setup(generator, *DRIVERS) as measure:
        result = measure("500fps", duration="400ms")
    for stream in result.streams:
        assert (stream.sent.frames, stream.received.frames, stream.lost_frames) == (200, 200, 0), stream.stream
        assert stream.foreign_frames == 0
    assert result.verdict is not Verdict.INVALID, result.reasons


def test_the_drivers_are_those_of_the_nics(bench):
    output = bench.do("for port in eth1 eth2 eth3 eth4 eth5 eth6; do ethtool -i $port | head -n 1; done").splitlines()
    assert output == [f"driver: {name}" for driver in DRIVERS for name in 2 * [DRIVERS[driver]]]


def test_xdp_sends_by_a_driver_that_takes_its_frames_and_by_no_other(bench):
    """The kernel reuses sent frames: more are sent than it has at a time, and all arrive."""
    with bench.setup("xdp", "virtio") as measure:
        result = measure("1000fps", frame_size=128, duration="500ms")
    assert counts(result) == (500, 500, 0)
    refused = pytest.raises(MissingError, match=r"the driver \(e1000\) of eth3 rejects frames from XDP programs")
    with refused, bench.setup("xdp", "e1000"):
        pass


def test_a_cable_pushes_back_a_burst_through_virtio_and_loses_nothing(bench):
    with bench.setup("pktgen", "virtio") as measure:
        result = measure("max", duration="500ms")
    sent, received, lost = counts(result)
    assert (sent, lost) == (received, 0)


def test_a_cable_that_is_pulled_in_mid_trial_is_seen_as_that(bench):
    """At the tester's end its NIC loses the carrier; at the device's end frames are lost for a reason unknown here."""

    def flapped(vm, nic, measure):
        def flap():
            before = bench.transmitted()
            wait_for(lambda: bench.transmitted() > before + 100, timeout_s=60)
            vm.set_link(nic, up=False)
            time.sleep(0.5)
            vm.set_link(nic, up=True)

        flapping = threading.Thread(target=flap)
        flapping.start()
        result = measure("200fps", duration="4s", drain_limit="1s")
        flapping.join()
        return result

    with bench.setup("afpacket", "virtio") as measure:
        here = flapped(bench.box, "eth1", measure)
        assert here.verdict is Verdict.INVALID
        assert ReasonKind.LINK_DOWN in {reason.kind for reason in here.reasons}
        sent, received, lost = counts(flapped(bench.dut, "port1", measure))
        assert sent == 800
        assert 0 < received < sent
        assert lost == sent - received
        # The next trial is complete, because netbench waits for the device's spanning tree.
        assert counts(measure("500fps", duration="200ms")) == (100, 100, 0)


def test_ports_are_given_back_as_they_were_found(bench):
    assert bench.on_box("ip -br link | grep eth") == ""
    assert bench.box.undo() == []
    assert bench.on_box(LOOK) == bench.found
    bench.box.make(base_changes(bench.topology, BOX))


def test_a_device_that_dies_ends_the_measuring_instead_of_losing_all(bench):
    """The last test that needs it."""
    with bench.setup("pktgen", "virtio") as measure:
        assert bench.dut.death() == ""
        bench.dut.host().run(["sh", "-c", "(sleep 1; echo o >/proc/sysrq-trigger) >/dev/null 2>&1 &"])
        with pytest.raises(MachineGoneError, match="the device under test is gone: guest dut: QEMU ended"):
            measure("100fps", duration="3s")


def test_the_shipped_topology(results):
    done = netbench(
        "run",
        "lab-cabled",
        "quick",
        "-o",
        results,
        *settings(generator="pktgen", frame_sizes=64, loads="500fps", duration="400ms", repetitions=1, streams=1),
        *settings(tolerance="100%", max_lateness="1min", topology__hosts__box__boot_limit="5min"),
        timeout_s=600,
    )
    assert done.returncode == 0, done.stderr
    (row,) = rows(results)
    assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == ("200", "200", "0")
    assert verdict_of(row) != "invalid"
