"""What two campaigns do not have in common beside their numbers: machine, kernel, versions, topology, profile, UUTs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from netbench.model.campaign import CampaignResults
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import identities_of

_UNKNOWN = "unknown"
_SHOWN = 60  # characters of a value

# Parts of the environment that rates are known to depend on; of `namespaces` it is the NICs in them.
_THAT_MATTER = ("kernel", "cpu", "virtualisation", "nics", "offloads", "clocksource")
_NO_SETTINGS = ("activity",)  # how busy the host was
_SAYING_NOTHING = ("description", "seed")  # of a topology or profile, of how it is measured


@dataclass(frozen=True, slots=True)
class Differs:
    """A setting that is not the same in both; `matters`: whether rates are known to depend on it."""

    setting: str
    base: str
    new: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.setting}: {self.base} → {self.new}"


def what_differs(base: CampaignResults, new: CampaignResults) -> tuple[Differs, ...]:
    """All settings in which the manifests of two campaigns, and what their UUTs said, differ; what matters first."""
    found = [
        *_of_versions(base.manifest, new.manifest),
        *_of_environment(base, new),
        *_of_tester(base.manifest, new.manifest),
        *_of_places(base, new),
        *_of_facts(base, new),
    ]
    return tuple(sorted(found, key=lambda one: not one.matters))


def what_was_asked_differs(base: ResultDirectory, new: ResultDirectory) -> tuple[Differs, ...]:
    """The keys in which their topologies and profiles differ, by the digests in the manifests.

    Values are those of topology.yaml and profile.yaml, where these can be read.
    """
    manifests = base.read_manifest()["digests"], new.read_manifest()["digests"]
    found = []
    for which in ("topology", "profile"):
        digests = [one[which] for one in manifests]
        values = [_written(getattr(one, which)) for one in (base, new)]
        for key in dict.fromkeys((*digests[0], *digests[1])):
            if digests[0].get(key) != digests[1].get(key):
                before, after = (
                    values[side].get(key, "not there" if key not in digests[side] else _UNKNOWN) for side in (0, 1)
                )
                found.append(Differs(f"{which}: {key}", before, after, key.split(".")[-1] not in _SAYING_NOTHING))
    return tuple(sorted(found, key=lambda one: not one.matters))


def schedule_of(directory: ResultDirectory) -> str | None:
    """The kind of schedule that a campaign had, by profile.yaml; None where that cannot be read."""
    return _written(directory.profile).get("schedule.kind")


def _of_versions(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Differs]:
    for key, words in (("netbench", "netbench"), ("git_revision", "netbench's commit")):
        before, after = (_text(one.get(key)) for one in (base, new))
        if before != after:
            yield Differs(words, before, after, matters=True)


def _of_environment(base: CampaignResults, new: CampaignResults) -> Iterator[Differs]:
    """What differs before the campaigns; with names of namespaces that do not hold that of the topology."""
    settings = [dict(_leaves(one.manifest.get("before"), (), f"nb-{one.topology}-")) for one in (base, new)]
    for path in dict.fromkeys((*settings[0], *settings[1])):
        before, after = (_text(one.get(path)) for one in settings)
        if before != after and path[0] not in _NO_SETTINGS:
            before, after = _apart(settings[0].get(path), settings[1].get(path), before, after)
            yield Differs(".".join(path), before, after, _matters(path))


def _of_tester(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Differs]:
    """Sources, sinks and hosts that are VMs; as they were last."""
    found = []
    for manifest in (base, new):
        identities = identities_of(manifest)
        own: dict[str, str] = {}
        if identities:
            last = identities[-1]
            own |= {f"source of {name}": lasting(str(ends.source)) for name, ends in last.streams.items()}
            own |= {f"sink of {name}": lasting(str(ends.sink)) for name, ends in last.streams.items()}
            own |= {f"links of {name}": lasting(link.details) for name, link in last.links.items()}
            machines = {name: host for name, host in last.hosts.items() if host.machine is not None}
            own |= {f"kernel of host {name}": host.kernel for name, host in machines.items()}
        found.append(own)
    for name in dict.fromkeys((*found[0], *found[1])):
        if name in found[0] and name in found[1] and found[0][name] != found[1][name]:
            yield Differs(name, found[0][name], found[1][name], matters=True)


def _of_places(base: CampaignResults, new: CampaignResults) -> Iterator[Differs]:
    """UUTs that ran elsewhere, and those whose CPU is emulated on one side, which are not compared at all."""
    for uut, setting in base.settings.items():
        other = new.settings.get(uut, setting)
        if other != setting:
            yield Differs(f"UUT {uut}", str(setting), str(other), matters=True)


def _of_facts(base: CampaignResults, new: CampaignResults) -> Iterator[Differs]:
    for uut, facts in base.facts.items():
        others = new.facts.get(uut, {})
        for name in dict.fromkeys((*facts, *others)) if others else ():
            before, after = _text(facts.get(name)), _text(others.get(name))
            if before != after:
                yield Differs(f"UUT {uut}: {name}", _short(before), _short(after), matters=False)


def _matters(path: tuple[str, ...]) -> bool:
    return path[0] in _THAT_MATTER or (path[0] == "namespaces" and "nics" in path)


def _leaves(value: object, path: tuple[str, ...], mark: str) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name).removeprefix(mark)), mark)
    elif path:
        yield path, value


def _apart(base: object, new: object, before: str, after: str) -> tuple[str, str]:
    """Of two long lists what each has alone."""
    if isinstance(base, Sequence) and isinstance(new, Sequence) and not isinstance(base, str):
        only = [[str(one) for one in own if one not in other] for own, other in ((base, new), (new, base))]
        return tuple("with " + ", ".join(own) if own else "without" for own in only)  # type: ignore[return-value]  # two
    return _short(before), _short(after)


def _written(path: Path) -> dict[str, str]:
    """The values of a topology or profile by key in dotted form, as digests have them; none where it cannot be read."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError):
        return {}
    return {key: _short(_text(value)) for key, value in _dotted(document, "")}


def _dotted(value: object, key: str) -> Iterator[tuple[str, object]]:
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield key, value
    for name, one in inner:
        yield from _dotted(one, f"{key}.{name}" if key else str(name))


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    return lasting(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


# What is another in each run of the same campaign: numbers of kernel threads and processes, names of runs.
_PASSING = re.compile(
    r"(?P<thread>\bnapi/[^\s;,/]+?)-\d+\b"
    r"|(?P<process>\b(?:pid|process id|PID)[ =:]+)\d+\b"
    r"|(?P<proc>/proc/)\d+\b"
    r"|(?P<run>/run/netbench/\S*?-|\bnb-)[0-9a-f]{12}\b"
)


def lasting(text: str) -> str:
    """A setting without what is another in each run: numbers of threads and processes, names of runs."""
    return _PASSING.sub(lambda found: f"{next(part for part in found.groups() if part is not None)}…", text)


def _short(text: str) -> str:
    return (text or "empty") if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
