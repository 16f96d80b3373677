"""Routes and routing rules, made by iproute2, for IPv4 and IPv6."""

from dataclasses import dataclass
from typing import ClassVar, Self

from netbench.errors import TestbedError
from netbench.linux.changes.base import MachineState, RequestInNamespace, ip_json, not_ours

MAIN_TABLE = 254  # ip-route(8)
_ANY = {4: "0.0.0.0/0", 6: "::/0"}


@dataclass(frozen=True, slots=True)
class RequestOfFamily(RequestInNamespace):
    """A request about IPv4 or IPv6: `version` is 4 or 6. They have separate tables and rules."""

    version: int

    @property
    def tool(self) -> tuple[str, ...]:
        netns = ("-n", self.netns) if self.netns else ()
        return (self.PROGRAM, f"-{self.version}", *netns)

    def _listed(self, state: MachineState, *words: str) -> bool:
        """Return whether the kernel lists anything for `ip WORDS`."""
        try:
            return bool(ip_json(state.host, self.netns, f"-{self.version}", *words))
        except TestbedError:
            return False  # there is no such table


@dataclass(frozen=True, slots=True)
class AddRule(RequestOfFamily):
    """Route the packets that `interface` receives by a separate table, before the machine's tables.

    `selector` restricts the rule to some of them: `ipproto udp dport 4789` (ip-rule(8)).
    """

    RULE: ClassVar[str] = "pref {0.preference} iif {0.interface} {0.selector} lookup {0.table}"
    REQUEST: ClassVar[str] = f"rule add {RULE}"
    UNDO: ClassVar[str] = f"rule del {RULE}"
    interface: str
    table: int
    selector: str = ""
    preference: int = 1000

    def _words(self, template: str) -> tuple[str, ...]:
        return tuple(template.format(self).split())

    def with_former_state(self, state: MachineState) -> Self:
        if self._listed(state, "rule", "show", "table", str(self.table)):
            raise not_ours(f"a routing rule for the table {self.table}")
        return self


@dataclass(frozen=True, slots=True)
class AddRoute(RequestOfFamily):
    """A route of a table: through a neighbour on `interface`, or without `gateway` to the machine itself.

    `destination` is a network in CIDR notation; empty: the default route, which is the table's only one.
    """

    interface: str
    table: int
    gateway: str = ""
    destination: str = ""

    @property
    def line(self) -> tuple[str, ...]:
        return ("route", "add", *self._route)

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("route", "del", *self._route)

    @property
    def _route(self) -> tuple[str, ...]:
        destination = self.destination or _ANY[self.version]
        if not self.gateway:
            return self._words(f"local {destination} dev {{0.interface}} table {{0.table}}")
        return self._words(f"{destination} via {{0.gateway}} dev {{0.interface}} onlink table {{0.table}}")

    def with_former_state(self, state: MachineState) -> Self:
        exactly = ("exact", self.destination) if self.destination else ()
        if self._listed(state, "route", "show", *exactly, "table", str(self.table)):
            raise not_ours(" ".join((f"the routing table {self.table}", *exactly)))
        return self
