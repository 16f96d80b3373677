"""A parsed device file of pktgen: its settings, its counters, and how the last run ended.

The format is that of `pktgen_if_show` and `show_results` in the kernel's net/core/pktgen.c.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from netbench.errors import TestbedError

_SETTING = re.compile(r"(\w+): (\S*)")
_FLAGS = re.compile(r" Flags: (.*)\n")
_CURRENT = re.compile(
    r"pkts-sofar: (?P<frames>\d+)  errors: (?P<errors>\d+)\n"
    r"(?s:.*?)started: (?P<started>\d+)us  stopped: (?P<stopped>\d+)us"
)
_ENDED = re.compile(r"OK: \d+\(c\d+\+d(?P<idle>\d+)\) usec, \d+ \(\d+byte,-?\d+frags\)\n +\d+pps ")


@dataclass(frozen=True, slots=True)
class PktgenDevice:
    """A device file. `settings` are those before `Current:`, by the kernel's names, and the count.

    A set flag is `on`, an unset flag is missing. A `burst` of 1 is not in the file.

    Times are CLOCK_MONOTONIC (`ktime_get`). During a run, `stopped_us` is the current time. `errors` counts failed
    sends. `result` is the kernel's result of the last command or run.
    """

    settings: Mapping[str, str]
    frames: int
    errors: int
    started_us: int
    stopped_us: int
    result: str

    @property
    def ended(self) -> bool:
        """Whether the last run has ended; also False when a command came after it."""
        return _ENDED.match(self.result) is not None

    @property
    def idle_us(self) -> int:
        """The time in µs that the thread waited in the last run, for a frame's turn or the CPU; 0 until its end."""
        ended = _ENDED.match(self.result)
        return int(ended["idle"]) if ended else 0


def parse_device(text: str) -> PktgenDevice:
    """Parse a device file; TestbedError when `text` is not one."""
    params, found_current, rest = text.partition("Current:\n")
    current = _CURRENT.search(rest)
    _, found_result, result = rest.partition("\nResult: ")
    if not (params.startswith("Params: count ") and found_current and current and found_result):
        raise TestbedError(f"pktgen wrote {text[:80]!r} where the state of a device was expected")
    settings = dict(_SETTING.findall(params.replace("Params: count ", "count: ", 1)))
    flags = _FLAGS.search(params)
    return PktgenDevice(
        settings={"burst": "1", **settings, **dict.fromkeys(flags[1].split() if flags else (), "on")},
        frames=int(current["frames"]),
        errors=int(current["errors"]),
        started_us=int(current["started"]),
        stopped_us=int(current["stopped"]),
        result=result.rstrip("\n"),
    )
