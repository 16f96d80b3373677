"""Hooks of the program of the sink bpf: the ones that an interface supports, and the choice among them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from netbench.bpf.attaching import BpfLink, PlaceTakenError, attach_tc_ingress, attach_xdp
from netbench.bpf.libbpf import BpfError
from netbench.errors import MissingError
from netbench.linux.xdp_devices import XdpDevice, xdp_device
from netbench.sinks.bpf_counts import BpfCounter, Room

Wanted = Literal["auto", "tcx", "xdp"]


@dataclass(frozen=True, slots=True)
class BpfHook:
    """A place on the path of a frame, its program, and the function that attaches it by the interface's index."""

    name: str
    program: str
    attach: Callable[[int, int], BpfLink]


TCX = BpfHook("tcx ingress", "nb_sink_tcx", attach_tc_ingress)
NATIVE = BpfHook("xdp, native", "nb_sink_xdp", lambda program, index: attach_xdp(program, index, "native"))
GENERIC = BpfHook("xdp, generic", "nb_sink_xdp", lambda program, index: attach_xdp(program, index, "generic"))


@dataclass(frozen=True, slots=True)
class AttachedCounter:
    """A program that counts at its hook, and the reason for that hook.

    `by_ring`: because of the program, a veth receives from a ring of 256 frames, where it could otherwise do so inline.
    """

    counter: BpfCounter
    link: BpfLink
    hook: BpfHook
    why: str
    by_ring: bool

    def with_room(self, room: Room) -> "AttachedCounter":
        """Return a replacement with this room at the same hook; this one is closed."""
        counter = BpfCounter(room, self.hook.program)
        self.link.replace(counter.program)
        self.counter.close()
        return replace(self, counter=counter)

    def close(self) -> None:
        """Detach the program; harmless if called twice."""
        self.link.close()
        self.counter.close()


def attach(interface: str, wanted: Wanted, room: Room, *, by_napi: bool) -> AttachedCounter:
    """Attach a program at the best hook of an interface of this namespace, and return it.

    `by_napi`: whether the UUT receives frames by NAPI. MissingError if there is no hook, OSError if there is no
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


def _order(wanted: Wanted, kind: str, *, by_napi: bool) -> tuple[Sequence[BpfHook], str]:
    """Return the hooks in the order in which they are tried, and the reason for the first one."""
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
    # Frames from a sending system call lack the headroom that XDP requires: each would be copied.
    return (TCX, NATIVE, GENERIC), "costs least where frames come in without NAPI"


def _attached(hook: BpfHook, device: XdpDevice, room: Room, why: str) -> AttachedCounter:
    counter = BpfCounter(room, hook.program)
    try:
        link = hook.attach(counter.program, device.index)
    except BpfError:
        counter.close()
        raise
    return AttachedCounter(counter, link, hook, why, by_ring=hook is NATIVE and device.kind == "veth")
