"""The hooks at which a program of the sink bpf counts frames, and the choice of the best one of an interface."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from netbench.bpf.libbpf import BpfError, BpfLink, HookTakenError, attach_tc_ingress, attach_xdp
from netbench.errors import Fault, MissingError
from netbench.linux.xdp_devices import XdpDevice, xdp_device
from netbench.sinks.bpf_counter import BpfCounter, Capacity

HookChoice = Literal["auto", "tcx", "xdp"]


@dataclass(frozen=True, slots=True)
class BpfHook:
    """A place on the path of a frame, its programs, and the function that attaches one by the interface's index.

    `program` counts plain frames, `headers_program` those of described packets.
    """

    name: str
    program: str
    headers_program: str
    attach: Callable[[int, int], BpfLink]

    def counter(self, room: Capacity) -> BpfCounter:
        """Return the program for trials of this room, loaded; errors as in netbench.bpf.libbpf.load."""
        return BpfCounter(room, self.headers_program if room.flows else self.program)


_XDP_PROGRAMS = "nb_sink_xdp", "nb_headers_xdp"
TCX = BpfHook("tcx ingress", "nb_sink_tcx", "nb_headers_tcx", attach_tc_ingress)
NATIVE = BpfHook("xdp, native", *_XDP_PROGRAMS, lambda program, index: attach_xdp(program, index, "native"))
GENERIC = BpfHook("xdp, generic", *_XDP_PROGRAMS, lambda program, index: attach_xdp(program, index, "generic"))


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

    def with_room(self, room: Capacity) -> "AttachedCounter":
        """Return a replacement with this room at the same hook; this one is closed."""
        counter = self.hook.counter(room)
        self.link.replace(counter.program)
        self.counter.close()
        return replace(self, counter=counter)

    def close(self) -> None:
        """Detach the program; harmless if called twice."""
        self.link.close()
        self.counter.close()


def attach(interface: str, choice: HookChoice, room: Capacity, *, by_napi: bool) -> AttachedCounter:
    """Attach a program at the best hook of an interface of this namespace, and return it.

    `by_napi`: whether the UUT receives frames by NAPI. MissingError if there is no hook, OSError if there is no
    interface.
    """
    device = xdp_device(interface)
    hooks, why = _hooks(choice, device.kind, by_napi=by_napi)
    refusals: list[str] = []
    is_taken, fault, package = False, Fault.NONE, ""
    for hook in hooks:
        try:
            return _attached(hook, device, room, "; ".join(refusals) or why)
        except (BpfError, MissingError) as error:
            refusals.append(str(error))
            is_taken |= isinstance(error, HookTakenError)
            fault, package = fault | error.fault, package or error.package
    if is_taken:
        refusals.append(
            "a NIC runs one XDP program, and the source xdp of the reverse stream may have attached its own: "
            "set `hook: tcx`"
        )
    raise MissingError("; ".join(dict.fromkeys(refusals)), fault=fault, package=package)


def _hooks(choice: HookChoice, kind: str, *, by_napi: bool) -> tuple[Sequence[BpfHook], str]:
    """Return the hooks in the order in which they are tried, and the reason for the first one."""
    if choice == "tcx":
        return (TCX,), "as set in the profile"
    if choice == "xdp" and kind == "tun":
        return (GENERIC,), "the driver tun does not count frames that a program takes in it"
    if choice == "xdp":
        return (NATIVE, GENERIC), "as set in the profile"
    if kind != "veth":
        return (TCX, GENERIC), "a driver that runs programs may take its link down for a moment, and hide tags"
    if by_napi:
        return (NATIVE, TCX, GENERIC), "costs least where frames come in by NAPI"
    # Frames from a sending system call lack the headroom that XDP requires: each would be copied.
    return (TCX, NATIVE, GENERIC), "costs least where frames come in without NAPI"


def _attached(hook: BpfHook, device: XdpDevice, room: Capacity, why: str) -> AttachedCounter:
    counter = hook.counter(room)
    try:
        link = hook.attach(counter.program, device.index)
    except BpfError:
        counter.close()
        raise
    return AttachedCounter(counter, link, hook, why, by_ring=hook is NATIVE and device.kind == "veth")
