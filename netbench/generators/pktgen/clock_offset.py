"""How two clocks of a host stand to each other: pktgen tells its times by one and stamps frames by the other."""

import re
import time

from netbench.errors import TestbedError
from netbench.hosts.base import Host

TIMER_LIST = "/proc/timer_list"
# Clock 1 is CLOCK_REALTIME (`enum hrtimer_base_type`): its offset from CLOCK_MONOTONIC in ns, as `print_base` in the
# kernel's kernel/time/timer_list.c writes it.
_REALTIME_OFFSET = re.compile(r"^ clock 1:\n(?: +\..*\n)*? +\.offset: +(\d+) nsecs$", re.MULTILINE)


def realtime_offset_ns(host: Host) -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC of a host in ns; TestbedError when it cannot be read.

    It changes only when somebody sets the clock. On this machine it is right to some microseconds, else exact.
    """
    if host.shares_files:
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return now - (before + after) // 2
    match = _REALTIME_OFFSET.search(host.read(TIMER_LIST))
    if not match:
        raise TestbedError(f"host {host.name}: {TIMER_LIST} does not tell the offset of CLOCK_REALTIME")
    return int(match[1])
