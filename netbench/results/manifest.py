"""manifest.json: the description of a campaign, and its environment before and after."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, NoiseFloor
from netbench.model.documents import plain, plain_value
from netbench.model.profile import Profile
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.search import SearchResult
from netbench.model.selftest_record import SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Identities
from netbench.model.topology import Topology

Part = TypeVar("Part")

# The parts that are added while a campaign runs.
_IDENTITIES: TypeAdapter[tuple[Identities, ...]] = TypeAdapter(tuple[Identities, ...])
_ENDED_SWEEPS: TypeAdapter[tuple[EndedSweep, ...]] = TypeAdapter(tuple[EndedSweep, ...])
_SEARCHES: TypeAdapter[tuple[SearchResult, ...]] = TypeAdapter(tuple[SearchResult, ...])
_CEILINGS: TypeAdapter[tuple[SourceCeiling, ...]] = TypeAdapter(tuple[SourceCeiling, ...])
_NOISE_FLOOR: TypeAdapter[NoiseFloor | None] = TypeAdapter(NoiseFloor | None)
_SELFTEST: TypeAdapter[SelftestRecord | None] = TypeAdapter(SelftestRecord | None)
_REPLAYED_LOADS: TypeAdapter[ReplayedLoads | None] = TypeAdapter(ReplayedLoads | None)


class Digests(BaseModel):
    """The digests of the values of a topology and a profile, by dotted key: `uuts.0.kind`, `duration`."""

    topology: dict[str, str]
    profile: dict[str, str]


class ManifestHead(BaseModel):
    """The part of a manifest that netbench itself requires."""

    topology: str
    profile: str
    planned_trials: Annotated[int, Field(strict=True, ge=1)] | None  # None: it depends on results
    planned_after_search: Annotated[int, Field(strict=True, ge=1)] | None = None
    uuts: Annotated[tuple[str, ...], Field(min_length=1)]
    scenarios: Annotated[tuple[str, ...], Field(min_length=1)]
    before: dict[str, object]
    digests: Digests
    finished: str | None = None
    sessions: list[object] = []


def begin_manifest(
    topology: Topology,
    profile: Profile,
    *,
    command: Sequence[str],
    uuts: Sequence[str],
    scenarios: Sequence[str],
    planned_trials: int | None,
    planned_after_search: int | None = None,
    environment: dict[str, object],
    revision: str | None,
    selftest: SelftestRecord | None = None,
    loads_from: ReplayedLoads | None = None,
) -> dict[str, Any]:
    """Return the manifest of a campaign that is about to start; `uuts` and `scenarios` are all the selected ones.

    `planned_after_search` is the number of known trials that follow the searches for the maxima of relative loads.
    `revision` is the commit that netbench runs from. `selftest` is the latest self-test of the testbed: results refer
    to it, regardless of later ones. `loads_from` are the rates of an earlier campaign that this one replays.
    """
    return {
        "netbench": version("netbench"),
        "git_revision": revision,
        "command": list(command),
        "topology": topology.name,
        "profile": profile.name,
        "seed": profile.seed,
        "uuts": list(uuts),
        "scenarios": list(scenarios),
        "planned_trials": planned_trials,
        "planned_after_search": planned_after_search,
        "digests": digests(topology, profile),
        "started": _now(),
        "finished": None,
        "sessions": [],
        "before": environment,
        "after": None,
        "selftest": plain_value(_SELFTEST, selftest),
        **({"loads_from": plain_value(_REPLAYED_LOADS, loads_from)} if loads_from else {}),
    }


def resumed(manifest: dict[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """Return the manifest with one more session."""
    session = {"command": list(command), "started": _now()}
    return {**manifest, "sessions": [*manifest.get("sessions", []), session]}


def finished(manifest: dict[str, Any], environment: dict[str, object]) -> dict[str, Any]:
    """Return the manifest of a complete campaign, with its present environment."""
    return {**manifest, "finished": _now(), "after": environment}


def replayed_loads(manifest: Mapping[str, Any]) -> ReplayedLoads | None:
    """Return the rates of an earlier campaign that are replayed; None if there are none. UsageError if damaged."""
    try:
        return _REPLAYED_LOADS.validate_python(manifest.get("loads_from"))
    except ValidationError as error:
        raise UsageError(f"manifest.json: loads_from: is damaged: {first_problem(error)}") from error


def with_identities(manifest: dict[str, Any], identities: Identities) -> dict[str, Any]:
    """Return the manifest with these identities of sources, sinks and hosts added, unless they equal the last ones."""
    known = identities_of(manifest)
    if known and replace(known[-1], since=identities.since) == identities:
        return manifest
    return {**manifest, "tester": [*manifest.get("tester", []), *_plain(_IDENTITIES, (identities,))]}


def identities_of(manifest: Mapping[str, Any]) -> tuple[Identities, ...]:
    """Return the identities of sources, sinks and hosts in order of time; empty if not recorded or damaged."""
    return _part(manifest, "tester", _IDENTITIES, ())


def with_ended_sweep(manifest: dict[str, Any], ended: EndedSweep) -> dict[str, Any]:
    """Return the manifest with one more sweep that ended early."""
    return {**manifest, "ended_sweeps": [*manifest.get("ended_sweeps", []), *_plain(_ENDED_SWEEPS, (ended,))]}


def ended_sweeps_of(manifest: Mapping[str, Any]) -> tuple[EndedSweep, ...]:
    """Return the sweeps that ended early; empty if not recorded or damaged."""
    return _part(manifest, "ended_sweeps", _ENDED_SWEEPS, ())


def with_searches(manifest: dict[str, Any], searches: Iterable[SearchResult]) -> dict[str, Any]:
    """Return the manifest with these results of searches in place of earlier ones."""
    return {**manifest, "searches": _plain(_SEARCHES, tuple(searches))}


def searches_of(manifest: Mapping[str, Any]) -> tuple[SearchResult, ...]:
    """Return the results of searches; empty if not recorded or damaged."""
    return _part(manifest, "searches", _SEARCHES, ())


def with_ceilings(manifest: dict[str, Any], ceilings: Iterable[SourceCeiling]) -> dict[str, Any]:
    """Return the manifest with these ceilings of the sources in place of earlier ones."""
    return {**manifest, "source_ceilings": _plain(_CEILINGS, tuple(ceilings))}


def ceilings_of(manifest: Mapping[str, Any]) -> tuple[SourceCeiling, ...]:
    """Return the ceilings of the sources; empty if not recorded or damaged."""
    return _part(manifest, "source_ceilings", _CEILINGS, ())


def with_noise_floor(manifest: dict[str, Any], floor: NoiseFloor | None) -> dict[str, Any]:
    """Return the manifest with the noise floor of the host; None: it could not be measured."""
    return {**manifest, "noise_floor": plain_value(_NOISE_FLOOR, floor)}


def noise_floor_of(manifest: Mapping[str, Any]) -> NoiseFloor | None:
    """Return the noise floor of the host; None if it was not measured or is damaged."""
    return _part(manifest, "noise_floor", _NOISE_FLOOR, None)


def selftest_of(manifest: Mapping[str, Any]) -> SelftestRecord | None:
    """Return the self-test to which a campaign refers; None if there is none or it is damaged."""
    return _part(manifest, "selftest", _SELFTEST, None)


def digests(topology: Topology, profile: Profile) -> dict[str, dict[str, str]]:
    """Return the digests of a campaign, as in Digests."""
    return {
        name: {
            key: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
            for key, value in leaves(plain(model, exclude_none=True))
        }
        for name, model in (("topology", topology), ("profile", profile))
    }


def leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value that is neither a list nor a mapping with entries, with its dotted key."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield key, value
    for name, child in inner:
        yield from leaves(child, f"{key}.{name}" if key else str(name))


def first_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return the first key whose digests differ; None if all are equal."""
    return next((key for key in (*one, *other) if one.get(key) != other.get(key)), None)


def _part(manifest: Mapping[str, Any], key: str, adapter: TypeAdapter[Part], missing: Part) -> Part:
    try:
        return adapter.validate_python(manifest.get(key, missing))
    except ValidationError:
        return missing


def _plain(adapter: TypeAdapter[Part], part: Part) -> list[object]:
    value = plain_value(adapter, part)
    assert isinstance(value, list)
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
