"""The worker's side of the messages of a WorkerProcess: JSON, one object per line, on stdin and stdout.

A request may have an `id`, which its reply repeats. A failed request has the reply {"failed": "why"}, or
{"missing": "what"} for a MissingError.
"""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from netbench.errors import MissingError, NetbenchError
from netbench.model.traffic import Sent

Request = Mapping[str, Any]
Reply = Mapping[str, object]

_REASONS = {
    errno.EPERM: "a packet socket needs root or CAP_NET_RAW",
    errno.ENODEV: "the interface does not exist",
    errno.EINVAL: "none of the CPUs that it is pinned to is usable",
}


def serve_requests(execute: Callable[[Request], Reply | None]) -> None:
    """Execute the requests on stdin until it ends, and reply to those for which `execute` returns a reply."""
    for line in sys.stdin:
        request = json.loads(line)
        reply_to(request, partial(execute, request))


def reply_to(request: Request, execute: Callable[[], Reply | None]) -> bool:
    """Reply with the result of `execute`, if any, or with its failure; return whether it succeeded."""
    try:
        reply = execute()
    except (OSError, NetbenchError) as error:
        reason = _REASONS.get(getattr(error, "errno", None) or 0, str(error))
        _send(request, {"missing" if isinstance(error, MissingError) else "failed": reason})
        return False
    if reply:
        _send(request, reply)
    return True


def reply_when_sent(request: Request, send: Callable[[], Sent]) -> threading.Thread:
    """Send the frames of a trial in a thread, which is returned, and reply with the sent frames."""

    def run() -> None:
        try:
            reply: Reply = {"sent": asdict(send())}
        except Exception as error:  # no caller of a thread could catch it
            reply = {"failed": str(error) if isinstance(error, NetbenchError) else f"sending failed: {error!r}"}
        _send(request, reply)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _send(request: Request, reply: Reply) -> None:
    line = json.dumps({"id": request["id"], **reply} if "id" in request else reply)
    with suppress(BrokenPipeError):  # the controller is gone: the end of stdin will show it
        os.write(1, line.encode() + b"\n")
