"""Everything that is looked at, in order."""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping

from netbench.errors import MissingError, NetbenchError
from netbench.images.library import DEFAULT_IMAGE
from netbench.testbed.doctor.checks import Check, Status
from netbench.testbed.doctor.kernel import check_kernel
from netbench.testbed.doctor.machine import (
    check_all_ports,
    check_clocksource,
    check_cpus,
    check_disk,
    check_governor,
    check_memory,
    check_named_ports,
)
from netbench.testbed.doctor.software import Which, check_packages, check_parquet, check_root, check_tool
from netbench.testbed.requirements import (
    FACILITIES,
    FEATURES,
    TOOLS,
    Facility,
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
) -> list[Check]:
    """Look at this host.

    `needs` as in `requirements`; what they rest on is looked at too. None looks at everything, and then optional
    features are only reported. `addresses` are those the user names for each port.
    """
    euid = os.geteuid() if euid is None else euid
    wanted = None if needs is None else with_prerequisites(needs)
    checks = [check_root(euid, which)]
    for tool in TOOLS if wanted is None else tools(wanted):
        checks.append(check_tool(tool, which, euid, needed=wanted is not None or not tool.optional))
    features = [feature for feature in FEATURES if wanted is None or feature.name in wanted]
    checks += check_kernel(features, {check.name: check for check in checks}, needs or frozenset(), which)
    checks += check_facilities(needs, euid)
    checks += [check_cpus(), check_governor(), check_clocksource(), check_memory(), check_disk()]
    checks += [check_packages(), check_parquet()]
    checks += check_all_ports() if needs is None else check_named_ports(needs, addresses)
    return checks


def check_facilities(needs: Iterable[str] | None, euid: int) -> list[Check]:
    """What guests may be given, among the needs; all of it, with netbench's own image, for None."""
    lacking = Status.ABSENT if needs is None else Status.MISSING
    wanted = [image_facility(DEFAULT_IMAGE), *FACILITIES] if needs is None else facilities(needs)
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
