"""The output of an iperf3 client, read strictly: its numbers must add up."""

import json
import re
from collections.abc import Iterable, Iterator
from math import isclose
from typing import Any, NamedTuple

from netbench.hosts.base import Completed
from netbench.model.flow_result import FlowResult
from netbench.tools.base import Demand, FlowEnds, ToolError, number_of, whole_number

# Of its reports. It leaves out those of less than 10 % of that time in which no data was sent, as after a report that
# was late (iperf_print_intermediate in iperf_api.c).
INTERVAL_S = 0.25
_LEFT_OUT_S = 0.1 * INTERVAL_S
_START_S = 1e-3  # how far the start of an interval may be off: it is rounded
_ROUNDED_S = 1e-5  # the same of all intervals together
_RECEIVED_SINCE = 11  # of version 3
_ROUNDED = 1e-6  # of seconds, in a rate


def read_iperf3(
    done: Completed, protocol: str, direction: str, demand: Demand, ends: FlowEnds, workload: str
) -> FlowResult:
    """Return the figures of an iperf3 client; ToolError for anything that is no complete output of it.

    Those of TCP are of the intervals after the warm-up, those of UDP of the whole run.
    """
    try:
        output: Any = json.loads(done.stdout)
        error = output.get("error")
    except (ValueError, AttributeError, RecursionError) as fault:
        words = (done.stderr.strip() or done.stdout.strip())[-300:] or "nothing"
        raise ToolError(f"iperf3 ended with exit code {done.exit_code} and printed no JSON: {words}") from fault
    if error or done.exit_code:
        raise ToolError(f"iperf3 ended with exit code {done.exit_code}: {error or done.stderr.strip()[-300:]}")
    try:
        return _figures(output, protocol, direction, demand, ends, workload)
    except (KeyError, TypeError, AttributeError) as fault:
        raise ToolError(f"iperf3's output lacks {fault}") from fault


def _figures(
    output: Any,  # noqa: ANN401 - any JSON
    protocol: str,
    direction: str,
    demand: Demand,
    ends: FlowEnds,
    workload: str,
) -> FlowResult:
    version, total = output["start"]["version"], output["end"]
    if not isinstance(version, str):
        raise ToolError(f"iperf3's version is {version!r} in its output")
    is_upload, is_tcp = direction == "upload", protocol == "tcp"
    is_old = not is_tcp and _is_older(version)
    here = total["sum" if is_old else "sum_sent" if is_upload else "sum_received"]
    intervals = list(_intervals(output["intervals"], number_of(here["seconds"], "seconds")))
    whole = sum(interval.size for interval in intervals)
    retransmissions = lost = started = None
    if is_tcp:
        flows = [flow["sender" if is_upload else "receiver"] for flow in total["streams"]]
        if _total(here, "bytes", flows) != whole:
            raise ToolError(f"iperf3 reports {here['bytes']} bytes, and {whole} in all intervals")
        measured = [interval for interval in intervals if interval.start_s >= demand.warm_up_s - _START_S]
        if not measured:
            raise ToolError(f"iperf3 printed no interval after the warm-up of {demand.warm_up_s:g} s")
        seconds, arrived = (
            sum(values) for values in zip(*((part.seconds, part.size) for part in measured), strict=True)
        )
        senders = [flow["sender"] for flow in total["streams"]]
        if any("retransmits" in flow for flow in (total["sum_sent"], *senders)):
            retransmissions = _total(total["sum_sent"], "retransmits", senders)
    else:
        flows = [flow["udp"] for flow in total["streams"]]
        started, missing = (_total(total["sum"], key, flows) for key in ("packets", "lost_packets"))
        size = whole_number(output["start"]["test_start"]["blksize"], "blksize")
        seconds, arrived, lost = number_of(here["seconds"], "seconds"), (started - missing) * size, missing
        if not is_old:
            # `lost_packets` are gaps in the numbers: iperf3 does not count datagrams after the last one that arrived.
            received = total["sum_received"]
            arrived = whole_number(received["bytes"], "bytes")
            lost = started - arrived // size
            _check_rate(received)
        if missing > lost or total["sum"]["bytes"] != started * size or arrived % size:
            raise ToolError(f"iperf3 reports {missing} lost datagrams of {started}, and other bytes than these have")
        if is_upload and whole != started * size:
            raise ToolError(f"iperf3 reports {started} datagrams of {size} bytes, and {whole} bytes in all intervals")
        if is_upload and any(abs(number_of(flow["seconds"], "seconds") - seconds) > _ROUNDED_S for flow in flows):
            raise ToolError(f"iperf3 reports {seconds:g} s in total, and other times of its flows")
    _check_rate(here)
    return FlowResult(
        stream=ends.stream,
        workload=workload,
        tool=version,
        duration_s=seconds,
        to_server_bytes=arrived if is_upload else None,
        to_client_bytes=None if is_upload else arrived,
        run_to_server_bytes=whole if is_upload else None,
        # The client counts only the datagrams that arrived.
        run_to_client_bytes=whole if is_tcp and not is_upload else None,
        started=started,
        completed=None if started is None or lost is None else started - lost,
        errors={"lost": lost} if lost else {},
        retransmissions=retransmissions,
        lost_datagrams=lost,
    )


def _is_older(version: str) -> bool:
    """Return whether a version reports UDP without the counts of the receiver, as those before 3.11 do."""
    found = re.fullmatch(r"iperf 3\.(\d+)\S*", version)
    return found is not None and int(found[1]) < _RECEIVED_SINCE


class _Interval(NamedTuple):
    """What the client sent or received in a part of the time."""

    start_s: float
    seconds: float
    size: int  # bytes of all flows


def _intervals(intervals: Iterable[Any], whole_s: float) -> Iterator[_Interval]:
    """Yield the intervals of the client's output, and those without data that it left out.

    ToolError unless each begins where the one before ended, and the last one ends with the run of `whole_s` seconds.
    """
    ended_s = lasted_s = 0.0
    for interval in intervals:
        total = interval["sum"]
        start_s, end_s, seconds = (number_of(total[key], key) for key in ("start", "end", "seconds"))
        gap_s = start_s - ended_s
        if not -_START_S <= gap_s <= _LEFT_OUT_S + _START_S or abs(end_s - start_s - seconds) > _START_S:
            raise ToolError(
                f"iperf3 reports an interval of {seconds:g} s from {start_s:g} s until {end_s:g} s, after one until "
                f"{ended_s:g} s"
            )
        _check_rate(total)
        if gap_s > _START_S:
            yield _Interval(ended_s, gap_s, 0)
            lasted_s += gap_s
        yield _Interval(start_s, seconds, _total(total, "bytes", interval["streams"]))
        ended_s, lasted_s = end_s, lasted_s + seconds
    left_s = whole_s - lasted_s
    if not -_ROUNDED_S <= left_s <= _LEFT_OUT_S + _ROUNDED_S:
        raise ToolError(f"iperf3 reports intervals of {lasted_s:g} s, and {whole_s} s in total")
    if left_s > _ROUNDED_S:
        yield _Interval(ended_s, left_s, 0)


def _check_rate(total: Any) -> None:  # noqa: ANN401 - any JSON
    """Raise ToolError unless bytes, seconds and rate fit together."""
    rate, seconds, size = (number_of(total[key], key) for key in ("bits_per_second", "seconds", "bytes"))
    if not isclose(rate * seconds, 8 * size, rel_tol=_ROUNDED, abs_tol=1):
        raise ToolError(f"iperf3 reports {size} bytes in {seconds} s, and another rate than that")


def _total(total: Any, key: str, flows: Iterable[Any]) -> int:  # noqa: ANN401 - any JSON
    """Return a figure of all flows; ToolError unless it is the sum of theirs, which a damaged output contradicts."""
    number = whole_number(total[key], key)
    if number != sum(whole_number(flow[key], key) for flow in flows):
        raise ToolError(f"iperf3 reports {number} {key}, which is not the sum of all flows")
    return number
