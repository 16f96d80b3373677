"""manifest.json: the description of a campaign, and its environment before and after."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, NoiseFloor
from netbench.model.documents import plain, plain_value
from netbench.model.packet_description import written_packet
from netbench.model.profile import Profile
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.search import SearchResult
from netbench.model.selftest_record import SelftestRecord
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.tester import Identities
from netbench.model.topology import Topology

Value = TypeVar("Value")


class ManifestPart(Generic[Value]):
    """A part of a manifest: its key, its type, and its value if it is not recorded or damaged."""

    def __init__(self, key: str, adapter: TypeAdapter[Value], missing: Value) -> None:
        self.key, self.adapter, self.missing = key, adapter, missing

    def of(self, manifest: Mapping[str, Any]) -> Value:
        """Return the value in a manifest."""
        try:
            return self.adapter.validate_python(manifest.get(self.key, self.missing))
        except ValidationError:
            return self.missing

    def put(self, manifest: Mapping[str, Any], value: Value) -> dict[str, Any]:
        """Return the manifest with this value."""
        return {**manifest, self.key: plain_value(self.adapter, value)}


# Sources, sinks and hosts, in order of time.
IDENTITIES = ManifestPart("tester", TypeAdapter(tuple[Identities, ...]), ())
ENDED_SWEEPS = ManifestPart("ended_sweeps", TypeAdapter(tuple[EndedSweep, ...]), ())
SEARCHES = ManifestPart("searches", TypeAdapter(tuple[SearchResult, ...]), ())
CEILINGS = ManifestPart("source_ceilings", TypeAdapter(tuple[SourceCeiling, ...]), ())
# None: it could not be measured.
NOISE_FLOOR = ManifestPart[NoiseFloor | None]("noise_floor", TypeAdapter(NoiseFloor | None), None)
# The latest self-test of the testbed when the campaign began.
SELFTEST = ManifestPart[SelftestRecord | None]("selftest", TypeAdapter(SelftestRecord | None), None)
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
        "packets": {name: written_packet(profile.packets.get(name)) for name in profile.packet_names},
        "planned_trials": planned_trials,
        "planned_after_search": planned_after_search,
        "digests": digests(topology, profile),
        "started": _now(),
        "finished": None,
        "sessions": [],
        "before": environment,
        "after": None,
        "selftest": plain_value(SELFTEST.adapter, selftest),
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


def settings(environment: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield each setting of an environment with its path of names."""
    if isinstance(environment, Mapping):
        for name, inner in environment.items():
            yield from settings(inner, (*path, str(name)))
    elif path:
        yield path, environment


def first_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return the first key whose digests differ; None if all are equal."""
    return next((key for key in (*one, *other) if one.get(key) != other.get(key)), None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
