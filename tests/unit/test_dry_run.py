"""What a dry run reports of guests and VMs, on a machine without an image whose KVM is not tried."""

import os
import re

import pytest

from netbench.campaign.request import make_request, read_request
from netbench.cli.dry_run import describe
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.model.scenario import VICTIM
from netbench.trial.flows import client_seed
from netbench.vmm.qemu import acceleration
from netbench.vmm.qemu.command import qemu_program
from tests.unit.inputs import profile, topology, topology_in_vm


@pytest.fixture(autouse=True)
def no_image(monkeypatch, tmp_path_factory):
    """Have no image, and fail if a guest is started."""
    # The path is printed, and so must not contain the name of a test.
    monkeypatch.setenv("NETBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(acceleration, "probe", lambda *_: pytest.fail("a guest was started"))


def output(name, *settings, uuts=(), scenarios=(), profile="quick"):
    files = shipped(TOPOLOGIES)[name], shipped(PROFILES)[profile]
    request = read_request(*files, uuts=uuts, scenarios=scenarios, settings=settings)
    return "\n".join(describe(request)).splitlines()


def section(lines, title):
    """Return the lines between the one that begins with `title` and the next title."""
    start = next(number for number, line in enumerate(lines) if line.startswith(title)) + 1
    return [line.strip() for line in lines[start : next(n for n in range(start, len(lines)) if lines[n][0] == "#")]]


@pytest.mark.parametrize("name", list(shipped(TOPOLOGIES)))
def test_every_shipped_topology_can_be_reported(name):
    lines = output(name, "repetitions=1")
    assert lines[0].startswith(f"# {name} × quick: ")
    assert lines[-1].startswith("# expected total time: ")
    assert not [line for line in lines if "None" in line or "object at" in line]


def test_a_testbed_inside_a_vm():
    lines = output("lab-vm")
    directory, qemu, *inside = section(lines, "# testbed")
    assert directory == "mkdir -p -m 700 /run/netbench/vm/RUN-lab"
    assert qemu.startswith(f"{qemu_program()} -name lab,debug-threads=on ")
    assert "-smp 2 -m 512M" in qemu
    assert "-accel ACCELERATOR -cpu CPU" in qemu, "it is not known yet"
    assert "-initrd micro/initrd" in qemu
    assert all(line.startswith("[lab] ") for line in inside)
    assert inside[0] == "[lab] ip netns add nb-lab-vm-source"
    bridge = section(lines, "# UUT bridge")
    assert all(line.startswith("[lab] ") for line in bridge)
    assert "[lab] ip -n nb-lab-vm-uut link set dev nb-in1 master nb-br-s1" in bridge
    tcpdump, flush = section(lines, "# sinks")
    assert tcpdump.startswith("[lab] ip netns exec nb-lab-vm-sink taskset -c 1 tcpdump -i nb-rx1 ")
    assert " -w /tmp/trial-NNNNNN-s1.pcap " in tcpdump
    assert flush == "[lab] ip netns exec nb-lab-vm-sink python3 -I -S netbench/sinks/flush.py nb-rx1"


def test_pktgen_inside_a_vm_is_written_to_there():
    sources = section(output("lab-vm", "generator=pktgen"), "# sources")
    assert sources
    assert all(line.startswith("[lab] ip netns exec nb-lab-vm-source ") for line in sources)


def test_guests_beside_the_kernel_of_this_machine():
    lines = output("netns-vmm")
    assert [line for line in lines if line.startswith("# UUT ")] == [
        "# UUT raw (raw)",
        "# UUT container (container)",
        "# UUT virtio (qemu)",
        "# UUT e1000 (qemu)",
        "# UUT vmxnet3 (qemu)",
    ]
    assert not [line for line in section(lines, "# testbed") if qemu_program() in line]
    for title, model in (("# UUT virtio", "virtio-net-pci"), ("# UUT e1000", "e1000"), ("# UUT vmxnet3", "vmxnet3")):
        guest = section(lines, title)
        (started,) = [line for line in guest if line.startswith(qemu_program())]
        assert re.findall(rf"-device {model},netdev=nic\d,mac=(\S+)", started) == [
            "02:6e:67:00:01:01",
            "02:6e:67:00:01:02",
        ]
        order = [
            guest.index(f"mkdir -p -m 700 /run/netbench/vm/RUN-uut-{title[6:]}"),
            guest.index("ip -n nb-netns-vmm-uut tuntap add dev nb-ti-s1 mode tap vnet_hdr"),
            guest.index(started),
            guest.index("guest: sysctl -w net.ipv6.conf.all.disable_ipv6=1"),
            guest.index("guest: ip address add 198.18.1.1/24 dev INGRESS-s1"),
        ]
        assert order == sorted(order)
    tcpdump, flush = section(lines, "# sinks")
    assert " -w - " in tcpdump
    assert flush.endswith(" -m netbench.sinks.flush nb-rx1")


def test_what_sends_and_receives_and_on_what_hosts_as_far_as_that_is_known():
    lines = output("lab-vm", "generator={kind: pktgen, burst: 2}")
    (ends,) = section(lines, "# kinds of source and sink")
    assert ends.startswith("s1: pktgen (the kernel of its host; pacing=lattice ")
    assert "burst=2; 1 thread; CPU 0) to tcpdump (the version of its host; snap_length=64; 1 thread; CPU 1)" in ends
    source = next(line for line in section(lines, "# hosts") if line.startswith("source: "))
    assert "a kernel not known yet; network namespace nb-lab-vm-source of VM lab " in source
    assert any(line.startswith(f"source: Linux {os.uname().release} ") for line in section(output("netns"), "# hosts"))


def test_what_is_chosen_only_later_is_reported_in_every_way():
    sources = section(output("netns-vmm", "generator=auto"), "# sources")
    remarks = [line for line in sources if "ip netns exec nb-netns-vmm-source " not in line]
    assert remarks[:2] == ["# where pktgen works:", "# elsewhere:"]
    assert remarks[2].startswith("# for loads above 200,000 frames/s")
    assert sources[0] == remarks[0]
    assert ["afpacket.afpacket_worker" in sources[-3], "xdp.xdp_worker" in sources[-1]] == [True, True]


def test_the_shared_host_is_reported_with_phases_and_what_the_neighbours_do():
    lines = output("netns-vmm", "repetitions=1", uuts=["virtio"], profile="schlosser2011-short")
    assert [line for line in lines if line.startswith(("# UUT ", "# neighbour "))] == [
        "# UUT virtio (qemu)",
        "# neighbour second of UUT virtio (qemu)",
    ]
    second = section(lines, "# neighbour second")
    assert [line for line in second if line.startswith(qemu_program())]
    assert "guest: ip address add 198.18.2.1/24 dev INGRESS-n1" in second
    assert sorted(section(lines, "# activities of neighbours")) == [
        "cpu-heavy: second stress-ng --cpu 8 --vm 4",
        "cpu-light: second stress-ng --cpu 1",
        "dedicated: second off",
        "network-50: second forwards 64-byte frames at 50% of the maximum",
        "network-95: second forwards 64-byte frames at 95% of the maximum",
        "shared-idle: second idle",
    ]
    begun = "# searched for first; each trial depends on earlier results"
    assert section(lines, begun) == ["virtio  shared-idle  s1  64 B: the maximum that loads refer to"]
    trials = section(lines, "# then trials, in order")
    assert (trials[0], len(trials)) == ("virtio", 1 + 6 * 4 * 3)


def test_maxima_among_the_loads_are_reported_as_a_phase():
    lines = output("netns-vmm", "repetitions=1", "maxima=loads", uuts=["virtio"], profile="schlosser2011-short")
    trials = section(lines, "# trials, in order")
    assert trials[0] == "virtio  phase 1 of 2: finds the maximum that neighbours' loads refer to"
    assert all("shared-idle  s1  64 B" in line for line in trials[1:4])
    assert trials[4] == "virtio  phase 2 of 2"


def test_a_neighbour_that_no_trial_needs_is_not_reported():
    assert not [line for line in output("netns-vmm") if "neighbour" in line or ("n1" in line and "198.18.2" in line)]


def expected_s(lines):
    (seconds,) = re.findall(r"\((\d+) s\)", lines[-1])
    return int(seconds)


def test_that_sweeps_may_end_early_is_reported():
    lines = output("netns", "stop_when_saturated=2", "loads=max,100fps,2%", "frame_sizes=64", uuts=["bridge"])
    first, _, *trials, _ = lines[lines.index("# trials, in order") + 1 :]
    assert first == "  # loads of a sweep rise; once 2 loads in a row are saturated, higher loads are skipped"
    assert [trial.split()[5] for trial in trials] == ["100fps", "2%", "max"] * 3


def test_the_expected_time_has_room_for_booting():
    guest = ({"name": "g", "kind": "qemu"},)
    wanted = profile(repetitions=5, order="sequential")
    raw, booted = (
        expected_s(list(describe(make_request(topology(uuts=uuts), wanted))))
        for uuts in ([{"name": "r", "kind": "raw"}], guest)
    )
    assert raw < 10
    assert 5 <= booted - raw <= 60


def test_cpus_that_are_named_are_those_of_the_vm():
    """This machine may have fewer."""
    lab = topology_in_vm(3, vm={"cpus": 16})
    sinks = section(list(describe(make_request(lab, profile()))), "# sinks")
    assert [line.split("taskset -c ")[1].split()[0] for line in sinks if "tcpdump" in line] == ["3", "4", "5"]


@pytest.mark.parametrize(("witness", "filtered"), [("all", [False] * 2), ("1/16", [True] * 2), ("none", [])])
def test_taps_are_those_of_the_witness(witness, filtered):
    lines = output("netns-vmm", f"witness={witness}", profile="response-time", uuts=["raw"], scenarios=["shared-idle"])
    assert ["(tcp[" in line for line in lines if "-NNNNNN-s1-" in line] == filtered


def test_clients_and_taps_are_bound_and_clients_seeded_as_in_trials(monkeypatch):
    monkeypatch.setattr("netbench.testbed.guest_specs.usable_cpus", lambda: [0, 1])
    options = ("topology.neighbours.0.placement=same-cpu", "seed=7")
    lines = output("netns-vmm", *options, profile="response-time", uuts=["raw"], scenarios=["shared-idle"])
    taps = [line for line in lines if "-NNNNNN-s1-" in line]
    (client,) = [line for line in lines if '"seed": ' in line]
    assert [line.split(" taskset -c ")[1][:2] for line in (*taps, client)] == ["0 "] * 3
    assert f'"seed": {client_seed(7, 1, VICTIM, "s1")}' in client
