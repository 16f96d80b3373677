"""What netbench changes on a machine, one class a kind of change.

Each change is plain data, so that it can be written to the journal before it is made, shown by
`--dry-run` as the command that would do the same, and undone later by another process. Undoing is
tolerant: what is not there (any more) is already undone.
"""

import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from socket import AF_INET
from typing import Any, Self

from pyroute2 import netns as namespaces
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.signals import shielded
from netbench.links.cgroups import USUAL_DIRECTORY, CpuController, find_controller
from netbench.links.netlink import Netlink
from netbench.links.state import STATE_DIRECTORY
from netbench.model.names import PREFIX

# What would make one frame on the wire differ from one frame counted (ethtool -K names).
OFFLOADS = ("gro", "gso", "tso", "lro")
_LONG_NAMES = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}

_GONE = (19, 2, 3, 99)  # ENODEV, ENOENT, ESRCH, EADDRNOTAVAIL
_PERMANENT = 0x80  # NUD_PERMANENT, linux/neighbour.h
_STATIC = 0x40  # NUD_NOARP: what `bridge fdb … static` sets; NUD_PERMANENT would mean the bridge's own address
_IFF_UP = 0x1
_BY_KERNEL = 2  # RTPROT_KERNEL, linux/rtnetlink.h: routes that come and go with their addresses
_LINK_SCOPE = 253  # RT_SCOPE_LINK, linux/rtnetlink.h
_TO_MASTER = 0x04  # NTF_MASTER, linux/neighbour.h
_EMPTY_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Machine:
    """What a change acts with: the netlink sockets, and a host per network namespace name."""

    netlink: Netlink
    hosts: dict[str | None, Host]

    def link(self, netns: str | None, verb: str, interface: str, **settings: Any) -> None:  # noqa: ANN401
        """One `ip link` request on an interface that is there."""
        self.netlink.socket(netns).link(verb, index=self.netlink.index(netns, interface), **settings)


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `inside` is the namespace it lives in; it goes with that namespace when netbench made it."""

    @property
    def inside(self) -> str | None:
        """The namespace whose removal undoes this change; None when it must be undone by itself."""
        return None

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that would do the same, or does it on a machine that netbench has for itself."""
        raise NotImplementedError

    @property
    def undo_argv(self) -> tuple[str, ...]:
        """The command that takes it back, empty where it goes with something else; only where `make` uses netlink."""
        return ()

    @property
    def command(self) -> str:
        """The command that would do the same, as text."""
        return shlex.join(self.argv)

    def as_found(self, machine: Machine) -> Self:
        """This change with the value it will replace, read before anything is written to the journal."""
        return self

    def make(self, machine: Machine) -> None:
        """Make the change."""
        raise NotImplementedError

    def undo(self, machine: Machine) -> None:
        """Take it back; harmless when it was never made."""


@dataclass(frozen=True, slots=True)
class _InNamespace(Change):
    netns: str | None

    @property
    def inside(self) -> str | None:
        return self.netns


@dataclass(frozen=True, slots=True)
class ByCommand(_InNamespace):
    """A change that is made by commands and files of a host, and so in the same way on every machine."""

    def found_by(self, host: Host) -> Self:
        """As `as_found`."""
        return self

    def make_by(self, host: Host) -> None:
        """As `make`."""
        raise NotImplementedError

    def undo_by(self, host: Host) -> None:
        """As `undo`."""

    def as_found(self, machine: Machine) -> Self:
        return self.found_by(machine.hosts[self.netns])

    def make(self, machine: Machine) -> None:
        self.make_by(machine.hosts[self.netns])

    def undo(self, machine: Machine) -> None:
        self.undo_by(machine.hosts[self.netns])


@dataclass(frozen=True, slots=True)
class AddNamespace(Change):
    """A named network namespace."""

    name: str

    @property
    def argv(self) -> tuple[str, ...]:
        return "ip", "netns", "add", self.name

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return "ip", "netns", "del", self.name

    def as_found(self, machine: Machine) -> Self:
        if (Path("/run/netns") / self.name).exists():
            raise _not_ours(f"the network namespace {self.name}")
        return self

    def make(self, machine: Machine) -> None:
        with shielded():  # pyroute2 forks
            namespaces.create(self.name)

    def undo(self, machine: Machine) -> None:
        machine.netlink.forget(self.name)
        if (Path("/run/netns") / self.name).exists():
            namespaces.remove(self.name)


@dataclass(frozen=True, slots=True)
class AddVeth(Change):
    """A veth pair, each end with a fixed MAC address, in its own namespace."""

    netns: str | None
    interface: str
    mac: str
    peer_netns: str | None
    peer: str
    peer_mac: str

    @property
    def inside(self) -> str | None:
        return self.netns or self.peer_netns

    @property
    def argv(self) -> tuple[str, ...]:
        one = (self.interface, *_in(self.netns), "address", self.mac)
        other = (self.peer, *_in(self.peer_netns), "address", self.peer_mac)
        return "ip", "link", "add", *one, "type", "veth", "peer", *other

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return _delete_argv(self.netns, self.interface)

    def as_found(self, machine: Machine) -> Self:
        _refuse_existing(machine, self.netns, self.interface)
        _refuse_existing(machine, self.peer_netns, self.peer)
        return self

    def make(self, machine: Machine) -> None:
        peer: dict[str, object] = {"ifname": self.peer, "address": self.peer_mac}
        peer["net_ns_fd"] = f"/run/netns/{self.peer_netns}" if self.peer_netns else "/proc/self/ns/net"
        machine.netlink.socket(self.netns).link("add", ifname=self.interface, kind="veth", address=self.mac, peer=peer)

    def undo(self, machine: Machine) -> None:
        _delete_link(machine, self.netns, self.interface)


@dataclass(frozen=True, slots=True)
class AddBridge(_InNamespace):
    """A bridge that only forwards: no spanning tree, no multicast snooping, no netfilter detour."""

    interface: str

    @property
    def argv(self) -> tuple[str, ...]:
        quiet = ("stp_state", "0", "mcast_snooping", "0", "forward_delay", "0")
        return *_ip(self.netns), "link", "add", self.interface, "type", "bridge", *quiet

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return _delete_argv(self.netns, self.interface)

    def make(self, machine: Machine) -> None:
        machine.netlink.socket(self.netns).link(
            "add",
            ifname=self.interface,
            kind="bridge",
            br_stp_state=0,
            br_mcast_snooping=0,
            br_forward_delay=0,
        )

    def undo(self, machine: Machine) -> None:
        _delete_link(machine, self.netns, self.interface)


@dataclass(frozen=True, slots=True)
class AddTap(_InNamespace):
    """A tap for a NIC of a guest; each frame on it has room for a virtio header (tuntap.rst, IFF_VNET_HDR)."""

    interface: str
    queues: int = 1

    @property
    def argv(self) -> tuple[str, ...]:
        return *_exec(self.netns), *self._request()

    def as_found(self, machine: Machine) -> Self:
        _refuse_existing(machine, self.netns, self.interface)
        return self

    def make(self, machine: Machine) -> None:
        run_checked(machine.hosts[self.netns], self._request())

    def undo(self, machine: Machine) -> None:
        _delete_link(machine, self.netns, self.interface)

    def _request(self) -> list[str]:
        several = ["multi_queue"] if self.queues > 1 else []
        return ["ip", "tuntap", "add", "dev", self.interface, "mode", "tap", "vnet_hdr", *several]


@dataclass(frozen=True, slots=True)
class AddRunDirectory(Change):
    """A directory of netbench's own under its state directory, for the sockets and the console of a guest."""

    path: str

    @property
    def argv(self) -> tuple[str, ...]:
        return "mkdir", "-p", "-m", "700", self.path

    def make(self, machine: Machine) -> None:
        Path(self.path).mkdir(mode=0o700, parents=True)

    def undo(self, machine: Machine) -> None:
        if Path(self.path).is_relative_to(STATE_DIRECTORY):
            shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class MovePort(Change):
    """A port of the machine, lent to a namespace.

    The kernel takes it down and its addresses away on the move: `was_up` and `addresses` (with prefix
    length) are how it was found, and how it comes back.
    """

    interface: str
    netns: str
    was_up: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return "ip", "link", "set", self.interface, "netns", self.netns

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(None, self.interface)
        socket = machine.netlink.socket(None)
        lost = [route for route in socket.get_routes(oif=index) if route["proto"] != _BY_KERNEL]
        lost += [found for found in socket.get_neighbours(ifindex=index) if found["state"] & _PERMANENT]
        if lost:
            raise UsageError(
                f"port {self.interface} has {len(lost)} static routes or neighbours, which would be lost while it is "
                f"lent to a namespace: remove them first (`ip route show dev {self.interface}`, and `ip neigh …`)"
            )
        addresses = [
            f"{found.get_attr('IFA_ADDRESS')}/{found['prefixlen']}"
            for found in socket.get_addr(index=index)
            if found["scope"] != _LINK_SCOPE  # the kernel gives the interface a new one of those by itself
        ]
        return replace(self, was_up=_is_up(machine, None, self.interface), addresses=tuple(addresses))

    def make(self, machine: Machine) -> None:
        machine.link(None, "set", self.interface, net_ns_fd=f"/run/netns/{self.netns}")

    def undo(self, machine: Machine) -> None:
        if (Path("/run/netns") / self.netns).exists():
            # A port that never got there is still at home: TestbedError, and nothing to bring back.
            with suppress(TestbedError):
                machine.link(self.netns, "set", self.interface, net_ns_fd="/proc/self/ns/net")
        if self.was_up:
            _tolerant_link(machine, None, self.interface, state="up")
        _tolerating_gone(lambda: self._restore_addresses(machine))

    def _restore_addresses(self, machine: Machine) -> None:
        index = machine.netlink.index(None, self.interface)
        for address in self.addresses:
            plain, _, length = address.partition("/")
            machine.netlink.socket(None).addr("replace", index=index, address=plain, prefixlen=int(length))


@dataclass(frozen=True, slots=True)
class SetUp(_InNamespace):
    """An interface brought up; `was_up` is how it was found."""

    interface: str
    was_up: bool | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        return *_ip(self.netns), "link", "set", self.interface, "up"

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *_ip(self.netns), "link", "set", self.interface, "down"

    def as_found(self, machine: Machine) -> Self:
        return replace(self, was_up=_is_up(machine, self.netns, self.interface))

    def make(self, machine: Machine) -> None:
        machine.link(self.netns, "set", self.interface, state="up")

    def undo(self, machine: Machine) -> None:
        if self.was_up is False:
            _tolerant_link(machine, self.netns, self.interface, state="down")


@dataclass(frozen=True, slots=True)
class Enslave(_InNamespace):
    """An interface made a port of a bridge."""

    interface: str
    bridge: str

    @property
    def argv(self) -> tuple[str, ...]:
        return *_ip(self.netns), "link", "set", self.interface, "master", self.bridge

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *_ip(self.netns), "link", "set", self.interface, "nomaster"

    def make(self, machine: Machine) -> None:
        machine.link(self.netns, "set", self.interface, master=machine.netlink.index(self.netns, self.bridge))

    def undo(self, machine: Machine) -> None:
        _tolerant_link(machine, self.netns, self.interface, master=0)


@dataclass(frozen=True, slots=True)
class AddAddress(_InNamespace):
    """An IPv4 address on an interface."""

    interface: str
    address: str
    prefix_length: int

    @property
    def argv(self) -> tuple[str, ...]:
        return self._command("add")

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return self._command("del")

    def _command(self, verb: str) -> tuple[str, ...]:
        return *_ip(self.netns), "address", verb, f"{self.address}/{self.prefix_length}", "dev", self.interface

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(self.netns, self.interface)
        for found in machine.netlink.socket(self.netns).get_addr(index=index):
            if found.get_attr("IFA_ADDRESS") == self.address:
                raise _not_ours(f"the address {self.address} on {self.interface}")
        return self

    def make(self, machine: Machine) -> None:
        self._request(machine, "add")

    def undo(self, machine: Machine) -> None:
        _tolerating_gone(lambda: self._request(machine, "del"))

    def _request(self, machine: Machine, verb: str) -> None:
        index = machine.netlink.index(self.netns, self.interface)
        machine.netlink.socket(self.netns).addr(verb, index=index, address=self.address, prefixlen=self.prefix_length)


@dataclass(frozen=True, slots=True)
class AddNeighbour(_InNamespace):
    """A permanent neighbour, so that forwarding never waits for ARP."""

    interface: str
    address: str
    mac: str

    @property
    def argv(self) -> tuple[str, ...]:
        whom = (self.address, "lladdr", self.mac, "dev", self.interface, "nud", "permanent")
        return *_ip(self.netns), "neigh", "replace", *whom

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *_ip(self.netns), "neigh", "del", self.address, "dev", self.interface

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(self.netns, self.interface)
        for found in machine.netlink.socket(self.netns).get_neighbours(ifindex=index, family=AF_INET):
            if found.get_attr("NDA_DST") == self.address and found["state"] & _PERMANENT:
                raise _not_ours(f"the neighbour {self.address} on {self.interface}")
        return self

    def make(self, machine: Machine) -> None:
        index = machine.netlink.index(self.netns, self.interface)
        machine.netlink.socket(self.netns).neigh(
            "replace", ifindex=index, dst=self.address, lladdr=self.mac, state=_PERMANENT
        )

    def undo(self, machine: Machine) -> None:
        def request() -> None:
            index = machine.netlink.index(self.netns, self.interface)
            machine.netlink.socket(self.netns).neigh("del", ifindex=index, dst=self.address)

        _tolerating_gone(request)


@dataclass(frozen=True, slots=True)
class AddForwardingEntry(_InNamespace):
    """A permanent entry in a bridge's forwarding database: it goes with the bridge."""

    interface: str
    mac: str

    @property
    def argv(self) -> tuple[str, ...]:
        bridge = ("bridge", "-n", self.netns) if self.netns else ("bridge",)
        return *bridge, "fdb", "replace", self.mac, "dev", self.interface, "master", "static"

    def make(self, machine: Machine) -> None:
        machine.netlink.socket(self.netns).fdb(
            "replace",
            ifindex=machine.netlink.index(self.netns, self.interface),
            lladdr=self.mac,
            state=_STATIC,
            flags=_TO_MASTER,
        )


@dataclass(frozen=True, slots=True)
class SetSysctl(ByCommand):
    """A kernel setting; `old` is what it was. One that this kernel does not have is left alone if `optional`."""

    key: str
    value: str
    optional: bool = False
    old: str | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        return *_exec(self.netns), "sysctl", "-w", f"{self.key}={self.value}"

    @property
    def _path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")

    def found_by(self, host: Host) -> Self:
        try:
            return replace(self, old=host.read(self._path).strip())
        except TestbedError:
            if self.optional:
                return self
            raise

    def make_by(self, host: Host) -> None:
        if self.old is not None and self.old != self.value:
            host.write(self._path, self.value)

    def undo_by(self, host: Host) -> None:
        if self.old is None or self.old == self.value:
            return
        try:
            host.read(self._path)
        except TestbedError:
            return  # the interface it belonged to is gone
        host.write(self._path, self.old)


@dataclass(frozen=True, slots=True)
class OffloadsOff(ByCommand):
    """GRO, GSO, TSO and LRO switched off and verified; `old` are those found on."""

    interface: str
    old: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        words = (word for name in OFFLOADS for word in (name, "off"))
        return *_exec(self.netns), "ethtool", "-K", self.interface, *words

    def found_by(self, host: Host) -> Self:
        return replace(self, old=tuple(name for name, state in self._read(host).items() if state == "on"))

    def make_by(self, host: Host) -> None:
        if self.old:
            self._set(host, "off")
        still_on = [name for name, state in self._read(host).items() if state in ("on", "on [fixed]")]
        if still_on:
            raise TestbedError(
                f"{self.interface}: {', '.join(still_on)} cannot be switched off; frames would be merged or split "
                "on the way and not be counted one by one"
            )

    def undo_by(self, host: Host) -> None:
        if not self.old:
            return
        try:
            self._read(host)
        except TestbedError:
            return  # the interface is gone
        self._set(host, "on")

    def _set(self, host: Host, state: str) -> None:
        words = [word for name in self.old for word in (name, state)]
        run_checked(host, ["ethtool", "-K", self.interface, *words])

    def _read(self, host: Host) -> dict[str, str]:
        return read_offloads(host, self.interface)


@dataclass(frozen=True, slots=True)
class AddTable(ByCommand):
    """An nftables table of netbench's own; `rules` are a script for `nft -f` that makes it, or makes it anew."""

    family: str
    table: str
    rules: str

    @property
    def argv(self) -> tuple[str, ...]:
        return *_exec(self.netns), "nft", "-f", "-"

    @property
    def command(self) -> str:
        return f"{shlex.join(self.argv)} <<'END'\n{self.rules}END"

    def found_by(self, host: Host) -> Self:
        if host.run(["nft", "list", "table", self.family, self.table]).exit_code == 0:
            raise _not_ours(f"the nftables table {self.family} {self.table}")
        return self

    def make_by(self, host: Host) -> None:
        run_checked(host, ["nft", "-f", "-"], stdin=self.rules)

    def undo_by(self, host: Host) -> None:
        # Adding first makes deleting succeed whether or not it was there.
        script = f"add table {self.family} {self.table}\ndelete table {self.family} {self.table}\n"
        run_checked(host, ["nft", "-f", "-"], stdin=script)


@dataclass(frozen=True, slots=True)
class AddCgroup(ByCommand):
    """A control group of netbench's own for the processes of one guest: a weight and a limit of CPU time, None: usual.

    Until they are found, `directory` and `version` are those of most machines. `switched_on` says that groups of
    version 2 had no cpu controller there before.
    """

    name: str
    weight: int | None = None
    limit: float | None = None
    directory: str = USUAL_DIRECTORY
    version: int = 2
    switched_on: bool = False

    @property
    def path(self) -> str:
        """Its own directory."""
        return f"{self.directory}/{self.name}"

    @property
    def argv(self) -> tuple[str, ...]:
        return "mkdir", self.path

    @property
    def command(self) -> str:
        told = [f"echo {text} >{self.path}/{file}" for file, text in self._settings]
        return " && ".join([shlex.join(self.argv), *told])

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(CpuController(self.directory, self.version).settings(self.weight, self.limit))

    @property
    def _switch(self) -> str:
        return f"{self.directory}/cgroup.subtree_control"

    def found_by(self, host: Host) -> Self:
        controller = find_controller(host)
        change = replace(self, directory=controller.directory, version=controller.version)
        if host.run(["test", "-e", change.path]).exit_code == 0:
            raise _not_ours(f"the control group {change.path}")
        return replace(change, switched_on=change.version == 2 and "cpu" not in host.read(change._switch).split())

    def make_by(self, host: Host) -> None:
        if self.switched_on:
            try:
                host.write(self._switch, "+cpu")
            except TestbedError as error:
                raise TestbedError(
                    f"the cpu controller cannot be switched on for control groups in {self.directory} ({error}): "
                    "switch it on yourself, or leave cpu_weight and cpu_limit out of the topology"
                ) from error
        run_checked(host, ["mkdir", self.path])
        for file, text in self._settings:
            host.write(f"{self.path}/{file}", text)

    def undo_by(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name:
            return
        deadline = time.monotonic() + _EMPTY_S
        while host.run(["test", "-d", self.path]).exit_code == 0:
            if host.run(["rmdir", self.path]).exit_code != 0 and time.monotonic() > deadline:
                inside = ", ".join(host.read(f"{self.path}/cgroup.procs").split())
                raise TestbedError(
                    f"the control group {self.path} is still used by the processes {inside or 'unknown'}"
                )
            time.sleep(_POLL_S)
        if self.switched_on:
            others = [name for name in host.run(["ls", self.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # refused where somebody else has come to use it
                if not others:
                    host.write(self._switch, "-cpu")


def read_offloads(host: Host, interface: str) -> dict[str, str]:
    """The state of each of OFFLOADS on an interface: `on`, `off`, `off [fixed]`, …; TestbedError when unknown."""
    text = run_checked(host, ["ethtool", "-k", interface])
    states = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {short: states[long].strip() for short, long in _LONG_NAMES.items() if long in states}


_KINDS: tuple[type[Change], ...] = (
    AddNamespace,
    AddVeth,
    AddBridge,
    AddTap,
    AddRunDirectory,
    MovePort,
    SetUp,
    Enslave,
    AddAddress,
    AddNeighbour,
    AddForwardingEntry,
    SetSysctl,
    OffloadsOff,
    AddTable,
    AddCgroup,
)


def to_json(change: Change) -> dict[str, object]:
    """A change as JSON-able data."""
    return {"change": type(change).__name__, **asdict(change)}


def from_json(data: dict[str, Any]) -> Change:
    """The change that `to_json` made this of; KeyError or TypeError for anything else."""
    fields = dict(data)
    kind = {kind.__name__: kind for kind in _KINDS}[str(fields.pop("change"))]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})


def _refuse_existing(machine: Machine, netns: str | None, interface: str) -> None:
    if machine.netlink.has(netns, interface):
        raise _not_ours(f"the interface {interface} in {netns or 'this machine'}")


def _not_ours(what: str) -> TestbedError:
    return TestbedError(f"{what} is there already and not netbench's: remove it, or choose other names in the topology")


def _is_up(machine: Machine, netns: str | None, interface: str) -> bool:
    flags = machine.netlink.socket(netns).get_links(machine.netlink.index(netns, interface))[0]["flags"]
    return bool(flags & _IFF_UP)


def _in(netns: str | None) -> tuple[str, ...]:
    return ("netns", netns) if netns else ()


def _ip(netns: str | None) -> tuple[str, ...]:
    return ("ip", "-n", netns) if netns else ("ip",)


def _exec(netns: str | None) -> tuple[str, ...]:
    return ("ip", "netns", "exec", netns) if netns else ()


def _delete_argv(netns: str | None, interface: str) -> tuple[str, ...]:
    return *_ip(netns), "link", "del", interface


def _delete_link(machine: Machine, netns: str | None, interface: str) -> None:
    _tolerating_gone(lambda: machine.link(netns, "del", interface))


def _tolerant_link(machine: Machine, netns: str | None, interface: str, **settings: Any) -> None:  # noqa: ANN401
    _tolerating_gone(lambda: machine.link(netns, "set", interface, **settings))


def _tolerating_gone(request: Callable[[], None]) -> None:
    try:
        request()
    except TestbedError:
        return  # no such interface or namespace
    except NetlinkError as error:
        if error.code not in _GONE:
            raise
