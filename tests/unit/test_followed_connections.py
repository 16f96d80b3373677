"""Taps that follow a part of the connections: the chosen ones, and the range of a percentile."""

import subprocess
from math import inf

import dpkt
import numpy as np
import pytest

from netbench.trial.followed_connections import connection_filter, denominator, likely_range_ns
from tests.unit.flows_factory import latencies

CLIENT, SERVER = "198.18.1.2", "198.18.1.1"


def test_a_part_of_the_connections_is_captured_in_both_directions(tmp_path):
    """tcpdump selects the connections of every eighth pair of ports, whole ones."""
    file, addresses = tmp_path / "all.pcap", [bytes(map(int, address.split("."))) for address in (CLIENT, SERVER)]
    with file.open("wb") as opened:
        writer = dpkt.pcap.Writer(opened)
        for port in range(32768, 60999):
            for source, destination, sport, dport in ((*addresses, port, 80), (*addresses[::-1], 80, port)):
                tcp = dpkt.tcp.TCP(sport=sport, dport=dport)
                ip = dpkt.ip.IP(src=source, dst=destination, p=6, data=tcp, len=40)
                writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=ip)), ts=0)
    argv = ["tcpdump", "-r", str(file), "-w", str(tmp_path / "part.pcap"), connection_filter(CLIENT, 8)]
    subprocess.run(argv, check=True, capture_output=True)
    seen: dict[int, int] = {}
    with (tmp_path / "part.pcap").open("rb") as opened:
        for _, frame in dpkt.pcap.Reader(opened):
            tcp = dpkt.ethernet.Ethernet(frame).data.data
            port = max(tcp.sport, tcp.dport)
            seen[port] = seen.get(port, 0) + 1
    assert set(seen.values()) == {2}
    for parity in (0, 1):
        of_parity = [port for port in seen if port % 2 == parity]
        assert len(of_parity) == pytest.approx((60999 - 32768) / 16, abs=2), "also if all ports are even"


@pytest.mark.parametrize(("witness", "expected"), [("all", 1), ("1/2", 2), ("1/64", 64), ("none", 0)])
def test_the_part_of_a_profile(witness, expected):
    assert denominator(witness) == expected


@pytest.mark.parametrize("part", [50_000, 95_000, 99_000])
def test_the_percentile_of_all_requests_is_within_the_range(part):
    """Of 400 samples from one distribution, nearly all ranges contain its true percentile; few contain another."""
    draw = np.random.default_rng(7)
    true_ns = float(np.quantile(np.exp(draw.normal(size=1_000_000)), part / 100_000)) * 1e6
    ranges = [
        likely_range_ns(latencies("exchange", np.exp(draw.normal(size=2000)).tolist()), part, 2000) for _ in range(400)
    ]
    within = sum(least <= true_ns <= most for least, most in ranges)
    assert within >= 396
    assert sum(most < 3 * true_ns for _, most in ranges) >= 396, "a tool that is wrong by a factor of 3 is noticed"


def test_few_connections_show_little():
    times = latencies("exchange", [float(number) for number in range(1, 1001)])
    wide, narrow = (likely_range_ns(times, 50_000, connections) for connections in (8, 1000))
    assert wide == (0.0, inf), "a percentile beyond the followed times is unknown"
    assert narrow == pytest.approx((453_000_000, 548_000_000), abs=2_000_000)
