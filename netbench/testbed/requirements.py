"""What a host must have, said once: for `netbench doctor`, for the refusal before a campaign, and for the Makefile.

Needs are names: of commands, features of the kernel, and facilities for guests that are listed here; `root`,
`image:NAME`, `port:NAME`; any other is a command that a plug-in asks for.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import MissingError, NetbenchError, TestbedError
from netbench.hosts.local import LocalHost, require_tool
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.cgroups import find_controller
from netbench.linux.probes import Bench
from netbench.vmm.acceleration import choose
from netbench.vmm.qemu_command import VHOST_DEVICE, qemu_program


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that netbench starts; `package` is the one that holds it in Debian."""

    name: str
    package: str
    needed_for: str
    optional: bool = False  # only some topologies need it


@dataclass(frozen=True, slots=True)
class Feature:
    """Something of the kernel: tried by `probe` once everything in `requires` is there."""

    name: str
    needed_for: str
    requires: tuple[str, ...]
    option: str  # of the kernel's configuration
    module: str  # that holds it, where it may be one
    probe: Callable[[Bench], str]
    optional: bool = False
    otherwise: str = ""  # what does without it


@dataclass(frozen=True, slots=True)
class Facility:
    """Something that guests may be given.

    `look`, with the name of a guest image that is there, returns what was found; it raises MissingError for what is
    not there, and another NetbenchError for what it could not find out. `refusal` is what to say to a user whose
    topology needs it, around what was found.
    """

    name: str
    needed_for: str
    remedy: str
    look: Callable[[str], str]
    refusal: str = "{}"
    by_root: bool = False  # who alone can look


_QEMU_PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "qemu-system-aarch64": "qemu-system-arm"}
TOOLS = (
    Tool("ip", "iproute2", "running commands inside network namespaces"),
    Tool("tcpdump", "tcpdump", "capturing at the sinks"),
    Tool("nft", "nftables", "reference UUTs, whose drops are known"),
    Tool("ethtool", "ethtool", "switching the offloads of NICs off"),
    Tool("taskset", "util-linux", "pinning processes to CPUs"),
    Tool("setpriv", "util-linux", "child processes that end with netbench"),
    Tool(qemu_program(), _QEMU_PACKAGES.get(qemu_program(), "qemu-system"), "guests", optional=True),
    Tool("stress-ng", "stress-ng", "loads of neighbours that are no guests", optional=True),
    Tool("ssh", "openssh-client", "guests whose disk image is reached over SSH", optional=True),
)

_IN_NETNS = ("root", "netns")
_ON_VETH = (*_IN_NETNS, "veth")
_WITH_NFT = (*_IN_NETNS, "nft")
_IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-vm"
FEATURES = (
    Feature("netns", "testbeds of network namespaces", ("root",), "CONFIG_NET_NS", "", Bench.netns),
    Feature("veth", "links between namespaces", _IN_NETNS, "CONFIG_VETH", "veth", Bench.veth),
    Feature("packet", "the generator afpacket", _ON_VETH, "CONFIG_PACKET", "af_packet", Bench.packet),
    Feature("bridge", "UUTs that bridge", _ON_VETH, "CONFIG_BRIDGE", "bridge", Bench.bridge),
    Feature("bridge-nf", "bridges that no host firewall filters", (*_ON_VETH, "bridge"), "", "", Bench.bridge_nf),
    Feature("forwarding", "UUTs that route", _IN_NETNS, "CONFIG_SYSCTL", "", Bench.forwarding),
    Feature("nftables", "reference UUTs", _WITH_NFT, "CONFIG_NF_TABLES_BRIDGE", "nf_tables", Bench.nftables),
    Feature(
        "numgen",
        "reference UUTs that drop k of n frames",
        (*_WITH_NFT, "nftables"),
        "CONFIG_NFT_NUMGEN",
        "nft_numgen",
        Bench.numgen,
    ),
    Feature(
        "nft-ingress",
        "reference UUTs that limit a rate",
        (*_ON_VETH, "nft"),
        "CONFIG_NF_TABLES_NETDEV",
        "nf_tables",
        Bench.ingress,
        optional=True,
    ),
    Feature(
        "pktgen",
        "the generator pktgen",
        (),
        "CONFIG_NET_PKTGEN",
        "pktgen",
        Bench.pktgen,
        optional=True,
        otherwise=_IN_A_VM,
    ),
    Feature(
        "netem",
        "links of known delay",
        _ON_VETH,
        "CONFIG_NET_SCH_NETEM",
        "sch_netem",
        Bench.netem,
        optional=True,
        otherwise=_IN_A_VM,
    ),
    Feature("tun", "taps for guests", _IN_NETNS, "CONFIG_TUN", "tun", Bench.tun, optional=True),
    Feature("xdp", "generators on XDP sockets", _IN_NETNS, "CONFIG_XDP_SOCKETS", "", Bench.xdp, optional=True),
)


def image_facility(name: str) -> Facility:
    """A guest image as something to look for."""
    own = "" if name == DEFAULT_IMAGE else f" --name {name}"
    return Facility(
        f"image:{name}", "guests and hosts that are VMs", f"netbench image build{own}", lambda _: _image(name)
    )


def _image(name: str) -> str:
    image = find_image(name)
    return f"kernel {image.kernel_release}, digest {image.digest[:12]}, in {image.directory}"


def _kvm(image: str) -> str:
    """Only a guest that boots shows it, so one is booted, once for each boot of this machine."""
    try:
        with tempfile.TemporaryDirectory(prefix="netbench-kvm-") as directory:
            found = choose("auto", LocalHost("local", "requirements"), Path(directory), image)
    except NetbenchError as error:
        raise TestbedError(f"not tried: {error}") from error
    if found.emulated:
        raise MissingError(found.why)
    return "a guest boots under it"


def _vhost(_: str) -> str:
    if not VHOST_DEVICE.exists():
        raise MissingError(f"this host has no {VHOST_DEVICE}")
    return str(VHOST_DEVICE)


def _cpu_groups(_: str) -> str:
    found = find_controller(LocalHost("local", "requirements"))
    return f"version {found.version}, in {found.directory}"


FACILITIES = (
    Facility(
        "kvm",
        "guests whose CPU is not emulated",
        "use a machine, or an outer VM, with hardware virtualisation; until then guests are emulated",
        _kvm,
        "accelerator: kvm is wanted, but {}; use auto or tcg",
        by_root=True,
    ),
    Facility(
        "vhost",
        "virtio NICs that the kernel serves, instead of QEMU",
        "modprobe vhost_net",
        _vhost,
        "vhost: on is asked for, but {}: modprobe vhost_net",
    ),
    Facility(
        "cgroup-cpu",
        "guests with a weight or a limit of CPU time",
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        _cpu_groups,
    ),
)


def facilities(needs: Iterable[str]) -> list[Facility]:
    """Those among the needs, guest images first."""
    wanted = set(needs)
    images = sorted(need.removeprefix("image:") for need in wanted if need.startswith("image:"))
    return [*map(image_facility, images), *(one for one in FACILITIES if one.name in wanted)]


def tools(needs: Iterable[str]) -> list[Tool]:
    """The commands among the needs; for one that is not listed here, a package of the same name is a guess."""
    wanted = set(needs)
    others = {need for need in wanted - known_needs() if not need.startswith(("port:", "image:"))}
    return [
        *(tool for tool in TOOLS if tool.name in wanted),
        *(Tool(name, name, "the topology, which asks for it", optional=True) for name in sorted(others)),
    ]


def known_needs() -> frozenset[str]:
    """Root, and the commands, features and facilities that are listed here."""
    return frozenset({"root", *(one.name for one in (*TOOLS, *FEATURES, *FACILITIES))})


def image_among(needs: Iterable[str]) -> str:
    """The guest image to try things with."""
    images = sorted(need.removeprefix("image:") for need in needs if need.startswith("image:"))
    return images[0] if images else DEFAULT_IMAGE


def with_prerequisites(needs: Iterable[str]) -> frozenset[str]:
    """The needs, and all that the features among them rest on."""
    requires = {feature.name: feature.requires for feature in FEATURES}
    wanted: set[str] = set()
    pending = list(needs)
    while pending:
        need = pending.pop()
        if need not in wanted:
            wanted.add(need)
            pending += requires.get(need, ())
    return frozenset(wanted)


def require(needs: Iterable[str]) -> None:
    """MissingError for the first of the needs that this host lacks; features of the kernel show when they are used."""
    wanted = frozenset(needs)
    for tool in tools(wanted):
        require_tool(tool.name)
    for facility in facilities(wanted):
        try:
            facility.look(image_among(wanted))
        except MissingError as error:
            raise MissingError(facility.refusal.format(error)) from error


if __name__ == "__main__":
    # For the Makefile: COMMAND:PACKAGE of what every campaign needs (run), or only some do (guest).
    wanted = [tool for tool in TOOLS if tool.optional == (sys.argv[1] == "guest")]
    sys.stdout.write(" ".join(f"{tool.name}:{tool.package}" for tool in wanted))
