"""Topologies and profiles from YAML, with overrides; every problem is reported with file, line, field and value."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from netbench.config.document import Document, read_document
from netbench.config.overrides import TOPOLOGY_PREFIX, overridden
from netbench.config.problems import Kinds, Problems
from netbench.config.wording import close_to
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.topology import Topology

# Keys that only topologies have, and keys that only profiles have.
_OF_TOPOLOGIES = frozenset({"hosts", "links", "uuts", "neighbours"})
_OF_PROFILES = frozenset({"frame_sizes", "loads", "repetitions", "duration", "scenarios", "generator", "sink"})


def load_topology(path: Path, uut_kinds: Kinds, overrides: Sequence[str] = ()) -> Topology:
    """Return a topology file with its overrides (`topology.…=…`) applied; UsageError lists each problem."""
    chosen = [text for text in overrides if text.startswith(TOPOLOGY_PREFIX)]
    document, sources = overridden(_read(path, "topology", _OF_TOPOLOGIES, _OF_PROFILES), chosen)
    document.data.setdefault("name", path.stem)
    problems = Problems(document, sources)
    topology = problems.validate(Topology, document.data, ())
    for index, uut in enumerate(topology.uuts if topology else ()):
        problems.check_kind("UUT", uut.kind, uut.options, uut_kinds, ("uuts", index))
    problems.raise_if_any()
    assert topology is not None
    for index, neighbour in enumerate(topology.neighbours):
        problems.check_meant_for_somebody(neighbour, topology.uuts, uut_kinds, ("neighbours", index))
    for uut_index, uut in enumerate(topology.uuts):
        for index, neighbour in enumerate(topology.neighbours):
            changed = neighbour.name in uut.neighbours
            where = ("uuts", uut_index, "neighbours", neighbour.name) if changed else ("neighbours", index)
            problems.check_neighbour(neighbour, uut, uut_kinds, where)
    problems.raise_if_any()
    return topology


def load_profile(path: Path, kinds: Mapping[str, Kinds], overrides: Sequence[str] = ()) -> Profile:
    """Return a profile file with its overrides applied, `kinds` by key; UsageError lists each problem."""
    chosen = [text for text in overrides if not text.startswith(TOPOLOGY_PREFIX)]
    for text in chosen:
        key, _, below = text.partition("=")[0].strip().partition(".")
        if key in _OF_TOPOLOGIES or (below and close_to(key, [TOPOLOGY_PREFIX.rstrip(".")])):
            meant = TOPOLOGY_PREFIX + (text.strip() if key in _OF_TOPOLOGIES else text.strip().partition(".")[2])
            raise UsageError(f"--set {text}: {key} is no key of profiles; did you mean --set {meant}?")
    document, sources = overridden(_read(path, "profile", _OF_PROFILES, _OF_TOPOLOGIES), chosen)
    document.data.setdefault("name", path.stem)
    problems = Problems(document, sources)
    profile = problems.validate(Profile, document.data, ())
    if profile:
        generator, schedule, sink = profile.generator, profile.schedule, profile.sink
        problems.check_kind("generator", generator.kind, generator.options, kinds["generator"], ("generator",))
        problems.check_kind("schedule", schedule.kind, schedule.options, kinds["schedule"], ("schedule",))
        if maxima := profile.maxima:
            problems.check_kind("maxima", maxima.kind, maxima.options, kinds["maxima"], ("maxima",))
        model = kinds["sink"].get(sink.kind)
        if sink.kind != generator.kind or model is not kinds["generator"].get(sink.kind):
            problems.check_kind("sink", sink.kind, sink.options, kinds["sink"], ("sink",))
        elif sink.options:
            problems.note(("sink",), f"one {sink.kind} sends and receives: its options stand under generator")
    problems.raise_if_any()
    assert profile is not None
    return profile


def _read(path: Path, what: str, own: frozenset[str], others: frozenset[str]) -> Document:
    """Return a file; UsageError for a file of the other kind."""
    document = read_document(path)
    if not own & document.data.keys() and others & document.data.keys():
        other = "profile" if what == "topology" else "topology"
        raise UsageError(
            f"{path}: is a {other}, and a {what} is wanted in its place; the topology comes first: "
            "netbench run TOPOLOGY PROFILE"
        )
    return document
