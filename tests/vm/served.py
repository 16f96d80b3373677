"""A web server in a guest of a VM: its requests are counted exactly, and tool and wire agree to the byte."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netbench.model.host_spec import HostSpec
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import UutSpec
from netbench.testbed.bring_up import flow_changes
from netbench.testbed.testbed import Testbed
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.base import ActiveGuest
from tests.netns.yard import Yard
from tests.unit.inputs import planned_trial, topology

RATE, SECONDS, WARM_UP_S, BODY = 20, 3, 1, 1000
PROFILE = Profile.model_validate(
    {
        "name": "served",
        "tool": {"kind": "http", "body_size": BODY},
        "loads": [f"{RATE}/s"],
        "duration": f"{SECONDS}s",
        "warm_up": f"{WARM_UP_S}s",
        "repetitions": 1,
        "keep_captures": "none",
    }
)
# On an emulated CPU the client is late, and its times contain its own work. Bytes have no such excuse.
ABOUT_TIME = re.compile(r"p(50|95|99|99\.9): .* µs by the tool, ")
IMMATERIAL = frozenset({"tester-disturbed", "tester-limited"})


@contextmanager
def trials_in(
    yard: Yard, host: HostSpec, uut: UutSpec, profile: Profile, path: StreamPath, *, has_frames: bool = True
) -> Iterator[Testbed]:
    """A testbed with one stream in a VM, for trials with a UUT that is already up."""
    there = topology(2, name="nbt-side")
    wanted = there.model_copy(update={"hosts": {"lab": host, **there.hosts}}).on("lab")
    wanted = wanted.model_copy(update={"uuts": (uut,)})
    machines = {None: yard.machine, "lab": yard.machine}
    without = () if has_frames else (path.name,)
    testbed = Testbed(wanted, yard.run_id, machines, yard.hosts, (path,), profile, without_frames=without)
    try:
        testbed.open_endpoints()
        yield testbed
    finally:
        testbed.close_endpoints()


def serves_exactly(yard: Yard, host: HostSpec, uut: UutSpec, active: ActiveGuest, path: StreamPath, files: Path):
    """Request pages at a rate, and check counts and bytes. Nothing runs in the VM afterwards that did not before."""
    before, point = yard.running(), yard.machine.point
    yard.machine.make(flow_changes([path], (), "lab"))
    with trials_in(yard, host, uut, PROFILE, path, has_frames=False) as testbed:
        trial = planned_trial(testbed.topology, PROFILE, (path.name,), uut=uut.name)
        result = run_trial(testbed.setup({VICTIM: active}), trial, Recording.as_wanted(PROFILE, files), 1)
    assert yard.machine.undo(to=point) == []
    (flow,) = result.victim.flows
    assert flow.error == "", flow.error
    measured = RATE * (SECONDS - WARM_UP_S)
    assert (flow.intended, flow.started, flow.completed, flow.errors) == (measured, measured, measured, {})
    assert flow.to_client_bytes is not None
    assert flow.to_client_bytes > measured * BODY
    assert flow.run_to_client_bytes == flow.to_client_bytes * SECONDS // (SECONDS - WARM_UP_S), "all are equally long"
    assert [tap.place for tap in flow.wire] == ["client", "guest"]
    for tap in flow.wire:
        assert (tap.error, tap.dropped_frames, tap.uncaptured_bytes) == ("", 0, 0)
        assert (tap.to_server_bytes, tap.to_client_bytes) == (flow.run_to_server_bytes, flow.run_to_client_bytes)
        assert [times.count for times in tap.latencies if times.kind == "exchange"] in (
            [measured - 1],
            [measured],
            [measured + 1],
        )
    others = [reason for reason in result.reasons if not ABOUT_TIME.search(str(reason))]
    assert {reason.kind.value for reason in others} <= IMMATERIAL, others
    assert {words for _, words in yard.running()} <= {words for _, words in before}
