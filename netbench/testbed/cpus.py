"""The CPUs of each role on a machine: sources, sinks, the victim, and the neighbours relative to the victim."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from netbench.errors import MissingError, UsageError
from netbench.linux.proc import parse_cpu_list
from netbench.model.paths import StreamPath
from netbench.model.topology_specs import NeighbourSpec, Placement, UutSpec

_SYSFS = Path("/sys/devices/system/cpu")

# Returns the CPUs that share a core with a CPU, that CPU included.
Siblings = Callable[[int], frozenset[int]]
# The CPUs of a source, and those of its sink; empty: any.
Pins = tuple[tuple[int, ...], tuple[int, ...]]
P = TypeVar("P")


def usable_cpus() -> list[int]:
    """Return the CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def cpu_plan(streams: int, cpus: Sequence[int]) -> list[Pins]:
    """Return the CPUs of each stream's source and sink.

    Every source gets its own CPU if there are enough; the sinks share the rest. With too few CPUs nothing
    is pinned (empty), because the scheduler balances better than a fixed overload would.
    """
    if len(cpus) >= 2 * streams:
        return [((cpus[n],), (cpus[streams + n],)) for n in range(streams)]
    if len(cpus) > streams:
        return [((cpus[n],), tuple(cpus[streams:])) for n in range(streams)]
    return [((), ()) for _ in range(streams)]


def receiving_cpus(streams: int, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the CPUs of the kernel thread that receives each stream at the UUT.

    Each thread gets its own CPU if there are enough, else the CPU of the stream's sink: a source that paces
    leaves no CPU time.
    """
    if len(cpus) >= 3 * streams:
        return [(cpus[2 * streams + n],) for n in range(streams)]
    return [sink for _, sink in cpu_plan(streams, cpus)]


def not_beside_flows(path: StreamPath) -> bool:
    """Whether a stream carries frames only while the UUT serves flows: never."""
    return False


def cpu_plans(
    paths: Sequence[StreamPath],
    cpus: Callable[[str | None], Sequence[int]],
    plan: Callable[[int, Sequence[int]], Iterable[P]],
    is_beside_flows: Callable[[StreamPath], bool] = not_beside_flows,
) -> Iterator[tuple[StreamPath, P]]:
    """Yield each path with its part of the plan, made from the CPUs that `cpus` returns for the machine.

    A source and a sink on two machines do not compete for CPUs, so they get none. Paths `is_beside_flows` carry
    frames only while the UUT serves, and the others carry none: with too few CPUs for all, both sets get the same ones.
    """
    machines = dict.fromkeys((path.source.machine, path.sink.machine) for path in paths)
    for machine, sink_machine in machines:
        group = [path for path in paths if (path.source.machine, path.sink.machine) == (machine, sink_machine)]
        usable = cpus(machine) if machine == sink_machine else ()
        sets = [group]
        if len(usable) <= len(group):
            sets = [[path for path in group if is_beside_flows(path) is beside] for beside in (False, True)]
        for together in sets:
            yield from zip(together, plan(len(together), usable), strict=True)


def bound_ends(
    paths: Sequence[StreamPath],
    cpus: Callable[[str | None], Sequence[int]],
    is_beside_flows: Callable[[StreamPath], bool],
    avoided: Callable[[StreamPath], Collection[int]],
) -> Iterator[tuple[StreamPath, Pins]]:
    """Yield each path with the CPUs of its source and sink: those of `cpu_plan` without the ones it has `avoided`.

    A source or sink without a CPU then has all others of its machine.
    """
    for path, pins in cpu_plans(paths, cpus, cpu_plan, is_beside_flows):
        of_server = avoided(path) if path.source.machine == path.sink.machine else ()
        others = tuple(cpu for cpu in cpus(path.source.machine) if cpu not in of_server) if of_server else ()
        source, sink = (tuple(cpu for cpu in pin if cpu not in of_server) or others for pin in pins)
        yield path, (source, sink)


def siblings_here(cpu: int) -> frozenset[int]:
    """Return the hardware threads of this CPU's core on this machine (cputopology.rst, core_cpus_list)."""
    try:
        return parse_cpu_list((_SYSFS / f"cpu{cpu}/topology/thread_siblings_list").read_text())
    except OSError:
        return frozenset({cpu})  # a kernel that does not report cores


def require_cpus(cpus: Iterable[int], usable: Sequence[int], whose: str) -> None:
    """Raise UsageError, which starts with `whose`, unless all these CPUs are usable."""
    for cpu in cpus:
        if cpu not in usable:
            raise UsageError(f"{whose}: there is no CPU {cpu} to use; there are {_listed(usable)}")


def victim_cpus(spec: UutSpec, neighbours: Iterable[NeighbourSpec], usable: Sequence[int]) -> tuple[int, ...]:
    """Return the victim's CPUs: its `host_cpus`, else those of its `pin` option; empty: any.

    If a neighbour is placed relative to an unpinned victim, the victim gets the last CPU, because sources have the
    first ones.
    UsageError for `host_cpus` that are not usable.
    """
    require_cpus(spec.host_cpus, usable, "host_cpus")
    named = spec.host_cpus or _numbers(spec.options.get("pin"))
    if not named and any(isinstance(neighbour.placement, str) for neighbour in neighbours):
        return tuple(usable[-1:])
    return named


def placed(
    placement: Placement | None, victim: Sequence[int], usable: Sequence[int], siblings: Siblings = siblings_here
) -> tuple[int, ...]:
    """Return the CPUs for a neighbour of a victim that runs on the CPUs `victim`; empty: any.

    UsageError for numbered CPUs that are not usable, MissingError where the machine has no CPU in that position.
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
    """Return all CPUs in the value of an option, such as `{vcpus: [[0], [1]], io: [1]}`."""
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
