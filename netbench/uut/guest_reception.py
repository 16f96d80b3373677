"""Waits until frames reach a guest: some NICs have a carrier and receive nothing yet."""

from collections.abc import Mapping, Sequence

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.remote_code import program_command
from netbench.linux.machine import Machine
from netbench.uut import reception_probe
from netbench.uut.base import Site
from netbench.uut.guest_links import GuestLink, GuestNics, points_inside

_RECEPTION_S = 20.0
_POLL_S = 0.05


def await_reception(
    site: Site, links: Sequence[GuestLink], nics: Mapping[str, GuestNics], guest: Machine, title: str
) -> None:
    """Return once every ingress NIC of a guest has received a frame; TestbedError if that exceeds its time limit.

    `nics` are the names of its NICs, by stream.
    """
    points = points_inside(nics, own_kernel=False)

    def received() -> dict[str, int]:
        counters = guest.count(points).counters
        return {reading.stream: reading.frames or 0 for reading in counters if reading.counter == "rx"}

    before = received()
    for link in links:
        if link.role == "ingress":
            host, interface = _in_front_of(link, site)
            run_checked(host, program_command(host, reception_probe, interface, link.mac))
    if not wait_until(
        lambda: all(frames > before[stream] for stream, frames in received().items()), _RECEPTION_S, _POLL_S
    ):
        raise TestbedError(f"{title}: it takes no frames {_RECEPTION_S:g} s after its NICs came up")


def _in_front_of(link: GuestLink, site: Site) -> tuple[Host, str]:
    """Return the host and interface from which a frame enters the guest by a link."""
    if not link.attachment.on_nic:
        return site.host, link.interface
    # Frames sent by such an interface leave through its NIC, away from the guest.
    source = next(path.source for path in site.paths if path.name == link.stream)
    return site.hosts[source.host], source.interface
