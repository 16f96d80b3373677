"""A domain of Xen as data: the file that xl makes it from (xl.cfg(5)), and what xl says of one that is there."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.images.on_host import require_in_vm
from netbench.vmm.base import GuestSpec
from netbench.vmm.xen_options import XenOptions

REMEDY = "apt-get install xen-system-amd64 and boot that; or measure inside a VM: topology lab-xen"
# A bridge is netbench's own, in whatever namespace: no hotplug script of Xen's is to attach the NIC.
_NO_SCRIPT = "/bin/true"
KERNEL, INITRD, DISC = "KERNEL", "INITRD", "DISC"  # until it is known where the machine has them
_USUAL_WEIGHT = 256  # of a domain (xl.cfg(5)); a control group's is 100
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
    if not host.shares_files:
        require_in_vm(host, "xen", "xl")
    elif host.run(["which", "xl"]).exit_code != 0:
        raise MissingError(f"this machine has no `xl`: {REMEDY}")


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


def domain_config(spec: GuestSpec, options: XenOptions) -> str:
    """The file that `xl create` makes the domain from, with KERNEL and INITRD, or DISC, in the place of these."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in _settings(spec, options))


def _settings(spec: GuestSpec, options: XenOptions) -> Iterator[tuple[str, object]]:
    yield "name", spec.own_netns
    yield "type", options.mode
    if options.mode == "hvm":
        # Read in large pieces; QEMU's own loader of kernels takes minutes under Xen, byte by byte.
        drive = f"if=none,id=boot,media=cdrom,readonly=on,format=raw,file={DISC}"
        # It boots from no network: a machine without iPXE's files would have no such NIC otherwise.
        no_rom = () if options.nic == "vif" else ("-global", f"{options.nic}.romfile=")
        yield (
            "device_model_args_hvm",
            [
                *("-device", "ahci,id=discs", "-drive", drive),
                *("-device", "ide-cd,bus=discs.0,drive=boot,bootindex=0"),
                *no_rom,
            ],
        )
        yield from (("vga", "none"), ("vnc", 0), ("usb", 0))
    else:
        yield from (("kernel", KERNEL), ("ramdisk", INITRD), ("cmdline", kernel_words(options)))
    yield "vcpus", options.cpus
    yield "memory", options.memory
    if cpus := _affinity(spec, options):
        yield "cpus", cpus
    if spec.weight is not None:
        yield "cpu_weight", max(1, round(_USUAL_WEIGHT * spec.weight / 100))
    if spec.limit is not None:
        yield "cap", max(1, round(100 * spec.limit))
    yield "vif", [_vif(nic.mac, options) for nic in spec.nics]
    # What became of it is for netbench to see.
    yield from (("on_poweroff", "preserve"), ("on_reboot", "preserve"), ("on_crash", "preserve"))
    if options.mode != "pv":
        yield "tsc_mode", "native"  # else Xen emulates RDTSCP, and fails on a processor that QEMU emulates


def kernel_words(options: XenOptions) -> str:
    """What its kernel is told; Linux would unplug emulated NICs by itself.

    It would also look for PCI devices on all 256 buses, twice, before it knows that there is one: for each read of an
    imitated PC domain 0 has to be woken, all of which takes most of a minute where processors are emulated.
    """
    words = "console=hvc0 quiet panic=-1 no_timer_check netbench.channel=/dev/hvc0"
    if options.mode == "hvm":
        words += " pci=noearly"
    return words if options.nic == "vif" else f"{words} xen_emul_unplug=never"


def _affinity(spec: GuestSpec, options: XenOptions) -> list[str]:
    """CPUs for each vCPU; empty: any."""
    everywhere = ",".join(map(str, spec.host_cpus)) or "all"
    pinned = [",".join(map(str, cpus)) or everywhere for cpus in options.pin]
    each = [*pinned, *[everywhere] * (options.cpus - len(pinned))]
    return [] if set(each) == {"all"} else each


def _vif(mac: str, options: XenOptions) -> str:
    kind = {"vif": "type=vif"}.get(options.nic, f"type=ioemu,model={options.nic}") if options.mode == "hvm" else ""
    return ",".join(word for word in (f"mac={mac}", f"script={_NO_SCRIPT}", kind) if word)
