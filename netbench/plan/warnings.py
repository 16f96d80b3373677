"""Warnings about the results that follow from a testbed and a profile before the first frame is sent. Pure."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from netbench.model.profile import KindSpec, Profile, SinkSpec
from netbench.model.scenario import Network
from netbench.model.selftest_record import SelftestRecord
from netbench.model.topology import Topology
from netbench.model.units import LoadKind
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.plan.schedule_factory import that_follow_load
from netbench.plan.selection import loads_above_line_rate, most_sources

_SHORT_S = 1.0
_EMULATED_S = 3.0
_FEW = 3
_ONE_FRAME = 1 - 1e-9  # rate × duration, both rounded


def selftest_warnings(selftest: SelftestRecord | None, topology: str, profile: Profile) -> list[CampaignWarning]:
    """Return the warnings from the self-test of the tester on this testbed; None: there was no self-test.

    `topology` is its file, or its name if it is a shipped one. Ceilings are those of sources of frames, and do not
    matter to flows.
    """
    issued = []
    command = f"netbench selftest {shlex.quote(topology)} --generator {_as_argument(profile.generator)}"
    if profile.sink != SinkSpec():
        command += f" --sink {_as_argument(profile.sink)}"
    if not profile.tool and (selftest is None or not selftest.ceilings):
        text = (
            "The tester's ceiling on this testbed is unknown, so loads above it are not detected. Measure it "
            f"with: {command}"
        )
        issued.append(CampaignWarning(WarningKind.CEILING_UNKNOWN, text))
    if selftest is not None and not selftest.passed:
        failed = ", ".join(check.name for check in selftest.checks if check.passed is False)
        text = f"The latest self-test on this testbed failed ({failed}): do not trust these numbers before it passes."
        issued.append(CampaignWarning(WarningKind.SELFTEST_FAILED, text))
    return issued


def ceiling_unknown_on(vm: str | None) -> CampaignWarning:
    """Return the warning for UUTs on this VM (None: on no VM) if the self-test covered only the testbed of others."""
    where = "on no VM" if vm is None else f"on VM {vm}"
    text = (
        f"The tester's ceiling for UUTs {where} is unknown, so loads above it are not detected. Measure them in a "
        f"topology whose namespaces are all {where}, after `netbench selftest` of it."
    )
    return CampaignWarning(WarningKind.CEILING_UNKNOWN, text)


def too_short_for(uut: str, *, is_emulated: bool, duration_s: float) -> CampaignWarning | None:
    """Return the warning that trials are too short for this UUT; None if they are not.

    An emulated CPU translates code while it runs, and its threads wait for the host's: throughput varies over seconds.
    """
    if not is_emulated or duration_s >= _EMULATED_S:
        return None
    text = (
        f"Trials of {duration_s:g} s are too short for UUT {uut}, whose CPU is emulated: its throughput changes over "
        "seconds, so another run may differ by more than the intervals. Use trials of at least "
        f"{_EMULATED_S:g} s (--set duration={_EMULATED_S:g}s)."
    )
    return CampaignWarning(WarningKind.SHORT_TRIALS, text)


def skipped_traffic(profile: Profile, unsupported: Mapping[str, Mapping[str, str]]) -> list[CampaignWarning]:
    """Return the warnings about packets or workloads that UUTs do not support; these are as in CampaignPlan."""
    return _unserved_workloads(unsupported, len(profile.tool)) if profile.tool else unsupported_packets(unsupported)


def unsupported_packets(unsupported: Mapping[str, Mapping[str, str]]) -> list[CampaignWarning]:
    """Return a warning for all packets that a UUT cannot forward for one reason; these are as in CampaignPlan."""
    return [
        CampaignWarning(WarningKind.PACKET_REFUSED, f"UUT {uut} is not measured with {_frames(refused)}: {reason}")
        for uut, reason, refused in _by_reason(unsupported)
    ]


def _unserved_workloads(unsupported: Mapping[str, Mapping[str, str]], workloads: int) -> list[CampaignWarning]:
    """Return a warning for all workloads that a UUT cannot serve for one reason; these are as in CampaignPlan.

    `workloads` is the number of all workloads of the profile.
    """
    texts = (
        f"UUT {uut} is skipped: {reason}"
        if len(refused) == workloads
        else f"UUT {uut} does not serve {', '.join(refused)}: {reason}"
        for uut, reason, refused in _by_reason(unsupported)
    )
    return [CampaignWarning(WarningKind.WORKLOAD_REFUSED, text) for text in texts]


def left_out(unsupported: Mapping[str, Mapping[str, str]], workloads: int = 0) -> list[str]:
    """Return a line for the terminal for each of the same warnings: `route × vlan, qinq: Dot1Q: …`.

    With all `workloads` of the profile, the line has the UUT alone: `bridge: …`.
    """
    return [
        f"{uut}: {reason}"
        if len(refused) == workloads
        else f"{uut} × {', '.join(name or 'plain' for name in refused)}: {reason}"
        for uut, reason, refused in _by_reason(unsupported)
    ]


def _by_reason(unsupported: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each UUT and reason with the names of packets, or sizes and packets, that it refuses for that reason."""
    for uut, reasons in unsupported.items():
        for reason in dict.fromkeys(reasons.values()):
            yield uut, reason, [refused for refused, why in reasons.items() if why == reason]


def _frames(refused: Sequence[str]) -> str:
    """Return refused frames as text, from names of packets, or sizes and packets: `the packets vlan, qinq`."""
    packets, sizes = ([name for name in refused if name and (" " in name) is has_size] for has_size in (False, True))
    texts = ["plain frames"] if "" in refused else []
    texts += [f"the packet{'s' * (len(packets) > 1)} {', '.join(packets)}"] if packets else []
    texts += [f"frames {', '.join(sizes)}"] if sizes else []
    return " and ".join(texts)


def _as_argument(spec: KindSpec) -> str:
    if not spec.options:
        return spec.kind
    return shlex.quote(json.dumps({"kind": spec.kind, **spec.options}))


def expected_warnings(topology: Topology, profile: Profile, cpus: int) -> list[CampaignWarning]:
    """Return the warnings for every result of this topology and profile on a host with `cpus` CPUs."""
    return [CampaignWarning(kind, text) for kind, text in _expected(topology, profile, cpus)]


def _expected(topology: Topology, profile: Profile, cpus: int) -> Iterator[tuple[WarningKind, str]]:
    of_neighbours = max(
        sum(
            len(neighbour.streams)
            for neighbour in topology.neighbours
            if isinstance(topology.activity(case, neighbour.name), Network)
        )
        for case in profile.scenarios
    )
    if own := [f"{stream.name} ({stream.packet.name})" for stream in topology.own_streams if stream.packet]:
        yield (
            WarningKind.STREAM_PACKETS,
            f"Streams with their own packet: {', '.join(own)}. They send it in every trial, also where results name "
            "another packet: throughput and costs of packets include them. Leave `packet` out of these streams to send "
            "the packets of the profile on all streams.",
        )
    streams = most_sources(topology, profile) + of_neighbours
    on_one_machine = not all(topology.is_port(stream.source) for stream in topology.streams)
    needed = 3 * streams if on_one_machine else 2 * streams
    if cpus < needed:
        roles = "Sources, UUT and sinks" if on_one_machine else "Sources and sinks"
        neighbours = f", {of_neighbours} of them of neighbours," if of_neighbours else ""
        cost = " The cost of a forwarding neighbour includes the CPU time of the neighbour's sources and sinks."
        yield (
            WarningKind.SHARED_CPUS,
            f"{roles} of {streams} stream{'s' * (streams > 1)}{neighbours} share {cpus} CPU{'s' * (cpus > 1)} of this "
            f"machine ({needed} would give each its own): maxima describe tester and UUT together, not the UUT alone."
            f"{cost if of_neighbours else ''} "
            "Use a machine with more CPUs, fewer streams, or a UUT on a separate machine.",
        )
    on_veth = [stream for stream in topology.streams if not topology.is_port(stream.source)]
    if any(topology.stream_link(stream).receive != "napi" for stream in on_veth):
        yield (
            WarningKind.VETH_OVERLOAD_IS_UNSENT,
            "Overload appears as unsent frames in saturated trials, hardly ever as loss: on veth pairs with "
            "`receive: inline` or `softirq`, the UUT forwards on the source's CPU and slows its source. Set "
            "`receive: napi` on the link to measure loss, as at a NIC.",
        )
    if on_one_machine and any(load.kind in (LoadKind.SHARE, LoadKind.L1_BIT_RATE) for load in profile.loads):
        yield (
            WarningKind.NOMINAL_LINE_RATE,
            "A veth pair has no line rate. The rate in the topology is nominal: shares of line rate refer to it, "
            "nothing enforces it. For loads that do not depend on it, use frames/s, Mbit/s, `50% of maximum` or `max`.",
        )
    above = loads_above_line_rate(topology, profile)
    if above:
        more = f" and {len(above) - 1} more" if len(above) > 1 else ""
        yield (
            WarningKind.ABOVE_LINE_RATE,
            f"Above the nominal line rate of the link: {above[0]}{more}. Nothing enforces this rate. Request lower "
            "loads, or raise `rate` of the link.",
        )
    for end, kind in that_follow_load(profile).items():
        yield (
            WarningKind.TESTER_FOLLOWS_LOAD,
            f"The {end} {kind} is not `steady`: it uses different kinds at low and high loads, and the search may "
            "mistake the difference for a limit of the UUT. Use one kind throughout, "
            f"--set '{end}={{kind: {kind}, steady: true}}', or name a kind.",
        )
    if profile.duration < _SHORT_S:
        yield (
            WarningKind.SHORT_TRIALS,
            f"Trials last {profile.duration:g} s: one scheduling hiccup weighs heavily. RFC 2544, section 24, requires "
            "60 s; use at least 10 s for numbers to be quoted (--set duration=10s).",
        )
    if profile.repetitions < _FEW:
        yield (
            WarningKind.FEW_REPETITIONS,
            f"{profile.repetitions} repetition{'s' * (profile.repetitions > 1)}: intervals are wide or unknown; "
            "for a publication use 9 (--set repetitions=9).",
        )


def refused_loads(topology: Topology, profile: Profile) -> str:
    """Return why a load is impossible; empty if none is.

    A trial is too short for a frame of a very small load, and a real cable cannot carry more than its line rate.
    """
    for stream in topology.own_streams:
        for load, size in product(profile.loads, profile.all_frame_sizes):
            fps = load.fps(size, topology.stream_link(stream).rate)
            if fps is not None and fps * profile.duration < _ONE_FRAME:
                return (
                    f"profile {profile.name}: loads: {load} at {size.in_bytes} is one frame every {1 / fps:,.6g} s: no "
                    f"frame is due within the duration ({profile.duration:g} s); raise the load or the duration"
                )
    cables = all(topology.is_port(stream.source) for stream in topology.streams)
    above = loads_above_line_rate(topology, profile) if cables else []
    return f"profile {profile.name}: loads: above line rate: {above[0]}" if above else ""
