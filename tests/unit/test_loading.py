"""Everything a user can get wrong in a file or on the command line: one clear message each, with its place."""

import pytest
from pydantic import BaseModel, ConfigDict

from netbench.config.document import yaml_text
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import PROFILES, TOPOLOGIES, find, shipped
from netbench.errors import UsageError
from netbench.generators.afpacket.afpacket import AfPacket
from netbench.generators.auto_source import AutoGenerator
from netbench.model.profile import NoOptions
from netbench.uut.external import ExternalOptions
from netbench.uut.ovs import OvsOptions
from netbench.uut.raw import RawOptions
from netbench.uut.reference import ReferenceOptions
from netbench.vmm.container.container import Container
from netbench.vmm.qemu.options import QemuOptions

UUT_KINDS: dict[str, type[BaseModel]] = {
    "container": Container.Options,
    "ovs": OvsOptions,
    "raw": RawOptions,
    "reference": ReferenceOptions,
    "external": ExternalOptions,
    "qemu": QemuOptions,
}


class _Any(BaseModel):
    model_config = ConfigDict(extra="allow")


KINDS: dict[str, dict[str, type[BaseModel]]] = {
    "generator": {"afpacket": AfPacket.Options, "auto": AutoGenerator.Options, "anything": _Any},
    "schedule": {"plan": NoOptions},
    "sink": {"tcpdump": NoOptions, "anything": _Any},
}


def read_profile(*settings, path=None):
    return load_profile(path or find(PROFILES, "quick"), KINDS, settings)


def read_topology(*settings, path=None):
    return load_topology(path or find(TOPOLOGIES, "netns"), UUT_KINDS, settings)


def test_the_profile_of_the_paper_is_that_of_the_paper():
    paper = read_profile(path=shipped(PROFILES)["schlosser2011-dedicated"])
    assert [size.only_size for size in paper.frame_sizes] == [64, 500, 1000, 1500]
    rates = "10Mbit/s 100Mbit/s 200Mbit/s 400Mbit/s 600Mbit/s 800Mbit/s 900Mbit/s 1Gbit/s"
    assert [str(load) for load in paper.loads[:8]] == rates.split()
    assert (paper.repetitions, paper.streams) == (9, (1, 2, 3))
    assert paper.generator.kind == "auto"


@pytest.mark.parametrize("name", list(shipped(TOPOLOGIES)))
def test_a_resolved_topology_reads_back_the_same(name, tmp_path):
    kinds = option_models(UUTS)
    topology = load_topology(shipped(TOPOLOGIES)[name], kinds)
    assert topology.name == name
    path = tmp_path / "topology.yaml"
    path.write_text(yaml_text(topology.model_dump(mode="json", exclude_none=True)))
    assert load_topology(path, kinds) == topology


def test_settings_override():
    profile = read_profile("frame_sizes=64,1518", "settle.before=1s", "generator.threads=2", "generator.kind=afpacket")
    assert [size.only_size for size in profile.frame_sizes] == [64, 1518]
    assert (profile.settle.before, profile.settle.after) == (1.0, 0.02)
    assert profile.generator.options == {"threads": 2}
    topology = read_topology("topology.uuts.2.drop.k=13", "topology.uuts.2.drop.n=997")
    assert topology.uuts[2].options["drop"] == {"k": 13, "n": 997}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("frame_sizes=63", "frame_sizes[0]: 63 is not allowed"),
        ("frame_sizes=64,9235", "frame_sizes[1]: 9235 is not allowed"),
        ("frame_sizes=64.5", "frame_sizes[0]: 64.5 is not allowed"),
        ("frame_sizes=64,64", "64 is defined twice"),
        ("frame_sizes=[]", "is missing"),
        ("repetitions=0", "repetitions: 0 is not allowed"),
        ("repetitions=1000000000000", "repetitions: 1000000000000 is not allowed"),
        ("loads=-5Mbit/s", "'-5Mbit/s' is not allowed"),
        ("loads=100", "needs a unit"),
        ("loads=.nan", "needs a unit"),
        ("loads=101%", "at most 100%"),
        ("duration=.nan", "duration: nan is not allowed"),
        ("duration=.inf", "duration: inf is not allowed"),
        ("duration=-3s", "duration: '-3s' is not allowed"),
        ("seed=-1", "seed: -1 is not allowed"),
        ("tolerance=5", "not a percentage; did you mean 5%?"),
        ("tolerance=few", "write for example 0.5%"),
        ("snap_length=40", "snap_length: 40 is not allowed"),
        ("sink=snoop", "'snoop' is no kind of sink; there are anything, tcpdump"),
        ("sink.mode=fast", "sink.mode: unknown key"),
        ("frame_size=64", "did you mean 'frame_sizes'?"),
        ("settle.befor=1", "did you mean 'before'?"),
        ("generator.threads=2", "generator.threads: unknown key; allowed here: steady"),
        ("schedule.steps=2", "schedule: the kind plan has no options; write `--set schedule=plan`"),
        ("name=../../etc", "name: '../../etc' is not allowed"),
        ("frame_sizes.0.1=4", "has no place for it"),
        ("nonsense", "write it as key=value"),
        ("loads=[", "is not valid YAML"),
    ],
)
def test_wrong_settings_are_refused_by_name(setting, message):
    with pytest.raises(UsageError) as caught:
        read_profile(setting)
    assert message in str(caught.value)
    assert f"--set {setting}" in str(caught.value)


def test_a_wrong_option_of_a_generator_is_compared_with_those_of_its_kind():
    with pytest.raises(UsageError, match=r"--set generator.thread=2: .*did you mean 'threads'\?"):
        read_profile("generator.kind=afpacket", "generator.thread=2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loads: [max]\n", "frame_sizes: is missing"),
        (
            "frame_sizes: [64]\nloads: [max]\nscenarios:\n  - dedicated\n  - {network: 50%, frame_size: 63}\n",
            ":5:32: frame_size: a frame has at least 64 bytes",
        ),
        ("loads: [max]\nloads: [max]\n", ":2:1: 'loads' is given twice"),
        ("a: &x [1]\nb: *x\n", ":2:4: is not valid YAML: aliases"),
        ("- 1\n- 2\n", "not a mapping"),
        ("", "is empty"),
        ("a: [1, 2\nb: 3", "is not valid YAML"),
        ("\ta: 1\n", "is not valid YAML"),
        ("a: \x00\n", "is not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be plain text"),
        ('"a\\nb": 1\n', ":1:1: 'a\\nb' is no key"),
        ("a" * 101 + ": 1\n", "… is no key"),
        ("a: !!python/object:os.system x\n", "cannot be read"),
        ("a: 2001-99-99\n", "cannot be read"),
        ("a: 1\nrepetitions: 0x" + "f" * 5000, ":2:14: '0xffff"),
        ("a: 1\nb: " + "9" * 5000, "…" + " cannot be read: "),
        ('a: 1\ndescription: "\\ud800"\n', ":2:14: '\\ud800' cannot be read: surrogates not allowed"),
        ("loads: [" + "1, " * 100 + "1]", "mine.yaml: and 81 more problems"),
        ("a: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("a: " + "{b: " * 100 + "1" + "}" * 100, "nested too deeply"),
        ("".join(f"k{n}: 1\n" for n in range(20_000)), ":5000:8: more than 10,000 keys and values"),
    ],
)
def test_wrong_files_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_profile(path=path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_no_text_are_refused(tmp_path):
    binary, huge = tmp_path / "binary.yaml", tmp_path / "huge.yaml"
    binary.write_bytes(bytes(range(256)))
    huge.write_bytes(b"#" * (2 << 20))
    output = {
        binary: "not text",
        huge: "larger than 256 KiB",
        tmp_path: "cannot be read",
        tmp_path / "no": "cannot be read",
    }
    for path, message in output.items():
        with pytest.raises(UsageError, match=message):
            read_profile(path=path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "uuts.0={name: x, kind: raw, forward: xdp, rps: [0]}",
            "XDP redirects frames before they are spread over CPUs",
        ),
        ("uuts.0={name: x, kind: raw, forward: tc, xdp: generic}", "xdp: generic is for `forward: xdp`"),
        ("uuts.2.forward=tc", "must be bridge or route"),  # which drops by rules that such frames never meet
        ("uuts.2.drop.k=101", "cannot drop 101 of every 100"),
        ("uuts.2.drop.n=0", "must be at least 1"),
        ("streams.0.sink=sink", "write it as host/nic"),
        ("links.0.rate=1000", "needs a unit"),
        ("links.0.rate=0bit/s", "more than 0"),
        ("links.0.ends=[source/tx1]", "a link with one end needs a port"),
        ("links.0.ends=[source/a-very-long-name, uut/in1]", "at most 12 long"),
        ("hosts.source.kind=xen", "must be netns, local, vm or ssh"),
        ("hosts.sink.ports={x: a/b}", "hosts.sink.ports.x"),
        ("hosts.sink.ports={x: 'a#b'}", "without blanks, control characters, slashes, quotes, # and backslashes"),
        (r'hosts.sink.ports={x: "a\x01"}', "without blanks, control characters, slashes"),
        (r'hosts.sink.ports={x: "a\x7f"}', "without blanks, control characters, slashes"),
        ("streams=[]", "at least 1"),
    ],
)
def test_wrong_topologies_are_refused(setting, message):
    with pytest.raises(UsageError) as caught:
        read_topology(f"topology.{setting}")
    assert message in str(caught.value)


def test_every_problem_of_a_file_is_reported_at_once_and_no_other(tmp_path):
    """A list of wrong items is not reported as too short, too."""
    path = tmp_path / "mine.yaml"
    path.write_text("frame_sizes: ['6\n\n  3']\nloads: [max]\n")
    with pytest.raises(UsageError) as caught:
        read_profile("repetitions=0", path=path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}:1:15: frame_sizes[0]: ")
    assert "repetitions: 0 is not allowed" in second


def test_what_sends_and_receives_in_one_has_its_options_under_generator():
    both = read_profile("generator=anything", "generator.server=trex1", "sink=anything")
    assert (both.generator.options, both.sink.options) == ({"server": "trex1"}, {})
    with pytest.raises(UsageError, match="sink: the same anything sends and receives: move its options to generator"):
        read_profile("generator=anything", "sink=anything", "sink.server=trex1")
