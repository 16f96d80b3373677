"""Searches have one source and one sink at all loads; a user who wants otherwise gets a warning."""

import pytest

from netbench.campaign.request import read_request
from netbench.config.shipped import PROFILES, TOPOLOGIES, find
from netbench.model.verdict import WarningKind
from netbench.plan.schedule_factory import held_steady
from netbench.plan.warnings import expected_warnings
from tests.unit.inputs import profile, topology

SEARCH = {"loads": [], "schedule": {"kind": "search", "method": "rfc2544", "highest": "1600fps", "width": "10%"}}
NOT = {"kind": "auto", "steady": False}
STEADY = {"steady": True}


def asked(*settings, name="quick"):
    return read_request(find(TOPOLOGIES, "netns"), find(PROFILES, name), settings=settings).profile


def test_a_search_with_a_profile_that_reports_nothing_has_one_source_and_one_sink():
    found = asked("schedule.kind=search", "generator=auto", "sink=auto")
    assert (found.generator.kind, found.generator.options, found.sink.kind, found.sink.options) == (
        *("auto", STEADY),
        *("auto", STEADY),
    )
    assert asked("schedule.kind=search", "generator=afpacket").generator.options == {}
    plain = asked("generator=auto", "sink=auto")
    assert (plain.generator.options, plain.sink.options) == ({}, {}), "a sweep may have two"
    assert asked(name="ndr") == held_steady(asked(name="ndr"))


def test_who_wants_two_gets_two_and_is_reported():
    found = held_steady(profile(**SEARCH, generator=NOT, sink="auto"))
    assert (found.generator.options, found.sink.options) == ({"steady": False}, STEADY)
    output = [
        warning.text
        for warning in expected_warnings(topology(), found, 64)
        if warning.kind is WarningKind.TESTER_FOLLOWS_LOAD
    ]
    (text,) = output
    assert "The generator auto is not `steady`" in text
    assert "--set 'generator={kind: auto, steady: true}'" in text


@pytest.mark.parametrize(
    ("wanted", "warned"),
    [
        ({**SEARCH, "generator": NOT, "sink": NOT}, 2),
        ({**SEARCH, "generator": "auto"}, 1),  # as in a campaign that was begun by an earlier version
        ({**SEARCH, "generator": {"kind": "auto", **STEADY}}, 0),
        ({**SEARCH, "generator": "afpacket"}, 0),
        ({"generator": NOT, "sink": NOT}, 0),
    ],
)
def test_only_searches_are_warned_of(wanted, warned):
    kinds = [warning.kind for warning in expected_warnings(topology(), profile(**wanted), 64)]
    assert kinds.count(WarningKind.TESTER_FOLLOWS_LOAD) == warned
