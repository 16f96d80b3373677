"""manifest.json: what a campaign was, and the environment it ran in, before and after."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep
from netbench.model.documents import plain, plain_value
from netbench.model.noise_floor import NoiseFloor
from netbench.model.profile import Profile
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.search import SearchResult
from netbench.model.selftest_record import SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Identities
from netbench.model.topology import Topology


class Digests(BaseModel):
    """What a topology and a profile say, as a digest by key in dotted form: `uuts.0.kind`, `duration`."""

    topology: dict[str, str]
    profile: dict[str, str]


class ManifestHead(BaseModel):
    """The part of a manifest that netbench itself relies on."""

    topology: str
    profile: str
    planned_trials: Annotated[int, Field(strict=True, ge=1)] | None  # None: as many as results ask for
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
    """The manifest of a campaign about to start; `uuts` and `scenarios` are those chosen, all of them listed.

    `planned_after_search` trials are known beforehand, and follow those that find what loads are a share of.
    `revision` is the commit that netbench runs from. `selftest` is the latest one of its testbed: results refer to
    that, whatever later ones find. `loads_from` are the rates of an earlier campaign that this one replays.
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
        "selftest": plain(selftest) if selftest else None,
        **({"loads_from": plain_value(_REPLAYED, loads_from)} if loads_from else {}),
    }


def replayed_loads(manifest: Mapping[str, Any]) -> ReplayedLoads | None:
    """The rates of an earlier campaign that a campaign replays; None without. UsageError where they are damaged."""
    if manifest.get("loads_from") is None:
        return None
    try:
        return _REPLAYED.validate_python(manifest["loads_from"])
    except ValidationError as error:
        raise UsageError(f"manifest.json: loads_from: is damaged: {first_problem(error)}") from error


_REPLAYED = TypeAdapter(ReplayedLoads)


def with_identities(manifest: dict[str, Any], found: Identities) -> dict[str, Any]:
    """The manifest with what sends and receives from now on, and the hosts, noted where they are not as last noted."""
    known = identities_of(manifest)
    if known and replace(known[-1], since=found.since) == found:
        return manifest
    return {**manifest, "tester": [*manifest.get("tester", []), plain_value(_IDENTITIES, found)]}


def identities_of(manifest: Mapping[str, Any]) -> list[Identities]:
    """What sent and received, and the hosts, in the order of time; none where that is not noted, or damaged."""
    try:
        return [_IDENTITIES.validate_python(one) for one in manifest.get("tester", [])]
    except (TypeError, ValidationError):
        return []


_IDENTITIES = TypeAdapter(Identities)


def with_ended_sweep(manifest: dict[str, Any], ended: EndedSweep) -> dict[str, Any]:
    """The manifest with one more sweep that ended early."""
    return {**manifest, "ended_sweeps": [*manifest.get("ended_sweeps", []), asdict(ended)]}


def ended_sweeps_of(manifest: Mapping[str, Any]) -> tuple[EndedSweep, ...]:
    """The sweeps that ended early; none where that is not noted, or damaged."""
    try:
        return tuple(_ENDED.validate_python(manifest.get("ended_sweeps", [])))
    except ValidationError:
        return ()


_ENDED = TypeAdapter(list[EndedSweep])


def with_searches(manifest: dict[str, Any], searches: Iterable[SearchResult]) -> dict[str, Any]:
    """The manifest with these results of searches in place of earlier ones."""
    return {**manifest, "searches": plain_value(_SEARCHES, list(searches))}


def searches_of(manifest: Mapping[str, Any]) -> tuple[SearchResult, ...]:
    """What was found by searching; none where that is not noted, or damaged."""
    try:
        return tuple(_SEARCHES.validate_python(manifest.get("searches", [])))
    except ValidationError:
        return ()


_SEARCHES = TypeAdapter(list[SearchResult])


def with_ceilings(manifest: dict[str, Any], ceilings: Iterable[SourceCeiling]) -> dict[str, Any]:
    """Return the manifest with these ceilings of the sources in place of earlier ones."""
    return {**manifest, "source_ceilings": plain_value(_CEILINGS, list(ceilings))}


def ceilings_of(manifest: Mapping[str, object]) -> tuple[SourceCeiling, ...]:
    """Return the ceilings of the sources; none where they are not noted, or damaged."""
    try:
        return tuple(_CEILINGS.validate_python(manifest.get("source_ceilings", [])))
    except ValidationError:
        return ()


_CEILINGS = TypeAdapter(list[SourceCeiling])


def with_noise_floor(manifest: dict[str, Any], found: NoiseFloor | None) -> dict[str, Any]:
    """The manifest with the noise floor of the host; None: it could not be measured."""
    return {**manifest, "noise_floor": None if found is None else asdict(found)}


def noise_floor_of(manifest: Mapping[str, Any]) -> NoiseFloor | None:
    """The noise floor of the host; None where it was not measured, or is damaged."""
    try:
        return _NOISE_FLOOR.validate_python(manifest.get("noise_floor"))
    except ValidationError:
        return None


_NOISE_FLOOR = TypeAdapter(NoiseFloor)


def digests(topology: Topology, profile: Profile) -> dict[str, dict[str, str]]:
    """Those of a campaign, as of Digests."""
    return {
        name: {
            key: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
            for key, value in _leaves(plain(model, exclude_none=True))
        }
        for name, model in (("topology", topology), ("profile", profile))
    }


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """All that is no list or mapping of others, with its place in dotted form."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield key, value
    for name, one in inner:
        yield from _leaves(one, f"{key}.{name}" if key else str(name))


def first_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """The first key at which two digests by key differ; None where they say the same."""
    return next((key for key in (*one, *other) if one.get(key) != other.get(key)), None)


def selftest_of(manifest: Mapping[str, Any]) -> SelftestRecord | None:
    """The self-test that a campaign refers to; None without one, or with one that is damaged."""
    try:
        return SelftestRecord.model_validate(manifest.get("selftest"))
    except ValidationError:
        return None


def resumed(manifest: dict[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """The manifest with one more session noted."""
    return {
        **manifest,
        "sessions": [*manifest.get("sessions", []), {"command": list(command), "started": _now()}],
    }


def finished(manifest: dict[str, Any], environment: dict[str, object]) -> dict[str, Any]:
    """The manifest of a campaign that is complete, with the environment as it is now."""
    return {**manifest, "finished": _now(), "after": environment}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
