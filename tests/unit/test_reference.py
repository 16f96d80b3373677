"""The drops of a reference UUT: their place, their number and their rules."""

import pytest
from pydantic import ValidationError

from netbench.model.stream_paths import stream_paths
from netbench.uut.base import Assignment
from netbench.uut.reference import Limit, Reference, ReferenceOptions
from tests.unit.fakes import planned_commands
from tests.unit.inputs import topology

PATHS = stream_paths(topology(2))
OWN = Assignment("x", PATHS)


def rules(**options):
    """Return its rules as one text."""
    uut = Reference(ReferenceOptions.model_validate(options))
    return next(command for command in planned_commands(uut, OWN) if "nft" in command)


def test_by_default_it_drops_where_it_forwards():
    text = rules(drop={"k": 7, "n": 100})
    assert "add chain bridge nb-x forward { type filter hook forward priority 0; policy accept; }" in text
    match = 'forward iifname "nb-in2" ip saddr 198.18.2.0/24 ip daddr 198.19.2.2'
    assert f"{match} numgen inc mod 100 < 7 counter name nb-s2 drop" in text


@pytest.mark.parametrize(("at", "device"), [("ingress", "nb-in1"), ("egress", "nb-out1")])
def test_or_at_a_nic_of_choosing_whatever_forwards(at, device):
    text = rules(forward="route", drop={"k": 1, "n": 2, "at": at, "random": True})
    assert (
        f'add chain netdev nb-x nb-s1 {{ type filter hook {at} device "{device}" priority 0; policy accept; }}' in text
    )
    assert "nb-s1 ip saddr 198.18.1.0/24 ip daddr 198.19.1.2 numgen random mod 2 < 1 counter name nb-s1 drop" in text


def test_a_limit_is_at_the_ingress_nic_and_bounds_what_passes():
    assert "limit rate over 5000/second burst 20 packets counter name nb-s1 drop" in rules(
        limit={"fps": 5000, "burst": 20}
    )
    assert Limit(fps=5000, burst=20).most_passed(0.1) == 520


def test_a_delay_is_that_of_netem_at_the_egress_nics():
    uut = Reference(ReferenceOptions.model_validate({"drop": {"k": 0, "n": 1}, "delay": "5ms"}))
    netem = [command for command in planned_commands(uut, OWN) if "netem" in command]
    words = "qdisc add dev nb-out{} root netem delay 5000us limit 100000"
    assert [command.partition("nb-lab-uut ")[2] for command in netem] == [words.format(n) for n in (1, 2)]
    assert "netem" in uut.plan(OWN).needs


def test_nothing_and_everything_need_no_count():
    assert "drop" not in rules(drop={"k": 0, "n": 1})
    assert "numgen" not in rules(drop={"k": 5, "n": 5})


@pytest.mark.parametrize("options", [{}, {"drop": {"k": 1, "n": 2}, "limit": {"fps": 1}}])
def test_one_truth_is_given(options):
    with pytest.raises(ValidationError, match="give one of drop and limit"):
        ReferenceOptions.model_validate(options)
