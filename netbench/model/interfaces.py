"""Names of interfaces, in a topology and on a machine. It imports next to nothing, because other hosts load it too."""

from typing import NamedTuple

# The prefix of everything that netbench makes on a machine: an interface name has at most 15 characters (IFNAMSIZ).
PREFIX = "nb-"


class InterfaceRef(NamedTuple):
    """The location of an interface: a network namespace (None: none) of a machine (None: this one)."""

    machine: str | None
    netns: str | None
    interface: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


def split_endpoint(text: str) -> tuple[str, str]:
    """Return the host and the NIC of `host/nic`; ValueError for anything else."""
    host, slash, nic = text.partition("/")
    if not (host and slash and nic) or "/" in nic:
        raise ValueError("not a NIC of a host; write it as host/nic, for example uut/in1")
    return host, nic


def host_of(end: str) -> str:
    """Return the host part of `host/nic`."""
    return split_endpoint(end)[0]
