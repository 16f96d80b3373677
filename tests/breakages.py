"""Deliberate breakages on the path of frames, and the results of trials under them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from netbench.config.loading import load_topology
from netbench.config.plugins import UUTS, option_models
from netbench.config.shipped import TOPOLOGIES, find
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.resolved import resolve
from netbench.testbed.testbed import Testbed
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from netbench.uut.base import ActiveGuest
from tests.commands import FEW_FRAMES, REPEATED
from tests.unit.inputs import planned_trial

SENT = FEW_FRAMES
ATTEMPTS = 5
PROFILE = Profile.model_validate(
    {
        "name": "places",
        "frame_sizes": [300],
        "loads": ["1000fps"],
        "duration": f"{SENT}ms",
        "repetitions": 1,
        "tolerance": "100%",
        "max_lateness": "1min",
        "drain_limit": "2s",  # reached once per UUT that loses frames at no counter
        "settle": {"before": "0s", "after": "0s"},
    }
)


@dataclass(frozen=True)
class Broken:
    """One breakage: commands that make and undo it on a host, or in the `guest`, and the expected result."""

    name: str
    host: str = ""
    make: str = "true"
    undo: str = "true"
    lost: dict[str, int] = field(default_factory=dict)
    kinds: tuple[ReasonKind, ...] = ()
    unexplained: int = 0

    @property
    def outcome(self) -> "Outcome":
        """The expected summary of a trial under it."""
        return SENT, self.lost, self.unexplained, self.kinds


NOTHING = Broken("nothing")
Outcome = tuple[int, dict[str, int], int | None, tuple[ReasonKind, ...]]


def no_route_in_guest(egress: str) -> Broken:
    """A guest that routes and has no route to the sink any more, by its egress NIC."""
    route = f"198.19.1.0/24 dev {egress}"
    lost = {"guest IP layer (InNoRoutes)": SENT}
    return Broken("no route in the guest", "guest", f"ip route del {route}", f"ip route add {route}", lost)


def ruled(name: str, host: str, chain: str, rule: str, lost: dict[str, int], *kinds: ReasonKind) -> Broken:
    """A rule of nftables: `chain` is family, hook and, where it needs one, device."""
    family, hook, *device = chain.split()
    where = f"device {device[0]} " if device else ""
    table = f"{family} x {{ chain c {{ type filter hook {hook} {where}priority 0; {rule}; }} ; }}"
    return Broken(name, host, f"nft 'table {table}'", f"nft delete table {family} x", lost, kinds)


def load_shipped(name: str) -> Topology:
    """A shipped topology."""
    return load_topology(find(TOPOLOGIES, name), option_models(UUTS))


def measured(topology: Topology, spec: UutSpec, breakages: Sequence[Broken], scratch: Path) -> dict[str, Outcome]:
    """The summary of a trial under each breakage, and of one without any."""
    with open_testbed(resolve(topology, PROFILE)) as testbed, testbed.uut(spec) as active:
        return measured_on(testbed, spec, active, breakages, scratch)


def measured_on(
    testbed: Testbed,
    spec: UutSpec,
    active: ActiveGuest,
    breakages: Sequence[Broken],
    scratch: Path,
    hosts: Mapping[str, Host] = {},
    attempts: int = ATTEMPTS,
) -> dict[str, Outcome]:
    """The same for a UUT that is already up; `hosts` are those that are not on this machine.

    A trial in which a machine stalled is repeated, up to this number of `attempts`.
    """
    outcomes, topology = {}, testbed.topology
    for index, breakage in enumerate([*breakages, NOTHING]):
        trial = planned_trial(topology, PROFILE, ("s1",), index=index, uut=spec.name)
        with broken(topology, active, breakage, hosts):
            setup, recording = testbed.setup({VICTIM: active}), Recording.as_wanted(PROFILE, scratch)
            for attempt in range(1, attempts + 1):
                result = run_trial(setup, trial, recording, attempt)
                if not _held_up(result):
                    break
            outcomes[breakage.name] = _summary(result)
    return outcomes


def _held_up(result: TrialResult) -> bool:
    """Whether this machine stalled for a moment during the trial; a campaign repeats such a trial, too."""
    return any(reason.kind.value in REPEATED for reason in result.reasons)


@contextmanager
def broken(topology: Topology, active: ActiveGuest, breakage: Broken, hosts: Mapping[str, Host] = {}) -> Iterator[None]:
    _do(topology, active, breakage.host, breakage.make, hosts)
    try:
        yield
    finally:
        _do(topology, active, breakage.host, breakage.undo, hosts)


def _do(topology: Topology, active: ActiveGuest, host: str, command: str, hosts: Mapping[str, Host]) -> None:
    if host == "guest":
        inside = active.ready.inside
        assert inside is not None
        assert inside.run(shlex.split(command)).exit_code == 0
    elif host in hosts:
        run_checked(hosts[host], shlex.split(command))
    elif host:
        netns = topology.netns(host)
        assert netns is not None
        run_checked(NamespaceHost(LocalHost(host, ""), netns), shlex.split(command))


def _summary(result: TrialResult) -> Outcome:
    """Frames sent, lost by place, and unexplained; and the kinds of reasons against the trial."""
    (counts,) = result.streams
    assert counts.lost_frames == sum(loss.frames for loss in counts.lost_at) + (counts.unexplained_frames or 0)
    places = {loss.place: loss.frames for loss in counts.lost_at}
    return counts.sent.frames, places, counts.unexplained_frames, tuple(reason.kind for reason in result.reasons)
