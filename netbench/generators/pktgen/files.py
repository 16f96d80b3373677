"""The files that control pktgen: one command per write, with an errno and a `Result:` line as the result.

They belong to the network namespace of the host: /proc/net/pktgen has `pgctrl`, a `kpktgend_N` for the kernel thread
of each CPU N, and a file for each device (Documentation/networking/pktgen.rst of the kernel).
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until

DIRECTORY = "/proc/net/pktgen"
CONTROL = "pgctrl"
_THREAD = "kpktgend_"

# `rem_device_all` returns after 125 ms; on a busy CPU the thread has removed nothing by then.
_REMOVE_S = 2.0
_POLL_S = 0.05

# ENOTSUPP, for which no C library has a message: drivers without IFF_TX_SKB_SHARING change the frames they send.
_NOT_SUPPORTED = ("Unknown error 524", "the driver of this interface cannot send one frame several times")
_SUCCESS = ("OK: ", "NA", "Idle", "Starting")
_RESULT = re.compile(r"^Result: (.*)", re.MULTILINE | re.DOTALL)

TIMER_LIST = "/proc/timer_list"
# Clock 1 is CLOCK_REALTIME (`enum hrtimer_base_type`): its offset from CLOCK_MONOTONIC in ns, as `print_base` in the
# kernel's kernel/time/timer_list.c writes it.
_REALTIME_OFFSET = re.compile(r"^ clock 1:\n(?: +\..*\n)*? +\.offset: +(\d+) nsecs$", re.MULTILINE)

# The format of a device file is that of `pktgen_if_show` and `show_results` in net/core/pktgen.c.
_SETTING = re.compile(r"(\w+): (\S*)")
_FLAGS = re.compile(r" Flags: (.*)\n")
_CURRENT = re.compile(
    r"pkts-sofar: (?P<frames>\d+)  errors: (?P<errors>\d+)\n"
    r"(?s:.*?)started: (?P<started>\d+)us  stopped: (?P<stopped>\d+)us"
)
_ENDED = re.compile(r"OK: \d+\(c\d+\+d(?P<idle>\d+)\) usec, \d+ \(\d+byte,-?\d+frags\)\n +\d+pps ")


@dataclass(frozen=True, slots=True)
class PktgenDevice:
    """A device file. `settings` are those before `Current:`, by the kernel's names, and the count.

    A set flag is `on`, an unset flag is missing. A `burst` of 1 is not in the file.

    Times are CLOCK_MONOTONIC (`ktime_get`). During a run, `stopped_us` is the current time. `errors` counts failed
    sends. `result` is the kernel's result of the last command or run.
    """

    settings: Mapping[str, str]
    frames: int
    errors: int
    started_us: int
    stopped_us: int
    result: str

    @property
    def ended(self) -> bool:
        """Whether the last run has ended; also False when a command came after it."""
        return _ENDED.match(self.result) is not None

    @property
    def idle_us(self) -> int:
        """The time in µs that the thread waited in the last run, for a frame's turn or the CPU; 0 until its end."""
        ended = _ENDED.match(self.result)
        return int(ended["idle"]) if ended else 0


def parse_device(text: str) -> PktgenDevice:
    """Parse a device file; TestbedError when `text` is not one."""
    params, found_current, rest = text.partition("Current:\n")
    current = _CURRENT.search(rest)
    _, found_result, result = rest.partition("\nResult: ")
    if not (params.startswith("Params: count ") and found_current and current and found_result):
        raise TestbedError(f"pktgen wrote {text[:80]!r} instead of the state of a device")
    settings = dict(_SETTING.findall(params.replace("Params: count ", "count: ", 1)))
    flags = _FLAGS.search(params)
    return PktgenDevice(
        settings={"burst": "1", **settings, **dict.fromkeys(flags[1].split() if flags else (), "on")},
        frames=int(current["frames"]),
        errors=int(current["errors"]),
        started_us=int(current["started"]),
        stopped_us=int(current["stopped"]),
        result=result.rstrip("\n"),
    )


def thread_file(cpu: int) -> str:
    """Return the file of the kernel thread on a CPU."""
    return f"{_THREAD}{cpu}"


class PktgenFiles:
    """The pktgen files of one host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def loaded(self) -> bool:
        """Return whether the kernel has pktgen now."""
        try:
            self._read(CONTROL)
        except TestbedError:
            return False
        return True

    def loadable(self) -> bool:
        """Return whether `modprobe pktgen` would find a module to load. Loads nothing."""
        try:
            return self.host.run(["modprobe", "-D", "pktgen"]).exit_code == 0
        except NetbenchError:
            return False

    def load(self) -> None:
        """Load the module; MissingError when that fails. Existing namespaces get their files too."""
        try:
            run_checked(self.host, ["modprobe", "pktgen"])
        except NetbenchError as error:
            raise MissingError(f"pktgen cannot be loaded: {error}") from error

    def threads(self) -> list[int]:
        """Return the CPUs with a kernel thread of pktgen: those online when the namespace or the module was created."""
        return sorted(int(name.removeprefix(_THREAD)) for name in self._names() if name.startswith(_THREAD))

    def devices(self) -> set[str]:
        """Return the names of all devices, including foreign ones."""
        return {name for name in self._names() if name != CONTROL and not name.startswith(_THREAD)}

    def devices_on(self, cpu: int) -> set[str]:
        """Return the names of the devices of one kernel thread (`pktgen_thread_show`)."""
        running, stopped, *_ = self._read(thread_file(cpu)).splitlines()
        return {*running.split()[1:], *stopped.split()[1:]}

    def write(self, file: str, command: str) -> None:
        """Write a command; TestbedError with the kernel's reason when it is rejected."""
        path = f"{DIRECTORY}/{file}"
        try:
            self.host.write(path, command + "\n")
        except TestbedError as error:
            reason = (error.words or str(error)).rsplit(": ", 1)[-1].replace(*_NOT_SUPPORTED)
            raise TestbedError(f"pktgen rejects `{command}` > {path}: {reason}{self._result(file)}") from error

    def device(self, name: str) -> PktgenDevice:
        """Return the state of a device; TestbedError when it is gone."""
        return parse_device(self._read(name))

    def remove_all(self, cpu: int) -> None:
        """Remove all devices of a kernel thread; TestbedError when they stay."""
        file = thread_file(cpu)
        self.write(file, "rem_device_all")
        if not wait_until(lambda: not self.devices_on(cpu), _REMOVE_S, _POLL_S):
            names = " ".join(sorted(self.devices_on(cpu)))
            raise TestbedError(f"pktgen does not remove {names} from {DIRECTORY}/{file}")

    def _names(self) -> list[str]:
        return run_checked(self.host, ["ls", DIRECTORY]).split()

    def _read(self, file: str) -> str:
        return self.host.read(f"{DIRECTORY}/{file}")

    def _result(self, file: str) -> str:
        """Return the file's result of a failed command, as the end of a message.

        Some failures leave no result; then the file still has the result of an earlier, successful command.
        """
        if file == CONTROL:
            return ""
        try:
            result = _RESULT.search(self._read(file))
        except TestbedError:
            return ""
        return f" ({result[1].strip()})" if result and not result[1].startswith(_SUCCESS) else ""


def realtime_offset_ns(host: Host) -> int:
    """Return CLOCK_REALTIME − CLOCK_MONOTONIC of a host in ns; TestbedError when it cannot be read.

    It changes only when the clock is set. On this machine it is accurate to some microseconds, elsewhere exact.
    """
    if host.shares_files:
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return now - (before + after) // 2
    match = _REALTIME_OFFSET.search(host.read(TIMER_LIST))
    if not match:
        raise TestbedError(f"host {host.name}: {TIMER_LIST} does not contain the offset of CLOCK_REALTIME")
    return int(match[1])
