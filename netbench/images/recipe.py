"""The contents of a guest: packages and selected files of them, kernel modules, and netbench's own files."""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from netbench.hosts.agent import program as agent_program
from netbench.images.library import content_digest
from netbench.images.pinned import parse_pins

# Increased when the same recipe and packages would give another image.
BUILDER = 2

DEFAULT_KERNELS = {"amd64": "linux-image-amd64", "arm64": "linux-image-arm64"}
# The architecture of pinned packages.
PINNED_FOR = "amd64"
PACKAGES = (
    "busybox-static",
    "dash",
    "ethtool",
    "iproute2",
    "netbase",
    "nftables",
    "python3-minimal",
    "stress-ng",
    "tcpdump",
)
# The shell is dash: busybox's shell would run its own `ip` and `tc` instead of those of iproute2, regardless of PATH.
COMMANDS = ("bridge", "busybox", "ethtool", "ip", "nft", "python3", "sh", "tc", "tcpdump")
# With the libraries that only they need, these commands are a third of a guest.
PACKED_COMMANDS = ("stress-ng",)
# Data files of commands: names of protocols, and the delay distributions of netem.
# The C library itself loads libgcc_s when a thread is cancelled.
FILES = ("etc/protocols", "usr/lib/*/libgcc_s.so.1", "usr/lib/*.dist")
# tcpdump drops root privileges to this user.
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\ntcpdump:x:100:100::/:/bin/false\n",
    "etc/group": "root:x:0:\ntcpdump:x:100:\n",
    "etc/hosts": "127.0.0.1 localhost netbench-guest\n::1 localhost\n",
}
START = "usr/lib/netbench/start"
MOUNT_POINTS = ("dev", "proc", "root", "run", "sys", "tmp", "var/log")

# Modules required for communication with the guest.
REQUIRED = ("virtio_console", "virtio_pci")

# Modules by purpose; dependencies are added automatically. A kernel may have some of them built in, and lack others:
# only the REQUIRED ones must exist in either form.
WANTED = {
    "virtio devices": (
        "virtio_balloon",
        "virtio_blk",
        "virtio_console",
        "virtio_mmio",
        "virtio_net",
        "virtio_pci",
        "virtio_rng",
        "virtio_scsi",
        "vmw_vsock_virtio_transport",
    ),
    "network cards that VMMs emulate": (
        "8139cp",
        "8139too",
        "e1000",
        "e1000e",
        "igb",
        "igbvf",
        "ixgbevf",
        "ne2k_pci",
        "pcnet32",
        "vmxnet3",
    ),
    "guests of Xen and Hyper-V": ("hv_netvsc", "hv_vmbus", "xen_blkfront", "xen_netfront"),
    "sources, sinks and paths": (
        "8021q",
        "bonding",
        "br_netfilter",
        "bridge",
        "dummy",
        "ifb",
        "ipvlan",
        "macvlan",
        "macvtap",
        "pktgen",
        "tun",
        "veth",
        "vhost_net",
        "vrf",
        "vxlan",
    ),
    "queueing, shaping, impairment": (
        "act_gact",
        "act_mirred",
        "act_police",
        "act_skbedit",
        "cls_basic",
        "cls_bpf",
        "cls_flower",
        "cls_matchall",
        "cls_u32",
        "sch_fq",
        "sch_fq_codel",
        "sch_htb",
        "sch_ingress",
        "sch_mqprio",
        "sch_multiq",
        "sch_netem",
        "sch_prio",
        "sch_tbf",
    ),
    "packet filtering": (
        "nf_conntrack",
        "nf_conntrack_bridge",
        "nf_flow_table",
        "nf_flow_table_inet",
        "nf_tables",
        "nft_chain_nat",
        "nft_ct",
        "nft_dup_netdev",
        "nft_flow_offload",
        "nft_fwd_netdev",
        "nft_hash",
        "nft_limit",
        "nft_masq",
        "nft_meta_bridge",
        "nft_nat",
        "nft_numgen",
        "nft_objref",
        "nft_quota",
        "nft_reject",
        "nft_reject_bridge",
        "nft_reject_inet",
    ),
    # Requested by the name of the algorithm, so they are no dependencies of any module.
    "checksums for the above": ("crc32c_generic", "crc32c_intel"),
    "where frames die": ("drop_monitor",),
    "the host's clock": ("ptp_kvm",),
}


@dataclass(frozen=True, slots=True)
class Lab:
    """The additional contents of the image of a VM that runs guests, or programs of netbench.

    Packages are Debian's. The image includes their `commands` with libraries, and their `files` (patterns); Python
    modules are included as bytecode. `pinned` are further packages, SHA-256 by path in Debian's archive; their files
    replace those of the others. `builds` is the name of a package with the source of modules, which are built for the
    kernel. `links` are links by path. The script `start` runs in the VM before the agent. `hypervisor` is a file of a
    package (a pattern), compressed by gzip, that boots before the kernel, and becomes a file of the image.
    """

    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    pinned: Mapping[str, str] = field(default_factory=dict)
    builds: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    start: str = ""
    hypervisor: str = ""


_OWN = Path(__file__).parent / "guest"

_NUMPY = "usr/lib/python3/dist-packages/numpy"
_NUMPY_MODULES = (
    "__config__",
    "__init__",
    "_distributor_init",
    "_globals",
    "_pytesttester",
    "_version",
    "ctypeslib",
    "version",
)
_NUMPY_PARTS = ("_typing", "compat", "core", "fft", "lib", "linalg", "ma", "matrixlib", "polynomial", "random")
_OF_NUMPY = (
    *(f"{name}.py" for name in _NUMPY_MODULES),
    *(f"{part}/*.py" for part in _NUMPY_PARTS),
    "typing/__init__.py",
    "core/_multiarray_*.so",
    *(f"{part}/*.so" for part in ("fft", "linalg", "random")),
)
# Links to libraries that Debian's alternatives system would select, which does not run here.
_CHOSEN = {"libblas.so.3": "blas/libblas.so.3", "liblapack.so.3": "lapack/liblapack.so.3"}
_LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"

# Labs by the name of the image.
LABS: Mapping[str, Lab] = {
    "lab": Lab(
        packages=("qemu-system-x86", "qemu-system-data", "seabios", "ipxe-qemu"),
        commands=("qemu-system-x86_64",),
        files=(
            "usr/share/qemu/kvmvapic.bin",
            "usr/share/qemu/linuxboot_dma.bin",
            "usr/share/qemu/multiboot_dma.bin",
            "usr/share/qemu/pvh.bin",
            "usr/share/qemu/vgabios-stdvga.bin",
            "usr/share/seabios/bios*.bin",
            "usr/share/seabios/vgabios-stdvga.bin",
            "usr/lib/ipxe/qemu/efi-e1000.rom",
            "usr/lib/ipxe/qemu/efi-virtio.rom",
            "usr/lib/ipxe/qemu/efi-vmxnet3.rom",
        ),
        modules=("kvm_amd", "kvm_intel"),
    ),
    # For netbench's own sources and sinks: Python with numpy, and the loader of BPF programs. Without the C modules of
    # Python's library that need large libraries, and without numpy's tests.
    "tester": Lab(
        packages=("libbpf1", "python3-numpy"),
        files=(
            *(
                f"usr/lib/python3*/lib-dynload/{name}.*.so"
                for name in ("_asyncio", "_contextvars", "_ctypes", "_json", "_queue", "mmap", "resource", "termios")
            ),
            *(f"{_NUMPY}/{name}" for name in _OF_NUMPY),
            "usr/lib/*-linux-gnu/libbpf.so.1",
        ),
        links={f"{_LIBRARIES}/{name}": target for name, target in _CHOSEN.items()},
    ),
    # VirtualBox is only in Debian's unstable release, and needs the libraries of that release.
    "virtualbox": Lab(
        packages=("isolinux", "syslinux-common", "util-linux", "xorriso"),
        commands=("unshare", "xorriso"),
        files=(
            "usr/lib/ISOLINUX/isolinux.bin",
            "usr/lib/syslinux/modules/bios/ldlinux.c32",
            *(
                f"usr/lib/virtualbox/{name}"
                for name in (
                    "VBoxDD*",
                    "VBoxHeadless*",
                    "VBoxManage",
                    "VBoxRT.so",
                    "VBoxSVC",
                    "VBoxVMM.so",
                    "VBoxXPCOM*",
                )
            ),
            "usr/lib/virtualbox/VMMR0.r0",
            "usr/lib/virtualbox/components/*",
        ),
        modules=("preempt_notifiers_on", "vboxdrv", "vboxnetflt"),
        pinned=parse_pins(Path(__file__).with_name("virtualbox.sha256").read_text()),
        builds="virtualbox-dkms",
        links={f"usr/bin/{name}": f"../lib/virtualbox/{name}" for name in ("VBoxHeadless", "VBoxManage")},
        start=(_OWN / "start-virtualbox").read_text(),
    ),
    "xen": Lab(
        packages=(
            "xen-hypervisor-4.17-amd64",
            "xen-utils-4.17",
            "xen-utils-common",
            "xenstore-utils",
            "qemu-system-xen",
            "seabios",
            "isolinux",
            "syslinux-common",
            "xorriso",
        ),
        commands=("xl", "xorriso", "xentop", "xenstore-read"),
        files=(
            "etc/xen/xl.conf",
            "usr/lib/xen-common/bin/*",
            "usr/lib/xen-4.17/bin/xen-init-dom0",
            "usr/lib/xen-4.17/bin/xenconsoled",
            "usr/lib/xen-4.17/bin/xenstored",
            "usr/lib/xen-4.17/bin/xentop",
            "usr/lib/xen-4.17/bin/xl",
            # For its HVM guests:
            "usr/lib/xen-4.17/boot/hvmloader",
            "usr/libexec/xen-qemu-system-i386",
            "usr/share/qemu/keymaps/en-us",
            "usr/share/qemu/kvmvapic.bin",
            "usr/share/seabios/bios-256k.bin",
            "usr/lib/ISOLINUX/isolinux.bin",
            "usr/lib/syslinux/modules/bios/ldlinux.c32",
        ),
        modules=("tun", "xen_evtchn", "xen_gntalloc", "xen_gntdev", "xen_netback", "xen_privcmd", "xenfs"),
        start=(_OWN / "start-xen").read_text(),
        hypervisor="boot/xen-*-amd64.gz",
    ),
}

INIT = _OWN / "init"
# Sources of netbench's own modules, which are built in every image that builds modules.
OWN_MODULES = tuple(sorted(_OWN.glob("*.c")))
AGENT = Path(agent_program.__file__)


def digest() -> str:
    """Return one hash of all of the above, and of the wanted modules."""
    decisions = (BUILDER, PACKAGES, COMMANDS, PACKED_COMMANDS, FILES, ACCOUNTS, MOUNT_POINTS, WANTED)
    own = [content_digest(path.read_bytes()) for path in (INIT, AGENT)]
    return content_digest(json.dumps([decisions, *own], sort_keys=True).encode())
