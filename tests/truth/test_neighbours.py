"""Two guests with known truth at once: the loss of each is attributed to it, exact to the frame."""

import json
import random

import pytest

from netbench.results.directory import ResultDirectory
from netbench.uut.reference import DropRule
from tests.commands import netbench, settings

pytestmark = pytest.mark.root

SEED = 20112
N = 997
K = random.Random(SEED).randint(1, N)
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


def test_each_guests_loss_is_its_own(tmp_path, results):
    """The victim drops, its neighbour drops, or both do, each a different share; bridges and routers, also mixed."""
    own, other = ({"kind": "reference", "drop": {"k": part, "n": N}} for part in (K, N - K))
    exact, bridge, route = {"kind": "raw"}, {"forward": "bridge"}, {"forward": "route"}
    uuts = "".join(
        f"  - {json.dumps({'name': name, **victim, 'neighbours': {'second': neighbour}})}\n"
        for name, victim, neighbour in (
            ("own", own | bridge, exact | bridge),
            ("other", exact | route, other | route),
            ("both", own | bridge, other | route),
        )
    )
    (tmp_path / "pair.yaml").write_text(TOPOLOGY + uuts)
    done = netbench(
        "run",
        tmp_path / "pair.yaml",
        "quick",
        "-o",
        results,
        *settings(
            frame_sizes=64,
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
    assert len(trials) == 3 * 3
    for trial in trials:
        own_drop = DropRule(k=K if trial.spec.uut in ("own", "both") else 0, n=N)
        other_drop = DropRule(k=N - K if trial.spec.uut in ("other", "both") else 0, n=N)
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
