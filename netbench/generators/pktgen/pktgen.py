"""The kernel's own packet generator as a source."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from netbench.errors import MissingError, TestbedError
from netbench.generators.base import Generator, Source, SourcePreference
from netbench.generators.pktgen.control import Control, PktgenSender
from netbench.generators.pktgen.files import CONTROL, DIRECTORY, PktgenDevice, realtime_offset_ns
from netbench.generators.pktgen.packet_settings import OWN_FIELDS, header_settings, unsupported_part
from netbench.generators.pktgen.parameters import (
    PktGenOptions,
    delay_ns,
    device_settings,
    speed_settings,
    traffic_delay_ns,
)
from netbench.hosts.base import Host, kernel_of, machine_name
from netbench.linux.proc import CpuTicks, SchedTimes, kernel_thread, parse_cpu_ticks, parse_sched_times, softirq_s
from netbench.linux.requirements import IN_A_VM, Feature, Probes
from netbench.model.frame_size import FrameSize
from netbench.model.packet import PLAIN_PACKET, AnyValue, FieldRef, FieldValue, Packet
from netbench.model.tester import Identity, options_text
from netbench.model.traffic import NOTHING_SENT, NS_PER_S, Sent, Stamps, Traffic

# `pktgen_clear_counters` in net/core/pktgen.c, which every start goes through.
_FIRST_SEQUENCE = 1
# netbench ends a run only after this fraction of its length; a shorter run without all frames was ended otherwise.
_LEAST_LENGTH = 0.9
# The largest difference between two readings of the same clocks.
_CLOCKS_AGREE_S = 1e-3
_MODULE = "pktgen", "the generator pktgen", (), "CONFIG_NET_PKTGEN", "pktgen", Probes.pktgen


class PktGen(Generator):
    """pktgen, driven by the files in /proc/net/pktgen of any host that has it or can load it."""

    Options = PktGenOptions
    auto_source = SourcePreference(rank=2)
    may_need = (Feature(*_MODULE, optional=True, otherwise=IN_A_VM),)

    def __init__(self, options: PktGenOptions) -> None:
        self._options = options
        self._controls: dict[tuple[str, str | None], Control] = {}
        self._used: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def unsupported_reason(self, host: Host) -> str:
        return self.control(host).unsupported_reason()

    def unsupported_part(self, packet: Packet) -> str:
        return unsupported_part(packet)

    @classmethod
    def leaves_checksums(cls, packet: Packet) -> bool:
        return any(layer.name == "IPv6" for layer in packet.layers)

    def source(self) -> "PktGenSource":
        return PktGenSource(self._options, self)

    def control(self, host: Host) -> Control:
        """Return the control shared by all sources of one network namespace, whatever its names in the topology."""
        machine = machine_name(host)
        return self._controls.setdefault((machine, host.netns), Control(host, self._used[machine]))


class PktGenSource(Source):
    """One device of pktgen, or one per thread, from open() to close().

    Frames are numbered from 1 in every trial. A failed send neither counts nor uses up a number. The frames sent
    therefore have the numbers 1, 2, … up to their count, unless options that make `max` faster prevent it.
    """

    def __init__(self, options: PktGenOptions, generator: PktGen) -> None:
        self._options = options
        self._generator = generator
        self._senders: list[PktgenSender] = []
        self._traffic: Traffic | None = None
        self._sent_described = False  # whether devices may have the headers of a described packet
        self._threads: dict[int, int | None] = {}  # the kernel threads' process ids, by CPU
        self._kernel = "the kernel of its host"

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """Return the writes of open(), and those of prepare() in each trial, as commands."""
        cpu = next(iter(self._options.cpus or cpus), "N")
        device = f"{interface}@{cpu}"
        size, count, delay = "FRAME_SIZE-4", "FRAMES", "NANOSECONDS"
        trial = (f"xmit_mode {self._options.xmit_mode}", f"pkt_size {size}", f"count {count}", f"delay {delay}")
        return [
            f"tee {DIRECTORY}/kpktgend_{cpu} <<< 'add_device {device}'",
            *(f"tee {DIRECTORY}/{device} <<< '{command}'" for command in trial),
            f"tee {DIRECTORY}/{CONTROL} <<< 'start'",
        ]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Add the devices for `interface`, on kernel threads of `cpus` (empty: of the least used CPUs).

        Loads the kernel module where needed. Raises MissingError where there is no module, and TestbedError where
        pktgen cannot send or other software uses it.
        """
        options = self._options
        self._host, self._control = host, self._generator.control(host)
        self._kernel = kernel_of(host)
        where = options.cpus or (cpus if len(cpus) >= options.threads else ())
        settings = speed_settings(options, paced=False)
        try:
            for _ in range(options.threads):
                self._senders.append(self._control.add_device(interface, where, options.xmit_mode, settings))
            self._threads = {
                cpu: kernel_thread(host, f"kpktgend_{cpu}") for cpu in {sender.cpu for sender in self._senders}
            }
        except BaseException:  # Ctrl-C too: no partly opened source remains
            self.close()
            raise

    def identity(self) -> Identity:
        """Return the identity with the devices of the last trial: a single device sends evenly paced frames."""
        senders = self._sending(self._traffic) if self._traffic else self._senders
        cpus = tuple(sender.cpu for sender in senders) or self._options.cpus or None
        threads = len(senders) or self._options.threads
        return Identity("pktgen", self._kernel, options_text(self._options), threads, cpus)

    def remarks(self) -> list[str]:
        """Report a kernel module that was loaded: it stays, because other namespaces may have begun to use it.

        A VM needs no such remark, because it ends with the campaign.
        """
        host, control = self._opened
        if not control.loaded_by_us or machine_name(host):
            return []
        return [f"the kernel module pktgen of host {host.name} was loaded for this campaign, and stays loaded"]

    def nearest_fps(self, fps: float, frame_size: FrameSize) -> float:
        """Return the rate in frames/s that pktgen sends at for `fps`: its delay is a whole number of ns."""
        return NS_PER_S / delay_ns(fps, frame_size, self._options.pacing)

    def own_fields(self) -> Mapping[FieldRef, FieldValue | AnyValue]:
        return OWN_FIELDS

    def stamps(self, traffic: Traffic) -> Stamps:
        """Return how frames are stamped: paced frames early, others when they are sent, or not at all."""
        paced = traffic.fps is not None
        return Stamps(
            paced or self._options.timestamps == "always", stamped_early=paced, first_sequence=_FIRST_SEQUENCE
        )

    def prepare(self, traffic: Traffic) -> None:
        """Configure the devices; TestbedError when the kernel rejects a setting, or the interface is gone."""
        host, control = self._opened
        if traffic.first_fps is not None:
            raise TestbedError("pktgen cannot change its rate within a trial; use the generator afpacket or xdp")
        self._traffic, self._offset_ns = traffic, realtime_offset_ns(host)  # between its clocks
        paced = traffic.fps is not None
        self._sent_described |= traffic.packet is not None
        headers = header_settings(traffic.packet or PLAIN_PACKET) if self._sent_described else {}
        for sender in self._sending(traffic):
            settings = {**device_settings(traffic), **headers, **speed_settings(self._options, paced=paced)}
            control.prepare(sender, settings, traffic.longest_s if paced else traffic.duration_s)
        self._usage_before = self._usage(traffic)

    def start(self, at_monotonic_ns: int) -> None:
        """Start sending, at `at_monotonic_ns` at the earliest where that is a clock of this machine.

        pktgen begins up to 0.1 s later, when its thread wakes up. All sources of one network namespace begin with the
        start of the last prepared one.
        """
        _, control = self._opened
        for sender in self._sending(self._traffic):
            control.start(sender, at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        """Return the sent frames, by the kernel's own counters; a run that takes too long is stopped.

        Failures are reported in `error`, not raised. When the number of frames sent is unknown, it is reported as 0
        frames.
        """
        host, control = self._opened
        traffic = self._traffic
        assert traffic, "prepare() comes first"
        try:
            reports = [control.finish(sender, timeout_s) for sender in self._sending(traffic)]
            error = reports[0][1]  # of the run, which all of them share
            devices = [device for device, _ in reports if device is not None and device.ended]
            if len(devices) < len(reports):
                return _unknown(error)
            offset_ns = realtime_offset_ns(host)
            set_s = (offset_ns - self._offset_ns) / 1e9
            if abs(set_s) > _CLOCKS_AGREE_S:
                error = error or f"the clock of host {host.name}, which stamps the frames, was set by {set_s:+,.3f} s"
            sent = self._with_usage(sent_of_run(devices, traffic, offset_ns, error), traffic)
        except TestbedError as failure:
            return _unknown(str(failure))
        numbered = traffic.fps is not None or self._options.numbered
        return replace(sent, numbered=numbered, **asdict(self.stamps(traffic)))

    def close(self) -> None:
        for sender in self._senders:
            with suppress(TestbedError, MissingError):  # a host that is gone has no devices
                self._control.remove_device(sender)
        self._senders = []

    def _usage(self, traffic: Traffic) -> tuple[CpuTicks | None, SchedTimes | None]:
        """Return the ticks of the first thread's CPU, and the times of all threads that send; None where unknown."""
        senders = self._sending(traffic)
        ticks: CpuTicks | None = None
        times: SchedTimes | None = None
        with suppress(TestbedError, ValueError, IndexError):
            ticks = parse_cpu_ticks(self._host.read("/proc/stat"), senders[0].cpu)
        with suppress(TestbedError, ValueError, IndexError):
            threads = [self._threads[cpu] for cpu in {sender.cpu for sender in senders}]
            of_threads = [parse_sched_times(self._host.read(f"/proc/{thread}/schedstat")) for thread in threads]
            times = SchedTimes(*(sum(values) for values in zip(*of_threads, strict=True)))
        return ticks, times

    def _with_usage(self, sent: Sent, traffic: Traffic) -> Sent:
        """Return `sent` with the CPU time that the link's receiving end took, and the threads' own, where known."""
        (ticks_before, times_before), (ticks, times) = self._usage_before, self._usage(traffic)
        if ticks_before is None or ticks is None:
            sent = replace(sent, backpressure_s=None)
        elif sent.backpressure_s is not None:
            taken_s = softirq_s(ticks_before, ticks, sent.duration_s)
            sent = replace(sent, backpressure_s=min(sent.duration_s, sent.backpressure_s + taken_s))
        if times_before is None or times is None:
            return sent
        spent, cpus = times.since(times_before), {sender.cpu for sender in self._sending(traffic)}
        return replace(
            sent,
            ran_s=spent.ran_ns / NS_PER_S,
            wait_s=spent.waited_ns / NS_PER_S,
            turns=spent.turns,
            cpu=cpus.pop() if len(cpus) == 1 else None,
        )

    def _sending(self, traffic: Traffic | None) -> list[PktgenSender]:
        """Return the devices that send `traffic`: a single device sends evenly paced frames."""
        return self._senders if traffic and traffic.fps is None else self._senders[:1]

    @property
    def _opened(self) -> tuple[Host, Control]:
        if not self._senders:
            raise TestbedError("a pktgen source is used before open() or after close(); open it first")
        return self._host, self._control


def sent_of_run(devices: Sequence[PktgenDevice], traffic: Traffic, realtime_offset_ns: int, error: str = "") -> Sent:
    """Return what a finished run sent, from the files of its devices; several threads count as one source.

    The kernel reports the start of the run, when its first frame is due, and the return of its last send. Lateness
    and burst are computed at the end of the run only, so both are lower bounds. Each frame rejected by the link counts
    as backpressure of one slot. Where the run was late, the wait for the CPU counts as time not run.
    """
    started_us, stopped_us = [device.started_us for device in devices], [device.stopped_us for device in devices]
    first_us, last_us = min(started_us), max(stopped_us)
    frames, errors = sum(device.frames for device in devices), sum(device.errors for device in devices)
    if traffic.receive != "inline":  # frames that the other end's ring had no room for were sent, and lost there
        frames, errors = frames + errors, 0
    elapsed_ns = (last_us - first_us) * 1000
    delay = traffic_delay_ns(traffic)
    # A frame that the driver or the queueing discipline drops uses up a slot, too.
    late_ns = max(0, elapsed_ns - max(0, frames + errors - 1) * delay) if delay else 0
    burst = 1 + late_ns // delay if delay else frames
    if not error and elapsed_ns < _LEAST_LENGTH * traffic.duration_s * NS_PER_S:
        if traffic.frames is None:
            error = f"pktgen ended after {elapsed_ns / NS_PER_S:.3f} s: the link may have gone down"
        elif frames < traffic.frames:
            error = f"pktgen sent only {frames:,} of {traffic.frames:,} frames: the link may have gone down"
    return Sent(
        frames=frames,
        errors=errors,
        duration_s=max(elapsed_ns, frames * delay) / NS_PER_S,
        first_ns=first_us * 1000 + realtime_offset_ns if frames else None,
        last_ns=last_us * 1000 + realtime_offset_ns if frames else None,
        max_burst_frames=min(frames, burst),
        max_lateness_s=late_ns / NS_PER_S,
        error=error,
        first_sequence=_FIRST_SEQUENCE,
        in_order=len(devices) == 1,
        apart_s=max(max(started_us) - first_us, last_us - min(stopped_us)) / 1e6,
        backpressure_s=errors * delay / NS_PER_S if delay else None,
        descheduled_s=min(late_ns / NS_PER_S, max(device.idle_us for device in devices) / 1e6),
    )


def _unknown(error: str) -> Sent:
    return replace(NOTHING_SENT, error=error, first_sequence=_FIRST_SEQUENCE)
