"""Sink `bpf`: a program in the kernel counts the frames of a stream where they arrive, and consumes them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, TypeAdapter

from netbench.capture.pcap import pcap_bytes
from netbench.errors import Fault, MachineGoneError, MissingError, TestbedError, UsageError
from netbench.hosts.base import Host, kernel_of
from netbench.hosts.remote_code import has_netbench, module_command_on, output_path
from netbench.hosts.worker_client import WorkerProcess
from netbench.linux.requirements import ON_VETH, Feature, ProbeError, Probes
from netbench.model.received import Received
from netbench.model.tester import Identity, options_text
from netbench.model.traffic import Sent
from netbench.sinks.base import LEARNING_BATCH, Incoming, Sink, SinkKind, SinkPreference, batched
from netbench.sinks.bpf_counter import SAMPLE_BYTES, Capacity
from netbench.sinks.bpf_hooks import HookChoice, attach
from netbench.sinks.bpf_worker import NAME, Counting, CountRequest, to_json

_MODULE = "netbench.sinks.bpf_worker"
_START_S = 60.0  # Python and numpy are slow to start on an emulated CPU
_ANSWER_S = 60.0  # the result for hundreds of millions of frames takes seconds

_FEATURE = "bpf-sink"
_WITHOUT = "use `sink: auto` or `sink: tcpdump`"


class RemoteCounting:
    """Counting by one process from attach() to close(), with the methods of Counting; a dead process is replaced.

    MissingError and TestbedError as in Counting. TestbedError also for a process that dies or does not answer: it is
    ended.
    """

    def __init__(self, interface: str, hook: HookChoice, host: Host) -> None:
        self._host, self._interface, self._hook = host, interface, hook
        self._process: WorkerProcess | None = None
        self._unanswered = 0  # requests for learning frames
        self.where = ""

    def attach(self) -> None:
        """Start the process, which attaches the program, unless it is running already."""
        if self._process is None:
            command = module_command_on(self._host, _MODULE, self._interface, self._hook)
            process = self._host.spawn(["env", "OPENBLAS_NUM_THREADS=1", *command])
            self._process = WorkerProcess(f"the sink bpf on {self._interface} of host {self._host.name}", process)
            self.begun(_START_S)

    def begin(self, request: CountRequest) -> None:
        """Send the request to count; begun() waits for the answer."""
        self.attach()
        self._send({"do": "begin", "request": to_json(request)})

    def begun(self, timeout_s: float) -> None:
        """Return once it counts and has sent all learning frames."""
        try:
            self.where = str(self._answer(timeout_s)["where"])
        finally:  # the answers to requests for learning frames follow in any case, if the process is alive
            while self._process is not None and self._unanswered:
                self._unanswered -= 1
                self._answer(_ANSWER_S)

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        """Request learning frames, as Counting.prime_fdb(); begun() waits until they are sent."""
        for part in batched(frames, LEARNING_BATCH):
            self._send({"do": "learn", "frames": [frame.hex() for frame in part]})
            self._unanswered += 1

    def end(self) -> str:
        """Stop counting and write the sample, as Counting.end()."""
        return str(self._call({"do": "end"})["no_sample"])

    def received(self, sent: Sent) -> Received:
        """Return the received frames, as Counting.received()."""
        answer = self._call({"do": "received", "sent": asdict(sent)})
        return TypeAdapter(Received).validate_python(answer["received"])

    def detach(self) -> None:
        """Detach the program; the process keeps running."""
        if self.where:
            with suppress(TestbedError):  # the program ends with its process
                self._call({"do": "rest"})
            self.where = ""

    def close(self) -> None:
        """End the process; harmless if called twice."""
        process, self._process, self.where, self._unanswered = self._process, None, "", 0
        if process is not None:
            process.close()

    def _call(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        self._send(request)
        return self._answer(_ANSWER_S)

    def _send(self, request: Mapping[str, object]) -> None:
        self._conversation.request(request)

    def _answer(self, timeout_s: float) -> Mapping[str, Any]:
        try:
            answer = self._conversation.any_reply(timeout_s)
        except (TimeoutError, TestbedError) as error:
            self.close()
            raise TestbedError(str(error)) from error
        if why := answer.get("missing"):
            raise MissingError(f"{self._host}: {why}")
        if why := answer.get("failed"):
            raise TestbedError(f"{self._host}: {why}")
        return answer

    @property
    def _conversation(self) -> WorkerProcess:
        if self._process is None:
            raise TestbedError(f"no capture is running on {self._interface}: its process has ended")
        return self._process


def _probe(_: Probes) -> str:
    """Load the program, attach it at every hook that may be used, and return the result as text."""
    working, refused, fault, package = [], [], Fault.NONE, ""
    hooks: tuple[HookChoice, ...] = ("xdp", "tcx")
    for hook in hooks:
        try:
            attached = attach("nbp1", hook, Capacity.needed(1, 1, 0), by_napi=False)
        except MissingError as error:
            refused.append(str(error))
            fault, package = fault | error.fault, package or error.package
        else:
            attached.close()
            working.append(attached.hook.name)
    if not working:
        raise ProbeError("; ".join(dict.fromkeys(refused)), fault, package)
    return "; ".join((f"loaded its program and attached it ({' and '.join(working)})", *refused))


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
    counts_mixes: ClassVar[bool] = True
    counts_packets: ClassVar[bool] = True
    auto_sink = SinkPreference(rank=1)
    needs = frozenset({_FEATURE})
    may_need = (
        Feature(
            _FEATURE,
            "the sink bpf",
            ON_VETH,
            "CONFIG_BPF_SYSCALL (Linux 5.18)",
            "",
            _probe,
            optional=True,
            otherwise=_WITHOUT,
        ),
    )

    def __init__(self, options: BpfOptions) -> None:
        self._options = options

    def unsupported_reason(self, host: Host) -> str:
        if has_netbench(host):
            return ""
        return f"host {host.name} has no netbench, which runs the sink bpf; {_WITHOUT}"

    def sink(self) -> "BpfSink":
        return BpfSink(self._options)


class BpfSink(Sink):
    """One program at one NIC, from open() to close() or rest(); it counts from arm() to stop()."""

    def __init__(self, options: BpfOptions) -> None:
        self._options = options
        self._counting: Counting | RemoteCounting | None = None
        self._incoming: Incoming | None = None
        self._interface = self._kernel = ""
        self._error = self._no_room = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        return [f"# the program netbench/bpf/programs/sink.c, attached to {interface} (hook: {self._options.hook})"]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Attach the program; MissingError if the kernel does not accept it."""
        self.close()
        self._host, self._interface, self._kernel = host, interface, kernel_of(host)
        hook = self._options.hook
        here = host.shares_files
        self._counting = Counting(interface, hook, host.netns) if here else RemoteCounting(interface, hook, host)
        try:
            self._counting.attach()
        except BaseException as error:  # Ctrl-C too: its process must not remain
            self.close()
            if isinstance(error, MissingError):
                raise MissingError(f"{error}; {_WITHOUT}") from error
            raise

    def identity(self) -> Identity:
        options = options_text(self._options)
        if self._counting is not None and self._counting.where:
            options["hook"] = self._counting.where
        return Identity(NAME, self._kernel, options, cpus=())

    def writes(self, incoming: Incoming) -> int:
        if not incoming.keep:
            return 0
        room, snap_length = self._room(incoming), min(incoming.stored_bytes, SAMPLE_BYTES)
        return pcap_bytes(room.sampled, incoming.traffic.frame_size.largest_bytes, snap_length)

    def arm(self, incoming: Incoming) -> None:
        self._incoming, self._error, self._no_room = incoming, "", ""
        request = CountRequest(
            expected=incoming.expected,
            traffic=incoming.traffic,
            network=incoming.path.src_network,
            room=self._room(incoming),
            by_napi=incoming.path.receive != "inline",
            snap_length=incoming.stored_bytes,
            sample_every=self._options.sample if incoming.keep else 0,
            sample=str(self._sample_there(incoming)),
        )
        counting = self._opened
        try:
            counting.begin(request)
        except MachineGoneError:
            raise
        except (MissingError, TestbedError, UsageError) as error:
            self._error = str(error)

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        if not self._error:
            self._opened.prime_fdb(frames)

    def armed(self, timeout_s: float) -> bool:
        if not self._error:
            try:
                self._opened.begun(timeout_s)
            except (MissingError, TestbedError) as error:
                self._error = str(error)
        return not self._error

    def stop(self, limit_s: float) -> None:
        """Stop counting, and copy the sample, if any, to this machine."""
        counting, incoming = self._opened, self._incoming
        assert incoming is not None, "arm() comes first"
        if self._error:
            return
        try:
            no_sample = counting.end()
        except TestbedError as error:
            self._error = str(error)
            return
        written_to, file = self._sample_there(incoming), _sample_file(incoming)
        if no_sample and written_to == file:
            self._no_room = f"{file} cannot be written: {no_sample}; free some room, or write elsewhere with -o"
        elif no_sample:
            self._no_room = f"{written_to} on {self._host} cannot be written: {no_sample}; free some room there"
        elif incoming.keep and written_to != file:
            self._bring_home(written_to, file)

    def received(self, sent: Sent) -> Received:
        if not self._error:
            try:
                return replace(self._opened.received(sent), no_room=self._no_room)
            except TestbedError as error:
                self._error = str(error)
        return Received(error=self._error, no_delay="the count is incomplete", counted_by=NAME)

    def rest(self) -> None:
        if self._counting is not None:
            self._counting.detach()

    def close(self) -> None:
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.close()

    def _room(self, incoming: Incoming) -> Capacity:
        every = self._options.sample if incoming.keep else 0
        flows = incoming.headers.flows if incoming.headers else 0
        traffic = incoming.traffic
        return Capacity.needed(traffic.frames, traffic.duration_s, every, flows, len(traffic.frame_size.sizes))

    def _sample_there(self, incoming: Incoming) -> Path:
        """Return the file on the NIC's host that a sample is written to."""
        file = _sample_file(incoming)
        return output_path(self._host, file)

    def _bring_home(self, there: Path, file: Path) -> None:
        try:
            self._host.fetch(str(there), file)
        except MachineGoneError:
            raise
        except TestbedError as error:
            self._no_room = str(error)
        self._host.run(["rm", "-f", str(there)])

    @property
    def _opened(self) -> Counting | RemoteCounting:
        if self._counting is None:
            raise TestbedError(f"no capture is running on {self._interface}: open the sink bpf first")
        return self._counting


def _sample_file(incoming: Incoming) -> Path:
    return incoming.record.with_name(f"{incoming.record.name}.sample.pcap")
