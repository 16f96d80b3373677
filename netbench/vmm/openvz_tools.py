"""The commands of OpenVZ's tools, as their manual pages have them; nothing here was ever run against OpenVZ.

`vzctl` is that of OpenVZ 6 (vzctl(8), vzlist(8), version 4.11). `prlctl` is that of Virtuozzo and OpenVZ 7 and later
(prlctl(8)), beside which stands a vzctl(8) too: that alone has a word for the name of the machine's end of a NIC.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked

Tool = Literal["vzctl", "prlctl"]

# Both have 1000 where nothing is said, and take from 8 to 500000; the weight that is usual is 100, and at least 1.
_UNITS_OF_WEIGHT = 10


@dataclass(frozen=True, slots=True)
class Box:
    """A container as the tools call it: by its number (`vzctl`, which takes names too) or its name (`prlctl`)."""

    ident: str

    tool: ClassVar[Tool]
    needs: ClassVar[frozenset[str]]
    lister: ClassVar[str]  # the command that lists all containers

    def create(self, name: str, template: str) -> list[str]:
        """Make it, from an OS template; without one, from the default in vz.conf(5)."""
        raise NotImplementedError

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        """Save what it may have, and what of the kernel it may use, before it is started."""
        raise NotImplementedError

    def start(self) -> list[str]:
        """Start it; it need not run commands yet."""
        return [self.tool, "start", self.ident]

    def stop(self, *, at_once: bool) -> list[str]:
        """Stop it: as one shuts a machine down, or at once."""
        raise NotImplementedError

    def destroy(self) -> list[str]:
        """Delete it, once it is stopped."""
        raise NotImplementedError

    def run(self, argv: Sequence[str]) -> list[str]:
        """Run a command in it, with the exit code of that: both tools hand one text to a shell in there."""
        raise NotImplementedError

    def add_nic(self, nic: str, mac: str, host_mac: str) -> list[list[str]]:
        """Give it a NIC while it runs; both ends have one name. Its filter of MAC addresses, on by default, goes off.

        Nothing is saved (no --save): it goes when the container stops.
        """
        change = ["vzctl", "set", self.ident]
        return [
            [*change, "--netif_add", f"{nic},{mac},{nic},{host_mac}"],
            [*change, "--ifname", nic, "--mac_filter", "off"],
        ]

    def remove_nic(self, nic: str) -> list[str]:
        """Take it away while it runs."""
        return ["vzctl", "set", self.ident, "--netif_del", nic]

    def status(self, host: Host) -> tuple[bool, bool]:
        """Whether there is such a container, and whether it runs; TestbedError where that makes no sense.

        One line: `CTID 101 exist mounted running` (vzctl(8), "status"), `CT name exist running` (prlctl).
        """
        told = run_checked(host, [self.tool, "status", self.ident], timeout_s=60.0).strip()
        words = told.split()[2:]  # a container may be called `running`
        if not {"exist", "deleted"} & set(words):
            raise TestbedError(f"`{self.tool} status {self.ident}` makes no sense: {told or 'no output'}")
        return "exist" in words, "exist" in words and "running" in words

    def name(self, host: Host) -> str:
        """The name it has on this machine; empty for none (yet)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Vzctl(Box):
    """A container of OpenVZ 6."""

    tool: ClassVar[Tool] = "vzctl"
    needs: ClassVar[frozenset[str]] = frozenset({"vzctl"})
    lister: ClassVar[str] = "vzlist --all"

    def create(self, name: str, template: str) -> list[str]:
        return ["vzctl", "create", self.ident, *(["--ostemplate", template] if template else []), "--name", name]

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        memory = ["--ram", f"{memory_mib}M", "--swap", "0"]  # "you must only set --ram and --swap"
        return ["vzctl", "set", self.ident, "--onboot", "no", *memory, *shares, *_switched_on(features), "--save"]

    def stop(self, *, at_once: bool) -> list[str]:
        return ["vzctl", "stop", self.ident, *(["--fast"] if at_once else [])]

    def destroy(self) -> list[str]:
        return ["vzctl", "destroy", self.ident]

    def run(self, argv: Sequence[str]) -> list[str]:
        return ["vzctl", "exec2", self.ident, shlex.join(argv)]

    def name(self, host: Host) -> str:
        told = run_checked(host, ["vzlist", "-a", "-H", "-t", "-o", "name", self.ident]).strip()
        return "" if told == "-" else told


@dataclass(frozen=True, slots=True)
class Prlctl(Box):
    """A container of Virtuozzo or OpenVZ 7."""

    tool: ClassVar[Tool] = "prlctl"
    needs: ClassVar[frozenset[str]] = frozenset({"prlctl", "vzctl"})
    lister: ClassVar[str] = "prlctl list --all"

    def create(self, name: str, template: str) -> list[str]:
        return ["prlctl", "create", name, *(["--ostemplate", template] if template else []), "--vmtype", "ct"]

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        memory = ["--memsize", f"{memory_mib}M"]
        return ["prlctl", "set", self.ident, "--autostart", "off", *memory, *shares, *_switched_on(features)]

    def stop(self, *, at_once: bool) -> list[str]:
        return ["prlctl", "stop", self.ident, *(["--kill"] if at_once else [])]

    def destroy(self) -> list[str]:
        return ["prlctl", "delete", self.ident]

    def run(self, argv: Sequence[str]) -> list[str]:
        return ["prlctl", "exec", self.ident, shlex.join(argv)]

    def name(self, host: Host) -> str:
        return self.ident


def box(tool: str, ident: str) -> Box:
    """A container as one of the two tools calls it."""
    return {"vzctl": Vzctl, "prlctl": Prlctl}[tool](ident)


def shares(weight: int | None, limit: float | None, cpus: Sequence[int]) -> list[str]:
    """What both tools are told of an entitlement (100 is the usual weight; 1.0 is one CPU, which is 100 percent)."""
    told = ["--cpuunits", str(weight * _UNITS_OF_WEIGHT)] if weight is not None else []
    told += ["--cpulimit", str(round(limit * 100))] if limit is not None else []
    return told + (["--cpumask", ",".join(map(str, cpus))] if cpus else [])


def _switched_on(features: Sequence[str]) -> list[str]:
    return ["--features", ",".join(f"{feature}:on" for feature in features)] if features else []
