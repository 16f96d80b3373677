"""Synthetic campaigns: small ones with numbers a test chooses, and one that looks like a real comparison."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from netbench.model.campaign import CampaignResults, Maximum
from netbench.model.counts import PointCount, StreamCounts
from netbench.model.distributions import Spread
from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.received import Received
from netbench.model.scenario import VICTIM, ActivityField, Network
from netbench.model.search import SearchResult, SearchState
from netbench.model.stored_counts import counts_of, stored
from netbench.model.traffic import Sent
from netbench.model.trial import GuestResult, GuestTask, TrialFrames, TrialResult
from netbench.model.units import Load, line_rate_fps
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from tests.unit.inputs import trial_spec
from tests.unit.points import count, loss

LINK_BPS = 1e9
Neighbour = tuple[GuestTask, GuestResult]


def _environment(governor: str | None, rmem_max: str) -> dict[str, object]:
    return {
        "kernel": "6.1.0-31-amd64",
        "cpu": {"model": "Intel Xeon L5420", "count": 8, "governor": governor},
        "clocksource": "tsc",
        "sysctls": {"net.core.rmem_max": rmem_max, "net.bridge.bridge-nf-call-iptables": "0"},
        "offloads": {"nb-s1": {"gro": "off", "tso": "off"}},
        "tools": {"tcpdump": "4.99.3"},
    }


MANIFEST: dict[str, object] = {
    "netbench": "0.1.0",
    "digests": {"topology": {}, "profile": {}},
    "git_revision": "0cf0e51",
    "command": ["netbench", "run", "netns-3", "schlosser2011-dedicated", "-o", "results/paper"],
    "seed": 1,
    "topology": "netns-3",
    "profile": "schlosser2011-dedicated",
    "started": "2025-03-04T09:15:00+00:00",
    "finished": "2025-03-04T10:02:41+00:00",
    "before": _environment("performance", "212992"),
    "after": _environment(None, "425984"),
}


def stream_counts(stream: str = "s1", *, sent: int = 1000, received: int | None = 1000, **changes: Any) -> StreamCounts:
    """One second at 1,000 intended frames, loss placed at the point `uut`; any field can be given, as in `changed`."""
    lost = None if received is None else sent - received
    counts = StreamCounts(
        stream=stream,
        intended_fps=1000.0,
        intended_frames=1000,
        sent=Sent(sent, 0, 1.0, 0, 999_000_000, 1, 0.0001),
        received=Received(
            received,
            duplicates=0,
            reordered=0,
            late=0,
            control=0,
            longest_loss_run=None if lost is None else min(lost, 3),
            loss_runs=None if lost is None else -(-lost // 3),
            first_ns=20_000,
            last_ns=999_020_000,
            no_delay="",
        ),
        foreign_frames=0,
        capture_dropped_frames=0,
        unexplained_frames=None if lost is None else 0,
        lost_at=(loss("uut", lost),) if lost else (),
    )
    return changed(counts, **changes)


def changed(counts: StreamCounts, **changes: Any) -> StreamCounts:
    """The counts with other values of fields, which are given under their stored names."""
    return counts_of(replace(stored(counts), **changes))


def spread(smallest_ns: int, median_ns: int, largest_ns: int) -> Spread:
    """Times that are mostly near the median."""
    return Spread(smallest_ns, median_ns + 0.5, median_ns, median_ns + 1, median_ns + 2, median_ns + 3, largest_ns)


def trial(
    *counts: StreamCounts,
    uut: str = "raw",
    scenario: str = "dedicated",
    frame_size: int | FrameSize = 64,
    load: str | Load = "1000fps",
    repetition: int = 1,
    index: int = 0,
    streams: tuple[str, ...] | None = None,
    reasons: tuple[Reason, ...] = (),
    counters: tuple[PointCount, ...] = (),
    cpu_s: Mapping[str, float] | None = None,
    machine_cpu_s: float | None = None,
    neighbours: tuple[Neighbour, ...] = (),
    boot: int = 0,
    steps_s: Mapping[str, float] | None = None,
) -> TrialResult:
    """A trial of the given streams; `streams` names the planned ones where not all were counted."""
    names = streams if streams is not None else tuple(counted.stream for counted in counts)
    spec = trial_spec(
        uut,
        scenario,
        names,
        frame_size,
        load,
        index=index,
        repetition=repetition,
        neighbours=tuple(task for task, _ in neighbours),
    )
    victim = GuestResult(VICTIM, counts, counters, dict(cpu_s or {}))
    return TrialResult(
        spec,
        1,
        1_741_079_700_000_000_000,
        (victim, *(measured for _, measured in neighbours)),
        reasons,
        {"arm": 0.5, "send": 1.0} if steps_s is None else dict(steps_s),
        machine_cpu_s,
        boot,
    )


def beside(result: TrialResult, *neighbours: Neighbour) -> TrialResult:
    """The trial with these neighbours instead of those it had."""
    spec = replace(result.spec, guests=(result.spec.victim, *(task for task, _ in neighbours)))
    return replace(result, spec=spec, guests=(result.victim, *(measured for _, measured in neighbours)))


def victim(result: TrialResult, **changes: Any) -> TrialResult:
    """The trial with other results of its victim."""
    return replace(result, guests=(replace(result.victim, **changes), *result.neighbours))


def neighbour(
    *counts: StreamCounts,
    name: str = "second",
    activity: object = None,
    frame_size: int | FrameSize = 64,
    counters: tuple[PointCount, ...] = (),
    cpu_s: Mapping[str, float] | None = None,
) -> Neighbour:
    """A neighbour that forwards the given streams, or is idle without any; `activity` as a profile has it."""
    does = activity or ({"network": "1000fps", "frame_size": frame_size} if counts else "idle")
    activity = TypeAdapter(ActivityField).validate_python(does)
    traffic = TrialFrames(activity.frame_size, Load.parse("1000fps")) if isinstance(activity, Network) else None
    task = GuestTask(name, activity, tuple(counted.stream for counted in counts), traffic, 1.0)
    return task, GuestResult(name, counts, counters, dict(cpu_s or {}))


def campaign(
    trials: Iterable[TrialResult] = (),
    *,
    planned: int | None = None,
    uuts: tuple[str, ...] = ("raw",),
    warnings: tuple[CampaignWarning, ...] = (),
    manifest: dict[str, object] | None = None,
    facts: Mapping[str, Mapping[str, str]] | None = None,
    maxima: tuple[Maximum, ...] = (),
) -> CampaignResults:
    """A campaign of these trials, complete unless more are planned."""
    kept = tuple(trials)
    count = len(kept) if planned is None else planned
    return CampaignResults(
        "netns-3",
        "schlosser2011-dedicated",
        count,
        uuts,
        kept,
        warnings,
        MANIFEST if manifest is None else manifest,
        facts or {},
        maxima,
        added_up=[(result, 1) for result in kept],
    )


def search_result(**changes: Any) -> SearchResult:
    """A finished search for the NDR of `raw`, with other values in the given fields."""
    size = parse_frame_size(changes.pop("frame_size", 64))
    found = SearchResult("raw", "dedicated", ("s1",), size, 1, "mlrsearch", "NDR", 0.0, SearchState.FOUND, 0.005)
    return replace(found, **{"lower": 99_600.0, "upper": 100_000.0, **changes})


# How many of `offered` frames/s a made-up UUT forwards at a frame size.
FORWARDING: dict[str, Callable[[float, int], float]] = {
    "raw": lambda offered, size: min(offered, 1_300_000),
    "kvm": lambda offered, size: min(offered, 95_000),
    "openvz": lambda offered, size: offered if offered < 420_000 else max(60_000, 1_000_000 - 1.4 * offered),
    "xen": lambda offered, size: min(offered, 60_000 + 20 * size),
}
GUESTS: dict[str, Callable[[float, int], float]] = {
    "virtio": lambda offered, size: min(offered, 14_000),
    "e1000": lambda offered, size: min(offered, 6_000),
    "vmxnet3": lambda offered, size: min(offered, 9_000),
}
PAPER_LOADS = (*(f"{mbps}Mbit/s" for mbps in (10, 100, 200, 400, 600, 800, 900)), "max")


def comparison(
    *,
    uuts: tuple[str, ...] = tuple(FORWARDING),
    sizes: tuple[int, ...] = (64, 500, 1000, 1500),
    loads: tuple[str, ...] = PAPER_LOADS,
    sources: tuple[int, ...] = (1, 2, 3),
    repetitions: int = 3,
    seed: int = 1,
) -> CampaignResults:
    """A campaign like the paper's with plausible results, a few failed trials included."""
    noise = random.Random(seed)
    trials: list[TrialResult] = []
    for uut in uuts:
        for many in sources:
            for size in sizes:
                for load in loads:
                    for repetition in range(1, repetitions + 1):
                        trials.append(_made_up(noise, uut, many, size, load, repetition, len(trials)))
    warnings = (
        CampaignWarning(
            WarningKind.SHARED_CPUS,
            "Generator, UUT and sink share 2 CPUs: throughput is lower than the UUT alone could reach.",
        ),
        CampaignWarning(
            WarningKind.VETH_OVERLOAD_IS_UNSENT, "On veth an overload shows as unsent frames, not as loss."
        ),
    )
    return campaign(trials, planned=len(trials) + 4, uuts=uuts, warnings=warnings)


def guests() -> CampaignResults:
    """A bare kernel beside three emulated guests; the last one once failed to start."""
    results = comparison(
        uuts=("raw", *GUESTS),
        sizes=(64, 512, 1518),
        loads=("2000fps", "8000fps", "16000fps", "32000fps"),
        sources=(1,),
    )
    gone = (Reason(ReasonKind.UUT_FAILED, "", "the guest did not come up within 60 s"),)
    trials = [result if result.spec.uut == "raw" else _of_guest(result) for result in results.trials]
    trials[-1] = replace(trials[-1], guests=(), reasons=gone, steps_s={})
    facts = {
        uut: {
            "virtualisation": "full",
            "accelerator": "tcg",
            "emulated": "KVM: a guest did not come up within 20 s",
            "qemu": "7.2.18 (Debian 1:7.2+dfsg-7+deb12u16)",
            "nic": nic,
            "nic_kind": "emulated" if nic == "e1000" else "paravirtual",
            "attachment": "tap",
            "image": "micro 3f2a90c1b4de",
            "guest_kernel": "6.1.0-56-amd64",
        }
        for uut, nic in zip(GUESTS, ("virtio-net-pci", "e1000", "vmxnet3"), strict=True)
    }
    facts["virtio"]["vhost"] = "off: no /dev/vhost-net"
    added_up = [(result, 1) for result in trials]
    return replace(
        results,
        trials=tuple(trials),
        added_up=added_up,
        facts={"raw": {"virtualisation": "none", "kernel": "6.1.0-31-amd64"}, **facts},
    )


def _of_guest(one: TrialResult) -> TrialResult:
    """The trial with the values that only a guest has."""
    streams: list[StreamCounts] = []
    counters: tuple[PointCount, ...] = ()
    for counts in one.streams:
        sent, lost = counts.sent.frames, counts.lost_frames or 0
        at_tap = lost * 9 // 10
        counters = (
            count("guest softnet", "dropped", "repeated", 0),
            count("guest IP layer", "ForwDatagrams", "passed", sent - at_tap),
            count("guest IP layer", "InDiscards", "dropped", 0),
        )
        own = (
            count("ingress NIC", "rx", "passed", sent),
            count("ingress tap", "tx", "passed", sent - at_tap),
            count("ingress tap", "tx_dropped", "dropped", at_tap),
            count("guest ingress NIC", "rx", "passed", sent - at_tap),
            count("guest ingress NIC", "rx_dropped", "dropped", 0),
            count("guest egress queue", "dropped", "dropped", lost - at_tap),
            count("guest egress NIC", "tx", "passed", sent - lost),
            count("egress tap", "rx", "passed", sent - lost),
        )
        places = (loss("ingress tap (tx_dropped)", at_tap), loss("guest egress queue (dropped)", lost - at_tap))
        streams.append(
            changed(
                counts,
                lost_at=tuple(place for place in places if place.frames),
                counters=(*own, *counters),  # the only stream of a trial has all of them
                delay=spread(80_000, 200_000 + lost, 9_000_000),
                ipdv=spread(0, 1_000 + lost, 2_000_000),
            )
        )
    used = {"guest": 0.2 + 0.7 * (one.spec.load.value / 32_000), "host": 1.1}
    made = victim(one, streams=tuple(streams), counters=counters, cpu_s=used)
    return replace(made, steps_s={"send": 1.0, "drain": 0.25})


def _made_up(
    noise: random.Random, uut: str, count: int, size: int, load: str, repetition: int, index: int
) -> TrialResult:
    line_rate = line_rate_fps(LINK_BPS, size)
    intended = Load.parse(load).fps(FrameSize.of(size), LINK_BPS)
    names = tuple(f"s{number}" for number in range(1, count + 1))
    streams = []
    for name in names:
        sent = round(min(intended or line_rate, line_rate, 1_050_000) * noise.uniform(0.9999, 1))
        share = {**FORWARDING, **GUESTS}[uut](sent * count, size) / (sent * count)
        share = min(1.0, share * noise.uniform(0.93, 1.07)) if share < 1 else 1.0
        received = round(sent * share)
        lost = sent - received
        at_tap = lost * 9 // 10
        streams.append(
            stream_counts(
                name,
                sent=sent,
                received=received,
                intended_fps=intended,
                intended_frames=None if intended is None else round(intended),
                lost_at=(loss("ingress tap", at_tap), loss("guest IP layer", lost - at_tap)) if lost else (),
            )
        )
    reasons = _mishap(noise, streams)
    return trial(
        *streams,
        uut=uut,
        frame_size=size,
        load=load,
        repetition=repetition,
        index=index,
        streams=names,
        reasons=reasons,
    )


def _mishap(noise: random.Random, streams: list[StreamCounts]) -> tuple[Reason, ...]:
    """Return the reasons of an occasional fault, and change the counts to match."""
    first = streams[0]
    match noise.randrange(60):
        case 0 if first.received.frames is not None:
            dropped = min(first.received.frames, 1000 + noise.randrange(5000))
            streams[0] = changed(first, received_frames=first.received.frames - dropped, capture_dropped_frames=dropped)
            return (Reason(ReasonKind.CAPTURE_DROPPED, first.stream, f"tcpdump dropped {dropped:,} frames"),)
        case 1:
            streams[0] = replace(first, foreign_frames=12)
            return (Reason(ReasonKind.FOREIGN_FRAMES, first.stream, "12 frames of others at the sink"),)
        case 2 if noise.random() < 0.5:
            streams.clear()
            return (Reason(ReasonKind.UUT_FAILED, "", "the guest stopped answering 0.4 s after the start"),)
    return ()
