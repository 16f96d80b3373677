"""What kind of virtualisation a UUT is, as a reader learns it; QEMU's guests are in test_guest.py."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from netbench.config.plugins import VMMS, plugins
from netbench.uut.base import Assignment, Ready, Site, Step, UnitUnderTest, UutPlan, bring_up
from netbench.uut.external import External, ExternalOptions


class _Ready(UnitUnderTest):
    def ready(self) -> Ready:
        return Ready({}, 0.0, facts={"own": "word"})


SITE = Site(Assignment(), cast(Any, SimpleNamespace(make=list)), {})


@pytest.mark.parametrize(
    ("uut", "facts"),
    [(_Ready(), {"virtualisation": "none", "own": "word"}), (External(ExternalOptions()), {})],
    ids=["none", "unknown"],
)
def test_a_uut_that_is_no_guest_is_not_virtualised_unless_no_one_knows(uut, facts):
    assert bring_up(uut, SITE).ready.facts == facts


class _Started(_Ready):
    def plan(self, assignment: Assignment) -> UutPlan:
        return UutPlan(steps=(SimpleNamespace(command="start"),))

    def take(self, step: Step, site: Site) -> None:
        pass

    def memory_bytes(self) -> int:
        return 4096


def test_how_long_it_took_to_start_is_known_only_of_what_was_started():
    started, found = bring_up(_Started(), SITE), bring_up(_Ready(), SITE)
    assert started.start_s is not None
    assert started.start_s > 0
    assert (started.memory_bytes, found.start_s, found.memory_bytes) == (4096, None, None)


@pytest.mark.parametrize("name", plugins(VMMS))
def test_every_vmm_reports_what_its_guests_are(name):
    assert plugins(VMMS)[name].kinds
