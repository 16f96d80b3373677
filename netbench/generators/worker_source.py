"""A source whose frames are sent by a separate process on its host, and the protocol with that process."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netbench.errors import TestbedError
from netbench.generators.base import Source
from netbench.hosts.base import Host
from netbench.hosts.remote_code import has_netbench, module_command_on
from netbench.hosts.trusted_code import module_command
from netbench.hosts.worker_client import WorkerProcess
from netbench.model.tester import Identity
from netbench.model.traffic import NOTHING_SENT, Sent, Traffic, traffic_data
from netbench.packets.build import build_template
from netbench.packets.scapy_layers import scapy_classes

# Time limits for replies of the worker, in seconds. On a healthy host a reply takes milliseconds.
_PREPARE_S = 10.0
_ELSEWHERE_S = 60.0  # to be ready on another host: Python and numpy are slow to start on an emulated CPU
_STOP_S = 5.0


def no_netbench(host: Host) -> str:
    """Return why the worker of a source cannot run on a host, as a phrase; empty where it can."""
    return "" if has_netbench(host) else f"host {host.name} has no netbench, which runs the sending process"


def wait_for_end(
    worker: WorkerProcess,
    reply: Callable[[float], Mapping[str, Any]],
    stop: Callable[[], object],
    timeout_s: float,
) -> Sent:
    """Wait for the reply to `start` and return the sent frames; a worker over the time limit is stopped or killed.

    Failures are reported in `error`, not raised. When the number of frames sent is unknown, it is reported as 0 frames.
    """
    try:
        try:
            message = reply(timeout_s)
        except TimeoutError:
            stop()
            message = reply(_STOP_S)
        return Sent(**message["sent"])
    except (KeyError, TypeError):
        error = worker.failure("did not report how many frames it sent")
    except (TimeoutError, TestbedError) as failure:
        error = str(failure)
    worker.kill()  # it must stop sending, whatever its state
    return replace(NOTHING_SENT, error=error)


class WorkerSource(Source):
    """One process, alive from open() to close(), that runs `source_worker.serve`."""

    open_limit_s = 20.0  # time limit for the worker to become ready
    version = ""  # of the sending software, if the worker reports it
    _worker: WorkerProcess | None = None
    _host: Host | None = None

    def __init__(self, kind: str, module: str, *arguments: str, realtime: int = 0) -> None:
        """Run `module` with the interface, `arguments`, and the numbers of the CPUs it is pinned to.

        `realtime` is the priority of its sending threads in the scheduling class SCHED_FIFO; 0: another class.
        """
        self._kind, self._module, self._arguments, self._realtime = kind, module, arguments, realtime

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        return [shlex.join(self._command(interface, cpus))]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Start the worker; TestbedError when it does not become ready, MissingError when a feature is missing."""
        self._host = host
        title = f"the {self._kind} source on {interface} of host {host.name}"
        self._worker = WorkerProcess(title, host.spawn(self._command(interface, cpus)), "cannot send")
        try:
            scapy_classes()  # while the worker starts
            self._require_ready(self.open_limit_s if host.shares_files else max(self.open_limit_s, _ELSEWHERE_S))
        except BaseException:  # Ctrl-C too: the worker must not stay
            self.close()
            raise

    def identity(self) -> Identity:
        return Identity(self._kind)

    def prepare(self, traffic: Traffic) -> None:
        """Let the worker build the frames of the next trial; TestbedError when it died or cannot send there."""
        worker = self._opened
        template = build_template(traffic).to_json()
        worker.request(
            {
                "do": "prepare",
                "traffic": traffic_data(traffic),
                "template": template,
                "realtime": self._realtime,
            }
        )
        self._require_ready(_PREPARE_S)

    def start(self, at_monotonic_ns: int) -> None:
        self._opened.request({"do": "start", "at_monotonic_ns": at_monotonic_ns})

    def wait(self, timeout_s: float) -> Sent:
        worker = self._opened
        return wait_for_end(worker, worker.reply, lambda: worker.request({"do": "stop"}), timeout_s)

    def close(self) -> None:
        """End the worker by closing its stdin, then by SIGTERM, then by SIGKILL."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _command(self, interface: str, cpus: Sequence[int]) -> list[str]:
        words = interface, *self._arguments, *map(str, cpus)
        program = (
            module_command_on(self._host, self._module, *words) if self._host else module_command(self._module, *words)
        )
        # Without this, numpy starts a spinning thread on every CPU, including the sending ones.
        return ["env", "OPENBLAS_NUM_THREADS=1", *program]

    @property
    def _opened(self) -> WorkerProcess:
        if self._worker is None:
            raise TestbedError(f"a source of kind {self._kind} is used before open() or after close(); open it first")
        return self._worker

    def _require_ready(self, timeout_s: float) -> None:
        try:
            reply = self._opened.reply(timeout_s)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error
        self.version = str(reply.get("version", self.version))
        if {**reply, "version": ""} != {"ready": True, "version": ""}:
            raise TestbedError(self._opened.failure("sent an invalid reply"))
