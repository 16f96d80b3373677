"""Netlink requests, and words of commands, that several changes share."""

from collections.abc import Callable
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError
from netbench.linux.changes.base import Machine

_GONE = (19, 2, 3, 99)  # ENODEV, ENOENT, ESRCH, EADDRNOTAVAIL
_IFF_UP = 0x1


def refuse_existing(machine: Machine, netns: str | None, interface: str) -> None:
    """TestbedError when an interface of this name is there already."""
    if machine.netlink.has(netns, interface):
        raise not_ours(f"the interface {interface} in {netns or 'this machine'}")


def not_ours(what: str) -> TestbedError:
    """The error for something that netbench did not make and must not touch."""
    return TestbedError(f"{what} is there already and not netbench's: remove it, or choose other names in the topology")


def is_up(machine: Machine, netns: str | None, interface: str) -> bool:
    """Whether an interface is set up; TestbedError when it is not there."""
    flags = machine.netlink.socket(netns).get_links(machine.netlink.index(netns, interface))[0]["flags"]
    return bool(flags & _IFF_UP)


def in_netns(netns: str | None) -> tuple[str, ...]:
    """The words of `ip link` that place an interface in a namespace."""
    return ("netns", netns) if netns else ()


def ip(netns: str | None) -> tuple[str, ...]:
    """`ip`, in a namespace."""
    return ("ip", "-n", netns) if netns else ("ip",)


def inside_of(netns: str | None) -> tuple[str, ...]:
    """What runs a command inside a namespace."""
    return ("ip", "netns", "exec", netns) if netns else ()


def delete_argv(netns: str | None, interface: str) -> tuple[str, ...]:
    """The command that deletes an interface."""
    return *ip(netns), "link", "del", interface


def delete_link(machine: Machine, netns: str | None, interface: str) -> None:
    """Delete an interface, if it is there."""
    tolerating_gone(lambda: machine.link(netns, "del", interface))


def tolerant_link(machine: Machine, netns: str | None, interface: str, **settings: Any) -> None:  # noqa: ANN401 - pyroute2 is untyped
    """Change an interface, if it is there."""
    tolerating_gone(lambda: machine.link(netns, "set", interface, **settings))


def tolerating_gone(request: Callable[[], None]) -> None:
    """Carry out a request, unless what it is about is gone."""
    try:
        request()
    except TestbedError:
        return  # no such interface or namespace
    except NetlinkError as error:
        if error.code not in _GONE:
            raise
