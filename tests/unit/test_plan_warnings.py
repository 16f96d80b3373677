"""Warnings that testbed and profile imply for the numbers, given before the first frame is sent."""

import pytest

from netbench.model.verdict import WarningKind
from netbench.plan.warnings import expected_warnings, refused_loads
from tests.unit.fakes import fake_ports
from tests.unit.inputs import profile, topology

GOOD = {"duration": "10s", "repetitions": 9}

PORTS = fake_ports()


def found(lab, wanted, cpus=64):
    return {warning.kind: warning.text for warning in expected_warnings(lab, wanted, cpus)}


def test_real_ports_enough_cpus_and_time_need_no_caveat():
    assert found(PORTS, profile(**GOOD), cpus=2) == {}


def test_on_veth_overload_is_unsent_unless_it_receives_from_a_ring():
    assert list(found(topology(), profile(**GOOD))) == [WarningKind.VETH_OVERLOAD_IS_UNSENT]
    rings = [{**link.model_dump(mode="json"), "receive": "napi"} for link in topology().links]
    assert found(topology(links=rings), profile(**GOOD)) == {}


@pytest.mark.parametrize(
    ("lab", "streams", "needed"), [(topology(), [], 3), (topology(2), [], 6), (topology(3), [1, 2], 6), (PORTS, [], 2)]
)
def test_too_few_cpus(lab, streams, needed):
    wanted = profile(**GOOD, streams=streams)
    assert WarningKind.SHARED_CPUS not in found(lab, wanted, cpus=needed)
    assert f"({needed} would give each its own)" in found(lab, wanted, cpus=needed - 1)[WarningKind.SHARED_CPUS]


def test_singular_and_plural():
    assert "of 1 stream share 1 CPU of" in found(topology(), profile(**GOOD), cpus=1)[WarningKind.SHARED_CPUS]
    assert "of 2 streams share 2 CPUs of" in found(topology(2), profile(**GOOD), cpus=2)[WarningKind.SHARED_CPUS]


@pytest.mark.parametrize(("load", "nominal"), [("50%", True), ("10Mbit/s", True), ("1000fps", False), ("max", False)])
def test_a_line_rate_that_nothing_enforces(load, nominal):
    """Only a load that is a share of the line rate depends on it."""
    assert (WarningKind.NOMINAL_LINE_RATE in found(topology(), profile(**GOOD, loads=[load]))) is nominal
    assert WarningKind.NOMINAL_LINE_RATE not in found(PORTS, profile(**GOOD, loads=[load]))


def test_loads_above_line_rate():
    wanted = profile(**GOOD, loads=["1Gbit/s", "2Gbit/s", "3Gbit/s"])
    text = found(topology(), wanted)[WarningKind.ABOVE_LINE_RATE]
    assert text == (
        "Above the nominal line rate of the link: 2Gbit/s at 64 bytes on source/tx1 (line rate 1,488,095 frames/s) "
        "and 1 more. Nothing enforces this rate. Request lower loads, or raise `rate` of the link."
    )
    assert WarningKind.ABOVE_LINE_RATE not in found(topology(), profile(**GOOD, loads=["100%", "1Gbit/s"]))


@pytest.mark.parametrize(("duration", "short"), [("999ms", True), ("1s", False)])
def test_short_trials(duration, short):
    kinds = found(PORTS, profile(duration=duration, repetitions=9))
    assert (WarningKind.SHORT_TRIALS in kinds) is short


@pytest.mark.parametrize(("repetitions", "text"), [(1, "1 repetition:"), (2, "2 repetitions:"), (3, None)])
def test_few_repetitions(repetitions, text):
    reported = found(PORTS, profile(duration="10s", repetitions=repetitions)).get(WarningKind.FEW_REPETITIONS)
    assert reported is None if text is None else reported.startswith(text)


def test_a_load_that_no_trial_has_time_for_a_frame_of_is_impossible():
    assert refused_loads(topology(), profile(loads=["1fps", "max"])) == ""
    assert refused_loads(topology(), profile(loads=["10fps"], duration="100ms")) == ""
    assert refused_loads(topology(), profile(loads=["2fps", "0.5fps"])) == (
        "profile one: loads: 0.5fps at 64 bytes is one frame every 2 s: no frame is due within the duration (1 s); "
        "raise the load or the duration"
    )


def test_only_a_real_cable_makes_a_load_impossible():
    too_much = profile(loads=["1Gbit/s", "2Gbit/s"])
    assert refused_loads(topology(), too_much) == ""
    assert refused_loads(PORTS, profile(loads=["1Gbit/s", "100%", "max"])) == ""
    assert refused_loads(PORTS, too_much) == (
        "profile one: loads: above line rate: 2Gbit/s at 64 bytes on t/tx (line rate 1,488,095 frames/s)"
    )


def test_streams_with_their_own_packet_are_named():
    lab = topology(2)
    streams = [{"name": stream.name, **stream.nics_by_role} for stream in lab.streams]
    lab = topology(2).model_validate(
        {**lab.model_dump(exclude_defaults=True), "streams": [streams[0], {**streams[1], "packet": "vlan"}]}
    )
    text = found(lab, profile(**GOOD))[WarningKind.STREAM_PACKETS]
    assert text.startswith("Streams with their own packet: s2 (vlan). ")
    assert WarningKind.STREAM_PACKETS not in found(topology(2), profile(**GOOD))
