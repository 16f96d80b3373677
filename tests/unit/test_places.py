"""Error positions: line and column of the wrong value, also where one part of a file refers to another."""

import pytest

from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.errors import UsageError

LAB = """\
name: lab
hosts:
  source: {kind: netns}
  uut: {kind: netns}
  sink: {kind: netns}
  tester: {ports: {a: eth1, b: eth2}}
links:
  - {ends: [source/tx1, uut/in1], rate: 1Gbit/s}
  - {ends: [uut/out1, sink/rx1], rate: 1Gbit/s}
  - {ends: [source/tx2, uut/in2], rate: 1Gbit/s}
  - {ends: [uut/out2, sink/rx2], rate: 1Gbit/s}
  - {ends: [tester/a, tester/b], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}
  - name: s2
    source: source/tx2
    ingress: uut/in2
    egress: uut/out2
    sink: sink/rx2
neighbours:
  - {name: second, streams: [s2]}
uuts:
  - {name: bridge, kind: raw}
  - name: route
    kind: raw
    forward: route
    neighbours:
      second: {forward: bridge}
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "streams: [s2]",
            "streams: [s2, s9]",
            "21:34",
            "neighbour second: there is no stream 's9'; streams are s1, s2",
        ),
        ("streams: [s2]", "streams: [s2, s2]", "21:34", "neighbour second: stream 's2' is defined twice"),
        ("sink: sink/rx2", "sink: sink/rx9", "19:11", "NIC sink/rx9 is used by a stream but is the end of no link"),
        ("sink: sink/rx2", "sink: sink/rx1", "19:11", "NIC sink/rx1 is used by more than one stream"),
        ("ingress: uut/in2\n", "ingress: uut/in1\n", "17:14", "NIC uut/in1 is used by more than one stream"),
        ("name: s2", "name: s1", "15:11", "stream 's1' is defined twice"),
        ("    egress: uut/out2\n", "", "15:5", "stream s2: give both ingress and egress, or neither"),
        ("egress: uut/out2\n", "egress: uut/out3\n", "18:13", "NIC uut/out3 is used by a stream"),
        (
            "neighbours:\n  - {",
            "  - {name: back, reverse: s9}\nneighbours:\n  - {",
            "20:27",
            "streams[2].reverse: 's9' is not allowed: there is no stream 's9'; streams are s1, s2, back",
        ),
        ("name: route\n", "name: bridge\n", "24:11", "UUT 'bridge' is defined twice"),
        (
            "second: {forward",
            "secnd: {forward",
            "28:7",
            "UUT route: neighbours: there is no 'secnd'; did you mean second?",
        ),
        ("{forward: bridge}", "{streams: s1}", "28:25", "UUT route: neighbours: second: streams is the same beside"),
        ("[uut/out2, sink", "[uut/out2, snk", "11:23", "link end snk/rx2: there is no host 'snk'; did you mean sink?"),
        ("[uut/out2, sink/rx2]", "[uut/out1, sink/rx2]", "11:13", "NIC uut/out1 is an end of more than one link"),
        ("[uut/out2, sink/rx2]", "[uut/out2, tester/a]", "12:13", "NIC tester/a is an end of more than one link"),
        (
            "tester/b], rate: 1Gbit/s",
            "tester/b], rate: 1Gbit/s, receive: napi",
            "12:58",
            "receive: a port takes frames in as its driver does",
        ),
        ("b: eth2", "b: eth1", "6:32", "port eth1 is given to more than one NIC"),
        (
            "[tester/a, tester/b]",
            "[tester/a, uut/x]",
            "12:5",
            "link tester/a – uut/x: one end is a port and the other is not; cable two ports or none",
        ),
        ("    kind: raw\n", "    kind: raw\n    on: vm\n", "26:9", "UUT route: on: 'vm' is not a host of kind vm"),
        ("  uut: {kind: netns}", "  uut: {kind: netns, on: x}", "4:26", "host uut: on: 'x' is not a host of kind vm"),
        ("  uut: {kind: netns}", "  uut: {kind: netns, cpus: 2}", "4:28", "hosts.uut: cpus: only a host of kind vm"),
        ("[uut/out2, sink/rx2]", "[uut/out2, sink/A]", "11:23", "link end sink/A: a NIC name is a-z"),
        ("name: second", "name: victim", "21:12", "neighbours: victim is the name of the guest beside them"),
        (
            "forward: route",
            "forward: rout",
            "26:14",
            "must be bridge, route, flowtable, tc or xdp; did you mean route?",
        ),
        ("forward: route", "forwrad: route", "26:5", "unknown key; did you mean 'forward'?"),
        ("forward: route", "cpu_wieght: 5", "26:5", "unknown key; did you mean 'cpu_weight'?"),
        ("kind: raw\n    f", "kind: rwa\n    f", "25:11", "'rwa' is no kind of UUT; did you mean raw?"),
    ],
)
def test_what_does_not_fit_together_is_shown_where_it_stands(tmp_path, old, new, place, message):
    assert LAB.count(old) >= 1
    path = tmp_path / "lab.yaml"
    before, _, after = LAB.rpartition(old)
    path.write_text(before + new + after)
    with pytest.raises(UsageError) as caught:
        load_topology(path, option_models(UUTS))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{place}: ")


def test_the_topology_that_is_broken_here_is_whole(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    assert load_topology(path, option_models(UUTS)).name == "lab"


PROFILE = """\
frame_sizes: [64, 1518]
loads: [10kfps, max]
scenarios:
  - dedicated
  - {network: [50%, 95%]}
  - name: mine
    activity: idle
    streams: [1]
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("10kfps", "10kpps", "2:9", "loads[0]: '10kpps' is not allowed: not a load"),
        ("activity: idle", "activity: idel", "7:15", "did you mean idle?"),
        ("streams: [1]", "streams: [1, x]", "8:18", "streams[1]: 'x' is not allowed: must be a whole number"),
        ("- dedicated", "- dedicate", "4:5", "'dedicate' is no scenario; did you mean dedicated?"),
        ("streams: [1]", "streems: [1]", "8:5", "unknown key; did you mean 'streams'?"),
        ("name: mine", "name: dedicated", "6:11", "dedicated means that every neighbour is or does: off"),
        ("scenarios:", "warm_up: 20s\nscenarios:", "3:10", "warm_up: 20 s leaves nothing of the duration"),
    ],
)
def test_the_same_of_profiles_where_one_line_stands_for_several_scenarios(tmp_path, old, new, place, message):
    path = tmp_path / "mine.yaml"
    path.write_text(PROFILE.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_profile(path, profile_kinds())
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{place}: ")


def test_a_file_of_the_other_kind_is_noticed(tmp_path):
    topology, profile = tmp_path / "lab.yaml", tmp_path / "mine.yaml"
    topology.write_text(LAB)
    profile.write_text(PROFILE)
    with pytest.raises(UsageError, match="is a profile, but a topology is needed here"):
        load_topology(profile, option_models(UUTS))
    with pytest.raises(UsageError, match="is a topology, but a profile is needed here"):
        load_profile(topology, profile_kinds())
