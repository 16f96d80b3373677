"""A process of netbench's own that forwards on the host of its NICs, and the questions to it.

It answers each line on its stdin, and once before the first, with one JSON object; it ends when its stdin does.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.composed import module_command_on
from netbench.hosts.lines import Lines, end, last_words
from netbench.hosts.python_modules import module_command

_ANSWER_S = 10.0
_ELSEWHERE_S = 60.0  # Python is slow to start on an emulated CPU
_END_S = 1.0


@dataclass(frozen=True, slots=True)
class StartProcess:
    """The process of one stream, or of all of a UUT: what it is called, and the module that runs on which host."""

    name: str
    host: str
    module: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(module_command(self.module, *self.arguments))


class Conversation:
    """One process; MissingError on a host that netbench does not run on."""

    def __init__(self, host: Host, start: StartProcess) -> None:
        self._where = f"the forwarder of host {host.name}"
        process: Process = host.spawn(module_command_on(host, start.module, *start.arguments))
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process, self._stdin, self._stdout, self._stderr = process, process.stdin, process.stdout, process.stderr
        self._answers = Lines(self._stdout)
        self._limit_s = _ANSWER_S if host.shares_files else _ELSEWHERE_S

    def ask(self, request: str) -> Mapping[str, Any]:
        """The answer to `reset` or `read`; TestbedError when there is none."""
        with suppress(OSError):  # one that has ended shows when it does not answer
            self._stdin.write(request + "\n")
            self._stdin.flush()
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """The next answer."""
        try:
            answer: Mapping[str, Any] = json.loads(self._answers.take(self._limit_s))
        except TimeoutError as error:
            raise TestbedError(f"{self._where} did not answer within {self._limit_s:g} s") from error
        except EOFError as error:
            raise TestbedError(f"{self._where} died: {last_words(self._stderr, 1) or 'no message'}") from error
        except ValueError as error:
            raise TestbedError(f"{self._where} gave an answer that makes no sense") from error
        return answer

    def require_alive(self) -> None:
        """TestbedError when it has ended."""
        if self._process.poll() is not None:
            raise TestbedError(f"{self._where} died: {last_words(self._stderr, 1) or 'no message'}")

    def end(self) -> None:
        """End it: by closing its stdin, then by SIGKILL."""
        end(self._process, _END_S)
