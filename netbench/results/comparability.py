"""The differences between two campaigns beside their numbers: machine, kernel, versions, topology, profile, UUTs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from netbench.config.document import YAMLError, yaml_value
from netbench.model.campaign import CampaignResults
from netbench.model.topology import measured_pairs
from netbench.results.directory import ResultDirectory
from netbench.results.manifest import IDENTITIES, leaves, settings

_UNKNOWN = "unknown"
_SHOWN = 60  # characters of a value

# Parts of the environment on which rates are known to depend; in `namespaces` these are the NICs.
_THAT_MATTER = ("kernel", "cpu", "virtualisation", "nics", "offloads", "clocksource")
_NO_SETTINGS = ("activity",)  # how busy the host was
_WITHOUT_EFFECT = ("description", "seed")  # keys of a topology or profile
_VERSIONS = {"netbench": "netbench", "git_revision": "netbench's commit"}

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting that differs between two campaigns; `matters`: rates are known to depend on it."""

    setting: str
    base: str
    new: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.setting}: {self.base} → {self.new}"


def campaign_differences(base: CampaignResults, new: CampaignResults) -> tuple[ChangedSetting, ...]:
    """Return all differences between the manifests of two campaigns and the facts of their UUTs, what matters first."""
    versions = ({name: campaign.manifest.get(key) for key, name in _VERSIONS.items()} for campaign in (base, new))
    differences = [ChangedSetting(name, _text(old), _text(now), matters=True) for name, old, now in _changes(*versions)]
    for path, old, now in _changes(_environment(base), _environment(new)):
        matters = path[0] in _THAT_MATTER or (path[0] == "namespaces" and "nics" in path)
        differences.append(ChangedSetting(".".join(path), *_shortened(old, now), matters))
    for name, old, now in _changes(_flow_tools(base), _flow_tools(new)):
        if old is not None and now is not None:
            differences.append(ChangedSetting(f"tool {name}", old, now, matters=True))
    # UUTs that ran elsewhere, or whose CPU is emulated on one side; the latter are not compared at all.
    before, after = ({f"UUT {uut}": setting for uut, setting in side.settings.items()} for side in (base, new))
    for sides in ((_tester(base.manifest), _tester(new.manifest)), (before, after)):
        for name, old, now in _changes(*sides):
            if old is not None and now is not None:
                differences.append(ChangedSetting(name, str(old), str(now), matters=True))
    for uut, facts in base.facts.items():
        new_facts = new.facts.get(uut, {})
        for name, old, now in _changes(facts, new_facts) if new_facts else ():
            texts = _short(_text(old)), _short(_text(now))
            differences.append(ChangedSetting(f"UUT {uut}: {name}", *texts, matters=False))
    return _what_matters_first(differences)


def _flow_tools(campaign: CampaignResults) -> dict[str, str]:
    """Return the programs of flows with their versions, by kind of tool."""
    found: dict[str, set[str]] = {}
    for trial in campaign.trials:
        for task, guest in zip(trial.spec.guests, trial.guests, strict=False):
            if task.serves:
                found.setdefault(task.serves.workload.tool, set()).update(
                    flow.tool for flow in guest.flows if flow.tool
                )
    return {kind: ", ".join(sorted(versions)) for kind, versions in found.items() if versions}


def configuration_differences(base: ResultDirectory, new: ResultDirectory) -> tuple[ChangedSetting, ...]:
    """Return the keys in which topologies and profiles differ, by the digests in the manifests.

    Values are those of topology.yaml and profile.yaml, if these can be read.
    """
    manifests = base.read_manifest()["digests"], new.read_manifest()["digests"]
    differences = []
    for file in ("topology", "profile"):
        digests = [manifest[file] for manifest in manifests]
        values = [_values(getattr(directory, file)) for directory in (base, new)]
        if all(values):
            digests = [_by_packet(of_side, known) for of_side, known in zip(digests, values, strict=True)]
            values = [_by_packet(known, known) for known in values]
        for key, *_ in _changes(*digests):
            old, now = (values[side].get(key, _UNKNOWN if key in digests[side] else "not there") for side in (0, 1))
            differences.append(ChangedSetting(f"{file}: {key}", old, now, key.split(".")[-1] not in _WITHOUT_EFFECT))
    return _what_matters_first(differences)


def _by_packet(of_keys: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the same with the names of packets in place of their numbers: `packet.2.headers`, `packet.vlan.headers`.

    `values` are those of the profile.
    """
    found = {}
    for key, value in of_keys.items():
        match key.split("."):
            case ["packet", number, *more] if number.isdecimal():
                name = values.get(f"packet.{number}.name") or values.get(f"packet.{number}") or number
                found[".".join(("packet", name, *more))] = value
            case _:
                found[key] = value
    return found


def schedule_of(directory: ResultDirectory) -> str | None:
    """Return the kind of schedule of a campaign, by profile.yaml; None if that cannot be read."""
    return _values(directory.profile).get("schedule.kind")


def _what_matters_first(differences: Iterable[ChangedSetting]) -> tuple[ChangedSetting, ...]:
    return tuple(sorted(differences, key=lambda difference: not difference.matters))


def _changes(base: Mapping[Key, Any], new: Mapping[Key, Any]) -> Iterator[tuple[Key, Any, Any]]:
    """Yield each key whose values differ as text, with both values."""
    for key in dict.fromkeys((*base, *new)):
        if _text(base.get(key)) != _text(new.get(key)):
            yield key, base.get(key), new.get(key)


def _environment(results: CampaignResults) -> dict[tuple[str, ...], object]:
    """Return the settings before a campaign by path; names of namespaces are without the name of the topology."""
    mark = f"nb-{results.topology}-"
    return {
        tuple(name.removeprefix(mark) for name in path): value
        for path, value in settings(results.manifest.get("before"))
        if path[0] not in _NO_SETTINGS
    }


def _tester(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the last sources, sinks, links, and kernels of hosts that are VMs."""
    identities = IDENTITIES.of(manifest)
    if not identities:
        return {}
    last = identities[-1]
    streams, links = last.streams.items(), last.links.items()
    return {
        **{f"source of {name}": lasting(str(ends.source)) for name, ends in streams},
        **{f"sink of {name}": lasting(str(ends.sink)) for name, ends in streams},
        **{f"links of {name}": lasting(link.details) for name, link in links},
        **{f"kernel of host {name}": host.kernel for name, host in last.hosts.items() if host.machine is not None},
    }


def _shortened(base: object, new: object) -> tuple[str, str]:
    """Return the items that only one of two lists contains; for other values, the shortened texts."""
    if isinstance(base, list | tuple) and isinstance(new, list | tuple):
        return _only_in(base, new), _only_in(new, base)
    return _short(_text(base)), _short(_text(new))


def _only_in(items: Sequence[object], others: Sequence[object]) -> str:
    only = [str(item) for item in items if item not in others]
    return "with " + ", ".join(only) if only else "without"


def _values(path: Path) -> dict[str, str]:
    """Return the values of a topology or profile by dotted key, as in digests; empty if it cannot be read."""
    try:
        document = yaml_value(path.read_bytes())
    except (OSError, YAMLError):
        return {}
    return {key: _short(_text(value)) for key, value in leaves(document)}


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

    def renamed(items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(item, uut=names[item.uut]) for item in items if item.uut in names)

    trials = tuple(
        replace(trial, spec=replace(trial.spec, uut=names[trial.spec.uut]))
        for trial in results.trials
        if trial.spec.uut in names
    )
    ended = renamed(results.ended_sweeps)
    planned = len(trials) + sum(sweep.skipped_trials for sweep in ended)
    if len(results.trials) + results.skipped_trials < results.planned_trials:
        all_calibration, calibration = (
            sum(trial.spec.finds_maximum for trial in group) for group in (results.trials, trials)
        )
        planned = (results.planned_trials - all_calibration) * len(names) // len(results.uuts) + calibration
    return replace(
        results,
        uuts=tuple(names.values()),
        planned_trials=planned,
        trials=trials,
        facts={names[uut]: facts for uut, facts in results.facts.items() if uut in names},
        maxima=renamed(results.maxima),
        ended_sweeps=ended,
        searches=renamed(results.searches),
        maxima_searches=renamed(results.maxima_searches),
        added_up=(),
        boots=(),
        warm_ups=(),
    )
