"""The worker's side of the messages of a WorkerProcess: JSON, one object per line, on stdin and stdout."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress

from netbench.errors import MissingError


def send_reply(message: Mapping[str, object]) -> None:
    """Write a reply to the controller."""
    with suppress(BrokenPipeError):  # the controller is gone: the end of stdin will show it
        os.write(1, json.dumps(message).encode() + b"\n")


def failure_reply(error: Exception, reason: str = "") -> dict[str, object]:
    """Return the reply that reports what is `missing`, or why a request `failed`."""
    return {"missing" if isinstance(error, MissingError) else "failed": reason or str(error)}
