"""What makes a Linux guest forward between the NICs of each stream: commands for it, as data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.names import PREFIX
from netbench.model.paths import PREFIX_LENGTH, StreamPath


@dataclass(frozen=True, slots=True)
class GuestNics:
    """The names of one stream's NICs, as the guest calls them."""

    ingress: str
    egress: str


@dataclass(frozen=True, slots=True)
class GuestCommand:
    """A command for the guest, and what it reads."""

    argv: tuple[str, ...]
    stdin: str


def guest_mac(path: StreamPath, role: str) -> str:
    """The MAC address of a guest's NIC: locally administered, `ng` in ASCII, then stream number and role."""
    return f"02:6e:67:00:{path.number:02x}:{1 if role == 'ingress' else 2:02x}"


def forwarding_commands(
    paths: Sequence[StreamPath], nics: Mapping[str, GuestNics], forward: str
) -> Iterator[GuestCommand]:
    """What a guest is told so that it forwards; `nics` is by stream, `forward` is `bridge` or `route`."""
    if not paths:
        return
    settings = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
    if forward == "route":
        settings += ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.all.send_redirects=0"]
    # -e: a kernel without IPv6 has nothing to switch off. Any other that is refused shows as frames not forwarded.
    yield GuestCommand(("sysctl", "-e", "-w", *settings), "")
    lines = [line for path in paths for line in _lines(path, nics[path.name], forward)]
    yield GuestCommand(("ip", "-batch", "-"), "".join(f"{line}\n" for line in lines))
    if forward == "bridge":
        entries = [f"fdb replace {path.sink.mac} dev {nics[path.name].egress} master static" for path in paths]
        yield GuestCommand(("bridge", "-batch", "-"), "".join(f"{line}\n" for line in entries))


def _lines(path: StreamPath, nics: GuestNics, forward: str) -> Iterator[str]:
    yield f"link set {nics.ingress} up"
    yield f"link set {nics.egress} up"
    if forward == "bridge":
        bridge = f"{PREFIX}br-{path.name}"
        yield f"link add {bridge} type bridge stp_state 0 mcast_snooping 0 forward_delay 0"
        yield f"link set {nics.ingress} master {bridge}"
        yield f"link set {nics.egress} master {bridge}"
        yield f"link set {bridge} up"
    else:
        yield f"address add {path.ingress_ip}/{PREFIX_LENGTH} dev {nics.ingress}"
        yield f"address add {path.egress_ip}/{PREFIX_LENGTH} dev {nics.egress}"
        yield f"neigh replace {path.dst_ip} lladdr {path.sink.mac} dev {nics.egress} nud permanent"
