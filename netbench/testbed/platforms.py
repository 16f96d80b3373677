"""What each kind of UUT, VMMs among them, can be on this machine: real, under emulation, or not at all, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from pydantic import ValidationError

from netbench.config.plugins import UUTS, plugins
from netbench.model.virtualisation import Virtualisation
from netbench.testbed.host_checks import Check, Status
from netbench.uut.base import Assignment, UnitUnderTest, UutPlan
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm


class Reality(StrEnum):
    """How much of a measurement on a kind of UUT would be about the platform that it is named after."""

    REAL = "real"
    EMULATED = "under emulation"
    UNPROVEN = "unproven"  # its driver says in which way
    NOT_HERE = "cannot run here"
    UNKNOWN = "not known"


_STATUS = {Reality.REAL: Status.OK, Reality.NOT_HERE: Status.ABSENT}


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of UUT with its defaults: the class that declares it, what it would need, and what may be run inside.

    `plan` is None where options without a default decide that, and where the class of somebody's plug-in fails to tell:
    then `broken` says how.
    """

    name: str
    kind: type[UnitUnderTest] | type[Vmm]
    plan: UutPlan | None
    broken: str = ""

    @property
    def needs(self) -> frozenset[str]:
        """What this machine must have, and what it takes for real, in the words of `netbench doctor`."""
        facility = getattr(self.kind, "emulated_without", "")
        return (self.plan.needs if self.plan else frozenset()) | ({facility} if facility else frozenset())

    @property
    def kinds(self) -> tuple[Virtualisation, ...]:
        """What kinds of virtualisation it may be; none: unknown."""
        if issubclass(self.kind, Vmm):
            return self.kind.kinds
        return (Virtualisation.NONE,) if self.kind.virtualisation is UnitUnderTest.virtualisation else ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a platform is on this machine, why it is no more than that, and the commands that change it."""

    reality: Reality
    why: str = ""
    remedies: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.reality is Reality.UNPROVEN:
            return self.why
        words = f"{self.reality} because" if self.reality is Reality.NOT_HERE else str(self.reality)
        return f"{words}: {self.why}" if self.why else words


def platforms() -> list[Platform]:
    """All kinds of UUT that are installed."""
    return [_platform(name, kind) for name, kind in plugins(UUTS).items()]


def _platform(name: str, kind: type[UnitUnderTest] | type[Vmm]) -> Platform:
    try:
        return Platform(name, kind, _plan(kind))
    except Exception as error:  # whatever somebody's plug-in does: what is told of the others does not depend on it
        return Platform(name, kind, None, f"{type(error).__name__}: {error}")


def judge(platform: Platform, found: Mapping[str, Check]) -> Judgement:
    """What it is here, by what `netbench doctor` found of its needs."""
    if platform.broken:
        return Judgement(Reality.UNKNOWN, platform.broken)
    emulated_without = getattr(platform.kind, "emulated_without", "")
    looked_at = [found[name] for name in sorted(platform.needs - {emulated_without}) if name in found]
    if lacking := [one for one in looked_at if one.status in (Status.MISSING, Status.ABSENT)]:
        return _because(Reality.NOT_HERE, *lacking)
    if unproven := getattr(platform.kind, "unproven", ""):
        return Judgement(Reality.UNPROVEN, unproven)
    if platform.plan is None:
        return Judgement(Reality.UNKNOWN, "its options decide; netbench doctor TOPOLOGY tells of one of yours")
    accelerated = found.get(emulated_without)
    if accelerated and accelerated.status is not Status.OK:
        reality = Reality.UNKNOWN if accelerated.status is Status.WARNING else Reality.EMULATED
        return _because(reality, accelerated)
    if unsure := [one for one in looked_at if one.status is Status.WARNING]:
        return _because(Reality.UNKNOWN, *unsure)
    return Judgement(Reality.REAL)


def platform_checks(found: Mapping[str, Check]) -> list[Check]:
    """A line of `netbench doctor` for each platform, by what it found of all their needs."""
    judged = [(one.name, judge(one, found)) for one in platforms()]
    return [
        Check(
            f"uut:{name}",
            _STATUS.get(here.reality, Status.WARNING),
            str(here),
            "; ".join(here.remedies),
            f"UUTs of kind {name}",
        )
        for name, here in judged
    ]


def _because(reality: Reality, *checks: Check) -> Judgement:
    why = "; ".join(f"{check.name}: {check.found}" for check in checks)
    return Judgement(reality, why, tuple(dict.fromkeys(check.remedy for check in checks if check.remedy)))


def _plan(kind: type[UnitUnderTest] | type[Vmm]) -> UutPlan | None:
    try:
        made: UnitUnderTest | Vmm = cast(Any, kind)(kind.Options())
    except ValidationError:  # something must be said of it in a topology
        return None
    return (Guest(made) if isinstance(made, Vmm) else made).plan(Assignment())
