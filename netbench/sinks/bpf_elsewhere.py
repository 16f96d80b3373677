"""Counting at a NIC of another host by a process there, as `bpf_counting` does on this machine."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.remote_code import module_command_on
from netbench.hosts.worker_process import WorkerProcess
from netbench.model.received import Received
from netbench.model.traffic import Sent
from netbench.sinks.bpf_counting import CountRequest
from netbench.sinks.bpf_hooks import Wanted

_MODULE = "netbench.sinks.bpf_worker"
_START_S = 60.0  # Python and numpy are slow to start on an emulated CPU
_ANSWER_S = 60.0  # the result for hundreds of millions of frames takes seconds


class CountingElsewhere:
    """Counting by one process from attach() to close(), with the methods of Counting; a dead process is replaced.

    MissingError and TestbedError as in Counting. TestbedError also for a process that dies or does not answer: it is
    ended.
    """

    def __init__(self, interface: str, hook: Wanted, host: Host) -> None:
        self._host, self._interface, self._hook = host, interface, hook
        self._process: WorkerProcess | None = None
        self.where = ""

    def attach(self) -> None:
        """Start the process, which attaches the program, unless it is running already."""
        if self._process is None:
            command = module_command_on(self._host, _MODULE, self._interface, self._hook)
            process = self._host.spawn(["env", "OPENBLAS_NUM_THREADS=1", *command])
            self._process = WorkerProcess(f"the sink bpf on {self._interface} of host {self._host.name}", process)
            self.begun(_START_S)

    def begin(self, order: CountRequest) -> None:
        """Send the request to count; begun() waits for the answer."""
        self.attach()
        self._tell({"do": "begin", "order": asdict(order)})

    def begun(self, timeout_s: float) -> None:
        """Return once it counts."""
        self.where = str(self._answer(timeout_s)["where"])

    def learn(self, mac: str) -> None:
        """Send a learning frame, as Counting.learn()."""
        self._tell({"do": "learn", "mac": mac})

    def end(self) -> str:
        """Stop counting and write the sample, as Counting.end()."""
        return str(self._asked({"do": "end"})["no_sample"])

    def received(self, sent: Sent) -> Received:
        """Return the received frames, as Counting.received()."""
        answer = self._asked({"do": "received", "sent": asdict(sent)})
        return TypeAdapter(Received).validate_python(answer["received"])

    def detach(self) -> None:
        """Detach the program; the process keeps running."""
        if self.where:
            with suppress(TestbedError):  # the program ends with its process
                self._asked({"do": "rest"})
            self.where = ""

    def close(self) -> None:
        """End the process; harmless if called twice."""
        process, self._process, self.where = self._process, None, ""
        if process is not None:
            process.close()

    def _asked(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        self._tell(request)
        return self._answer(_ANSWER_S)

    def _tell(self, request: Mapping[str, object]) -> None:
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
