"""Sink `bpf`: a program in the kernel counts the frames of a stream where they arrive, and consumes them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, TypeAdapter

from netbench.capture.pcap import pcap_bytes
from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.hosts.base import Host, kernel_of
from netbench.hosts.remote_code import has_netbench, module_command_on, output_path
from netbench.hosts.worker_process import WorkerProcess
from netbench.linux.requirements import ON_VETH, Feature, ProbeError, Probes
from netbench.model.frame_mix import largest_bytes
from netbench.model.received import Received
from netbench.model.tester import Identity, options_text
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink, SinkKind, SinkPreference
from netbench.sinks.bpf_counter import SAMPLE_BYTES, Capacity, HookChoice, attach
from netbench.sinks.bpf_worker import NAME, CountRequest

_MODULE = "netbench.sinks.bpf_worker"
_START_S = 60.0  # Python and numpy are slow to start on an emulated CPU
_ANSWER_S = 60.0  # the result for hundreds of millions of frames takes seconds

_FEATURE = "bpf-sink"
_WITHOUT = "use `sink: auto` or `sink: tcpdump`"


def _probe(_: Probes) -> str:
    """Load the program, attach it at every hook that may be used, and return the result as text."""
    working, refused = [], []
    hooks: tuple[HookChoice, ...] = ("xdp", "tcx")
    for hook in hooks:
        try:
            attached = attach("nbp1", hook, Capacity.needed(1, 1, 0), by_napi=False)
        except MissingError as error:
            refused.append(str(error))
        else:
            attached.close()
            working.append(attached.hook.name)
    if not working:
        raise ProbeError("; ".join(dict.fromkeys(refused)))
    return "; ".join((f"loaded its program and attached it ({' and '.join(working)})", *refused))


_PROGRAM = _FEATURE, "the sink bpf", ON_VETH, "CONFIG_BPF_SYSCALL (Linux 5.18)", "", _probe


def _every(value: object) -> int:
    """Return the N of `1/N`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # already converted
    match = re.fullmatch(r"1/(\d{1,9})", value) if isinstance(value, str) else None
    if not match or not int(match[1]):
        raise ValueError("not a part of all frames; write for example 1/1000, 1/1 for all")
    return int(match[1])


# One of this number of frames.
Every = Annotated[int, BeforeValidator(_every), PlainSerializer(lambda every: f"1/{every}"), Field(ge=1)]


class BpfOptions(BaseModel, extra="forbid"):
    """`sample`: the part of the frames that kept captures contain; `hook`: where frames are counted."""

    sample: Every = 1000
    """Part of the frames in kept captures: 1/1000."""
    hook: HookChoice = "auto"
    """Where frames are counted: xdp, tcx, or auto."""


class Bpf(SinkKind):
    """A BPF program that counts frames in the kernel, at a fraction of tcpdump's cost; Linux 5.18 or newer."""

    Options = BpfOptions
    takes_cpu: ClassVar[bool] = False
    auto_sink = SinkPreference(rank=1)
    needs = frozenset({_FEATURE})
    may_need = (Feature(*_PROGRAM, optional=True, otherwise=_WITHOUT),)

    def __init__(self, options: BpfOptions) -> None:
        self._options = options

    def unsupported_reason(self, host: Host) -> str:
        if has_netbench(host):
            return ""
        return f"host {host.name} has no netbench, which runs the sink bpf; {_WITHOUT}"

    def sink(self) -> "BpfSink":
        return BpfSink(self._options)


class BpfSink(Sink):
    """One program at one NIC, from open() to close() or rest(); it counts from arm() to stop().

    A process on the NIC's host attaches it (bpf_worker.py). One that died or did not answer is replaced for the next
    trial.
    """

    def __init__(self, options: BpfOptions) -> None:
        self._options = options
        self._host: Host | None = None
        self._worker: WorkerProcess | None = None
        self._incoming: Incoming | None = None
        self._interface = self._kernel = self._where = self._error = self._no_room = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        return [f"# the program netbench/bpf/programs/sink.c, attached to {interface} (hook: {self._options.hook})"]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Attach the program; MissingError if the kernel does not accept it."""
        self.close()
        self._host, self._interface, self._kernel = host, interface, kernel_of(host)
        try:
            self._start()
        except BaseException as error:  # Ctrl-C too: its process must not remain
            self.close()
            if isinstance(error, MissingError):
                raise MissingError(f"{error}; {_WITHOUT}") from error
            raise

    def identity(self) -> Identity:
        options = options_text(self._options)
        if self._where:
            options["hook"] = self._where
        return Identity(NAME, self._kernel, options, cpus=())

    def writes(self, incoming: Incoming) -> int:
        if not incoming.keep:
            return 0
        room, snap_length = self._room(incoming), min(incoming.snap_length, SAMPLE_BYTES)
        return pcap_bytes(room.sampled, largest_bytes(incoming.traffic.frame_size), snap_length)

    def arm(self, incoming: Incoming) -> None:
        self._incoming, self._error, self._no_room = incoming, "", ""
        request = CountRequest(
            expected=incoming.expected,
            traffic=incoming.traffic,
            network=incoming.path.src_network,
            room=self._room(incoming),
            by_napi=incoming.path.receive == "napi",
            snap_length=incoming.snap_length,
            sample_every=self._options.sample if incoming.keep else 0,
            sample=str(output_path(self._opened, _sample_file(incoming))),
        )
        try:
            self._start()
            self._running.request({"do": "begin", "request": asdict(request)})
        except MachineGoneError:
            raise
        except (MissingError, TestbedError) as error:
            self._error = str(error)

    def prime_fdb(self, mac: str) -> None:
        if not self._error:
            self._running.request({"do": "learn", "mac": mac})

    def armed(self, timeout_s: float) -> bool:
        if not self._error:
            try:
                self._where = str(self._answer(timeout_s)["where"])
            except (MissingError, TestbedError) as error:
                self._error = str(error)
        return not self._error

    def stop(self, limit_s: float) -> None:
        """Stop counting, and copy the sample, if any, to this machine."""
        host, incoming = self._opened, self._incoming
        assert incoming is not None, "arm() comes first"
        if self._error:
            return
        try:
            no_sample = str(self._call({"do": "end"})["no_sample"])
        except TestbedError as error:
            self._error = str(error)
            return
        file = _sample_file(incoming)
        written_to = output_path(host, file)
        if no_sample and written_to == file:
            self._no_room = f"{file} cannot be written: {no_sample}; free some room, or write elsewhere with -o"
        elif no_sample:
            self._no_room = f"{written_to} on {host} cannot be written: {no_sample}; free some room there"
        elif incoming.keep and written_to != file:
            try:
                host.fetch(str(written_to), file)
            except MachineGoneError:
                raise
            except TestbedError as error:
                self._no_room = str(error)
            host.run(["rm", "-f", str(written_to)])

    def received(self, sent: Sent) -> Received:
        if not self._error:
            try:
                answer = self._call({"do": "received", "sent": asdict(sent)})
                return replace(TypeAdapter(Received).validate_python(answer["received"]), no_room=self._no_room)
            except TestbedError as error:
                self._error = str(error)
        return Received(error=self._error, no_delay="the count is incomplete", counted_by=NAME)

    def rest(self) -> None:
        if self._where:
            with suppress(TestbedError):  # the program ends with its process
                self._call({"do": "rest"})
            self._where = ""

    def close(self) -> None:
        self._end()
        self._host = None

    def _room(self, incoming: Incoming) -> Capacity:
        every = self._options.sample if incoming.keep else 0
        return Capacity.needed(incoming.traffic.frames, incoming.traffic.duration_s, every)

    def _start(self) -> None:
        """Start the process, which attaches the program, unless it is running; errors as of _answer()."""
        if self._worker is None:
            host = self._opened
            command = module_command_on(host, _MODULE, self._interface, self._options.hook)
            process = host.spawn(["env", "OPENBLAS_NUM_THREADS=1", *command])
            self._worker = WorkerProcess(f"the sink bpf on {self._interface} of host {host.name}", process)
            self._where = str(self._answer(_START_S)["where"])

    def _end(self) -> None:
        worker, self._worker, self._where = self._worker, None, ""
        if worker is not None:
            worker.close()

    def _call(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        self._running.request(request)
        return self._answer(_ANSWER_S)

    def _answer(self, timeout_s: float) -> Mapping[str, Any]:
        """Return the next answer; MissingError and TestbedError as it reports, or if the process does not answer."""
        try:
            answer = self._running.any_reply(timeout_s)
        except (TimeoutError, TestbedError) as error:
            self._end()
            raise TestbedError(str(error)) from error
        if why := answer.get("missing"):
            raise MissingError(f"{self._host}: {why}")
        if why := answer.get("failed"):
            raise TestbedError(f"{self._host}: {why}")
        return answer

    @property
    def _running(self) -> WorkerProcess:
        if self._worker is None:
            raise TestbedError(f"no capture is running on {self._interface}: its process has ended")
        return self._worker

    @property
    def _opened(self) -> Host:
        if self._host is None:
            raise TestbedError(f"no capture is running on {self._interface}: open the sink bpf first")
        return self._host


def _sample_file(incoming: Incoming) -> Path:
    return incoming.record.with_name(f"{incoming.record.name}.sample.pcap")
