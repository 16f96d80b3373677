"""What interfaces are called, in a topology and on a machine. Loads next to nothing, as it does on other hosts."""

from typing import NamedTuple

# Of whatever netbench makes on a machine: an interface name has at most 15 characters (IFNAMSIZ).
PREFIX = "nb-"


class Place(NamedTuple):
    """Where an interface is: in a network namespace (None: outside all) of a machine (None: this one)."""

    machine: str | None
    netns: str | None
    interface: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


def split_endpoint(text: str) -> tuple[str, str]:
    """The host and the NIC of `host/nic`; ValueError for anything else."""
    host, slash, nic = text.partition("/")
    if not (host and slash and nic) or "/" in nic:
        raise ValueError("not a NIC of a host; write it as host/nic, for example uut/in1")
    return host, nic


def host_of(end: str) -> str:
    """The host part of `host/nic`."""
    return split_endpoint(end)[0]
