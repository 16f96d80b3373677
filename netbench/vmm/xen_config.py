"""The file that xl makes a domain of Xen from (xl.cfg(5))."""

import json
from collections.abc import Iterator

from netbench.vmm.base import GuestSpec
from netbench.vmm.xen_domain import DISC, INITRD, KERNEL
from netbench.vmm.xen_options import XenOptions

# A bridge is netbench's own, in whatever namespace: no hotplug script of Xen's is to attach the NIC.
_NO_SCRIPT = "/bin/true"
_USUAL_WEIGHT = 256  # of a domain (xl.cfg(5)); a control group's is 100


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
