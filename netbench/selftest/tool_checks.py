"""Checks of the tools of flows: netbench's client with a server of known behaviour, and each tool beside the wire."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netbench.hosts.base import Host
from netbench.hosts.remote_code import program_command
from netbench.model.flow_result import CLIENT, GUEST, FlowResult
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import SelftestCheck
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind, Verdict
from netbench.plan.schedule import CampaignPlan
from netbench.selftest import known_server
from netbench.selftest.trials import complaints
from netbench.statistics.flow_figures import latencies_of, percentile_ms
from netbench.statistics.flow_witnesses import disagreeing_figures
from netbench.testbed.flow_checks import make_tool
from netbench.testbed.testbed import Testbed
from netbench.tools.base import FlowEnds, Tool
from netbench.tools.http import Http, HttpOptions
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.base import ActiveGuest

SERVING = UutSpec.model_validate({"name": "serves", "kind": "raw", "forward": "route"})

_ATTEMPTS = 3
_PER_S, _DURATION_S = 100, 2.0
_REQUESTS = round(_PER_S * _DURATION_S)
_DELAY_S = 0.02
# A request takes so much longer than its server takes to answer, in the median; on the emulated CPU of a VM.
_OVERHEAD_S, _OVERHEAD_IN_VM_S = 0.0015, 0.02
_STALL_FROM_S, _STALL_S = 0.5, 0.5
_FAILING = 10  # one of so many requests
# Arrivals at the edges of the stall.
_MAY_DIFFER = 2


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A behaviour of the server, the true figure in words, and the measured one with whether it is right."""

    name: str
    behaviour: Mapping[str, Any]
    truth: str
    judge: Callable[[FlowResult, bool], tuple[str, bool]]  # the result, and whether the testbed has VMs


class _KnownTool(Http):
    """The HTTP client, with the server of known behaviour in place of nginx."""

    def __init__(self, behaviour: Mapping[str, Any]) -> None:
        super().__init__(HttpOptions())
        self.behaviour = behaviour

    def before_serving(self, ends: FlowEnds) -> None:
        return

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return program_command(ends.server, known_server, ends.bound, str(ends.port), json.dumps(self.behaviour))


def _delay(flow: FlowResult, in_vm: bool) -> tuple[str, bool]:
    median_ms = percentile_ms(latencies_of([flow], "response"), 50_000)
    if median_ms is None:
        return "no response times", False
    over_s = median_ms / 1e3 - _DELAY_S
    return f"{median_ms:.2f} ms", 0 <= over_s <= (_OVERHEAD_IN_VM_S if in_vm else _OVERHEAD_S)


def _stall(flow: FlowResult, in_vm: bool) -> tuple[str, bool]:
    times = latencies_of([flow], "response")
    long = sum(number for middle, number in times.steps if middle >= _STALL_S / 2 * 1e9) if times else 0
    return f"{long} of {flow.started} requests", abs(long - _STALL_S / 2 * _PER_S) <= _MAY_DIFFER


def _errors(flow: FlowResult, in_vm: bool) -> tuple[str, bool]:
    failed = _REQUESTS // _FAILING
    found = ", ".join(f"{number} {kind}" for kind, number in flow.errors.items()) or "none"
    is_right = flow.errors == {"status-500": failed} and flow.completed == _REQUESTS - failed
    return f"{found}, {flow.completed} completed", is_right


def known_cases() -> Sequence[KnownCase]:
    """Return the behaviours of the server, with the true figures."""
    stalled, failed = round(_STALL_S / 2 * _PER_S), _REQUESTS // _FAILING
    behaviour = {"stall_from_s": _STALL_FROM_S, "stall_s": _STALL_S}
    return [
        KnownCase("response time", {"delay_s": _DELAY_S}, f"{1e3 * _DELAY_S:g} ms by the server", _delay),
        KnownCase(
            f"stall of {_STALL_S:g} s, response times of {_STALL_S / 2:g} s or more",
            behaviour,
            f"{stalled} ± {_MAY_DIFFER} of {_REQUESTS} requests",
            _stall,
        ),
        KnownCase(
            "failing requests",
            {"every": _FAILING, "fault": "status"},
            f"{failed} status-500, {_REQUESTS - failed} completed",
            _errors,
        ),
    ]


# A modest load of each tool that is beside the wire, and how long it runs, in seconds.
_LOADS: Mapping[str, tuple[Mapping[str, object], str, float]] = {
    "iperf3": ({}, "20Mbit/s", 2.0),
    "iperf3 udp": ({"protocol": "udp", "message_size": 1400}, "5Mbit/s", 2.0),
    "sockperf": ({}, "1000/s", 5.0),
    "connect": ({}, "50/s", 2.0),
    "http": ({}, "100/s", 2.0),
}


def tool_profile() -> Profile:
    """Return the profile of the testbed of these checks."""
    return _profile("http", f"{_PER_S}/s", _DURATION_S)


def check_tools(testbed: Testbed, topology: Topology, captures: Path, active: ActiveGuest) -> Iterator[SelftestCheck]:
    """Check netbench's client against the known server, then each tool against the wire."""
    trials = _FlowTrials(testbed, topology, captures, active)
    for case in known_cases():
        common: dict[str, Any] = {"name": f"http client: {case.name}", "uut": SERVING.name, "truth": case.truth}
        result = trials.measure(tool_profile(), _KnownTool(case.behaviour))
        if result.verdict is Verdict.INVALID:
            yield SelftestCheck(**common, passed=False, detail=complaints(result))
            continue
        measured, is_right = case.judge(result.victim.flows[0], bool(topology.vms))
        yield SelftestCheck(**common, measured=measured, passed=is_right, detail=complaints(result))
    for name, (options, load, duration_s) in _LOADS.items():
        yield _beside_wire(trials, name, _profile({"kind": name.split()[0], **options}, load, duration_s))


def _beside_wire(trials: "_FlowTrials", name: str, profile: Profile) -> SelftestCheck:
    """Check that a tool and the wire agree; skipped without its programs."""
    tool = make_tool(profile.tool[0])
    common: dict[str, Any] = {"name": f"{name} beside the wire", "uut": SERVING.name}
    inside = trials.active.ready.inside
    assert inside is not None, "a bare Linux runs commands"
    for host, programs in ((inside, tool.server_programs), (trials.client, tool.client_programs)):
        if missing := [program for program in programs if not _has(host, program)]:
            return SelftestCheck(**common, passed=None, detail=f"skipped: {host} has no {', '.join(missing)}")
    result = trials.measure(profile, tool)
    if result.verdict is Verdict.INVALID:
        return SelftestCheck(**common, passed=False, detail=complaints(result))
    (flow,) = result.victim.flows
    by_tool, by_wire = _moved(flow)
    return SelftestCheck(
        **common,
        truth=f"{by_wire} by the taps",
        measured=f"{by_tool} by the tool",
        passed=not _disagrees(result),
        detail=complaints(result),
    )


def _moved(flow: FlowResult) -> tuple[str, str]:
    """Return the payload of the whole run by the tool, and by the tap of each receiver; of connections their number."""
    taps = {tap.place: tap for tap in flow.wire}
    client, guest = taps[CLIENT], taps[GUEST]
    pairs = [
        (flow.run_to_server_bytes, guest.to_server_bytes),
        (flow.run_to_client_bytes, client.to_client_bytes),
    ]
    known = [(ours, theirs) for ours, theirs in pairs if ours and theirs is not None]
    if not known:
        return f"{flow.completed:,} connections", f"{client.connections:,} connections"
    ours, theirs = (sum(numbers) for numbers in zip(*known, strict=True))
    return f"{ours:,} bytes", f"{theirs:,} bytes"


def _disagrees(result: TrialResult) -> bool:
    return ReasonKind.TOOL_DISAGREES in {reason.kind for reason in result.reasons}


def _has(host: Host, program: str) -> bool:
    return host.run(["sh", "-c", 'command -v "$0"', program]).exit_code == 0


@dataclass(frozen=True, slots=True)
class _FlowTrials:
    """The means to make trials with flows on the first stream of a testbed."""

    testbed: Testbed
    topology: Topology
    captures: Path
    active: ActiveGuest

    @property
    def client(self) -> Host:
        """The host of the client."""
        first = self.topology.own_streams[0].name
        host = self.testbed.setup({}).endpoints[first].source_host
        assert host is not None, "a testbed has the hosts of its sources"
        return host

    def measure(self, profile: Profile, tool: Tool) -> TrialResult:
        """Make one trial with a tool, again while it is invalid or its times disagree, and return the last result.

        A client that other programs delay sees a later response than its tap. Bytes do not depend on them.
        """
        plan = CampaignPlan(self.topology, profile, (SERVING.name,), profile.scenarios)
        workload, load = profile.tool[0], profile.loads[0]
        for attempt in range(1, _ATTEMPTS + 1):
            spec = plan.trial(SERVING.name, plan.scenarios[0], workload, load, attempt, index=0, sources=1)
            setup = replace(self.testbed.setup({VICTIM: self.active}, serves=True), make_tool=lambda _: tool)
            result = run_trial(setup, spec, Recording(self.captures), attempt)
            figures = disagreeing_figures(result)
            is_delayed = bool(figures) and not any(figure.startswith("bytes") for figure in figures)
            if result.verdict is not Verdict.INVALID and not is_delayed:
                break
        return result


def _profile(tool: object, load: str, duration_s: float) -> Profile:
    return Profile.model_validate(
        {"name": "selftest", "tool": tool, "loads": [load], "duration": duration_s, "warm_up": 0, "repetitions": 1}
    )
