"""Existing domains of Xen, as listed by xl; also used on the machine itself, where changes are undone."""

import re
from dataclasses import dataclass

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.remote_code import has_netbench
from netbench.images.on_host import require_in_vm

REMEDY = "apt-get install xen-system-amd64 and boot that; or measure inside a VM: topology lab-xen"
KERNEL, INITRD, DISC = "KERNEL", "INITRD", "DISC"  # placeholders in a config, until the machine's paths are known
_PAUSED = "is paused"
_STATES = {"p": _PAUSED, "s": "has shut down", "c": "has crashed", "d": "is dying"}
_ROW = re.compile(r"^(?P<name>\S+)\s+(?P<id>\d+)\s+(?P<mib>\d+)\s+(?P<vcpus>\d+)\s+(?P<state>\S+)\s+(?P<cpu_s>[\d.]+)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of `xl list` (xl(1)); CPU time in seconds, to 0.1 s, of all its vCPUs since its creation."""

    number: int
    memory_mib: int
    vcpus: int
    trouble: str  # why it does not run: `has crashed`; empty while it does
    cpu_s: float

    @property
    def is_paused(self) -> bool:
        """Whether somebody has paused it, without any other trouble."""
        return self.trouble == _PAUSED


def parse_list(text: str) -> dict[str, Listed]:
    """Return the domains of `xl list` by name."""
    found = {}
    for line in text.splitlines():
        if row := _ROW.match(line):
            trouble = next((words for letter, words in _STATES.items() if letter in row["state"]), "")
            number, mib, vcpus = int(row["id"]), int(row["mib"]), int(row["vcpus"])
            found[row["name"]] = Listed(number, mib, vcpus, trouble, float(row["cpu_s"]))
    return found


def require_xl(host: Host) -> None:
    """Raise MissingError unless the machine has Xen's `xl`."""
    if not has_netbench(host):
        require_in_vm(host, "xen", "xl")
    elif host.run(["which", "xl"]).exit_code != 0:
        raise MissingError(f"{host} has no `xl`: {REMEDY}")


def listed(host: Host, name: str) -> Listed | None:
    """Return a domain, None if it does not exist; TestbedError when `xl list` fails."""
    done = host.run(["xl", "list", name])
    if done.exit_code == 0:
        return parse_list(done.stdout).get(name)
    if "invalid domain" in done.stderr:
        return None
    raise TestbedError(f"{host}: `xl list` failed with exit code {done.exit_code}: {done.stderr.strip()}")


def domain_0(host: Host) -> Listed:
    """Return domain 0, which has the hardware and serves the other domains."""
    domains = parse_list(run_checked(host, ["xl", "list"])).values()
    try:
        return next(domain for domain in domains if domain.number == 0)
    except StopIteration:
        raise TestbedError(f"{host}: `xl list` names no domain 0") from None


def backend(domain: int | str, device: int, nic: str) -> str:
    """Return the initial name of domain 0's end of that domain's NIC: Xen's own, or that of the tap of its QEMU."""
    return f"vif{domain}.{device}" + ("" if nic == "vif" else "-emu")
