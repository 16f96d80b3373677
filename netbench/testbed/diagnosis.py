"""`netbench doctor` without its text: what a host is looked at for, in order, and what came of each."""

import errno
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack

from netbench.errors import ExitCode, MissingError, NetbenchError
from netbench.images.library import DEFAULT_IMAGE
from netbench.linux.needs import Facility, Feature, Tool
from netbench.linux.probes import Bench, ProbeError, attempt, is_loadable
from netbench.testbed.host_checks import (
    Check,
    Status,
    Which,
    check_all_ports,
    check_clocksource,
    check_cpus,
    check_disk,
    check_governor,
    check_memory,
    check_named_ports,
    check_packages,
    check_parquet,
    check_root,
    check_tool,
    debian_kernel,
)
from netbench.testbed.requirements import all_of, facilities, image_among, image_facility, tools, with_prerequisites


def diagnose(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    which: Which = shutil.which,
    euid: int | None = None,
) -> list[Check]:
    """Look at this host.

    `needs` as in `requirements`; what they rest on is looked at too. None looks at everything, and then optional
    features are only reported. `addresses` are those the user names for each port.
    """
    euid = os.geteuid() if euid is None else euid
    wanted = None if needs is None else with_prerequisites(needs)
    checks = [check_root(euid, which)]
    for tool in all_of(Tool) if wanted is None else tools(wanted):
        checks.append(check_tool(tool, which, euid, needed=wanted is not None or not tool.optional))
    features = [feature for feature in all_of(Feature) if wanted is None or feature.name in wanted]
    checks += _check_kernel(features, {check.name: check for check in checks}, needs or frozenset(), which)
    checks += check_facilities(needs, euid)
    checks += [check_cpus(), check_governor(), check_clocksource(), check_memory(), check_disk()]
    checks += [check_packages(), check_parquet()]
    checks += check_all_ports() if needs is None else check_named_ports(needs, addresses)
    return checks


def exit_code(checks: Iterable[Check]) -> ExitCode:
    """3 when something needed is missing, 0 otherwise."""
    missing = any(check.status is Status.MISSING for check in checks)
    return ExitCode.MISSING if missing else ExitCode.DONE


def check_facilities(needs: Iterable[str] | None, euid: int) -> list[Check]:
    """What guests may be given, among the needs; all of it, with netbench's own image, for None."""
    lacking = Status.ABSENT if needs is None else Status.MISSING
    wanted = [image_facility(DEFAULT_IMAGE), *all_of(Facility)] if needs is None else facilities(needs)
    return [_facility(one, image_among(needs or ()), euid, lacking) for one in wanted]


def _facility(facility: Facility, image: str, euid: int, lacking: Status) -> Check:
    name, needed_for = facility.name, facility.needed_for
    if facility.by_root and euid != 0:
        return Check(name, Status.WARNING, "not tried: only root may start guests here", "", needed_for)
    try:
        return Check(name, Status.OK, facility.look(image), "", needed_for)
    except MissingError as error:
        return Check(name, lacking, str(error), facility.remedy, needed_for)
    except NetbenchError as error:
        return Check(name, Status.WARNING, str(error), "", needed_for)


def _check_kernel(
    features: Iterable[Feature], done: dict[str, Check], needs: frozenset[str], which: Which
) -> list[Check]:
    """Try the features in order; `done` are the checks that they may rest on."""
    checks = []
    with ExitStack() as stack:
        bench = Bench(stack, which)
        for feature in features:
            unmet = [done[name] for name in feature.requires if done[name].status is not Status.OK]
            needed = not feature.optional or feature.name in needs
            check = _not_checked(feature, unmet[0]) if unmet else _try(feature, bench, needed, which)
            done[feature.name] = check
            checks.append(check)
    return checks


def _not_checked(feature: Feature, unmet: Check) -> Check:
    return Check(feature.name, Status.WARNING, f"not checked: needs {unmet.name}", unmet.remedy, feature.needed_for)


def _try(feature: Feature, bench: Bench, needed: bool, which: Which) -> Check:
    try:
        found = attempt(feature.probe, bench)
    except ProbeError as error:
        status = Status.MISSING if needed else Status.ABSENT
        reason = str(error)
        remedy = _remedy(feature, reason, which)
        return Check(feature.name, status, reason, remedy, feature.needed_for)
    return Check(feature.name, Status.OK, found, "", feature.needed_for)


def _remedy(feature: Feature, reason: str, which: Which) -> str:
    if any(os.strerror(number) in reason for number in (errno.EPERM, errno.EACCES, errno.EROFS)):
        return "run netbench outside this container, or give the container --privileged"
    if feature.module and is_loadable(which, feature.module):
        return f"modprobe {feature.module}"
    kernel = f"boot a kernel with {feature.option}{debian_kernel()}" if feature.option else ""
    return "; ".join(part for part in (kernel, feature.otherwise) if part)
