"""The base classes of changes, and the state of the machine before they are made."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host, fault_in, run_checked
from netbench.hosts.host_wrappers import NamespaceHost

_BY_SHELL, _LAST_SIGNAL = 128, 64  # a shell's exit codes for commands ended by a signal: signal(7)
_FAILED = re.compile(r"Command failed .*:(\d+)$")


class MachineState:
    """The state of a machine at one moment: `host` is the machine outside all namespaces. Nothing is read twice.

    `links`: the interfaces of a namespace by name (`ip -j address`). `neighbours`: its permanent neighbours.
    `namespaces`: the named network namespaces.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.links = cache(
            lambda netns: {link.get("ifname", ""): link for link in ip_json(host, netns, "address", "show")}
        )
        self.neighbours = cache(lambda netns: ip_json(host, netns, "neigh", "show", "nud", "permanent"))
        self.namespaces = cache(lambda: host.run(["ls", "/run/netns"]).stdout.split())

    def link(self, netns: str | None, interface: str) -> dict[str, Any]:
        """Return an interface, from `ip -j address`; empty when it does not exist."""
        return self.links(netns).get(interface, {})

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

    def with_former_state(self, state: MachineState) -> Self:
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

    def _shell_command(self, *words: str) -> str:
        return shlex.join(("ip", "netns", "exec", self.netns, *words) if self.netns else words)


@dataclass(frozen=True, slots=True)
class KernelRequest(Change):
    """A change that is one request to the kernel, by a tool of iproute2: one command makes several of them.

    It is made completely or not at all. REQUEST and UNDO are the arguments of PROGRAM (`ip`, `bridge` or `tc`), as
    templates of the change's attributes. UNDO is empty for an object that is removed with another one.
    """

    PROGRAM: ClassVar[str] = "ip"
    REQUEST: ClassVar[str] = ""
    UNDO: ClassVar[str] = ""

    @property
    def tool(self) -> tuple[str, ...]:
        """The program, in a namespace."""
        return (self.PROGRAM,)

    @property
    def line(self) -> tuple[str, ...]:
        """The arguments of the tool."""
        return self._words(self.REQUEST)

    @property
    def undo_line(self) -> tuple[str, ...]:
        """The arguments of `undo_tool` that undo it; empty where it is removed with something else."""
        return self._words(self.UNDO)

    @property
    def undo_tool(self) -> tuple[str, ...]:
        """The tool for `undo_line`."""
        return self.tool

    @property
    def command(self) -> str:
        return shlex.join((*self.tool, *self.line))

    def _words(self, template: str) -> tuple[str, ...]:
        return tuple(word.format(self) for word in template.split())


@dataclass(frozen=True, slots=True)
class RequestInNamespace(InNamespace, KernelRequest):
    """A request inside a namespace, or (None) outside all."""

    @property
    def tool(self) -> tuple[str, ...]:
        return tool_in(self.PROGRAM, self.netns)


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
) -> dict[int, TestbedError]:
    """Make requests in order up to the first that fails, or (`force`) all; return failures by position.

    TestbedError when the command was killed: any of the requests may have been made.
    """
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    command = [*tool, *(["-force"] if force else []), "-batch", "-"]
    done = host.run(command, stdin=text, timeout_s=120.0)
    if was_killed(done):
        raise TestbedError(f"{host}: `{' '.join(command)}` was killed and may have made only some of its changes")
    failed: dict[int, TestbedError] = {}
    messages: list[str] = []
    for line in done.stderr.splitlines():
        if match := _FAILED.match(line):
            failed[int(match[1]) - 1] = _failure("; ".join(messages) or "no message")
            messages = []
        elif line.strip():
            messages.append(line.strip().removeprefix("RTNETLINK answers: ").removeprefix("Error: "))
    if done.exit_code != 0 and not failed:  # it failed before the first request
        failed = dict.fromkeys(range(len(lines)), _failure("; ".join(messages) or f"exit code {done.exit_code}"))
    return failed


def _failure(words: str) -> TestbedError:
    return TestbedError(words, words=words, fault=fault_in(words))


def was_killed(done: Completed) -> bool:
    """Return whether a signal ended a command, or, from a shell's exit code, the command that the shell started."""
    return done.exit_code < 0 or _BY_SHELL < done.exit_code <= _BY_SHELL + _LAST_SIGNAL


def not_ours(what: str) -> TestbedError:
    """Return the error for an object that netbench did not make and must not touch."""
    return TestbedError(f"{what} exists already and is not netbench's: remove it, or use other names in the topology")
