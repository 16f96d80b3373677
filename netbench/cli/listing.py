"""The output of `netbench list`: shipped files and installed plug-ins."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from netbench.cli.output import wrapped
from netbench.config.document import read_document
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, UUTS, installed, origin
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.model.packet_description import shipped_packets
from netbench.model.packet_notation import layers_text
from netbench.model.scenario import DEDICATED, expanded
from netbench.model.shipped_packets import SHIPPED_PACKETS
from netbench.testbed.doctor.diagnosis import judge_platforms
from netbench.testbed.doctor.platforms import Judgement, Platform
from netbench.vmm.base import Vmm

Entry = dict[str, Any]


def listing(width: int) -> str:
    """Return topologies, profiles, packets and all plug-ins with their descriptions, in lines of at most this width."""
    lines = []
    for title, entries in _entries().items():
        lines.append(f"{'UUTs' if title == 'uuts' else title}:")
        for entry in entries:
            text = entry["broken"] if "broken" in entry else entry["description"]
            lines.append(wrapped(f"  {entry['name']:32} ", text, width))
    return "\n".join(lines)


def listing_json() -> str:
    """Return the same as a JSON object: lists of objects with `name`, `description` and the fields of each kind."""
    return json.dumps(_entries(), indent=2, ensure_ascii=False)


def _entries() -> dict[str, list[Entry]]:
    entries = {"topologies": list(_files(TOPOLOGIES)), "profiles": list(_files(PROFILES)), "packets": list(_packets())}
    for title, group in (("generators", GENERATORS), ("sinks", SINKS), ("schedules", SCHEDULES), ("uuts", UUTS)):
        plug_ins = installed(group)
        entries[title] = [
            *(
                {"name": name, "description": _summary(kind), "origin": origin(group, name)}
                for name, kind in plug_ins.kinds.items()
            ),
            *({"name": name, "broken": why} for name, why in plug_ins.broken.items()),
        ]
        entries[title].sort(key=lambda entry: str(entry["name"]))
    return entries


def _files(folder: str) -> Iterator[Entry]:
    for name, path in shipped(folder).items():
        data: Any = read_document(path).data
        entry = {"name": name, "description": str(data.get("description", "")), "path": str(path)}
        if folder == TOPOLOGIES:
            yield {**entry, "uuts": [uut["name"] for uut in data["uuts"]]}
        else:
            scenarios: Any = expanded(data.get("scenarios", DEDICATED))
            yield {**entry, "scenarios": [scenario["name"] for scenario in scenarios]}


def _packets() -> Iterator[Entry]:
    for packet in shipped_packets():
        summary = SHIPPED_PACKETS[packet.name].summary
        yield {
            "name": packet.name,
            "description": summary,
            "headers": layers_text(packet.layers),
            "flows": packet.flows,
        }


def _summary(kind: type[object]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def uut_listing(width: int) -> str:
    """Return for each kind of UUT its features, whether it is emulated here, and the command that changes that."""
    return "\n\n".join("\n".join(_platform_lines(*judged, width)) for judged in judge_platforms())


def uut_json() -> str:
    """Return the same as a JSON list."""
    return json.dumps([_platform(*judged) for judged in judge_platforms()], indent=2, ensure_ascii=False)


def _platform(platform: Platform, here: Judgement) -> Entry:
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


def _platform_lines(platform: Platform, here: Judgement, width: int) -> Iterator[str]:
    entry = _platform(platform, here)
    supports = entry["supports"]

    def named(name: str, values: Iterable[str], between: str = ", ") -> str:
        return wrapped(f"  {name + ':':15}", between.join(values) or "-", width)

    kinds = " or ".join(entry["virtualisation"]) or "unknown"
    yield f"{platform.name} ({kinds} virtualisation)".replace("(none ", "(no ")
    yield wrapped("  ", entry["description"], width)
    if entry["nics"]:
        kinds_of_nics = dict.fromkeys(entry["nics"].values())
        models = {kind: [model for model, its in entry["nics"].items() if its == kind] for kind in kinds_of_nics}
        yield named("NICs", (f"{', '.join(names)} ({kind})" for kind, names in models.items()), "; ")
    yield named("attachments", supports["attachments"])
    yield named("bound to CPUs", supports["pinning"])
    yield named("CPU shares", supports["shares"])
    computes = platform.plan is not None and platform.plan.load_needs is not None
    yield named("neighbours", ["forward", *(["compute"] if computes else [])] if supports["neighbours"] else ())
    yield named("counters", supports["counters"])
    yield named("here", [entry["here"]])
    for remedy in entry["remedies"]:
        yield named("do", [remedy])
