"""JSON Schemas for editors: they accept what netbench accepts, and refuse mistyped values."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from netbench.config.document import read_document, yaml_value
from netbench.config.schema import SCHEMAS, schema_text
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped

ROOT = Path(__file__).parents[2]
VALIDATORS = {what: Draft7Validator(json.loads(schema_text(what))) for what in SCHEMAS}
FILES = [
    *(("topology", path) for path in shipped(TOPOLOGIES).values()),
    *(("profile", path) for path in shipped(PROFILES).values()),
]


@pytest.mark.parametrize("what", SCHEMAS)
def test_the_shipped_schemas_are_those_of_the_models(what):
    assert (ROOT / "schemas" / f"{what}.json").read_text() == schema_text(what), "run `make schemas`"
    Draft7Validator.check_schema(json.loads(schema_text(what)))


@pytest.mark.parametrize(("what", "path"), FILES, ids=[path.stem for _, path in FILES])
def test_what_is_shipped_fits_its_schema_and_names_it(what, path):
    assert [error.message for error in VALIDATORS[what].iter_errors(read_document(path).data)] == []
    first, _, _ = path.read_text().partition("\n")
    assert first == f"# yaml-language-server: $schema=../schemas/{what}.json"


LAB = """
hosts: {source: {}, uut: {ports: {a: eth1, b: {nic: eth2, addresses: [192.0.2.7]}}}}
links: [{ends: [uut/a], rate: 1Gbit/s}, {ends: [uut/b], rate: 2.5 Gbit/s, mtu: 9000}]
streams:
  - {name: s1, source: uut/a, sink: uut/b, packet: {headers: ipv6, vary: {IPv6.fl: {from: 1, count: 9}}}}
  - {name: back, reverse: s1}
uuts:
  - {name: x, kind: raw, forward: xdp, cpu_limit: 50%, host_cpus: [1]}
  - {name: y, kind: qemu, cpus: 2, memory: 512M, boot_limit: 2min, channel: {kind: ssh, key: k, host_key: h}}
neighbours: [{name: n, streams: s1, placement: same-cpu, cpus: 2}]
"""
PROFILE = """
frame_sizes: [64, imix, {name: mine, genome: aaag}]
loads: 50%
streams: each
scenarios: [dedicated, cpu-heavy, {network: [50%, 95%], streams: 1}, {name: own, activity: {stress: {cpu: 2}}}]
duration: 500ms
warm_up: 0.1
warm_up_trials: auto
tolerance: 0.5%
generator: {kind: afpacket, threads: 2}
sink: bpf
maxima: {kind: search, loss: 0%, duration: 1s}
captures_limit: 10G
packet: [plain, vlan, Ether()/IP()/UDP(), {name: m, headers: Ether()/IP()/UDP(), vary: {UDP.sport: {random: 1-9}}}]
vary: {IP.src: {from: 198.18.1.1, to: 198.18.1.9, step: 2}, UDP.sport: {list: [1, 2]}, combined: true}
expect: Ether()/IP(ttl=any)/UDP()
"""


@pytest.mark.parametrize(("what", "text"), [("topology", LAB), ("profile", PROFILE)])
def test_all_ways_to_write_something_fit(what, text):
    assert [error.message for error in VALIDATORS[what].iter_errors(yaml_value(text))] == []


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("topology", "rate: 1Gbit/s", "rate: 1Gbps"),
        ("topology", "rate: 1Gbit/s", "rate: 1000"),
        ("topology", "rate: 1Gbit/s", "speed: 1Gbit/s"),
        ("topology", "cpu_limit: 50%", "cpu_limit: 0.5"),
        ("topology", "cpu_limit: 50%", "cpu_wieght: 5"),
        ("topology", "kind: raw", "kind: rwa"),
        ("topology", "kind: raw", "kind: raw, cpus: 2"),
        ("topology", "forward: xdp", "forward: dpx"),
        ("topology", "kind: ssh, key: k", "kind: ssh, kee: k"),
        ("topology", "memory: 512M", "memory: 512"),
        ("topology", "name: back", "nam: back"),
        ("profile", "loads: 50%", "loads: 10Mbps"),
        ("profile", "loads: 50%", "loads: [100 kpps]"),
        ("profile", "frame_sizes: [64", "frame_sizes: [63"),
        ("profile", "duration", "duratoin"),
        ("profile", "500ms", "500 msec"),
        ("profile", "cpu-heavy", "cpu-hevy"),
        ("profile", "threads: 2", "thread: 2"),
        ("profile", "sink: bpf", "sink: bfp"),
        ("profile", "tolerance: 0.5%", "tolerance: 0.005"),
        ("profile", "headers: Ether", "header: Ether"),
        ("profile", "step: 2", "stp: 2"),
        ("profile", "combined: true", "combined: 1"),
        ("topology", "count: 9", "count: 0"),
    ],
)
def test_what_is_mistyped_does_not(what, old, new):
    text = {"topology": LAB, "profile": PROFILE}[what]
    assert old in text
    assert not VALIDATORS[what].is_valid(yaml_value(text.replace(old, new, 1)))
