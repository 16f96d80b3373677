"""The CPU and devices of a guest: the kinds of virtualisation, and where its instructions really run."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Literal, Self

# The kind of a NIC model: a driver made for the VMM, an imitation of real hardware by the VMM, or hardware that the
# guest has exclusively.
NicKind = Literal["paravirtual", "emulated", "passed through"]


class Virtualisation(StrEnum):
    """The layer between a UUT and its machine (Schlosser et al. 2011, section 2.1), the smallest first.

    It is about the CPU: a guest of any kind may have a paravirtual NIC.
    """

    NONE = "none"  # the machine's own kernel forwards
    OS_LEVEL = "os-level"  # a part of the machine's own kernel: containers
    PARA = "para"  # a kernel that was changed to call its VMM: Xen PV
    FULL = "full"  # an unchanged kernel; a program imitates or translates all of its CPU: QEMU's TCG
    HARDWARE = "hardware-assisted"  # an unchanged kernel, which the processor itself runs as a guest: VT-x, SVM


@dataclass(frozen=True, slots=True)
class Supports:
    """The features of UUTs of one kind in a topology, and where their frames are counted, as text for `netbench list`.

    `pinning` names the parts that can be bound to CPUs, `shares` the possible CPU limits; `neighbours`: whether a UUT
    of this kind may run beside another one.
    """

    attachments: tuple[str, ...] = ()
    pinning: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    neighbours: bool = True
    counters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Seconds, in addition to the traffic itself, measured on two shared cores.

    `bring_up_s` is for bringing the UUT up and down; `trial_s` for each trial in which it forwards; `idle_s` for each
    trial in which it is only present; `load_s` for a load inside it to start, be watched and end; `worker_s` for each
    worker of that load.
    """

    bring_up_s: float = 0.0
    trial_s: float = 0.0
    idle_s: float = 0.0
    load_s: float = 0.0
    worker_s: float = 0.0

    def with_share(self, share: float | None) -> "DurationEstimate":
        """Return the pace of a UUT that gets at most this share of one CPU; None: no limit."""
        slower = 1 / min(1.0, share or 1.0)
        return DurationEstimate(*(seconds * slower for seconds in astuple(self)))


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Where a UUT's instructions run: only figures of UUTs in the same setting can be compared.

    `machine` is the VM that the UUT is on or in, or the host over SSH, empty for this machine. `emulators` is the
    number of nested programs that imitate a CPU between the processor and the UUT.
    """

    machine: str = ""
    emulators: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> Self:
        """Return the setting of a UUT with these facts; without facts it is this machine's own CPU."""
        elsewhere = [f"{what} {facts[fact]}" for fact, what in (("vm", "VM"), ("ssh_address", "host")) if fact in facts]
        return cls(next(iter(elsewhere), ""), ("emulated" in facts) + ("vm_emulated" in facts))

    def __str__(self) -> str:
        where = f"On {self.machine or 'this machine'}"
        return where + (", CPU not emulated", ", CPU emulated", ", CPU emulated inside an emulated one")[self.emulators]
