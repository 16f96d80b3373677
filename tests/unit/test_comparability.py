"""The reported differences of two campaigns other than their numbers."""

import json
from dataclasses import replace

import pytest

from netbench.model.tester import Identities, LinkIdentity
from netbench.results.comparability import campaign_differences, configuration_differences
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import IDENTITIES, leaves
from tests.unit.comparison_factory import exact_campaign, stored
from tests.unit.flows_factory import flow, flow_campaign, flow_trial
from tests.unit.inputs import topology
from tests.unit.results_factory import MANIFEST

ENVIRONMENT = {
    "kernel": {"release": "6.1.0-31", "parameters": {"mitigations": None}},
    "cpu": {"model": "Xeon", "governor": "performance"},
    "activity": {"load_average": [1.0]},
    "sysctls": {"net.core.rmem_max": "212992"},
    "namespaces": {
        "nb-netns-3-uut": {"sysctls": {"vm.swappiness": "60"}, "nics": {"nb-in1": {"offloads": ["rx-gro", "tso"]}}}
    },
}


def output(changes, **more):
    """Return the differences between a campaign and one with these changes of its environment."""
    base = exact_campaign()
    environment = {**ENVIRONMENT, **changes}
    return campaign_differences(
        replace(base, manifest={**MANIFEST, "before": ENVIRONMENT}),
        replace(base, manifest={**MANIFEST, "before": environment, **more}),
    )


def test_what_rates_depend_on_matters_and_comes_first():
    kernel = {"release": "6.1.0-32", "parameters": {"mitigations": "off"}}
    found = output(
        {"sysctls": {"net.core.rmem_max": "1"}, "kernel": kernel, "cpu": {"model": "Xeon", "governor": "powersave"}},
        netbench="0.2.0",
    )
    assert [(str(difference), difference.matters) for difference in found] == [
        ("netbench: 0.1.0 → 0.2.0", True),
        ("kernel.release: 6.1.0-31 → 6.1.0-32", True),
        ("kernel.parameters.mitigations: unknown → off", True),
        ("cpu.governor: performance → powersave", True),
        ("sysctls.net.core.rmem_max: 212992 → 1", False),
    ]


def test_equal_ones_differ_in_nothing_and_how_busy_a_host_was_is_no_setting():
    assert output({}) == ()
    assert output({"activity": {"load_average": [9.0]}}) == ()


def test_of_offloads_those_are_reported_that_one_has_alone_whatever_the_topology_is_called():
    base = exact_campaign()
    other = {**ENVIRONMENT, "namespaces": {"nb-lab-uut": {"nics": {"nb-in1": {"offloads": ["tso"]}}}}}
    found = campaign_differences(
        replace(base, manifest={**MANIFEST, "before": ENVIRONMENT}),
        replace(base, topology="lab", manifest={**MANIFEST, "before": other}),
    )
    assert [str(difference) for difference in found if difference.matters] == [
        "namespaces.uut.nics.nb-in1.offloads: with rx-gro → without"
    ]


def test_facts_of_uuts_and_where_they_ran_are_reported():
    base = exact_campaign()
    before = replace(base, facts={"raw": {"qemu": "7.2"}, "gone": {"qemu": "7.2"}})
    after = replace(base, facts={"raw": {"qemu": "8.2", "vm": "lab"}})
    assert [str(difference) for difference in campaign_differences(before, after)] == [
        "UUT raw: On this machine, CPU not emulated → On VM lab, CPU not emulated",
        "UUT raw: qemu: 7.2 → 8.2",
        "UUT raw: vm: unknown → lab",
    ]


def test_keys_of_topologies_that_differ_are_reported_with_their_values(tmp_path):
    base = ResultDirectory(stored(tmp_path / "base", exact_campaign()))
    faster = topology(uuts=[{"name": "bridge", "kind": "raw", "forward": "route"}], description="another")
    new = ResultDirectory(stored(tmp_path / "new", exact_campaign(), faster))
    assert [(str(difference), difference.matters) for difference in configuration_differences(base, new)] == [
        ("topology: uuts.0.forward: not there → route", True),
        ("topology: description: empty → another", False),
    ]
    (tmp_path / "new" / "topology.yaml").write_text("[")
    assert str(configuration_differences(base, new)[0]) == "topology: uuts.0.forward: not there → unknown"


VXLAN = {"name": "mine", "headers": "Ether()/IP()/UDP()"}


@pytest.mark.parametrize(
    ("base", "new", "differences"),
    [
        ([VXLAN, "vlan"], ["vlan", VXLAN], []),
        (
            ["plain", VXLAN],
            [{**VXLAN, "headers": "Ether()/IPv6()/UDP()"}, "plain"],
            ["profile: packet.mine.headers: Ether()/IP()/UDP() → Ether()/IPv6()/UDP()"],
        ),
        (
            ["plain", "vlan"],
            ["plain", "gre"],
            ["profile: packet.vlan: vlan → not there", "profile: packet.gre: not there → gre"],
        ),
    ],
)
def test_packets_of_two_profiles_are_matched_by_name(tmp_path, base, new, differences):
    directories = []
    for name, packets in (("base", base), ("new", new)):
        directory = ResultDirectory(stored(tmp_path / name, exact_campaign()))
        document = {"packet": packets}
        directory.profile.write_text(json.dumps(document))
        manifest = directory.read_manifest()
        manifest["digests"]["profile"] = {key: str(value) for key, value in leaves(document)}
        directory.manifest.write_text(json.dumps(manifest))
        directories.append(directory)
    assert [str(difference) for difference in configuration_differences(*directories)] == differences


PASSING = [
    ("napi; kernel thread napi/nb-in1-585; CPU 1", "napi; kernel thread napi/nb-in1-587; CPU 1"),
    ("kernel thread napi/eth0.100-8193", "kernel thread napi/eth0.100-12"),
    ("owner netbench, pid 4711", "owner netbench, pid 815"),
    ("process id 12 of trex", "process id 99 of trex"),
    ("/proc/123/root/proc", "/proc/9/root/proc"),
    ("/run/netbench/guests/lab-0123456789ab/uut-vm", "/run/netbench/guests/lab-ba9876543210/uut-vm"),
    ("group nb-0123456789ab-vm", "group nb-00aa11bb22cc-vm"),
]
LASTING = [
    ("napi; kernel thread napi/nb-in1-585; CPU 1", "napi; kernel thread napi/nb-in1-585; CPU 0"),
    ("napi/nb-in1-585", "napi/nb-in2-585"),
    ("image micro 0123456789ab", "image micro ba9876543210"),
    ("Linux 6.1.0-31-amd64", "Linux 6.1.0-32-amd64"),
    ("2 threads", "4 threads"),
]


@pytest.mark.parametrize(
    ("before", "after", "differs"), [*((*pair, 0) for pair in PASSING), *((*pair, 1) for pair in LASTING)]
)
def test_numbers_that_are_others_in_each_run_are_no_difference(before, after, differs):
    """They may occur in the facts of a UUT and in the environment."""
    base = exact_campaign()
    sides = [replace(base, facts={"raw": {"where": value}}) for value in (before, after)]
    assert len(campaign_differences(*sides)) == differs
    manifests = [{**MANIFEST, "before": {"sysctls": {"where": value}}} for value in (before, after)]
    assert len(campaign_differences(*(replace(base, manifest=manifest) for manifest in manifests))) == differs


def test_a_link_whose_kernel_thread_has_another_number_is_the_same():
    base = exact_campaign()

    def manifest(thread, cpus):
        links = {"s1": LinkIdentity("napi", thread, cpus)}
        return IDENTITIES.put(MANIFEST, (Identities("2026-01-01T00:00:00+00:00", {}, {}, links),))

    first, again, other = (
        replace(base, manifest=manifest(*binding))
        for binding in (("napi/nb-in1-585", (1,)), ("napi/nb-in1-587", (1,)), ("napi/nb-in1-587", (0,)))
    )
    assert campaign_differences(first, again) == ()
    assert [str(difference) for difference in campaign_differences(first, other)] == [
        "links of s1: napi; kernel thread napi/nb-in1…; CPU 1 → napi; kernel thread napi/nb-in1…; CPU 0"
    ]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("iperf 3.12", "iperf 3.16"), ["tool http: iperf 3.12 → iperf 3.16"]),
        (("iperf 3.12", "iperf 3.12"), []),
        (("iperf 3.12", ""), []),
    ],
)
def test_another_version_of_a_tool_matters(versions, expected):
    base, new = (flow_campaign([flow_trial(flow(tool=version))]) for version in versions)
    found = campaign_differences(base, new)
    assert [str(difference) for difference in found if difference.matters] == expected
