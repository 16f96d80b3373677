"""How each kind of UUT, VMMs included, can run on this machine: real, under emulation, or not at all, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from pydantic import ValidationError

from netbench.config.plugins import UUTS, plugins
from netbench.model.virtualisation import Virtualisation
from netbench.testbed.doctor.host_checks import HostCheck, Status
from netbench.uut.base import Assignment, UnitUnderTest, UutPlan
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm


class Reality(StrEnum):
    """How far measurements on a kind of UUT apply to the platform that it is named after."""

    REAL = "real"
    EMULATED = "under emulation"
    UNPROVEN = "unproven"  # its driver states in which way
    NOT_HERE = "cannot run here"
    UNKNOWN = "not known"


_STATUS = {Reality.REAL: Status.OK, Reality.NOT_HERE: Status.ABSENT}


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of UUT with its defaults: the class that declares it, its needs, and its plan.

    `plan` is None if options without a default decide it, or if the class of a third-party plug-in fails to return it.
    In the second case `broken` is the error.
    """

    name: str
    kind: type[UnitUnderTest] | type[Vmm]
    plan: UutPlan | None
    broken: str = ""

    @property
    def needs(self) -> frozenset[str]:
        """The needs of this kind, and what it needs to run without emulation, by their names in `netbench doctor`."""
        facility = getattr(self.kind, "emulated_without", "")
        return (self.plan.needs if self.plan else frozenset()) | ({facility} if facility else frozenset())

    @property
    def kinds(self) -> tuple[Virtualisation, ...]:
        """The kinds of virtualisation it may use; empty: unknown."""
        if issubclass(self.kind, Vmm):
            return self.kind.kinds
        return (Virtualisation.NONE,) if self.kind.virtualisation is UnitUnderTest.virtualisation else ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a platform runs on this machine, the reason if it is not fully real, and the commands that change it."""

    reality: Reality
    why: str = ""
    remedies: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.reality is Reality.UNPROVEN:
            return self.why
        words = f"{self.reality} because" if self.reality is Reality.NOT_HERE else str(self.reality)
        return f"{words}: {self.why}" if self.why else words


def platforms() -> list[Platform]:
    """Return all installed kinds of UUT."""
    return [_platform(name, kind) for name, kind in plugins(UUTS).items()]


def _platform(name: str, kind: type[UnitUnderTest] | type[Vmm]) -> Platform:
    try:
        return Platform(name, kind, _plan(kind))
    except Exception as error:  # a failing third-party plug-in must not prevent the report on the others
        return Platform(name, kind, None, f"{type(error).__name__}: {error}")


def judge(platform: Platform, found: Mapping[str, HostCheck]) -> Judgement:
    """Return the judgement of a platform on this machine, from the checks of its needs by `netbench doctor`."""
    if platform.broken:
        return Judgement(Reality.UNKNOWN, platform.broken)
    emulated_without = getattr(platform.kind, "emulated_without", "")
    looked_at = [found[name] for name in sorted(platform.needs - {emulated_without}) if name in found]
    if lacking := [check for check in looked_at if check.status in (Status.MISSING, Status.ABSENT)]:
        return _because(Reality.NOT_HERE, *lacking)
    if unproven := getattr(platform.kind, "unproven", ""):
        return Judgement(Reality.UNPROVEN, unproven)
    if platform.plan is None:
        return Judgement(Reality.UNKNOWN, "its options decide; netbench doctor TOPOLOGY tells of one of yours")
    accelerated = found.get(emulated_without)
    if accelerated and accelerated.status is not Status.OK:
        reality = Reality.UNKNOWN if accelerated.status is Status.WARNING else Reality.EMULATED
        return _because(reality, accelerated)
    if unsure := [check for check in looked_at if check.status is Status.WARNING]:
        return _because(Reality.UNKNOWN, *unsure)
    return Judgement(Reality.REAL)


def platform_checks(found: Mapping[str, HostCheck]) -> list[HostCheck]:
    """Return a check of `netbench doctor` for each platform, from the checks of all their needs."""
    judged = [(platform.name, judge(platform, found)) for platform in platforms()]
    return [
        HostCheck(
            f"uut:{name}",
            _STATUS.get(judgement.reality, Status.WARNING),
            str(judgement),
            "; ".join(judgement.remedies),
            f"UUTs of kind {name}",
        )
        for name, judgement in judged
    ]


def _because(reality: Reality, *checks: HostCheck) -> Judgement:
    why = "; ".join(f"{check.name}: {check.found}" for check in checks)
    return Judgement(reality, why, tuple(dict.fromkeys(check.remedy for check in checks if check.remedy)))


def _plan(kind: type[UnitUnderTest] | type[Vmm]) -> UutPlan | None:
    try:
        made: UnitUnderTest | Vmm = cast(Any, kind)(kind.Options())
    except ValidationError:  # the topology must set some of its options
        return None
    return (Guest(made) if isinstance(made, Vmm) else made).plan(Assignment())
