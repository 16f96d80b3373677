"""The figures of tools beside those of the wire: what taps beside client and guest captured of the same flows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from netbench.model.flow_result import FlowResult, Latencies, WireFigures
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind, Verdict
from netbench.statistics.flow_figures import flows_of, latencies_of, percentile_ms, percentile_name
from netbench.statistics.workload_groups import WorkloadGroup

CLIENT, GUEST = "client", "guest"  # the places of taps
_COMPARED = (50_000, 99_000)  # percentiles, of 100,000
# The times of a tool, and the times on the wire that they are compared with.
_TIMES = {"service": "exchange", "rtt": "exchange", "connect": "handshake"}


@dataclass(frozen=True, slots=True)
class WitnessedFigure:
    """A figure of a cell by the tool and on the wire, over `trials` of it; None where either does not have it.

    In `disagreeing` ones of these trials the two disagree in some figure.

    Bytes and numbers are sums over the whole run of the trials, with the warm-up; times are in ms.
    """

    group: WorkloadGroup
    title: str
    unit: str
    tool: float | None
    wire: float | None
    trials: int
    disagreeing: int

    @property
    def difference(self) -> float | None:
        """Tool ÷ wire − 1; None if it is unknown, or the wire has 0."""
        return None if self.tool is None or not self.wire else self.tool / self.wire - 1


def tap_of(flow: FlowResult, place: str) -> WireFigures | None:
    """Return the figures of the tap beside the client or the guest; None without a useful capture."""
    return next((tap for tap in flow.wire if tap.place == place and not tap.error), None)


def witnessed(groups: Iterable[WorkloadGroup]) -> Iterator[WitnessedFigure]:
    """Yield the figures that taps captured of each cell, over its valid and suspicious trials.

    Trials in which tool and wire disagree are suspicious: no mean has them, and this table shows the difference.
    """
    for group in groups:
        trials = [
            trial
            for trial in group.trials
            if trial.verdict is not Verdict.INVALID and any(flow.wire for flow in trial.victim.flows)
        ]
        if trials:
            yield from _figures(group, trials)


def _figures(group: WorkloadGroup, trials: Sequence[TrialResult]) -> Iterator[WitnessedFigure]:
    flows = flows_of(trials)
    disagreeing = sum(any(reason.kind is ReasonKind.TOOL_DISAGREES for reason in trial.reasons) for trial in trials)
    numbers = len(trials), disagreeing

    def summed(
        title: str, unit: str, tool: Callable[[FlowResult], int | None], wire: Callable[[FlowResult], int | None]
    ) -> Iterator[WitnessedFigure]:
        """Yield the sums over all flows that the taps counted; of a tool, those that it reports, too."""
        known = [(tool(flow), seen) for flow in flows if (seen := wire(flow)) is not None]
        if known:
            by_tool = [number for number, _ in known if number is not None]
            total = sum(by_tool) if len(by_tool) == len(known) else None
            yield WitnessedFigure(group, title, unit, total, sum(seen for _, seen in known), *numbers)

    yield from summed("to the server", "bytes", lambda flow: flow.run_to_server_bytes, _at(GUEST, "to_server_bytes"))
    yield from summed("to the client", "bytes", lambda flow: flow.run_to_client_bytes, _at(CLIENT, "to_client_bytes"))
    yield from summed("retransmissions", "", lambda flow: flow.retransmissions, _at(CLIENT, "retransmissions"))
    yield from summed("lost datagrams", "", lambda flow: flow.lost_datagrams, _lost_datagrams)
    for on_wire in dict.fromkeys(_TIMES.values()):
        wire = Latencies.merged(
            times for flow in flows if (tap := tap_of(flow, CLIENT)) for times in tap.latencies if times.kind == on_wire
        )
        kinds = (kind for kind, name in _TIMES.items() if name == on_wire)
        tool = next((times for kind in kinds if (times := latencies_of(flows, kind))), None)
        title = {"exchange": "request to response", "handshake": "handshake"}[on_wire]
        for part in _COMPARED if wire is not None else ():
            by_tool, by_wire = (percentile_ms(times, part) for times in (tool, wire))
            if by_wire is not None:
                yield WitnessedFigure(group, f"{title}, {percentile_name(part)}", "ms", by_tool, by_wire, *numbers)
    yield from summed("frames dropped by the capture", "", lambda _: None, _dropped)


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
