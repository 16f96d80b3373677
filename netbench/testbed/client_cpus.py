"""The CPUs of clients and their taps, by the guests of the UUT that they reach."""

from collections.abc import Callable, Mapping, Sequence

from netbench.testbed.cpus import CpuCompetition, Pins, alone, client_pins, siblings_here
from netbench.testbed.resolved import Guests


def pins_of_clients(
    guests: Guests,
    competition: CpuCompetition,
    of_streams: Mapping[str, Pins],
    cpus: Callable[[str | None], Sequence[int]],
) -> dict[str, Pins]:
    """Return the CPUs of the client of each stream, and those of its taps, where all of its path is on one machine.

    `guests` are the UUT and its neighbours. `of_streams` are the CPUs of each stream's source and sink if all streams
    carry frames. `cpus` returns the usable CPUs of a machine.
    """
    running = {name: guest for name, guest in guests.items() if name in competition.guests}
    of_guests = {name: guest.assignment.cpu_shares.cpus for name, guest in running.items()}
    found = {}
    for name, guest in running.items():
        others = [of_guests[other] for other in running if other != name]
        for path in guest.assignment.paths:
            machine, *elsewhere = {nic.machine for nic in path.nics.values()}
            if path.name in of_streams and not elsewhere:
                siblings = siblings_here if machine is None else alone
                found[path.name] = client_pins(of_streams[path.name], of_guests[name], others, cpus(machine), siblings)
    return found


def pins_text(pins: Mapping[str, Pins], streams: Sequence[str]) -> str:
    """`s1: client 0, taps 0`: the CPUs of clients and taps of these streams; empty if all run anywhere."""
    texts = (
        f"{name}: client {_listed(pins[name][0])}, taps {_listed(pins[name][1])}"
        for name in streams
        if name in pins and any(pins[name])
    )
    return "; ".join(texts)


def _listed(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus)) or "any"
