"""CPU time that a machine has used since it was started."""

_USER_HZ = 100  # of /proc/stat, whatever the kernel's own tick: proc_stat(5)


def busy_s(stat: str) -> float:
    """All CPUs' time in seconds out of /proc/stat, but for idling, waiting for disks, and what the hypervisor took.

    ValueError or IndexError where the text is another.
    """
    words = stat.splitlines()[0].split()
    if words[0] != "cpu":
        raise ValueError(f"/proc/stat begins with {words[0]!r}")
    user, nice, system, _, _, irq, softirq = map(int, words[1:8])
    return (user + nice + system + irq + softirq) / _USER_HZ
