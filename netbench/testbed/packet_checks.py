"""Described packets that a source, a sink or a link of a testbed cannot carry: refused before anything is touched."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize, largest_frame
from netbench.model.packet import Packet
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.packets.build import added_bytes, check_learned_addresses, check_varying_fields, smallest_frame
from netbench.uut.base import UnitUnderTest

_TAG_BYTES = 4


class _SentPacket(NamedTuple):
    """A described packet of a campaign, the place of its description for messages, and the sizes of its frames."""

    where: str
    packet: Packet
    sizes: Sequence[FrameSize]
    size_key: str  # of the frame sizes, for messages
    stream: str = ""  # that has this packet


def refuse_packets(profile: Profile, paths: Sequence[StreamPath], sizes: Mapping[str, Sequence[FrameSize]]) -> None:
    """UsageError for a packet that generator or sink do not support, or that frames or links are too small for.

    `sizes` are the sizes that each stream sends. The message has the packet, the layer or field, and the remedy.
    """
    for sent in _sent_packets(profile, paths, sizes):
        _refuse_generator(sent, profile)
        _refuse_sink(sent, profile)
        _refuse_sizes(sent, paths)
        _refuse_varying(sent)
        _refuse_addresses(sent, paths)


def unsuitable_frames(profile: Profile, uut: UnitUnderTest, paths: Sequence[StreamPath]) -> dict[str, str]:
    """Return why streams cannot send frames through a UUT, by size and packet (`1518 vxlan`).

    Links may be unable to carry the longer frames behind the UUT: Linux sends frames with a VLAN tag that are 4 bytes
    longer than the MTU permits. Reverse streams send answers, which the generator may not support, or which may have
    more headers than the frames have room for. UsageError for frames of a stream's own packet.
    """
    reasons = {}
    for path in paths:
        sizes = profile.frame_sizes if path.packet else profile.all_frame_sizes
        for size in sizes:
            packet = path.packet or profile.packets.get(size.packet)
            if packet is None or str(size) in reasons:
                continue
            reason = _unsuitable_reason(profile, uut, path, uut.sent_packet(packet, path), size)
            if reason and path.packet:
                raise UsageError(f"stream {path.name}: frames of {size} bytes: {reason}")
            if reason:
                reasons[str(size)] = reason
    return reasons


def _unsuitable_reason(profile: Profile, uut: UnitUnderTest, path: StreamPath, sent: Packet, size: FrameSize) -> str:
    """Return why a stream cannot send a packet through a UUT in frames of this size; empty if it can."""
    added, most = uut.added_bytes(sent, path), largest_frame(path.mtu)
    if added > _TAG_BYTES and size.largest_bytes + added > most:
        return (
            f"it makes its frames {added} bytes longer, and the links of stream {path.name} take at most {most} "
            f"bytes (MTU {path.mtu}): give them a larger `mtu`, or send frames of at most {most - added} bytes"
        )
    if not path.reverse_of or path.packet:
        return ""  # checked for all UUTs
    answers = f"reverse stream {path.name} sends {sent.headers}"
    if reason := _unsent_reason(sent, profile):
        return f"{answers}: {reason}"
    try:
        least = smallest_frame(sent)
        if size.sizes[0] < least:
            remedy = f"set frame_sizes to {least} or more, or leave the reverse stream out"
            return f"{answers}, whose smallest frames have {least} bytes: {remedy}"
        if sent.vary:
            check_varying_fields(sent, size)
    except UsageError as error:
        return f"{answers}: {error}"
    return ""


def _sent_packets(
    profile: Profile, paths: Sequence[StreamPath], sizes: Mapping[str, Sequence[FrameSize]]
) -> Iterator[_SentPacket]:
    """Yield the packets of the profile, and those of streams."""
    for name, packet in profile.packets.items():
        yield _SentPacket(f"profile {profile.name}: packet {name}", packet, profile.frame_sizes, "frame_sizes")
    for path in paths:
        if path.packet is not None:
            where = f"stream {path.name}: packet {path.packet.name}"
            yield _SentPacket(where, path.packet, sizes.get(path.name, ()), "its frame size", path.name)


def _refuse_generator(sent: _SentPacket, profile: Profile) -> None:
    if reason := _unsent_reason(sent.packet, profile):
        raise UsageError(f"{sent.where}: {reason}")


def _unsent_reason(packet: Packet, profile: Profile) -> str:
    """Return why the generator cannot send a packet, with layer or field and the remedy; empty if it can."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    reason = kind(kind.Options.model_validate(profile.generator.options)).unsupported_part(packet)
    if not reason:
        return ""
    return f"the generator {profile.generator.kind} cannot send it: {reason}; use `generator: auto`, afpacket or xdp"


def _refuse_sink(sent: _SentPacket, profile: Profile) -> None:
    if not plugins(SINKS)[profile.sink.kind].counts_packets:
        raise UsageError(
            f"{sent.where}: the sink {profile.sink.kind} recognises plain frames only; use `sink: auto`, tcpdump or bpf"
        )


def _refuse_sizes(sent: _SentPacket, paths: Sequence[StreamPath]) -> None:
    try:
        least, added = smallest_frame(sent.packet), added_bytes(sent.packet)
    except UsageError as error:
        raise UsageError(f"{sent.where}: {error}") from error
    for size in sent.sizes:
        if size.sizes[0] < least:
            of_mix = f" (of {size})" if size.is_mix else ""
            raise UsageError(
                f"{sent.where}: frames of {size.sizes[0]} bytes{of_mix} have no room for {sent.packet.headers} and "
                f"pktgen's header: the smallest have {least} bytes; set {sent.size_key} to {least} or more, or "
                "describe fewer layers"
            )
        for path in paths:
            if size.largest_bytes + max(0, added) > largest_frame(path.mtu):
                raise UsageError(
                    f"{sent.where}: frames of {size.largest_bytes} bytes are {added} bytes longer at the sink of "
                    f"stream {path.name}, whose links take at most {largest_frame(path.mtu)} (MTU {path.mtu}): give "
                    f"them a larger `mtu`, or send frames of at most {largest_frame(path.mtu) - added} bytes"
                )


def _refuse_varying(sent: _SentPacket) -> None:
    if not sent.packet.vary:
        return
    for size in sent.sizes:
        try:
            check_varying_fields(sent.packet, size)
        except UsageError as error:
            raise UsageError(f"{sent.where}: vary: {error}") from error


def _refuse_addresses(sent: _SentPacket, paths: Sequence[StreamPath]) -> None:
    """Refuse a packet with more destination MAC addresses and VLANs than sinks announce to bridges outside."""
    for path in paths:
        sends = path.name == sent.stream if sent.stream else path.packet is None
        packet = sent.packet if sent.stream else path.packet_of(sent.packet)
        if not (sends and path.leads_outside and packet and packet.vary):
            continue
        for size in sent.sizes[:1]:  # headers are the same in all sizes
            try:
                check_learned_addresses(packet, size)
            except UsageError as error:
                raise UsageError(f"{sent.where}: vary: {error} (stream {path.name})") from error
