"""What `netbench list` prints: what is shipped and what is installed."""

from collections.abc import Iterable, Iterator
from textwrap import wrap

from netbench.config.document import read_document
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, UUTS, plugins
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.testbed.diagnosis import judge_platforms
from netbench.testbed.platforms import Judgement, Platform
from netbench.vmm.base import Vmm

_WIDTH = 80


def listing() -> str:
    """Topologies, profiles, generators, sinks, schedules and UUTs, each with a line of what it is."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, folder in (("topologies", TOPOLOGIES), ("profiles", PROFILES)):
        yield f"{title}:"
        for name, path in shipped(folder).items():
            yield f"  {name:32} {read_document(path).data.get('description', '')}"
    for title, group in (("generators", GENERATORS), ("sinks", SINKS), ("schedules", SCHEDULES), ("UUTs", UUTS)):
        yield f"{title}:"
        for name, kind in plugins(group).items():
            yield f"  {name:32} {_summary(kind)}"


def _summary(kind: type[object]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def uut_listing() -> str:
    """Each kind of UUT: what it supports, what it is on this machine, and the command that changes that."""
    return "\n\n".join("\n".join(_platform(one, here)) for one, here in judge_platforms())


def _platform(platform: Platform, here: Judgement) -> Iterator[str]:
    kind, supports = platform.kind, platform.kind.supports
    yield f"{platform.name} ({' or '.join(platform.kinds) or 'unknown'} virtualisation)".replace("(none ", "(no ")
    yield from _wrapped("", _summary(kind))
    if issubclass(kind, Vmm) and kind.nic_models:
        by_kind: dict[str, list[str]] = {}
        for model, how in kind.nic_models.items():
            by_kind.setdefault(how, []).append(model)
        yield from _named("NICs", (f"{', '.join(models)} ({how})" for how, models in by_kind.items()), "; ")
    yield from _named("attachments", supports.attachments)
    yield from _named("bound to CPUs", supports.pinning)
    yield from _named("CPU shares", supports.shares)
    does = ["forward", *(["compute"] if platform.plan and platform.plan.load_needs is not None else [])]
    yield from _named("neighbours", does if supports.neighbours else ())
    yield from _named("counters", supports.counters)
    yield from _wrapped("here", str(here))
    for remedy in here.remedies:
        yield from _wrapped("do", remedy)


def _named(name: str, words: Iterable[str], between: str = ", ") -> list[str]:
    return _wrapped(name, between.join(words) or "-")


def _wrapped(name: str, text: str) -> list[str]:
    """Lines of at most 80 columns; words that are longer stay whole, to be copied."""
    first = f"  {name + ':':15}" if name else "  "
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
