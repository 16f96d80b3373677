"""The output of `netbench list`: shipped files and installed plug-ins."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netbench.cli.output import wrapped
from netbench.config.document import read_document
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, UUTS, installed, origin
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.model.scenario import DEDICATED, expanded
from netbench.testbed.doctor.diagnosis import judge_platforms
from netbench.testbed.doctor.platforms import Judgement, Platform
from netbench.vmm.base import Vmm

_GROUPS = (("generators", GENERATORS), ("sinks", SINKS), ("schedules", SCHEDULES), ("uuts", UUTS))


def listing(width: int) -> str:
    """Return topologies, profiles and all plug-ins with their descriptions, in lines of at most this width."""
    return "\n".join(_lines(width))


def _lines(width: int) -> Iterator[str]:
    for title, folder in (("topologies", TOPOLOGIES), ("profiles", PROFILES)):
        yield f"{title}:"
        for name, path in shipped(folder).items():
            yield wrapped(f"  {name:32} ", str(read_document(path).data.get("description", "")), width)
    for title, group in _GROUPS:
        yield f"{'UUTs' if group == UUTS else title}:"
        found = installed(group)
        texts = {**{name: _summary(kind) for name, kind in found.kinds.items()}, **found.broken}
        for name, text in sorted(texts.items()):
            yield wrapped(f"  {name:32} ", text, width)


def _summary(kind: type[object]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def uut_listing(width: int) -> str:
    """Return for each kind of UUT its features, how real it is on this machine, and the command that changes that."""
    return "\n\n".join("\n".join(_platform(platform, judgement, width)) for platform, judgement in judge_platforms())


def _platform(platform: Platform, here: Judgement, width: int) -> Iterator[str]:
    kind, supports = platform.kind, platform.kind.supports

    def named(name: str, words: Iterable[str], between: str = ", ") -> str:
        return wrapped(f"  {name + ':':15}", between.join(words) or "-", width)

    yield f"{platform.name} ({' or '.join(platform.kinds) or 'unknown'} virtualisation)".replace("(none ", "(no ")
    yield wrapped("  ", _summary(kind), width)
    if issubclass(kind, Vmm) and kind.nic_models:
        by_kind: dict[str, list[str]] = {}
        for model, how in kind.nic_models.items():
            by_kind.setdefault(how, []).append(model)
        yield named("NICs", (f"{', '.join(models)} ({how})" for how, models in by_kind.items()), "; ")
    yield named("attachments", supports.attachments)
    yield named("bound to CPUs", supports.pinning)
    yield named("CPU shares", supports.shares)
    does = ["forward", *(["compute"] if platform.plan and platform.plan.load_needs is not None else [])]
    yield named("neighbours", does if supports.neighbours else ())
    yield named("counters", supports.counters)
    yield named("here", [str(here)])
    for remedy in here.remedies:
        yield named("do", [remedy])


def listing_json() -> str:
    """Return the same as a JSON object: lists of objects with `name`, `description` and the fields of each kind."""
    document: dict[str, object] = {}
    for title, folder, key, names in (
        ("topologies", TOPOLOGIES, "uuts", _uuts),
        ("profiles", PROFILES, "scenarios", _scenarios),
    ):
        files = [(name, path, read_document(path).data) for name, path in shipped(folder).items()]
        document[title] = [
            {"name": name, "description": data.get("description", ""), "path": str(path), key: names(data)}
            for name, path, data in files
        ]
    for title, group in _GROUPS:
        found = installed(group)
        document[title] = [
            {"name": name, "description": _summary(kind), "origin": origin(group, name)}
            for name, kind in found.kinds.items()
        ] + [{"name": name, "broken": why} for name, why in found.broken.items()]
    return json.dumps(document, indent=2, ensure_ascii=False)


def _uuts(topology: Mapping[str, Any]) -> list[str]:
    return [uut["name"] for uut in topology["uuts"]]


def _scenarios(profile: Mapping[str, Any]) -> list[str]:
    entries: Any = expanded(profile.get("scenarios", DEDICATED))
    return [scenario["name"] for scenario in entries]


def uut_json() -> str:
    """Return for each kind of UUT its features, and how real it is on this machine, as a JSON list."""
    return json.dumps(
        [_platform_json(platform, judgement) for platform, judgement in judge_platforms()], indent=2, ensure_ascii=False
    )


def _platform_json(platform: Platform, here: Judgement) -> dict[str, object]:
    supports = platform.kind.supports
    return {
        "name": platform.name,
        "description": _summary(platform.kind),
        "virtualisation": list(platform.kinds),
        "nics": dict(platform.kind.nic_models) if issubclass(platform.kind, Vmm) else {},
        "supports": {
            "attachments": list(supports.attachments),
            "pinning": list(supports.pinning),
            "shares": list(supports.shares),
            "neighbours": supports.neighbours,
            "counters": list(supports.counters),
        },
        "here": str(here),
        "remedies": list(here.remedies),
    }
