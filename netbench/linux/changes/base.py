"""The base classes of changes, and their view of the machine before they are made."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host, run_checked
from netbench.hosts.host_wrappers import NamespaceHost

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
    '" failed: Invalid argument',  # the file of a network namespace that was removed, or made, only in part
)
_BY_SHELL, _LAST_SIGNAL = 128, 64  # a shell's exit codes for commands ended by a signal: signal(7)
_FAILED = re.compile(r"Command failed .*:(\d+)$")


class MachineState:
    """The state of a machine at one moment: `host` is the machine outside all namespaces. Nothing is read twice."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.links = cache(self._links)
        self.neighbours = cache(self._neighbours)
        self.namespaces = cache(self._namespaces)

    def _links(self, netns: str | None) -> Mapping[str, Mapping[str, Any]]:
        """Return its interfaces in a namespace by name, from `ip -j address`."""
        return {link.get("ifname", ""): link for link in ip_json(self.host, netns, "address", "show")}

    def _neighbours(self, netns: str | None) -> list[dict[str, Any]]:
        """Return the permanent neighbours in a namespace, from `ip -j neigh`."""
        return ip_json(self.host, netns, "neigh", "show", "nud", "permanent")

    def _namespaces(self) -> list[str]:
        """Return its named network namespaces."""
        return self.host.run(["ls", "/run/netns"]).stdout.split()

    def refuse_existing(self, netns: str | None, interface: str) -> None:
        """Raise TestbedError when an interface of this name exists already."""
        if interface in self.links(netns):
            raise not_ours(f"the interface {interface} in {netns or 'this machine'}")


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `inside` is its namespace; it is removed with that namespace when netbench made the namespace.

    `host` is always the machine outside all namespaces.
    """

    @property
    def inside(self) -> str | None:
        """The namespace whose removal undoes this change; None when it must be undone by itself."""
        return None

    @property
    def command(self) -> str:
        """The equivalent command, as text."""
        raise NotImplementedError

    def found(self, state: MachineState) -> Self:
        """Return this change with the value it will replace, read before anything is written to the journal."""
        return self

    def make(self, host: Host) -> None:
        """Make the change."""
        raise NotImplementedError

    def undo(self, host: Host) -> None:
        """Undo the change; harmless when it was never made."""


class ChangeRecord:
    """Changes that were made and not yet undone, in the order they were made."""

    def __init__(self, pending: dict[int, Change] | None = None) -> None:
        self._pending = pending or {}
        self._next = max(self._pending, default=-1) + 1

    @property
    def pending(self) -> list[tuple[int, Change]]:
        """The changes not yet undone, each with its number."""
        return sorted(self._pending.items())

    def record(self, change: Change) -> int:
        """Record a change before it is made; return its number."""
        number = self._next
        self._pending[number] = change
        self._next += 1
        return number

    def undone(self, number: int) -> None:
        """Note that a change was undone."""
        del self._pending[number]


@dataclass(frozen=True, slots=True)
class InNamespace(Change):
    """A change inside a namespace, or (None) outside all."""

    netns: str | None

    @property
    def inside(self) -> str | None:
        return self.netns

    def _within(self, host: Host) -> Host:
        return NamespaceHost(host, self.netns) if self.netns else host

    def _argv(self, *words: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.netns, *words) if self.netns else words


@dataclass(frozen=True, slots=True)
class KernelRequest(Change):
    """A change that is one request to the kernel, by a tool of iproute2: one command makes several of them.

    It is made completely or not at all.
    """

    @property
    def tool(self) -> tuple[str, ...]:
        """`ip`, `bridge` or `tc`, in a namespace."""
        return ("ip",)

    @property
    def line(self) -> tuple[str, ...]:
        """The arguments of the tool."""
        raise NotImplementedError

    @property
    def undo_line(self) -> tuple[str, ...]:
        """The arguments that undo it; empty where it is removed with something else."""
        return ()

    @property
    def undo_tool(self) -> tuple[str, ...]:
        """The tool for `undo_line`."""
        return self.tool

    @property
    def command(self) -> str:
        return shlex.join((*self.tool, *self.line))


@dataclass(frozen=True, slots=True)
class RequestInNamespace(InNamespace, KernelRequest):
    """A request inside a namespace, or (None) outside all."""

    @property
    def tool(self) -> tuple[str, ...]:
        return tool_in("ip", self.netns)


def tool_in(tool: str, netns: str | None) -> tuple[str, ...]:
    """Return the command of an iproute2 tool in a namespace."""
    return (tool, "-n", netns) if netns else (tool,)


def ip_json(host: Host, netns: str | None, *words: str) -> list[dict[str, Any]]:
    """Return the list from `ip -j`; TestbedError when it fails."""
    text = run_checked(host, [*tool_in("ip", netns), "-j", *words])
    try:
        # iproute2 does not escape control characters in names.
        entries: list[dict[str, Any]] = json.loads(text or "[]", strict=False)
    except ValueError as error:
        command = f"ip -j {' '.join(words)}"
        raise TestbedError(f"{host}: the output of `{command}` is no JSON; install iproute2 there") from error
    return [entry for entry in entries if entry]


def run_batch(
    host: Host, tool: Sequence[str], lines: Sequence[Sequence[str]], *, force: bool = False
) -> dict[int, str]:
    """Make requests in order up to the first that fails, or (`force`) all; return failures: messages by position.

    TestbedError when the command was killed: any of the requests may have been made.
    """
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    command = [*tool, *(["-force"] if force else []), "-batch", "-"]
    done = host.run(command, stdin=text, timeout_s=120.0)
    if was_killed(done):
        raise TestbedError(f"{host}: `{' '.join(command)}` was killed and may have made only some of its changes")
    failed: dict[int, str] = {}
    messages: list[str] = []
    for line in done.stderr.splitlines():
        if match := _FAILED.match(line):
            failed[int(match[1]) - 1] = "; ".join(messages) or "no message"
            messages = []
        elif line.strip():
            messages.append(line.strip().removeprefix("RTNETLINK answers: ").removeprefix("Error: "))
    if done.exit_code != 0 and not failed:  # it failed before the first request
        failed = dict.fromkeys(range(len(lines)), "; ".join(messages) or f"exit code {done.exit_code}")
    return failed


def was_killed(done: Completed) -> bool:
    """Return whether a signal ended a command, or, from a shell's exit code, the command that the shell started."""
    return done.exit_code < 0 or _BY_SHELL < done.exit_code <= _BY_SHELL + _LAST_SIGNAL


def is_gone(message: str) -> bool:
    """Return whether a message of iproute2 or ethtool reports a missing object."""
    return any(gone in message for gone in _GONE)


def not_ours(what: str) -> TestbedError:
    """Return the error for an object that netbench did not make and must not touch."""
    return TestbedError(f"{what} is there already and not netbench's: remove it, or choose other names in the topology")
