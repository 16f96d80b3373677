"""The CPUs of each role on a machine: sources, sinks, the victim, and the neighbours relative to the victim."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
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


@dataclass(frozen=True, slots=True)
class CpuCompetition:
    """The streams and guests that compete for CPUs.

    Streams `is_beside_flows` carry frames only while the UUT serves, and the others carry none then. `of_servers`
    returns the CPUs of pinned UUTs that a stream's source and sink avoid, given the usable CPUs of their machine.
    `guests` run in any scenario, by name. Streams with `clients` carry flows in any scenario.
    """

    is_beside_flows: Callable[[StreamPath], bool] = lambda _: False
    of_servers: Callable[[StreamPath, Sequence[int]], Collection[int]] = lambda *_: ()
    guests: Collection[str] = ()
    clients: Collection[str] = ()


FRAMES_ONLY = CpuCompetition()


def cpu_plans(
    paths: Sequence[StreamPath],
    cpus: Callable[[str | None], Sequence[int]],
    plan: Callable[[int, Sequence[int]], Iterable[P]],
    competition: CpuCompetition = FRAMES_ONLY,
) -> Iterator[tuple[StreamPath, P]]:
    """Yield each path with its part of the plan, made from the CPUs that `cpus` returns for the machine.

    A source and a sink on two machines do not compete for CPUs, so they get none. With too few CPUs for all paths,
    those beside flows get the same ones as the others, if there are enough for both sets.
    """
    machines = dict.fromkeys((path.source.machine, path.sink.machine) for path in paths)
    for machine, sink_machine in machines:
        group = [path for path in paths if (path.source.machine, path.sink.machine) == (machine, sink_machine)]
        usable = cpus(machine) if machine == sink_machine else ()
        apart = [[path for path in group if competition.is_beside_flows(path) is beside] for beside in (False, True)]
        is_split = len(usable) <= len(group) and all(len(usable) > len(part) for part in apart)
        for part in apart if is_split else [group]:
            yield from zip(part, plan(len(part), usable), strict=True)


def siblings_here(cpu: int) -> frozenset[int]:
    """Return the hardware threads of this CPU's core on this machine (cputopology.rst, core_cpus_list)."""
    try:
        return parse_cpu_list((_SYSFS / f"cpu{cpu}/topology/thread_siblings_list").read_text())
    except OSError:
        return frozenset({cpu})  # a kernel that does not report cores


def bound_ends(
    paths: Sequence[StreamPath],
    cpus: Callable[[str | None], Sequence[int]],
    competition: CpuCompetition = FRAMES_ONLY,
    siblings: Siblings = siblings_here,
) -> Iterator[tuple[StreamPath, Pins]]:
    """Yield each path with the CPUs of its source and sink: those of `cpu_plan`, apart from pinned UUTs that serve.

    A source or sink whose CPUs are all those of servers has all others of its machine, or any if there are none.
    """
    for path, pins in cpu_plans(paths, cpus, cpu_plan, competition):
        machine = path.source.machine
        usable = cpus(machine) if machine == path.sink.machine else ()
        of_servers = competition.of_servers(path, usable) if usable else ()
        if of_servers:
            free = apart_from(of_servers, usable, siblings if machine is None else alone)
            source, sink = (tuple(cpu for cpu in pin if cpu in free) or free for pin in pins)
            pins = source, sink
        yield path, pins


def apart_from(taken: Collection[int], usable: Sequence[int], siblings: Siblings) -> tuple[int, ...]:
    """Return the usable CPUs on other cores than those `taken`, or else all others."""
    cores = {sibling for cpu in taken for sibling in siblings(cpu)}
    return tuple(cpu for cpu in usable if cpu not in cores) or tuple(cpu for cpu in usable if cpu not in taken)


def client_pins(
    pins: Pins,
    server: Collection[int],
    neighbours: Sequence[Collection[int]],
    usable: Sequence[int],
    siblings: Siblings,
) -> Pins:
    """Return the CPUs of a client and those of its taps: `pins` without the CPUs of guests, or else all without them.

    `server` are the CPUs of the guest that serves, `neighbours` those of each other guest of its UUT in any scenario:
    a client has the same CPUs in all of them. Empty: any. If guests have all CPUs, the client shares CPUs of
    other guests where more than two remain for each of them, one for a guest and one for its source. Else it shares
    those of its server: the client must not show how much a neighbour delays it.
    """
    taken = {*server, *chain.from_iterable(neighbours)}
    if not taken:
        return pins
    allowed = apart_from(taken, usable, siblings)
    if not allowed:
        beside = tuple(cpu for cpu in usable if cpu not in server)
        shared = beside if len(beside) > 2 * len(neighbours) else tuple(server)
        return shared, shared
    client, tap = (tuple(cpu for cpu in pin if cpu in allowed) or allowed for pin in pins)
    return client, tap


def alone(cpu: int) -> frozenset[int]:
    """Return this CPU only: the cores of another machine are unknown."""
    return frozenset({cpu})


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
