"""Calibrates the sources of a testbed without a UUT: the rates they offer while the ingress NICs drop every frame."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netbench.errors import TestbedError
from netbench.model.frame_size import FrameSize
from netbench.model.source_ceiling import (
    FEWEST_SUSTAINED,
    MAY_BE_STOPPED_PART,
    MOST_SAMPLES,
    SAMPLE_S,
    CeilingComparison,
    CeilingSample,
    SourceCeiling,
    ceiling_of,
    is_settled,
)
from netbench.model.traffic import Sent, Traffic
from netbench.trial.setup import Endpoints, TrialSetup
from netbench.trial.sources_and_sinks import prepare, start_sources

# No NIC has this address: the ingress NIC's host drops the frames because they are for another host.
_OF_NO_NIC = "02:6e:62:ff:ff:ff"
_LIMIT_S = 10.0  # for sources to end
# The next rate to try, as a part of the unpaced rate or of the rate that was missed; and the misses that lower it.
_PACED_PART, _MISSED = 0.98, 2
# The offered load may be below a sustained rate by this part of it; the default of trials.
TOLERANCE = 0.01
# Late sources may exceed the rate by this part of it, as in searches for maxima.
_CATCH_UP = 0.05


def can_calibrate(endpoints: Sequence[Endpoints]) -> bool:
    """Return True if frames to an unknown MAC address stay on links and hosts that netbench created."""
    return bool(endpoints) and not any(ends.path.leads_outside for ends in endpoints)


def calibrate_sources(
    setup: TrialSetup,
    endpoints: Sequence[Endpoints],
    frame_size: FrameSize,
    *,
    flows: int = 1,
    seed: int = 1,
    on: str | None = None,
    compared_with: Sequence[CeilingComparison] = (),
) -> SourceCeiling:
    """Return the highest rate that each of these sources offers while all send at once and no UUT is up.

    The first sample is the warm-up and is discarded. TestbedError if a source cannot send at all.
    """

    def sample(fps: float | None = None) -> CeilingSample:
        return _sample(setup, endpoints, frame_size, flows, seed, fps)

    samples: list[CeilingSample] = []
    sample()
    while not is_settled(samples):
        samples.append(sample())
    kinds = dict.fromkeys(ends.identities.source.kind for ends in endpoints)
    ceiling = ceiling_of("+".join(kinds), len(endpoints), frame_size, samples, on=on, compared_with=compared_with)
    return replace(ceiling, **_paced(ceiling.fps, sample)) if ceiling.is_known else ceiling


def _paced(fps: float, sample: Callable[[float], CeilingSample]) -> dict[str, Any]:
    """Find a rate that the sources sustain in two samples, from the ceiling downwards; two misses lower the rate.

    Samples in which a source was kept from running do not count as misses.
    """
    rate = float(f"{fps * _PACED_PART:.6g}")
    samples: list[CeilingSample] = []
    held, missed = 0, list[float]()
    while len(samples) < MOST_SAMPLES and held < FEWEST_SUSTAINED:
        samples.append(latest := sample(rate))
        held += latest.accepted
        if not (latest.accepted or latest.disturbed):
            missed.append(latest.offered_fps)
        if len(missed) == _MISSED:
            rate, held, missed = float(f"{min(rate, max(missed)) * _PACED_PART:.6g}"), 0, []
    return {"paced_fps": rate, "paced_samples": tuple(samples)}


def sample_of(sent: Mapping[str, Sent], intended_fps: float | None = None) -> CeilingSample:
    """Return the sample of these sources, by stream; they sent at `intended_fps`, or as fast as possible if None."""
    sources = list(sent.values())
    offered = min((source.frames / source.duration_s if source.duration_s else 0.0 for source in sources), default=0.0)
    longest_s = max((source.duration_s for source in sources), default=0.0)
    reason = fault = next(
        (why for source in sources if (why := fault_of(source, is_paced=intended_fps is not None))), ""
    )
    if not fault and intended_fps is not None and offered < (1 - TOLERANCE) * intended_fps:
        reason = f"offered {offered:,.0f} of {intended_fps:,.0f} frames/s"
    return CeilingSample(offered, longest_s, not reason, reason, intended_fps, disturbed=bool(fault))


def fault_of(sent: Sent, *, is_paced: bool = False) -> str:
    """Return why a source may have sent less than it can; empty if there is no such sign."""
    if sent.error:
        return sent.error
    if not sent.frames:
        return "nothing was sent"
    late_s = 0.0 if is_paced else sent.max_lateness_s
    # Any wait of a source bound to one CPU counts: no UUT or neighbour runs during a calibration.
    waited_s = 0.0 if sent.cpu is None else sent.wait_s or 0.0
    stopped_s = max(sent.descheduled_s, sent.stalled_s or 0.0, late_s, waited_s)
    if stopped_s > MAY_BE_STOPPED_PART * sent.duration_s:
        return f"the source did not run for {stopped_s * 1e3:,.0f} ms of {sent.duration_s * 1e3:,.0f} ms"
    return ""


def _sample(
    setup: TrialSetup,
    endpoints: Sequence[Endpoints],
    frame_size: FrameSize,
    flows: int,
    seed: int,
    fps: float | None,
) -> CeilingSample:
    trial = next(setup.numbers)
    traffic = {ends.path.name: _traffic(setup, ends, frame_size, flows, seed, trial, fps) for ends in endpoints}
    unready = prepare(endpoints, traffic)
    if unready:
        raise TestbedError("; ".join(source.error for source in unready.values()))
    start_sources(endpoints, setup.clock)
    sent = {ends.path.name: ends.source.wait(_LIMIT_S) for ends in endpoints}
    return sample_of(sent, fps)


def _traffic(
    setup: TrialSetup, ends: Endpoints, frame_size: FrameSize, flows: int, seed: int, trial: int, fps: float | None
) -> Traffic:
    path = ends.path
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac,
        dst_mac=_OF_NO_NIC,
        src_ip=path.src_ip_of(trial),
        dst_ip=path.dst_ip,
        frame_size=frame_size,
        fps=None if fps is None else ends.source.nearest_fps(fps, frame_size),
        duration_s=SAMPLE_S,
        flows=flows,
        seed=seed,
        receive=path.receive,
        catch_up=None if fps is None else _CATCH_UP,
        packet=setup.packet_of(path, frame_size),
    )
