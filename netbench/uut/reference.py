"""UUT `reference`: a kernel that forwards with a known truth, so that the tester's answer can be checked.

`drop` drops k of every n frames of each stream, at a configurable place. It uses nftables' `numgen inc mod n` from 0
(libnftables man page, "NUMGEN EXPRESSION"): of N frames sent, exactly k × ⌊N / n⌋ + min(k, N mod n) are dropped. For
that the rules are replaced before each trial. With `numgen random mod n` it is k of n on average, and the rule's own
counter is the truth. `limit` drops frames beyond the rate of a token bucket ("LIMIT STATEMENT"). `delay` is that of
netem at the egress NICs, a lower bound for every frame. `reverse` has the settings of reverse streams, if different.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import AddDelay, AddTable
from netbench.linux.requirements import IN_A_VM, IN_NETNS, ON_VETH, Command, Feature, Probes
from netbench.model.fields import Seconds
from netbench.model.paths import PREFIX, StreamPath, inside_nics
from netbench.model.points import CounterReading, PointKind
from netbench.model.virtualisation import Supports
from netbench.uut.base import Assignment, Reading, Ready, UutPlan
from netbench.uut.forwarding import require_way_back
from netbench.uut.raw import Raw, RawOptions

DROP_RULE = "nft drop rule"
At = Literal["ingress", "forward", "egress"]
_WITH_NFT = (*IN_NETNS, "nft")
Key = TypeVar("Key")


class DropRule(BaseModel, extra="forbid", frozen=True):
    """`k` of every `n` frames: exactly, or on average when they are drawn at random."""

    k: int = Field(strict=True, ge=0)
    """Number of frames dropped."""
    n: int = Field(strict=True, ge=1, lt=2**31)
    """Number of frames of which `k` are dropped."""
    random: bool = Field(default=False, strict=True)
    """Draw the dropped frames at random; `k` of `n` on average."""
    at: At = "forward"
    """Hook: ingress, forward, egress."""

    @model_validator(mode="after")
    def _part_of_whole(self) -> Self:
        if self.k > self.n:
            raise ValueError(f"cannot drop {self.k} of every {self.n} frames; k is at most n")
        return self

    def of(self, frames: int) -> int:
        """Return how many of the first `frames` frames are dropped by `numgen inc`."""
        return self.k * (frames // self.n) + min(self.k, frames % self.n)

    @property
    def condition(self) -> str:
        """The nft expression that matches the frames to drop."""
        if self.k == self.n:
            return ""
        return f"numgen {'random' if self.random else 'inc'} mod {self.n} < {self.k}"


class Limit(BaseModel, extra="forbid", frozen=True):
    """A token bucket: `fps` frames per second pass, and `burst` at once; further frames are dropped."""

    fps: int = Field(strict=True, ge=1, lt=2**31)
    """Frames/s that pass."""
    burst: int = Field(default=5, strict=True, ge=1, lt=2**31)
    """Frames that pass at once."""
    at: At = "ingress"
    """Hook: ingress, forward, egress."""

    def most_passed(self, duration_s: float) -> int:
        """Return the maximum of frames that pass in this time: a full bucket, and its refill meanwhile."""
        return self.burst + int(self.fps * duration_s)

    @property
    def condition(self) -> str:
        """The nft expression that matches the frames to drop."""
        return f"limit rate over {self.fps}/second burst {self.burst} packets"


class Impaired(BaseModel):
    """The drops of a stream (either `drop` or `limit`), and the minimum delay of its frames, in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drop: DropRule | None = None
    """Drop k of every n frames of each stream."""
    limit: Limit | None = None
    """Token bucket."""
    delay: Seconds = 0.0
    """Delay by netem."""

    @model_validator(mode="after")
    def _one_truth(self) -> Self:
        if (self.drop is None) == (self.limit is None):
            raise ValueError("give one of drop and limit: what it does must be known")
        return self

    @property
    def truth(self) -> DropRule | Limit:
        """Its `drop` or `limit`."""
        truth = self.drop or self.limit
        assert truth is not None
        return truth

    @property
    def drops_all(self) -> bool:
        """Whether it drops all frames."""
        return isinstance(self.truth, DropRule) and self.truth.k == self.truth.n


class ReferenceOptions(RawOptions, Impaired):
    """The options of `raw` that support rules, and the impairments of frames.

    `reverse`, if given, replaces the impairments for reverse streams.
    """

    forward: Literal["bridge", "route"] = "bridge"
    """bridge or route."""
    reverse: Impaired | None = None
    """Drops and delay of reverse streams instead."""

    @property
    def point(self) -> str:
        """The counting point that drops frames, by name."""
        return self.point_of(self.truth)

    def point_of(self, truth: DropRule | Limit) -> str:
        """Return the counting point of a drop rule, by name."""
        inside = PointKind.BRIDGE if self.forward == "bridge" else PointKind.IP_LAYER
        return inside.value if truth.at == "forward" else f"{truth.at} NIC"

    def family(self, truth: DropRule | Limit, *, described: bool) -> str:
        """Return the nftables family of a drop rule; described packets may be IPv6."""
        inside = "bridge" if self.forward == "bridge" else "inet" if described else "ip"
        return inside if truth.at == "forward" else "netdev"

    def on(self, path: StreamPath) -> Impaired:
        """Return the impairment of a stream's frames."""
        return self.reverse if self.reverse and path.reverse_of else self


class Reference(Raw):
    """A kernel that forwards and drops a known part, or delays all by a known time."""

    options: ReferenceOptions
    Options: ClassVar[type[BaseModel]] = ReferenceOptions
    supports = Supports(counters=("NICs", "its own rules"))
    may_need = (
        Command("nft", "nftables", "reference UUTs, whose drops are known", version="--version"),
        Feature("nftables", "reference UUTs", _WITH_NFT, "CONFIG_NF_TABLES_BRIDGE", "nf_tables", Probes.nftables),
        Feature(
            "numgen",
            "reference UUTs that drop k of n frames",
            (*_WITH_NFT, "nftables"),
            "CONFIG_NFT_NUMGEN",
            "nft_numgen",
            Probes.numgen,
        ),
        Feature(
            "nft-ingress",
            "reference UUTs that limit a rate",
            (*ON_VETH, "nft"),
            "CONFIG_NF_TABLES_NETDEV",
            "nf_tables",
            Probes.ingress,
            optional=True,
        ),
        Feature(
            "netem",
            "links of known delay",
            ON_VETH,
            "CONFIG_NET_SCH_NETEM",
            "sch_netem",
            Probes.netem,
            optional=True,
            otherwise=IN_A_VM,
        ),
    )

    def check(self, paths: Sequence[StreamPath]) -> None:
        super().check(paths)
        require_way_back("reverse", self.options.reverse, paths)

    def plan(self, assignment: Assignment) -> UutPlan:
        raw, paths = super().plan(assignment), assignment.paths
        needs = {"nft", "nftables"}
        for impaired in (self.options, self.options.reverse or self.options):
            needs |= {"numgen"} if isinstance(impaired.truth, DropRule) else set()
            needs |= (
                {"nft-ingress"}
                if self.options.family(impaired.truth, described=assignment.is_described) == "netdev"
                else set()
            )
            needs |= {"netem"} if impaired.delay else set()
        steps = (
            *raw.steps,
            *self._delays(paths),
            *self._tables(paths, assignment.name, described=assignment.is_described),
        )
        return replace(raw, steps=steps, needs=raw.needs | needs)

    def ready(self) -> Ready:
        """Return the properties of `raw`; netem delays frames, and where all frames are dropped no probe arrives."""
        raw, impairments = super().ready(), [self.options, *map(self.options.on, self.site.paths)]
        return replace(
            raw,
            quiet_time_s=raw.quiet_time_s + max(impaired.delay for impaired in impairments),
            probe_limit_s=None if any(impaired.drops_all for impaired in impairments) else raw.probe_limit_s,
        )

    def reset(self) -> None:
        """Replace the rules in one transaction: counters and numgen start at 0."""
        for host, paths in self._by_host():
            name, described = self.site.assignment.name, self.site.assignment.is_described
            families = self._by_family(paths, described=described)
            rules = "".join(self._rules(own, family, name, described=described) for family, own in families.items())
            run_checked(host, ["nft", "-f", "-"], stdin=rules)

    def read(self) -> Reading:
        """Return the counters of the drop rules, per stream."""
        return Reading(
            tuple(
                reading
                for host, paths in self._by_host()
                for family, own in self._by_family(paths, described=self.site.assignment.is_described).items()
                for reading in self._read(host, family, own)
            )
        )

    def _delays(self, paths: Sequence[StreamPath]) -> list[AddDelay]:
        delays = [(inside_nics(path)[1], self.options.on(path).delay) for path in paths]
        return [AddDelay(nic.netns, nic.interface, round(delay_s * 1e6)) for nic, delay_s in delays if delay_s]

    def _tables(self, paths: Sequence[StreamPath], name: str, *, described: bool) -> list[AddTable]:
        return [
            AddTable(netns, family, _own(name), self._rules(own, family, name, described=described))
            for netns, members in _grouped(paths, lambda path: inside_nics(path)[0].netns).items()
            for family, own in self._by_family(members, described=described).items()
        ]

    def _by_family(self, paths: Sequence[StreamPath], *, described: bool) -> dict[str, list[StreamPath]]:
        return _grouped(paths, lambda path: self.options.family(self.options.on(path).truth, described=described))

    def _read(self, host: Host, family: str, paths: Sequence[StreamPath]) -> list[CounterReading]:
        table = _own(self.site.assignment.name)
        listing = json.loads(run_checked(host, ["nft", "-j", "list", "counters", "table", family, table]))
        points = {_own(path.name): self.options.point_of(self.options.on(path).truth) for path in paths}
        return [
            CounterReading(
                entry["counter"]["name"].removeprefix(PREFIX),
                points[entry["counter"]["name"]],
                DROP_RULE,
                "dropped",
                int(entry["counter"]["packets"]),
                resettable=True,
            )
            for entry in listing["nftables"]
            if "counter" in entry
        ]

    def _rules(self, paths: Sequence[StreamPath], family: str, name: str, *, described: bool) -> str:
        table = f"{family} {_own(name)}"
        lines = [f"add table {table}", f"delete table {table}", f"add table {table}"]
        if family != "netdev":
            lines.append(f"add chain {table} forward {{ type filter hook forward priority 0; policy accept; }}")
        for path in paths:
            lines += self._rules_of(path, table, described=described)
        return "\n".join(lines) + "\n"

    def _rules_of(self, path: StreamPath, table: str, *, described: bool) -> list[str]:
        (ingress, egress), truth = inside_nics(path), self.options.on(path).truth
        counter, chain, match = _own(path.name), "forward", f"ip saddr {path.src_network} ip daddr {path.dst_ip}"
        if described:  # with any headers: only test frames arrive at these NICs in this direction
            match = ""
        lines = [f"add counter {table} {counter}"]
        if truth.at == "forward":
            match = f'iifname "{ingress.interface}" {match}'
        else:
            chain = _own(path.name)
            device = (ingress if truth.at == "ingress" else egress).interface
            hook = f'type filter hook {truth.at} device "{device}" priority 0; policy accept;'
            lines.append(f"add chain {table} {chain} {{ {hook} }}")
        if not (isinstance(truth, DropRule) and truth.k == 0):
            lines.append(f"add rule {table} {chain} {match} {truth.condition} counter name {counter} drop")
        return lines

    def _by_host(self) -> list[tuple[Host, list[StreamPath]]]:
        grouped = _grouped(self.site.paths, lambda path: inside_nics(path)[0].host)
        return [(self.site.hosts[name], paths) for name, paths in grouped.items()]


def _grouped(paths: Iterable[StreamPath], key: Callable[[StreamPath], Key]) -> dict[Key, list[StreamPath]]:
    grouped: dict[Key, list[StreamPath]] = {}
    for path in paths:
        grouped.setdefault(key(path), []).append(path)
    return grouped


def _own(name: str) -> str:
    """Return the name with netbench's prefix, because a UUT or stream may have the name of an nft keyword."""
    return PREFIX + name
