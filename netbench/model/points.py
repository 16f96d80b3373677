"""Counting points: places on the path of frames that count them, and what they have counted at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from netbench.model.interfaces import Place
from netbench.model.paths import Nic, StreamPath, direction

# The counter of frames for another MAC address, which an IP layer drops (struct rtnl_link_stats64 in linux/if_link.h).
OTHERHOST = "rx_otherhost_dropped"
# How the counters of BPF programs of others begin; none of them counts.
BPF_PROGRAMS = ("XDP program ", "tcx ")
# All rules of a namespace. They count no frames; a changed `handle` means changed rules.
ALL_RULES = "nft firewall rules"
UUT = "uut"  # the point of what is lost in the unit under test where no counter tells one point from another


class Where(Enum):
    """On which part of the path a point is. UUT: in a unit under test without a guest, or nobody knows where in it."""

    SOURCE = "source"  # the tester's sending side
    INGRESS = "ingress"  # the NIC at which frames enter the UUT
    BEFORE = "before"  # the guest
    INSIDE = "inside"
    BEHIND = "behind"
    UUT = "uut"
    EGRESS = "egress"
    SINK = "sink"  # the tester's receiving side


class Kind(Enum):
    """What of a Linux machine can be read at a point; NOTHING where the machine it is on has nothing to tell."""

    NOTHING = "nothing"
    INTERFACE = "interface"  # what is attached to one: rules, classifiers, queueing disciplines
    BRIDGE = "bridge"  # what a network namespace that bridges has on the way
    IP_LAYER = "IP layer"  # what a network namespace that routes has on the way
    BACKLOG = "backlog"  # the input queues of the machine's CPUs
    # Of a guest, whose way from one NIC to the other is all its kernel does:
    NIC = "NIC"  # its own counters of the point's direction
    BUFFERS = "buffers"  # frames for which it had no buffer, where its driver tells
    QUEUE = "queue"  # its queueing discipline
    IP_COUNTERS = "IP counters"  # the IP layer's, whatever forwards


@dataclass(frozen=True, slots=True)
class CountingPoint:
    """A point on the path of one stream.

    `place` is where on its machine a `kind` other than NOTHING is read (its interface is empty for what forwards and
    for the backlog), `direction` which way frames go there, `rx` or `tx`. Points that are `passing` count the frames
    that pass, by the counter of that direction, and cut the path into segments; one that `names_segment` gives the
    segment that it is in its name. `order` is its position on the path, known once the path is set together. What
    forwards knows the `address` that the stream's frames go to.
    """

    name: str
    where: Where = Where.UUT
    kind: Kind = Kind.NOTHING
    place: Place | None = None
    direction: str = ""
    passing: bool = False
    names_segment: bool = False
    order: int = 0
    address: str = ""


Points = Mapping[str, Sequence[CountingPoint]]  # by stream, along its path


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Frames that one counter has counted so far at the point of this name.

    `stream` is empty where the counter does not tell streams apart. `role` is `passed`, `dropped` or `errors`, or
    `repeated` for drops of frames that another counter counts too, as lost or as captured. `frames` is None where
    something may drop frames without counting them (a rule without a counter): unknown is not 0. `attached` is
    what was put there to treat frames in another way than just forwarding them: a rule, a program, a shaper.

    A counter is told by its `handle` from one that takes its place, and known by it again at other points; it is empty
    where neither happens. One that belongs to an `owner`, as a rule to its table, may begin with what another counted;
    all others begin at 0. Anybody may reset a `resettable` one to 0 without a trace (`nft reset rules`).
    """

    stream: str
    point: str
    counter: str
    role: str
    frames: int | None
    attached: bool = False
    handle: tuple[str, ...] = ()
    owner: str = ""
    resettable: bool = False


def forwarding_point(path: StreamPath, kind: Kind, where: Where = Where.UUT) -> CountingPoint:
    """What forwards in the network namespace where a stream's frames enter the UUT: a BRIDGE or the IP_LAYER."""
    assert path.ingress is not None
    place = path.ingress.place._replace(interface="")
    return CountingPoint(kind.value, where, kind, place, names_segment=True, address=path.dst_ip)


def whole_path(path: StreamPath, declared: Sequence[CountingPoint]) -> tuple[CountingPoint, ...]:
    """All points of a stream from source to sink, in order: the tester's, the UUT's NICs, and what the UUT declares.

    Among these is UUT, where the middle of the unit under test is.
    """
    machine = (path.ingress or path.sink).machine
    middle = next(
        (place for place, one in enumerate(declared, 1) if one.where is Where.INSIDE and one.names_segment),
        len(declared),
    )
    points = [
        CountingPoint("generator", Where.SOURCE),
        nic_point("source", path.source),
        *((nic_point("ingress", path.ingress),) if path.ingress else ()),
        CountingPoint("softnet backlog", Where.BEFORE, Kind.BACKLOG, Place(machine, None, "")),
        *declared[:middle],
        CountingPoint(UUT),
        *declared[middle:],
        *((nic_point("egress", path.egress),) if path.egress else ()),
        nic_point("sink", path.sink),
        CountingPoint("capture", Where.SINK),
    ]
    return tuple(replace(point, order=order) for order, point in enumerate(points))


def nic_point(role: str, nic: Nic) -> CountingPoint:
    """The NIC of a role on the path: source, ingress, egress or sink."""
    return CountingPoint(f"{role} NIC", Where(role), Kind.INTERFACE, nic.place, direction(role), passing=True)
