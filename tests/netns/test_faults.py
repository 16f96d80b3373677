"""Faults during a campaign invalidate the trial in which they happen, with the right reason, and no other trial."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import INLINE, PATIENT, netbench, rows, settings, verdict_of
from tests.netns.watching import events, pids_in, wait_for

pytestmark = pytest.mark.root

CAMPAIGN = [
    *settings(frame_sizes=64, loads="5000fps", duration="600ms", retries=0, order="sequential"),
    *(*PATIENT, *INLINE),
]
FOREIGN = """
import socket, sys, time
frames = {
    "arp": bytes.fromhex("ffffffffffff0253000000010806"),
    "udp": bytes.fromhex("026e620002020253000000010800450000200000000040110000c6120102c6130102"),
}
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
    sender.bind((sys.argv[1], 0))
    for _ in range(100):
        sender.send(frames[sys.argv[2]].ljust(60, b"\\0"))
        time.sleep(0.001)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def down_and_up(host, nic):
    def do(_campaign):
        ip("-n", f"nb-netns-{host}", "link", "set", nic, "down")
        time.sleep(0.05)
        ip("-n", f"nb-netns-{host}", "link", "set", nic, "up")

    return do


def signalled(host, program, *numbers):
    def do(_campaign):
        (pid,) = pids_in(f"nb-netns-{host}", program)
        for number in numbers:
            os.kill(pid, number)
            time.sleep(0.2)

    return do


def foreign(host, nic, kind):
    def do(_campaign):
        ip("netns", "exec", f"nb-netns-{host}", sys.executable, "-c", FOREIGN, nic, kind)

    return do


def without_its_bridge(_campaign):
    ip("-n", "nb-netns-uut", "link", "delete", "nb-br-s1")


def controller_held_up(campaign):
    campaign.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    campaign.send_signal(signal.SIGCONT)


# The faults, each with the required verdict and reason.
FAULTS = {
    "the source's NIC goes down": (down_and_up("source", "nb-tx1"), "invalid", "link-down"),
    "the ingress NIC goes down": (down_and_up("uut", "nb-in1"), "invalid", "link-down"),
    "the egress NIC goes down": (down_and_up("uut", "nb-out1"), "invalid", "link-down"),
    "the sink's NIC goes down": (down_and_up("sink", "nb-rx1"), "invalid", "link-down"),
    "the bridge is removed": (without_its_bridge, "invalid", "link-changed"),
    "tcpdump is ended by SIGINT": (signalled("sink", "tcpdump", signal.SIGINT), "invalid", "capture-failed"),
    "tcpdump is killed": (signalled("sink", "tcpdump", signal.SIGKILL), "invalid", "capture-failed"),
    "the generator is killed": (signalled("source", "afpacket", signal.SIGKILL), "invalid", "generator-failed"),
    # The kernel's buffer and the generator's own process compensate for these.
    "tcpdump is held up": (signalled("sink", "tcpdump", signal.SIGSTOP, signal.SIGCONT), "valid", ""),
    "netbench is held up": (controller_held_up, "valid", ""),
    # One kind passes the capture's filter, another is counted by the NIC only; the last leaves through the sink.
    "the UUT sends UDP": (foreign("uut", "nb-out1", "udp"), "suspicious", "foreign-frames"),
    "the UUT sends ARP": (foreign("uut", "nb-out1", "arp"), "suspicious", "foreign-frames"),
    "the sink sends ARP": (foreign("sink", "nb-rx1", "arp"), "suspicious", "foreign-frames"),
}


def test_each_fault_costs_its_own_trial_with_its_reason(results, start):
    """One campaign with a fault in every other trial, and none in the trials between."""
    repeated = settings(repetitions=2 * len(FAULTS))
    campaign = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *CAMPAIGN, *repeated)
    for number, (fault, _, _) in enumerate(FAULTS.values()):
        wait_for(lambda n=2 * number: started(results) > n)
        time.sleep(0.2)
        fault(campaign)
    _, err = campaign.communicate(timeout=60)
    assert campaign.returncode == 1, err
    found = sorted(rows(results), key=lambda row: int(row["trial"]))
    for (fault, (_, verdict, reason)), row, undisturbed in zip(FAULTS.items(), found[::2], found[1::2], strict=True):
        assert (verdict_of(row), reason in row["reasons"]) == (verdict, True), (fault, row)
        if verdict != "invalid":
            assert (row["received_frames"], row["lost_frames"]) == ("3000", "0"), (fault, row)
        if reason == "capture-failed":
            assert (row["received_frames"], row["lost_frames"]) == ("", ""), f"unknown after {fault}"
        of_next = (undisturbed["sent_frames"], undisturbed["received_frames"], verdict_of(undisturbed))
        assert of_next == ("3000", "3000", "valid"), (f"the trial after: {fault}", undisturbed)
    by_name = dict(zip(FAULTS, found[::2], strict=True))
    assert by_name["the UUT sends UDP"]["foreign_frames"] == "100"


@pytest.mark.parametrize(
    ("deleted", "message"),
    [
        (("netns", "delete", "nb-netns-sink"), "namespace nb-netns-sink is gone: other software deleted it"),
        (("-n", "nb-netns-uut", "link", "delete", "nb-in1"), "nb-tx1"),
    ],
)
def test_what_is_deleted_ends_the_campaign_which_goes_on_later(results, start, deleted, message):
    campaign = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *CAMPAIGN, *settings(repetitions=3))
    wait_for(lambda: started(results) == 2)
    time.sleep(0.2)
    ip(*deleted)
    _, err = campaign.communicate(timeout=60)
    assert (campaign.returncode, message in err, "Traceback" in err) == (4, True, False), err
    assert f"netbench resume {results}" in err
    assert not list(Path("/run/netns").glob("nb-netns-*"))
    before = rows(results)
    assert netbench("resume", results).returncode == 0
    after = rows(results)
    assert all(row in after for row in before)
    assert [(row["received_frames"], verdict_of(row)) for row in after] == [("3000", "valid")] * 3


def started(results):
    return sum(event["kind"] == "trial-started" for event in events(results))
