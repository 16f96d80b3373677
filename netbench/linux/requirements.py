"""Requirements of a machine: commands, kernel features, facilities for guests. Each user of one defines it.

Kernel features are tried in a network namespace that is made for it and removed again: a name in a list of modules or
a configuration file is no proof.
"""

import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2 import netns as namespaces
from pyroute2.netlink.exceptions import NetlinkError

from netbench.bpf.libbpf import attach_xdp, load, run_live
from netbench.errors import Fault, MissingError, NetbenchError, fault_of
from netbench.hosts.base import Host, fault_in, run_checked
from netbench.hosts.local import LocalHost
from netbench.linux.changes.receive import BindThread, ReceiveByNapi, threads_of
from netbench.linux.netlink import generic_netlink
from netbench.linux.xdp_devices import xdp_device

# Prints the arguments that are neither commands nor, with a `/`, patterns of an existing file.
_LIST_MISSING = """for sign; do
    case $sign in
        */*) [ -n "$(ls -d $sign 2>/dev/null)" ] ;;
        *) command -v "$sign" >/dev/null ;;
    esac || echo "$sign"
done"""
PROBE_PREFIX = "nb-probe-"
# Common requirements of features: a network namespace, a pair of interfaces in it, and rules.
IN_NETNS = ("root", "netns")
ON_VETH = (*IN_NETNS, "veth")
IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-vm"

_TIMEOUT_S = 10.0
_ETH_P_EXPERIMENT = 0x88B5  # IEEE Std 802, local experimental EtherType 1
_SOL_PACKET = 263
_PACKET_QDISC_BYPASS = 20
_AF_XDP = 44
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000

_Which = Callable[[str], str | None]  # finds a command, as shutil.which does


@dataclass(frozen=True, slots=True)
class Command:
    """A command that netbench starts; `package` is its package in Debian.

    `version` is the option that prints its version; empty where the version does not matter for results.
    """

    name: str
    package: str
    needed_for: str
    optional: bool = False  # only some topologies need it
    version: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the kernel: `probe` tries it once everything in `requires` is available.

    A user of a `dispensable` feature continues without it, and reports the effect on the results.
    """

    name: str
    needed_for: str
    requires: tuple[str, ...]
    option: str  # of the kernel's configuration
    module: str  # the module that contains it, if it can be one
    probe: Callable[["Probes"], str]
    optional: bool = False
    otherwise: str = ""  # an alternative without it
    dispensable: bool = False


@dataclass(frozen=True, slots=True)
class Facility:
    """A resource for guests.

    `look`, with the name of an existing guest image, returns a description of the resource. It raises MissingError if
    the resource is missing, and another NetbenchError if that is unknown. `refusal` is the message to a user whose
    topology needs it, with a place for the description.

    `recall` is like `look`, but quick and for every user: it tries nothing, and returns an empty text where only a try
    would show it. `signs` are the commands and the files (with a `/`; shell patterns, of which one match is enough)
    that show it on a host over SSH; empty: only a run does. `packages` are its packages in Debian, if any.
    """

    name: str
    needed_for: str
    remedy: str | Callable[[], str]
    look: Callable[[str], str]
    refusal: str = "{}"
    by_root: bool = False  # whether only root can look
    recall: Callable[[str], str] | None = None
    signs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def what_to_do(self) -> str:
        """The remedy, for this machine."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy()


Requirement = Command | Feature | Facility


def require_on_host(host: Host, requirements: Iterable[Requirement]) -> None:
    """Raise MissingError for the required commands, and facilities with signs, that a host lacks.

    The host may be on another machine.
    """
    packages: dict[str, tuple[str, ...]] = {}
    by_hand: dict[str, str] = {}
    for requirement in requirements:
        if isinstance(requirement, Command):
            packages[requirement.name] = (requirement.package,)
        elif isinstance(requirement, Facility):
            packages |= dict.fromkeys(requirement.signs, requirement.packages)
            by_hand |= {} if requirement.packages else dict.fromkeys(requirement.signs, requirement.what_to_do)
    lacking = run_checked(host, ["sh", "-c", _LIST_MISSING, "sh", *packages]).splitlines() if packages else []
    if lacking:
        missing = ", ".join(dict.fromkeys(package for sign in lacking for package in packages[sign]))
        remedies = dict.fromkeys(by_hand[sign] for sign in lacking if sign in by_hand)
        if missing:
            install = (
                f"install {missing} there (on a host over SSH `netbench hosts prepare TOPOLOGY` does it; to a VM, add "
                "it to the packages of its image)"
            )
            remedies = {install: None, **remedies}
        raise MissingError(f"{host} has no {', '.join(lacking)}: {'; '.join(remedies)}")


class ProbeError(Exception):
    """A feature is missing; the text describes the observation. `fault` and `package` as in NetbenchError."""

    def __init__(self, observed: object, fault: Fault = Fault.NONE, package: str = "") -> None:
        super().__init__(str(observed))
        self.fault, self.package = fault, package


class Probes:
    """The feature probes, in a namespace with the veth pair `nbp0` – `nbp1`, once the probes that make them ran."""

    def __init__(self, stack: ExitStack, which: _Which) -> None:
        self._stack = stack
        self._which = which

    def netns(self) -> str:
        """Make a network namespace and enter it."""
        self._netns = self._stack.enter_context(_probe_namespace())
        return "created and entered one"

    def veth(self) -> str:
        """Make the pair and set both ends up."""
        with IPRoute() as iproute:
            iproute.link("add", ifname="nbp0", kind="veth", peer={"ifname": "nbp1"})
            for name in ("nbp0", "nbp1"):
                iproute.link("set", index=iproute.link_lookup(ifname=name)[0], state="up")
        return "created a pair"

    def bridge(self) -> str:
        """Make a bridge, and give it a port."""
        with IPRoute() as iproute:
            iproute.link("add", ifname="nbpbr", kind="bridge")
            bridge, port = (iproute.link_lookup(ifname=name)[0] for name in ("nbpbr", "nbp1"))
            iproute.link("set", index=port, master=bridge)
            iproute.link("set", index=port, master=0)
        return "created one with a port"

    def bridge_nf(self) -> str:
        """Switch off the filtering of bridged frames by the IP layer's firewall, and on again."""
        switches = sorted(Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"))
        for switch in switches:
            before = switch.read_text()
            switch.write_text("0")
            now = switch.read_text().strip()
            switch.write_text(before)
            if now != "0":
                raise ProbeError(f"{switch.name} stays {now} when set to 0")
        return "can be switched off" if switches else "br_netfilter is not loaded: nothing to switch off"

    def forwarding(self) -> str:
        """Switch IP forwarding on."""
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        return "net.ipv4.ip_forward can be set"

    def ipv6_forwarding(self) -> str:
        """Switch forwarding of IPv6 on."""
        switch = Path("/proc/sys/net/ipv6/conf/all/forwarding")
        if not switch.exists():
            raise ProbeError("IPv6 is disabled in the kernel (boot option ipv6.disable=1, or no CONFIG_IPV6)")
        switch.write_text("1")
        return "net.ipv6.conf.all.forwarding can be set"

    def policy_routing(self) -> str:
        """Make a routing rule for the packets that one interface receives."""
        self._ip("rule add iif nbp0 ipproto udp dport 4789 lookup 198000")
        return "created a rule"

    def vlan_interface(self) -> str:
        """Make the interface of a VLAN."""
        self._ip("link add link nbp0 name nbpvlan type vlan id 5")
        return "created one"

    def vlan_filtering(self) -> str:
        """Make a bridge that filters VLANs."""
        self._ip("link add name nbpbrv type bridge vlan_filtering 1")
        return "created one"

    def vxlan(self) -> str:
        """Make a VXLAN interface."""
        self._ip("link add name nbpvxlan type vxlan id 5 dstport 4789")
        return "created one"

    def geneve(self) -> str:
        """Make a GENEVE interface."""
        self._ip("link add name nbpgnv type geneve external dstport 6081")
        return "created one"

    def gre(self) -> str:
        """Make an interface for GRE with Ethernet inside."""
        self._ip("link add name nbpgre type gretap local 198.18.0.1 key 5")
        return "created one"

    def nat(self) -> str:
        """Make a rule that translates the addresses of one network to those of another."""
        self._nft("add table ip nbpn")
        self._nft("add chain ip nbpn c { type nat hook postrouting priority 100; }")
        self._nft("add rule ip nbpn c snat ip prefix to ip saddr map { 198.18.0.0/16 : 10.18.0.0/16 }")
        return "created a rule"

    def masquerade(self) -> str:
        """Make a rule that gives connections the machine's address, and one that leads those of clients to a guest."""
        self._nft("add table ip nbpm")
        self._nft("add chain ip nbpm after { type nat hook postrouting priority 100; }")
        self._nft("add rule ip nbpm after ip saddr 10.118.1.0/24 masquerade")
        self._nft("add chain ip nbpm before { type nat hook prerouting priority -100; }")
        self._nft("add rule ip nbpm before meta l4proto { tcp, udp } th dport 5201 dnat to 10.118.1.2")
        return "created rules"

    def packet(self) -> str:
        """Send a frame past the queueing discipline and receive it."""
        frame = bytes(12) + struct.pack("!H", _ETH_P_EXPERIMENT) + b"netbench".ljust(46)
        with (
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_EXPERIMENT)) as receiver,
        ):
            sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
            sender.bind(("nbp0", _ETH_P_EXPERIMENT))
            receiver.bind(("nbp1", _ETH_P_EXPERIMENT))
            receiver.settimeout(_TIMEOUT_S)
            sender.send(frame)
            if receiver.recv(2048) != frame:
                raise ProbeError("the frame received is not the one that was sent")
        return "sent a frame without queueing discipline and received it"

    def nftables(self) -> str:
        """Make filter chains for bridged and routed frames."""
        for family in ("bridge", "ip"):
            self._nft(f"add table {family} nbp")
            self._nft(f"add chain {family} nbp c {{ type filter hook forward priority 0; }}")
        return "created filter chains for bridged and routed frames"

    def numgen(self) -> str:
        """Make a rule that drops k of n frames."""
        for family in ("bridge", "ip"):
            self._nft(f"add rule {family} nbp c numgen inc mod 100 < 7 counter drop")
        return "created a rule that drops 7 of 100 frames"

    def ingress(self) -> str:
        """Make an ingress chain."""
        self._nft("add table netdev nbp")
        self._nft('add chain netdev nbp c { type filter hook ingress device "nbp0" priority 0; }')
        return "created an ingress chain"

    def flowtable(self) -> str:
        """Make a table of flows that bypass the IP layer."""
        self._nft("add table ip nbpf")
        self._nft('add flowtable ip nbpf f { hook ingress priority 0; devices = { "nbp0" }; }')
        self._nft("add chain ip nbpf c { type filter hook forward priority 0; }")
        self._nft("add rule ip nbpf c ip protocol udp flow add @f")
        return "created a table of flows"

    def redirect(self) -> str:
        """Redirect the frames received by one interface to another."""
        every = "protocol all u32 match u32 0 0 action mirred egress redirect dev nbp1"
        self._pipe(["tc", "-batch", "-"], f"qdisc add dev nbp0 ingress\nfilter add dev nbp0 ingress {every}\n")
        return "redirected received frames"

    def xdp_redirect(self) -> str:
        """Attach a program that redirects, in the driver of an interface."""
        try:
            with load("forward") as program:
                attach_xdp(program.program("nb_forward"), socket.if_nametoindex("nbp0"), "native").close()
        except NetbenchError as error:
            raise ProbeError(error, error.fault, error.package) from error
        return "attached a program"

    def openvswitch(self) -> str:
        """Request the kernel's datapath of Open vSwitch, which loads its module."""
        with generic_netlink("ovs_datapath"):
            return "has the datapath of Open vSwitch"

    def netem(self) -> str:
        """Delay a link."""
        with IPRoute() as iproute:
            iproute.tc("add", "netem", iproute.link_lookup(ifname="nbp0")[0], "1:", delay=1000)
        return "delayed a link"

    def pktgen(self) -> str:
        """Check whether pktgen is loaded or loadable."""
        if Path("/proc/net/pktgen").exists():
            return "loaded"
        if is_loadable(self._which, "pktgen"):
            return "not loaded, but its module exists"
        raise ProbeError("not in this kernel")

    def macvlan(self) -> str:
        """Make a macvlan on the pair."""
        with IPRoute() as iproute:
            nic = iproute.link_lookup(ifname="nbp0")[0]
            iproute.link("add", ifname="nbpmvl", kind="macvlan", link=nic, macvlan_mode="bridge")
            iproute.link("del", index=iproute.link_lookup(ifname="nbpmvl")[0])
        return "created one"

    def macvtap(self) -> str:
        """Make a macvtap on the pair."""
        with IPRoute() as iproute:
            nic = iproute.link_lookup(ifname="nbp0")[0]
            iproute.link("add", ifname="nbpmvt", kind="macvtap", link=nic, macvtap_mode="passthru")
            iproute.link("del", index=iproute.link_lookup(ifname="nbpmvt")[0])
        return "created one"

    def tun(self) -> str:
        """Make a tap."""
        with Path("/dev/net/tun").open("r+b", buffering=0) as device:
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH14x", b"nbptap", _IFF_TAP | _IFF_NO_PI))
        return "created a tap"

    def xdp(self) -> str:
        """Open an XDP socket."""
        socket.socket(_AF_XDP, socket.SOCK_RAW, 0).close()
        return "opened a socket"

    def napi(self) -> str:
        """Make one end of the pair receive by NAPI, in a kernel thread, and bind the thread to a CPU."""
        host, cpu = LocalHost("local", "doctor"), min(os.sched_getaffinity(0))
        earlier = threads_of(host, "nbp1")
        try:
            ReceiveByNapi(self._netns, "nbp1").make(host)
            for number, name in threads_of(host, "nbp1").items():
                if number not in earlier:
                    BindThread(self._netns, name, (cpu,), number).make(host)
        except NetbenchError as error:
            raise ProbeError(error, error.fault, error.package) from error
        return "one end of a pair received from a ring, by a kernel thread bound to a CPU"

    def live_frames(self) -> str:
        """Run a program that drops a live frame, and query which interfaces accept frames from programs."""
        try:
            with load("source") as loaded:
                run_live(loaded.program("paced"), bytes(60), 1)
        except NetbenchError as error:
            raise ProbeError(error, error.fault, error.package) from error
        takes = xdp_device("nbp0").takes_frames
        if takes is None:
            raise ProbeError("does not report which interfaces accept frames from programs, as Linux 6.3 and newer do")
        links = "links with `receive: napi` and " if takes else ""
        return f"ran a program on a live frame; {links}NICs whose driver supports it can send such frames"

    def _ip(self, line: str) -> None:
        self._pipe(["ip", "-batch", "-"], f"{line}\n")

    def _nft(self, ruleset: str) -> None:
        self._pipe(["nft", "-f", "-"], ruleset)

    def _pipe(self, command: Sequence[str], text: str) -> None:
        tool = command[0]
        done = subprocess.run(
            [self._which(tool) or tool, *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            words = done.stderr.partition("Error: ")[2] or done.stderr
            first = (words.splitlines() or [f"{tool} exited with {done.returncode}"])[0]
            raise ProbeError(first, fault_in(first))


def attempt(probe: Callable[[Probes], str], probes: Probes) -> str:
    """Return the result of a probe; ProbeError when the feature is missing."""
    try:
        return probe(probes)
    except (OSError, NetlinkError, subprocess.TimeoutExpired) as error:
        number = error.code if isinstance(error, NetlinkError) else getattr(error, "errno", None)
        raise ProbeError(_reason(error), fault_of(number or 0)) from error


def _reason(error: Exception) -> str:
    match error:
        case NetlinkError():
            return f"the kernel rejects it: {os.strerror(error.code)}"
        case TimeoutError():
            return f"no frame was received within {_TIMEOUT_S:g} s"
        case OSError(errno=int(number)):
            # pyroute2 uses the errno's text for the step that failed.
            step = "" if error.strerror == os.strerror(number) else f" ({error.strerror})"
            where = f": {error.filename}" if error.filename else ""
            return f"the kernel rejects it: {os.strerror(number)}{step}{where}"
        case subprocess.TimeoutExpired():
            return f"{Path(error.cmd[0]).name} did not end within {error.timeout:g} s"
    return str(error)


def is_loadable(which: _Which, module: str) -> bool:
    """Return whether modprobe finds the module; it is not loaded."""
    modprobe = which("modprobe")
    if modprobe is None:
        return False
    try:
        done = subprocess.run([modprobe, "-n", "-q", module], capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@contextmanager
def _probe_namespace() -> Iterator[str]:
    """Move this thread to a new network namespace for the block; the namespace is removed in any case."""
    _remove_stale_namespaces()
    name = f"{PROBE_PREFIX}{os.getpid()}"
    try:
        namespaces.create(name)
        namespaces.pushns(name)
        try:
            yield name
        finally:
            namespaces.popns()
    finally:
        _remove_namespace(name)


def _remove_stale_namespaces() -> None:
    """Remove the namespaces of earlier doctors that were killed."""
    for name in namespaces.listnetns():
        pid = name.removeprefix(PROBE_PREFIX)
        if name.startswith(PROBE_PREFIX) and pid.isdecimal() and not Path("/proc", pid).exists():
            _remove_namespace(name)


def _remove_namespace(name: str) -> None:
    with suppress(OSError):  # the namespace was never made
        namespaces.remove(name)
