"""The seam between a trial and what forwards its frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.hosts.base import Host
from netbench.links.netlink import Netlink
from netbench.links.transaction import Transaction
from netbench.model.paths import StreamPath


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a UUT is given to set itself up with: hosts by name, the transaction for its changes, the paths."""

    hosts: dict[str, Host]
    transaction: Transaction
    netlink: Netlink
    paths: tuple[StreamPath, ...]


@dataclass(frozen=True, slots=True)
class Drops:
    """Frames of one stream that one named hop inside the UUT has counted as dropped so far."""

    stream: str
    hop: str
    counter: str
    frames: int


class UnitUnderTest(Protocol):
    """Something that forwards frames from each stream's ingress NIC to its egress NIC.

    Order of calls: check(), needs(), commands() (nothing touched yet); provision(), ready(); then before each trial
    reset(), and around it drops(); destroy() at the end. Changes go through the workplace's transaction, which the
    caller undoes after destroy(); destroy() ends what is not a change, processes for example.
    """

    Options: ClassVar[type[BaseModel]]  # how the topology describes this kind of UUT

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError when these paths are not what this UUT can forward on."""

    def needs(self) -> frozenset[str]:
        """What the host must be able to do for it, in the words of `netbench doctor`."""

    def commands(self, paths: Sequence[StreamPath]) -> list[str]:
        """What provisioning would do, as commands, for `--dry-run`."""

    def provision(self, workplace: Workplace) -> None:
        """Make it forward; TestbedError when it cannot."""

    def ready(self, timeout_s: float) -> None:
        """Return once it forwards; TestbedError when that takes longer."""

    def next_hop_mac(self, path: StreamPath) -> str:
        """The MAC address the source must send to."""

    def reset(self) -> None:
        """Bring it to the same state before every trial."""

    def drops(self) -> list[Drops]:
        """What its own drop counters say now; TestbedError when it no longer answers."""

    def destroy(self) -> None:
        """End it; harmless when it was never provisioned."""
