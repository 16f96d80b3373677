"""The seam between a trial and what forwards its frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.hosts.base import Host
from netbench.hosts.shell import Shell
from netbench.linux.kernel import Kernel
from netbench.model.entitlement import Entitlement
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import HopReading, Hops

EVERYTHING = Entitlement()  # all CPUs, like everybody else


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a UUT is given to set itself up with.

    `kernel` is that of the machine its NICs are on, for its changes; `run_id` names this run of netbench. A neighbour
    may have no paths: `host` is the name of the one it is on then. `entitlement` is what it may take of the CPUs.
    """

    name: str
    run_id: str
    hosts: dict[str, Host]
    kernel: Kernel
    paths: tuple[StreamPath, ...]
    entitlement: Entitlement = EVERYTHING
    host: str = ""

    @property
    def own_host(self) -> Host:
        """The host of its NICs, or the one it is on without any."""
        ingress = self.paths[0].ingress if self.paths else None
        return self.hosts[ingress.host if ingress else self.host]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a UUT says of itself at one moment: its hops in the order of the path, and CPU time used so far.

    `cpu_s` is in seconds, by whose time it is (`guest`: as the guest's kernel counts it, `host`: what the guest costs
    the host).
    """

    hops: tuple[HopReading, ...] = ()
    cpu_s: Mapping[str, float] = field(default_factory=dict)


class UnitUnderTest(Protocol):
    """Something that forwards frames from each stream's ingress NIC to its egress NIC.

    Order of calls: check(), needs(), commands() (nothing touched yet); provision(), ready(); then before each trial
    reset(), and around it read(); destroy() at the end. Changes go through the workplace's transaction, which the
    caller undoes after destroy(); destroy() ends what is not a change, processes for example.

    Several may stand side by side on one machine, each with paths and a name of its own; the last to come goes first.
    """

    Options: ClassVar[type[BaseModel]]  # how the topology describes this kind of UUT

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError when these paths are not what this UUT can forward on."""

    def needs(self) -> frozenset[str]:
        """What the host must be able to do for it, in the words of `netbench doctor`."""

    @property
    def has_own_kernel(self) -> bool:
        """Whether what runs inside it is scheduled by a kernel of its own, not that of its machine."""

    @property
    def load_needs(self) -> frozenset[str] | None:
        """What the host must have, as in needs(), for a load to run inside it; None where nothing can."""

    def commands(
        self, paths: Sequence[StreamPath], name: str = "NAME", entitlement: Entitlement = EVERYTHING
    ) -> list[str]:
        """What provisioning it under this name would do, as commands, for `--dry-run`."""

    def provision(self, workplace: Workplace) -> None:
        """Make it forward; TestbedError when it cannot."""

    @property
    def pace(self) -> Pace:
        """About how long things take with it, for the expected time of a campaign."""

    @property
    def patience_s(self) -> float:
        """How long frames may stay inside it while none of the NICs' counters moves."""

    def ready(self) -> None:
        """Return once it forwards; TestbedError when that takes longer than it may."""

    def hops(self) -> Hops:
        """What of its machine its frames go through beside their NICs, once it is provisioned."""

    def next_hop_mac(self, path: StreamPath) -> str:
        """The MAC address the source must send to."""

    def reset(self) -> None:
        """Bring it to the same state before every trial."""

    def cpu_s(self) -> Mapping[str, float]:
        """CPU time used so far, as in a Reading; TestbedError when it no longer answers. Cheaper than read()."""

    def read(self) -> Reading:
        """What its own counters say now; TestbedError when it no longer answers."""

    def shell(self) -> Shell | None:
        """A way to run commands inside it, within its entitlement; None where there is none. After provision()."""

    def log(self) -> str:
        """What it has written to its console so far; empty for one without, and mostly of use when it fails."""

    def facts(self) -> Mapping[str, str]:
        """What a reader of its numbers must know, once it is ready: versions, how it is run.

        `emulated` is there, and says why, when its CPU is emulated.
        """

    def destroy(self) -> None:
        """End it; harmless when it was never provisioned."""
