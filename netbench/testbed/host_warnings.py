"""Warnings about the host: properties of its environment that make the numbers less reliable."""

from collections.abc import Iterator, Mapping

from netbench.model.verdict import CampaignWarning, WarningKind

MAX_STEAL_RATIO = 0.01
MAX_LOAD_PER_CPU = 0.5
MAX_CPU_USE = 0.1  # ratio of all CPU time: below this the host is not busy, even if its load average is high


def host_warnings(
    environment_before: Mapping[str, object], environment_after: Mapping[str, object] | None
) -> list[CampaignWarning]:
    """Return the warnings about the host, from its environment (`read_environment`) before and after a campaign.

    `environment_after` is None for a campaign that has not ended. Unknown values cause no warning.
    """
    return [
        *_frequency(environment_before),
        *_virtual(environment_before),
        *_limited(environment_before),
        *_busy(environment_before),
        *_stolen(environment_before, environment_after or {}),
    ]


def _frequency(environment: Mapping[str, object]) -> Iterator[CampaignWarning]:
    governor = _get(environment, "cpu", "governor")
    if isinstance(governor, str) and governor != "performance":
        yield CampaignWarning(
            WarningKind.CPU_FREQUENCY_VARIES,
            f"The CPU frequency governor is {governor}, not performance: the speed of the CPUs, and with it "
            "every rate near a maximum, can change during a trial. Set it before measuring: "
            "`echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`.",
        )


def is_virtual(environment: Mapping[str, object]) -> bool:
    """Return whether this machine is a virtual one, as its environment states."""
    return _get(environment, "virtualisation", "machine") not in (None, "none")


def _virtual(environment: Mapping[str, object]) -> Iterator[CampaignWarning]:
    machine = _get(environment, "virtualisation", "machine")
    if is_virtual(environment):
        yield CampaignWarning(
            WarningKind.HOST_IS_VIRTUAL,
            f"netbench ran inside a virtual machine ({machine}): its neighbours can take CPU time at any "
            "moment, and its timers pass through the hypervisor. UUTs measured in turns can be compared with "
            "each other; maximum rates and delays describe this virtual machine at that time. Measure on "
            "bare metal for numbers that hold elsewhere.",
        )


def _limited(environment: Mapping[str, object]) -> Iterator[CampaignWarning]:
    limit, cpus = (_get(environment, "cpu", "limit", name) for name in ("text", "cpus"))
    count = _get(environment, "cpu", "online_count")
    if limit is None or not isinstance(cpus, float) or (isinstance(count, int) and cpus >= count):
        return
    yield CampaignWarning(
        WarningKind.CPU_LIMIT,
        f"A control group limits the CPU time of netbench to {limit}. When it is used up, sources, sinks and UUTs that "
        "are processes stop until the next period. Trials in which that takes longer than a documented limit are "
        f"invalid (tester-disturbed). Before measuring, {_get(environment, 'cpu', 'limit', 'remedy')}.",
    )


def _busy(environment: Mapping[str, object]) -> Iterator[CampaignWarning]:
    loads = _get(environment, "activity", "load_average")
    cpus = _get(environment, "cpu", "online_count")
    if not (isinstance(loads, list) and loads and isinstance(cpus, int)):
        return
    use = _get(environment, "activity", "cpu_use")
    if loads[0] > cpus * MAX_LOAD_PER_CPU and not (isinstance(use, float) and use < MAX_CPU_USE):
        yield CampaignWarning(
            WarningKind.HOST_WAS_BUSY,
            f"The host was busy before the campaign started: load average {loads[0]:.2f} over the last "
            f"minute on {cpus} CPUs{f', {use:.0%} of them in use at the start' if isinstance(use, float) else ''}. "
            "Throughput may be too low, and loss too high: other programs took CPU time from generator, UUT and sink. "
            "Stop them and measure again.",
        )


def _stolen(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[CampaignWarning]:
    total = _growth(before, after, "total")
    steal = _growth(before, after, "steal")
    if total and steal is not None and steal > total * MAX_STEAL_RATIO:
        yield CampaignWarning(
            WarningKind.HOST_WAS_BUSY,
            f"The hypervisor gave {steal / total:.1%} of this host's CPU time to others during the campaign "
            f"({steal} of {total} ticks were stolen): unsent frames and loss may be their doing, and maxima "
            "too low. Measure again on a quieter machine or with dedicated CPUs.",
        )


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
