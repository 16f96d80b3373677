"""The NICs of this host, and whether they may be taken over."""

from collections.abc import Collection, Iterator, Mapping

from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import NetbenchError
from netbench.linux.safety import Port, read_ports, refuse_unsafe_port
from netbench.testbed.doctor.checks import Check, Status


def check_all_ports() -> list[Check]:
    """Each NIC of this host, with what uses it; none of them has to be free."""
    try:
        nics = [port for port in read_ports() if port.kind is None and port.name != "lo"]
    except (OSError, NetlinkError, NetbenchError) as error:
        return [Check("ports", Status.WARNING, f"not checked: {error}", "", "testbeds of real NICs")]
    return [_listed_port(port) for port in nics]


def _listed_port(port: Port) -> Check:
    speed = f"{port.speed_mbps} Mbit/s" if port.speed_mbps else "speed unknown"
    carrier = "link up" if port.carrier else "no link"
    found = f"{port.driver or 'driver unknown'}, {speed}, {carrier}, {port.mac}"
    if port.in_use:
        found += f": {'; '.join(port.in_use)}"
    status = Status.IN_USE if port.in_use else Status.OK
    return Check(f"port:{port.name}", status, found, "", "testbeds of real NICs")


def check_named_ports(needs: frozenset[str], addresses: Mapping[str, Collection[str]]) -> Iterator[Check]:
    """The ports among `needs`; of the `addresses` that the user names for each, none makes it one in use."""
    for name in sorted(need.removeprefix("port:") for need in needs if need.startswith("port:")):
        needed_for = "the topology, which names it"
        try:
            refuse_unsafe_port(name, addresses.get(name, ()))
        except NetbenchError as error:
            yield Check(f"port:{name}", Status.MISSING, str(error), "change the topology", needed_for)
        else:
            yield Check(f"port:{name}", Status.OK, "there, and free", "", needed_for)
