"""A made-up campaign in the manner of the paper's second half: all of its scenarios, a neighbour in most of them."""

import random
from collections.abc import Sequence
from dataclasses import replace

from netbench.model.campaign import CampaignResults, Maximum
from netbench.model.counts import StreamCounts
from netbench.model.frame_size import FrameSize
from netbench.model.profile import Profile
from netbench.model.scenario import Scenario, Stress
from netbench.model.trial import TrialResult
from netbench.model.units import Load, line_rate_fps
from netbench.model.verdict import Reason, ReasonKind
from tests.unit.points import loss
from tests.unit.results_factory import LINK_BPS, MANIFEST, Neighbour, campaign, neighbour, stream_counts, trial

SECOND = "second"
NEIGHBOUR_STREAM = "s2"

# The most frames/s that each UUT forwards, by frame size: about the values in Figures 3 and 4 of the paper.
CAPACITY = {
    "raw": lambda size: 430_000,
    "kvm": lambda size: 113_000,
    "openvz": lambda size: 200_000,
    "xen": lambda size: 60_000 + 50 * size,
}
# The share of it that remains beside a neighbour with this activity; `network`: one that forwards at its maximum.
BESIDE = {
    "raw": {"cpu-light": 1.0, "cpu-heavy": 1.0, "network": 0.65},
    "kvm": {"cpu-light": 1.04, "cpu-heavy": 0.97, "network": 0.55},
    "openvz": {"cpu-light": 0.99, "cpu-heavy": 0.82, "network": 0.3},
    "xen": {"cpu-light": 1.07, "cpu-heavy": 0.9, "network": 0.45},
}
SCENARIOS = (
    "dedicated",
    "shared-idle",
    "cpu-light",
    "cpu-heavy",
    {"network": ["25%", "50%", "95%"]},
)
STREAM_RATE = 50_000  # frames/s offered to a neighbour of `small_campaign`, at 64 bytes 33.6 Mbit/s
LOADS = ("100Mbit/s", "400Mbit/s", "800Mbit/s", "max")


def paper_campaign(
    *,
    uuts: Sequence[str] = tuple(CAPACITY),
    sizes: Sequence[int] = (64, 500, 1000, 1500),
    scenarios: Sequence[object] = SCENARIOS,
    loads: Sequence[str] = LOADS,
    repetitions: int = 3,
    emulated: Sequence[str] = (),
    mishaps: bool = True,
    seed: int = 2011,
) -> CampaignResults:
    """Return all scenarios with one source; with `mishaps`, a few trials failed on either side."""
    noise = random.Random(seed)
    profile = Profile.model_validate({"name": "paper", "frame_sizes": sizes, "loads": loads, "scenarios": scenarios})
    trials: list[TrialResult] = []
    for uut in uuts:
        for scenario in profile.scenarios:
            for size in sizes:
                for load in loads:
                    for repetition in range(1, repetitions + 1):
                        one = _trial(noise, uut, scenario, size, load, repetition, len(trials))
                        trials.append(_mishap(noise, one) if mishaps else one)
    facts = {uut: {"accelerator": "tcg", "emulated": "KVM: there is no /dev/kvm"} for uut in emulated}
    manifest = {**MANIFEST, "scenarios": [scenario.name for scenario in profile.scenarios]}
    maxima = tuple(Maximum(uut, FrameSize.of(64), CAPACITY[uut](64), "max", repetitions) for uut in uuts)
    return replace(campaign(trials, uuts=tuple(uuts), manifest=manifest, facts=facts), maxima=maxima)


def _trial(
    noise: random.Random, uut: str, scenario: Scenario, size: int, load: str, repetition: int, index: int
) -> TrialResult:
    neighbours = _neighbours(noise, uut, scenario, size)
    intended = Load.parse(load).fps(FrameSize.of(size), LINK_BPS)
    offered = min(intended or LINK_BPS, line_rate_fps(LINK_BPS, size))
    capacity = CAPACITY[uut](size) * _left(uut, scenario) * noise.uniform(0.97, 1.03)
    counts = _counts(noise, "s1", intended, offered, capacity)
    own = 0.0 if uut == "raw" else min(1.0, offered / capacity) * noise.uniform(0.9, 1.0)
    machine = 0.3 + 1.2 * own + sum(guest.cpu_s.get("host", 0.4) for _, guest in neighbours)
    cpu = {} if uut == "raw" else {"guest": own, "host": 1.2 * own}
    return trial(
        counts,
        uut=uut,
        scenario=scenario.name,
        frame_size=size,
        load=load,
        repetition=repetition,
        index=index,
        cpu_s=cpu,
        machine_cpu_s=machine,
        neighbours=neighbours,
        steps_s={"arm": 0.5, "send": 1.0, "drain": 0.1},
        boot=1,
    )


def _left(uut: str, scenario: Scenario) -> float:
    """The share of its capacity that the neighbour leaves to the victim."""
    if not scenario.name.startswith("network-"):
        return BESIDE[uut].get(scenario.name, 1.0)
    share = getattr(scenario.activity, "share", None) or 0.0
    return 1 - (1 - BESIDE[uut]["network"]) * share / 100


def _neighbours(noise: random.Random, uut: str, scenario: Scenario, size: int) -> tuple[Neighbour, ...]:
    activity = scenario.of(SECOND)
    cpu = {} if uut == "raw" else {"guest": 0.02, "host": 0.05}
    match str(activity).split()[0]:
        case "off":
            return ()
        case "stress-ng":
            cpu = {"guest": 0.99, "host": 1.01, "load": 0.98}
        case "forwards":
            return (_forwarding(noise, uut, scenario, size),)
    return (neighbour(name=SECOND, activity=activity, cpu_s=cpu),)


def _forwarding(noise: random.Random, uut: str, scenario: Scenario, size: int) -> Neighbour:
    activity = scenario.of(SECOND)
    share = (getattr(activity, "share", None) or 0.0) / 100
    intended = share * CAPACITY[uut](64)
    capacity = CAPACITY[uut](64) * (0.7 + size / 6000) * noise.uniform(0.97, 1.03)
    counts = _counts(noise, NEIGHBOUR_STREAM, intended, intended, capacity)
    cpu = {} if uut == "raw" else {"guest": 0.9 * share, "host": 1.1 * share}
    return neighbour(counts, name=SECOND, activity=activity, cpu_s=cpu)


def _counts(noise: random.Random, stream: str, intended: float | None, offered: float, capacity: float) -> StreamCounts:
    sent = round(offered * noise.uniform(0.9995, 1.0))
    received = min(sent, round(capacity))
    return stream_counts(
        stream,
        sent=sent,
        received=received,
        intended_fps=intended,
        intended_frames=None if intended is None else round(intended),
        lost_at=(loss("ingress tap", sent - received),) if sent > received else (),
    )


def _mishap(noise: random.Random, one: TrialResult) -> TrialResult:
    """Return the trial, occasionally with a failure of the neighbour."""
    if not one.neighbours:
        return one
    (second,) = one.neighbours
    match noise.randrange(150):
        case 0:
            died = Reason(ReasonKind.NEIGHBOUR_FAILED, "", "second: the guest went away 0.3 s after the start")
            return replace(one, reasons=(died,), guests=(one.victim, replace(second, streams=(), cpu_s={})))
        case 1 if second.streams:
            foreign = Reason(ReasonKind.FOREIGN_FRAMES, NEIGHBOUR_STREAM, "12 frames of others at the sink")
            return replace(one, reasons=(foreign,))
        case 2 if second.streams:
            unknown = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", "no valid trial in shared-idle shows the maximum")
            return replace(one, guests=(), reasons=(unknown,), machine_cpu_s=None, steps_s={})
    return one


def forwarding(received: int, share: int = 50, name: str = "second") -> Neighbour:
    """A neighbour that forwards at a share of the maximum."""
    counts = stream_counts(
        "n1", sent=STREAM_RATE, received=received, intended_fps=float(STREAM_RATE), intended_frames=STREAM_RATE
    )
    return neighbour(counts, name=name, activity={"network": f"{share}%"})


def computing(cpu: int, vm: int = 0) -> Neighbour:
    """A neighbour that computes."""
    return neighbour(activity=Stress(cpu, vm), cpu_s={"guest": 1.0, "host": 1.5, "load": 0.5})


def twice(scenario: str, received: tuple[int, int], *neighbours: Neighbour, uut: str = "kvm") -> list[TrialResult]:
    """Return two repetitions of 1,000 offered frames; each has its own neighbour where two are given."""
    return [
        trial(
            stream_counts(received=arrived),
            uut=uut,
            scenario=scenario,
            repetition=number,
            cpu_s={"guest": 0.5, "host": 0.6},
            machine_cpu_s=2.0,
            neighbours=(neighbours[(number - 1) % len(neighbours)],) if neighbours else (),
        )
        for number, arrived in enumerate(received, start=1)
    ]


def small_campaign() -> CampaignResults:
    """Return a UUT beside each kind of neighbour, with simple numbers, and a UUT without any."""
    trials = [
        *twice("dedicated", (900, 902)),
        *twice("cpu-light", (900, 902), computing(1)),
        *twice("cpu-heavy", (700, 702), computing(8, 4)),
        *twice("network-50", (450, 452), forwarding(40_000), forwarding(42_000)),
        *twice("dedicated", (1000, 1000), uut="raw"),
    ]
    maxima = (Maximum("kvm", FrameSize.of(64), 100_000.0, "200Mbit/s", 2),)
    return replace(campaign(trials, uuts=("raw", "kvm")), maxima=maxima)
