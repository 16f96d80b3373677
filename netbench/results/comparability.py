"""The differences between two campaigns beside their numbers: machine, kernel, versions, topology, profile, UUTs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netbench.config.document import YAMLError, yaml_value
from netbench.model.campaign import CampaignResults
from netbench.model.topology import measured_pairs
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import identities_of

_UNKNOWN = "unknown"
_SHOWN = 60  # characters of a value

# Parts of the environment on which rates are known to depend; in `namespaces` these are the NICs.
_THAT_MATTER = ("kernel", "cpu", "virtualisation", "nics", "offloads", "clocksource")
_NO_SETTINGS = ("activity",)  # how busy the host was
_SAYING_NOTHING = ("description", "seed")  # keys of a topology or profile without effect on the measurement


@dataclass(frozen=True, slots=True)
class Differs:
    """A setting that differs between two campaigns; `matters`: rates are known to depend on it."""

    setting: str
    base: str
    new: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.setting}: {self.base} → {self.new}"


def what_differs(base: CampaignResults, new: CampaignResults) -> tuple[Differs, ...]:
    """Return all differences between the manifests of two campaigns and the facts of their UUTs, what matters first."""
    differences = [
        *_of_versions(base.manifest, new.manifest),
        *_of_environment(base, new),
        *_of_tester(base.manifest, new.manifest),
        *_of_places(base, new),
        *_of_facts(base, new),
    ]
    return tuple(sorted(differences, key=lambda difference: not difference.matters))


def what_was_asked_differs(base: ResultDirectory, new: ResultDirectory) -> tuple[Differs, ...]:
    """Return the keys in which topologies and profiles differ, by the digests in the manifests.

    Values are those of topology.yaml and profile.yaml, if these can be read.
    """
    manifests = base.read_manifest()["digests"], new.read_manifest()["digests"]
    differences = []
    for which in ("topology", "profile"):
        digests = [manifest[which] for manifest in manifests]
        values = [_written(getattr(directory, which)) for directory in (base, new)]
        for key in dict.fromkeys((*digests[0], *digests[1])):
            if digests[0].get(key) != digests[1].get(key):
                before, after = (
                    values[side].get(key, "not there" if key not in digests[side] else _UNKNOWN) for side in (0, 1)
                )
                differences.append(Differs(f"{which}: {key}", before, after, key.split(".")[-1] not in _SAYING_NOTHING))
    return tuple(sorted(differences, key=lambda difference: not difference.matters))


def schedule_of(directory: ResultDirectory) -> str | None:
    """Return the kind of schedule of a campaign, by profile.yaml; None if that cannot be read."""
    return _written(directory.profile).get("schedule.kind")


def _of_versions(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Differs]:
    for key, words in (("netbench", "netbench"), ("git_revision", "netbench's commit")):
        before, after = (_text(manifest.get(key)) for manifest in (base, new))
        if before != after:
            yield Differs(words, before, after, matters=True)


def _of_environment(base: CampaignResults, new: CampaignResults) -> Iterator[Differs]:
    """Yield the differences of the environments before the campaigns.

    The name of the topology is removed from names of namespaces.
    """
    settings = [dict(_leaves(results.manifest.get("before"), (), f"nb-{results.topology}-")) for results in (base, new)]
    for path in dict.fromkeys((*settings[0], *settings[1])):
        before, after = (_text(values.get(path)) for values in settings)
        if before != after and path[0] not in _NO_SETTINGS:
            before, after = _apart(settings[0].get(path), settings[1].get(path), before, after)
            yield Differs(".".join(path), before, after, _matters(path))


def _of_tester(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Differs]:
    """Yield the differences of sources, sinks, links and hosts that are VMs, by their last identities."""
    sides = []
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
        sides.append(own)
    for name in dict.fromkeys((*sides[0], *sides[1])):
        if name in sides[0] and name in sides[1] and sides[0][name] != sides[1][name]:
            yield Differs(name, sides[0][name], sides[1][name], matters=True)


def _of_places(base: CampaignResults, new: CampaignResults) -> Iterator[Differs]:
    """Yield the UUTs that ran elsewhere, or whose CPU is emulated on one side; the latter are not compared at all."""
    for uut, setting in base.settings.items():
        new_setting = new.settings.get(uut, setting)
        if new_setting != setting:
            yield Differs(f"UUT {uut}", str(setting), str(new_setting), matters=True)


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
    """Return the items that only one of two lists contains; for other values, the shortened texts."""
    if isinstance(base, Sequence) and isinstance(new, Sequence) and not isinstance(base, str):
        only = [[str(item) for item in own if item not in other] for own, other in ((base, new), (new, base))]
        return tuple("with " + ", ".join(own) if own else "without" for own in only)  # type: ignore[return-value]  # two
    return _short(before), _short(after)


def _written(path: Path) -> dict[str, str]:
    """Return the values of a topology or profile by dotted key, as in digests; empty if it cannot be read."""
    try:
        document = yaml_value(path.read_bytes())
    except (OSError, YAMLError):
        return {}
    return {key: _short(_text(value)) for key, value in _dotted(document, "")}


def _dotted(value: object, key: str) -> Iterator[tuple[str, object]]:
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield key, value
    for name, child in inner:
        yield from _dotted(child, f"{key}.{name}" if key else str(name))


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    return lasting(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


# Parts of texts that change in each run of the same campaign: numbers of kernel threads and processes, names of runs.
_PASSING = re.compile(
    r"(?P<thread>\bnapi/[^\s;,/]+?)-\d+\b"
    r"|(?P<process>\b(?:pid|process id|PID)[ =:]+)\d+\b"
    r"|(?P<proc>/proc/)\d+\b"
    r"|(?P<run>/run/netbench/\S*?-|\bnb-)[0-9a-f]{12}\b"
)


def lasting(text: str) -> str:
    """Return a setting without the parts that change in each run: numbers of threads and processes, names of runs."""
    return _PASSING.sub(lambda match: f"{next(part for part in match.groups() if part is not None)}…", text)


def _short(text: str) -> str:
    return (text or "empty") if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def split_versions(results: CampaignResults) -> tuple[CampaignResults, CampaignResults] | None:
    """Return the results of the base versions, under the names of the UUTs, and those of the UUTs themselves.

    None if the campaign did not measure one version against another (`netbench run --against`).
    """
    pairs = measured_pairs(results.uuts)
    if not pairs:
        return None
    return _only(results, {base: uut for uut, base in pairs.items()}), _only(results, {uut: uut for uut in pairs})


def _only(results: CampaignResults, names: Mapping[str, str]) -> CampaignResults:
    """Return the results of some UUTs, renamed.

    Both versions have equally many planned trials, apart from calibration and added trials.
    """
    trials = tuple(
        replace(trial, spec=replace(trial.spec, uut=names[trial.spec.uut]))
        for trial in results.trials
        if trial.spec.uut in names
    )
    ended = tuple(replace(sweep, uut=names[sweep.uut]) for sweep in results.ended_sweeps if sweep.uut in names)
    planned = len(trials) + sum(sweep.skipped_trials for sweep in ended)
    if len(results.trials) + results.skipped_trials < results.planned_trials:
        finding, own = (sum(trial.spec.finds_maximum for trial in group) for group in (results.trials, trials))
        planned = (results.planned_trials - finding) * len(names) // len(results.uuts) + own
    return replace(
        results,
        uuts=tuple(names.values()),
        planned_trials=planned,
        trials=trials,
        facts={names[uut]: facts for uut, facts in results.facts.items() if uut in names},
        maxima=tuple(replace(maximum, uut=names[maximum.uut]) for maximum in results.maxima if maximum.uut in names),
        ended_sweeps=ended,
        searches=tuple(replace(search, uut=names[search.uut]) for search in results.searches if search.uut in names),
        maxima_searches=tuple(
            replace(search, uut=names[search.uut]) for search in results.maxima_searches if search.uut in names
        ),
        added_up=(),
        boots=(),
        warm_ups=(),
    )
