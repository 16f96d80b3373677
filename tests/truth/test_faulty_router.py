"""Routers that change the headers of some flows wrongly: the sinks count exactly these frames, by field.

All fields vary that a router changes: addresses, TTL and MAC addresses. Rules of nftables make the faults.
"""

import json
import os
from pathlib import Path

import pytest

from tests.commands import PATIENT, netbench, settings
from tests.truth.test_packets import FRAMES, WANTED, exported, topology_in

pytestmark = pytest.mark.root

# A kind of UUT of another package: a kernel that forwards as it is configured, except for additional rules.
FAULTY = """
from dataclasses import replace

from netbench.linux.changes import AddTable
from netbench.uut.forwarding import inside_nics
from netbench.uut.raw import Raw, RawOptions


class FaultyOptions(RawOptions):
    family: str = "ip"
    rule: str = ""


class Faulty(Raw):
    Options = FaultyOptions

    def plan(self, assignment):
        plan = super().plan(assignment)
        paths = assignment.paths if self.options.rule else ()
        return replace(plan, steps=(*plan.steps, *map(self.fault_of, paths)))

    def fault_of(self, path):
        ingress, egress = inside_nics(path)
        chain, _, rule = self.options.rule.replace("EGRESS", egress.interface).partition(";")
        table = f"{self.options.family} faulty"
        rules = [f"add table {table}", f"add chain {table} c {{ {chain}; }}", f"add rule {table} c {rule}"]
        return AddTable(ingress.netns, self.options.family, "faulty", "".join(f"{line}\\n" for line in rules))
"""
PACKET = {
    "headers": "Ether()/IP()/UDP(chksum=None)",
    "vary": {
        "Ether.src": {"from": "02:00:00:00:77:01", "count": 7},
        "IP.src": {"from": "198.18.128.1", "count": 100},
        "IP.dst": {"from": "198.19.128.1", "count": 50},
        "IP.ttl": {"list": [64, 33, 20]},
    },
}
OF_SOURCE, OF_TTL = FRAMES // 100, FRAMES // 3
FORWARD = "type filter hook forward priority 0"
# Options, the chain and the rule that makes the fault, and the changed fields with the number of frames.
ROUTERS = {
    "right": ({}, "", {}),
    "nat-src": ({"nat": "source"}, "", {}),
    "nat-dst": ({"nat": "destination"}, "", {}),
    "one-source": (
        {"nat": "source"},
        "type nat hook postrouting priority 99; ip saddr 198.18.128.7 snat to 10.18.200.7",
        {"IP.chksum": OF_SOURCE, "IP.src": OF_SOURCE, "UDP.chksum": OF_SOURCE},
    ),
    "untranslated": (
        {"nat": "source"},
        "type nat hook postrouting priority 99; ip saddr 198.18.128.9 snat to 198.18.128.9",
        {"IP.chksum": OF_SOURCE, "IP.src": OF_SOURCE, "UDP.chksum": OF_SOURCE},
    ),
    "one-dest": (
        {"nat": "destination"},
        "type nat hook prerouting priority -101; ip daddr 198.19.128.3 dnat to 10.19.200.3",
        {"IP.chksum": 2 * OF_SOURCE, "IP.dst": 2 * OF_SOURCE, "UDP.chksum": 2 * OF_SOURCE},
    ),
    "ttl": ({}, f"{FORWARD}; ip ttl 32 ip ttl set 33", {"IP.ttl": OF_TTL, "IP.chksum": OF_TTL}),
    "ttl-of-source": (
        {"nat": "source"},
        f"{FORWARD}; ip saddr 198.18.128.7 ip ttl set 64",
        {"IP.ttl": OF_SOURCE, "IP.chksum": OF_SOURCE},
    ),
    "mac": (
        {"family": "netdev"},
        'type filter hook egress device "EGRESS" priority 0; ip saddr 198.18.128.7 ether saddr set 02:00:00:00:77:07',
        {"Ether.src": OF_SOURCE},
    ),
}


@pytest.fixture
def with_faulty_routers(tmp_path, monkeypatch):
    """The UUTs' kind `faulty`, installed beside netbench."""
    package, metadata = tmp_path / "package", tmp_path / "package" / "faulty_router-1.dist-info"
    metadata.mkdir(parents=True)
    (package / "faulty_router.py").write_text(FAULTY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-router\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[netbench.uuts]\nfaulty = faulty_router:Faulty\n")
    paths = (str(package), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.mark.parametrize("sink", ["tcpdump", "bpf"])
def test_frames_of_flows_that_a_router_changes_wrongly_are_counted_by_field(
    results: Path, tmp_path: Path, with_faulty_routers: None, sink: str
) -> None:
    uuts = [
        {"name": name, "kind": "faulty", "forward": "route", **options, "rule": rule}
        for name, (options, rule, _) in ROUTERS.items()
    ]
    topology = topology_in(tmp_path, more="".join(f"  - {json.dumps(uut)}\n" for uut in uuts))
    chosen = [word for uut in ROUTERS for word in ("--uut", uut)]
    wanted = settings(packet=json.dumps(PACKET), generator="afpacket", sink=sink)
    done = netbench("run", topology, "quick", "-o", results, *chosen, *WANTED, *PATIENT, *wanted, timeout_s=240)
    assert done.returncode == 0, done.stderr

    found = {row["uut"]: row for row in exported(results)}

    assert set(found) == set(ROUTERS)
    for name, (_, _, changed) in ROUTERS.items():
        row = found[name]
        assert (row["received_frames"], row["lost_frames"]) == (FRAMES, 0), name
        assert {entry["field"]: entry["frames"] for entry in row["changed_fields"]} == changed, name
        assert row["changed_frames"] == max(changed.values(), default=0), name
