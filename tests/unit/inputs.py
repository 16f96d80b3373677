"""Topologies and profiles for tests, as short as they can be."""

import random
from collections.abc import Iterable
from dataclasses import replace

from netbench.model.frame_size import FrameSize, parse_frame_size
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM, Network
from netbench.model.topology import Topology
from netbench.model.traffic import Traffic
from netbench.model.trial import GuestTask, TrialFrames, TrialSpec
from netbench.model.units import Load
from netbench.packets.build import build_template
from netbench.packets.flow_values import values_of
from netbench.plan.schedule import CampaignPlan


def topology(streams: int = 1, uuts=({"name": "bridge", "kind": "raw"},), **more) -> Topology:
    """A topology of namespaces with this many streams."""
    numbers = range(1, streams + 1)
    data = {
        "name": "lab",
        "hosts": {"source": {}, "uut": {}, "sink": {}},
        "links": [
            {"ends": ends, "rate": "1Gbit/s"}
            for n in numbers
            for ends in ([f"source/tx{n}", f"uut/in{n}"], [f"uut/out{n}", f"sink/rx{n}"])
        ],
        "streams": [
            {
                "name": f"s{n}",
                "source": f"source/tx{n}",
                "ingress": f"uut/in{n}",
                "egress": f"uut/out{n}",
                "sink": f"sink/rx{n}",
            }
            for n in numbers
        ],
        "uuts": list(uuts),
    }
    return Topology.model_validate({**data, **more})


def topology_both_ways(**more) -> Topology:
    """As `topology` of one stream, with a reverse stream, `back`."""
    forth = {"name": "s1", **topology().streams[0].nics_by_role}
    return Topology.model_validate(
        {**topology().model_dump(exclude_defaults=True), "streams": [forth, {"name": "back", "reverse": "s1"}], **more}
    )


def topology_sending(packet: object) -> Topology:
    """As `topology` of one stream, which sends its own packet."""
    stream = {"name": "s1", **topology().streams[0].nics_by_role, "packet": packet}
    return Topology.model_validate({**topology().model_dump(exclude_defaults=True), "streams": [stream]})


def topology_in_vm(streams: int = 1, vm=None, **more) -> Topology:
    """As `topology`, with all of it inside the VM `lab`, which has the given fields."""
    inside = {name: {"kind": "netns", "on": "lab"} for name in ("source", "uut", "sink")}
    return topology(streams, **{"hosts": {"lab": {"kind": "vm", **(vm or {})}, **inside}, **more})


def profile(**more) -> Profile:
    """Return a profile, of one trial by default."""
    data = {
        "name": "one",
        "frame_sizes": [64],
        "loads": ["1000fps"],
        "repetitions": 1,
        "duration": "1s",
        "noise_floor": 0,
    }
    return Profile.model_validate({**data, **more})


def shared_topology(neighbours=({"name": "second", "streams": ["s2"]},), streams: int = 2, **more) -> Topology:
    """A topology whose UUTs have neighbours: by default one, with the second of two streams."""
    return topology(streams, **{"neighbours": list(neighbours), **more})


def trial_spec(
    uut: str = "bridge",
    scenario: str = "dedicated",
    streams: tuple[str, ...] = ("s1",),
    frame_size: int | FrameSize = 64,
    load: str | Load = "1000fps",
    **more,
) -> TrialSpec:
    """A trial of one second with these streams of the victim; `neighbours` are the tasks of the others."""
    rate, size = load if isinstance(load, Load) else Load.parse(load), parse_frame_size(frame_size)
    victim = GuestTask(VICTIM, Network(rate, None, size), streams, TrialFrames(size, rate), 1.0)
    others = more.pop("neighbours", ())
    return TrialSpec(
        **{"index": 0, "uut": uut, "scenario": scenario, "guests": (victim, *others), "repetition": 1, **more}
    )


def stream_traffic(stream: str = "s1", **changes) -> Traffic:
    """One second of frames at 1,000 frames/s; any field can be given."""
    ends = "02:00:00:00:00:01", "02:00:00:00:00:02", "198.18.0.1", "198.18.0.2"
    return replace(Traffic(stream, *ends, FrameSize.of(64), 1000.0, 1.0, 1, 1), **changes)


def impaired(numbers: Iterable[int], seed: int) -> list[int]:
    """Sequence numbers with losses, copies and late ones, in the order of sending."""
    draw, order = random.Random(seed), []
    late: list[tuple[int, int]] = []
    for number in numbers:
        fate = draw.random()
        late = [(wait - 1, delayed) for wait, delayed in late]
        if fate < 0.1:
            late.append((draw.choice((1, 2, 40, 700)), number))
        elif fate > 0.2:
            order.append(number)
        if fate > 0.95:
            order.append(draw.choice(order))
        order += [delayed for wait, delayed in late if not wait]
        late = [(wait, delayed) for wait, delayed in late if wait]
    return order


def planned_trial(topology: Topology, profile: Profile, streams: tuple[str, ...], **more) -> TrialSpec:
    """The trial of a profile's first frame size or workload and first load, as a plan would have it."""
    (scenario, *_), (traffic, *_), (load, *_) = profile.scenarios, profile.kinds_of_traffic, profile.loads
    uut = more.pop("uut", topology.uuts[0].name)
    made = CampaignPlan(topology, profile, (uut,), profile.scenarios).trial(
        uut, scenario, traffic, load, 1, **{"index": 0, **more}
    )
    victim = replace(made.victim, streams=streams)
    return replace(made, guests=(victim, *made.neighbours))


def flow_ports(flows: int, seed: int) -> list[list[int]]:
    """Return the source and destination port of each flow of plain frames: the discard port if there is one flow."""
    if flows == 1:
        return [[9, 9]]
    template = build_template(stream_traffic(flows=flows, seed=seed))
    columns = [values_of(varying.values, varying.seed).tolist() for varying in template.varying]
    return [list(pair) for pair in zip(*columns, strict=True)]
