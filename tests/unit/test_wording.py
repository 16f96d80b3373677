"""Messages about wrong values: in words of topologies and profiles, with suggestions."""

import re

import pytest
from pydantic import BaseModel

from netbench.config.document import parse_document
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, UUTS, option_models, profile_kinds
from netbench.config.problems import Problems
from netbench.config.shipped import PROFILES, TOPOLOGIES, find
from netbench.errors import UsageError
from netbench.model.fields import parse_percent
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.model.units import (
    Load,
    bit_rate_hint,
    load_hint,
    memory_hint,
    parse_bit_rate,
    parse_mebibytes,
    parse_seconds,
    percent_hint,
    time_hint,
)


def meant(hint: str) -> list[str]:
    found = re.fullmatch(r"; did you mean (.+)\?", hint)
    return re.sub(r" \(a ratio of [\d.]+\)", "", found[1]).split(" or ") if found else []


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("10Mbps", ["10Mbit/s"]),
        ("10 mb/s", ["10Mbit/s"]),
        ("1.5 Gbits/s", ["1.5Gbit/s"]),
        ("10MB/s", ["80Mbit/s", "10Mbit/s"]),
        ("100 kpps", ["100kfps"]),
        ("100kpps", ["100kfps"]),
        ("2 Mpps", ["2Mfps"]),
        ("148809 packets/s", ["148809fps"]),
        ("1e6", ["1Mfps", "1Mbit/s"]),
        (1000000.0, ["1Mfps", "1Mbit/s"]),
        ("10M", ["10Mfps", "10Mbit/s"]),
        (20000, ["20kfps", "20kbit/s"]),
        (0.5, ["0.5%", "50%"]),
        ("50 percent", ["50%"]),
        ("line rate", ["100%"]),
        ("Max", ["max"]),
        ("fast", []),
        (True, []),
        ("5x", []),
    ],
)
def test_loads_that_may_have_been_meant(written, values):
    assert meant(load_hint(written)) == values
    for value in values:
        Load.parse(value)


@pytest.mark.parametrize(
    ("hint", "read", "written", "values"),
    [
        (bit_rate_hint, parse_bit_rate, "1Gbps", ["1Gbit/s"]),
        (bit_rate_hint, parse_bit_rate, "10G", ["10Gbit/s"]),
        (bit_rate_hint, parse_bit_rate, "10GbE", ["10Gbit/s"]),
        (bit_rate_hint, parse_bit_rate, 1000, ["1Gbit/s"]),
        (bit_rate_hint, parse_bit_rate, 1_000_000_000, ["1Gbit/s"]),
        (time_hint, parse_seconds, "10 sec", ["10s"]),
        (time_hint, parse_seconds, "1m", ["1min", "1ms"]),
        (time_hint, parse_seconds, "5 minutes", ["5min"]),
        (time_hint, parse_seconds, "soon", []),
        (memory_hint, parse_mebibytes, 512, ["512M"]),
        (memory_hint, parse_mebibytes, "1g", ["1G"]),
        (memory_hint, parse_mebibytes, "0.5 GB", ["512M"]),
        (memory_hint, parse_mebibytes, "10kB", []),
        (percent_hint, parse_percent, 0.5, ["0.5%", "50%"]),
        (percent_hint, parse_percent, "0.5", ["0.5%", "50%"]),
        (percent_hint, parse_percent, 1e-5, ["0.00001%", "0.001%"]),
        (percent_hint, parse_percent, 0, ["0%"]),
        (percent_hint, parse_percent, 1.5, ["1.5%"]),
        (percent_hint, parse_percent, "0.5 percent", ["0.5%"]),
        (percent_hint, parse_percent, 20, ["20%"]),
        (percent_hint, parse_percent, 1, ["1%", "100%"]),
        (percent_hint, parse_percent, "50 percent", ["50%"]),
        (percent_hint, parse_percent, "half", []),
    ],
)
def test_other_values_with_units_that_may_have_been_meant(hint, read, written, values):
    assert meant(hint(written)) == values
    for value in values:
        read(value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "topology.uuts.bridge.cpu_limit=0.5",
            "uuts[0].cpu_limit: 0.5 is not allowed: not a percentage; "
            "did you mean 0.5% (a ratio of 0.005) or 50% (a ratio of 0.5)?",
        ),
        ("topology.uuts.bridge.cpu_limit=half", "not a percentage; write for example 50%"),
        ("topology.links.0.rate=1000", "a link rate needs a unit; write for example 1Gbit/s; did you mean 1Gbit/s?"),
        (
            "topology.uuts.rout.forward=tc",
            "there is no 'rout' in that list; did you mean route? there are bridge, route",
        ),
        ("topology.links.7.rate=1Gbit/s", "there is no '7' in that list; numbers from 0 to 1"),
        ("topology.uuts.0.name=no", "must be text; write a word that YAML takes for true or false in quotes"),
        ("topology.streams.s1.name=1", 'must be text; write it in quotes: "1"'),
        ("loads=10Mbps", "did you mean 10Mbit/s?"),
        ("tolerance=200%", "tolerance: '200%' is not allowed: must be at most 100%"),
        ("drain_limit=700s", "must be at most 600s"),
        ("streams=eahc", "streams[0]: 'eahc' is not allowed: must be each or a whole number; did you mean each?"),
        ("order=interleavd", "must be interleaved, sequential or random; did you mean interleaved?"),
        ("generator=afpacet", "'afpacet' is no kind of generator; did you mean afpacket? there are afpacket, auto"),
        ("repetitions=", "repetitions: is empty: must be a whole number"),
        ("keep_captures=true", "keep_captures: true is not allowed: must be none, invalid or all"),
        (
            "schedule={kind: search, loss: 0.005}",
            "did you mean 0.005% (a ratio of 0.00005) or 0.5% (a ratio of 0.005)?",
        ),
        ("maxima=plan", "'plan' is no kind of maxima; there are loads, search"),
        ("maxima.wdith=2%", "did you mean 'width'"),
        ("maxima=[1]", "maxima"),
        ("maxima={kind: loads, width: 2%}", "unknown key"),
        ("frame_sizes=IMIX", "did you mean imix?"),
        ("frame_sizes=64B", "did you mean 64?"),
        ("frame_sizes=large", "or {name: mine, genome: [7x64, 4x594, 1518]}"),
        ("scenarios=[{netwrk: 50%}]", "scenarios[0].netwrk: unknown key; did you mean 'network'?"),
        ("scenarios={network: 50}", "write for example 50%, 20000fps, 10Mbit/s or max; did you mean 50%?"),
        ("setle.before=1s", "setle: unknown key; did you mean 'settle'?"),
        ("topology.neighbours.second.streams=s1", "neighbours: must be a list"),
        ("uuts.bridge.forward=tc", "uuts is no key of profiles; did you mean --set topology.uuts.bridge.forward=tc?"),
        (
            "topology.uuts.route={name: r, kind: raw, attachment: nat}",
            "attachment: raw has no such option; kinds with it: container, libvirt, qemu",
        ),
        (
            "scenarios=[{serve: iperf3}]",
            "a scenario that serves has a name: {name: bulk, activity: {serve: iperf3, load: 100Mbit/s}}",
        ),
        ("topolgy.uuts.0.forward=tc", "topolgy is no key of profiles; did you mean --set topology.uuts.0.forward=tc?"),
    ],
)
def test_values_and_names_that_may_have_been_meant(setting, message):
    of_topology = setting.startswith("topology.")
    file = find(TOPOLOGIES, "netns") if of_topology else find(PROFILES, "quick")
    with pytest.raises(UsageError) as caught:
        load_topology(file, option_models(UUTS), [setting]) if of_topology else load_profile(
            file, profile_kinds(), [setting]
        )
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"--set {setting}: ")


@pytest.mark.parametrize("written", ["s3cret", "{env: s3cret!}", "[s3cret]"])
def test_a_password_that_stands_where_none_is_to_stand_is_not_reported(written):
    setting = f"topology.hosts.source1.password={written}"
    with pytest.raises(UsageError) as caught:
        load_topology(find(TOPOLOGIES, "schlosser2011"), option_models(UUTS), [setting])
    _, _, output = str(caught.value).partition(setting)
    assert "password" in output
    assert "s3cret" not in output


def test_settings_find_items_by_name():
    wanted = ["topology.uuts.drops-7-of-100.drop.k=13", "topology.uuts.0.name=a.b", "topology.uuts.a.b.forward=route"]
    topology = load_topology(find(TOPOLOGIES, "netns"), option_models(UUTS), wanted)
    assert topology.uuts[2].options["drop"] == {"k": 13, "n": 100}
    assert (topology.uuts[0].name, topology.uuts[0].options["forward"]) == ("a.b", "route")


WRONG = ["x", "", -1, 0, 5, 1.5, True, None, [], ["x"], [-1], {}, {"x": 1}, float("nan"), 10**30]
NOT_OURS = re.compile(
    r"[Ii]nput|valid (integer|string|number|list|dictionary|boolean|tuple)|pydantic|instance|error,|type="
)
MODELS: list[type[BaseModel]] = [
    Topology,
    Profile,
    *(model for group in (GENERATORS, SCHEDULES, SINKS, UUTS) for model in option_models(group).values()),
    *profile_kinds()["maxima"].values(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__qualname__)
def test_no_word_of_the_library_that_checks_values_is_reported(model):
    """Each option of each kind, and each key of topologies and profiles, gets arbitrary values."""
    output = [words for field in model.model_fields for wrong in WRONG if (words := told_of(model, {field: wrong}))]
    assert output or not model.model_fields
    assert not list(filter(NOT_OURS.search, output))


def told_of(model, data) -> str:
    problems = Problems(parse_document("a: 1\n", "mine.yaml"), {})
    problems.validate(model, data, ())
    try:
        problems.raise_if_any()
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("profile", "setting", "messages"),
    [
        (
            "bandwidth",
            "loads=100",
            ["loads[0]: 100 is not allowed: a load needs a unit", "did you mean 100/s or 100bit/s?"],
        ),
        ("slo", "schedule.highest=5000", ["schedule.highest: 5000 is not", "did you mean 5k/s or 5kbit/s?"]),
        (
            "slo",
            "schedule={kind: plan, verified: 2}",
            ["schedule: the kind plan has no options; write `--set schedule=plan`"],
        ),
        (
            "bandwidth",
            "tool.tcp.direction=both",
            ["tool[0].direction: 'both' is not allowed: must be upload or download"],
        ),
        ("bandwidth", "tool.udp.direction=both", ["tool[1].direction: 'both' is not allowed"]),
        ("bandwidth", "flows=7", ["flows: this key counts UDP port pairs of frames"]),
    ],
)
def test_values_of_profiles_with_a_tool_that_may_have_been_meant(profile, setting, messages):
    """Each fault is reported once, on one line."""
    more = ["loads=max"] if "plan" in setting else []
    with pytest.raises(UsageError) as caught:
        load_profile(find(PROFILES, profile), profile_kinds(), [*more, setting])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"--set {setting}: ")
    for message in messages:
        assert message in line
