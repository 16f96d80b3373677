"""manifest.json: what a campaign was, and the environment it ran in, before and after."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from netbench.model.profile import Profile
from netbench.model.selftest_record import SelftestRecord
from netbench.model.topology import Topology


class ManifestHead(BaseModel):
    """The part of a manifest that netbench itself relies on."""

    topology: str
    profile: str
    planned_trials: Annotated[int, Field(strict=True, ge=1)] | None  # None: as many as results ask for
    uuts: Annotated[tuple[str, ...], Field(min_length=1)]
    scenarios: Annotated[tuple[str, ...], Field(min_length=1)]
    before: dict[str, object]
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
    environment: dict[str, object],
    revision: str | None,
    selftest: SelftestRecord | None = None,
) -> dict[str, Any]:
    """The manifest of a campaign about to start; `uuts` and `scenarios` are those chosen, all of them listed.

    `revision` is the commit that netbench runs from. `selftest` is the latest one of its testbed: results refer to
    that, whatever later ones find.
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
        "started": _now(),
        "finished": None,
        "sessions": [],
        "before": environment,
        "after": None,
        "selftest": selftest.model_dump(mode="json") if selftest else None,
    }


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
