"""Topologies and profiles from YAML, with overrides; every problem is reported with file, line, field and value.

`with_base_versions` adds a second version of each UUT for `run --against`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netbench.config.document import Document, parse_document, read_document
from netbench.config.problems import Kinds, Problems
from netbench.config.shipped import wrong_kind
from netbench.errors import UsageError
from netbench.model.documents import plain
from netbench.model.fields import KeyPath
from netbench.model.host_spec import HostSpec
from netbench.model.profile import Profile
from netbench.model.suggestions import choices, close_to
from netbench.model.topology import Topology, version_name
from netbench.model.topology_specs import UutSpec

TOPOLOGY_PREFIX = "topology."
# Keys that only topologies have, and keys that only profiles have.
_OF_TOPOLOGIES = frozenset({"hosts", "links", "uuts", "neighbours"})
_OF_PROFILES = frozenset({"frame_sizes", "tool", "loads", "repetitions", "duration", "scenarios", "generator", "sink"})
# Keys that may have just a kind, without options.
_KIND_ALONE = ("generator", "schedule", "sink", "maxima", "channel", "tool")


def load_topology(path: Path, uut_kinds: Kinds, overrides: Sequence[str] = ()) -> Topology:
    """Return a topology file with its overrides (`topology.…=…`) applied; UsageError lists each problem."""
    document = _read(path, "topology", _OF_TOPOLOGIES, _OF_PROFILES)
    problems = _overridden(document, [text for text in overrides if text.startswith(TOPOLOGY_PREFIX)])
    topology = problems.validate(Topology, document.data, ())
    for index, uut in enumerate(topology.uuts if topology else ()):
        problems.check_kind("UUT", uut.kind, uut.options, uut_kinds, ("uuts", index))
    problems.raise_if_any()
    assert topology is not None
    for index, neighbour in enumerate(topology.neighbours):
        problems.check_options_of_neighbour(neighbour, topology.uuts, uut_kinds, ("neighbours", index))
    for uut_index, uut in enumerate(topology.uuts):
        for index, neighbour in enumerate(topology.neighbours):
            changed = neighbour.name in uut.neighbours
            where = ("uuts", uut_index, "neighbours", neighbour.name) if changed else ("neighbours", index)
            problems.check_neighbour(neighbour, uut, uut_kinds, where)
    problems.raise_if_any()
    return topology


def load_profile(path: Path, kinds: Mapping[str, Kinds], overrides: Sequence[str] = ()) -> Profile:
    """Return a profile file with its overrides applied, `kinds` by key; UsageError lists each problem."""
    settings = [text for text in overrides if not text.startswith(TOPOLOGY_PREFIX)]
    for text in settings:
        key, _, below = text.partition("=")[0].strip().partition(".")
        of_profile = key in Profile.model_fields
        if key in _OF_TOPOLOGIES or (below and not of_profile and close_to(key, [TOPOLOGY_PREFIX.rstrip(".")])):
            meant = TOPOLOGY_PREFIX + (text.strip() if key in _OF_TOPOLOGIES else text.strip().partition(".")[2])
            raise UsageError(f"--set {text}: {key} is no key of profiles; did you mean --set {meant}?")
    document = _read(path, "profile", _OF_PROFILES, _OF_TOPOLOGIES)
    problems = _overridden(document, settings)
    profile = problems.validate(Profile, document.data, ())
    if profile:
        for key in ("generator", "schedule", "maxima", "sink"):
            spec = getattr(profile, key)
            if key == "sink" and _is_one_plugin(profile, kinds):
                if spec.options:
                    text = f"the same {spec.kind} sends and receives: move its options to generator"
                    problems.note((key,), text)
            elif spec is not None:
                problems.check_kind(key, spec.kind, spec.options, kinds[key], (key,))
        for index, workload in enumerate(profile.tool):
            where: KeyPath = ("tool", index) if isinstance(document.data["tool"], list) else ("tool",)
            problems.check_kind("tool", workload.tool, dict(workload.options), kinds["tool"], where)
    problems.raise_if_any()
    assert profile is not None
    return profile


def _is_one_plugin(profile: Profile, kinds: Mapping[str, Kinds]) -> bool:
    """Return whether the same plug-in sends and receives."""
    kind = profile.sink.kind
    model = kinds["sink"].get(kind)
    return kind == profile.generator.kind and model is not None and model is kinds["generator"].get(kind)


def _read(path: Path, what: str, own_keys: frozenset[str], other_keys: frozenset[str]) -> Document:
    """Return a file; UsageError for a file of the other kind."""
    document = read_document(path)
    if not own_keys & document.data.keys() and other_keys & document.data.keys():
        raise wrong_kind(path, "profile" if what == "topology" else "topology", what)
    document.data.setdefault("name", path.stem)
    return document


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set key=value`: the parts of its key, and its value."""

    steps: tuple[str, ...]
    value: object
    text: str

    @classmethod
    def parse(cls, text: str) -> "Override":
        """Parse `key=value`; the value is YAML, and `a,b` is a list, but no packet. UsageError when it is neither."""
        key, equals, value = text.removeprefix(TOPOLOGY_PREFIX).partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {text}: write it as key=value, for example repetitions=3")
        value = value.strip()
        if "," in value and value[0] not in "[{'\"" and "(" not in value:
            value = f"[{value}]"
        document = parse_document(f"value: {value}\n", f"--set {text}")
        return cls(tuple(key.strip().split(".")), document.data["value"], text)


def _overridden(document: Document, texts: Iterable[str]) -> Problems:
    """Change the document, and return its problems, none so far; UsageError if an override has an impossible path."""
    sources: dict[KeyPath, str] = {}
    for override in map(Override.parse, texts):
        sources[_put(document, override)] = f"--set {override.text}"
    return Problems(document, sources)


def _put(document: Document, override: Override) -> KeyPath:
    """Put the value of an override into the document; return its path."""
    parent: Any = document.data
    steps, path = override.steps, KeyPath()
    while True:
        if isinstance(parent, dict):
            step: str | int = steps[0]
            steps = steps[1:]
        elif isinstance(parent, list):
            step, steps = _item(parent, steps, override)
        else:
            raise UsageError(f"--set {override.text}: {document.name} has no place for it")
        path = (*path, step)
        if not steps:
            parent[step] = override.value
            return path
        if isinstance(parent, dict):
            if step in _KIND_ALONE and isinstance(parent.get(step), str):
                parent[step] = {"kind": parent[step]}
            parent = parent.setdefault(step, {})
        else:
            parent = parent[step]


def _item(items: Sequence[object], steps: tuple[str, ...], override: Override) -> tuple[int, tuple[str, ...]]:
    """Return the index of an item, given by number or by name (which may contain dots), and the remaining steps."""
    names = [str(item["name"]) if isinstance(item, dict) and "name" in item else "" for item in items]
    for length in range(1, len(steps) + 1):
        name = ".".join(steps[:length])
        if name in names:
            return names.index(name), steps[length:]
    if steps[0].isdecimal() and int(steps[0]) < len(items):
        return int(steps[0]), steps[1:]
    known = list(filter(None, names))
    by_name = f"{choices(steps[0], known)}, or " if known else ""
    numbers = f"numbers from 0 to {len(items) - 1}" if items else "it is empty"
    raise UsageError(f"--set {override.text}: there is no {steps[0]!r} in that list; {by_name}{numbers}")


_VM_NAME = 7  # characters of a VM's name that leave enough for the suffix, see NicName


def with_base_versions(new: Topology, base: Topology) -> Topology:
    """Return `new` with the UUTs of `base` beside its own: NAME is followed by NAME.base.

    UUTs without a namesake are left out. If a VM differs, both versions are in the result. UsageError where anything
    except UUTs, their VMs and the CPUs of these VMs differs, and where the topologies have no UUT in common.
    """
    new, base = _with_uuts_on_vms(new), _with_uuts_on_vms(base)
    renamed = _vms_to_rename(new, base)
    for part in ("links", "streams", "neighbours"):
        if getattr(new, part) != getattr(base, part):
            raise UsageError(
                f"--against: topologies {new.name} and {base.name} differ in `{part}`; only UUTs may differ"
            )
    if _other_hosts(new, renamed) != _other_hosts(base, renamed):
        raise UsageError(
            f"--against: topologies {new.name} and {base.name} differ in `hosts`; only UUTs and the VMs they run on may"
        )
    pairs = [(uut, base.uut(uut.name)) for uut in new.uuts if any(uut.name == base_uut.name for base_uut in base.uuts)]
    if not pairs:
        raise UsageError(f"--against: topologies {new.name} and {base.name} have no UUT of the same name")
    uuts = [version for uut, base_uut in pairs for version in (uut, _as_base(base_uut, renamed))]
    if taken := {uut.name for uut in new.uuts} & {version_name(uut.name) for uut, _ in pairs}:
        raise UsageError(f"--against: topology {new.name} has a UUT named {min(taken)}; rename it")
    vms = {name: base.hosts[vm] for vm, name in renamed.items()}
    document = new.model_copy(update={"hosts": {**new.hosts, **vms}, "uuts": tuple(uuts)})
    return Topology.model_validate(plain(document, exclude_none=True))


def _with_uuts_on_vms(topology: Topology) -> Topology:
    """Return the same testbed with the VM named by the UUTs instead of the network namespaces."""
    namespaces = [host for host in topology.hosts.values() if host.kind == "netns"]
    machines = {host.on for host in namespaces}
    if len(machines) != 1 or None in machines:
        return topology
    (machine,) = machines
    hosts = {
        name: host.model_copy(update={"on": None}) if host.kind == "netns" else host
        for name, host in topology.hosts.items()
    }
    uuts = tuple(uut.model_copy(update={"on": machine}) for uut in topology.uuts)
    return topology.model_copy(update={"hosts": hosts, "uuts": uuts})


def _vms_to_rename(new: Topology, base: Topology) -> dict[str, str]:
    """Return the VMs with UUTs that differ between the two, with their new names for the base version."""
    machines = {uut.on for uut in base.uuts if uut.on is not None}
    return {
        name: f"{name[:_VM_NAME]}-base"
        for name in base.vms
        if name in machines and name in new.hosts and base.hosts[name] != new.hosts[name]
    }


def _other_hosts(topology: Topology, renamed: Iterable[str]) -> Mapping[str, HostSpec]:
    return {name: host for name, host in topology.hosts.items() if name not in renamed}


def _as_base(uut: UutSpec, renamed: Mapping[str, str]) -> UutSpec:
    on = None if uut.on is None else renamed.get(uut.on, uut.on)
    return uut.model_copy(update={"name": version_name(uut.name), "on": on})
