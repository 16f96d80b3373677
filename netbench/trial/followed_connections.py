"""A part of the connections as witness, where capturing all of them would disturb: their filter and percentiles."""

from math import ceil, floor, inf, sqrt

from netbench.model.flow_result import Latencies

ALL, NONE = "all", "none"
# Standard errors within which the percentile of all requests may be, given that of the followed ones.
_ERRORS = 3.0


def denominator(witness: str) -> int:
    """Return N for the witness `1/N` of a profile: one of N connections is followed; 1 for all, 0 for none."""
    return {ALL: 1, NONE: 0}[witness] if witness in (ALL, NONE) else int(witness.removeprefix("1/"))


def connection_filter(client: str, part: int) -> str:
    """Return the filter (pcap-filter(7)) of one of `part` connections of a client, an IPv4 address, in both directions.

    They are chosen by the client's port without its lowest bit: Linux takes even ports first (inet_hashtables.c).
    """
    ends = ((f"{end} host {client}", f"(tcp[{at}:2] >> 1) & {part - 1} = 0") for end, at in (("src", 0), ("dst", 2)))
    return "(" + " or ".join(f"({host} and {chosen})" for host, chosen in ends) + ")"


def likely_range_ns(times: Latencies, per_hundred_thousand: int, connections: int) -> tuple[float, float]:
    """Return the range of a percentile of all requests, given the times of the followed ones.

    It is between order statistics, by the normal approximation of the binomial distribution. Requests of a connection
    resemble each other: the number of independent times is that of connections at most. A limit beyond the followed
    times is 0 or infinite.
    """
    part, count = per_hundred_thousand / 100_000, times.count
    error = _ERRORS * sqrt(part * (1 - part) / max(1, min(count, connections)))
    ranks = floor((part - error) * count), ceil((part + error) * count)
    least, most = times.times_at_ns([max(1, ranks[0]), min(count, max(1, ranks[1]))])
    return least if ranks[0] >= 1 else 0.0, most if ranks[1] <= count else inf
