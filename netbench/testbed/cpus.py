"""Which CPUs of a machine are whose: those of sources and sinks, the victim's own, and its neighbours' from there."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from netbench.errors import MissingError, UsageError
from netbench.linux.proc import parse_cpu_list
from netbench.model.entitlement import Placement
from netbench.model.paths import StreamPath
from netbench.model.topology import NeighbourSpec, UutSpec

_SYSFS = Path("/sys/devices/system/cpu")

# The CPUs that share a core with a CPU, itself among them.
Siblings = Callable[[int], frozenset[int]]
# The CPUs of a source, and those of its sink; empty: any.
Pins = tuple[tuple[int, ...], tuple[int, ...]]
P = TypeVar("P")


def usable_cpus() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def cpu_plan(streams: int, cpus: Sequence[int]) -> list[Pins]:
    """CPUs of each stream's source and sink.

    Every source has a CPU of its own where there is one, sinks share what is left. Where there are too
    few, nothing is pinned (empty): the scheduler balances better than a fixed overload would.
    """
    if len(cpus) >= 2 * streams:
        return [((cpus[n],), (cpus[streams + n],)) for n in range(streams)]
    if len(cpus) > streams:
        return [((cpus[n],), tuple(cpus[streams:])) for n in range(streams)]
    return [((), ()) for _ in range(streams)]


def receiving_cpus(streams: int, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """CPUs of the kernel thread that takes each stream in at the UUT.

    One of its own where there is one for each, else that of the stream's sink: a source that paces leaves no time.
    """
    if len(cpus) >= 3 * streams:
        return [(cpus[2 * streams + n],) for n in range(streams)]
    return [sink for _, sink in cpu_plan(streams, cpus)]


def cpu_plans(
    paths: Sequence[StreamPath],
    cpus: Callable[[str | None], Sequence[int]],
    plan: Callable[[int, Sequence[int]], Iterable[P]],
) -> Iterator[tuple[StreamPath, P]]:
    """Each path with what a plan gives it, out of the CPUs that `cpus` says a machine has.

    A source and a sink on two machines are in nobody's way: none are given to them.
    """
    machines = dict.fromkeys((path.source.machine, path.sink.machine) for path in paths)
    for machine, other in machines:
        there = [path for path in paths if (path.source.machine, path.sink.machine) == (machine, other)]
        yield from zip(there, plan(len(there), cpus(machine) if machine == other else ()), strict=True)


def siblings_here(cpu: int) -> frozenset[int]:
    """The hardware threads of the core that a CPU of this machine belongs to (cputopology.rst, core_cpus_list)."""
    try:
        return parse_cpu_list((_SYSFS / f"cpu{cpu}/topology/thread_siblings_list").read_text())
    except OSError:
        return frozenset({cpu})  # a kernel that does not tell of cores


def require_cpus(cpus: Iterable[int], usable: Sequence[int], whose: str) -> None:
    """UsageError, which says `whose` CPUs they are, unless all of them may be used."""
    for cpu in cpus:
        if cpu not in usable:
            raise UsageError(f"{whose}: there is no CPU {cpu} to use; there are {_listed(usable)}")


def victim_cpus(spec: UutSpec, neighbours: Iterable[NeighbourSpec], usable: Sequence[int]) -> tuple[int, ...]:
    """The CPUs the victim runs on: its `host_cpus`, else those of its `pin` option; empty: any.

    Where a neighbour beside it is placed relative to the victim, the victim needs a place of its own: the last CPU, as
    sources have the first ones.
    UsageError for `host_cpus` that may not be used.
    """
    require_cpus(spec.host_cpus, usable, "host_cpus")
    named = spec.host_cpus or _numbers(spec.options.get("pin"))
    if not named and any(isinstance(neighbour.placement, str) for neighbour in neighbours):
        return tuple(usable[-1:])
    return named


def placed(
    placement: Placement | None, victim: Sequence[int], usable: Sequence[int], siblings: Siblings = siblings_here
) -> tuple[int, ...]:
    """The CPUs for a neighbour of a victim that runs on these; empty: any.

    UsageError for CPUs by number that may not be used, MissingError where the machine has none in such a place.
    """
    beside = {cpu for own in victim for cpu in siblings(own)}
    match placement:
        case None:
            return ()
        case "same-cpu":
            return tuple(victim)
        case "sibling":
            return _found([cpu for cpu in usable if cpu in beside - set(victim)], placement, victim, usable)
        case "other-core":
            return _found([cpu for cpu in usable if cpu not in beside], placement, victim, usable)
        case _:
            require_cpus(placement, usable, "placement")
            return placement


def _found(cpus: Sequence[int], placement: str, victim: Sequence[int], usable: Sequence[int]) -> tuple[int, ...]:
    if not cpus:
        what = "hardware sibling of" if placement == "sibling" else "CPU on another core than"
        raise MissingError(
            f"placement: {placement}: of the CPUs to use ({_listed(usable)}) none is a {what} the victim's "
            f"({_listed(victim)}); place the neighbour elsewhere (same-cpu, sibling, other-core, or CPUs by number)"
        )
    return tuple(cpus)


def _numbers(option: object) -> tuple[int, ...]:
    """All CPUs that an option names, as `{vcpus: [[0], [1]], io: [1]}` does."""
    match option:
        case int():
            return (option,)
        case dict():
            return _numbers(tuple(option.values()))
        case list() | tuple():
            return tuple(sorted({cpu for part in option for cpu in _numbers(part)}))
        case _:
            return ()


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus)) or "none"
