"""pktgen of one network namespace, shared by the sources there.

One write of `start` starts every device of the namespace on all kernel threads, and returns when all have ended. A
single device cannot be started (`pktgen_run_all_threads` in the kernel's net/core/pktgen.c). The sources of a trial are
therefore started together, at the start of the last one. Devices without a part in the trial are removed first.
"""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from netbench.errors import TestbedError
from netbench.generators.pktgen.files import CONTROL, DIRECTORY, PktgenDevice, PktgenFiles, thread_file
from netbench.generators.pktgen.packet_settings import DEPENDENT
from netbench.generators.pktgen.parameters import NO_DELAY, Settings
from netbench.hosts.base import Host, Process
from netbench.hosts.clock import wait_until

# An idle kernel thread checks for work every HZ/10: `pktgen_thread_worker` in net/core/pktgen.c.
THREAD_WAKES_S = 0.1
# Threads notice a stop at once, the writer of `start` within 100 ms (`pktgen_wait_thread_run`).
_STOP_S = 2.0
_POLL_S = 0.05
# A delay in ns: shorter than a thread needs to send a frame of each of two devices, but long enough that devices that
# began some microseconds apart are level after some hundred frames.
_TURN = "100"

# Selecting this mode also marks the last frame as sent (`last_ok`), which it is not on a new device. Without it, the
# first frame would not use up its slot and all others would be one slot early.
_ARM = "queue_xmit"
# Names of settings in the device file that differ from the names of their commands.
_SHOWN_AS: Mapping[str, tuple[str, ...]] = {
    "pkt_size": ("min_pkt_size", "max_pkt_size"),
    **dict.fromkeys(("src6", "dst6", "tos", "traffic_class", *DEPENDENT), ()),
}


@dataclass(slots=True)
class PktgenSender:
    """A device of netbench. `settings` are those of the next run, `in_kernel` those of the device; None: no device."""

    device: str
    cpu: int
    xmit_mode: str
    settings: Settings = field(default_factory=dict)
    in_kernel: dict[str, str] | None = None


@dataclass(slots=True)
class _Round:
    """One run of the sources that start together. `lengths` has the longest sending time in s, by device."""

    writer: Process
    writer_code: int | None = None  # None until the writer has ended
    lengths: dict[str, float] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    started_s: float | None = None  # time.monotonic()
    stopped: bool = False  # by netbench
    over: bool = False
    error: str = ""
    reports: dict[str, PktgenDevice | None] = field(default_factory=dict)


class Control:
    """pktgen in one namespace."""

    def __init__(self, host: Host, used: Counter[int]) -> None:
        """`used` counts the devices on each CPU of the machine, including those of its other namespaces."""
        self._files = PktgenFiles(host)
        self._used = used
        self._senders: list[PktgenSender] = []
        self._round: _Round | None = None
        self.loaded_by_us = False  # the kernel module

    def unsupported_reason(self) -> str:
        """Return why pktgen cannot be used, as a phrase; empty when it can. Touches nothing."""
        host = self._files.host.name
        if self._files.loaded():
            return self._foreign(self._files.devices())
        if self._files.loadable():
            return ""
        return f"the kernel of host {host} has no pktgen: neither loaded nor loadable"

    def add_device(self, interface: str, cpus: Sequence[int], xmit_mode: str, settings: Settings) -> PktgenSender:
        """Add a device on the least used of the kernel threads of `cpus`, or of all threads when `cpus` is empty.

        A second device of an interface needs a separate thread.

        Raises TestbedError when the kernel rejects it or other software uses pktgen here, MissingError without pktgen.
        """
        if not self._files.loaded():
            self._files.load()
            self.loaded_by_us = True
        self._refuse_foreign(self._files.devices())
        threads, host = self._files.threads(), self._files.host.name
        for cpu in cpus:
            if cpu not in threads:
                online = ", ".join(map(str, threads))
                raise TestbedError(f"host {host} has no pktgen thread on CPU {cpu}, only on {online}")
        taken = {sender.device for sender in self._senders}
        free = [cpu for cpu in cpus or threads if f"{interface}@{cpu}" not in taken]
        if not free:
            usable = ", ".join(map(str, cpus or threads))
            raise TestbedError(f"{interface} of host {host} can have only one thread on each of the CPUs {usable}")
        cpu = min(free, key=self._used.__getitem__)
        sender = PktgenSender(f"{interface}@{cpu}", cpu, xmit_mode, settings)
        self._senders.append(sender)
        self._used[cpu] += 1
        try:
            self._set_up(sender)
        except TestbedError:
            self.remove_device(sender)
            raise
        return sender

    def remove_device(self, sender: PktgenSender) -> None:
        """Remove a device. This removes other devices on its thread too; they are added again when needed."""
        if sender not in self._senders:
            return
        self._abandon_round()
        try:
            if sender.in_kernel is not None:
                self._clear(sender.cpu)
        finally:
            self._senders.remove(sender)
            self._used[sender.cpu] -= 1

    def prepare(self, sender: PktgenSender, settings: Settings, length_s: float) -> None:
        """Configure a device for the next run, which is stopped after `length_s` seconds.

        Raises TestbedError when the kernel rejects a setting or sets another value.
        """
        current = self._round
        if current is None or current.started_s is not None or sender.device in current.lengths:
            current = self._new_round()
        sender.settings = settings
        self._set_up(sender)
        current.lengths[sender.device] = length_s

    def start(self, sender: PktgenSender, at_monotonic_ns: int) -> None:
        """Mark a source as ready to start; the last one of the round starts all.

        The start waits for `at_monotonic_ns` where that is this machine's clock. Errors are reported by finish().
        """
        current = self._round
        if current is None or current.over:
            return
        current.ready.add(sender.device)
        if current.ready != current.lengths.keys():
            return
        try:
            self._arrange(current)
        except TestbedError as error:
            current.error, current.over = str(error), True
            return
        if self._files.host.shares_files:
            time.sleep(max(0.0, at_monotonic_ns - time.monotonic_ns()) / 1e9)
        current.started_s = time.monotonic()
        assert current.writer.stdin
        with suppress(OSError):  # finish() detects a writer that has died
            current.writer.stdin.write("start\n")
            current.writer.stdin.flush()

    def finish(self, sender: PktgenSender, timeout_s: float) -> tuple[PktgenDevice | None, str]:
        """Return the state of a device after the run, and the error; None when its state is unknown.

        A run is stopped when the time of all its devices is up, or after `timeout_s`.
        """
        current = self._round
        if current is None or sender.device not in current.ready:
            return None, "pktgen was not started"
        if current.ready != current.lengths.keys():
            waiting = ", ".join(sorted(current.lengths.keys() - current.ready))
            return None, f"pktgen was not started: {waiting} on the same host was prepared, but not started"
        if not current.over:
            self._await_end(current, timeout_s)
            current.over = True
        return current.reports.get(sender.device), current.error

    def _new_round(self) -> _Round:
        self._abandon_round()
        present = self._files.devices()
        self._refuse_foreign(present)
        for sender in self._senders:
            if sender.device not in present:
                sender.in_kernel = None  # its interface was removed, and the kernel removed the device
        self._round = _Round(self._files.host.spawn(["tee", f"{DIRECTORY}/{CONTROL}"]))
        return self._round

    def _abandon_round(self) -> None:
        """End a round, with its run and its writer."""
        if self._round is None:
            return
        if self._round.started_s is not None and not self._round.over:
            with suppress(TestbedError):  # its host is gone, and with it the senders
                self._files.write(CONTROL, "stop")
        if self._round.writer_code is None:
            self._round.writer.kill()
            with suppress(subprocess.TimeoutExpired):  # it is blocked inside the kernel
                self._round.writer.communicate(timeout=_STOP_S)
        self._round = None

    def _arrange(self, current: _Round) -> None:
        """Remove the devices that have no part in a round, and make those at full speed on the same thread take turns.

        Without a delay, a device is due from the start on, and the thread takes the first of the devices that have been
        due longest: `next_to_run` in net/core/pktgen.c. With a short delay, each device falls behind after its turn.
        """
        added = [sender for sender in self._senders if sender.in_kernel is not None]
        for cpu in {sender.cpu for sender in added if sender.device not in current.lengths}:
            self._clear(cpu)  # also removes devices that have a part, which are added again below
        sending = [sender for sender in self._senders if sender.device in current.lengths]
        on_thread = Counter(sender.cpu for sender in sending)
        for sender in sending:
            takes_turns = on_thread[sender.cpu] > 1 and sender.settings.get("delay") == NO_DELAY
            if takes_turns:
                sender.settings = {**sender.settings, "delay": _TURN}
            if takes_turns or sender.in_kernel is None:
                self._set_up(sender)

    def _await_end(self, current: _Round, timeout_s: float) -> None:
        """Wait for the end of a run, or stop it, and read the devices."""
        assert current.started_s is not None
        length_s = min(timeout_s, THREAD_WAKES_S + max(current.lengths.values()))
        if self._ends(current, current.started_s + length_s):
            return
        if current.writer_code is None:
            # The signal ends the run (`pktgen_wait_all_threads_run` in net/core/pktgen.c). A process that writes `stop`
            # would take CPU time from the run's last frames.
            current.stopped = True
            current.writer.terminate()
        else:
            try:
                self._files.write(CONTROL, "stop")
            except TestbedError as error:
                current.error = str(error)
                return
        if not self._ends(current, time.monotonic() + _STOP_S):
            current.writer.kill()
            current.error = f"pktgen did not stop within {_STOP_S:g} s: its last frame may be stuck in the NIC's queue"

    def _ends(self, current: _Round, deadline_s: float) -> bool:
        """Return whether a run ends by the deadline (time.monotonic()); if so, its devices have been read.

        A failure of the process that writes `start` is recorded in the round.
        """
        if current.writer_code is None:
            try:
                _, output = current.writer.communicate(timeout=max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
            current.writer_code = code = current.writer.wait()
            if code and not (current.stopped and code == -signal.SIGTERM):
                ending = f"was killed by signal {-code}" if code < 0 else f"failed: {output.strip()}"
                current.error = f"the process that starts pktgen {ending}"
        if current.writer_code > 0:
            return True  # the start itself failed
        return wait_until(lambda: self._all_ended(current), deadline_s - time.monotonic(), _POLL_S)

    def _all_ended(self, current: _Round) -> bool:
        """Read the devices of a round; return whether all of them have ended.

        The kernel waits for running threads, but not for one that did not wake up within 125 ms to start.
        """
        for name in current.lengths:
            report = current.reports.get(name)
            if name in current.reports and (report is None or report.ended):
                continue
            try:
                current.reports[name] = self._files.device(name)
            except TestbedError as error:
                current.reports[name] = None
                current.error = self._why_lost(name, error)
        return all(report is None or report.ended for report in current.reports.values())

    def _why_lost(self, name: str, error: TestbedError) -> str:
        """Return why a device cannot be read: the device or its host is gone."""
        try:
            exists = name in self._files.devices()
        except TestbedError as failure:
            return str(failure)
        return str(error) if exists else f"pktgen's device {name} is gone: its interface may have been removed"

    def _set_up(self, sender: PktgenSender) -> None:
        """Apply the wanted settings to a device, with as few writes as possible.

        They are compared with those in the kernel, which ignores digits and words it cannot use.
        """
        if sender.in_kernel is None:
            self._files.write(thread_file(sender.cpu), f"add_device {sender.device}")
            sender.in_kernel = {}
        if _dependent(sender.settings) != _dependent(sender.in_kernel):
            sender.in_kernel = {name: sender.in_kernel[name] for name in sender.in_kernel.keys() - DEPENDENT}
        for command, value in sender.settings.items():
            if sender.in_kernel.get(command) != value:
                self._files.write(sender.device, _line(command, value))
                sender.in_kernel[command] = value
        if not sender.settings:
            return
        for mode in dict.fromkeys((_ARM, sender.xmit_mode)):
            self._files.write(sender.device, f"xmit_mode {mode}")
        device = self._files.device(sender.device)
        for command, value in sender.settings.items():
            for name in _SHOWN_AS.get(command, (command,)):
                taken = device.settings.get(name, "off" if name.isupper() else "unknown")
                if taken != value:
                    sender.in_kernel = {}
                    raise TestbedError(f"pktgen interprets `{_line(command, value)}` of {sender.device} as {taken}")
        if device.result != f"OK: xmit_mode={sender.xmit_mode}":
            raise TestbedError(f"pktgen rejects `xmit_mode {sender.xmit_mode}` of {sender.device}: {device.result}")

    def _clear(self, cpu: int) -> None:
        self._refuse_foreign(self._files.devices_on(cpu))
        self._files.remove_all(cpu)
        for sender in self._senders:
            if sender.cpu == cpu:
                sender.in_kernel = None

    def _refuse_foreign(self, devices: Set[str]) -> None:
        if reason := self._foreign(devices):
            raise TestbedError(reason)

    def _foreign(self, devices: Set[str]) -> str:
        """Return who else uses pktgen here, because start, stop and removal would affect their devices too."""
        foreign = sorted(devices - {sender.device for sender in self._senders})
        if not foreign:
            return ""
        return (
            f"pktgen of host {self._files.host.name} is in use: other software added {', '.join(foreign)}; "
            f"if they are leftovers, remove them: `echo reset > {DIRECTORY}/{CONTROL}` there"
        )


def _dependent(settings: Settings) -> Settings:
    return {command: settings[command] for command in settings.keys() & DEPENDENT}


def _line(command: str, value: str) -> str:
    if command.isupper():
        return f"flag {command}" if value == "on" else f"flag !{command}"
    return f"{command} {value}"
