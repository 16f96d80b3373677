"""Figures of a tool against those of the taps: what disagrees, and what does not."""

from dataclasses import replace

import pytest

from netbench.model.flow_result import CLIENT, GUEST, HOST, FlowResult, Latencies, WireFigures
from netbench.model.scenario import VICTIM, Serve
from netbench.model.trial import GuestTask
from netbench.model.units import Load
from netbench.model.verdict import ReasonKind
from netbench.model.workload import workload_of
from netbench.tools.base import WireView
from netbench.tools.http import Http, HttpOptions
from netbench.tools.sockperf import Sockperf, SockperfOptions
from netbench.trial.flows import GuestFlows, judge_flows
from netbench.trial.wire_taps import differences

MB = 10**6
TCP, UDP = WireView(), WireView("udp")
UPLOAD = FlowResult("s1", "w", to_server_bytes=10 * MB, run_to_server_bytes=10 * MB)
REPLIES = FlowResult("s1", "w", run_to_server_bytes=201 * 64, run_to_client_bytes=200 * 64)
MESSAGES = Sockperf(SockperfOptions(message_size=64)).wire_view(Load.parse("50/s"))
DATAGRAMS = replace(UPLOAD, started=10_000, completed=9900, lost_datagrams=100)


def tap(place, **figures):
    return WireFigures(
        place, **{"to_server_bytes": 10 * MB, "to_server_segments": 10_000, "dropped_frames": 0} | figures
    )


def latencies(kind, *ms):
    times = sorted(round(time * 1e6) for time in ms)
    return Latencies(kind, tuple((time, 1) for time in times), sum(times), times[0], times[-1])


def answered(replies):
    figures = {"to_server_bytes": 201 * 64, "to_client_bytes": replies * 64}
    return tap(CLIENT, **figures), tap(GUEST, **figures)


LOST_ON_LINK = (tap(CLIENT), tap(GUEST, to_server_bytes=9_900_000, to_server_segments=9900))
CASES = {
    "bytes agree": (UPLOAD, (tap(CLIENT), tap(GUEST)), TCP, ()),
    "within 0.1 %": (UPLOAD, (tap(CLIENT), tap(GUEST, to_server_bytes=9_995_000)), TCP, ()),
    "beyond it": (UPLOAD, (tap(CLIENT), tap(GUEST, to_server_bytes=9_980_000)), TCP, ("bytes to the server",)),
    "in socket buffers": (
        UPLOAD,
        (tap(CLIENT), tap(GUEST, to_server_bytes=8 * MB)),
        WireView(buffered_bytes=3 * MB),
        (),
    ),
    "more than buffers have": (
        UPLOAD,
        (tap(CLIENT), tap(GUEST, to_server_bytes=6 * MB)),
        WireView(buffered_bytes=3 * MB),
        ("bytes to the server",),
    ),
    "a last message on its way": (REPLIES, answered(201), MESSAGES, ()),
    "more messages than that": (REPLIES, answered(202), MESSAGES, ("bytes to the client",)),
    "a useless tap": (UPLOAD, (tap(CLIENT), WireFigures(GUEST, error="broken")), TCP, ()),
    "datagrams lost on the link, as the tool reports": (DATAGRAMS, LOST_ON_LINK, UDP, ()),
    "datagrams lost behind the link": (DATAGRAMS, (tap(CLIENT), tap(GUEST)), UDP, ("behind the guest's link",)),
    "datagrams lost at a full socket": (
        replace(DATAGRAMS, socket_drops=90),
        (tap(CLIENT), tap(GUEST)),
        UDP,
        ("90 were dropped at the full socket of the tool's server, by its kernel's counter, and 10 before it",),
    ),
    "datagrams of the server lost before its tap": (
        replace(DATAGRAMS, to_server_bytes=None, to_client_bytes=9_900_000),
        (tap(CLIENT, to_client_segments=9_900), tap(GUEST, to_client_segments=9_900)),
        UDP,
        ("0 of 9,900 between the taps: 100 of the others were lost between the tool's server and the tap beside it",),
    ),
    "bytes that differ at the host": (
        UPLOAD,
        (tap(CLIENT), tap(HOST, to_server_bytes=9_980_000)),
        TCP,
        ("bytes to the server",),
    ),
    "datagrams lost behind the host's NIC": (
        DATAGRAMS,
        (tap(CLIENT), tap(HOST)),
        UDP,
        ("in the user networking of the host, or in the socket of the tool's server",),
    ),
    "lost on the link, and the tool reports none": (
        replace(DATAGRAMS, lost_datagrams=0),
        LOST_ON_LINK,
        UDP,
        ("0 of 10,000 datagrams lost by the tool, 100 of 10,000 between the taps",),
    ),
    "lost by a capture": (
        DATAGRAMS,
        (tap(CLIENT), tap(GUEST, to_server_segments=9000, dropped_frames=1000)),
        UDP,
        (),
    ),
    "a slow client": (
        replace(UPLOAD, latencies=(latencies("service", *[1.2] * 30),)),
        (tap(CLIENT, latencies=(latencies("exchange", *[1.0] * 30),)), tap(GUEST)),
        WireView(exchanges=True, compared="service"),
        ("p50: 1,200 µs by the tool, 1,000 µs on the wire",),
    ),
    "a request more among slow ones": (
        replace(UPLOAD, latencies=(latencies("service", *[0.1] * 1980, *range(2, 22)),)),
        (tap(CLIENT, latencies=(latencies("exchange", *[0.1] * 1979, *range(2, 22)),)), tap(GUEST)),
        WireView(exchanges=True, compared="service"),
        (),
    ),
    "many requests more among slow ones": (
        replace(UPLOAD, latencies=(latencies("service", *[0.1] * 1980, *range(2, 22)),)),
        (tap(CLIENT, latencies=(latencies("exchange", *[0.1] * 1970, *range(2, 32)),)), tap(GUEST)),
        WireView(exchanges=True, compared="service"),
        ("p99: 100 µs by the tool, 11,000 µs on the wire",),
    ),
    "times within 1 % and 50 µs": (
        replace(UPLOAD, latencies=(latencies("service", *[1.055] * 30),)),
        (tap(CLIENT, latencies=(latencies("exchange", *[1.0] * 30),)), tap(GUEST)),
        WireView(exchanges=True, compared="service"),
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_differences(name):
    result, taps, view, words = CASES[name]
    found = list(differences(result, taps, view))
    assert len(found) == len(words), found
    for text, part in zip(found, words, strict=True):
        assert part in text


def served(result, load="100/s"):
    serve = Serve(workload_of("http"), Load.parse(load))
    flows = GuestFlows(GuestTask(VICTIM, serve, ("s1",)), serve, Http(HttpOptions()), ())
    flows.results["s1"] = result
    return replace_ends(flows)


def replace_ends(flows):
    """The flows with their results alone: judging needs no hosts."""

    class Measured(GuestFlows):
        @property
        def measured(self):
            return tuple(self.results.values())

    return Measured(flows.task, flows.serve, flows.tool, (), results=flows.results)


NOTHING = Latencies("response", (), 0, 0, 0)
JUDGED = {
    "all requests failed": (
        FlowResult("s1", "w", errors={"refused": 9}, latencies=(NOTHING,), client_late=NOTHING),
        "100/s",
        set(),
    ),
    "a client on time": (
        FlowResult(
            "s1", "w", latencies=(latencies("response", *[1.0] * 9),), client_late=latencies("late", *[0.1] * 9)
        ),
        "100/s",
        set(),
    ),
    "a late client": (
        FlowResult(
            "s1", "w", latencies=(latencies("response", *[1.0] * 9),), client_late=latencies("late", *[0.9] * 9)
        ),
        "100/s",
        {ReasonKind.TESTER_LIMITED},
    ),
    "a late client of a closed loop, which offers less": (
        FlowResult(
            "s1", "w", latencies=(latencies("response", *[1.0] * 9),), client_late=latencies("late", *[0.9] * 9)
        ),
        "max",
        set(),
    ),
    "a busy client": (FlowResult("s1", "w", client_cpu_share=0.95), "max", {ReasonKind.TESTER_LIMITED}),
    "no result": (FlowResult("s1", "w", error="it hung"), "max", {ReasonKind.TOOL_FAILED}),
    "a useless tap": (
        FlowResult("s1", "w", wire=(WireFigures(CLIENT, error="no tcpdump"),)),
        "max",
        {ReasonKind.CAPTURE_FAILED},
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_reasons(name):
    result, load, kinds = JUDGED[name]
    assert {reason.kind for reason in judge_flows(served(result, load))} == kinds
