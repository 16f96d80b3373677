"""A process of netbench that forwards on the host of its NICs, and the requests to it.

It answers each line on its stdin, and once before the first, with one JSON object. It ends when its stdin does.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, machine_name
from netbench.hosts.pipes import end
from netbench.hosts.remote_code import module_command_on
from netbench.hosts.trusted_code import module_command
from netbench.hosts.worker_process import WorkerProcess

_ANSWER_S = 10.0
_ELSEWHERE_S = 60.0  # Python is slow to start on an emulated CPU
_END_S = 1.0


@dataclass(frozen=True, slots=True)
class StartProcess:
    """The process of one stream, or of a whole UUT: its name, its host, and the module that it runs."""

    name: str
    host: str
    module: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(module_command(self.module, *self.arguments))


class ForwardingProcess:
    """One process; MissingError on a host without netbench."""

    def __init__(self, host: Host, start: StartProcess) -> None:
        self._process = host.spawn(module_command_on(host, start.module, *start.arguments))
        self._conversation = WorkerProcess(f"the forwarder of host {host.name}", self._process)
        self._limit_s = _ELSEWHERE_S if machine_name(host) else _ANSWER_S

    def ask(self, request: str) -> Mapping[str, Any]:
        """Return the answer to `reset` or `read`; TestbedError without one."""
        self._conversation.write(request)
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """Return the next answer."""
        try:
            return self._conversation.any_reply(self._limit_s)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error

    def require_alive(self) -> None:
        """Raise TestbedError when it has ended."""
        if self._process.poll() is not None:
            raise TestbedError(self._conversation.failure("died"))

    def end(self) -> None:
        """End it: by closing its stdin, then by SIGKILL."""
        end(self._process, _END_S)
