"""Places on the path of frames that count them, and what they have counted at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netbench.model.paths import Place

# Every hop there can be, from source to sink. One that is not named here is inside the unit under test (INSIDE).
INSIDE = "uut"
PATH = (
    "generator",
    "source NIC",
    "ingress NIC",
    "softnet backlog",
    "bridge",
    "IP layer",
    "ingress tap",
    "VMM ingress",
    "guest ingress NIC",
    "guest softnet",
    "guest IP layer",
    "guest",
    INSIDE,
    "guest egress queue",
    "guest egress NIC",
    "VMM egress",
    "egress tap",
    "egress bridge",
    "egress NIC",
    "sink NIC",
    "capture",
)


@dataclass(frozen=True, slots=True)
class HopReading:
    """Frames that one hop has counted so far.

    `stream` is empty where the hop does not tell streams apart. `role` is `passed`, `dropped` or `errors`, or
    `repeated` for drops of frames that another hop counts too, as lost or as captured. `frames` is None where something
    may drop frames without counting them (a rule without a counter): unknown is not 0.
    """

    stream: str
    hop: str
    counter: str
    role: str
    frames: int | None


class HopPoint(NamedTuple):
    """An interface on a stream's path as a hop: frames of the stream go through it as `rx` or `tx`."""

    stream: str
    hop: str
    place: Place
    direction: str


@dataclass(frozen=True, slots=True)
class Hops:
    """What a unit under test declares of the machine it is on, beside its NICs: interfaces, and kernels that forward.

    `stacks` has, for each network namespace (None: outside all) in which frames of its streams are forwarded, the hop
    that forwards: `bridge` or `IP layer`.
    """

    points: tuple[HopPoint, ...] = ()
    stacks: Mapping[str | None, str] = field(default_factory=dict)


def hop_of(place: str) -> str:
    """The hop of a place that names its counter too: `ingress tap` of `ingress tap (tx_dropped)`."""
    return place.partition(" (")[0]


def rank(place: str) -> int:
    """By which hops sort from source to sink; a counter of one, `ingress tap (tx_dropped)`, is where its hop is."""
    hop = hop_of(place)
    return PATH.index(hop if hop in PATH else INSIDE)
