"""The process that counts for a sink bpf on another host: `python -m netbench.sinks.bpf_worker INTERFACE HOOK`.

It attaches the program to the interface in its network namespace until its stdin ends. It executes the lines of stdin.
It answers each of them, except `learn`, with one line; an answer also follows the start:

    → {"do": "begin", "order": {…}}         ← {"where": "the hook, and why there"}
    → {"do": "learn", "mac": "…"}
    → {"do": "end"}                         ← {"no_sample": "why the sample cannot be written", or ""}
    → {"do": "received", "sent": {…}}       ← {"received": {…}}
    → {"do": "rest"}                        ← {"where": ""}          no program is there until the next `begin`

Other answers are {"missing": "what this kernel lacks"} and {"failed": "why"}. However the process ends, the kernel
removes the program.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from netbench.errors import MissingError, NetbenchError
from netbench.model.traffic import Sent
from netbench.sinks.bpf_counting import Counting, order_of
from netbench.sinks.bpf_hooks import Wanted


def main() -> None:
    """Execute the lines of stdin until it ends."""
    _, interface, hook = sys.argv
    counting = Counting(interface, cast(Wanted, hook))
    _answer(counting, {"do": "attach"})
    for line in sys.stdin:
        _answer(counting, json.loads(line))
    counting.detach()


def _answer(counting: Counting, asked: Mapping[str, Any]) -> None:
    try:
        answer = _done(counting, asked)
    except MissingError as error:
        answer = {"missing": str(error)}
    except NetbenchError as error:
        answer = {"failed": str(error)}
    if answer:
        with suppress(BrokenPipeError):  # the reader is gone: stdin will end
            os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


def _done(counting: Counting, asked: Mapping[str, Any]) -> Mapping[str, object]:
    match asked["do"]:
        case "attach":
            counting.attach()
        case "begin":
            counting.begin(order_of(asked["order"]))
        case "rest":
            counting.detach()
        case "learn":
            if counting.where:  # otherwise the last answer reported why it does not count
                counting.learn(asked["mac"])
            return {}
        case "end":
            return {"no_sample": counting.end()}
        case "received":
            return {"received": asdict(counting.received(Sent(**asked["sent"])))}
    return {"where": counting.where}


if __name__ == "__main__":
    main()
