"""Campaigns of flows with times and rates that a test chooses."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netbench.model.campaign import CampaignResults
from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import DEDICATED, SHARED_IDLE, VICTIM, Activity, Idle, Network, Serve
from netbench.model.trial import GuestResult, GuestTask, TrialFrames, TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Reason
from netbench.model.workload import Workload, workload_of
from tests.unit.results_factory import campaign

HTTP = workload_of("http")


def latencies(kind: str, times_ms: Iterable[float]) -> Latencies:
    """These times with a step for each distinct one, so that percentiles are exact."""
    times_ns = [round(time * 1e6) for time in times_ms]
    return Latencies(kind, tuple(sorted(Counter(times_ns).items())), sum(times_ns), min(times_ns), max(times_ns))


def flow(stream: str = "s1", workload: str = "http", **changes: Any) -> FlowResult:
    """A second of an HTTP client with 100 requests/s; any field can be given."""
    usual: dict[str, Any] = {
        "tool": "netbench client 1",
        "duration_s": 1.0,
        "intended": 100,
        "started": 100,
        "completed": 100,
    }
    return FlowResult(stream, workload, **{**usual, **changes})


def timed(times_ms: Iterable[float], kind: str = "response", **changes: Any) -> FlowResult:
    """A flow with these times."""
    return flow(latencies=(latencies(kind, times_ms),), **changes)


def flow_trial(
    *flows: FlowResult,
    uut: str = "raw",
    scenario: str = DEDICATED,
    workload: Workload = HTTP,
    load: str = "100/s",
    repetition: int = 1,
    boot: int = 0,
    index: int = 0,
    reasons: tuple[Reason, ...] = (),
    activity: Activity | None = None,
    streams: tuple[str, ...] = (),
    neighbour_load: str = "",
) -> TrialResult:
    """A trial of these flows; `activity` is that of its only neighbour, which forwards `neighbour_load`."""
    names = streams or tuple(measured.stream for measured in flows) or ("s1",)
    tasks = [GuestTask(VICTIM, Serve(workload, Load.parse(load)), names, None, 1.0)]
    measured = [GuestResult(VICTIM, flows=flows)]
    if activity is not None:
        traffic = TrialFrames(FrameSize.of(64), Load.parse(neighbour_load)) if neighbour_load else None
        tasks.append(GuestTask("second", activity, traffic=traffic))
        measured.append(GuestResult("second"))
    spec = TrialSpec(index, uut, scenario, tuple(tasks), repetition)
    started_ns = 1_741_079_700_000_000_000 + index * 2_000_000_000
    return TrialResult(spec, 1, started_ns, tuple(measured), reasons, {"send": 1.0}, boot=boot)


def flow_campaign(trials: Sequence[TrialResult], **more: Any) -> CampaignResults:
    """A campaign of these trials, with their UUTs in the order in which they come."""
    return campaign(trials, **{"uuts": tuple(dict.fromkeys(trial.spec.uut for trial in trials)), **more})


SHARES: Mapping[str, float] = {"neighbour-25": 25.0, "neighbour-50": 50.0, "neighbour-95": 95.0}


def drawn_ms(median_ms: float, number: int, seed: int) -> NDArray[np.float64]:
    """Times with a long tail (lognormal), to whole microseconds."""
    times = np.random.default_rng(seed).lognormal(np.log(median_ms), 0.5, number)
    return np.round(times, 3)


def response_times(
    medians_ms: Mapping[str, float], *, boots: int = 3, repetitions: int = 2, number: int = 2000, slope: float = 4.0
) -> CampaignResults:
    """A campaign in which the median of each UUT rises with the neighbour's load, up to `slope` times at 100 %.

    Boots differ by 3 %. The maximum of the first UUT is 100 kfps, that of the second one 200 kfps, and so on.
    """
    trials: list[TrialResult] = []
    scenarios: dict[str, tuple[Activity, float]] = {SHARED_IDLE: (Idle(), 0.0)}
    scenarios |= {name: (Network(None, share), share) for name, share in SHARES.items()}
    for place, (uut, median_ms) in enumerate(medians_ms.items()):
        for scenario, (activity, share) in scenarios.items():
            for boot in range(1, boots + 1):
                for repetition in range(1, repetitions + 1):
                    index = len(trials)
                    median = median_ms * (1 + (slope - 1) * share / 100) * (1 + 0.03 * (boot - 2))
                    times = drawn_ms(median, number, seed=index)
                    completed: dict[str, Any] = {"intended": number, "started": number, "completed": number}
                    trials.append(
                        flow_trial(
                            timed(times.tolist(), duration_s=20.0, **completed),
                            uut=uut,
                            scenario=scenario,
                            activity=activity,
                            neighbour_load=f"{share * (place + 1):g}kfps" if share else "",
                            repetition=repetitions * (boot - 1) + repetition,
                            boot=boots * place + boot,
                            index=index,
                        )
                    )
    return flow_campaign(trials)
