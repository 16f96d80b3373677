"""Warnings about the host: properties of its environment that make the numbers less reliable."""

from collections.abc import Iterator, Mapping

from netbench.model.verdict import CampaignWarning, WarningKind

MAX_STEAL_RATIO = 0.01
MAX_LOAD_PER_CPU = 0.5
MAX_CPU_USE = 0.1  # ratio of all CPU time: below this the host is not busy, even if its load average is high

_TEXTS = {
    "frequency": "The CPU frequency governor is {governor}, not performance: the speed of the CPUs, and with it every "
    "rate near a maximum, can change during a trial. Set it before measuring: `echo performance | sudo tee "
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`.",
    "virtual": "netbench ran inside a virtual machine ({machine}): its neighbours can take CPU time at any moment, and "
    "its timers pass through the hypervisor. UUTs measured in turns can be compared with each other; maximum rates and "
    "delays describe this virtual machine at that time. Measure on bare metal for numbers that hold elsewhere.",
    "limited": "A control group limits the CPU time of netbench to {limit}. When it is used up, sources, sinks and "
    "UUTs that are processes stop until the next period. Trials in which that takes longer than a documented limit are "
    "invalid (tester-disturbed). Before measuring, {remedy}.",
    "busy": "The host was busy before the campaign started: load average {load:.2f} over the last minute on {cpus} "
    "CPUs{use}. Throughput may be too low, and loss too high: other programs took CPU time from generator, UUT and "
    "sink. Stop them and measure again.",
    "stolen": "The hypervisor gave {ratio:.1%} of this host's CPU time to others during the campaign ({steal} of "
    "{total} ticks were stolen): unsent frames and loss may be their doing, and maxima too low. Measure again on a "
    "quieter machine or with dedicated CPUs.",
}


def host_warnings(
    environment_before: Mapping[str, object], environment_after: Mapping[str, object] | None
) -> list[CampaignWarning]:
    """Return the warnings about the host, from its environment (`read_environment`) before and after a campaign.

    `environment_after` is None for a campaign that has not ended. Unknown values cause no warning.
    """
    return list(_warnings(environment_before, environment_after or {}))


def is_virtual(environment: Mapping[str, object]) -> bool:
    """Return whether this machine is a virtual one, as its environment states."""
    return _get(environment, "virtualisation", "machine") not in (None, "none")


def _warnings(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[CampaignWarning]:
    governor = _get(before, "cpu", "governor")
    if isinstance(governor, str) and governor != "performance":
        yield _warning(WarningKind.CPU_FREQUENCY_VARIES, "frequency", governor=governor)
    if is_virtual(before):
        yield _warning(WarningKind.HOST_IS_VIRTUAL, "virtual", machine=_get(before, "virtualisation", "machine"))
    limit, limit_cpus, remedy = (_get(before, "cpu", "limit", name) for name in ("text", "cpus", "remedy"))
    cpus = _get(before, "cpu", "online_count")
    if limit is not None and isinstance(limit_cpus, float) and not (isinstance(cpus, int) and limit_cpus >= cpus):
        yield _warning(WarningKind.CPU_LIMIT, "limited", limit=limit, remedy=remedy)
    loads, use = (_get(before, "activity", name) for name in ("load_average", "cpu_use"))
    if isinstance(loads, list) and loads and isinstance(cpus, int) and loads[0] > cpus * MAX_LOAD_PER_CPU:
        in_use = f", {use:.0%} of them in use at the start" if isinstance(use, float) else ""
        if not (isinstance(use, float) and use < MAX_CPU_USE):
            yield _warning(WarningKind.HOST_WAS_BUSY, "busy", load=loads[0], cpus=cpus, use=in_use)
    total, steal = _growth(before, after, "total"), _growth(before, after, "steal")
    if total and steal is not None and steal > total * MAX_STEAL_RATIO:
        yield _warning(WarningKind.HOST_WAS_BUSY, "stolen", ratio=steal / total, steal=steal, total=total)


def _warning(kind: WarningKind, text: str, **values: object) -> CampaignWarning:
    return CampaignWarning(kind, _TEXTS[text].format_map(values))


def _growth(before: Mapping[str, object], after: Mapping[str, object], counter: str) -> int | None:
    """Return the increase of a CPU time in ticks; None when unknown, or when the host rebooted in between."""
    first, last = (_get(environment, "activity", "cpu_ticks", counter) for environment in (before, after))
    if not (isinstance(first, int) and isinstance(last, int)) or last < first:
        return None
    return last - first


def _get(environment: Mapping[str, object], *path: str) -> object:
    value: object = environment
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
