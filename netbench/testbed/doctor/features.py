"""The features of the kernel that a topology may need, and what each rests on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netbench.linux.probes import Bench


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
