"""The reasons against flows, and the CPUs of clients and taps."""

import pytest

from netbench.hosts.local import LocalHost
from netbench.model.flow_result import FlowResult, WireFigures
from netbench.model.scenario import VICTIM, Serve
from netbench.model.trial import GuestTask
from netbench.model.units import Load
from netbench.testbed.flow_checks import make_tool
from netbench.tools.base import FlowEnds
from netbench.trial.flows import GuestFlows, client_seed, judge_flows
from tests.unit.flows_factory import HTTP, flow, latencies, timed

HERE = LocalHost("local", "RUN")


def flows_of(
    *results: FlowResult, began_ns: tuple[int | None, ...] = (), load: str = "100/s", one_of: int = 1
) -> GuestFlows:
    """The flows of two seconds with these results; `began_ns` are the first packets beside their clients."""
    ends = [FlowEnds(result.stream, 1, HERE, HERE, "198.18.1.1", "/tmp") for result in results]
    serve = Serve(HTTP, Load.parse(load))
    task = GuestTask(VICTIM, serve, tuple(result.stream for result in results), None, 2.0)
    wire = {
        result.stream: [WireFigures("client", began_ns=began, one_of=one_of)]
        for result, began in zip(results, began_ns, strict=False)
    }
    by_stream = {result.stream: result for result in results}
    return GuestFlows(task, serve, make_tool(HTTP), ends, results=by_stream, wire=wire)


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, 12 * 10**8)), []),
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, 13 * 10**8)), [("sources-apart", "")]),
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, None)), []),
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, 13 * 10**8), one_of=8), []),
        (flows_of(flow("a", client_cpu_share=0.95)), [("tester-limited", "a")]),
        (flows_of(flow("a", client_cpu_share=0.85)), []),
        (flows_of(timed([2.0] * 100, client_late=latencies("late", [1.5] * 100))), [("tester-limited", "s1")]),
        (flows_of(timed([2.0] * 100, client_late=latencies("late", [0.9] * 100))), []),
        (flows_of(timed([0.2] * 100, client_late=latencies("late", [0.15] * 100))), []),
        (flows_of(timed([2.0] * 100, client_late=latencies("late", [1.5] * 100)), load="max"), []),
        (flows_of(flow("a", error="no output"), flow("b")), [("tool-failed", "a")]),
    ],
)
def test_reasons_against_flows(flows, expected):
    assert [(reason.kind.value, reason.stream) for reason in judge_flows(flows)] == expected


@pytest.mark.parametrize(
    ("flows", "span_ns"),
    [
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, 12 * 10**8)), (10**9, 32 * 10**8)),
        (flows_of(flow("a"), flow("b"), began_ns=(10**9, None)), (10**9, 3 * 10**9)),
        (flows_of(flow("a"), began_ns=(10**9,), one_of=8), None),
        (flows_of(flow("a")), None),
    ],
)
def test_the_time_of_flows_is_that_of_all_clients(flows, span_ns):
    assert flows.span_ns == span_ns


def test_clients_differ_in_their_random_times():
    clients = [
        (1, repetition, guest, stream) for repetition in (1, 2) for guest in ("a", "b") for stream in ("s1", "s2")
    ]
    seeds = [client_seed(*client) for client in clients]
    assert len({*seeds, client_seed(2, 1, "a", "s1")}) == len(seeds) + 1
    assert seeds == [client_seed(*client) for client in clients]
