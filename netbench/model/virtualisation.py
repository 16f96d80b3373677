"""How a guest comes to its CPU and devices: the kinds of virtualisation, and where its instructions really run."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

# How a model of NIC meets its guest: a driver that knows of the VMM, one of real hardware that the VMM imitates, or
# hardware that the guest has to itself.
NicKind = Literal["paravirtual", "emulated", "passed through"]


class Virtualisation(StrEnum):
    """What stands between a UUT and its machine (Schlosser et al. 2011, section 2.1), the least first.

    It is about the CPU: a guest of any kind may have a paravirtual NIC.
    """

    NONE = "none"  # the machine's own kernel forwards
    OS_LEVEL = "os-level"  # a part of the machine's own kernel: containers
    PARA = "para"  # a kernel that was changed to call its VMM: Xen PV
    FULL = "full"  # an unchanged kernel, and all of its CPU imitated or translated by a program: QEMU's TCG
    HARDWARE = "hardware-assisted"  # an unchanged kernel, which the processor itself runs as a guest: VT-x, SVM


@dataclass(frozen=True, slots=True)
class Supports:
    """What a topology can ask of UUTs of one kind, and where their frames are counted, in words for `netbench list`.

    `pinning` is what of one can be bound to CPUs, `shares` what it can be given of them; `neighbours`: whether one may
    stand beside another UUT.
    """

    attachments: tuple[str, ...] = ()
    pinning: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    neighbours: bool = True
    counters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Where a UUT's instructions run: only figures of UUTs in the same setting compare.

    `machine` is the VM that the UUT is on or in, or the host over SSH, empty for this machine; `emulators` is how many
    programs, one inside the other, imitate a CPU between the processor and the UUT.
    """

    machine: str = ""
    emulators: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> Self:
        """That of a UUT that said this of itself; nothing known is taken for this machine's own CPU."""
        elsewhere = [f"{what} {facts[fact]}" for fact, what in (("vm", "VM"), ("ssh_address", "host")) if fact in facts]
        return cls(next(iter(elsewhere), ""), ("emulated" in facts) + ("vm_emulated" in facts))

    def __str__(self) -> str:
        where = f"On {self.machine or 'this machine'}"
        return where + (", CPU not emulated", ", CPU emulated", ", CPU emulated inside an emulated one")[self.emulators]
