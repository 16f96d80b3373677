"""Domains of Xen that are there, as xl tells of them: on their machine too, where changes are undone."""

import re
from dataclasses import dataclass

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.composed import has_netbench
from netbench.images.on_host import require_in_vm

REMEDY = "apt-get install xen-system-amd64 and boot that; or measure inside a VM: topology lab-xen"
KERNEL, INITRD, DISC = "KERNEL", "INITRD", "DISC"  # in the config of one, until it is known where its machine has them
_PAUSED = "is paused"
_STATES = {"p": _PAUSED, "s": "has shut down", "c": "has crashed", "d": "is dying"}
_ROW = re.compile(r"^(?P<name>\S+)\s+(?P<id>\d+)\s+(?P<mib>\d+)\s+(?P<vcpus>\d+)\s+(?P<state>\S+)\s+(?P<cpu_s>[\d.]+)")


@dataclass(frozen=True, slots=True)
class Listed:
    """What `xl list` says of a domain (xl(1)): CPU time in tenths of a second, of all its vCPUs since it was made."""

    number: int
    memory_mib: int
    vcpus: int
    trouble: str  # why it does not run: `has crashed`; empty while it does
    cpu_s: float

    @property
    def is_paused(self) -> bool:
        """Somebody has paused it: it is well otherwise."""
        return self.trouble == _PAUSED


def parse_list(text: str) -> dict[str, Listed]:
    """The domains of `xl list` by name."""
    found = {}
    for line in text.splitlines():
        if row := _ROW.match(line):
            trouble = next((words for letter, words in _STATES.items() if letter in row["state"]), "")
            number, mib, vcpus = int(row["id"]), int(row["mib"]), int(row["vcpus"])
            found[row["name"]] = Listed(number, mib, vcpus, trouble, float(row["cpu_s"]))
    return found


def require_xl(host: Host) -> None:
    """MissingError unless the machine has Xen's `xl`."""
    if not has_netbench(host):
        require_in_vm(host, "xen", "xl")
    elif host.run(["which", "xl"]).exit_code != 0:
        raise MissingError(f"{host} has no `xl`: {REMEDY}")


def listed(host: Host, name: str) -> Listed | None:
    """A domain, if it is there; TestbedError when Xen cannot be asked."""
    done = host.run(["xl", "list", name])
    if done.exit_code == 0:
        return parse_list(done.stdout).get(name)
    if "invalid domain" in done.stderr:
        return None
    raise TestbedError(f"{host}: `xl list` failed with exit code {done.exit_code}: {done.stderr.strip()}")


def domain_0(host: Host) -> Listed:
    """The one that has the hardware and serves the others."""
    domains = parse_list(run_checked(host, ["xl", "list"])).values()
    try:
        return next(one for one in domains if one.number == 0)
    except StopIteration:
        raise TestbedError(f"{host}: `xl list` names no domain 0") from None


def backend(domain: int | str, device: int, nic: str) -> str:
    """What domain 0 calls its end of a NIC of that domain before it is renamed: Xen's own, or the tap of its QEMU."""
    return f"vif{domain}.{device}" + ("" if nic == "vif" else "-emu")
