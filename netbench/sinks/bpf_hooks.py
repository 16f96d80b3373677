"""Where the program of the sink bpf meets frames: which hooks an interface can have, and which of them is taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from netbench.bpf.attaching import Link, PlaceTakenError, attach_tc_ingress, attach_xdp
from netbench.bpf.libbpf import BpfError
from netbench.errors import MissingError
from netbench.linux.xdp_devices import XdpDevice, xdp_device
from netbench.sinks.bpf_counts import Counter, Room

Wanted = Literal["auto", "tcx", "xdp"]


@dataclass(frozen=True, slots=True)
class Hook:
    """A place on the way of a frame, the program for it, and how that gets there, by the interface's index."""

    name: str
    program: str
    attach: Callable[[int, int], Link]


TCX = Hook("tcx ingress", "nb_sink_tcx", attach_tc_ingress)
NATIVE = Hook("xdp, native", "nb_sink_xdp", lambda program, index: attach_xdp(program, index, "native"))
GENERIC = Hook("xdp, generic", "nb_sink_xdp", lambda program, index: attach_xdp(program, index, "generic"))


@dataclass(frozen=True, slots=True)
class Attached:
    """A program that counts at its hook, and why there.

    `by_ring`: to have it, a veth receives from a ring of 256 frames, where it may else do so inline.
    """

    counter: Counter
    link: Link
    hook: Hook
    why: str
    by_ring: bool

    def with_room(self, room: Room) -> "Attached":
        """One with this room instead, at the same hook; this one is closed."""
        counter = Counter(room, self.hook.program)
        self.link.replace(counter.program)
        self.counter.close()
        return replace(self, counter=counter)

    def close(self) -> None:
        """Take it away; harmless when called twice."""
        self.link.close()
        self.counter.close()


def attach(interface: str, wanted: Wanted, room: Room, *, by_napi: bool) -> Attached:
    """A program at the best hook that an interface of this namespace has.

    `by_napi`: whether the UUT receives frames by NAPI. MissingError where there is no hook, OSError where there is no
    interface.
    """
    device = xdp_device(interface)
    hooks, why = _order(wanted, device.kind, by_napi=by_napi)
    refused: list[str] = []
    taken = False
    for hook in hooks:
        try:
            return _attached(hook, device, room, "; ".join(refused) or why)
        except (BpfError, MissingError) as error:
            refused.append(str(error))
            taken |= isinstance(error, PlaceTakenError)
    if taken:
        refused.append(
            "a NIC runs one XDP program, and where the source xdp sends the way back from it has its own: `hook: tcx` "
            "has room beside it"
        )
    raise MissingError("; ".join(dict.fromkeys(refused)))


def _order(wanted: Wanted, kind: str, *, by_napi: bool) -> tuple[Sequence[Hook], str]:
    """What is tried one after the other, and why what comes first does."""
    if wanted == "tcx":
        return (TCX,), "as the profile says"
    if wanted == "xdp" and kind == "tun":
        return (GENERIC,), "the driver tun does not count frames that a program takes in it"
    if wanted == "xdp":
        return (NATIVE, GENERIC), "as the profile says"
    if kind != "veth":
        return (TCX, GENERIC), "a driver that runs programs may take its link down for a moment, and hide tags"
    if by_napi:
        return (NATIVE, TCX, GENERIC), "costs least where frames come in by NAPI"
    # Behind a system call that sends, they lack the room that XDP wants before a frame: each would be copied.
    return (TCX, NATIVE, GENERIC), "costs least where frames come in without NAPI"


def _attached(hook: Hook, device: XdpDevice, room: Room, why: str) -> Attached:
    counter = Counter(room, hook.program)
    try:
        link = hook.attach(counter.program, device.index)
    except BpfError:
        counter.close()
        raise
    return Attached(counter, link, hook, why, by_ring=hook is NATIVE and device.kind == "veth")
