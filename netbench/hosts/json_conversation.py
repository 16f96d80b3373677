"""A process of netbench's own and the conversation with it: JSON, one object a line, each awaited for a limited time.

So is talked with what sends, counts or forwards where a NIC is.
"""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Process
from netbench.hosts.lines import Lines, last_words

# How long it may take to end by itself once its stdin is closed, in seconds.
_END_S = 1.0


class Conversation:
    """With one worker that was started, until close(). `who` names it in messages, as in `the trex source on eth1`."""

    def __init__(self, who: str, process: Process) -> None:
        assert process.stdout
        self._who = who
        self._process = process
        self._lines = Lines(process.stdout)

    def tell(self, message: Mapping[str, object]) -> None:
        """Send a request; a worker that is no longer there shows when its reply is read."""
        self.write(json.dumps(message))

    def write(self, line: str) -> None:
        """The same of one whose requests are words."""
        stdin = self._process.stdin
        assert stdin
        with suppress(OSError):  # see tell()
            stdin.write(line + "\n")
            stdin.flush()

    def reply(self, timeout_s: float) -> Mapping[str, Any]:
        """The next reply.

        TimeoutError if none comes in time; TestbedError if the worker died, talks nonsense or says that it `failed`;
        MissingError if it says what is `missing`.
        """
        reply = self.said(timeout_s)
        self.require_no_failure(reply)
        return reply

    def said(self, timeout_s: float) -> Mapping[str, Any]:
        """The next reply, whatever it says; errors as of reply()."""
        try:
            line = self._lines.take(timeout_s)
        except TimeoutError as error:
            raise TimeoutError(self.failure(f"did not answer within {timeout_s:g} s")) from error
        except EOFError as error:
            raise TestbedError(self.failure(f"died ({self._exit()})")) from error
        except ValueError as error:
            raise TestbedError(self.failure("answers without end")) from error
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise TestbedError(self.failure(f"wrote {line[:80]!r} where a JSON object was expected"))
        return reply

    def require_no_failure(self, reply: Mapping[str, object]) -> None:
        """Of a source: errors as of reply() where it says that it `failed`, or what is `missing`."""
        if "missing" in reply:
            raise MissingError(self.failure(f"cannot send: {reply['missing']}"))
        if "failed" in reply:
            raise TestbedError(self.failure(f"cannot send: {reply['failed']}"))

    def failure(self, what: str) -> str:
        """A message about the worker, with the last lines it wrote to its stderr."""
        stderr = self._process.stderr
        assert stderr
        said = last_words(stderr, 3)
        return f"{self._who} {what}" + (f"; its stderr: {said}" if said else "")

    def kill(self) -> None:
        """End it at once: whatever it is doing, it is not to go on."""
        self._process.kill()

    def close(self) -> None:
        """Ask the worker to end by closing its stdin, then by SIGTERM, then by SIGKILL."""
        process = self._process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with suppress(OSError):  # what a dead worker has not read
            process.stdin.close()
        for insist in (process.terminate, process.kill):
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                insist()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def _exit(self) -> str:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "its stdout is closed, but it still runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"
