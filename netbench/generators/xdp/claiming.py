"""Checks whether an interface accepts frames from XDP programs, and explains what is missing and the remedy."""

import os
from contextlib import ExitStack

from netbench.bpf.attaching import attach_xdp
from netbench.bpf.libbpf import BpfError, Loaded
from netbench.errors import MissingError
from netbench.linux.xdp_devices import XdpDevice, xdp_device

_OTHERWISE = "`generator: auto` takes what works"


def claim(interface: str, loaded: Loaded, stack: ExitStack, *, attach: bool) -> None:
    """Make the interface accept frames until `stack` is closed; MissingError where it cannot.

    Most NIC drivers accept them only while a program is attached to the NIC. `attach` attaches one that passes all
    frames on.
    """
    device = xdp_device(interface)
    if attach and device.takes_frames is False and device.runs_programs and device.kind != "veth":
        try:
            link = attach_xdp(loaded.program("attached"), device.index, "native")
        except BpfError as error:
            why = f"the driver ({device.kind}) of {interface} takes no frames from XDP programs, and {error}"
            raise MissingError(f"{why}; {_OTHERWISE}") from error
        stack.callback(link.close)
        device = xdp_device(interface)
    if why := refusal(interface, device):
        raise MissingError(why)


def refusal(interface: str, device: XdpDevice) -> str:
    """Return why the interface accepts no frames from XDP programs, with the remedy; empty where it does."""
    if device.takes_frames:
        return ""
    if device.takes_frames is None:
        return (
            f"Linux {os.uname().release} does not tell whether {interface} takes frames from XDP programs: "
            f"that needs 6.3 or newer; {_OTHERWISE}"
        )
    if device.kind == "veth":
        return (
            f"{interface} is a veth whose other end receives without NAPI, and so takes no frames from XDP programs: "
            f"have the link `receive: napi` in the topology (or `ethtool -K PEER gro on`); {_OTHERWISE}"
        )
    driver = f"the driver ({device.kind})" if device.kind else "the driver"
    if device.runs_programs:
        return (
            f"{driver} of {interface} takes frames from XDP programs only while one is attached to it, "
            "which `generator: xdp` does"
        )
    return f"{driver} of {interface} takes no frames from XDP programs (it has no ndo_xdp_xmit); {_OTHERWISE}"
