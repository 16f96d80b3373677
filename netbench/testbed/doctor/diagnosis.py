"""`netbench doctor` without its output: the checks of a host, in order, and their results."""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack

from netbench.errors import ExitCode, Fault, MissingError, NetbenchError
from netbench.images.library import DEFAULT_IMAGE
from netbench.linux.requirements import Command, Facility, Feature, ProbeError, Probes, attempt, is_loadable
from netbench.testbed.doctor.host_checks import (
    HostCheck,
    Status,
    Which,
    check_all_ports,
    check_named_ports,
    check_plug_ins,
    check_root,
    check_tool,
    debian_kernel,
    install_command,
    machine_checks,
)
from netbench.testbed.doctor.platforms import Judgement, Platform, judge, platform_checks, platforms
from netbench.testbed.requirements import (
    all_of,
    facilities,
    image_among,
    image_facility,
    tools,
    with_prerequisites,
)


def diagnose(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    which: Which = shutil.which,
    euid: int | None = None,
) -> list[HostCheck]:
    """Check this host.

    `needs` as in `requirements`; their prerequisites are checked too. With None everything is checked, and optional
    features that are missing are only reported. `addresses` are those that the user names for each port.
    """
    euid = os.geteuid() if euid is None else euid
    checks = [*_check_needs(needs, which, euid), *check_plug_ins()]
    if needs is None:
        # Platforms may have needs of their own, which were not checked yet.
        by_name = {check.name: check for check in checks}
        others = _needs_of(platforms()) - by_name.keys()
        quick = _check_needs(others, which, euid, quick=True) if others else []
        checks += platform_checks({check.name: check for check in quick} | by_name)
    ports = check_all_ports() if needs is None else check_named_ports(needs, addresses)
    return [*checks, *machine_checks(), *ports]


def judge_platforms(which: Which = shutil.which, euid: int | None = None) -> list[tuple[Platform, Judgement]]:
    """Return each installed kind of UUT with its judgement on this machine; quick: starts no guest."""
    kinds = platforms()
    euid = os.geteuid() if euid is None else euid
    checks = {check.name: check for check in _check_needs(_needs_of(kinds), which, euid, quick=True)}
    return [(platform, judge(platform, checks)) for platform in kinds]


def exit_code(checks: Iterable[HostCheck]) -> ExitCode:
    """3 when something needed is missing, 0 otherwise."""
    missing = any(check.status is Status.MISSING for check in checks)
    return ExitCode.MISSING if missing else ExitCode.DONE


def _needs_of(kinds: Iterable[Platform]) -> frozenset[str]:
    return frozenset(need for platform in kinds for need in platform.needs)


def _check_needs(needs: frozenset[str] | None, which: Which, euid: int, *, quick: bool = False) -> list[HostCheck]:
    """Check these needs and their prerequisites (None: all needs). If `quick`, no guest is started for a check."""
    wanted = None if needs is None else with_prerequisites(needs)
    checks = [check_root(euid, which)]
    for tool in all_of(Command) if wanted is None else tools(wanted):
        checks.append(check_tool(tool, which, euid, needed=wanted is not None or not tool.optional))
    features = [feature for feature in all_of(Feature) if wanted is None or feature.name in wanted]
    checks += _check_kernel(features, {check.name: check for check in checks}, needs or frozenset(), which)
    return checks + check_facilities(needs, euid, quick=quick)


def check_facilities(needs: Iterable[str] | None, euid: int, *, quick: bool = False) -> list[HostCheck]:
    """Check the facilities for guests among the needs (None: all, with the default image); `quick` as above."""
    lacking = Status.ABSENT if needs is None else Status.MISSING
    wanted = [image_facility(DEFAULT_IMAGE), *all_of(Facility)] if needs is None else facilities(needs)
    return [_check_facility(facility, image_among(needs or ()), euid, lacking, quick) for facility in wanted]


def _check_facility(facility: Facility, image: str, euid: int, lacking: Status, quick: bool) -> HostCheck:
    name, needed_for = facility.name, facility.needed_for
    may_look = not facility.by_root or (euid == 0 and not quick)
    look = facility.look if may_look else facility.recall
    try:
        if look and (found := look(image)):
            return HostCheck(name, Status.OK, found, "", needed_for)
        why = "only root may start guests here" if euid != 0 else "`netbench doctor` starts a guest to find out"
        return HostCheck(name, Status.WARNING, f"not tried: {why}", "", needed_for)
    except MissingError as error:
        return HostCheck(name, lacking, str(error), facility.what_to_do, needed_for)
    except NetbenchError as error:
        return HostCheck(name, Status.WARNING, str(error), "", needed_for)


def _check_kernel(
    features: Iterable[Feature], done: dict[str, HostCheck], needs: frozenset[str], which: Which
) -> list[HostCheck]:
    """Try the features in order; `done` are the finished checks, which the features may require."""
    checks = []
    with ExitStack() as stack:
        probes = Probes(stack, which)
        for feature in features:
            unmet = next((done[name] for name in feature.requires if done[name].status is not Status.OK), None)
            if unmet:
                found = f"not checked: needs {unmet.name}"
                check = HostCheck(feature.name, Status.WARNING, found, unmet.remedy, feature.needed_for)
            else:
                check = _check_feature(feature, probes, not feature.optional or feature.name in needs, which)
            done[feature.name] = check
            checks.append(check)
    return checks


def _check_feature(feature: Feature, probes: Probes, needed: bool, which: Which) -> HostCheck:
    try:
        return HostCheck(feature.name, Status.OK, attempt(feature.probe, probes), "", feature.needed_for)
    except ProbeError as error:
        lacking = Status.WARNING if feature.dispensable else Status.MISSING
        status = lacking if needed else Status.ABSENT
        return HostCheck(feature.name, status, str(error), _remedy(feature, error, which), feature.needed_for)


def _remedy(feature: Feature, error: ProbeError, which: Which) -> str:
    if Fault.DENIED in error.fault:
        return "run netbench outside this container, or give the container --privileged"
    if error.package:
        return "; ".join(filter(None, (install_command(error.package), feature.otherwise)))
    if feature.module and is_loadable(which, feature.module):
        return f"modprobe {feature.module}"
    kernel = f"boot a kernel with {feature.option}{debian_kernel()}" if feature.option else ""
    return "; ".join(filter(None, (kernel, feature.otherwise)))
