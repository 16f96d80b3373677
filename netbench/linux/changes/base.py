"""What every change is, and how it looks at the machine before it is made."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host, run_checked
from netbench.hosts.composed import Namespaced

# Messages of iproute2 and ethtool about objects that no longer exist: their changes are undone already.
_GONE = (
    "Cannot find device",
    "Cannot find bridge device",
    "no device matches name",
    "does not exist",
    "No such device",
    "No such file or directory",
    "No such process",
    "Cannot assign requested address",
    "Cannot delete qdisc with handle of zero",
    "Invalid handle",
    '" failed: Invalid argument',  # the file of a network namespace that was removed, or never made, by halves
)
_BY_SHELL, _LAST_SIGNAL = 128, 64  # exit codes of a shell for what a signal ended: signal(7)
_FAILED = re.compile(r"Command failed .*:(\d+)$")


class Look:
    """A machine as it is found at one moment: `host` is the machine outside all namespaces. Nothing is read twice."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.links = cache(self._links)
        self.neighbours = cache(self._neighbours)
        self.namespaces = cache(self._namespaces)

    def _links(self, netns: str | None) -> Mapping[str, Mapping[str, Any]]:
        """Its interfaces in a namespace by name, as `ip -j address` tells of them."""
        return {link.get("ifname", ""): link for link in ask_ip(self.host, netns, "address", "show")}

    def _neighbours(self, netns: str | None) -> list[dict[str, Any]]:
        """The permanent neighbours in a namespace, as `ip -j neigh` tells of them."""
        return ask_ip(self.host, netns, "neigh", "show", "nud", "permanent")

    def _namespaces(self) -> list[str]:
        """Its named network namespaces."""
        return self.host.run(["ls", "/run/netns"]).stdout.split()

    def refuse_existing(self, netns: str | None, interface: str) -> None:
        """TestbedError when an interface of this name is there already."""
        if interface in self.links(netns):
            raise not_ours(f"the interface {interface} in {netns or 'this machine'}")


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `inside` is the namespace it lives in; it goes with that namespace when netbench made it.

    `host` is always the machine outside all namespaces.
    """

    @property
    def inside(self) -> str | None:
        """The namespace whose removal undoes this change; None when it must be undone by itself."""
        return None

    @property
    def command(self) -> str:
        """The command that does it, as text."""
        raise NotImplementedError

    def found(self, look: Look) -> Self:
        """This change with the value it will replace, read before anything is written to the journal."""
        return self

    def make(self, host: Host) -> None:
        """Make the change."""
        raise NotImplementedError

    def undo(self, host: Host) -> None:
        """Take it back; harmless when it was never made."""


@dataclass(frozen=True, slots=True)
class InNamespace(Change):
    """A change inside a namespace, or (None) outside all."""

    netns: str | None

    @property
    def inside(self) -> str | None:
        return self.netns

    def _within(self, host: Host) -> Host:
        return Namespaced(host, self.netns) if self.netns else host

    def _argv(self, *words: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.netns, *words) if self.netns else words


@dataclass(frozen=True, slots=True)
class Request(Change):
    """A change that is one request to the kernel, by a tool of iproute2: a machine makes several by one command.

    Done or not done, never done in part.
    """

    @property
    def tool(self) -> tuple[str, ...]:
        """`ip`, `bridge` or `tc`, in a namespace."""
        return ("ip",)

    @property
    def line(self) -> tuple[str, ...]:
        """What the tool is told."""
        raise NotImplementedError

    @property
    def undo_line(self) -> tuple[str, ...]:
        """What takes it back; empty where it goes with something else."""
        return ()

    @property
    def undo_tool(self) -> tuple[str, ...]:
        """What is told that."""
        return self.tool

    @property
    def command(self) -> str:
        return shlex.join((*self.tool, *self.line))


@dataclass(frozen=True, slots=True)
class RequestInNamespace(InNamespace, Request):
    """A request inside a namespace, or (None) outside all."""

    @property
    def tool(self) -> tuple[str, ...]:
        return within("ip", self.netns)


def within(tool: str, netns: str | None) -> tuple[str, ...]:
    """A tool of iproute2 in a namespace."""
    return (tool, "-n", netns) if netns else (tool,)


def ask_ip(host: Host, netns: str | None, *words: str) -> list[dict[str, Any]]:
    """What `ip -j` lists; TestbedError when it does not."""
    text = run_checked(host, [*within("ip", netns), "-j", *words])
    try:
        # iproute2 writes control characters of names as they are.
        listed: list[dict[str, Any]] = json.loads(text or "[]", strict=False)
        return [one for one in listed if one]
    except ValueError as error:
        raise TestbedError(f"{host}: what `ip -j {' '.join(words)}` lists makes no sense; it needs iproute2") from error


def tell(
    host: Host, tool: Sequence[str], lines: Sequence[Sequence[str]], *, all_of_them: bool = False
) -> dict[int, str]:
    """Make requests in order up to the first that fails, or all of them; the words about each that failed, by place.

    TestbedError when the command was killed: any of the requests may have been made.
    """
    force = ["-force"] if all_of_them else []
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    command = [*tool, *force, "-batch", "-"]
    done = host.run(command, stdin=text, timeout_s=120.0)
    if was_killed(done):
        raise TestbedError(f"{host}: `{' '.join(command)}` was killed and may have made only some of its changes")
    failed: dict[int, str] = {}
    words: list[str] = []
    for line in done.stderr.splitlines():
        if match := _FAILED.match(line):
            failed[int(match[1]) - 1] = "; ".join(words) or "no message"
            words = []
        elif line.strip():
            words.append(line.strip().removeprefix("RTNETLINK answers: ").removeprefix("Error: "))
    if done.exit_code != 0 and not failed:  # not even begun
        failed = dict.fromkeys(range(len(lines)), "; ".join(words) or f"exit code {done.exit_code}")
    return failed


def was_killed(done: Completed) -> bool:
    """Whether a signal ended a command, or, as a shell reports it, what a shell had started."""
    return done.exit_code < 0 or _BY_SHELL < done.exit_code <= _BY_SHELL + _LAST_SIGNAL


def is_gone(words: str) -> bool:
    """Return whether a message of iproute2 or ethtool reports a missing object."""
    return any(gone in words for gone in _GONE)


def not_ours(what: str) -> TestbedError:
    """The error for something that netbench did not make and must not touch."""
    return TestbedError(f"{what} is there already and not netbench's: remove it, or choose other names in the topology")
