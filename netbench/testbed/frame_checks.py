"""Frames that a generator cannot send, a sink cannot count, or a link cannot carry: refused at the start."""

from collections.abc import Collection, Iterator, Mapping

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize, largest_frame
from netbench.model.profile import Profile
from netbench.model.scenario import Activity, Network
from netbench.model.topology import Topology
from netbench.model.topology_specs import StreamSpec


def refuse_half(profile: Profile) -> None:
    """UsageError for a sink that counts the frames of one generator only, with another generator."""
    generator, sink = profile.generator.kind, profile.sink.kind
    if plugins(SINKS)[sink].counts_own_only and plugins(GENERATORS)[generator] is not plugins(SINKS)[sink]:
        raise UsageError(
            f"profile {profile.name}: the sink {sink} counts frames of the generator {sink} only, and the generator is "
            f"{generator}; take {sink} for both, or another sink"
        )


def refuse_mixes(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for a mix of sizes where the generator cannot send one, or the sink cannot count it."""
    generator, sink = profile.generator.kind, profile.sink.kind
    mixes = [size for _, size in sent_frames(topology, profile, activities) if size.is_mix]
    for mix in mixes:
        if not plugins(GENERATORS)[generator].sends_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the generator {generator} cannot send frames of several sizes in the "
                "order of a genome (RFC 6985); take afpacket, xdp or auto, or leave mixes out"
            )
        if not plugins(SINKS)[sink].counts_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the sink {sink} counts frames of one size, and a mix has several; "
                "take tcpdump, bpf or auto, or leave mixes out"
            )


def refuse_too_large(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for frames too large for a link on their path or for the generator; it names which."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    most = kind(kind.Options.model_validate(profile.generator.options)).largest_frame
    for stream, any_size in sent_frames(topology, profile, activities):
        size, is_mix = any_size.largest_bytes, any_size.is_mix
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


def sent_frames(
    topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]
) -> Iterator[tuple[StreamSpec, FrameSize]]:
    """Yield each stream with the sizes of its frames in any scenario."""
    for stream in topology.own_streams:
        for size in profile.all_frame_sizes:
            yield stream, size
    streams = {stream.name: stream for stream in topology.streams}
    for neighbour in topology.neighbours:
        sizes = {act.frame_size for act in activities.get(neighbour.name, ()) if isinstance(act, Network)}
        for name in neighbour.streams:
            yield from ((streams[name], size) for size in sorted(sizes))
