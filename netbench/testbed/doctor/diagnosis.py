"""Everything that is looked at, in order."""

import os
import shutil
from collections.abc import Collection, Mapping

from netbench.testbed.doctor.checks import Check
from netbench.testbed.doctor.features import FEATURES, with_prerequisites
from netbench.testbed.doctor.guests import GUEST_NEEDS, check_guests
from netbench.testbed.doctor.kernel import check_kernel
from netbench.testbed.doctor.machine import check_clocksource, check_cpus, check_disk, check_governor, check_memory
from netbench.testbed.doctor.ports import check_all_ports, check_named_ports
from netbench.testbed.doctor.python import check_packages, check_parquet
from netbench.testbed.doctor.root import check_root
from netbench.testbed.doctor.tools import TOOLS, Which, check_tool


def diagnose(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    which: Which = shutil.which,
    euid: int | None = None,
) -> list[Check]:
    """Look at this host.

    `needs` are names from `known_needs()`, `port:NAME` for interfaces to be taken over and `image:NAME` for guest
    images; what they rest on is looked at too. None looks at everything, and then optional features are only reported.
    `addresses` are those the user names for each port. Raises ValueError for an unknown need.
    """
    unknown = {need for need in needs or () if not need.startswith(("port:", "image:"))} - known_needs()
    if unknown:
        raise ValueError(f"unknown needs: {', '.join(sorted(unknown))}")
    euid = os.geteuid() if euid is None else euid
    wanted = None if needs is None else with_prerequisites(needs)
    checks = [check_root(euid, which)]
    for tool in TOOLS:
        if wanted is None or tool.name in wanted:
            checks.append(check_tool(tool, which, euid, needed=wanted is not None or not tool.optional))
    features = [feature for feature in FEATURES if wanted is None or feature.name in wanted]
    checks += check_kernel(features, {check.name: check for check in checks}, needs or frozenset(), which)
    checks += check_guests(needs, euid)
    checks += [check_cpus(), check_governor(), check_clocksource(), check_memory(), check_disk()]
    checks += [check_packages(), check_parquet()]
    checks += check_all_ports() if needs is None else check_named_ports(needs, addresses)
    return checks


def known_needs() -> frozenset[str]:
    """Root, the tools and the kernel features that a topology may need."""
    return frozenset({"root", *GUEST_NEEDS, *(tool.name for tool in TOOLS), *(feature.name for feature in FEATURES)})
