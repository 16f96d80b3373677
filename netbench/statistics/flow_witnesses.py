"""The figures of tools beside those of the wire: what taps beside client and guest captured of the same flows."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from netbench.model.flow_result import CLIENT, GUEST, HOST, SERVERS, FlowResult, Latencies, WireFigures
from netbench.model.flow_witness import PERCENTILE_FLOOR_NS, PERCENTILE_TOLERANCE
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind, Verdict
from netbench.statistics.flow_figures import (
    PERCENTILES,
    flows_of,
    latencies_of,
    percentile_ms,
    percentile_name,
)
from netbench.statistics.groups import grouped
from netbench.statistics.workload_groups import WorkloadGroup

# The times of a tool, and the times on the wire that they are compared with.
_TIMES = {"service": "exchange", "rtt": "exchange", "connect": "handshake"}
_TITLES = {"exchange": "request to response", "handshake": "handshake"}
# The figure in the text of a reason `tool-disagrees`, behind the kind of the tool: `http: p99: 268 µs by the tool, …`.
_FIGURE = re.compile(r"[a-z0-9-]+: (?:(p[\d.]+|bytes to the (?:server|client)): |[\d,]+ of [\d,]+ (datagrams) lost)")


@dataclass(frozen=True, slots=True)
class WitnessedFigure:
    """A figure of a cell by the tool and on the wire, over `trials` of it; None where either does not have it.

    In `disagreeing` ones of these trials the two disagree in this figure; None if it is not compared.

    Bytes and numbers are sums over the whole run of the trials, with the warm-up; times are in µs.
    """

    group: WorkloadGroup
    title: str
    unit: str
    tool: float | None
    wire: float | None
    trials: int
    disagreeing: int | None

    @property
    def is_time(self) -> bool:
        """Whether it is a percentile of times."""
        return self.unit == "µs"

    @property
    def difference(self) -> float | None:
        """Tool ÷ wire − 1; None if it is unknown, or the wire has 0."""
        return None if self.tool is None or not self.wire else self.tool / self.wire - 1

    @property
    def difference_us(self) -> float | None:
        """Tool − wire of a time, in µs; None if it is unknown, or for another figure."""
        return self.tool - self.wire if self.is_time and self.tool is not None and self.wire is not None else None

    @property
    def allowed_us(self) -> float:
        """The difference of a time up to which tool and wire agree, in µs."""
        return PERCENTILE_TOLERANCE * (self.wire or 0.0) + PERCENTILE_FLOOR_NS / 1000


def tap_of(flow: FlowResult, place: str) -> WireFigures | None:
    """Return the figures of the tap at CLIENT, or at GUEST: on the server's side; None without a useful capture."""
    places = (CLIENT,) if place == CLIENT else SERVERS
    return next((tap for tap in flow.wire if tap.place in places and not tap.error), None)


def is_ended_by_host(flow: FlowResult) -> bool:
    """Return whether the guest's host ended the connections of a flow, so that handshakes are those of the host."""
    return any(tap.place == HOST for tap in flow.wire)


def witnessed(groups: Iterable[WorkloadGroup]) -> Iterator[WitnessedFigure]:
    """Yield the figures that taps captured of each cell, over its valid and suspicious trials."""
    for group in groups:
        if trials := _with_taps(group):
            yield from _figures(group, trials)


def _with_taps(group: WorkloadGroup) -> list[TrialResult]:
    return [
        trial
        for trial in group.trials
        if trial.verdict is not Verdict.INVALID and any(flow.wire for flow in trial.victim.flows)
    ]


def disagreeing_figures(trial: TrialResult) -> set[str]:
    """Return the figures of a trial in which tool and wire disagree: `p99`, `bytes to the server`, `datagrams`."""
    details = (reason.detail for reason in trial.reasons if reason.kind is ReasonKind.TOOL_DISAGREES)
    return {match[1] or match[2] for detail in details if (match := _FIGURE.match(detail))}


@dataclass(frozen=True, slots=True)
class WorkloadDisagreement:
    """The trials of a workload in which tool and wire disagree in any figure: `disagreeing` of `trials` with taps.

    `largest` is the known figure that differs most, of those in which they disagree if possible; None without any.
    """

    workload: str
    disagreeing: int
    trials: int
    largest: WitnessedFigure | None


def disagreements(groups: Iterable[WorkloadGroup]) -> list[WorkloadDisagreement]:
    """Return the disagreement of tool and wire for each workload that has any."""
    found = []
    for name, same in grouped(groups, lambda group: group.workload.name).items():
        trials = [trial for group in same for trial in _with_taps(group)]
        differing = sum(any(reason.kind is ReasonKind.TOOL_DISAGREES for reason in trial.reasons) for trial in trials)
        if differing:
            found.append(WorkloadDisagreement(name, differing, len(trials), _largest(witnessed(same))))
    return found


def _largest(figures: Iterable[WitnessedFigure]) -> WitnessedFigure | None:
    """Return the figure that differs most: a percentile with disagreeing trials, or else bytes, or any percentile."""
    known = [figure for figure in figures if figure.difference is not None]
    differing = [figure for figure in known if figure.disagreeing]
    times = [figure for figure in differing if figure.is_time]
    shown = times or differing or [figure for figure in known if figure.is_time]
    return max(shown, key=lambda figure: abs(figure.difference_us or figure.difference or 0.0), default=None)


def _figures(group: WorkloadGroup, trials: Sequence[TrialResult]) -> Iterator[WitnessedFigure]:
    flows = flows_of(trials)
    by_trial = [disagreeing_figures(trial) for trial in trials]

    def figure(title: str, unit: str, tool: float | None, wire: float | None, compared: str = "") -> WitnessedFigure:
        disagreeing = sum(compared in of_trial for of_trial in by_trial) if compared and tool is not None else None
        return WitnessedFigure(group, title, unit, tool, wire, len(trials), disagreeing)

    def summed(
        title: str,
        unit: str,
        tool: Callable[[FlowResult], int | None],
        wire: Callable[[FlowResult], int | None],
        compared: str = "",
    ) -> Iterator[WitnessedFigure]:
        """Yield the sums over all flows that the taps counted; of a tool, those that it reports, too."""
        known = [(tool(flow), seen) for flow in flows if (seen := wire(flow)) is not None]
        if known:
            by_tool = [number for number, _ in known if number is not None]
            total = sum(by_tool) if len(by_tool) == len(known) else None
            yield figure(title, unit, total, sum(seen for _, seen in known), compared)

    # Of UDP a tool reports the datagrams that it sent, with those that the link lost.
    is_udp = group.has_datagrams or group.workload.option("protocol") == "udp"
    for end, place in (("server", CLIENT if is_udp else GUEST), ("client", CLIENT)):
        name = f"to_{end}_bytes"
        tool_bytes = _of_tool(f"run_{name}")
        of_bytes = summed(f"to the {end}", "bytes", tool_bytes, _at(place, name), f"bytes to the {end}")
        yield from (of_end for of_end in of_bytes if of_end.tool or of_end.wire)
    yield from summed("retransmissions", "", _of_tool("retransmissions"), _at(CLIENT, "retransmissions"))
    yield from summed("lost datagrams", "", _of_tool("lost_datagrams"), _lost_datagrams, "datagrams")
    for on_wire, title in _TITLES.items():
        seen = [flow for flow in flows if on_wire != "handshake" or not is_ended_by_host(flow)]
        wire = Latencies.merged(
            times for flow in seen if (tap := tap_of(flow, CLIENT)) for times in tap.latencies if times.kind == on_wire
        )
        kinds = (kind for kind, name in _TIMES.items() if name == on_wire)
        tool = next((times for kind in kinds if (times := latencies_of(flows, kind))), None)
        # Without keep-alive the wire's exchange lacks the handshake that the tool's service time has.
        is_compared = tool is None or tool.kind != "service" or group.workload.option("keep_alive") is not False
        for part in PERCENTILES if wire is not None else ():
            by_tool, by_wire = (_percentile_us(times, part) for times in (tool, wire))
            if by_wire is not None:
                name = percentile_name(part)
                yield figure(f"{title}, {name}", "µs", by_tool, by_wire, name if is_compared else "")
    parts = {tap.one_of for flow in flows if (tap := tap_of(flow, CLIENT))} - {1}
    for part in sorted(parts):
        yield from summed(f"followed connections, one of {part}", "", lambda _: None, _at(CLIENT, "connections"))
    yield from summed("frames dropped by the capture", "", lambda _: None, _dropped)


def _percentile_us(times: Latencies | None, part: int) -> float | None:
    time_ms = percentile_ms(times, part)
    return None if time_ms is None else 1000 * time_ms


def _of_tool(name: str) -> Callable[[FlowResult], int | None]:
    def read(flow: FlowResult) -> int | None:
        number: int | None = getattr(flow, name)
        return number

    return read


def _at(place: str, name: str) -> Callable[[FlowResult], int | None]:
    def read(flow: FlowResult) -> int | None:
        tap = tap_of(flow, place)
        number: int | None = None if tap is None else getattr(tap, name)
        return number

    return read


def _lost_datagrams(flow: FlowResult) -> int | None:
    """Return the datagrams that the tap beside the sender captured and that beside the receiver did not."""
    client, guest = tap_of(flow, CLIENT), tap_of(flow, GUEST)
    if flow.lost_datagrams is None or client is None or guest is None:
        return None
    upload = flow.to_server_bytes is not None
    sent = client.to_server_segments if upload else guest.to_client_segments
    arrived = guest.to_server_segments if upload else client.to_client_segments
    return None if sent is None or arrived is None else sent - arrived


def _dropped(flow: FlowResult) -> int | None:
    known = [tap.dropped_frames for tap in flow.wire if tap.dropped_frames is not None]
    return sum(known) if known else None
