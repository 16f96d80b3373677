"""A simulated kernel with pktgen behind the `Host` seam; it handles commands as net/core/pktgen.c of Linux 6.1 does.

Runs take no real time. A run with a frame count is over as soon as it begins; a run without one lasts until it is
stopped. Tests choose the faults.
"""

import errno
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.generators.pktgen import control
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.hosts.base import Completed, Process, refusal
from tests.unit.inputs import stream_traffic

OFFSET_NS = 1_795_243_845_776_849_510
DIRECTORY = "/proc/net/pktgen"
_SEND_NS = 2_500  # cost of one frame
_NUMBERS = ("count", "delay", "pkt_size", "udp_src_min", "udp_src_max", "udp_dst_min", "udp_dst_max")
_TEXTS = ("src_min", "src_max", "dst_min", "dst_max", "src_mac", "dst_mac")
_FLAGS = "QUEUE_MAP_CPU", "NO_TIMESTAMP", "IPV6", "UDPCSUM"
_MOST_LABELS = 16
_UNKNOWN_ERROR = 524


class Refused(Exception):
    """A write that ends with an errno."""


@dataclass
class FakeDevice:
    """The fields of `struct pktgen_dev` that matter here. Times are in ns."""

    name: str
    values: dict[str, str]
    flags: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)  # `vlan_id`, `svlan_p`, …; without an id there is no tag
    labels: list[int] = field(default_factory=list)
    last_ok: bool = False
    xmit_mode: str = "start_xmit"
    running: bool = False
    frames: int = 0
    errors: int = 0
    started_ns: int = 0
    stopped_ns: int = 0
    idle_ns: int = 0
    result: str = "Idle"

    @property
    def interface(self) -> str:
        return self.name.partition("@")[0]

    @property
    def delay(self) -> int:
        return int(self.values["delay"])

    @property
    def count(self) -> int:
        return int(self.values["count"])


@dataclass
class FakeKernel:
    """Kernel threads with their devices, and interfaces by name. `log` has every write, `path: text`."""

    cpus: tuple[int, ...] = (0, 1)
    loaded: bool = True
    loadable: bool = True
    interfaces: set[str] = field(default_factory=lambda: {"nb-tx1", "nb-tx2", "nb-tx3"})
    log: list[str] = field(default_factory=list)
    now_ns: int = 5_000_000_123
    fps: int = 100_000  # without a delay
    fail_after: int | None = None  # frames, then the link goes down
    drops: int = 0  # frames the driver refuses, each of which takes a slot
    stall_ns: int = 0  # before the last frame of a run
    reads_until_start: int = 0  # of the device file, after the write of `start` has returned
    shares_frames: bool = False  # drivers that change frames do not
    shows_threads: bool = True  # in /proc, as its own namespace of processes does
    wait_ns: int = 0  # how long the threads wait for their CPUs in a run
    waited_ns: int = 0
    stuck: bool = False  # a run that neither ends nor stops
    lost: bool = False  # with its whole machine
    stat: str = "cpu0 0 0 0 0 0 0 0 0\n"
    threads: dict[int, list[FakeDevice]] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)  # of kernel threads
    runs: list[list[str]] = field(default_factory=list)  # the devices of each start

    def __post_init__(self) -> None:
        self.threads = {cpu: [] for cpu in self.cpus}

    def devices(self) -> dict[str, FakeDevice]:
        return {device.name: device for thread in self.threads.values() for device in thread}

    def remove_interface(self, interface: str) -> None:
        """Remove an interface as NETDEV_UNREGISTER does."""
        self.interfaces.discard(interface)
        for thread in self.threads.values():
            thread[:] = [device for device in thread if device.interface != interface]

    def files(self) -> list[str]:
        return ["pgctrl", *(f"kpktgend_{cpu}" for cpu in self.cpus), *self.devices()] if self.loaded else []

    def read(self, file: str) -> str:
        if file == "pgctrl":
            return "Packet Generator for packet performance testing. Version: 2.75\n"
        if file.startswith("kpktgend_"):
            thread = self.threads[int(file.removeprefix("kpktgend_"))]
            running = "".join(f"{device.name} " for device in thread if device.running)
            stopped = "".join(f"{device.name} " for device in thread if not device.running)
            return f"Running: {running}\nStopped: {stopped}\nResult: {self.results.get(int(file[9:]), 'NA')}\n"
        device = self.devices()[file]
        if self.reads_until_start:
            self.reads_until_start -= 1
            if not self.reads_until_start:
                self._run([device])
        return show(device, self.now_ns)

    def write(self, file: str, text: str) -> None:
        self.log.append(f"{file}: {text.rstrip()}")
        if file not in self.files():
            raise Refused(errno.ENOENT)
        if not text.endswith("\n") or "\n" in text[:-1]:
            raise AssertionError(f"{text!r} is not one command")
        command, _, value = text.rstrip("\n").partition(" ")
        if file == "pgctrl":
            self._control(command)
        elif file.startswith("kpktgend_"):
            self._thread(int(file.removeprefix("kpktgend_")), command, value)
        else:
            self._configure(self.devices()[file], command, value)

    def running(self) -> bool:
        return not self.lost and any(device.running for device in self.devices().values())

    def stop(self) -> None:
        if self.stuck:
            return
        for device in self.devices().values():
            if device.running:
                self.now_ns = device.started_ns + 1_050_000_000
                as_fast = (self.now_ns - device.started_ns) * self.fps // 10**9
                self._end(device, device.frames or (0 if self._never_has_its_turn(device) else as_fast))

    def _never_has_its_turn(self, device: FakeDevice) -> bool:
        """Whether its thread never picks this device: of those without a delay, `next_to_run` picks the last added."""
        thread = next(thread for thread in self.threads.values() if device in thread)
        return not device.delay and device is not [candidate for candidate in thread if not candidate.delay][-1]

    def _control(self, command: str) -> None:
        if command == "start":
            devices = list(self.devices().values())
            self.runs.append([device.name for device in devices])
            if not self.reads_until_start:
                self._run(devices)
        elif command == "stop":
            self.stop()
        else:
            raise Refused(errno.EINVAL)

    def _thread(self, cpu: int, command: str, value: str) -> None:
        if command == "rem_device_all":
            self.threads[cpu].clear()
            self.results[cpu] = "OK: rem_device_all"
        elif command == "add_device":
            self.results[cpu] = f"ERROR: can not add device {value}"
            if value in self.devices():
                raise Refused(errno.EBUSY)
            if value.partition("@")[0] not in self.interfaces:
                raise Refused(errno.ENODEV)
            self.results[cpu] = f"OK: add_device={value}"
            values = dict.fromkeys(_NUMBERS, "9") | dict.fromkeys(_TEXTS, "")
            self.threads[cpu].append(FakeDevice(value, values | {"count": "1000", "delay": "0", "pkt_size": "0"}))
        else:
            raise Refused(errno.EINVAL)

    def _configure(self, device: FakeDevice, command: str, value: str) -> None:
        if command in _NUMBERS:
            device.values[command] = "".join(takewhile(str.isdecimal, value[:10]))
            device.result = f"OK: {command}={device.values[command]}"
        elif command in _TEXTS:
            if command.endswith("mac") and not re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", value):
                raise Refused(errno.EINVAL)
            device.values[command] = value
            device.result = f"OK: {command}={value}"
        elif command == "xmit_mode" and value in ("start_xmit", "queue_xmit"):
            device.xmit_mode = value
            device.last_ok = device.last_ok or value == "queue_xmit"
            device.result = f"OK: xmit_mode={value}"
        elif command == "xmit_mode":
            device.result = f"xmit_mode -:{value}:- unknown\nAvailable modes: start_xmit, netif_receive\n"
        elif command in ("clone_skb", "burst"):
            if int(value) > (command == "burst") and not self.shares_frames:
                raise Refused(_UNKNOWN_ERROR)
            device.values[command] = value
            device.result = f"OK: {command}={value}"
        elif re.fullmatch("s?vlan_(id|p|cfi)", command):
            self._set_tag(device, command, value)
        elif command == "mpls":
            self._set_labels(device, value)
        elif command in ("tos", "traffic_class"):
            assert re.fullmatch("[0-9a-f]{2}", value), "the kernel ignores numbers of other lengths"
            device.values[command] = value
            device.result = f"OK: {command}={value}"
        elif command in ("src6", "dst6"):
            device.values[command] = value
            device.flags.add("IPV6")
            device.result = f"OK: {command}={value}"
        elif command == "flag" and value.removeprefix("!") in _FLAGS:
            device.flags.discard(value.removeprefix("!"))
            device.flags |= {value} - {f"!{value.removeprefix('!')}"}
            device.result = "OK: flags=0x2000"
        else:
            device.result = f'No such parameter "{command}"'
            raise Refused(errno.EINVAL)

    def _set_tag(self, device: FakeDevice, command: str, value: str) -> None:
        """Set a field of a tag; an id above 4095, and that of an outer tag without an inner one, removes both."""
        device.result = f"OK: {command}={value}"
        if not command.endswith("_id"):
            if command.partition("_")[0] + "_id" not in device.tags:
                device.result = f"ERROR: {command} must be"
                return
        elif int(value) > 4095 or (command == "svlan_id" and "vlan_id" not in device.tags):
            device.tags.clear()
            return
        else:
            device.labels.clear()
        device.tags[command] = value

    def _set_labels(self, device: FakeDevice, value: str) -> None:
        """Set the label stack, which removes tags; a first label that is no number removes the labels."""
        device.labels.clear()
        if re.match("[0-9a-f]", value):
            labels = [int(label, 16) for label in value.split(",")]
            if len(labels) >= _MOST_LABELS:
                raise Refused(errno.E2BIG)
            if any(label & 0x100 for label in labels):
                device.flags.add("MPLS_RND")
            device.labels += labels
            device.tags.clear()
        device.result = "OK: mpls=" + ",".join(f"{label:08x}" for label in device.labels)

    def _run(self, devices: list[FakeDevice]) -> None:
        for device in devices:
            device.frames, device.errors, device.idle_ns = 0, self.drops, 0
            device.running, device.started_ns, device.result = True, self.now_ns, "Starting"
        for device in devices:
            if self.fail_after is not None:
                self._end(device, self.fail_after)
            elif device.count and not self.stuck:
                self._end(device, device.count)

    def _end(self, device: FakeDevice, frames: int) -> None:
        """The first frame is due at once, and uses no slot when the one before it was not sent."""
        slots = frames + device.errors - (1 if device.last_ok else 2)
        device.running, device.last_ok, device.frames = False, True, frames
        needed_ns = max(slots * device.delay, (frames - 1) * (_SEND_NS if device.delay else 10**9 // self.fps))
        device.stopped_ns = device.started_ns + needed_ns + _SEND_NS + self.stall_ns
        self.now_ns = max(self.now_ns, device.stopped_ns)
        device.idle_ns = max(0, needed_ns - frames * _SEND_NS)
        elapsed, idle = (device.stopped_ns - device.started_ns) // 1000, device.idle_ns // 1000
        pps = frames * 10**9 // (device.stopped_ns - device.started_ns)
        bps = pps * 8 * int(device.values["pkt_size"])
        device.result = (
            f"OK: {elapsed}(c{elapsed - idle}+d{idle}) usec, {frames} ({device.values['pkt_size']}byte,0frags)\n"
            f"  {pps}pps {bps // 10**6}Mb/sec ({bps}bps) errors: {device.errors}"
        )


def show(device: FakeDevice, now_ns: int) -> str:
    """Return the device file as `pktgen_if_show` prints it."""
    of = device.values
    stopped_us = (now_ns if device.running else device.stopped_ns) // 1000
    flags = "".join(f"{flag}  " for flag in sorted(device.flags))
    burst = f"     burst: {of['burst']}\n" if of.get("burst", "1") != "1" else ""
    mode = {"queue_xmit": "     xmit_mode: xmit_queue\n"}.get(device.xmit_mode, "")
    return (
        f"Params: count {of['count']}  min_pkt_size: {of['pkt_size']}  max_pkt_size: {of['pkt_size']}\n"
        f"     frags: 0  delay: {of['delay']}  clone_skb: {of.get('clone_skb', 0)}  ifname: {device.name}\n"
        "     flows: 0 flowlen: 0\n"
        "     queue_map_min: 0  queue_map_max: 0\n"
        f"     dst_min: {of['dst_min']}  dst_max: {of['dst_max']}\n"
        f"     src_min: {of['src_min']}  src_max: {of['src_max']}\n"
        f"     src_mac: {of['src_mac']} dst_mac: {of['dst_mac']}\n"
        f"     udp_src_min: {of['udp_src_min']}  udp_src_max: {of['udp_src_max']}"
        f"  udp_dst_min: {of['udp_dst_min']}  udp_dst_max: {of['udp_dst_max']}\n"
        f"     src_mac_count: 0  dst_mac_count: 0\n{burst}{mode}     Flags: {flags}\n"
        f"Current:\n     pkts-sofar: {device.frames}  errors: {device.errors}\n"
        f"     started: {device.started_ns // 1000}us  stopped: {stopped_us}us idle: {device.idle_ns // 1000}us\n"
        f"     seq_num: {device.frames + 1}  cur_dst_mac_offset: 0  cur_src_mac_offset: 0\n"
        "     cur_saddr: 0.0.0.0  cur_daddr: 0.0.0.0\n     cur_udp_dst: 9  cur_udp_src: 9\n"
        f"     cur_queue_map: 0\n     flows: 0\nResult: {device.result}\n"
    )


class FakeTee:
    """A process that copies its input to pgctrl, and is busy as long as the kernel is."""

    stdout = stderr = None

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.stdin = self
        self.returncode: int | None = None
        self.words = ""
        self.closed = False

    def write(self, text: str) -> int:
        if self.returncode is not None:
            raise BrokenPipeError
        try:
            self.kernel.write("pgctrl", text)
        except Refused as refused:
            self.returncode, self.words = 1, f"tee: {DIRECTORY}/pgctrl: {os.strerror(refused.args[0])}\n"
        return len(text)

    def flush(self) -> None:
        pass

    def poll(self) -> int | None:
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        assert not self.closed, "its pipes are closed: all its output has been read"
        code = self.wait(timeout)
        self.closed = True
        return "" if code else "start\n", self.words

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if self.kernel.running():
                raise subprocess.TimeoutExpired("tee", timeout or 0)
            self.returncode = -signal.SIGKILL if self.kernel.lost else 0
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Stop the run, as a signal to the process that writes `start` does."""
        if self.returncode is None:
            self.kernel.stop()
            self.returncode = -sig

    def terminate(self) -> None:
        self.send_signal(15)

    def kill(self) -> None:
        self.send_signal(9)


class PktgenHost:
    """A host other than this machine, with such a kernel."""

    netns: str | None = None
    shares_files = False

    def __init__(self, kernel: FakeKernel, name: str = "far") -> None:
        self.kernel = kernel
        self.name = name
        self.writers: list[FakeTee] = []

    def share(self, source: Path, directory: str) -> str:
        raise AssertionError(f"pktgen needs no file, such as {source}")

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        self._require_there()
        match list(argv):
            case ["ls", path] if path == DIRECTORY:
                return Completed(tuple(argv), 0, "\n".join(self.kernel.files()), "")
            case ["sh", "-c", 'grep -lsx "$0" /proc/[0-9]*/comm', name]:
                cpu = int(name.removeprefix("kpktgend_"))
                there = f"/proc/{100 + cpu}/comm\n" if self.kernel.loaded and self.kernel.shows_threads else ""
                return Completed(tuple(argv), 0 if there else 1, there, "")
            case ["uname", *_]:
                return Completed(tuple(argv), 0, "Linux 6.1.0 x86_64\n", "")
            case ["modprobe", "-D", "pktgen"]:
                return Completed(tuple(argv), 0 if self.kernel.loadable else 1, "", "")
            case ["modprobe", "pktgen"]:
                self.kernel.loaded = self.kernel.loadable
                words = "" if self.kernel.loadable else "modprobe: module pktgen not found in modules.dep"
                return Completed(tuple(argv), 0 if self.kernel.loadable else 1, "", words)
        raise AssertionError(f"unexpected command {argv}")

    def spawn(self, argv: Sequence[str]) -> Process:
        assert list(argv) == ["tee", f"{DIRECTORY}/pgctrl"]
        self.writers.append(FakeTee(self.kernel))
        return self.writers[-1]  # type: ignore[return-value]  # its stdin suffices

    def read(self, path: str) -> str:
        self._require_there()
        if path in [f"/proc/{100 + cpu}/schedstat" for cpu in self.kernel.cpus]:
            waited_ns = self.kernel.waited_ns
            self.kernel.waited_ns += self.kernel.wait_ns
            return f"{self.kernel.now_ns} {waited_ns} 7\n"
        if path == "/proc/timer_list":
            text = (Path(__file__).parent / "pktgen_files" / "timer_list.txt").read_text()
            assert str(OFFSET_NS) in text
            return text
        if path == "/proc/stat":
            return self.kernel.stat
        file = path.removeprefix(f"{DIRECTORY}/")
        if file not in self.kernel.files():
            raise refusal(f"host {self.name}: {path} cannot be read", "No such file or directory")
        return self.kernel.read(file)

    def write(self, path: str, text: str) -> None:
        self._require_there()
        try:
            self.kernel.write(path.removeprefix(f"{DIRECTORY}/"), text)
        except Refused as refused:
            raise refusal(f"host {self.name}: {path} cannot be written", os.strerror(refused.args[0])) from refused

    def _require_there(self) -> None:
        if self.kernel.lost:
            raise TestbedError(f"guest {self.name}: it is gone")

    def fetch(self, path: str, target: Path) -> None:
        raise AssertionError("nothing to fetch")

    def send(self, source: Path, path: str) -> None:
        raise AssertionError("nothing to send")


TRAFFIC = stream_traffic(src_mac="02:00:00:00:00:0A", fps=10_000.0, duration_s=0.1)
MAX = replace(TRAFFIC, fps=None, duration_s=1.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Shorten the time limits of pktgen."""
    monkeypatch.setattr(control, "_STOP_S", 0.2)
    monkeypatch.setattr(control, "_POLL_S", 0.001)


@pytest.fixture
def kernel():
    return FakeKernel()


@pytest.fixture
def host(kernel):
    return PktgenHost(kernel)


def generator(**options) -> PktGen:
    return PktGen(PktGenOptions(**options))


def opened(host, *, interface="nb-tx1", cpus=(), made_by=None, **options):
    source = (made_by or generator(**options)).source()
    source.open(host, interface, cpus)
    return source


def trial(source, traffic=TRAFFIC, timeout_s=1.0, amid=lambda: None):
    """Return the source's report of a trial; `amid` runs while it sends."""
    source.prepare(traffic)
    source.start(0)
    amid()
    return source.wait(timeout_s)
