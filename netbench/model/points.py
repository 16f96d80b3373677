"""Counting points: places on the path of frames that count them, and their readings at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from netbench.model.paths import InterfaceRef, Nic, StreamPath, direction

# The counter of frames for another MAC address, which an IP layer drops (struct rtnl_link_stats64 in linux/if_link.h).
OTHERHOST = "rx_otherhost_dropped"
# All rules of a namespace. They count no frames; a changed `handle` means changed rules.
ALL_RULES = "nft firewall rules"
UUT = "uut"  # the point of losses in the unit under test that no counter locates more precisely


class PathSection(Enum):
    """The part of the path of a point. UUT: in a unit under test without a guest, or at an unknown place in it."""

    SOURCE = "source"  # the tester's sending side
    INGRESS = "ingress"  # the NIC at which frames enter the UUT
    BEFORE = "before"  # the guest
    INSIDE = "inside"
    BEHIND = "behind"
    UUT = "uut"
    EGRESS = "egress"
    SINK = "sink"  # the tester's receiving side


class PointKind(Enum):
    """The readable counters of a Linux machine at a point; NOTHING if its machine has none."""

    NOTHING = "nothing"
    INTERFACE = "interface"  # those attached to an interface: rules, classifiers, queueing disciplines
    BRIDGE = "bridge"  # those on the path through a network namespace that bridges
    IP_LAYER = "IP layer"  # those on the path through a network namespace that routes
    BACKLOG = "backlog"  # the input queues of the machine's CPUs
    # Of a guest whose kernel only forwards between its two NICs:
    NIC = "NIC"  # its own counters of the point's direction
    BUFFERS = "buffers"  # frames for which it had no buffer, if its driver counts them
    QUEUE = "queue"  # its queueing discipline
    IP_COUNTERS = "IP counters"  # those of the IP layer, for every kind of forwarding


@dataclass(frozen=True, slots=True)
class CountingPoint:
    """A point on the path of one stream.

    `place` is the location of a `kind` other than NOTHING on its machine; its interface is empty for forwarding and for
    the backlog. `direction` is the direction of frames there, `rx` or `tx`. `passing` points count the passing frames,
    with the counter of that direction, and divide the path into segments. A point that `names_segment` gives its name
    to its segment. `order` is its position on the path, known once the path is complete. Forwarding points have the
    `address` that the stream's frames go to.
    """

    name: str
    where: PathSection = PathSection.UUT
    kind: PointKind = PointKind.NOTHING
    place: InterfaceRef | None = None
    direction: str = ""
    passing: bool = False
    names_segment: bool = False
    order: int = 0
    address: str = ""


Points = Mapping[str, Sequence[CountingPoint]]  # by stream, along its path


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The frames that one counter has counted so far at the point of this name.

    `stream` is empty where the counter does not separate streams. `role` is `passed`, `dropped` or `errors`, or
    `repeated` for drops of frames that another counter counts too, as lost or as captured. `frames` is None where
    something may drop frames without counting them (a rule without a counter): unknown is not 0. `attached`: the
    counter belongs to something that does more with frames than forward them: a rule, a program, a shaper.

    The `handle` distinguishes a counter from a later one in its place, and identifies it at other points; it is empty
    where neither is needed. A counter with an `owner`, as a rule with its table, may start with the count of another
    counter; all others start at 0. Any program may reset a `resettable` one to 0 without a trace (`nft reset rules`).
    `is_foreign_program`: it is a BPF program that is not netbench's, and counts no frames.
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
    is_foreign_program: bool = False


def forwarding_point(path: StreamPath, kind: PointKind, where: PathSection = PathSection.UUT) -> CountingPoint:
    """Return the forwarding point of the network namespace where frames enter the UUT: a BRIDGE or the IP_LAYER."""
    assert path.ingress is not None
    place = path.ingress.place._replace(interface="")
    return CountingPoint(kind.value, where, kind, place, names_segment=True, address=path.dst_ip)


def whole_path(path: StreamPath, declared: Sequence[CountingPoint]) -> tuple[CountingPoint, ...]:
    """Return all points of a stream from source to sink: the tester's, the UUT's NICs, and those the UUT declares.

    Among these is UUT, at the middle of the unit under test.
    """
    machine = (path.ingress or path.sink).machine
    middle = next(
        (place for place, point in enumerate(declared, 1) if point.where is PathSection.INSIDE and point.names_segment),
        len(declared),
    )
    points = [
        CountingPoint("generator", PathSection.SOURCE),
        nic_point("source", path.source),
        *((nic_point("ingress", path.ingress),) if path.ingress else ()),
        CountingPoint("softnet backlog", PathSection.BEFORE, PointKind.BACKLOG, InterfaceRef(machine, None, "")),
        *declared[:middle],
        CountingPoint(UUT),
        *declared[middle:],
        *((nic_point("egress", path.egress),) if path.egress else ()),
        nic_point("sink", path.sink),
        CountingPoint("capture", PathSection.SINK),
    ]
    return tuple(replace(point, order=order) for order, point in enumerate(points))


def nic_point(role: str, nic: Nic) -> CountingPoint:
    """Return the point of the NIC of a role on the path: source, ingress, egress or sink."""
    return CountingPoint(
        f"{role} NIC", PathSection(role), PointKind.INTERFACE, nic.place, direction(role), passing=True
    )
