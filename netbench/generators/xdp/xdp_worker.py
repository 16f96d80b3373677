"""The process of an `xdp` source: `python -m netbench.generators.xdp.xdp_worker IFACE ATTACH [CPU…]`, ATTACH 0 or 1."""

import errno
import os
import struct
import threading
import time
from contextlib import ExitStack, suppress

import numpy as np

from netbench.bpf.libbpf import BpfError, Loaded, attach_xdp, keep_dispatched, load, run_live
from netbench.errors import MissingError
from netbench.generators.source_worker import Worker, serve
from netbench.generators.xdp.live_run import LiveRun, take_signals
from netbench.generators.xdp.xdp_trial import Shared, XdpTrial, flow_rows
from netbench.linux.cgroups import exhausts_limit
from netbench.linux.proc import read_sched_times, softirq_threads
from netbench.linux.xdp_devices import XdpDevice, xdp_device
from netbench.model.frame_size import FCS_BYTES
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Sent, Traffic
from netbench.packets.flow_values import FlowBytes, flow_bytes

_HEADER_BYTES, _TAG_BYTES = 14, 4  # of Ethernet; a device accepts frames of its MTU plus both
# In ns: how often the link is checked, which the program cannot see, and the program, after its scheduled end.
_LINK_POLL_NS = 500_000_000
_POLL_NS = 500_000
_STOP_S = 2.0

_OTHERWISE = "or use `generator: auto`"


class LoadedSource:
    """The programs of the source in the kernel, with room for a number of flows, until close()."""

    def __init__(self, flows: int) -> None:
        """MissingError where they cannot be loaded."""
        self._stack = ExitStack()
        # A power of two, so that a few more flows need no other program.
        self.loaded = self._stack.enter_context(load("source", {"flows": 1 << (flows - 1).bit_length()}))
        with suppress(OSError, BpfError):  # without it, sending may begin late; the trial records that
            keep_dispatched(map(self.loaded.program, ("paced", "unpaced")), self._stack)
        self.shared = Shared.from_buffer(self.loaded.map("trials").memory())
        self._rows = np.frombuffer(self.loaded.map("flows").memory(), np.uint32)

    def has_room(self, flows: int) -> bool:
        """Whether the map of the program has a row for each of so many flows."""
        return self.loaded.map("flows").entries >= flows

    def write_flows(self, found: FlowBytes) -> None:
        """Write the bytes that differ between the flows of the next trial."""
        rows = flow_rows(found)
        self._rows[: rows.size] = rows.reshape(-1)

    def close(self) -> None:
        """Remove the programs and their maps from the kernel."""
        self._stack.close()


class XdpWorker(Worker):
    """The program of one interface, kept in the kernel across trials, and the current trial."""

    def __init__(self, interface: str, attach: str, *cpus: str) -> None:
        self._interface = interface
        self._cpus = [int(cpu) for cpu in cpus]
        self._softirq_thread = softirq_threads().get(self._cpus[0]) if self._cpus else None
        if not set(self._cpus) <= os.sched_getaffinity(0):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        take_signals()
        self._limited = exhausts_limit(os.getppid())  # this process's own /sys may lack control groups
        self._stack = ExitStack()
        self._source = LoadedSource(1)
        require_transmit(interface, self._source.loaded, self._stack, attach=attach == "1")
        self._flows: tuple[FrameTemplate, FlowBytes] | None = None
        self._running: LiveRun | None = None

    def prepare(self, traffic: Traffic) -> None:
        self._await_end()
        # Again for each trial: an interface of the same name may have taken the place of the first.
        device = xdp_device(self._interface)
        most, largest = device.mtu + _HEADER_BYTES + _TAG_BYTES + FCS_BYTES, traffic.frame_size.largest_bytes
        if not device.up:
            raise OSError(f"{self._interface} is down, or its link is")
        if why := transmit_refusal(self._interface, device):
            raise OSError(why)
        if largest > most:
            raise OSError(
                f"{self._interface} has an MTU of {device.mtu}: frames of {largest} bytes do not fit, at most {most}"
            )
        found = self._prepare_flows()
        loaded = self._source.loaded
        loaded.map("leaves_by").put(0, struct.pack("=I", device.index))
        # The kernel restores the length of a frame that the program has cut before it reuses the frame.
        spare = 1 if device.alters_frames else 0
        self._trial = XdpTrial(traffic, self.template, found, self._source.shared, spare)
        for place, shape in enumerate(self._trial.shapes):
            loaded.map("shapes").put(place, shape)
        try:
            run_live(loaded.program(self._trial.program), self._trial.frame, 1)  # this run sends nothing
        except BpfError as error:
            size = f"frames of {largest} bytes (a live frame and what the kernel keeps with it fill a page)"
            raise OSError(f"{error}, for {size}") from error

    def send(self, at_monotonic_ns: int) -> Sent:
        trial, shared = self._trial, self._source.shared
        trial.begin(at_monotonic_ns)
        program = self._source.loaded.program(trial.program)
        frames, until = (program, trial.frame, trial.batch, lambda: shared.done != 0), trial.end_ns
        self._running = run = LiveRun(*frames, self._cpus, until, limited=self._limited, realtime=self.realtime)
        softirqs_ns = self._softirqs_ns()
        run.start()
        while not (shared.done or run.has_left or self.halt.is_set()):
            now_ns = time.monotonic_ns()
            if now_ns < trial.nominal_end_ns:
                self.halt.sleep_until(min(trial.nominal_end_ns, now_ns + _LINK_POLL_NS))
                self._check_link()
            else:
                self.halt.sleep_until(now_ns + _POLL_NS)
        shared.done = 1
        spent, softirqs_ns = run.spent(), self._softirqs_ns() - softirqs_ns
        ending = threading.Thread(target=run.finish)
        ending.start()
        reason = run.error or self.halt.reason
        if reason:
            ending.join(_STOP_S)
        # Otherwise the result is complete, and the kernel needs some more ms to end.
        return trial.result(reason, spent, next(iter(self._cpus), None), softirqs_ns)

    def _softirqs_ns(self) -> int:
        """Return the CPU time of the kernel's softirq thread on the source's CPU so far; 0 where it is not visible."""
        times = read_sched_times(self._softirq_thread, self._softirq_thread) if self._softirq_thread else None
        return times.ran_ns if times else 0

    def _prepare_flows(self) -> FlowBytes:
        """Write the bytes that differ between the flows of the next trial for the program, and return them."""
        if self._flows is not None and self._flows[0] == self.template:
            return self._flows[1]
        found = flow_bytes(self.template)
        if not self._source.has_room(self.template.flows):
            smaller, self._source = self._source, LoadedSource(self.template.flows)
            smaller.close()
        if self.template.flows > 1:
            self._source.write_flows(found)
        self._flows = self.template, found
        return found

    def _check_link(self) -> None:
        try:
            if not xdp_device(self._interface).up:
                self.halt.set(f"the link of {self._interface} went down")
        except OSError as error:
            self.halt.set(f"{self._interface} is gone ({error.strerror})")

    def _await_end(self) -> None:
        """Wait until the last trial's thread has ended; TimeoutError when it does not."""
        if self._running is not None:
            self._running.join(_STOP_S)
            if self._running.is_alive():
                raise TimeoutError("the kernel does not end the program of the previous trial")
            self._running = None


def require_transmit(interface: str, loaded: Loaded, stack: ExitStack, *, attach: bool) -> None:
    """Make the interface accept frames until `stack` is closed; MissingError where it cannot.

    Most NIC drivers accept them only while a program is attached to the NIC. `attach` attaches one that passes all
    frames on.
    """
    device = xdp_device(interface)
    if attach and device.takes_frames is False and device.runs_programs and device.kind != "veth":
        try:
            link = attach_xdp(loaded.program("attached"), device.index, "native")
        except BpfError as error:
            why = f"the driver ({device.kind}) of {interface} rejects frames from XDP programs, and {error}"
            raise MissingError(f"{why}; {_OTHERWISE}") from error
        stack.callback(link.close)
        device = xdp_device(interface)
    if why := transmit_refusal(interface, device):
        raise MissingError(why)


def transmit_refusal(interface: str, device: XdpDevice) -> str:
    """Return why the interface accepts no frames from XDP programs, with the remedy; empty where it does."""
    if device.takes_frames:
        return ""
    if device.takes_frames is None:
        return (
            f"Linux {os.uname().release} does not report whether {interface} accepts frames from XDP programs: "
            f"Linux 6.3 does; {_OTHERWISE}"
        )
    if device.kind == "veth":
        return (
            f"{interface} is a veth whose other end receives without NAPI, and so rejects frames from XDP programs: "
            f"set `receive: napi` for the link in the topology (or `ethtool -K PEER gro on`); {_OTHERWISE}"
        )
    driver = f"the driver ({device.kind})" if device.kind else "the driver"
    if device.runs_programs:
        return (
            f"{driver} of {interface} accepts frames from XDP programs only while one is attached to it, "
            "which `generator: xdp` does"
        )
    return f"{driver} of {interface} rejects frames from XDP programs (it has no ndo_xdp_xmit); {_OTHERWISE}"


if __name__ == "__main__":
    serve(XdpWorker)
