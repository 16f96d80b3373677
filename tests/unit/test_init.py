"""`netbench init`: two files that `netbench run` accepts unchanged; no file of the user is overwritten."""

import re
import subprocess
from pathlib import Path

import pytest

from netbench.campaign.request import CampaignRequest, read_request
from netbench.cli import init
from netbench.cli.init import write_start
from netbench.errors import UsageError
from netbench.linux.safety.ports import CandidatePort


def port(name, speed=None, in_use=()):
    return CandidatePort(name, "02:00:00:00:00:01", None, speed, 1500, True, None, (), in_use)


PORTS = [port("eth0", 1000, ("carries the default route",)), *(port(f"eth{n}", 10_000) for n in (1, 2)), port("eth3")]


@pytest.fixture
def ports(monkeypatch):
    free = {host_port.name for host_port in PORTS if not host_port.in_use} | {"eth#4", "eth\x01"}

    def refuse(name):
        if name not in free:
            raise UsageError(f"port {name}: no")

    monkeypatch.setattr(init, "read_ports", lambda: PORTS)
    monkeypatch.setattr(init, "refuse_unsafe_port", refuse)


def made(directory, *words, ask=None) -> CampaignRequest:
    lines = list(write_start(words, directory, ask))
    assert lines[0] == f"written: {directory / 'topology.yaml'}"
    return read_request(directory / "topology.yaml", directory / "profile.yaml")


def test_namespaces(tmp_path):
    request = made(tmp_path / "new" / "place", "netns")
    assert request.uuts == ("bridge", "route")
    assert len(request.schedule.planned) == 2 * 3 * 3 * 3
    assert not {own_port.nic: own_port.addresses for own_port in request.topology.ports()}


def test_what_stands_there_as_a_comment_can_be_had(tmp_path):
    made(tmp_path, "netns")
    topology, profile = tmp_path / "topology.yaml", tmp_path / "profile.yaml"
    topology.write_text(re.sub(r"^( *)# (- \{name|neighbours:|  - \{name)", r"\1\2", topology.read_text(), flags=re.M))
    profile.write_text(profile.read_text().replace("# scenarios:", "scenarios:"))
    request = read_request(topology, profile)
    assert request.uuts == ("bridge", "route", "container", "vm")
    assert request.scenarios == ("dedicated", "shared-idle", "cpu-heavy")


def test_the_packet_in_a_comment_can_be_had_with_the_sizes_beside_it(tmp_path):
    made(tmp_path, "netns")
    path = tmp_path / "profile.yaml"
    text = re.sub(r"^# ((?:packet|vary): )", r"\1", path.read_text(), flags=re.MULTILINE)
    (sizes,) = re.findall(r"change frame_sizes to (\[.*?\])", text)
    path.write_text(re.sub(r"^frame_sizes: \[.*?\]", f"frame_sizes: {sizes}", text, flags=re.MULTILINE))
    request = read_request(tmp_path / "topology.yaml", path)
    assert request.profile.packets["packet"].flows == 1 << 20
    assert len(request.profile.frame_sizes) == 3
    assert request.topology_argument == str(tmp_path / "topology.yaml")
    path.write_text(path.read_text().replace("[88,", "[87,"))
    with pytest.raises(UsageError, match="88"):
        read_request(tmp_path / "topology.yaml", path)


def test_ports_in_pairs_with_the_rates_that_they_have(tmp_path, ports):
    request = made(tmp_path, "eth1", "eth2")
    assert sorted({own_port.nic: own_port.addresses for own_port in request.topology.ports()}) == ["eth1", "eth2"]
    assert {link.rate for link in request.topology.links} == {10e9}
    assert [stream.name for stream in request.topology.streams] == ["s1"]


def test_each_file_names_a_schema_that_is_there(tmp_path):
    made(tmp_path, "netns")
    for what in ("topology", "profile"):
        first, _, _ = (tmp_path / f"{what}.yaml").read_text().partition("\n")
        named = Path(first.removeprefix("# yaml-language-server: $schema="))
        assert (named.name, named.is_file()) == (f"{what}.json", True)


def test_it_asks_where_somebody_is_there(tmp_path, ports):
    asked = []
    answers = iter(["eth1", " eth3 "])

    def ask(question):
        asked.append(question)
        return next(answers)

    request = made(tmp_path, ask=ask)
    assert sorted({own_port.nic: own_port.addresses for own_port in request.topology.ports()}) == ["eth1", "eth3"]
    assert "eth0             1Gbit/s, in use: carries the default route" in asked[0]
    assert asked[1] == "Which port receives what the UUT forwards? (eth2, eth3)"
    assert made(tmp_path / "none", ask=lambda question: "").uuts == ("bridge", "route"), "no port: namespaces"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name the ports that send and receive, in pairs, or netns"),
        (("eth1",), "ports come in pairs"),
        (("eth1", "eth1"), "ports come in pairs"),
        (("eth1", "eth0"), "port eth0: no"),
        (("eth1", "eth#4"), "no topology has ports with blanks, control characters, quotes, # or"),
        (("eth1", "eth\x01"), "no topology has ports with blanks, control characters, quotes, # or"),
        (("netns", "eth1"), "netns stands alone"),
    ],
)
def test_what_cannot_be_made_leaves_nothing(tmp_path, ports, words, message):
    with pytest.raises(UsageError, match=message):
        list(write_start(words, tmp_path, None))
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_for_ci_replays_the_loads_of_the_base_and_ends_as_the_gate_does(tmp_path):
    made(tmp_path, "netns")
    recipe = tmp_path / "ci.sh"
    commands = tmp_path / "commands"
    fake = tmp_path / "bin" / "netbench"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >>{commands}\n[ "$1" != compare ] || exit 5\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [recipe, "base", "new"], env={"PATH": f"{fake.parent}:/usr/bin:/bin", "ALLOWED": "2"}, check=False
    )
    assert done.returncode == 5
    base, new, gate = commands.read_text().splitlines()
    assert base.endswith("profile.yaml -o base")
    assert new.endswith("profile.yaml --loads-from base -o new")
    assert gate.startswith("compare base new --fail-on-regression 2 --format junit")


@pytest.mark.parametrize("there", ["topology.yaml", "profile.yaml", "ci.sh"])
def test_nothing_is_overwritten(tmp_path, there):
    (tmp_path / there).write_text("mine")
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        list(write_start(("netns",), tmp_path, None))
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"
