"""Kinds of virtualisation in the report; UUTs that are not comparable are not compared."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netbench.model.campaign import Boot, CampaignResults
from netbench.model.virtualisation import Setting
from netbench.testbed.testbed import Testbed
from netbench.uut.base import Ready
from tests.unit.charts import figures_on
from tests.unit.interference_factory import paper_campaign
from tests.unit.report_page import page_of, report_page
from tests.unit.results_factory import campaign, comparison, guests, stream_counts, trial

NO_KVM = "this host has no /dev/kvm"
IN_LAB = {"vm": "lab", "vm_accelerator": "tcg", "vm_emulated": NO_KVM}
FACTS: dict[str, dict[str, str]] = {
    "xen-pv": {**IN_LAB, "virtualisation": "para", "attachment": "vif"},
    "kvm": {**IN_LAB, "virtualisation": "hardware-assisted", "accelerator": "kvm", "attachment": "macvtap"},
    "twice": {**IN_LAB, "virtualisation": "full", "accelerator": "tcg", "emulated": NO_KVM, "attachment": "tap"},
    "tcg": {
        "virtualisation": "full",
        "accelerator": "tcg",
        "emulated": NO_KVM,
        "nic": "e1000",
        "nic_kind": "emulated",
        "attachment": "tap",
    },
    "lxc": {"virtualisation": "os-level", "attachment": "veth"},
    "device": {},
    "raw": {"virtualisation": "none"},
}


def drawn_together(page: str) -> set[frozenset[str]]:
    """The UUTs of each figure."""
    return {frozenset(map(str, figure.uuts)) for figure in figures_on(page)}


@pytest.mark.parametrize(
    "results", [guests(), paper_campaign(emulated=("kvm", "xen"), mishaps=False)], ids=["guests", "paper"]
)
def test_no_figure_has_uuts_in_it_whose_cpu_is_emulated_and_others(results: CampaignResults) -> None:
    emulated, figures = results.emulated, drawn_together(report_page(results))
    assert any(emulated <= figure for figure in figures)
    assert any({"raw"} <= figure for figure in figures)
    assert [figure for figure in figures if figure & emulated and figure & (set(results.uuts) - emulated)] == []


def test_the_page_reports_first_what_was_compared_and_the_baseline_where_there_is_one() -> None:
    """The baseline is the first UUT of the topology, even if others are shown before it; each setting has its own."""
    facts = {"lxc": FACTS["lxc"], "raw": FACTS["raw"], "kvm": {"accelerator": "tcg", "emulated": NO_KVM}}
    trials = [trial(stream_counts(), uut=uut) for uut in facts]
    alike = page_of(campaign(trials[:2], uuts=("lxc", "raw"), facts=facts))
    assert "Baseline: lxc." in alike.text
    several = page_of(campaign(trials, uuts=("lxc", "raw", "kvm"), facts=facts))
    assert "Baseline:" not in several.text


def test_uuts_are_grouped_by_where_they_ran_and_by_kind() -> None:
    trials = [trial(stream_counts(), uut=uut) for uut in FACTS]
    results = campaign(trials, uuts=tuple(FACTS), facts={uut: facts for uut, facts in FACTS.items() if facts})
    starts = (
        Boot("lxc", 1, 0.5, 3 << 20),
        Boot("lxc", 3, 0.25, None),
        Boot("lxc", 4, 1.5, 1 << 20),
        Boot("raw", 2, 0.1),
    )
    results = replace(results, boots=starts)
    page = page_of(results)
    text = page.text[page.text.index("Platforms Virtualisation, CPU and NICs") :]
    rows = (
        "No virtualisation raw native this one native 0.10 s –",
        "OS-level virtualisation lxc native this one attached by veth"
        " 0.50 s (0.25 to 1.50, 3 starts) 2.00 MiB (1.00 to 3.00, 2 starts)",
        f"Paravirtualisation xen-pv (emulated) native VM lab, CPU emulated, tcg: {NO_KVM} attached by vif",
        f"Full virtualisation, by a program tcg (emulated) emulated, tcg: {NO_KVM} this one e1000 (emulated),"
        " attached by tap",
        "twice (emulated) emulated, tcg:",
        "Full virtualisation, hardware-assisted kvm (emulated) hardware-assisted, kvm VM lab",
    )
    assert sorted(map(text.index, rows)) == [text.index(row) for row in rows]
    assert "The UUTs ran on different CPUs" in text
    together = drawn_together(page.source)
    for setting in ({"raw", "lxc", "device"}, {"tcg"}, {"xen-pv", "kvm"}, {"twice"}):
        assert frozenset(setting) in together, setting
    assert "On VM lab, CPU emulated inside an emulated one" in page.text


def test_where_all_ran_on_the_same_cpu_nothing_is_apart() -> None:
    assert "On this machine" not in page_of(comparison(sizes=(64,), repetitions=1)).text
    kinds = {"raw": {"virtualisation": "none"}, "kvm": {"virtualisation": "os-level"}}
    text = page_of(replace(comparison(uuts=("raw", "kvm"), sizes=(64,), repetitions=1), facts=kinds)).text
    assert "Platforms Virtualisation, CPU and NICs" in text
    assert "The UUTs ran on different CPUs" not in text


def test_what_a_guest_reports_of_its_cpu_does_not_hide_what_its_machine_reports() -> None:
    def output(machine: Mapping[str, str], guest: Mapping[str, str]) -> dict[str, str]:
        without: dict[str, Any] = {"_flow_facts": lambda active: {}, "_client_facts": dict}
        testbed: Any = SimpleNamespace(_uut_machine=SimpleNamespace(facts=machine), **without)
        return Testbed.facts(testbed, cast(Any, SimpleNamespace(ready=Ready({}, 0.0, facts=guest))))

    lab, emulated = {"vm": "lab", "accelerator": "tcg", "emulated": NO_KVM}, {"accelerator": "tcg", "emulated": "asked"}
    assert output(lab, {"accelerator": "kvm"}) == {**IN_LAB, "accelerator": "kvm"}
    assert [Setting.of(output(*both)) for both in (({}, {}), ({}, emulated), (lab, {}), (lab, emulated))] == [
        Setting(),
        Setting("", 1),
        Setting("VM lab", 1),
        Setting("VM lab", 2),
    ]
