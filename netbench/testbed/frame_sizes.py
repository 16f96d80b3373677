"""Which frames are too large for the links of a testbed, or for what sends them."""

from collections.abc import Collection, Iterator, Mapping

from netbench.config.plugins import GENERATORS, plugins
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.scenario import Activity, Network
from netbench.model.topology import StreamSpec, Topology
from netbench.model.units import largest_frame


def refuse_too_large(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for frames that a link on their way, or the generator, does not take; it names which."""
    most = plugins(GENERATORS)[profile.generator.kind].largest_frame
    for stream, size in _sent(topology, profile, activities):
        for link in topology.links_of(stream):
            if size > largest_frame(link.mtu_bytes):
                larger = f"give it `mtu: {size - largest_frame(0)}` or more in topology {topology.name}"
                raise UsageError(
                    f"profile {profile.name}: frames of {size} bytes: link {' – '.join(link.ends)} takes at most "
                    f"{largest_frame(link.mtu_bytes)} (MTU {link.mtu_bytes}); {larger}, or leave such frames out"
                )
        if most is not None and size > most:
            raise UsageError(
                f"profile {profile.name}: frames of {size} bytes: the generator {profile.generator.kind} makes at most "
                f"{most}; take afpacket, pktgen or auto, or leave such frames out"
            )


def _sent(
    topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]
) -> Iterator[tuple[StreamSpec, int]]:
    for stream in topology.own_streams:
        for size in profile.frame_sizes:
            yield stream, size
    streams = {stream.name: stream for stream in topology.streams}
    for neighbour in topology.neighbours:
        sizes = {does.frame_size for does in activities.get(neighbour.name, ()) if isinstance(does, Network)}
        for name in neighbour.streams:
            yield from ((streams[name], size) for size in sorted(sizes))
