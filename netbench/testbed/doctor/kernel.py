"""The kernel's features, tried one after the other, and how those that are not there are added."""

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack

from netbench.linux.probes import Bench, ProbeError, attempt, is_loadable
from netbench.testbed.doctor.checks import Check, Status
from netbench.testbed.doctor.software import Which, debian_kernel
from netbench.testbed.requirements import Feature


def check_kernel(
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
