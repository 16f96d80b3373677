"""Two guests with known truth at once: the loss of each is attributed to it, exact to the frame."""

import json
import random

import pytest

from netbench.results.directory import ResultDirectory
from netbench.uut.reference import DropRule
from tests.commands import PATIENT, netbench, settings

pytestmark = pytest.mark.root

SEED = 20112
DROPS = [(random.Random(SEED).randint(1, 997), 997)]
TOPOLOGY = """
name: pair
hosts: {source: {}, uut: {}, sink: {}}
links:
  - {ends: [source/tx1, uut/in1], rate: 1Gbit/s}
  - {ends: [uut/out1, sink/rx1], rate: 1Gbit/s}
  - {ends: [source/tx2, uut/in2], rate: 1Gbit/s}
  - {ends: [uut/out2, sink/rx2], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}
  - {name: n1, source: source/tx2, ingress: uut/in2, egress: uut/out2, sink: sink/rx2}
neighbours: [{name: second, streams: [n1]}]
uuts:
"""


@pytest.mark.parametrize("forward", ["bridge", "route"])
def test_each_guests_loss_is_its_own(tmp_path, results, forward):
    """The victim drops, its neighbour drops, or both do, each a different share."""
    uuts = ""
    for k, n in DROPS:
        own, other = ({"kind": "reference", "drop": {"k": part, "n": n}, "forward": forward} for part in (k, n - k))
        exact = {"kind": "raw", "forward": forward}
        for name, victim, neighbour in (("own", own, exact), ("other", exact, other), ("both", own, other)):
            spec = {"name": f"{name}-{k}-{n}", **victim, "neighbours": {"second": neighbour}}
            uuts += f"  - {json.dumps(spec)}\n"
    (tmp_path / "pair.yaml").write_text(TOPOLOGY + uuts)
    done = netbench(
        "run",
        tmp_path / "pair.yaml",
        "quick",
        "-o",
        results,
        *settings(
            frame_sizes="64,1518",
            loads="4999fps",
            duration="200ms",
            warm_up="0s",
            repetitions=1,
            tolerance="100%",
            retries=1,
            max_lateness="1min",
            scenarios="[shared-idle, {network: [2003fps, 3001fps], frame_size: 65}]",
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials = ResultDirectory(results).results().trials
    assert len(trials) == 3 * len(DROPS) * 3 * 2
    for trial in trials:
        whose, *numbers = trial.spec.uut.split("-")
        k, n = map(int, numbers)
        own_drop = DropRule(k=k, n=n) if whose in ("own", "both") else DropRule(k=0, n=1)
        other_drop = DropRule(k=n - k, n=n) if whose in ("other", "both") else DropRule(k=0, n=1)
        [measured], [second] = trial.streams, trial.neighbours
        assert (measured.sent.frames, measured.lost_frames) == (1000, own_drop.of(1000)), trial
        assert measured.unexplained_frames == 0
        assert trial.verdict.value == "valid", trial.reasons
        if trial.spec.scenario == "shared-idle":
            assert (str(trial.spec.task("second").activity), second.streams) == ("idle", ())
            continue
        [counts] = second.streams
        assert counts.intended_fps is not None
        assert trial.spec.scenario == f"network-{counts.intended_fps:g}fps"
        assert counts.lost_frames == other_drop.of(counts.sent.frames), trial
        assert (counts.unexplained_frames, counts.foreign_frames) == (0, 0)
        assert sum(loss.frames for loss in counts.lost_at) == counts.lost_frames
        traffic = trial.spec.task("second").traffic
        assert traffic is not None
        assert traffic.size.only_size == 65


def test_counts_of_both_sides_are_those_of_their_nics(results):
    """The second pair of NICs as neighbour, at half and nearly all of the maximum, as in Tables 2 and 3."""
    limited = {"name": "raw", "kind": "reference", "forward": "route", "limit": {"fps": 10_000, "burst": 1000}}
    limited["neighbours"] = {"second": {"kind": "raw", "forward": "route"}}
    done = netbench(
        "run",
        "netns-neighbour",
        "schlosser2011-short",
        "-o",
        results,
        "--uut",
        "raw",
        "--scenario",
        "network-*",
        *settings(frame_sizes="64,1500", loads="2000fps,9000fps", duration="200ms", repetitions=3),
        *settings(topology__uuts=json.dumps([limited])),
        *PATIENT,
    )
    assert done.returncode in (0, 1), done.stderr
    campaign = ResultDirectory(results).results()
    [maximum] = campaign.maxima
    assert maximum.frame_size.only_size == 64
    shared = list(campaign.wanted_trials)
    assert len(shared) == 2 * 2 * 2 * 3
    for trial in shared:
        [second] = trial.neighbours
        for counts in (*trial.streams, *second.streams):
            nics = {(counter.point, counter.counter): counter.grew for counter in counts.counters}
            assert nics["source NIC", "tx"] == nics["ingress NIC", "rx"] == counts.sent.frames
            assert nics["egress NIC", "tx"] == nics["sink NIC", "rx"] == counts.received.frames
        share = float(trial.spec.scenario.removeprefix("network-")) / 100
        assert second.streams[0].intended_fps == pytest.approx(maximum.fps * share)
        assert (trial.machine_cpu_s or 0) > 0
