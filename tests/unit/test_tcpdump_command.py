"""The tcpdump command of a trial."""

from dataclasses import replace
from pathlib import Path

import pytest

from netbench.sinks.tcpdump_process import ring_bytes, target_of, tcpdump_command
from tests.unit.stand_in_for_tcpdump import IN_VM, PATH, incoming


def test_the_command(tmp_path):
    target = tmp_path / "x.pcap"
    command = tcpdump_command("nb-rx1", (), incoming(), target)
    *options, expression = command
    assert options == (
        ["tcpdump", "-i", "nb-rx1", "-n", "-p", "-Z", "root", "-s", "64", "-B", "4096", "-w", str(target)]
    )
    assert expression == (
        f"(udp and src net 198.18.1.0/24 and dst host {PATH.dst_ip}) or "
        "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0) or ether proto 0x88cc"
    )
    assert tcpdump_command("nb-rx1", (3, 4), incoming(), target) == ["taskset", "-c", "3,4", *command]
    piped = tcpdump_command("nb-rx1", (), incoming(), None)
    assert piped[piped.index("-w") + 1] == "-"


@pytest.mark.parametrize(
    ("path", "keep", "target"),
    [
        (PATH, False, None),
        (PATH, True, "c/x.pcap"),
        (IN_VM, False, "/tmp/x.pcap"),
        (IN_VM, True, "/tmp/x.pcap"),
        (replace(PATH, source=IN_VM.source), False, "c/x.pcap"),
    ],
)
def test_where_a_capture_goes(path, keep, target):
    """A capture is counted live only if its stream begins and ends on this machine: late frames need one clock."""
    assert target_of(incoming(path=path, keep=keep)) == (None if target is None else Path(target))


@pytest.mark.parametrize(
    ("fps", "snap", "mib"),
    [
        (1.0, 64, 4),  # never less
        (1_488_095.0, 64, 1_488_095 * 176 / 2**20),
        (81_274.0, 262_144, 81_274 * 1626 / 2**20),  # no frame is larger than 1514 bytes
        (14_880_952.0, 64, 256),  # never more
        (None, 64, 128),
    ],
)
def test_the_ring_holds_a_second_of_frames(fps, snap, mib):
    assert ring_bytes(fps, snap) == int(mib * 2**20)
