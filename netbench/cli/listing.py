"""The output of `netbench list`: shipped files and installed plug-ins."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from netbench.cli.output import wrapped
from netbench.config.document import read_document, yaml_text
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, TOOLS, UUTS, installed, origin
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.errors import UsageError
from netbench.model.packet_description import shipped_packets
from netbench.model.packet_notation import layers_text
from netbench.model.scenario import DEDICATED, expanded
from netbench.model.shipped_packets import SHIPPED_PACKETS
from netbench.model.suggestions import choices
from netbench.testbed.doctor.diagnosis import judge_platforms
from netbench.testbed.doctor.platforms import Judgement, Platform
from netbench.tools.base import Tool
from netbench.vmm.base import Vmm

Entry = dict[str, Any]
_GROUPS = {"generators": GENERATORS, "sinks": SINKS, "schedules": SCHEDULES, "tools": TOOLS, "uuts": UUTS}
PACKETS = "packets"


def listing(width: int, kind: str = "") -> str:
    """Return topologies, profiles, packets and all plug-ins with their descriptions, in lines of at most this width.

    With a `kind` such as `packets`, only these; packets then have their headers and varying fields, ready to copy into
    a profile. So has a packet by its name. UsageError for another name.
    """
    lines = []
    for title, entries in _chosen(kind).items():
        lines.append(f"{'UUTs' if title == 'uuts' else title}:")
        for entry in entries:
            text = entry["broken"] if "broken" in entry else entry["description"]
            text += f" Loads: {entry['loads']}." if "loads" in entry else ""
            lines.append(wrapped(f"  {entry['name']:32} ", text, width))
            if kind and title == PACKETS:
                lines.append(f"    headers: {entry['headers']}")
                lines += [f"    vary: {yaml_text(entry['vary'], one_line=True).strip()}"] if entry["vary"] else []
    return "\n".join(lines)


def listing_json(kind: str = "") -> str:
    """Return the same as a JSON object: lists of objects with `name`, `description` and the fields of each kind."""
    return json.dumps(_chosen(kind), indent=2, ensure_ascii=False)


def _chosen(kind: str) -> dict[str, list[Entry]]:
    """Return the entries of a kind, or the packet of this name; all without a name."""
    entries = _entries()
    if not kind or kind in entries:
        return {kind: entries[kind]} if kind else entries
    packets = [entry for entry in entries[PACKETS] if entry["name"] == kind]
    if not packets:
        known = [*entries, *SHIPPED_PACKETS]
        raise UsageError(f"list {kind}: names no kind and no packet; {choices(kind, known, 'names')}")
    return {PACKETS: packets}


def _entries() -> dict[str, list[Entry]]:
    entries = {"topologies": list(_files(TOPOLOGIES)), "profiles": list(_files(PROFILES)), PACKETS: list(_packets())}
    for title, group in _GROUPS.items():
        plug_ins = installed(group)
        entries[title] = [
            *(
                {"name": name, "description": _summary(kind), "origin": origin(group, name), **_more_of(kind)}
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
            "vary": dict(SHIPPED_PACKETS[packet.name].vary),
            "flows": packet.flows,
        }


def _more_of(kind: type[object]) -> Entry:
    """Return the fields that only tools have."""
    return {"loads": kind.loads_text()} if issubclass(kind, Tool) else {}


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
