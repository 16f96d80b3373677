"""The configuration file of a Xen domain for xl (xl.cfg(5))."""

import json
from collections.abc import Iterator

from netbench.vmm.base import GuestSpec
from netbench.vmm.xen_domain import DISC, INITRD, KERNEL
from netbench.vmm.xen_options import XenOptions

# netbench adds the NIC to its own bridge, in any namespace: no hotplug script of Xen may do that.
_NO_SCRIPT = "/bin/true"
_USUAL_WEIGHT = 256  # of a domain (xl.cfg(5)); that of a control group is 100


def domain_config(spec: GuestSpec, options: XenOptions) -> str:
    """Return the file for `xl create`, with KERNEL and INITRD, or DISC, as placeholders of paths."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in _settings(spec, options))


def _settings(spec: GuestSpec, options: XenOptions) -> Iterator[tuple[str, object]]:
    yield "name", spec.own_netns
    yield "type", options.mode
    if options.mode == "hvm":
        # Reads in large blocks; QEMU's own kernel loader takes minutes under Xen, byte by byte.
        drive = f"if=none,id=boot,media=cdrom,readonly=on,format=raw,file={DISC}"
        # No network boot: on a machine without iPXE's files such a NIC would be missing otherwise.
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
    # The domain stays, so that netbench can see how it ended.
    yield from (("on_poweroff", "preserve"), ("on_reboot", "preserve"), ("on_crash", "preserve"))
    if options.mode != "pv":
        yield "tsc_mode", "native"  # otherwise Xen emulates RDTSCP, which fails on a CPU emulated by QEMU


def kernel_words(options: XenOptions) -> str:
    """Return the command line of its kernel; with emulated NICs, it stops Linux from unplugging them.

    `pci=noearly` avoids two early scans of all 256 PCI buses. Each read of an emulated PC's register wakes domain 0,
    and the scans take most of a minute on emulated CPUs.
    """
    words = "console=hvc0 quiet panic=-1 no_timer_check netbench.channel=/dev/hvc0"
    if options.mode == "hvm":
        words += " pci=noearly"
    return words if options.nic == "vif" else f"{words} xen_emul_unplug=never"


def _affinity(spec: GuestSpec, options: XenOptions) -> list[str]:
    """Return the CPUs of each vCPU; empty: any."""
    everywhere = ",".join(map(str, spec.host_cpus)) or "all"
    pinned = [",".join(map(str, cpus)) or everywhere for cpus in options.pin]
    each = [*pinned, *[everywhere] * (options.cpus - len(pinned))]
    return [] if set(each) == {"all"} else each


def _vif(mac: str, options: XenOptions) -> str:
    kind = {"vif": "type=vif"}.get(options.nic, f"type=ioemu,model={options.nic}") if options.mode == "hvm" else ""
    return ",".join(word for word in (f"mac={mac}", f"script={_NO_SCRIPT}", kind) if word)
