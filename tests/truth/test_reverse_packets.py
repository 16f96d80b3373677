"""Described packets in both directions at once, and the first trial of a router of IPv6."""

import subprocess
from pathlib import Path

import pytest

from tests.commands import PATIENT, netbench, rows, settings

pytestmark = pytest.mark.root

FRAMES = 200  # as many as fit in the ring of a link
WANTED = settings(loads="2kfps", repetitions=1, duration="100ms", frame_sizes=128, retries=8, generator="afpacket")
MACS = '{name: macs, headers: "Ether(src=\\"02:00:00:00:01:01\\",dst=\\"02:00:00:00:02:02\\")/IP()/UDP()"}'
MANY = """{name: many, headers: Ether()/IP()/UDP(),
  vary: {Ether.src: {from: "02:00:00:00:01:00", count: 50}, Ether.dst: {from: "02:00:00:00:02:00", count: 50}}}"""
IPS = '{name: ips, headers: "Ether()/IP(src=\\"10.1.0.1\\",dst=\\"10.2.0.2\\")/UDP(sport=1000,dport=2000)"}'
V6 = '{name: v6, headers: "Ether()/IPv6(src=\\"2001:2:9::1\\")/UDP()"}'


@pytest.mark.parametrize(
    ("uut", "packets", "forth", "back"),
    [
        ("bridge", [MACS, MANY], {}, {}),
        ("route", [IPS, V6], {"ips": "10.1.0.1.1000 > 10.2.0.2.2000"}, {"ips": "10.2.0.2.2000 > 10.1.0.1.1000"}),
    ],
)
def test_answers_arrive_whatever_addresses_are_chosen(results, uut, packets, forth, back):
    wanted = settings(packet=f"[{', '.join(packets)}]", sink="tcpdump", keep_captures="all")
    done = netbench("run", "netns-both", "quick", "--uut", uut, "-o", results, *WANTED, *PATIENT, *wanted)
    found = rows(results)
    assert {(row["packet"], row["stream"]) for row in found} == {
        (packet.partition("name: ")[2].partition(",")[0], stream) for packet in packets for stream in ("forth", "back")
    }, done.stderr
    for row in found:
        assert (row["sent_frames"], row["received_frames"], row["changed_frames"]) == (str(FRAMES), str(FRAMES), "0"), (
            row
        )
        if addresses := {"forth": forth, "back": back}[row["stream"]].get(row["packet"]):
            (capture,) = (results / "captures").glob(f"trial-{int(row['trial']):06}-{row['stream']}*")
            assert f" {addresses}: UDP" in first_line(capture)


def first_line(capture: Path) -> str:
    argv = ["tcpdump", "-nn", "-c1", "-r", str(capture), "udp or ip6"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_no_frame_of_a_router_of_ipv6_itself_is_in_its_first_trials(results):
    """A prespawned tcpdump listens from the moment at which the UUT is ready."""
    wanted = settings(packet="ipv6", sink="tcpdump", repetitions=12, reboot="trial")
    netbench("run", "netns", "quick", "--uut", "route", "-o", results, *WANTED, *PATIENT, *wanted)
    found = rows(results)
    assert [row["foreign_frames"] for row in found] == ["0"] * 12
