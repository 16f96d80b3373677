"""A VMM from an extension: it fulfils the contract, and works in all parts of a campaign."""

import pytest

from netbench.config.shipped import TOPOLOGIES, find
from netbench.model.topology_specs import UutSpec
from tests.breakages import NOTHING, SENT, load_shipped, measured, no_route_in_guest, ruled
from tests.commands import FEW, netbench, rows, settings
from tests.contract.vmm_contract import VmmContract

pytestmark = pytest.mark.root

SEVEN = "numgen inc mod 100 < 7 counter drop"
BREAKAGES = [
    ruled("before it", "uut", "netdev egress nb-vi-s1", SEVEN, {"ingress veth (nft netdev x c rule 2)": 14}),
    no_route_in_guest("nb-ve-s1"),
    ruled("behind it", "uut", "netdev ingress nb-ve-s1", SEVEN, {"egress veth (nft netdev x c rule 2)": 14}),
]


class TestNamespaces(VmmContract):
    @pytest.fixture(autouse=True)
    def _found(self, installed):
        """The example is installed."""

    def vmm(self):
        from netbench_example.namespace_guest import Namespaces

        return Namespaces(Namespaces.Options(forward="route"))


@pytest.fixture
def topology(tmp_path):
    """A guest of this VMM beside another one."""
    shared, _, _ = find(TOPOLOGIES, "netns-vmm").read_text().replace("netns-vmm", "nbt-space").partition("uuts:")
    path = tmp_path / "outside.yaml"
    path.write_text(f"{shared}uuts:\n  - {{name: space, kind: namespace, forward: route}}\n")
    return path


def test_a_campaign_with_its_neighbours_and_a_report(installed, topology, results):
    assert "A network namespace of this machine" in netbench("list").stdout
    chosen = [*FEW, *settings(loads="800fps", duration="250ms")]
    scenarios = settings(scenarios="[dedicated, shared-idle, {network: [500fps]}]")
    output = netbench("run", topology, "quick", "--dry-run", *chosen, *scenarios).stdout
    for wanted in ("ip netns add nb-RUN-uut-space", "type veth peer nb-vi-s1", "guest: ip address add 198.18.1.1/24"):
        assert wanted in output
    assert "neighbour second of UUT space (namespace)" in output
    done = netbench("run", topology, "quick", "-o", results, *chosen, *scenarios)
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert {row["scenario"] for row in found} == {"dedicated", "shared-idle", "network-500fps"}
    assert all(row["sent_frames"] == row["received_frames"] != "0" and row["lost_at"] == "" for row in found)
    assert "space" in (results / "report.html").read_text()


def test_losses_are_placed_to_the_frame(installed, tmp_path):
    spec = UutSpec.model_validate({"name": "space", "kind": "namespace", "forward": "route"})
    reported = measured(load_shipped("netns"), spec, BREAKAGES, tmp_path)
    assert reported == {breakage.name: (SENT, breakage.lost, 0, breakage.kinds) for breakage in [*BREAKAGES, NOTHING]}
