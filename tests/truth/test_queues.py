"""A device with a queue, for trials of any length: the frames that it forwards, queues and loses."""

import pytest

from netbench.model.scenario import VICTIM
from netbench.model.verdict import ReasonKind
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.breakages import Broken, broken, load_shipped
from tests.unit.inputs import planned_trial, profile

pytestmark = pytest.mark.root

QUEUE = 500
FORWARDED_FPS = 5000
FRAME = 60  # bytes without FCS, as a shaper counts them
OFFERED_FPS = 20_000


def test_a_queue_is_no_throughput_and_its_frames_are_reported(tmp_path):
    topology = load_shipped("netns")
    spec = next(uut for uut in topology.uuts if uut.name == "route")
    rate = f"rate {FORWARDED_FPS * FRAME * 8}bit burst {2 * FRAME} limit {QUEUE * FRAME}"
    shaped = Broken("", "uut", f"tc qdisc add dev nb-out1 root tbf {rate}", "tc qdisc del dev nb-out1 root")
    forwarded: list[float] = []
    received_ratio: list[float] = []
    for duration in ("200ms", "2s"):
        wanted = profile(loads=[f"{OFFERED_FPS}fps"], duration=duration, tolerance="100%", max_lateness="1min")
        with open_testbed(resolve(topology, wanted)) as testbed, testbed.uut(spec) as active:
            trial = planned_trial(topology, wanted, ("s1",), uut=spec.name)
            with broken(topology, active, shaped):
                result = run_trial(testbed.setup({VICTIM: active}), trial, Recording.as_wanted(wanted, tmp_path), 1)
        (counts,) = result.streams
        received, lost = counts.received.frames, counts.lost_frames
        window, fps = counts.received.window, counts.throughput_fps
        assert received
        assert lost
        assert window
        assert fps
        assert counts.sent.frames == received + lost
        assert window.buffered_frames == pytest.approx(QUEUE, rel=0.2)
        is_buffered = ReasonKind.BUFFERED in [reason.kind for reason in result.reasons]
        assert is_buffered is (window.buffered_frames > 0.05 * counts.sent.frames)
        forwarded.append(fps)
        received_ratio.append(received / counts.sent.duration_s / fps)
    assert forwarded[0] == pytest.approx(forwarded[1], rel=0.2)
    assert received_ratio[0] > 1.3, "or the queue was of no account in the short trial"
