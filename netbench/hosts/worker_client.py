"""A worker process of netbench with JSON messages, one object per line; waits for replies have a time limit.

Senders, sinks and forwarders on the host of a NIC are such workers.
"""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Process
from netbench.hosts.pipes import Lines, last_words

# Time limit for it to end by itself once its stdin is closed, in seconds.
_END_S = 1.0


class WorkerProcess:
    """Messages to and from one worker, until close(). `title` is its name in messages: `the trex source on eth1`.

    `failed` begins the message about a failure that it reports.
    """

    def __init__(self, title: str, process: Process, failed: str = "failed") -> None:
        assert process.stdout
        self._title, self._failed = title, failed
        self._process = process
        self._lines = Lines(process.stdout)

    def request(self, message: Mapping[str, object]) -> None:
        """Send a request; if the worker has died, reading its reply fails."""
        self.write(json.dumps(message))

    def write(self, line: str) -> None:
        """Send a request that is a plain line."""
        stdin = self._process.stdin
        assert stdin
        with suppress(OSError):  # see request()
            stdin.write(line + "\n")
            stdin.flush()

    def reply(self, timeout_s: float) -> Mapping[str, Any]:
        """Return the next reply.

        TimeoutError if none comes in time; TestbedError if the worker died, sent invalid data or reported that it
        `failed`; MissingError if it reported what is `missing`.
        """
        reply = self.any_reply(timeout_s)
        self.require_no_failure(reply)
        return reply

    def any_reply(self, timeout_s: float) -> Mapping[str, Any]:
        """Return the next reply, also one that reports a failure; other errors as of reply()."""
        try:
            line = self._lines.take(timeout_s)
        except TimeoutError as error:
            raise TimeoutError(self.failure(f"did not answer within {timeout_s:g} s")) from error
        except EOFError as error:
            raise TestbedError(self.failure(f"died ({self._exit()})")) from error
        except ValueError as error:
            raise TestbedError(self.failure("wrote a line of more than 64 KiB")) from error
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise TestbedError(self.failure(f"wrote {line[:80]!r} where a JSON object was expected"))
        return reply

    def require_no_failure(self, reply: Mapping[str, object]) -> None:
        """Raise the errors of reply() if the worker reported that it `failed`, or what is `missing`."""
        for key, error in (("missing", MissingError), ("failed", TestbedError)):
            if key in reply:
                raise error(self.failure(f"{self._failed}: {reply[key]}"))

    def failure(self, what: str) -> str:
        """Return a message about the worker, with the last lines of its stderr."""
        stderr = self._process.stderr
        assert stderr
        words = last_words(stderr, 3)
        return f"{self._title} {what}" + (f"; its stderr: {words}" if words else "")

    def kill(self) -> None:
        """Kill it at once, in any state."""
        self._process.kill()

    def close(self) -> None:
        """End the worker: by closing its stdin, then by SIGTERM, then by SIGKILL."""
        process = self._process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with suppress(OSError):  # unread data of a dead worker
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
