"""The frames that a testbed cannot carry: too large for a link or for the generator, or mixes of sizes."""

from collections.abc import Collection, Iterator, Mapping

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.errors import UsageError
from netbench.model.frame_mix import FrameMix, FrameSize, largest_bytes, rising
from netbench.model.profile import Profile
from netbench.model.scenario import Activity, Network
from netbench.model.topology import Topology
from netbench.model.topology_specs import StreamSpec
from netbench.model.units import largest_frame


def refuse_mixes(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for a mix of sizes where the generator cannot send one, or the sink cannot count it."""
    generator, sink = profile.generator.kind, profile.sink.kind
    mixes = [size for _, size in _sent(topology, profile, activities) if isinstance(size, FrameMix)]
    for mix in mixes:
        if not plugins(GENERATORS)[generator].sends_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the generator {generator} cannot send frames of several sizes in the "
                "order of a genome (RFC 6985); take afpacket, xdp or auto, or leave mixes out"
            )
        if not plugins(SINKS)[sink].counts_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the sink {sink} cannot tell which size each frame of a mix should "
                "have; take tcpdump or auto, or leave mixes out"
            )


def refuse_too_large(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for frames too large for a link on their path or for the generator; it names which."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    most = kind(kind.Options.model_validate(profile.generator.options)).largest_frame
    for stream, any_size in _sent(topology, profile, activities):
        size = largest_bytes(any_size)
        is_mix = isinstance(any_size, FrameMix)
        of_mix, others = (f" (of {any_size})", "afpacket or auto") if is_mix else ("", "afpacket, pktgen or auto")
        for link in topology.links_of(stream):
            if size > largest_frame(link.mtu_bytes):
                larger = f"give it `mtu: {size - largest_frame(0)}` or more in topology {topology.name}"
                raise UsageError(
                    f"profile {profile.name}: frames of {size} bytes{of_mix}: link {' – '.join(link.ends)} takes at "
                    f"most {largest_frame(link.mtu_bytes)} (MTU {link.mtu_bytes}); {larger}, or leave such frames out"
                )
        if most is not None and size > most:
            raise UsageError(
                f"profile {profile.name}: frames of {size} bytes{of_mix}: the generator {profile.generator.kind} makes "
                f"at most {most}; take {others}, or leave such frames out"
            )


def _sent(
    topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]
) -> Iterator[tuple[StreamSpec, FrameSize]]:
    for stream in topology.own_streams:
        for size in profile.frame_sizes:
            yield stream, size
    streams = {stream.name: stream for stream in topology.streams}
    for neighbour in topology.neighbours:
        sizes = {act.frame_size for act in activities.get(neighbour.name, ()) if isinstance(act, Network)}
        for name in neighbour.streams:
            yield from ((streams[name], size) for size in sorted(sizes, key=rising))
