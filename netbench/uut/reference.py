"""UUT `reference`: a kernel that forwards with a known truth, so that the tester's answer can be checked.

It drops exactly k of every n frames of each stream: nftables' `numgen inc mod n` counts the stream's
frames round from 0 (libnftables man page, "NUMGEN EXPRESSION"), and those below k are dropped. The rules are put in
place anew before each trial, so the count starts at 0: of N frames sent,
k × ⌊N / n⌋ + min(k, N mod n) are dropped.
"""

import json
from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from netbench.hosts.base import Host, run_checked
from netbench.links.changes import AddTable
from netbench.model.entitlement import Entitlement
from netbench.model.names import PREFIX
from netbench.model.paths import StreamPath
from netbench.uut.base import EVERYTHING, HopReading, Reading, Workplace
from netbench.uut.forwarding import inside_nics
from netbench.uut.raw import Raw, RawOptions


class Drop(BaseModel):
    """Exactly `k` of every `n` frames."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int = Field(strict=True, ge=0)
    n: int = Field(strict=True, ge=1, lt=2**31)

    @model_validator(mode="after")
    def _part_of_whole(self) -> Self:
        if self.k > self.n:
            raise ValueError(f"cannot drop {self.k} of every {self.n} frames; k is at most n")
        return self

    def of(self, frames: int) -> int:
        """How many of the first `frames` frames are dropped."""
        return self.k * (frames // self.n) + min(self.k, frames % self.n)


class ReferenceOptions(RawOptions):
    """As `raw`, and what it drops."""

    drop: Drop


class Reference(Raw):
    """A kernel that forwards and drops a known part."""

    Options: ClassVar[type[BaseModel]] = ReferenceOptions

    def __init__(self, options: ReferenceOptions) -> None:
        super().__init__(options)
        self._drop = options.drop
        self._family = "bridge" if options.forward == "bridge" else "ip"

    def needs(self) -> frozenset[str]:
        """As `raw`, and nftables."""
        return super().needs() | {"nft", "nftables", "numgen"}

    def commands(
        self, paths: Sequence[StreamPath], name: str = "NAME", entitlement: Entitlement = EVERYTHING
    ) -> list[str]:
        """The changes to the host, and the rules that drop, as commands."""
        return [*super().commands(paths, name, entitlement), *(table.command for table in self._tables(paths, name))]

    def provision(self, workplace: Workplace) -> None:
        """Make the kernel forward and drop."""
        super().provision(workplace)
        workplace.kernel.make(self._tables(workplace.paths, workplace.name))

    def reset(self) -> None:
        """Put the rules in place anew, in one transaction: counters and numgen start at 0 again."""
        for host, paths in self._by_host():
            run_checked(host, ["nft", "-f", "-"], stdin=self._rules(paths, self._provisioned.name))

    def read(self) -> Reading:
        """What the drop rules themselves have counted, per stream."""
        return Reading(tuple(reading for host, _ in self._by_host() for reading in self._read(host)))

    def _tables(self, paths: Sequence[StreamPath], name: str) -> list[AddTable]:
        grouped: dict[str | None, list[StreamPath]] = {}
        for path in paths:
            grouped.setdefault(inside_nics(path)[0].netns, []).append(path)
        return [AddTable(netns, self._family, _own(name), self._rules(there, name)) for netns, there in grouped.items()]

    def _read(self, host: Host) -> list[HopReading]:
        table = _own(self._provisioned.name)
        listing = json.loads(run_checked(host, ["nft", "-j", "list", "counters", "table", self._family, table]))
        return [
            HopReading(
                entry["counter"]["name"].removeprefix(PREFIX),
                "uut",
                "nft drop rule",
                "dropped",
                int(entry["counter"]["packets"]),
            )
            for entry in listing["nftables"]
            if "counter" in entry
        ]

    def _rules(self, paths: Sequence[StreamPath], name: str) -> str:
        table = f"{self._family} {_own(name)}"
        lines = [f"add table {table}", f"delete table {table}", f"add table {table}"]
        lines.append(f"add chain {table} forward {{ type filter hook forward priority 0; policy accept; }}")
        for path in paths:
            ingress, _ = inside_nics(path)
            match = f'iifname "{ingress.interface}" ip saddr {path.src_ip} ip daddr {path.dst_ip}'
            chance = f"numgen inc mod {self._drop.n} < {self._drop.k}"
            counter = _own(path.name)
            lines.append(f"add counter {table} {counter}")
            if self._drop.k == self._drop.n:
                lines.append(f"add rule {table} forward {match} counter name {counter} drop")
            elif self._drop.k:
                lines.append(f"add rule {table} forward {match} {chance} counter name {counter} drop")
        return "\n".join(lines) + "\n"

    def _by_host(self) -> list[tuple[Host, list[StreamPath]]]:
        workplace = self._provisioned
        grouped: dict[str, list[StreamPath]] = {}
        for path in workplace.paths:
            grouped.setdefault(inside_nics(path)[0].host, []).append(path)
        return [(workplace.hosts[name], paths) for name, paths in grouped.items()]


def _own(name: str) -> str:
    """A table or counter of netbench's own: a UUT or stream may be called like a word of nft's."""
    return PREFIX + name
